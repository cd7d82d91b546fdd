"""Size, mass, friction and stiffness of a real cube from its tosses (Paulus et al., section 5.1).

    python examples/cube_toss.py cube.npz --start 60 80 120 140 --rule distance

The data are the ContactNets tosses of a 10 cm acrylic cube (Pfrommer et al., 2020, github.com/DAIRLab/contact-nets), as
one file with `data` (states: position, quaternion, velocity, angular velocity in the first 13 columns) and `lengths`
(states of each toss). A segment is five measured states; the first is simulated on for four steps and compared with the
rest. Rotations are compared as matrices, which have no sign to get wrong.

A motion that nothing but weight and contact drives shows how mass and inertia relate, not how large they are: so the
inertia stays as it is measured, and mass is fitted against it.
"""

import jax

jax.config.update("jax_enable_x64", True)

from pathlib import Path  # noqa: E402

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from scenes import arguments, save, say  # noqa: E402

import ukemi as uk  # noqa: E402
from ukemi.maths import spatial  # noqa: E402
from ukemi.simulate.linearization import leaf, replace_leaves  # noqa: E402

RATE = 148.0  # states per second
SIDE, MASS, INERTIA = 0.1048, 0.37, 0.00081  # nominal [m], [kg], [kg m²]
AHEAD = 4  # steps that are predicted
SCALE = np.array([0.01] * 3 + [0.3] * 9 + [0.5] * 3 + [5.0] * 3)  # of positions, rotations and velocities in the loss


def cube(substeps: int) -> uk.Model:
    """A cube on a floor; with fixed steps the contact's time constant counts as two time steps at the least."""
    safe = "enable" if substeps > 1 else "disable"
    return uk.load(f"""<mujoco model="cube"><option timestep="{1 / RATE / substeps}"><flag refsafe="{safe}"/></option>
      <custom><numeric name="restitution" data=".125"/></custom>
      <default><geom friction=".18" solref=".01 .8" solimp="0 .95 .002 .5 2"/></default><worldbody>
      <geom type="plane" size="2 2 .1"/><body pos="0 0 .2"><freejoint/>
      <inertial pos="0 0 0" mass="{MASS}" diaginertia="{INERTIA} {INERTIA} {INERTIA}"/>
      <geom type="box" size="{SIDE / 2} {SIDE / 2} {SIDE / 2}"/></body></worldbody></mujoco>""")


def with_parameters(model: uk.Model, values: dict) -> uk.Model:
    """The model with the logarithms in `values` applied: side, mass, friction, time, damping."""
    names = ["geoms.size", "geoms.friction", "geoms.solref", "bodies.mass", "bodies.invweight"]
    size, friction, solref, mass, invweight = (leaf(model, name) for name in names)
    if "side" in values:
        size = size.at[1].set(0.5 * jnp.exp(values["side"]))
    if "mass" in values:
        factor = jnp.exp(values["mass"]) / MASS
        mass, invweight = mass * factor, invweight / jnp.array([factor, 1.0])
    if "friction" in values:
        friction = friction.at[:, 0].set(jnp.exp(values["friction"]))
    for k, name in enumerate(("time", "damping")):
        if name in values:
            solref = solref.at[:, k].set(jnp.exp(values[name]))
    given = dict(zip(names, (size, friction, solref, mass, invweight), strict=True))
    return replace_leaves(model, {name: given[name] for name in names if _moves(name, values)})


def _moves(name: str, values: dict) -> bool:
    uses = {"geoms.size": "side", "geoms.friction": "friction", "bodies.mass": "mass", "bodies.invweight": "mass"}
    return bool({"time", "damping"} & set(values)) if name == "geoms.solref" else uses[name] in values


STARTS = {"mass": MASS, "friction": 0.18, "time": 0.01, "damping": 0.8}
RIGID = ("mass", "friction")  # of these, those that rigid contact knows
LAWS = {"soft": (uk.Soft, 8), "adaptive": (uk.Adaptive, 1), "lcp": (uk.LCP, 8)}  # and time steps per measured state

RULES = {
    "exact": lambda _: uk.Exact(),
    "distance": lambda options: uk.FromDistance(width=options.width, d_0=options.d0),
    "bounce": lambda _: uk.Bounce(),
}


def segments(path: Path, highest: float = 0.12) -> tuple[np.ndarray, np.ndarray]:
    """Segments (n, 5, 13) near the floor, and the toss (n,) that each comes from."""
    stored = np.load(path)
    states, ends = stored["data"][:, :13], np.cumsum(stored["lengths"])
    pieces, owners = [], []
    for k, (first, end) in enumerate(zip(np.concatenate([[0], ends[:-1]]), ends, strict=True)):
        for begin in range(int(first), int(end) - AHEAD, AHEAD):
            piece = states[begin : begin + AHEAD + 1]
            if piece[-1, 2] < highest and np.abs(piece[:, 7:10]).max() > 0.1:
                pieces.append(piece)
                owners.append(k)
    return np.array(pieces), np.array(owners)


