"""Equality constraints: connect two points, weld two frames, couple two joints.

Points that drifted apart may act together, on both bodies where the first one is and along axes that turn with the
second, so that bodies which turn as one do not violate the constraint, and momentum is kept. MuJoCo has each act where
it is, along the world's axes: what couples a body with its own child then resists the turning of both, by a lever as
long as the drift.
"""

from functools import partial
from typing import NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.constraints.block import Block, Frame, RowKind, Side
from ukemi.maths import spatial
from ukemi.mechanics.kinematics import Kinematics, Velocities, accumulate, frames, point_jacobian
from ukemi.model.records import Model


def rows_of(model: Model, kind: str) -> np.ndarray:
    """Rows of `model.equalities` of one type."""
    return np.nonzero(np.array(model.equalities.layout.type) == kind)[0]


def block_of(model: Model, owner: np.ndarray, J: Array, residual: Array, depth: Array, weight: Array, drift: Array):
    """Rows that belong to rows `owner` (n,) of `model.equalities`."""
    return Block(
        side=Side.HOLD,
        J=J,
        residual=residual,
        depth=depth,
        margin=jnp.zeros_like(residual),
        weight=weight,
        solref=model.equalities.solref[owner],
        solimp=model.equalities.solimp[owner],
        active=cast(Array, np.ones(len(owner), bool)),
        drift=drift,
    )


# ---- connects and welds ----------------------------------------------------------------------------------------------


def _bodies(model: Model, index: np.ndarray) -> np.ndarray:
    """The two bodies (n, 2) that each joins; where they are given as sites, those that the sites are fixed to."""
    layout = model.equalities.layout
    objects, at_site = layout.objects[index], layout.sites[index][:, None]
    if not at_site.any():
        return objects
    return np.where(at_site, model.sites.layout.body[np.where(at_site, objects, 0)], objects)


def _moves(kind: str, rows: int, model: Model) -> np.ndarray:
    """(n, nv) bool: what moves either body, so many rows of each."""
    bodies = _bodies(model, rows_of(model, kind))
    return np.repeat(model.tree.moves[bodies].any(1), rows, 0)


class _Frames(NamedTuple):
    """The two frames that a connect or weld joins, each fixed to a body."""

    body: np.ndarray  # (n,)
    pos: Array  # (n, 3)
    quat: Array  # (n, 4)


def _joined(model: Model, kin: Kinematics, index: np.ndarray) -> tuple[_Frames, _Frames]:
    """Anchor frames of connects and welds, given in bodies or as sites."""
    layout, data = model.equalities.layout, model.equalities.data[index]
    weld = np.array([layout.type[k] == "weld" for k in index])[:, None]
    unit = np.array([1.0, 0.0, 0.0, 0.0], data.dtype)
    local = (
        (jnp.where(weld, data[:, 3:6], data[:, 0:3]), jnp.where(weld, data[:, 6:10], unit)),
        (jnp.where(weld, data[:, 0:3], data[:, 3:6]), jnp.broadcast_to(unit, (len(index), 4))),
    )
    out, at_site, bodies = [], layout.sites[index], _bodies(model, index)
    for side, (pos, quat) in enumerate(local):
        body = bodies[:, side]
        if at_site.any():
            site = np.where(at_site, layout.objects[index, side], 0)
            pos = jnp.where(at_site[:, None], model.sites.pos[site], pos)
            quat = jnp.where(at_site[:, None], model.sites.quat[site], quat)
        out.append(_Frames(body, *frames(kin, body, pos, quat)))
    return out[0], out[1]


def _relative(model: Model, kin: Kinematics, velocity: Velocities, v: Array, pair: tuple[_Frames, _Frames], together):
    """Jacobian (n, 6, nv) of frame 1 relative to frame 2, its bias acceleration (n, 6), angular velocities (n, 3)."""
    tree = model.tree
    A = accumulate(tree, velocity.S_dot * v[:, None])
    jacobian, drift, spin = [], [], []
    for frame in pair:
        arm = frame.pos - kin.ref[tree.body_tree[frame.body]]
        V, acc = velocity.body[frame.body], A[frame.body]
        w, alpha = V[:, :3], acc[:, :3]
        at_point = V[:, 3:] + spatial.cross(w, arm)
        linear = acc[:, 3:] + spatial.cross(alpha, arm) + spatial.cross(w, at_point)
        jacobian.append(point_jacobian(tree, kin, frame.body, pair[0].pos if together else frame.pos))
        drift.append(jnp.concatenate([alpha, linear], -1))
        spin.append(w)
    return jacobian[0] - jacobian[1], drift[0] - drift[1], spin


