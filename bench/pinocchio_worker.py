"""Time Pinocchio's analytical derivatives; prints one line of JSON.

It runs in Pinocchio's own environment:

    python -m venv pinocchio && pinocchio/bin/pip install pin
    pinocchio/bin/python bench/pinocchio_worker.py [--repeats 50]
"""

import argparse
import json
import statistics
import time

import numpy as np
import pinocchio  # pyright: ignore[reportMissingImports]

CALLS = 200


def least_and_median(call, repeats: int) -> tuple[float, float]:
    """CPU microseconds of a call."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        for _ in range(CALLS):
            call()
        times.append(1e6 * (time.process_time() - start) / CALLS)
    return min(times), statistics.median(times)


def measure(model, repeats: int) -> dict:
    """Figures of both kinds of dynamics at a random state."""
    data, rng = model.createData(), np.random.default_rng(0)
    model.lowerPositionLimit[:], model.upperPositionLimit[:] = -1.0, 1.0
    q = pinocchio.randomConfiguration(model)
    v, a = rng.standard_normal((2, model.nv))
    calls = {
        "inverse": lambda: pinocchio.computeRNEADerivatives(model, data, q, v, a),
        "forward": lambda: pinocchio.computeABADerivatives(model, data, q, v, a),
    }
    figures = {}
    for name, call in calls.items():
        least, median = least_and_median(call, repeats)
        figures[name] = {"least": least, "median": median, "dofs": model.nv}
    return figures


def main() -> None:
    """Measure the two sample humanoids."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=50)
    args = parser.parse_args()
    models = {
        "sample humanoid": pinocchio.buildSampleModelHumanoid(),
        "random humanoid": pinocchio.buildSampleModelHumanoidRandom(),
    }
    figures = {}
    for label, model in models.items():
        for kind, row in measure(model, args.repeats).items():
            figures[f"{label}, {kind} dynamics"] = row
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