def features(states):
    """What is compared: position, rotation matrix, velocities (…, 18), in units of their scales."""
    turn = spatial.quat_to_mat(spatial.quat_normalize(states[..., 3:7]))
    parts = [states[..., :3], turn.reshape(*turn.shape[:-2], 9), states[..., 7:13]]
    return jnp.concatenate(parts, -1) / SCALE


def misfit(model: uk.Model, method, substeps: int):
    """Function (values, segments) -> mean squared error of the predictions."""

    def predict(values, first):
        moved = with_parameters(model, values)
        start = uk.initial_state(moved, q=first[:7], v=first[7:13])
        states = uk.rollout(moved, start, jnp.zeros((AHEAD * substeps, 0)), method)
        return jnp.concatenate([states.q, states.v], -1)[substeps - 1 :: substeps]

    def loss(values, batch):
        found = jax.vmap(lambda segment: predict(values, segment[0]))(batch)
        return ((features(found) - features(batch[:, 1:])) ** 2).mean()

    return loss


def fit(program, values: dict, pieces: np.ndarray, iterations: int, batch: int, rate: float, seed: int) -> list[dict]:
    """Adam on random batches of segments; the logarithms of the parameters before every step, and the loss."""
    schedule = optax.cosine_decay_schedule(rate, iterations, alpha=0.05)
    adam = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(schedule, b1=0.5, b2=0.9, eps=1e-6))
    memory, rng, history = adam.init(values), np.random.default_rng(seed), []
    for k in range(iterations):
        loss, slope = program(values, pieces[rng.choice(len(pieces), batch, replace=False)])
        history.append({name: float(jnp.exp(x)) for name, x in values.items()} | {"loss": float(loss)})
        change, memory = adam.update(slope, memory)
        values = optax.apply_updates(values, change)
        if k % 10 == 0:
            say(f"  {k:4d}  " + "  ".join(f"{name} {value:.4g}" for name, value in history[-1].items()))
    history.append({name: float(jnp.exp(x)) for name, x in values.items()} | {"loss": float("nan")})
    return history


def main() -> None:
    """Fit from every start, test on tosses that were held out, and plot."""
    uk.enable_cache()
    parser = arguments(__doc__, "cube_toss.png")
    parser.add_argument("data", type=Path, help="the ContactNets tosses as .npz")
    parser.add_argument("--method", choices=LAWS, default="soft")
    parser.add_argument("--rule", choices=RULES, help="of gradients (default: distance; lcp: exact)")
    parser.add_argument("--start", type=float, nargs="+", default=[60, 80, 120, 140], help="side lengths [mm]")
    parser.add_argument("--fit", choices=("side", "all"), default="side")
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.05, help="of Adam, on logarithms")
    parser.add_argument("--width", type=float, default=0.05, help="of FromDistance [m]")
    parser.add_argument("--d0", type=float, default=0.1, help="impedance at touching of FromDistance")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    law, substeps = LAWS[options.method]
    rule = RULES[options.rule or ("exact" if law is uk.LCP else "distance")](options)
    pieces, owners = segments(options.data)
    held = owners % 10 == 0
    say(f"{len(pieces)} segments of {len(set(owners))} tosses, {held.sum()} of them held out")
    loss = misfit(cube(substeps), law(gradient=rule), substeps)
    program, value = jax.jit(jax.value_and_grad(loss)), jax.jit(loss)
    test = pieces[held][:: max(1, held.sum() // 200)][:200]
    runs = {}
    for start in options.start:
        say(f"From {start:g} mm …")
        values = {"side": jnp.log(start / 1000)}
        if options.fit == "all":
            values |= {name: jnp.log(x) for name, x in STARTS.items() if law is not uk.LCP or name in RIGID}
        before = float(value(values, test))
        runs[start] = fit(program, values, pieces[~held], options.iterations, options.batch, options.rate, options.seed)
        last = {name: x for name, x in runs[start][-1].items() if name != "loss"}
        error = float(value({name: jnp.log(x) for name, x in last.items()}, test))
        listing = ", ".join(f"{name} {x:.4g}" for name, x in last.items())
        off = " and ".join(f"{100 * (last['side'] / s - 1):+.1f}% of {1000 * s:.1f} mm" for s in (SIDE, 0.1024))
        print(f"from {start:g} mm: {listing}; side {off}; held-out loss {before:.4f} -> {error:.4f}", flush=True)
    plot(options.out, runs)


def plot(path: Path, runs: dict) -> None:
    """Side length and loss over the iterations."""
    import matplotlib.pyplot as plt

    figure, (top, bottom) = plt.subplots(2, 1, figsize=(7, 6), sharex=True, constrained_layout=True)
    for start, history in runs.items():
        top.plot([1000 * point["side"] for point in history], label=f"from {start:g} mm")
        bottom.semilogy([point["loss"] for point in history])
    for side, style in ((SIDE, "--"), (0.1024, ":")):
        top.axhline(1000 * side, color="black", linestyle=style, linewidth=0.8)
    top.set(ylabel="side length [mm]", title="Side of the ContactNets cube; dashed 104.8 mm, dotted 102.4 mm")
    top.legend(frameon=False)
    bottom.set(ylabel="loss of the batch", xlabel="Adam iteration")
    save(figure, path)


if __name__ == "__main__":
    main()
