"""Constraint rows whichever law they serve: equalities, dry friction and limits as blocks, one for each kind.

Rows have a fixed order and number: equalities, friction loss, limits, then `dim` rows per contact slot in the
contact's frame.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.collide.detect import Contacts
from ukemi.constraints.equalities import equality_rows
from ukemi.maths import spatial
from ukemi.maths.maps import pick
from ukemi.mechanics.kinematics import Kinematics, Velocities
from ukemi.model.records import Model
from ukemi.model.rows import RowKinds
from ukemi.model.tree import BALL


class Frame(NamedTuple):
    """What rows are made from, whichever law they serve."""

    model: Model
    kin: Kinematics
    velocity: Velocities
    q: Array
    v: Array
    contacts: Contacts


class Block(NamedTuple):
    """Rows of one kind before their stiffness is known."""

    J: Array  # (n, nv)
    residual: Array  # (n,) position error, that of the row itself
    depth: Array  # (n,) position error that sets the impedance
    margin: Array  # (n,)
    weight: Array  # (n,) diagonal of Â
    solref: Array  # (n, 2)
    solimp: Array  # (n, 5)
    active: Array  # (n,) bool
    drift: Array  # (n,) J̇ v


# ---- joints ------------------------------------------------------------------------------------------------------


def _dry_rows(model: Model) -> Block:
    """One row per dof with friction loss: velocity is the residual, there is no position."""
    joints, dofs = model.joints, model.joints.layout.dry
    zero = jnp.zeros(len(dofs), joints.damping.dtype)
    return Block(
        J=jnp.eye(model.nv, dtype=zero.dtype)[dofs],
        residual=zero,
        depth=zero,
        margin=zero,
        weight=joints.invweight[dofs],
        solref=joints.solref_friction[dofs],
        solimp=joints.solimp_friction[dofs],
        active=joints.frictionloss[dofs] != 0,
        drift=zero,
    )


def _limit_rows(model: Model, q: Array) -> Block:
    """Limits of hinges and slides (the nearer side, or both where both can act) and of balls."""
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


# ---- all together --------------------------------------------------------------------------------------------------


def scalar_blocks(frame: Frame, kinds: RowKinds, *, together: bool = False) -> list[Block]:
    """The rows that are not contacts, kind by kind; together: see `equality_rows`."""
    model, kin, velocity, q, v, _ = frame
    blocks = []
    if kinds.equality:
        blocks.append(Block(*equality_rows(model, kin, velocity, q, v, together)))
    if kinds.dry:
        blocks.append(_dry_rows(model))
    if kinds.limit:
        blocks.append(_limit_rows(model, q))
    return blocks


def has_constant_rows(model: Model, kinds: RowKinds) -> bool:
    """Whether rows that are not contacts have a constant Jacobian: no equalities, no limits of balls."""
    joint = model.joints.layout.limit_rows[:, 0]
    return not kinds.equality and not (kinds.limit and (model.tree.joint_type[joint] == BALL).any())
