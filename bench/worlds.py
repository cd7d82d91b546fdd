"""Time many worlds at once on the device that JAX has, a GPU say: rollouts, their gradients, steps with A and B.

Each figure is the wall time of a call over all worlds, the least of several, per world and step; programs compile side
by side. `--check` compares the first worlds' step, gradient, and A and B with those of the processor,
relative to their largest entry; `--mjx` puts MJX beside it.

Usage: python bench/worlds.py [--only half_cheetah FILE] [--methods soft lcp] [--worlds 1024 8192] [--steps 20]
       [--what rollout gradient linearize] [--mjx] [--f64] [--check]
"""

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from workloads import on_floor

import ukemi as uk

METHODS: dict[str, Callable] = {
    "soft": uk.Soft, "lcp": uk.LCP, "impact": uk.Impact, "ncp": uk.NCP, "maximal": uk.Maximal, "adaptive": uk.Adaptive,
}  # fmt: skip
CHECKED = 4  # worlds that are compared


def functions(model: uk.Model, method) -> dict[str, Callable]:
    """What is timed, of one world: a start (q, v) and controls (T, nu)."""

    def at(start):
        return uk.initial_state(model, q=start[0], v=start[1])

    def rollout(start, ctrls):
        out = uk.rollout(model, at(start), ctrls, method)
        return out.q[-1], out.v[-1], out.status[-1]

    def loss(start, ctrls):
        q, v, _ = rollout(start, ctrls)
        return jnp.sum(q**2) + jnp.sum(v**2)

    def linearize(start, ctrls):
        found = uk.linearize(model, at(start), ctrls[0], method)
        return found.A, found.B

    return {"rollout": rollout, "gradient": jax.grad(loss, argnums=(0, 1)), "linearize": linearize}


def mjx_functions(m: mujoco.MjModel) -> dict[str, Callable]:
    """The same of MJX, with the solver as the file has it; none of its derivatives run through that."""
    from mujoco import mjx

    model = mjx.put_model(m)
    data = mjx.make_data(m)

    def rollout(start, ctrls):
        def advance(d, ctrl):
            return mjx.step(model, d.replace(ctrl=ctrl)), None

        last = jax.lax.scan(advance, data.replace(qpos=start[0], qvel=start[1]), ctrls)[0]
        return last.qpos, last.qvel

    return {"rollout": rollout}


def starts(m: mujoco.MjModel, model: uk.Model, worlds: int, steps: int):
    """Standing or lying on the ground, each with velocities and controls of its own."""
    d = mujoco.MjData(m)
    if m.nkey:
        mujoco.mj_resetDataKeyframe(m, d, 0)
    for _ in range(200):
        mujoco.mj_step(m, d)
    rng, dtype = np.random.default_rng(0), model.options.timestep.dtype
    v = d.qvel + 0.1 * rng.normal(size=(worlds, m.nv))
    low, high = np.where(m.actuator_ctrllimited[:, None], m.actuator_ctrlrange, [-1, 1]).T
    ctrls = 0.2 * rng.uniform(low, high, (worlds, steps, m.nu))
    q = np.broadcast_to(d.qpos, v.shape[:1] + d.qpos.shape)
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), ((q, v), ctrls))


def least(run: Callable, args, rounds: int = 5) -> float:
    """Seconds of a call, its result waited for."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        jax.block_until_ready(run(*args))
        times.append(time.perf_counter() - began)
    return min(times)


def error(function: Callable, args, found) -> float:
    """Largest difference from the processor in the first worlds, of the largest entry of each result."""
    few = jax.device_put(jax.tree.map(lambda x: np.asarray(x[:CHECKED]), args), jax.devices("cpu")[0])
    with jax.default_device(jax.devices("cpu")[0]):
        right = jax.device_get(jax.jit(jax.vmap(function))(*few))
    pairs = zip(jax.tree.leaves(right), jax.tree.leaves(jax.device_get(found)), strict=True)
    return max(abs(a - b[:CHECKED]).max() / max(abs(a).max(), 1e-30) for a, b in pairs)


def measure(name: str, options) -> None:
    """One robot: everything is traced first, then compiled side by side, then timed alone."""
    m = on_floor(name)
    model = uk.load(m)
    every = {law: functions(model, METHODS[law]()) for law in options.methods}
    every |= {"mjx": mjx_functions(m)} if options.mjx else {}
    jobs = {}
    for law, found in every.items():
        for what in [w for w in options.what if w in found]:
            for worlds in options.worlds:
                steps = 1 if what == "linearize" else options.steps
                args, began = starts(m, model, worlds, steps), time.perf_counter()
                lowered = jax.jit(jax.vmap(found[what])).lower(*args)
                jobs[law, what, worlds] = lowered, args, time.perf_counter() - began

    def compiled(job):
        began = time.perf_counter()
        return job[0].compile(), time.perf_counter() - began

    with ThreadPoolExecutor(8) as pool:
        programs = dict(zip(jobs, pool.map(compiled, jobs.values()), strict=True))
    for (law, what, worlds), (run, seconds) in programs.items():
        _, args, tracing = jobs[law, what, worlds]
        each, off = 1e6 * least(run, args) / worlds / args[1].shape[1], np.nan
        if options.check and law != "mjx" and worlds == min(options.worlds):
            once = (args[0], args[1][:, :1])  # motions in contact drift apart after a while
            off = error(every[law][what], once, jax.jit(jax.vmap(every[law][what]))(*once))
        figures = f"{worlds:6} {each:9.2f} {1 / each:8.3f} {tracing:6.1f} {seconds:6.1f} {off:9.1e}"
        print(f"{Path(name).stem[:14]:14} {law:9} {what:10} {figures}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=["half_cheetah", "humanoid"])
    parser.add_argument("--methods", nargs="+", default=["soft"], choices=METHODS)
    parser.add_argument("--what", nargs="+", default=["rollout", "gradient", "linearize"])
    parser.add_argument("--worlds", nargs="+", type=int, default=[1024, 8192])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--mjx", action="store_true")
    parser.add_argument("--f64", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", options.f64)
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}, {'float64' if options.f64 else 'float32'}")
    print("model          law       what       worlds   µs each  M per s  trace compile     error")
    for name in options.only:
        measure(name, options)


if __name__ == "__main__":
    main()
