"""Servos of orientations, as MuJoCo has them: a torque along the short way from where a ball joint or a site is to
where it shall be, in axes that turn with it. The only actuators of several outputs, three each.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial
from ukemi.maths.gathers import placed, taken
from ukemi.model.actuators import ActuatorLayout
from ukemi.model.records import Model


def orienting(layout: ActuatorLayout) -> np.ndarray:
    """Which actuators (n,) these are."""
    return np.flatnonzero(np.array(layout.transmission, str) == "so3")


def outputs_of(layout: ActuatorLayout) -> np.ndarray:
    """Their outputs (n, 3)."""
    return layout.output[orienting(layout)][:, None] + np.arange(3)


def orientation_force(model: Model, length: Array, velocity: Array, act: Array, ctrl: Array) -> tuple[Array, Array]:
    """Torques (n, 3) and their slopes in velocity, none at the limit of the torque's magnitude."""
    actuators, layout = model.actuators, model.actuators.layout
    which, outputs = orienting(layout), outputs_of(layout)
    kp, (rest, _, kd) = actuators.gain[which, :1], actuators.bias[which].T[:, :, None]
    force = kp * heading_error(model, length, act, ctrl) + rest + kd * velocity[outputs]
    slope = jnp.broadcast_to(kd, force.shape)
    size, most = spatial.safe_norm(force)[:, None], actuators.force_range[which, 1:]
    limited = layout.force_limited[which][:, None]
    slope = jnp.where(limited & (size >= most), 0.0, slope)
    over = limited & (size > most)
    force = jnp.where(over, force * (most / jnp.where(over, size, 1.0)), force)
    off = layout.off[which][:, None]
    return jnp.where(off, 0.0, force), jnp.where(off, 0.0, slope)


def heading_error(model: Model, length: Array, act: Array, ctrl: Array) -> Array:
    """Rotation vectors (n, 3) from where these are to where they shall be."""
    return spatial.quat_sub(*_headings(model, length, act, ctrl))


def headings_code(model: Model, length: Array, act: Array, ctrl: Array) -> Array:
    """Which way round is the short one, and how many turns stored setpoints are long: integers."""
    target, now = _headings(model, length, act, ctrl)
    turns = jnp.round(spatial.safe_norm(taken(act, _stored(model.actuators.layout))) / (2 * np.pi))
    way = jnp.sign(spatial.quat_mul(spatial.quat_conj(now), target)[:, 0])
    return jnp.concatenate([way, turns]).astype(int)


def _headings(model: Model, length: Array, act: Array, ctrl: Array) -> tuple[Array, Array]:
    """Unit quaternions (n, 4) of where these shall be, by a control that is one or a rotation vector, and are."""
    layout = model.actuators.layout
    given = [np.flatnonzero(layout.commanded == k) for k in orienting(layout)]
    stored = _stored(layout)
    quat = np.array([index if len(index) == 4 else np.full(4, -1) for index in given]).reshape(-1, 4)
    turn = np.array([index if len(index) == 3 else np.full(3, -1) for index in given]).reshape(-1, 3)
    turn = jnp.where(stored >= 0, taken(act, stored), taken(ctrl, turn))
    target = jnp.where(quat >= 0, spatial.quat_normalize(taken(ctrl, quat)), spatial.quat_exp(turn))
    return target, spatial.quat_exp(length[outputs_of(layout)])


def _stored(layout: ActuatorLayout) -> np.ndarray:
    """Their activations (n, 3), rotation vectors; -1 where controls say it."""
    own = [np.flatnonzero(layout.owner == k) for k in orienting(layout)]
    return np.array([index if len(index) else np.full(3, -1) for index in own], int).reshape(-1, 3)


def shortened(layout: ActuatorLayout, act: Array) -> Array:
    """Activations (na,) with stored rotation vectors of more than half a turn made those of the same rotation."""
    stored = _stored(layout)
    stored = stored[(stored >= 0).all(1)]
    if not len(stored):
        return act
    return placed(act, stored, spatial.short_way(act[stored]))
