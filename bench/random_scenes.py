"""Random scenes with every kind of element, in pieces: agreement with MuJoCo, and derivatives.

    python bench/random_scenes.py FIRST LAST [--each N] [--only follow|slopes]

Seeds from FIRST up to LAST give a structure each, and each structure N scenes, whose numbers differ. Every scene is
followed for 50 steps beside MuJoCo, for as long as rounding lets two runs of it stay together, and its A and B are held
against central differences. A line says for each seed how many scenes were followed to the end and how many columns of
how many were compared, or what is wrong; the last one sums up.
"""

import argparse
import time

import jax
import mujoco
import numpy as np

import ukemi as uk
from tests.scenes.random_scenes import check_slopes, follow
from tests.scenes.structures import draw_structure


def main() -> int:
    """Run and print; the exit status says whether something is wrong."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--only", choices=["follow", "slopes"])
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    mujoco.set_mju_user_warning(lambda message: None)
    total, wrong = np.zeros(4, int), 0
    for seed in range(given.first, given.last):
        structure, begin = draw_structure(np.random.default_rng(seed)), time.time()
        ends, compared, whole, faults = 0, 0, 0, []
        try:
            if given.only != "slopes":
                ends = follow(structure, 1000 * seed, given.each)
        except (AssertionError, uk.UkemiError, ValueError) as error:
            faults.append(f"motion: {type(error).__name__}: {error}")
        try:
            if given.only != "follow":
                compared, whole = check_slopes(structure, 1000 * seed, given.each)
        except (AssertionError, uk.UkemiError, ValueError) as error:
            faults.append(f"slopes: {type(error).__name__}: {error}")
        jax.clear_caches()
        total += given.each, ends, compared, whole
        wrong += bool(faults)
        said = "; ".join(faults)[:1500] or "right"
        print(
            f"{seed}: {ends} of {given.each} to the end, {compared} of {whole} columns, {time.time() - begin:.0f} s: "
            f"{said}  [{' '.join(structure.elements)}]", flush=True,
        )  # fmt: skip
    print(f"{total[0]} scenes: {total[1]} to the end, {total[2]} of {total[3]} columns, {wrong} seeds with faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