def _axes(model: Model, pair: tuple[_Frames, _Frames], together: bool) -> Array | None:
    """Axes (n, 3, 3) that rows of points are seen in, None for those of the world: where none turns they do as well."""
    turns = together and model.tree.moves[pair[1].body].any()
    return spatial.quat_to_mat(pair[1].quat) if turns else None


def _connects(frame: Frame, together: bool) -> Block:
    """Residual of the anchor points, three rows each."""
    model, kin, velocity, _, v, _ = frame
    index = rows_of(model, "connect")
    pair = _joined(model, kin, index)
    J, drift, _ = _relative(model, kin, velocity, v, pair, together)
    apart, along = _apart(pair, J[:, 3:], _axes(model, pair, together))
    weight = cast(Array, sum(model.bodies.invweight[frame.body, 0] for frame in pair))
    parts = _three(along, apart, spatial.safe_norm(apart), weight, drift[:, 3:])
    return block_of(model, np.repeat(index, 3), *parts)


def _apart(pair: tuple[_Frames, _Frames], J: Array, axes: Array | None) -> tuple[Array, Array]:
    """How far points are apart (n, 3), and their rows (n, 3, nv), along given axes (n, 3, 3) or those of the world.

    Rows of points that act together are the slope of what an observer on the second body sees, and of nothing else.
    """
    apart = pair[0].pos - pair[1].pos
    return (apart, J) if axes is None else (spatial.apply(axes.mT, apart), spatial.compose(axes.mT, J))


def _three(J: Array, residual: Array, depth: Array, weight: Array, drift: Array) -> tuple[Array, ...]:
    """Rows of constraints with three residuals each: (n, 3, nv), (n, 3), (n,), (n,), (n, 3)."""
    J = lax.collapse(J, 0, 2)  # as a matrix, of no columns where nothing moves
    return J, residual.reshape(-1), jnp.repeat(depth, 3), jnp.repeat(weight, 3), drift.reshape(-1)


def _welds(frame: Frame, together: bool) -> Block:
    """Points as of a connect, and the vector part of the relative quaternion: sin(θ/2) times its axis."""
    model, kin, velocity, _, v, _ = frame
    index = rows_of(model, "weld")
    pair = _joined(model, kin, index)
    J, drift, (spin, spin_base) = _relative(model, kin, velocity, v, pair, together)
    scale = model.equalities.data[index, 10][:, None]
    back, (s, e, to_error) = spatial.quat_conj(pair[1].quat), _tilt(pair, scale)
    J_turn = to_error @ J[:, :3]
    w = spatial.rotate(back, spin - spin_base)
    w_dot = spatial.rotate(back, drift[:, :3] - spatial.cross(spin_base, spin - spin_base))
    s_dot, e_dot = -0.5 * (w * e).sum(-1, keepdims=True), 0.5 * (s * w + spatial.cross(w, e))
    turn_drift = 0.5 * scale * (s_dot * w + s * w_dot + spatial.cross(w_dot, e) + spatial.cross(w, e_dot))
    (apart, along), angle = _apart(pair, J[:, 3:], _axes(model, pair, together)), scale * e
    depth = spatial.safe_norm(jnp.concatenate([apart, angle], -1))
    weights = [cast(Array, sum(model.bodies.invweight[frame.body, k] for frame in pair)) for k in (0, 1)]
    points = _three(along, apart, depth, weights[0], drift[:, 3:])
    turns = _three(J_turn, angle, depth, weights[1], turn_drift)
    parts = (jnp.concatenate(pair) for pair in zip(points, turns, strict=True))
    return block_of(model, np.tile(np.repeat(index, 3), 2), *parts)


