"""Gradients through the impacts of a toss, for every primitive (Paulus et al., Fig. 3 and 21).

A body flies over a floor and bounces. Where it comes to be after a second, as a function of its initial speed u, is
smooth for the continuous motion. With a fixed step of 2 ms its derivative is that of a discrete program, and scatters;
under error control it is that of the motion.

The differences that each is compared with are those of the same program. Under error control they may be fine, which
the curves need where bounces multiply; with a fixed step fine ones would scatter just like the derivative. Changes of
case in collision detection are smoothed: without, the points on which a cylinder rocks jump and error control is stuck.
"""

import jax

jax.config.update("jax_enable_x64", True)

import time  # noqa: E402

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from scenes import SHAPES, arguments, save, say, toss  # noqa: E402

import ukemi as uk  # noqa: E402

STEPS = 500


def landing(model, method):
    """Function u -> final position (3,) of the body."""

    def end(u):
        start = uk.initial_state(model, v=jnp.array([0, -0.1, 0, 0, 0, 0]).at[0].set(u))
        return uk.rollout(model, start, jnp.zeros((STEPS, 0)), method).q[-1, :3]

    return end


def study(model, method, speeds, h: float) -> dict:
    """Derivatives of the final x and y by the rule, and by central differences of the same program."""
    end = landing(model, method)
    both = jax.jit(lambda u: jax.jvp(end, (u,), (jnp.ones_like(u),)))
    plain = jax.jit(end)
    found = [both(u) for u in speeds]
    differences = [(plain(u + h) - plain(u - h)) / (2 * h) for u in speeds]
    return {
        "end": np.array([value for value, _ in found]),
        "slope": np.array([slope for _, slope in found]),
        "differences": np.array(differences),
    }


def agreement(result: dict, bound: float = 0.01) -> float:
    """Share of points whose gradient (x, y) is within `bound` of the differences, relative to their norm."""
    off = np.linalg.norm((result["slope"] - result["differences"])[:, :2], axis=1)
    return float((off <= bound * np.linalg.norm(result["differences"][:, :2], axis=1)).mean())


def main() -> None:
    """Compare both methods on every shape and plot."""
    uk.enable_cache()
    parser = arguments(__doc__, "toss.png")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--points", type=int, default=41, help="initial speeds in [-3, -1]")
    parser.add_argument("--rtol", type=float, default=1e-10)
    parser.add_argument("--difference", type=float, default=1e-5, help="step of the central differences [m/s]")
    parser.add_argument("--coarse", type=float, default=1e-3, help="the same with a fixed step of time [m/s]")
    parser.add_argument("--smoothing", type=float, default=1e-3, help="of changes of case in collision detection [m]")
    options = parser.parse_args()
    speeds = jnp.linspace(-3, -1, options.points)
    adaptive = uk.Adaptive(rtol=options.rtol, atol=1e-2 * options.rtol, max_steps=1000)
    results = {}
    for shape in options.shapes:
        model = uk.load(toss(shape))
        if options.smoothing:
            model = uk.smooth_collisions(model, options.smoothing)
        for name, method, h in (
            ("fixed step", uk.Soft(), options.coarse),
            ("adaptive", adaptive, options.difference),
        ):
            begin = time.perf_counter()
            results[shape, name] = study(model, method, speeds, h)
            say(f"{shape}, {name}: {time.perf_counter() - begin:.0f} s")
            share = 100 * agreement(results[shape, name])
            print(f"{shape:10s} {name:10s} within 1% of its differences at {share:.0f}% of the points", flush=True)
        motion = {
            "slope": results[shape, "fixed step"]["slope"],
            "differences": results[shape, "adaptive"]["differences"],
        }
        share = 100 * agreement(motion)
        print(f"{shape:10s} fixed step within 1% of the motion's differences at {share:.0f}% of the points", flush=True)
    plot(options.out, options.shapes, np.asarray(speeds), results)


def plot(path, shapes, speeds, results) -> None:
    """Derivative of the final x by speed, one column per shape."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(shapes), figsize=(3.2 * len(shapes), 5), sharex=True, constrained_layout=True)
    axes = axes.reshape(2, -1)
    for k, shape in enumerate(shapes):
        for row, name in enumerate(("fixed step", "adaptive")):
            result, axis = results[shape, name], axes[row, k]
            axis.plot(speeds, result["slope"][:, 0], "o", markersize=3, label="gradient")
            axis.plot(speeds, result["differences"][:, 0], color="black", linewidth=0.8, label="differences")
            axis.set_title(f"{shape}, {name}", fontsize=9)
        low, high = np.percentile(results[shape, "adaptive"]["differences"][:, 0], [0, 100])
        room = 0.3 + 0.5 * (high - low)
        for row in range(2):
            axes[row, k].set_ylim(low - room, high + room)
        axes[1, k].set_xlabel("initial speed u [m/s]")
    axes[0, 0].legend(frameon=False)
    for axis in axes[:, 0]:
        axis.set_ylabel("∂ final x / ∂ u [s]")
    save(figure, path)


if __name__ == "__main__":
    main()
