"""Rows of joints: dry friction and limits."""

import jax.numpy as jnp
import numpy as np

from ukemi.constraints.block import Block, Frame, RowKind, Side, limiting, nearer_end, rubbing
from ukemi.maths import spatial
from ukemi.maths.gathers import pick
from ukemi.model.records import Model
from ukemi.model.tree import BALL, DOFS


def _dry_moves(model: Model) -> np.ndarray:
    return np.eye(model.nv, dtype=bool)[model.joints.layout.dry]


def _dry_rows(frame: Frame, _: bool) -> Block:
    """One row per dof with friction loss."""
    joints, dofs = frame.model.joints, frame.model.joints.layout.dry
    return rubbing(joints, dofs, jnp.eye(frame.model.nv, dtype=joints.damping.dtype)[dofs])


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
    distance, lower = nearer_end(pick(q, tree.joint_qpos[joint]), joints.range[joint], side)
    sign = jnp.where(lower, 1.0, -1.0)
    first = tree.joint_dof[joint][:, None]
    J = jnp.where(np.arange(model.nv) == first, sign[:, None], 0.0)
    if ball.any():
        adr = np.where(ball, tree.joint_qpos[joint], 0)[:, None] + np.arange(4)
        turn = spatial.quat_log(spatial.quat_normalize(pick(q, np.minimum(adr, model.nq - 1))))
        angle = spatial.safe_norm(turn)
        axis = turn / jnp.where(angle == 0, 1.0, angle)[:, None]
        J_ball = -sum(axis[:, k, None] * (np.arange(model.nv) == first + k) for k in range(3))
        distance = jnp.where(ball, joints.range[joint].max(-1) - angle, distance)
        J = jnp.where(ball[:, None], J_ball, J)
    return limiting(joints, joint, distance, J, joints.invweight[tree.joint_dof[joint]])


DRY_FRICTION = RowKind("dry friction of a joint", "frictionloss", Side.RUB, _dry_moves, _dry_rows)
LIMITS = RowKind("limit of a joint", "limit", Side.PUSH, _limit_moves, _limit_rows)
