"""Time this checkout against another, call by call in alternation, and print ratios: for what should cost nothing.

    git worktree add out/before COMMIT && python bench/against.py out/before [--only humanoid] [--rounds 15]

A worker for each checkout compiles every case twice in turn, then runs it in turn; times are CPU times of the worker,
the least of all rounds, and the median of the ratios of neighbours. A ratio above 1 means that this checkout is slower.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import ukemi as uk

CASES = [  # robot, law, what, calls in one run
    ("half_cheetah", "Soft", "step", 4000),
    ("half_cheetah", "Soft", "linearize", 500),
    ("half_cheetah", "Soft", "gradient", 500),
    ("humanoid", "Soft", "step", 400),
    ("humanoid", "Soft", "linearize", 60),
    ("humanoid", "Soft", "gradient", 100),
    ("half_cheetah", "LCP", "step", 2000),
    ("half_cheetah", "LCP", "linearize", 300),
    ("quadruped", "LCP", "step", 300),
    ("quadruped", "LCP", "linearize", 60),
    ("billiards", "Impact", "step", 300),
    ("arm", "Adaptive", "step", 40),
]
SETTLE = 200
ROUNDS, BUILDS = 15, 3


def program(robot: str, law: str, what: str, calls: int):
    """A jitted function of a state and controls that calls the engine so often, and its arguments."""
    model, method = uk.load(robot), getattr(uk, law)()
    start = uk.initial_state(model, 0 if model.keyframes.names else None)
    ctrl = model.keyframes.ctrl[0] if model.keyframes.names else jnp.zeros(model.nu)
    if law != "Adaptive":
        settled = uk.rollout(model, start, jnp.tile(ctrl, (SETTLE, 1)), method)
        start = jax.tree.map(lambda x: x[-1], settled)
    ctrls = jnp.tile(ctrl, (calls, 1))

    def steps(state, ctrls):
        return jax.lax.scan(lambda s, u: (uk.step(model, s, u, method), None), state, ctrls)[0]

    def linearize(state, ctrls):
        def body(s, u):
            found = uk.linearize(model, s, u, method)
            return found.next, found.A[0, 0] + found.B.sum()

        return jax.lax.scan(body, state, ctrls)[1]

    def gradient(state, ctrls):
        return jax.grad(lambda u: steps(state, u).v.sum())(ctrls)

    return {"step": steps, "linearize": linearize, "gradient": gradient}[what], (start, ctrls)


def work() -> None:
    """Answer each line 'build K' or 'run K' with CPU seconds."""
    made, compiled = {}, {}
    for line in sys.stdin:
        task, k = line.split()[0], int(line.split()[1])
        if k not in made:
            made[k] = program(*CASES[k])
        function, given = made[k]
        if task == "build":
            jax.clear_caches()
            start = time.process_time()
            compiled[k] = jax.jit(function).lower(*given).compile()
        else:
            start = time.process_time()
            jax.block_until_ready(compiled[k](*given))
        print("TIME", time.process_time() - start, flush=True)


def worker(root: Path) -> subprocess.Popen:
    """A process that imports the package of a checkout."""
    env = os.environ | {"PYTHONPATH": str(root.resolve()), "UKEMI_CACHE": "off"}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, __file__, "--worker"], env=env, stdin=pipe, stdout=pipe, text=True)


def ask(process: subprocess.Popen, task: str, k: int) -> float:
    """Seconds that one task takes a worker."""
    print(task, k, file=process.stdin, flush=True)
    while True:
        line = process.stdout.readline()
        if line.startswith("TIME"):
            return float(line.split()[1])
        if not line:
            sys.exit(f"A worker ended in {task} of {CASES[k]}.")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("other", nargs="?", type=Path, help="root of the other checkout")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        return work()
    if given.other is None:
        parser.error("name the other checkout")
    pair = [worker(Path(__file__).resolve().parents[1]), worker(given.other)]
    print(f"{'case':34}{'this µs':>10}{'other':>10}{'least':>9}{'median':>9}{'build s':>10}{'other':>8}{'ratio':>8}")
    for k, (robot, law, what, calls) in enumerate(CASES):
        name = f"{robot} {law} {what}"
        if given.only not in name:
            continue
        builds = np.array([[ask(p, "build", k) for p in pair] for _ in range(BUILDS)])
        for p in pair:
            ask(p, "run", k)
        runs = np.array([[ask(p, "run", k) for p in pair] for _ in range(given.rounds)]) / calls * 1e6
        least, built = runs.min(0), builds.min(0)
        figures = f"{least[0]:10.1f}{least[1]:10.1f}{least[0] / least[1]:9.3f}{np.median(runs[:, 0] / runs[:, 1]):9.3f}"
        print(f"{name:34}{figures}{built[0]:10.2f}{built[1]:8.2f}{built[0] / built[1]:8.3f}", flush=True)
    return None


if __name__ == "__main__":
    main()
