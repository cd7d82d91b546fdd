"""A billiard shot found by gradient descent, from shots that miss (Paulus et al., Fig. 8).

A force (4, u) acts on the first ball for the first hundredth of a second; three seconds later the second ball should
lie at the origin. Where the balls do not meet, the exact gradient is zero but for rounding; that of `uk.FromDistance`
points to the shot. The motion is the same, to the last bit.
"""

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from scenes import arguments, billiards, save, say  # noqa: E402

import ukemi as uk  # noqa: E402

STEPS = 300


def shot(model, method):
    """Loss of a shot u: squared distance of the second ball from the target at the end; and the balls' way."""
    start = uk.initial_state(model)

    def loss(u):
        push = jnp.zeros((STEPS, model.nv)).at[0, 0].set(4.0).at[0, 1].set(u)
        states = uk.rollout(model, start, uk.Input(qfrc=push), method)
        return (states.q[-1, 7:9] ** 2).sum(), states.q

    return loss


def descend(program, u: float, iterations: int, rate: float = 0.1) -> list[tuple[float, float]]:
    """Adam from one start: shots and their losses."""
    adam = optax.adam(rate)
    memory, history = adam.init(jnp.asarray(u)), []
    for _ in range(iterations):
        (value, _), slope = program(u)
        history.append((float(u), float(value)))
        change, memory = adam.update(slope, memory)
        u = u + change
    return history


def main() -> None:
    """Sweep the loss, descend from four misses, and plot."""
    uk.enable_cache()
    parser = arguments(__doc__, "billiards.png")
    parser.add_argument("--method", choices=("soft", "adaptive"), default="adaptive")
    parser.add_argument("--width", type=float, default=0.2, help="of FromDistance [m] (default: 0.2)")
    parser.add_argument("--d0", type=float, default=0.1, help="impedance at touching (default: 0.1)")
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--points", type=int, default=41, help="of the sweep")
    options = parser.parse_args()
    model = uk.load(billiards())
    law = {"soft": uk.Soft, "adaptive": uk.Adaptive}[options.method]
    rules = {"exact": uk.Exact(), "from distance": uk.FromDistance(width=options.width, d_0=options.d0)}
    programs = {
        name: jax.jit(jax.value_and_grad(shot(model, law(gradient=rule)), has_aux=True)) for name, rule in rules.items()
    }
    shots = np.linspace(-5, 5, options.points)
    curves = {}
    for name, program in programs.items():
        say(f"Sweeping {len(shots)} shots, gradient {name} …")
        found = [program(u) for u in shots]
        curves[name] = np.array([[float(value), float(slope)] for (value, _), slope in found])
        curves[name + ", motion"] = np.array([q for (_, q), _ in found])
    same = (curves["exact, motion"] == curves["from distance, motion"]).all()
    blind = {name: int((np.abs(curves[name][:, 1]) < 1e-9).sum()) for name in rules}
    print(f"states with and without FromDistance are bitwise the same: {same}")
    print(f"shots whose gradient is below 1e-9 m²/N, of {len(shots)}: {blind}")
    runs = {}
    for u in (-5.0, -3.0, 3.0, 5.0):
        say(f"Descending from u = {u} …")
        runs[u] = descend(programs["from distance"], u, options.iterations)
        best = min(runs[u], key=lambda point: point[1])
        print(f"from u = {u:4.1f}: loss {runs[u][0][1]:.4f} -> {best[1]:.6f} at u = {best[0]:.3f}")
    plot(options.out, shots, curves, runs)


def plot(path, shots, curves, runs) -> None:
    """Loss, gradients, and the way of the descents."""
    import matplotlib.pyplot as plt

    figure, (top, middle, bottom) = plt.subplots(3, 1, figsize=(7, 9), constrained_layout=True)
    top.plot(shots, curves["exact"][:, 0], color="black")
    top.set(ylabel="loss [m²]", title="Where the second ball ends, by the sideways push u")
    for name, style in (("exact", "o-"), ("from distance", ".-")):
        middle.plot(shots, curves[name][:, 1], style, label=name, markersize=4)
    middle.set(ylabel="gradient [m²/N]", xlabel="u [N]")
    middle.legend(frameon=False)
    for u, history in runs.items():
        bottom.semilogy(np.array(history)[:, 1], label=f"from u = {u:g}")
    bottom.set(ylabel="loss [m²]", xlabel="Adam iteration")
    bottom.legend(frameon=False)
    save(figure, path)


if __name__ == "__main__":
    main()
