"""How many linear systems `uk.LCP` takes, and what it leaves unsolved: the draws of hard_contact.py, cold.

    python bench/pivoting.py [--robots humanoid,quadruped] [--files FILE ...] [--draws 5000] [--float32]

--files adds robot files, such as an A1's, put on a floor if they have none. Reported are states left unsolved and
systems (mean, percentiles, most): a right guess takes one, pivots one each (the stages: `ukemi/laws/rigid/solve.py`).
"""

import argparse
from collections import Counter

import equinox as eqx
import jax
import numpy as np
from hard_contact import states_of
from workloads import on_floor

import ukemi as uk

UNSOLVED, SYSTEMS = 5e-4, 60  # promised: the share at most, and the 99th percentile


def measure(model: uk.Model, states: uk.State) -> None:
    """Step every state, cold, and print."""
    blank, law = uk.initial_state(model).cache, uk.LCP()

    @eqx.filter_jit
    def steps(states):
        def one(state):
            after = uk.step(model, eqx.tree_at(lambda s: s.cache, state, blank), None, law)
            return after.status, after.cache.iterations, jax.numpy.isfinite(after.q).all()

        return jax.lax.map(one, states)

    status, systems, finite = jax.tree.map(np.asarray, steps(states))
    unsolved = (status & uk.Status.NOT_CONVERGED) != 0
    common, rare = np.percentile(systems, (99, 99.9))
    print(f"  flags {dict(Counter(status.tolist()))}, silent {int((~finite & (status == 0)).sum())}")
    print(f"  of {len(status)} unsolved {unsolved.mean():.3%} (promised ≤ {UNSOLVED:.2%})")
    print(f"  systems: mean {systems.mean():.1f}, 99% at most {common:.0f} (promised ≤ {SYSTEMS}), 99.9% {rare:.0f}, "
          f"most {systems.max()}", flush=True)  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--robots", default="hopper,half_cheetah,quadruped,humanoid")
    parser.add_argument("--files", nargs="*", default=[], help="robot files, put on a floor if they have none")
    parser.add_argument("--draws", type=int, default=5000)
    parser.add_argument("--float32", action="store_true")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", not given.float32)
    models = {robot: uk.load(robot) for robot in given.robots.split(",") if robot}
    models |= {path: uk.load(on_floor(path)) for path in given.files}
    for name, model in models.items():
        print(name, f"(nv {model.nv})", flush=True)
        measure(model, states_of(model, given.draws, np.random.default_rng(0)))


if __name__ == "__main__":
    main()
