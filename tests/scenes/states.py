"""Random states of MuJoCo's models, and the same as states of Ukemi's."""

import copy
import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import ukemi as uk
from ukemi.collide.primitives import PAIRS
from ukemi.laws.memory import blank_cache
from ukemi.model.records import Input, State

SLIDE, FREE, BALL = mujoco.mjtJoint.mjJNT_SLIDE, mujoco.mjtJoint.mjJNT_FREE, mujoco.mjtJoint.mjJNT_BALL
GEOM = {int(getattr(mujoco.mjtGeom, f"mjGEOM_{t.upper()}")): t for t in sorted({t for pair in PAIRS for t in pair})}


def converged(m: mujoco.MjModel) -> mujoco.MjModel:
    """Let MuJoCo's solver run to convergence, with a dense Jacobian."""
    m.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    m.opt.tolerance = 0
    m.opt.iterations = 60  # it never stops earlier: Newton needs ten or so
    m.opt.ls_iterations = 200
    m.opt.ls_tolerance = 1e-10
    m.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    m.opt.ccd_tolerance = 1e-12
    m.opt.ccd_iterations = 200
    return m


class Sample(NamedTuple):
    """A state with what acts on it, in MuJoCo's layout."""

    q: np.ndarray
    v: np.ndarray
    act: np.ndarray
    ctrl: np.ndarray
    warm: np.ndarray
    qfrc: np.ndarray
    xfrc: np.ndarray
    mocap_pos: np.ndarray
    mocap_quat: np.ndarray


def random_states(m: mujoco.MjModel, n: int, seed: int = 0) -> list[Sample]:
    """n states that mix active and inactive constraints.

    Noise about qpos0 and the keyframes, some joints set onto their limits, what floats let down to the ground; then
    random controls for a while. Those that MuJoCo finds unstable are drawn again; every other one too, up to ten times,
    where no contact, limit or equality is active.
    """
    m = copy.copy(m)
    m.opt.tolerance, m.opt.iterations, m.opt.ls_iterations = 1e-8, 50, 50
    rng, out, tries, idle = np.random.default_rng(seed), [], 0, 0
    d = mujoco.MjData(m)
    silent = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        while len(out) < n:
            tries += 1
            if tries > 30 * n:
                raise RuntimeError(f"{tries} tries found only {len(out)} of {n} stable states")
            sample = _random_state(m, rng)
            if sample is None:
                continue
            load_sample(d, sample)
            mujoco.mj_forward(m, d)
            idle = 0 if d.nefc > d.nf or len(out) % 2 else idle + 1
            if 0 < idle < 10:
                continue
            out.append(sample)
            idle = 0
    finally:
        mujoco.set_mju_user_warning(silent)
    return out


def _random_state(m: mujoco.MjModel, rng: np.random.Generator) -> Sample | None:
    d = mujoco.MjData(m)
    if m.nkey and rng.random() < 0.5:
        mujoco.mj_resetDataKeyframe(m, d, rng.integers(m.nkey))
    shift = rng.choice([0.02, 0.1, 0.5]) * rng.normal(size=m.nv)
    for j in np.flatnonzero(m.jnt_type == FREE):
        shift[m.jnt_dofadr[j] : m.jnt_dofadr[j] + 3] *= 0.3
    mujoco.mj_integratePos(m, d.qpos, shift, 1.0)
    _visit_limits(m, d, rng)
    d.mocap_pos[:] += 0.05 * rng.normal(size=d.mocap_pos.shape)
    d.mocap_quat[:] += 0.1 * rng.normal(size=d.mocap_quat.shape)
    _let_down(m, d, rng)
    d.qvel[:] = rng.choice([0.1, 1.0, 3.0]) * rng.normal(size=m.nv)
    d.act[:] = 0.3 * rng.normal(size=m.na)
    low, high = control_range(m)
    if rng.random() < 0.3:
        d.qfrc_applied[:] = rng.normal(size=m.nv)
        d.xfrc_applied[1:] = rng.normal(size=(m.nbody - 1, 6))
    for _ in range(rng.integers(0, 120) if rng.random() < 0.4 else 0):
        d.ctrl[:] = rng.uniform(low, high)
        mujoco.mj_step(m, d)
    fine = np.abs(d.qvel).max(initial=0) < 100 and np.abs(d.qpos).max(initial=0) < 100
    if any(w.number for w in d.warning) or not fine:
        return None
    d.ctrl[:] = rng.uniform(low, high) * rng.choice([1.0, 1.3])
    fields = (
        d.qpos, d.qvel, d.act, d.ctrl, d.qacc_warmstart, d.qfrc_applied, d.xfrc_applied, d.mocap_pos, d.mocap_quat
    )  # fmt: skip
    return Sample(*(np.array(x) for x in fields))


