"""Time Ukemi's step against MuJoCo's mj_step, side by side in one run, and print ratios.

Absolute times on shared machines mean little; a ratio of two minima over alternating repeats means more. Times are
CPU times of this process, so that other processes on the machine disturb them less; but wall times with `--devices`,
which shares a batch among so many CPU devices.

Usage: python bench/run.py [--only NAME ...] [--batch 1 64 1024] [--devices 1] [--f64] [--repeats 9]
"""

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from workloads import Workload, workloads

import ukemi as uk

STEPS = 400


def clock(function) -> float:
    """CPU seconds of one call; wall seconds where several devices work."""
    read = time.process_time if jax.device_count() == 1 else time.perf_counter
    start = read()
    function()
    return read() - start


def finish(run, start) -> None:
    """Run and wait for the result."""
    jax.block_until_ready(run(start))


def held(workload: Workload, model: uk.Model) -> jax.Array:
    """The keyframe's controls, or zero."""
    stored = workload.keyframe is not None and bool(model.keyframes.names)
    return model.keyframes.ctrl[workload.keyframe] if stored else jnp.zeros(model.nu)


def settled(workload: Workload, model: uk.Model) -> uk.State:
    """A state in contact: the keyframe after a while under its own controls."""
    key = workload.keyframe if model.keyframes.names else None
    state = uk.initial_state(model, key)
    ctrl = held(workload, model)
    states = uk.rollout(model, state, jnp.broadcast_to(ctrl, (workload.settle, model.nu)))
    uk.raise_if_failed(states)
    return jax.tree.map(lambda x: x[-1], states)


def compile_time(model: uk.Model, state: uk.State, ctrl: jax.Array) -> float:
    """Seconds to trace and compile a jitted step."""
    start = time.perf_counter()
    jax.jit(lambda s: uk.step(model, s, ctrl)).lower(state).compile()
    return time.perf_counter() - start


def stepper(model: uk.Model, worlds: int, ctrl: jax.Array):
    """Jitted function that steps a batch STEPS times (fewer for large batches), and that number."""
    steps = max(5, STEPS // worlds) if worlds > 1 else STEPS

    def one(state):
        return uk.step(model, state, ctrl)

    def run(start):
        body = one if worlds == 1 else jax.vmap(one)
        return jax.lax.scan(lambda s, _: (body(s), None), start, None, length=steps)[0]

    devices = jax.device_count()
    if worlds == 1 or worlds % devices:
        return jax.jit(run), steps
    mesh = jax.make_mesh((devices,), ("worlds",), (jax.sharding.AxisType.Auto,))
    share = jax.P("worlds")
    return jax.jit(jax.shard_map(run, mesh=mesh, in_specs=share, out_specs=share, check_vma=False)), steps


def spread(state: uk.State, worlds: int) -> uk.State:
    """The state in many worlds, each with a little velocity noise of its own."""
    if worlds == 1:
        return state
    batch = jax.tree.map(lambda x: jnp.broadcast_to(x, (worlds, *x.shape)), state)
    noise = 0.1 * jax.random.normal(jax.random.PRNGKey(0), batch.v.shape, batch.v.dtype)
    return uk.State(batch.q, batch.v + noise, batch.act, batch.time, batch.status, batch.cache)


class Reference:
    """MuJoCo's own step from the same state."""

    def __init__(self, m: mujoco.MjModel, state: uk.State, ctrl: jax.Array):
        self.m, self.d, self.state, self.ctrl = m, mujoco.MjData(m), state, ctrl

    def __call__(self):
        mujoco.mj_resetData(self.m, self.d)
        self.d.qpos[:], self.d.qvel[:], self.d.act[:] = self.state.q, self.state.v, self.state.act
        self.d.ctrl[:] = self.ctrl
        mujoco.mj_step(self.m, self.d, nstep=STEPS)


def measure(workload: Workload, batches: list[int], repeats: int) -> dict:
    """Microseconds per world and step for each batch size, MuJoCo's, and compile time."""
    model = workload.load()
    state = settled(workload, model)
    ctrl = held(workload, model)
    row = {"compile": compile_time(model, state, ctrl)}
    theirs, best = Reference(workload.model(), state, ctrl), []
    for worlds in batches:
        run, steps = stepper(model, worlds, ctrl)
        start = spread(state, worlds)
        for _ in range(2):
            jax.block_until_ready(run(start))
        ours = []
        for _ in range(repeats):
            ours.append(clock(partial(finish, run, start)) / steps / worlds)
            best.append(clock(theirs) / STEPS)
        row[worlds] = 1e6 * min(ours)
    row["mujoco"] = 1e6 * min(best)
    found = uk.contacts(model, state)
    row["contacts"] = int(found.active.sum())
    row["iterations"] = int(state.cache.iterations)
    return row


def verdict(value: float, bound: float | None) -> str:
    """The value, with its bound where one is promised."""
    return f"{value:.1f}" if bound is None else f"{value:.1f} ({'≤' if value <= bound else '>'} {bound:g})"


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--batch", nargs="*", type=int, default=[1, 64, 1024])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--f64", action="store_true")
    args = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", args.devices)
    jax.config.update("jax_enable_x64", args.f64)
    shared = Path(os.environ.get("UKEMI_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    rows: dict[str, dict] = {}
    print(f"float{64 if args.f64 else 32}, {os.cpu_count()} cores, jax {jax.__version__}, mujoco {mujoco.__version__}")
    heads = ["workload", "contacts", "mj_step µs", *(f"×{n} worlds" for n in args.batch), "compile s", "of reference"]
    print("".join(f"{h:>18}" for h in heads))
    for workload in workloads(str(shared) if shared.is_dir() else None):
        if args.only and not any(name in workload.name for name in args.only):
            continue
        row = rows[workload.name] = measure(workload, args.batch, args.repeats)
        bounds = {1: workload.single, max(args.batch): workload.batch if max(args.batch) > 1 else workload.single}
        cells = [workload.name, str(row["contacts"]), f"{row['mujoco']:.1f}"]
        cells += [verdict(row[n] / row["mujoco"], bounds.get(n)) for n in args.batch]
        cells.append(verdict(row["compile"], workload.compile))
        base = rows.get(workload.reference or "")
        cells.append(verdict(row[args.batch[0]] / base[args.batch[0]], workload.promise) if base else "")
        print("".join(f"{c:>18}" for c in cells), flush=True)
    kind = "CPU" if args.devices == 1 else f"wall ({args.devices} CPU devices)"
    print(f"columns '× worlds': Ukemi's {kind} time per world and step as a multiple of one mj_step")
    if np.any([r["mujoco"] <= 0 for r in rows.values()]):
        sys.exit("timings failed")


if __name__ == "__main__":
    main()
