"""Measure the agreement with MuJoCo on every model and write docs/accuracy.md.

    python -m tests.oracle.accuracy [STATES]
"""

import datetime
import sys
import time
from pathlib import Path

import jax
import mujoco
import pytest

from tests.scenes.agreement import compare
from tests.scenes.models import CASES

STAGES = ("M", "bias", "actuator", "J", "aref", "R", "qacc", "next")
TEXT = """# Agreement with MuJoCo

Worst relative errors in float64 over {n} random states per model: largest difference divided by the largest entry (at
least 0.01; for accelerations, also a_ref, and next states at least 1). Both solvers run to convergence. States: noise
about the keyframes and `qpos0`, joints set near their limits, floating bases let down to the floor, in two of five up
to 120 steps under random controls; in a third, random applied forces. *active* counts states with an active contact,
limit or equality; *contacts* those of analytic pairs, each of which must be at the same point as MuJoCo's (*lost* if
not). Where a pair without closed form touches (ellipsoids and cylinders with one another, with capsules or boxes), the
contact points differ by design; such states count under *other pairs* and only their smooth dynamics is compared.

The bounds that the tests hold everything to: 1e-10 for M, bias, actuator force, J, a_ref and R, 1e-8 for qacc and
1e-9 for the next state.

Measured {date} with MuJoCo {mujoco} and JAX {jax} on the CPU, by
`.venv/bin/python -m tests.oracle.accuracy {n}`.
Models of `shared` stand on a floor that the test adds.

| model | {heads} | active | contacts | lost | other pairs |
|---|{rules}---|---|---|---|
{rows}
"""


def main(n: int) -> None:
    rows = []
    for name, make in CASES.items():
        start = time.time()
        try:
            report = compare(make(), n=n, seed=2)
        except pytest.skip.Exception as missing:
            print(f"{name}: skipped, {missing}")
            continue
        print(f"{name} ({time.time() - start:.0f} s): {report}", flush=True)
        cells = [f"{report.errors.get(stage, 0.0):.0e}" for stage in STAGES]
        counts = [f"{report.active / report.states:.0%}", str(report.contacts), str(report.lost), str(report.inexact)]
        rows.append("| " + " | ".join([name, *cells, *counts]) + " |")
    text = TEXT.format(
        n=n,
        date=datetime.date.today(),
        mujoco=mujoco.__version__,
        jax=jax.__version__,
        heads=" | ".join(STAGES),
        rules="---|" * len(STAGES),
        rows="\n".join(rows),
    )
    page = Path(__file__).parents[2] / "docs" / "accuracy.md"
    _, mark, others = page.read_text().partition("\n## ")  # the sections below the table stay as they are
    page.write_text(text + mark + others)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
