"""Take off from the ground by gradient descent (Nimble, VII-C): a drone, or a platform that lifts a ball.

    python examples/drone.py [--scene drone|platform] [--steps 500] [--iterations 100] [--out drone.png]

At rest the contact with the ground answers every small change of the thrust, so that the exact gradient is zero and
descent never starts. Complementarity-aware gradients let go of contacts that the loss pulls apart.
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ukemi as uk

FOLDER = Path(__file__).parent
RULES = {"exact": uk.Exact(), "complementarity-aware": uk.ComplementarityAware()}


class Scene(NamedTuple):
    """What is to be lifted how high."""

    file: str
    rows: tuple[int, ...]  # of q: heights of what shall be lifted
    targets: tuple[float, ...]  # [m]


# The ball alone would be pulled off its platform rather than lifted by it: the loss says where both shall be.
SCENES = {"drone": Scene("drone.xml", (2,), (1.0,)), "platform": Scene("platform.xml", (3, 0), (1.0, 0.86))}


class Run(NamedTuple):
    """How a descent went."""

    losses: np.ndarray  # (iterations + 1,) [m²]
    heights: np.ndarray  # (steps,) of the first row after the last iteration [m]
    slope: float  # norm of the first gradient


def descend(scene: Scene, rule, steps: int, iterations: int, progress=None) -> Run:
    """Gradient descent (Adam, with a rate that falls to zero) on the thrust at every step, which starts at none."""
    model, method = uk.load(FOLDER / scene.file), uk.LCP(gradient=rule)
    state, targets = uk.initial_state(model), jnp.array(scene.targets)

    def loss(thrust):
        q = uk.rollout(model, state, thrust[:, None], method).q
        return ((q[-1, scene.rows] - targets) ** 2).mean(), q[:, scene.rows[0]]

    optimizer = optax.adam(optax.cosine_decay_schedule(1.0, iterations))

    @jax.jit
    def update(thrust, memory):
        (value, heights), slope = jax.value_and_grad(loss, has_aux=True)(thrust)
        change, memory = optimizer.update(slope, memory)
        return optax.apply_updates(thrust, change), memory, value, heights, jnp.linalg.norm(slope)

    thrust = jnp.zeros(steps)
    memory, losses, first, heights = optimizer.init(thrust), [], 0.0, None
    for k in range(iterations + 1):
        thrust, memory, value, heights, slope = update(thrust, memory)
        first = float(slope) if k == 0 else first
        losses.append(float(value))
        if progress:
            progress(k, losses[-1])
    return Run(np.array(losses), np.asarray(heights), first)


def draw(path: Path, runs: dict[str, Run], scene: Scene, h: float) -> None:
    """The losses, and the heights after the last iteration."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, run in runs.items():
        left.semilogy(run.losses, label=name)
        right.plot(h * np.arange(1, len(run.heights) + 1), run.heights, label=name)
    left.set(xlabel="iteration", ylabel="squared distance to the target [m²]")
    right.axhline(scene.targets[0], color="black", linewidth=0.8, linestyle="--", label="target")
    right.set(xlabel="time [s]", ylabel="height [m]")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Run both rules and draw them."""
    uk.enable_cache()
    jax.config.update("jax_enable_x64", True)  # rigid contact wants it
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scene", choices=SCENES, default="drone")
    parser.add_argument("--steps", type=int, default=500, help="time steps of 0.01 s (default: 500)")
    parser.add_argument("--iterations", type=int, default=100, help="of gradient descent (default: 100)")
    parser.add_argument("--out", type=Path, help="write a picture")
    arguments = parser.parse_args()
    scene, runs = SCENES[arguments.scene], {}
    for name, rule in RULES.items():

        def progress(k, value, name=name):
            sys.stderr.write(f"\r{name}: iteration {k}, loss {value:.3g} m²   ")

        runs[name] = run = descend(scene, rule, arguments.steps, arguments.iterations, progress)
        sys.stderr.write("\n")
        print(f"{name}: first gradient {run.slope:.3g}, loss {run.losses[0]:.3g} -> {run.losses[-1]:.3g} m²")
    if arguments.out:
        draw(arguments.out, runs, scene, 0.01)
        print(f"Wrote {arguments.out}")


if __name__ == "__main__":
    main()
