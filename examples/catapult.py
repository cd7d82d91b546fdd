"""Throw a cube at a target with an arm of three links, by shooting through contact (Nimble, VII-D).

    python examples/catapult.py [--iterations 100] [--out catapult.png]

The controls are eight targets of the arm's servos, 0.1 s each; the loss is how far the cube is from (2.2, 2.2) m after
0.8 s. Gradients go through the push, the slip and the release.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import pictures
import shooting
import ukemi as uk

FILE = Path(__file__).with_name("catapult.xml")
STEPS, KNOTS = 400, 8
TARGET = np.array([2.2, 2.2])
START = np.array([0.0, 0.1])  # of the cube


def simulate(model: uk.Model, knots) -> uk.State:
    """The states under servo targets (KNOTS, 3) relative to the cocked arm."""
    state = uk.initial_state(model, "cocked")
    return uk.rollout(model, state, jnp.repeat(state.q[:3] + knots, STEPS // KNOTS, axis=0), uk.LCP())


def throw(iterations: int = 100, starts: int = 200, progress=None) -> tuple[uk.State, shooting.Shot]:
    """The states of the best throw, and how it was found."""
    model = uk.load(FILE)

    def loss(knots):
        return ((START + simulate(model, knots).q[-1, 3:5] - TARGET) ** 2).sum()

    begin = shooting.random_starts(starts, KNOTS, 3, step=0.4)
    shot = shooting.shoot(loss, begin, rate=0.02, iterations=iterations, progress=progress)
    return simulate(model, shot.knots), shot


def main() -> None:
    """Find a throw and draw it."""
    uk.enable_cache()
    jax.config.update("jax_enable_x64", True)  # rigid contact wants it
    arguments = shooting.arguments(__doc__, iterations=100)
    states, shot = throw(arguments.iterations, progress=shooting.report)
    uk.raise_if_failed(states)
    sys.stderr.write("\n")
    print(f"The cube is {1000 * np.sqrt(shot.value):.2f} mm from its target after 0.8 s.")
    if arguments.out:
        figure = pictures.poses(uk.load(FILE), states, moments=9, losses=shot.losses, path_of="cube", mark=TARGET)
        figure.savefig(arguments.out, dpi=150)
        print(f"Wrote {arguments.out}")


if __name__ == "__main__":
    main()
