"""Jump as high as possible with a worm of three links, by shooting through contact (Nimble, VII-D).

    python examples/jump_worm.py [--iterations 80] [--out jump_worm.png]

The controls are ten targets of the joints' servos, 0.1 s each; the loss is the height of the head after 1 s, with the
sign reversed. Stretched, the worm stands 0.05 m higher than it starts: what is above that is a jump.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp

import pictures
import shooting
import ukemi as uk

FILE = Path(__file__).with_name("jump_worm.xml")
STEPS, KNOTS = 500, 10


def simulate(model: uk.Model, knots) -> uk.State:
    """The states under servo targets (KNOTS, 3) relative to the crouch."""
    state = uk.initial_state(model, "crouched")
    return uk.rollout(model, state, jnp.repeat(state.q[2:] + knots, STEPS // KNOTS, axis=0), uk.LCP())


def jump(iterations: int = 80, starts: int = 300, tries: int = 2, progress=None) -> tuple[uk.State, shooting.Shot]:
    """The states of the highest jump, and how it was found."""
    model = uk.load(FILE)
    begin = shooting.random_starts(starts, KNOTS, 3, step=0.6)
    loss = lambda knots: -simulate(model, knots).q[-1, 1]  # noqa: E731
    shot = shooting.shoot(loss, begin, rate=0.04, iterations=iterations, tries=tries, progress=progress)
    return simulate(model, shot.knots), shot


def main() -> None:
    """Find a jump and draw it."""
    uk.enable_cache()
    jax.config.update("jax_enable_x64", True)  # rigid contact wants it
    arguments = shooting.arguments(__doc__, iterations=80)
    states, shot = jump(arguments.iterations, progress=shooting.report)
    uk.raise_if_failed(states)
    sys.stderr.write("\n")
    print(f"After 1 s the head is {-shot.value:.3f} m above where it started.")
    if arguments.out:
        figure = pictures.poses(uk.load(FILE), states, moments=11, losses=shot.losses, path_of="head")
        figure.savefig(arguments.out, dpi=150)
        print(f"Wrote {arguments.out}")


if __name__ == "__main__":
    main()
