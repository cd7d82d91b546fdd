"""Tendons and muscles: how near to MuJoCo, and how fast next to it.

    python bench/tendons.py MODEL... [--float64]

For each robot file: differences of lengths, moment arms and actuator forces from MuJoCo's at random states (in float64
always), then in one run the time of a step, of a step with A and B against MuJoCo's centred differences, of a gradient
through 256 steps against the rollout, and what first calls cost.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import ukemi as uk
from ukemi.mechanics.kinematics import kinematics
from ukemi.mechanics.tendons.paths import tendon_lengths

STATES, STEPS, ROUNDS = 200, 256, 7


def random_states(m: mujoco.MjModel, n: int) -> np.ndarray:
    """Configurations (n, nq) within the joints' ranges."""
    rng, out = np.random.default_rng(0), np.tile(m.qpos0, (n, 1))
    for row in out:
        mujoco.mj_integratePos(m, row, 0.3 * rng.normal(size=m.nv), 1.0)
        for j in np.flatnonzero(m.jnt_limited & (m.jnt_type >= 2)):
            row[m.jnt_qposadr[j]] = rng.uniform(*m.jnt_range[j])
    return out


def compare(m: mujoco.MjModel) -> None:
    """Largest differences from MuJoCo."""
    model, d, worst = uk.load(m), mujoco.MjData(m), np.zeros(2)
    of = jax.jit(lambda model, q: tendon_lengths(model, kinematics(model, q), q))
    for q in random_states(m, STATES):
        d.qpos[:] = q
        mujoco.mj_forward(m, d)
        moment = np.zeros((m.ntendon, m.nv))
        mujoco.mju_sparse2dense(moment, d.ten_J.ravel(), m.ten_J_rownnz, m.ten_J_rowadr, m.ten_J_colind)
        found = of(model, jnp.asarray(q))
        off = [np.abs(found.length - d.ten_length).max(initial=0), np.abs(found.moment - moment).max(initial=0)]
        worst = np.maximum(worst, off)
    print(f"  {STATES} states: lengths to {worst[0]:.1e}, moment arms to {worst[1]:.1e}")


def least(calls: dict, repeat: dict) -> dict[str, float]:
    """Least time of each call [s], in alternation."""
    best = dict.fromkeys(calls, np.inf)
    for _ in range(ROUNDS):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            best[name] = min(best[name], (time.perf_counter() - begin) / repeat[name])
    return best


def clock(m: mujoco.MjModel) -> None:
    """Times next to MuJoCo's."""
    model, d = uk.load(m), mujoco.MjData(m)
    start = uk.initial_state(model)
    ctrls = jnp.asarray(np.random.default_rng(1).uniform(0, 1, (STEPS, model.nu)), start.q.dtype)

    def loss(ctrls):
        return (uk.rollout(model, start, ctrls).q[-1] ** 2).sum()

    def linear(state, ctrl):
        def one(state, ctrl):
            found = uk.linearize(model, state, ctrl)
            return found.next, (found.A, found.B)

        return jax.lax.scan(one, state, ctrl)

    built, functions = {}, {"roll": loss, "gradient": jax.value_and_grad(loss), "linear": linear}
    for name, function in functions.items():
        begin = time.perf_counter()
        args = (start, ctrls[:32]) if name == "linear" else (ctrls,)
        functions[name] = jax.jit(function).lower(*args).compile()
        built[name] = time.perf_counter() - begin
    size = 2 * m.nv + m.na
    A, B, given = np.zeros((size, size)), np.zeros((size, m.nu)), np.asarray(ctrls, float)

    def theirs(n):
        mujoco.mj_resetData(m, d)
        for k in range(n):
            d.ctrl[:] = given[k]
            mujoco.mj_step(m, d)

    def differences():
        mujoco.mj_resetData(m, d)
        for k in range(8):
            d.ctrl[:] = given[k]
            mujoco.mjd_transitionFD(m, d, 1e-6, True, A, B, None, None)
            mujoco.mj_step(m, d)

    few = ctrls[:32]
    calls = {
        "step": lambda: jax.block_until_ready(functions["roll"](ctrls)),
        "mj_step": lambda: theirs(STEPS),
        "A, B": lambda: jax.block_until_ready(functions["linear"](start, few)),
        "differences": differences,
        "gradient": lambda: jax.block_until_ready(functions["gradient"](ctrls)),
    }
    best = least(calls, {"step": STEPS, "mj_step": STEPS, "A, B": 32, "differences": 8, "gradient": STEPS})
    print("  " + ", ".join(f"{name} {seconds * 1e6:.0f} µs" for name, seconds in best.items()))
    print(
        f"  step {best['step'] / best['mj_step']:.1f} × mj_step; A, B {best['differences'] / best['A, B']:.1f} times "
        f"faster than differences; gradient {best['gradient'] / best['step']:.1f} × rollout"
    )
    print("  first calls: " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in built.items()), flush=True)


def main() -> None:
    """Compare and measure."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--float64", action="store_true")
    given = parser.parse_args()
    for path in given.models:
        m = mujoco.MjModel.from_xml_path(path)
        print(f"{path}: nv {m.nv}, {m.ntendon} tendons, {m.na} activations", flush=True)
        jax.config.update("jax_enable_x64", True)
        compare(m)
        jax.config.update("jax_enable_x64", given.float64)
        clock(m)


if __name__ == "__main__":
    main()
