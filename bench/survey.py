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
import subprocess
import sys
import time

import jax
import mujoco
import numpy as np

import ukemi as uk
from bench import elements
from tests.scenes.robots import SHARED

HOLD = 10  # steps that a control is held
LAWS = "MuJoCo,Soft,LCP,NCP,Maximal,Impact,Adaptive"


def files() -> dict:
    """All robot files by name."""
    found = {name: path for name, path in elements.files().items() if not name.startswith(("mujoco", "shared"))}
    for path in sorted((SHARED / "models").glob("*/*.xml")):
        if path.stem not in ("keyframes", "myomuscle"):
            found[f"shared/{path.parent.name}/{path.stem}"] = path
    return found


def lifted(m: mujoco.MjModel) -> np.ndarray:
    """The keyframe's position, with all free bodies raised until nothing is 1 mm inside something else, or by 2 m."""
    d = mujoco.MjData(m)
    if m.nkey:
        mujoco.mj_resetDataKeyframe(m, d, 0)
    free = m.jnt_qposadr[m.jnt_type == mujoco.mjtJoint.mjJNT_FREE]
    start = d.qpos.copy()
    for _ in range(100):
        mujoco.mj_forward(m, d)
        if not len(free) or not d.ncon or d.contact.dist.min() > -1e-3:
            return d.qpos.copy()
        d.qpos[free + 2] += 0.02
    return start


def grounded(path) -> mujoco.MjModel:
    """A file's model, with a floor."""
    try:
        spec = mujoco.MjSpec.from_file(str(path))
        if not any(geom.type == mujoco.mjtGeom.mjGEOM_PLANE for geom in spec.geoms):
            spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[10, 10, 0.1])
        return spec.compile()
    except ValueError:
        return elements.compiled(path)


def survey(path, law: str, steps: int) -> str:
    """One robot's line."""
    jax.config.update("jax_enable_x64", True)
    m = grounded(path)
    if law == "MuJoCo":
        return reference(m, steps)
    method = getattr(uk, law)()
    model = uk.load(m)
    state = uk.initial_state(model, 0 if m.nkey else None, q=lifted(m))
    draw = np.random.default_rng(0)
    low, high = np.where(m.actuator_ctrllimited[:, None] > 0, m.actuator_ctrlrange, [-1.0, 1.0]).T
    step = jax.jit(lambda state, ctrl: uk.step(model, state, ctrl, method))
    ctrl, states = draw.uniform(low, high), []
    begin = time.time()
    jax.block_until_ready(step(state, ctrl))
    first, begin = time.time() - begin, time.time()
    for k in range(steps):
        ctrl = draw.uniform(low, high) if k % HOLD == 0 else ctrl
        state = step(state, ctrl)
        states.append(jax.tree.map(np.asarray, (state.q, state.v, state.status)))
        state = dataclasses.replace(state, status=state.status * 0)
    each = (time.time() - begin) / steps
    return f"first {first:5.1f} s, {1e3 * each:7.2f} ms  {verdict(m, states)}"


def reference(m: mujoco.MjModel, steps: int) -> str:
    """MuJoCo's line, for the same controls."""
    d, draw, states = mujoco.MjData(m), np.random.default_rng(0), []
    if m.nkey:
        mujoco.mj_resetDataKeyframe(m, d, 0)
    d.qpos[:] = lifted(m)
    low, high = np.where(m.actuator_ctrllimited[:, None] > 0, m.actuator_ctrlrange, [-1.0, 1.0]).T
    for k in range(-1, steps):
        d.ctrl[:] = draw.uniform(low, high) if k % HOLD == 0 or k < 0 else d.ctrl
        if k >= 0:
            mujoco.mj_step(m, d)
            states.append((d.qpos.copy(), d.qvel.copy(), np.zeros(())))
    return f"{'':28}{verdict(m, states)}"


def verdict(m: mujoco.MjModel, states: list) -> str:
    """What is to be said of a motion."""
    d, deepest = mujoco.MjData(m), 0.0
    flags, silent = collections.Counter(), ""
    for k, (q, v, status) in enumerate(states):
        finite = np.isfinite(q).all() and np.isfinite(v).all()
        if status:
            flags[str(uk.Status(int(status)).name)] += 1
            flags["from"] = flags["from"] or k + 1
        elif not finite:
            silent = " SILENT"
        if finite:
            d.qpos[:] = q
            mujoco.mj_forward(m, d)
            deepest = min([deepest, *d.contact.dist[: d.ncon]])
    speeds = [np.abs(v).max(initial=0) for _, v, _ in states]
    said = ", ".join(f"{name} {count}" for name, count in flags.items()) or "clean"
    return f"fastest {np.nanmax(speeds):9.3g}, deepest {-1e3 * deepest:6.2f} mm, {said}{silent}"


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--laws", default=LAWS)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--limit", type=float, default=240.0)
    parser.add_argument("--here", action="store_true", help="in this process, for the one robot that WORD names")
    given = parser.parse_args()
    mujoco.set_mju_user_warning(lambda message: None)
    for name, path in files().items():
        if given.words and not any(word in name for word in given.words):
            continue
        for law in given.laws.split(","):
            if given.here and name in given.words:
                try:
                    print(survey(path, law, given.steps))
                except (uk.UkemiError, ValueError) as error:
                    print(f"{type(error).__name__}: {error}".replace("\n", " ")[:150])
            elif not given.here:
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
