"""Random scenes against MuJoCo, step by step, and their derivatives against differences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import ukemi as uk
from tests.scenes.agreement import CONVERGED, QUICK
from tests.scenes.states import converged
from tests.scenes.structures import Structure, write
from ukemi.mechanics.kinematics import difference, integrate
from ukemi.model.records import Input

STEPS = 50
TIGHT = 5  # steps that must agree whatever the motion is like


def theirs(m: mujoco.MjModel, q, v, ctrls, shift=None) -> tuple[np.ndarray, int]:
    """MuJoCo's positions and velocities (steps, nq + nv), and the first step at which it found itself unstable."""
    d = mujoco.MjData(m)
    d.qpos[:], d.qvel[:] = q, v
    if shift is not None:
        mujoco.mj_integratePos(m, d.qpos, shift, 1.0)
    out = np.full((len(ctrls), m.nq + m.nv), np.nan)
    for k, ctrl in enumerate(ctrls):
        d.ctrl[:] = ctrl
        mujoco.mj_step(m, d)
        if any(w.number for w in d.warning):
            return out, k
        out[k] = np.concatenate([d.qpos, d.qvel])
    return out, len(ctrls)


def follow(structure: Structure, seed: int, count: int) -> int:
    """Compare `count` scenes of one structure with MuJoCo; returns how many of them were compared to the end."""
    silent = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        return _follow(structure, seed, count)
    finally:
        mujoco.set_mju_user_warning(silent)


def _follow(structure: Structure, seed: int, count: int) -> int:
    rng = np.random.default_rng(seed)
    ms = [converged(mujoco.MjModel.from_xml_string(write(structure, seed + k))) for k in range(count)]
    models = [uk.load(m, contacts=40) for m in ms]
    kinds = [jax.tree.structure(model) for model in models]
    assert all(k == kinds[0] for k in kinds), "scenes of one structure must be one program"
    m, batch = ms[0], jax.tree.map(lambda *x: jnp.stack(x), *models)
    v = rng.normal(size=(count, m.nv))
    q = np.stack([m.qpos0 for m in ms])
    ctrls = rng.normal(size=(count, STEPS, m.nu))

    def run(model, q, v, ctrls):
        def step(state, ctrl):
            after = CONVERGED.step(model, state, Input(ctrl))
            return after, after

        return jax.lax.scan(step, uk.initial_state(model, q=q, v=v), ctrls)[1]

    together = jax.jit(lambda x: jax.lax.map(lambda x: run(*x), x), compiler_options=QUICK)
    states = jax.tree.map(np.asarray, together((batch, jnp.asarray(q), jnp.asarray(v), jnp.asarray(ctrls))))
    finite = np.isfinite(states.q).all(-1) & np.isfinite(states.v).all(-1)
    assert ((states.status != 0) | finite).all(), "a NaN without a status bit"
    followed = 0
    for k, m in enumerate(ms):
        mine = np.concatenate([states.q[k], states.v[k]], -1)
        other, last = theirs(m, q[k], v[k], ctrls[k])
        overflow = (states.status[k] & uk.Status.CONTACT_OVERFLOW) != 0
        last = min(last, int(np.argmax(overflow)) if overflow.any() else STEPS)
        assert not (states.status[k][:last] & ~uk.Status.CONTACT_OVERFLOW).any(), uk.status.explain(states.status[k])
        # how much a small change of the start grows: what rounding may do, and more
        eps = 1e-9
        moved, end = theirs(m, q[k], v[k], ctrls[k], eps * np.random.default_rng(k).normal(size=m.nv))
        last = min(last, end)
        scale = 1 + np.maximum.accumulate(np.abs(other[:last]).max(-1))
        growth = np.maximum.accumulate(np.abs(moved - other)[:last].max(-1)) / eps
        error = np.abs(mine - other)[:last].max(-1)
        assert (error[:TIGHT] <= 1e-9 * scale[:TIGHT]).all(), (seed + k, error[:TIGHT])
        assert (error <= 1e-9 * scale * (1 + growth)).all(), (seed + k, error.max(), growth.max())
        followed += last == STEPS
    return followed


def check_slopes(structure: Structure, seed: int, count: int) -> tuple[int, int]:
    """A and B of scenes of one structure, in motion, against central differences; returns how many columns were
    compared, and how many of how many there are.

    Left out are those where differences of two widths disagree, or where the slopes to both sides do not approach each
    other as the width shrinks, and scenes whose status names a failure.
    """
    ms = [converged(mujoco.MjModel.from_xml_string(write(structure, seed + k))) for k in range(count)]
    models, rng = [uk.load(m, contacts=40) for m in ms], np.random.default_rng(seed)
    model = models[0]
    nv, nu, na, stored = model.nv, model.nu, model.na, ms[0].na
    given = jnp.asarray(rng.normal(size=(count, nv))), jnp.asarray(rng.normal(size=(count, stored + nu)))
    batch = jax.tree.map(lambda *x: jnp.stack(x), *models)

    def one(given):
        model, v, rest = given
        state = uk.initial_state(model, v=v)
        act = state.act.at[:stored].add(0.3 * rest[:stored])  # behind it late controls and rests of springs
        state, ctrl = eqx.tree_at(lambda s: s.act, state, act), rest[stored:]
        lin = uk.linearize(model, state, ctrl, CONVERGED)

        def moved(change):
            dq, dv, dact, dctrl = jnp.split(change, np.cumsum([nv, nv, na]))
            there = integrate(model.tree, state.q, dq, 1.0), v + dv, state.act + dact
            there = eqx.tree_at(lambda s: (s.q, s.v, s.act), state, there)
            after = CONVERGED.step(model, there, Input(ctrl + dctrl))
            return jnp.concatenate([difference(model.tree, after.q, lin.next.q), after.v, after.act])

        ways = jnp.eye(2 * nv + na + nu)
        ends = jax.lax.map(moved, jnp.concatenate([h * ways for h in (1e-5, -1e-5, 3e-6, -3e-6)]))
        middle = jnp.concatenate([jnp.zeros(nv), lin.next.v, lin.next.act])
        return jnp.concatenate([lin.A, lin.B], 1), ends.reshape(4, *ways.shape[:1], -1), middle, lin.next.status

    together = jax.jit(lambda x: jax.lax.map(one, x), compiler_options=QUICK)
    slopes, ends, middles, status = jax.tree.map(np.asarray, together((batch, *given)))
    compared = 0
    for k in np.flatnonzero(status == 0):
        wide, near = ((ends[k, i] - ends[k, i + 1]).T / (2 * h) for i, h in ((0, 1e-5), (2, 3e-6)))
        bends = [np.abs(ends[k, i] + ends[k, i + 1] - 2 * middles[k]).max(1) / h for i, h in ((0, 1e-5), (2, 3e-6))]
        scale = 1 + np.abs(near).max(0)
        smooth = (np.abs(wide - near).max(0) < 1e-7 * scale) & (bends[1] < 0.7 * bends[0] + 1e-6 * scale)
        error = np.abs(slopes[k] - near).max(0) / scale
        error = np.where(smooth & ~(error < 1e-6), error, 0.0)  # what is not a number is wrong, too
        assert not error.any(), (seed + k, np.flatnonzero(error), error.max(), structure)
        compared += smooth.sum()
    return int(compared), slopes.shape[2] * count
