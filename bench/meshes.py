"""Robots with colliding meshes beside MuJoCo: a step, a step with A and B, and the first calls.

    python bench/meshes.py [folder of robot files]

Robots stand or lie on a floor and are stepped from a state in contact, ours within a loop; float32, one world. Both are
timed in turns, and ratios are medians of those of neighbours. Differences are a step and centred ones of MuJoCo's.
"""

import argparse
import dataclasses
import time
from functools import partial
from pathlib import Path

import jax
import mujoco
import numpy as np
from workloads import on_floor

import ukemi as uk
from ukemi.files.source import read

ROBOTS = {
    "g1": ("unitree_g1/g1_meshes.xml", 0.78),
    "barkour": ("google_barkour_vb/barkour_vb_meshes.xml", 0.3),
    "panda": ("franka_emika_panda/panda_meshes.xml", 0.0),
    "2f85": ("robotiq_2f85/2f85.xml", 0.0),
    "so_arm100": ("trs_so_arm100/so_arm100.xml", 0.0),
    "shadow_hand": ("shadow_hand/right_hand.xml", 0.0),
}
ROUNDS = 15  # of both, one after the other


def settled(m: mujoco.MjModel, height: float) -> mujoco.MjData:
    """Half a second after the start."""
    d = mujoco.MjData(m)
    if m.nkey:
        mujoco.mj_resetDataKeyframe(m, d, 0)
    elif height:
        d.qpos[2] = height
    for _ in range(int(0.5 / m.opt.timestep)):
        mujoco.mj_step(m, d)
    return d


def timed(call) -> float:
    """How long a call takes [s]."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def in_turns(mine, theirs) -> tuple[float, float]:
    """Median time of my call [µs], and how many of theirs it takes; the machine's speed may drift meanwhile."""
    times = np.zeros((ROUNDS, 2))
    for k in range(ROUNDS):
        for own, call in enumerate((mine, theirs)):
            times[k, own] = min(timed(call) for _ in range(3))  # the first one warms up caches
    return 1e6 * float(np.median(times[:, 0])), float(np.median(times[:, 0] / times[:, 1]))


def bytes_of(value) -> int:
    """Memory of all arrays of a model, those of its topology too."""
    if dataclasses.is_dataclass(value):
        return sum(bytes_of(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, tuple | list | dict):
        return sum(map(bytes_of, value.values() if isinstance(value, dict) else value))
    return getattr(value, "nbytes", 0)


def measure(name: str, path: Path, height: float, slopes: bool) -> None:
    m = read(path)
    if (m.jnt_type == mujoco.mjtJoint.mjJNT_FREE).any():
        m = on_floor(path)
    d = settled(m, height)
    start = time.perf_counter()
    model = uk.load(m)
    loading = time.perf_counter() - start
    state = uk.initial_state(model, q=d.qpos.copy(), v=d.qvel.copy())
    steps = 50

    def roll(state):
        return jax.lax.scan(lambda s, _: (uk.step(model, s), None), state, None, length=steps)[0]

    start = time.perf_counter()
    run = jax.jit(roll).lower(state).compile()
    first = time.perf_counter() - start
    q, v, act = d.qpos.copy(), d.qvel.copy(), d.act.copy()

    def theirs(at_each=lambda: None):
        d.qpos[:], d.qvel[:], d.act[:] = q, v, act
        for _ in range(steps):
            at_each()
            mujoco.mj_step(m, d)

    mine, ratio = in_turns(lambda: jax.block_until_ready(run(state)), theirs)
    line = f"{name:12} nv {m.nv:3} contacts {d.ncon:3}  step {mine / steps:7.0f} µs = {ratio:5.1f} x mj_step"
    line += f"  load {loading:4.1f} s  first call {first:5.1f} s  model {bytes_of(model) / 1e6:.1f} MB"
    if slopes:
        A, B = np.zeros((2 * m.nv + m.na,) * 2), np.zeros((2 * m.nv + m.na, m.nu))
        differences = partial(mujoco.mjd_transitionFD, m, d, 1e-6, True, A, B, None, None)

        def along(state):
            def one(s, _):
                found = uk.linearize(model, s)
                return found.next, (found.A, found.B)

            return jax.lax.scan(one, state, None, length=steps)

        start = time.perf_counter()
        jax.jit(partial(uk.linearize, model)).lower(state).compile()
        first = time.perf_counter() - start
        run_along = jax.jit(along).lower(state).compile()
        exact, ratio = in_turns(lambda: jax.block_until_ready(run_along(state)), lambda: theirs(differences))
        line += f"  with A, B {exact / steps:.0f} µs, {1 / ratio:5.1f} x faster than differences"
        line += f", first call {first:5.1f} s"
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    models = Path(__file__).resolve().parents[2] / "shared" / "models"
    parser.add_argument("folder", nargs="?", default=models, type=Path)
    parser.add_argument("--only", nargs="*", choices=ROBOTS, default=list(ROBOTS))
    parser.add_argument("--slopes", action="store_true", help="A and B, too")
    given = parser.parse_args()
    for name in given.only:
        path, height = ROBOTS[name]
        if (given.folder / path).exists():
            measure(name, given.folder / path, height, given.slopes)
        else:
            print(f"{name}: {given.folder / path} is not there")


if __name__ == "__main__":
    main()