def _tilt(pair: tuple[_Frames, _Frames], scale: Array) -> tuple[Array, Array, Array]:
    """Scalar (n, 1) and vector (n, 3) part of the relative quaternions, and what makes rates of the latter (n, 3, 3).

    ė = ½ (s w + w × e) with w the relative velocity seen from frame 2, times the scale (n, 1).
    """
    error = spatial.quat_mul(spatial.quat_conj(pair[1].quat), pair[0].quat)
    s, e = error[:, :1], error[:, 1:]
    to_error = 0.5 * scale[..., None] * (s[..., None] * jnp.eye(3, dtype=e.dtype) - spatial.skew(e))
    return s, e, to_error @ jnp.swapaxes(spatial.quat_to_mat(pair[1].quat), -1, -2)


class Wrench(NamedTuple):
    """Forces and torques on n bodies, in world axes."""

    body: np.ndarray  # (n,)
    point: Array  # (n, 3) where the forces act
    force: Array  # (n, 3)
    torque: Array  # (n, 3)


def wrenches(model: Model, kin: Kinematics, kind: str, force: Array, together: bool) -> list[Wrench]:
    """What the rows of all connects or welds do to both bodies, of their forces."""
    index = rows_of(model, kind)
    if not len(force):
        return []
    pair, parts = _joined(model, kin, index), force.reshape(-1, len(index), 3)  # of points, then of turns
    push, torque, axes = parts[0], jnp.zeros_like(parts[0]), _axes(model, pair, together)
    push = push if axes is None else spatial.apply(axes, push)
    if kind == "weld":
        to_error = _tilt(pair, model.equalities.data[index, 10][:, None])[2]
        torque = spatial.apply(to_error.mT, parts[1])
    return [
        Wrench(frame.body, pair[0].pos if together else frame.pos, sign * push, sign * torque)
        for frame, sign in zip(pair, (1.0, -1.0), strict=True)
    ]


# ---- couplings of joints ---------------------------------------------------------------------------------------------


def quartic(data: Array, x: Array) -> tuple[Array, Array]:
    """What couplings with coefficients data (n, 5 or more) follow at x (n,), and its slope."""
    value = data[:, 0] + x * (data[:, 1] + x * (data[:, 2] + x * (data[:, 3] + x * data[:, 4])))
    return value, data[:, 1] + x * (2 * data[:, 2] + x * (3 * data[:, 3] + x * 4 * data[:, 4]))


def _coupling_moves(model: Model) -> np.ndarray:
    joints, dofs = model.equalities.layout.objects[rows_of(model, "joint")], np.arange(model.nv)
    own = model.tree.joint_dof[np.maximum(joints, 0)][..., None] == dofs
    return (own & (joints >= 0)[..., None]).any(1)


def _couplings(frame: Frame, _: bool) -> Block:
    """Joint 1 as a quartic polynomial of joint 2, or held at a constant."""
    model, q = frame.model, frame.q
    index = rows_of(model, "joint")
    tree, data = model.tree, model.equalities.data[index]
    first, second = model.equalities.layout.objects[index].T
    coupled, other = second >= 0, np.maximum(second, 0)
    shift = [q[tree.joint_qpos[j]] - model.joints.qpos0[tree.joint_qpos[j]] for j in (first, other)]
    x = jnp.where(coupled, shift[1], 0.0)
    value, slope = quartic(data, x)
    dofs = np.arange(model.nv)
    J = (dofs == tree.joint_dof[first][:, None]) - jnp.where(coupled, slope, 0.0)[:, None] * (
        dofs == tree.joint_dof[other][:, None]
    )
    inverse = model.joints.invweight
    weight = inverse[tree.joint_dof[first]] + jnp.where(coupled, inverse[tree.joint_dof[other]], 0.0)
    residual = shift[0] - value
    return block_of(model, index, J.astype(q.dtype), residual, residual, weight, jnp.zeros_like(residual))


CONNECTS = RowKind("connect", "equality", Side.HOLD, partial(_moves, "connect", 3), _connects)
WELDS = RowKind("weld", "equality", Side.HOLD, partial(_moves, "weld", 6), _welds)
COUPLINGS = RowKind("coupling of joints", "equality", Side.HOLD, _coupling_moves, _couplings)
