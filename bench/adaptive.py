"""Cost of gradients under error control: the box toss to 2% of the converged derivative, and memory of a long rollout.

Usage: python bench/adaptive.py [--rounds N] [--points N] [--steps N]

The toss is that of examples/toss.py (500 time steps of 2 ms), float64, in reverse mode. What is converged is the
derivative at a tolerance of 1e-10. Compilation is measured once per law in this process, tracing included; runs are the
least of several rounds. The second table is what the compiled gradient of a rollout holds besides its arguments and
results, as XLA states it: nothing is run for it.
"""

import argparse
import os
import sys
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import gradients as g  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import tables  # noqa: E402

import ukemi as uk  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import scenes  # noqa: E402

STEPS, LONG = 500, 10_000
TOTAL, RUN, ACCURACY, MEMORY = 15.0, 1.0, 0.02, 2.0  # promised: seconds with compilation and without, error, gigabytes
TOLERANCES = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)


def landing(model: uk.Model, method, steps: int, checkpoint: int | None = None):
    """Function u -> final x of the box."""

    def end(u):
        start = uk.initial_state(model, v=jnp.array([0, -0.1, 0, 0, 0, 0]).at[0].set(u))
        return uk.rollout(model, start, jnp.zeros((steps, 0)), method, checkpoint=checkpoint).q[-1, 0]

    return end


def law(tolerance: float) -> uk.Adaptive:
    """`uk.Adaptive` at a tolerance."""
    return uk.Adaptive(rtol=tolerance, atol=1e-2 * tolerance, max_steps=1000)


def toss_rows(speeds: np.ndarray, rounds: int) -> list[list[str]]:
    """Errors and times of the gradient at several tolerances."""
    model = uk.load(scenes.toss("box"))
    converged = jax.jit(jax.grad(landing(model, law(1e-10), STEPS)))
    true, rows = np.array([converged(u) for u in speeds]), []
    for tolerance in TOLERANCES:
        program: list = []

        def build(tolerance=tolerance, program=program):
            gradient = jax.jit(jax.grad(landing(model, law(tolerance), STEPS)))
            program.append(gradient.lower(speeds[0]).compile())
            return jnp.zeros(())

        compiled = g.clocks(build)
        errors = np.abs(np.array([program[0](u) for u in speeds]) / true - 1)
        cpu, wall = g.least([g.clocks(lambda p=program[0]: p(speeds[len(speeds) // 2])) for _ in range(rounds)])
        rows.append([
            f"{tolerance:.0e}", tables.verdict(float(np.median(errors)), ACCURACY), f"{errors.max():.3g}",
            f"{compiled[0]:.3g}", f"{compiled[1]:.3g}", f"{cpu:.3g}", tables.verdict(float(wall), RUN),
            tables.verdict(compiled[1] + float(wall), TOTAL),
        ])  # fmt: skip
    return rows


def memory_rows(steps: int) -> list[list[str]]:
    """Temporaries of the compiled gradient of rollouts, in gigabytes and bytes per time step."""
    model, rows = uk.load(scenes.toss("box")), []
    cases = {
        f"{steps // 10} steps": (steps // 10, None),
        f"{steps} steps": (steps, None),
        f"{steps} steps, checkpoint=100": (steps, 100),
    }
    for name, (count, checkpoint) in cases.items():
        gradient = jax.jit(jax.grad(landing(model, uk.Adaptive(), count, checkpoint)))
        held = gradient.lower(-2.0).compile().memory_analysis().temp_size_in_bytes
        rows.append([name, tables.verdict(held / 1e9, MEMORY), f"{held / count:.0f}"])
    return rows


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--points", type=int, default=7, help="initial speeds in [-2.1, -1.9]")
    parser.add_argument("--steps", type=int, default=LONG, help="of the rollout whose memory is measured")
    args = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    heads = [
        "tolerance",
        "median error",
        "largest",
        "compile CPU s",
        "wall s",
        "run CPU s",
        "wall s",
        "compile + run s",
    ]
    rows = toss_rows(np.linspace(-2.1, -1.9, args.points), args.rounds)
    tables.table("Gradient of the box toss under uk.Adaptive, float64", heads, rows)
    heads = ["", "temporaries GB", "bytes per step"]
    tables.table("Memory of the gradient of an adaptive rollout, float64", heads, memory_rows(args.steps))


if __name__ == "__main__":
    main()
