"""Every robot at hand under every contact law: what its law says of random motion, and how fast.

    python bench/survey.py [WORD...] [--laws LAW,LAW] [--steps N] [--limit SECONDS]

Goes over the robots of the shared folder, gymnasium and dm_control, each on a floor and lifted off it, from its
keyframe where it has one, with controls drawn from their range and held for ten steps; MuJoCo goes beside them. Each
law of each robot runs in a process of its own, which ends at the limit. A line holds the first call [s], the time per
step [ms], the fastest coordinate [m/s, rad/s], the deepest contact that MuJoCo finds along the way [mm], how many steps
are flagged by which bit and the first of them, and `SILENT` where a number is not finite without a flag.
"""

import argparse
import collections
import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import mujoco
import numpy as np

import ukemi as uk
from bench import elements, robots
from tests.scenes.robots import SHARED, with_floor

HOLD = 10  # steps that a control is held
LAWS = "MuJoCo,Soft,LCP,NCP,Maximal,Impact,Adaptive"


def files() -> dict[str, Path]:
    """All robot files by name."""
    found = {name: path for name, path in elements.files().items() if not name.startswith(("mujoco", "shared"))}
    return found | {f"shared/{name}": SHARED / "models" / path for name, path in robots.files().items()}


def grounded(path: Path) -> mujoco.MjModel:
    """A file's model, with a floor."""
    try:
        return with_floor(mujoco.MjSpec.from_file(os.fspath(path))).compile()
    except ValueError:
        return elements.compiled(path)


def lifted(m: mujoco.MjModel) -> mujoco.MjData:
    """The keyframe, with all free bodies raised until nothing is 1 mm inside something else; as it is beyond 2 m."""
    d = mujoco.MjData(m)
    if m.nkey:
        mujoco.mj_resetDataKeyframe(m, d, 0)
    free = m.jnt_qposadr[m.jnt_type == mujoco.mjtJoint.mjJNT_FREE]
    start = d.qpos.copy()
    for _ in range(100):
        mujoco.mj_forward(m, d)
        if not len(free) or not d.ncon or d.contact.dist.min() > -1e-3:
            return d
        d.qpos[free + 2] += 0.02
    d.qpos[:] = start
    return d


def controls(m: mujoco.MjModel, steps: int) -> np.ndarray:
    """Those of every step (steps, nu)."""
    low, high = np.where(m.actuator_ctrllimited[:, None] > 0, m.actuator_ctrlrange, [-1.0, 1.0]).T
    return np.random.default_rng(0).uniform(low, high, (-(-steps // HOLD), m.nu)).repeat(HOLD, 0)[:steps]


def survey(path: Path, law: str, steps: int) -> str:
    """One robot's line."""
    m = grounded(path)
    d, ctrls = lifted(m), controls(m, steps)
    timing, states = reference(m, d, ctrls) if law == "MuJoCo" else moved(m, d.qpos, ctrls, getattr(uk, law)())
    return f"{timing:28}{verdict(m, states)}"


def moved(m: mujoco.MjModel, start: np.ndarray, ctrls: np.ndarray, method) -> tuple[str, list]:
    """How long a law takes, and (q, v, status) after every step."""
    jax.config.update("jax_enable_x64", True)
    model = uk.load(m)
    state, states = uk.initial_state(model, 0 if m.nkey else None, q=start), []
    step = jax.jit(lambda state, ctrl: uk.step(model, state, ctrl, method))
    begin = time.time()
    jax.block_until_ready(step(state, ctrls[0]))
    first, begin = time.time() - begin, time.time()
    for ctrl in ctrls:
        state = step(state, ctrl)
        states.append(jax.tree.map(np.asarray, (state.q, state.v, state.status)))
        state = dataclasses.replace(state, status=state.status * 0)
    return f"first {first:5.1f} s, {1e3 * (time.time() - begin) / len(ctrls):7.2f} ms", states


def reference(m: mujoco.MjModel, d: mujoco.MjData, ctrls: np.ndarray) -> tuple[str, list]:
    """The same of MuJoCo, which is not timed."""
    states = []
    for ctrl in ctrls:
        d.ctrl[:] = ctrl
        mujoco.mj_step(m, d)
        states.append((d.qpos.copy(), d.qvel.copy(), 0))
    return "", states


def verdict(m: mujoco.MjModel, states: list) -> str:
    """What is to be said of a motion."""
    d, deepest = mujoco.MjData(m), 0.0
    finite = [np.isfinite(q).all() and np.isfinite(v).all() for q, v, _ in states]
    flagged = {k: uk.Status(int(status)) for k, (*_, status) in enumerate(states, 1) if status}
    for (q, *_), known in zip(states, finite, strict=True):
        if known:
            d.qpos[:] = q
            mujoco.mj_forward(m, d)
            deepest = min([deepest, *d.contact.dist[: d.ncon]])
    fastest = np.nanmax([np.abs(v).max(initial=0) for _, v, _ in states])
    counted = collections.Counter(str(flag.name) for flag in flagged.values())
    said = ", ".join(f"{name} {count}" for name, count in counted.items())
    said += f", from {min(flagged)}" if flagged else "clean"
    silent = any(not known and k not in flagged for k, known in enumerate(finite, 1))
    return f"  fastest {fastest:9.3g}, deepest {-1e3 * deepest:6.2f} mm, {said}{' SILENT' if silent else ''}"


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--laws", default=LAWS)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--limit", type=float, default=240.0)
    parser.add_argument("--here", action="store_true", help="in this process, the robot that WORD names under one law")
    given = parser.parse_args()
    mujoco.set_mju_user_warning(lambda message: None)
    if given.here:
        try:
            print(survey(files()[given.words[0]], given.laws, given.steps))
        except (uk.UkemiError, ValueError) as error:
            print(f"{type(error).__name__}: {error}".replace("\n", " ")[:150])
        return 0
    for name in files():
        if not given.words or any(word in name for word in given.words):
            for law in given.laws.split(","):
                print(f"{name:50} {law:8} {_apart(name, law, given)}", flush=True)
    return 0


def _apart(name: str, law: str, given) -> str:
    """The line of a robot and law from another process."""
    command = [sys.executable, __file__, name, "--here", "--laws", law, "--steps", str(given.steps)]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=given.limit, check=False)
    except subprocess.TimeoutExpired:
        return f"has not ended in {given.limit:.0f} s"
    return (run.stdout or run.stderr).strip().splitlines()[-1]


if __name__ == "__main__":
    raise SystemExit(main())