def control_range(m: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest control (nu,); ±1 where there is no limit."""
    limited = m.actuator_ctrllimited.astype(bool)
    return np.where(limited, m.actuator_ctrlrange[:, 0], -1.0), np.where(limited, m.actuator_ctrlrange[:, 1], 1.0)


def _visit_limits(m: mujoco.MjModel, d: mujoco.MjData, rng: np.random.Generator) -> None:
    """Set some limited hinges and slides near one of their limits, in most states at least one, and mostly beyond."""
    limited = np.flatnonzero(m.jnt_limited & (m.jnt_type != BALL))
    for j in limited:
        if rng.random() < max(0.25, 1.2 / len(limited)):
            side = rng.integers(2)
            beyond = (0.005 + 0.01 * rng.normal()) * np.ptp(m.jnt_range[j])
            d.qpos[m.jnt_qposadr[j]] = m.jnt_range[j, side] + (beyond if side else -beyond)


def _let_down(m: mujoco.MjModel, d: mujoco.MjData, rng: np.random.Generator) -> None:
    """Move what floats up or down until its lowest point is near the ground, in four of five states."""
    planes = np.flatnonzero((m.geom_type == mujoco.mjtGeom.mjGEOM_PLANE) & (m.geom_bodyid == 0))
    if not len(planes):
        return
    mujoco.mj_kinematics(m, d)
    ground = m.geom_pos[planes[0], 2]
    colliding = (m.geom_contype != 0) | (m.geom_conaffinity != 0)
    for j in range(m.njnt):
        vertical = m.jnt_type[j] == SLIDE and d.xaxis[j, 2] > 0.9
        root = m.body_parentid[m.jnt_bodyid[j]] == 0
        tree = m.dof_treeid[m.jnt_dofadr[j]]
        own = colliding & (m.body_treeid[m.geom_bodyid] == tree) & np.isin(m.geom_type, list(GEOM))
        if not root or not own.any() or not (m.jnt_type[j] == FREE or vertical) or rng.random() < 0.2:
            continue
        lowest = min(d.geom_xpos[g, 2] - _half_height(m, d, g) for g in np.flatnonzero(own))
        address = m.jnt_qposadr[j] + (2 if m.jnt_type[j] == FREE else 0)
        d.qpos[address] += ground - lowest + rng.uniform(-0.02, 0.005)


def _half_height(m: mujoco.MjModel, d: mujoco.MjData, g: int) -> float:
    """How far a geom reaches below its centre."""
    z, size, kind = d.geom_xmat[g].reshape(3, 3)[2], m.geom_size[g], GEOM[int(m.geom_type[g])]
    return {
        "plane": 0.0,
        "sphere": size[0],
        "capsule": size[0] + abs(z[2]) * size[1],
        "ellipsoid": np.linalg.norm(z * size),
        "cylinder": np.hypot(z[0], z[1]) * size[0] + abs(z[2]) * size[1],
        "box": np.abs(z) @ size,
    }[kind]


def load_sample(d: mujoco.MjData, sample: Sample) -> None:
    """Set MuJoCo's data to a sample."""
    d.time = 0
    d.qpos[:], d.qvel[:], d.act[:], d.ctrl[:], d.qacc_warmstart[:] = sample[:5]
    d.qfrc_applied[:], d.xfrc_applied[:], d.mocap_pos[:], d.mocap_quat[:] = sample[5:]


def stack(model: uk.Model, samples: list[Sample]) -> tuple[State, Input]:
    """The samples as one batch."""
    s = Sample(*(jnp.asarray(np.stack(x)) for x in zip(*samples, strict=True)))
    zero = jnp.zeros(len(samples), jnp.int32)
    blank = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(samples), *x.shape)), blank_cache(model))
    cache = dataclasses.replace(blank, acceleration=s.warm)
    state = State(s.q, s.v, s.act, jnp.zeros(len(samples)), zero, cache)
    return state, Input(s.ctrl, s.qfrc, s.xfrc, s.mocap_pos, s.mocap_quat)
