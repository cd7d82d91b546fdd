"""Height fields beside MuJoCo: contacts and next states at random poses, and dm_control's quadruped on hills.

    python bench/height_fields.py [--poses 200] [--speed]

Poses in float64, with a margin of 1e-9 and without; --speed: a step in float32, and its first call, instead.
"""

import argparse
import importlib.util
import itertools
import time
from pathlib import Path

import jax
import mujoco
import numpy as np

import ukemi as uk
from tests.scenes.hulls import SHAPES
from ukemi.collide.detect import detect
from ukemi.mechanics.kinematics import kinematics


def scene(kind: str, margin: float) -> mujoco.MjModel:
    """A small field and one body."""
    rng = np.random.default_rng(0)
    heights = " ".join(f"{z:.3f}" for z in [0, 1, *rng.uniform(size=34)])
    corners = " ".join(f"{x:.4f}" for x in (0.05 * rng.normal(size=(25, 3))).ravel())
    return mujoco.MjModel.from_xml_string(
        f"""<mujoco><option timestep=".002" tolerance="0" ccd_tolerance="1e-12" ccd_iterations="200"/>
        <asset><mesh name="other" vertex="{corners}"/>
        <hfield name="hills" nrow="6" ncol="6" size=".5 .5 .15 .1" elevation="{heights}"/></asset>
        <worldbody><geom type="hfield" hfield="hills" margin="{margin}"/>
        <body pos="0 0 1"><freejoint/><geom type="{kind}" {SHAPES[kind]} mass="1"/></body></worldbody></mujoco>"""
    )


@jax.jit
def look(model: uk.Model, q, v):
    """Contacts, and the next velocity."""
    return detect(model, kinematics(model, q)), uk.step(model, uk.initial_state(model, q=q, v=v)).v


def placed(rng: np.random.Generator, m: mujoco.MjModel, d: mujoco.MjData, lowered: bool) -> np.ndarray:
    """A pose: anywhere in or near the field, or `lowered` from above until it is 2 mm deep."""
    turn = rng.normal(size=4)
    q = np.array([*rng.uniform(-0.5, 0.5, 2), rng.uniform(0.02, 0.2), *(turn / np.linalg.norm(turn))])
    low, high = 0.0, 0.5
    for _ in range(18 * lowered):
        q[2] = (low + high) / 2
        d.qpos[:] = q
        mujoco.mj_forward(m, d)
        low, high = (q[2], high) if d.contact.dist.min(initial=0) < -0.002 else (low, q[2])
    return q


def compare(kind: str, margin: float, poses: int, lowered: bool) -> None:
    """Print how many contacts, distances, normals and next velocities are MuJoCo's."""
    m = scene(kind, margin)
    d, model, rng = mujoco.MjData(m), uk.load(m), np.random.default_rng(1)
    counts = touching = total = 0
    distance, normal, velocity = [], [], []
    while touching < poses:
        mujoco.mj_resetData(m, d)
        q, v = placed(rng, m, d, lowered), rng.normal(size=6)
        mujoco.mj_resetData(m, d)
        d.qpos[:], d.qvel[:] = q, v
        mujoco.mj_step(m, d)
        found, after = look(model, q, v)
        assert not found.failed and not found.overflow and np.isfinite(after).all()
        n = int(found.active.sum())
        if not (n or d.ncon):
            continue
        touching += 1
        if n != d.ncon:
            continue
        counts += 1
        total += n
        order = np.argsort(np.where(found.active, found.which, np.iinfo(np.int32).max))[:n]
        distance.append(np.abs(np.asarray(found.distance)[order] - d.contact.dist).max())
        normal.append(np.abs(np.asarray(found.frame)[order, 0] - d.contact.frame[:, :3]).max())
        velocity.append(np.abs(np.asarray(after) - d.qvel).max())
    far, turned, fast = (np.array(x) for x in (distance, normal, velocity))
    where = "2 mm deep" if lowered else "anywhere "
    print(
        f"{kind:9} {where} margin {margin:5g}: counts {counts} of {touching} ({total} contacts); distances to 1e-6 "
        f"{(far < 1e-6).mean():.1%}, normals to 1e-4 {(turned < 1e-4).mean():.1%}, next velocities to 1e-9 "
        f"{(fast < 1e-9).mean():.1%}, to 1e-6 {(fast < 1e-6).mean():.1%}",
        flush=True,
    )


def quadruped() -> mujoco.MjModel:
    """dm_control's quadruped in a bowl with bumps, as its task of escaping makes them."""
    spec = importlib.util.find_spec("dm_control")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("dm_control is not installed; its quadruped.xml is what this needs")
    m = mujoco.MjModel.from_xml_path(str(Path(spec.submodule_search_locations[0]) / "suite" / "quadruped.xml"))
    n, rng = int(m.hfield_nrow[0]), np.random.default_rng(0)
    line = np.linspace(-1, 1, n)
    bowl = 0.5 - np.cos(2 * np.pi * np.clip(np.hypot(line[:, None], line), 0.04, 1)) / 2
    coarse, at = rng.uniform(0.15, 1, (30, 30)), np.linspace(0, 29, n)
    rows = np.stack([np.interp(at, np.arange(30), row) for row in coarse])
    bumps = np.stack([np.interp(at, np.arange(30), column) for column in rows.T], -1)
    m.hfield_data[:] = (bowl * bumps).ravel()
    return m


def speed() -> None:
    """Print what a step costs beside mj_step."""
    m = quadruped()
    m.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_SENSOR  # rays through the field are most of MuJoCo's step
    d = mujoco.MjData(m)
    d.qpos[:3] = 4, 3, 2.2
    for _ in range(300):
        mujoco.mj_step(m, d)
    model = uk.load(m)
    state, steps = uk.initial_state(model, q=d.qpos.copy(), v=d.qvel.copy()), 50

    def roll(state):
        return jax.lax.scan(lambda s, _: (uk.step(model, s), None), state, None, length=steps)[0]

    start = time.perf_counter()
    run = jax.jit(roll).lower(state).compile()
    first = time.perf_counter() - start
    q, v, act = d.qpos.copy(), d.qvel.copy(), d.act.copy()
    mine, theirs = [], []
    for _ in range(9):
        start = time.perf_counter()
        jax.block_until_ready(run(state))
        mine.append((time.perf_counter() - start) / steps)
        d.qpos[:], d.qvel[:], d.act[:] = q, v, act
        start = time.perf_counter()
        for _ in range(steps):
            mujoco.mj_step(m, d)
        theirs.append((time.perf_counter() - start) / steps)
    step, other = 1e6 * min(mine), 1e6 * min(theirs)
    print(f"quadruped on {m.hfield_nrow[0]} × {m.hfield_ncol[0]}: {d.ncon} contacts, step {step:.0f} µs, "
          f"mj_step {other:.0f} µs = {step / other:.1f} x, first call {first:.1f} s")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--poses", type=int, default=200)
    parser.add_argument("--only", nargs="*", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--speed", action="store_true")
    given = parser.parse_args()
    if given.speed:
        return speed()
    jax.config.update("jax_enable_x64", True)
    for kind, lowered, margin in itertools.product(given.only, (True, False), (1e-9, 0.0)):
        compare(kind, margin, given.poses, lowered)


if __name__ == "__main__":
    main()
