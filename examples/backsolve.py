"""When to solve the adjoint equations with steps of their own (Paulus et al., Fig. 19).

Two balls float without gravity, table and friction. The first starts towards the second at a velocity (1, u); the loss
is the squared distance of the second from the origin at the end. With `uk.FromDistance` a miss has a gradient too: that
of contacts which the motion never has, so that error control of the motion alone takes long steps through them. How far
the derivative of the accepted steps (`adjoint="checkpointed"`) and that of steps chosen for the adjoint (`"backsolve"`)
are off is measured against many small steps; the exact gradient is compared with central differences.

As in the paper, the derivative of the accepted steps oscillates, but only where the model's time step is long: no step
is longer than that. With 0.01 s it is off by a few per cent and with 0.1 s in sign for some shots, where backsolve is
right to a fraction of a per cent. With time steps so long that an impact is overlooked, both are wrong.
"""

import jax

jax.config.update("jax_enable_x64", True)

import diffrax  # noqa: E402
import equinox as eqx  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from scenes import arguments, billiards, save, say  # noqa: E402

import ukemi as uk  # noqa: E402

SPEED = 1.0  # of the first ball towards the second [m/s]
SMALL = 1e-3  # steps of what counts as right [s]


def loss(model: uk.Model, method, steps: int, u):
    """Squared distance of the second ball from the origin at the end [m²]."""
    start = uk.initial_state(model, v=jnp.zeros(model.nv).at[0].set(SPEED).at[1].set(u))
    return (uk.rollout(model, start, jnp.zeros((steps, 0)), method).q[-1, 7:9] ** 2).sum()


# Tolerances and time steps that are arrays compile nothing anew.
value, gradient = eqx.filter_jit(loss), eqx.filter_jit(jax.grad(loss, argnums=3))


def sweep(model: uk.Model, method, speeds, seconds: float) -> np.ndarray:
    """Gradients (n,) of the loss."""
    steps = round(seconds / float(model.options.timestep))
    return np.array([gradient(model, method, steps, jnp.asarray(u)) for u in speeds])


def differences(model: uk.Model, speeds, seconds: float, h: float = 1e-5) -> np.ndarray:
    """Central differences (n,) of the loss."""
    steps, method = round(seconds / float(model.options.timestep)), uk.Adaptive(controller=controller(1e-10))
    ends = [[value(model, method, steps, jnp.asarray(u + d)) for d in (h, -h)] for u in speeds]
    return np.array([(ahead - behind) / (2 * h) for ahead, behind in ends])


def controller(tolerance: float, longest: float = 1.0) -> diffrax.PIDController:
    """The controller that `uk.Adaptive` has by default, with a longest step [s]."""
    rtol, atol, dtmax = map(jnp.asarray, (tolerance, 1e-2 * tolerance, longest))
    return diffrax.PIDController(rtol, atol, pcoeff=0.2, icoeff=0.4, dtmax=dtmax)


def methods(tolerance: float, rule) -> dict[str, uk.Adaptive]:
    """The exact gradient, and that from a distance by both adjoints and by small steps."""
    ours, small = controller(tolerance), controller(tolerance, SMALL)
    return {
        "exact": uk.Adaptive(controller=ours, max_steps=1000),
        "checkpointed": uk.Adaptive(controller=ours, max_steps=1000, gradient=rule),
        "backsolve": uk.Adaptive(controller=ours, max_steps=1000, gradient=rule, adjoint="backsolve"),
        "small steps": uk.Adaptive(controller=small, max_steps=1000, gradient=rule),
    }


def roughness(curve: np.ndarray, true: np.ndarray) -> float:
    """Root mean square of the error, relative to that of the curve itself."""
    return float(np.sqrt(((curve - true) ** 2).mean() / (true**2).mean()))


def main() -> None:
    """Sweep the initial speed, compare the gradients, and plot."""
    uk.enable_cache()
    parser = arguments(__doc__, "backsolve.png")
    parser.add_argument("--timestep", type=float, nargs="+", default=[0.01, 0.1], help="of the model [s]")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--tolerance", type=float, default=1e-6)
    parser.add_argument("--points", type=int, default=61, help="initial speeds in [-1.5, 1.5]")
    parser.add_argument("--width", type=float, default=0.2, help="of FromDistance [m]")
    parser.add_argument("--d0", type=float, default=0.1, help="impedance at touching of FromDistance")
    options = parser.parse_args()
    rule = uk.FromDistance(width=options.width, d_0=options.d0)
    speeds = np.linspace(-1.5, 1.5, options.points)
    say("Differences and small steps …")
    fine = uk.load(billiards(table=False))
    laws = methods(options.tolerance, rule)
    true = {
        "exact": differences(fine, speeds, options.seconds),
        "from distance": sweep(fine, laws.pop("small steps"), speeds, options.seconds),
    }
    curves = {}
    for h in options.timestep:
        model = uk.load(billiards(table=False, timestep=h))
        for name, method in laws.items():
            say(f"Time step {h:g} s, {name} …")
            curves[h, name] = sweep(model, method, speeds, options.seconds)
            error = roughness(curves[h, name], true["exact" if name == "exact" else "from distance"])
            zero = int((np.abs(curves[h, name]) < 1e-9).sum())
            print(
                f"time step {h:4.2f} s  {name:12s}  error {100 * error:8.3f}%  zero at {zero} of {len(speeds)} speeds",
                flush=True,
            )
    plot(options.out, speeds, curves, true)


def plot(path, speeds, curves, true) -> None:
    """One row per time step: the exact gradient, and both adjoints from a distance."""
    import matplotlib.pyplot as plt

    steps = list(dict.fromkeys(h for h, _ in curves))
    figure, axes = plt.subplots(
        len(steps), 3, figsize=(11, 2.6 * len(steps)), sharex=True, squeeze=False, constrained_layout=True
    )
    for row, h in zip(axes, steps):
        for axis, name in zip(row, ("exact", "checkpointed", "backsolve")):
            axis.plot(speeds, true["exact" if name == "exact" else "from distance"], color="black", linewidth=0.8)
            axis.plot(speeds, curves[h, name], "o", markersize=3)
            axis.set_title(f"{name}, time step {h:g} s", fontsize=9)
        row[0].set_ylabel("gradient [m s]")
        row[2].sharey(row[1])
    for axis in axes[-1]:
        axis.set_xlabel("initial speed u [m/s]")
    save(figure, path)


if __name__ == "__main__":
    main()
