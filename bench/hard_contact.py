"""How reliably and how fast hard contact is solved: random contact states of built-in robots, at their own time steps.

    python bench/hard_contact.py [--robots humanoid,quadruped] [--draws 2000] [--float32]

States: what a random fall leads to under random controls, then pushed by a random velocity; cold starts. Reported are
states solved from the first start and from any, mean iterations and their 99th percentile, failures without a status
bit (there must be none), the deepest new overlap after a step, what `uk.LCP` does with the same states, and the time of
a settled step against `uk.Soft`.
"""

import argparse
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ukemi as uk

FALL, CALLS, ROUNDS = 150, 200, 7


def states_of(model: uk.Model, draws: int, rng) -> uk.State:
    """Random states (draws, ...) near the ground: of rollouts under random controls from the air."""
    runs = max(1, draws // 50)
    low, high = np.asarray(model.actuators.ctrl_range).T if model.nu else (np.zeros(0), np.zeros(0))
    bounded = high > low
    low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
    start = uk.initial_state(model, 0 if model.keyframes.names else None)

    @eqx.filter_jit
    def fall(v, ctrls):
        at = eqx.tree_at(lambda s: s.v, start, v)
        return uk.rollout(model, at, ctrls, uk.NCP())

    found = []
    for _ in range(runs):
        ctrl = np.repeat(rng.uniform(low, high, (FALL // 10, model.nu)), 10, 0)
        found.append(jax.tree.map(np.asarray, fall(jnp.asarray(rng.standard_normal(model.nv)), jnp.asarray(ctrl))))
    states = jax.tree.map(lambda *x: np.concatenate(x), *found)
    chosen = rng.choice(len(states.time), draws, replace=len(states.time) < draws)
    states = jax.tree.map(lambda x: jnp.asarray(x[chosen]), states)
    pushed = states.v + 0.5 * rng.standard_normal(states.v.shape)
    return eqx.tree_at(lambda s: (s.v, s.status), states, (pushed, jnp.zeros_like(states.status)))


def solve(model: uk.Model, states: uk.State, draws: int) -> None:
    """Step every state, cold, and print."""
    blank = uk.initial_state(model).cache
    law = uk.NCP()

    @eqx.filter_jit
    def steps(states):
        def one(state):
            cold = eqx.tree_at(lambda s: s.cache, state, blank)
            after, rigid = uk.step(model, cold, None, law), uk.step(model, cold, None, uk.LCP())
            overlaps = []
            for method in (uk.Soft(), law):  # contacts at the start, and at the end
                found = uk.contacts(model, cold, None, method)
                overlaps.append(jnp.where(found.active, found.distance, 0.0).min(initial=0.0))
            new = overlaps[1] - overlaps[0]  # what was inside before is not thrown out
            each = (after.status, after.cache.iterations, jnp.isfinite(after.q).all())
            return each, jnp.minimum(new, 0.0), (rigid.status, rigid.cache.iterations, jnp.isfinite(rigid.q).all())

        return jax.lax.map(one, states)

    hard, depth, rigid = jax.tree.map(np.asarray, steps(states))
    status, iterations, finite = hard
    first, solved = (iterations <= law.iterations) & (status == 0), status == 0
    silent = int((~finite & (status == 0)).sum())
    print(
        f"  {draws} draws: first start {first.mean():.2%}, any {solved.mean():.3%}, silent {silent}; "
        f"iterations {iterations.mean():.1f}, p99 {np.percentile(iterations, 99):.0f}; "
        f"deepest new overlap {depth.min():.1e} m"
    )
    status, systems, finite = rigid
    print(
        f"  LCP on the same: solved {(status == 0).mean():.3%}, silent {int((~finite & (status == 0)).sum())}; "
        f"systems {systems.mean():.1f}, p99 {np.percentile(systems, 99):.0f}, most {systems.max()}",
        flush=True,
    )


def clock(model: uk.Model) -> None:
    """Time of a settled step against the soft law's, in alternation."""
    start = uk.initial_state(model, 0 if model.keyframes.names else None)
    ctrl = model.keyframes.ctrl[0] if model.keyframes.names else jnp.zeros(model.nu)
    ctrls, runs, builds = jnp.tile(ctrl, (CALLS, 1)), {}, {}
    for law in (uk.Soft(), uk.NCP()):
        function = jax.jit(lambda state, ctrls, law=law: uk.rollout(model, state, ctrls, law))
        begin = time.process_time()
        runs[law] = function.lower(start, ctrls).compile()
        builds[law] = time.process_time() - begin
    least = dict.fromkeys(runs, np.inf)
    for _ in range(ROUNDS):
        for law, run in runs.items():
            begin = time.process_time()
            jax.block_until_ready(run(start, ctrls))
            least[law] = min(least[law], (time.process_time() - begin) / CALLS)
    soft, hard = least.values()
    built = ", ".join(f"{seconds:.1f}" for seconds in builds.values())
    print(f"  step {hard * 1e6:.0f} µs, {hard / soft:.1f} × Soft; compiling (Soft, NCP) {built} s")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--robots", default="hopper,half_cheetah,quadruped,humanoid")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--float32", action="store_true")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", not given.float32)
    for robot in given.robots.split(","):
        model = uk.load(robot)
        print(robot, flush=True)
        clock(model)
        states = states_of(model, given.draws, np.random.default_rng(0))
        solve(model, states, given.draws)


if __name__ == "__main__":
    main()
