"""Rows of joints: dry friction and limits."""

import jax.numpy as jnp
import numpy as np

from ukemi.constraints.block import Block, Frame, RowKind, Side
from ukemi.maths import spatial
from ukemi.maths.gathers import pick
from ukemi.model.records import Model
from ukemi.model.tree import BALL, DOFS


def _dry_moves(model: Model) -> np.ndarray:
    return np.eye(model.nv, dtype=bool)[model.joints.layout.dry]


def _dry_rows(frame: Frame, _: bool) -> Block:
    """One row per dof with friction loss: velocity is the residual, there is no position."""
    joints, dofs = frame.model.joints, frame.model.joints.layout.dry
    zero = jnp.zeros(len(dofs), joints.damping.dtype)
    return Block(
        side=Side.RUB,
        J=jnp.eye(frame.model.nv, dtype=zero.dtype)[dofs],
        residual=zero,
        depth=zero,
        margin=zero,
        weight=joints.invweight[dofs],
        solref=joints.solref_friction[dofs],
        solimp=joints.solimp_friction[dofs],
        active=joints.frictionloss[dofs] != 0,
        drift=zero,
        bound=joints.frictionloss[dofs],
    )


def _limit_moves(model: Model) -> np.ndarray:
    tree, joint = model.tree, model.joints.layout.limit_rows[:, 0]
    first, count = tree.joint_dof[joint], np.array([DOFS[t] for t in tree.joint_type[joint].tolist()], int)
    dofs = np.arange(model.nv)
    return (dofs >= first[:, None]) & (dofs < (first + count)[:, None])


def _limit_rows(frame: Frame, _: bool) -> Block:
    """Limits of hinges and slides (the nearer side, or both where both can act) and of balls."""
    model, q = frame.model, frame.q
    tree, joints = model.tree, model.joints
    joint, side = joints.layout.limit_rows.T
    ball = tree.joint_type[joint] == BALL
    value = pick(q, tree.joint_qpos[joint])
    below, above = value - joints.range[joint, 0], joints.range[joint, 1] - value
    lower = (side < 0) | ((side == 0) & ((below < above) | jnp.isnan(below)))  # NaN is kept, from either end
    distance, sign = jnp.where(lower, below, above), jnp.where(lower, 1.0, -1.0)
    first = tree.joint_dof[joint][:, None]
    J = jnp.where(np.arange(model.nv) == first, sign[:, None], 0.0)
    if ball.any():
        adr = np.where(ball, tree.joint_qpos[joint], 0)[:, None] + np.arange(4)
        turn = spatial.quat_log(spatial.quat_normalize(q[np.minimum(adr, model.nq - 1)]))
        angle = spatial.safe_norm(turn)
        axis = turn / jnp.where(angle == 0, 1.0, angle)[:, None]
        J_ball = -sum(axis[:, k, None] * (np.arange(model.nv) == first + k) for k in range(3))
        distance = jnp.where(ball, joints.range[joint].max(-1) - angle, distance)
        J = jnp.where(ball[:, None], J_ball, J)
    return Block(
        side=Side.PUSH,
        J=J,
        residual=distance,
        depth=distance,
        margin=joints.margin[joint],
        weight=joints.invweight[tree.joint_dof[joint]],
        solref=joints.solref_limit[joint],
        solimp=joints.solimp_limit[joint],
        active=~(distance >= joints.margin[joint]),  # NaN, too, so that it is not dropped
        drift=jnp.zeros_like(distance),
    )


DRY_FRICTION = RowKind("dry friction of a joint", "frictionloss", Side.RUB, _dry_moves, _dry_rows)
LIMITS = RowKind("limit of a joint", "limit", Side.PUSH, _limit_moves, _limit_rows)
