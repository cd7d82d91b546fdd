"""Constraint rows: Jacobian, reference acceleration and softness of equalities, dry friction, limits, contacts.

Rows have a fixed order and number: equalities, friction loss, limits, then `dim` rows per contact slot in the
contact's frame. A row that is not active has D = 0 and so exerts nothing.
"""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi import spatial
from ukemi.collide.detect import Contacts
from ukemi.contact import ContactLaw, contact_jacobian, contact_law, contact_lever
from ukemi.equality import equality_rows
from ukemi.kinematics import Kinematics, Velocities, velocities
from ukemi.maps import pick
from ukemi.model import Model
from ukemi.penalty import Penalty, RowKinds
from ukemi.penalty import force as force_of
from ukemi.softness import TINY, Softness, impedance, stiffness_damping
from ukemi.tree import BALL


class Frame(NamedTuple):
    """What rows are made from, whichever law they serve."""

    model: Model
    kin: Kinematics
    velocity: Velocities
    q: Array
    v: Array
    contacts: Contacts


def frame_of(here) -> Frame:
    """What rows are made from at `methods.balance.Here`."""
    velocity = velocities(here.model.tree, here.kin.S, here.v)
    return Frame(here.model, here.kin, velocity, here.q, here.v, here.contacts)


class Rows(NamedTuple):
    """Everything that the solvers need to know of the constraints."""

    J: Array  # (total, nv)
    aref: Array  # (total,) reference acceleration
    penalty: Penalty


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


# ---- reference acceleration and regulariser (MuJoCo, "Parameters") -----------------------------------------------


def reference(model: Model, block: Block, v: Array) -> tuple[Array, Array, Array]:
    """a_ref, R and D of the rows of a block (design: softness)."""
    soft = row_softness(model, block, block.residual, block.depth)
    aref = -soft.damping * (block.J @ v) - soft.push - block.drift
    R = jnp.maximum(TINY, soft.R)
    return aref, R, jnp.where(block.active, 1 / R, 0.0)


def row_softness(model: Model, block: Block, residual: Array, depth: Array) -> Softness:
    """Softness of a block's rows at the given position errors (n,)."""
    d = impedance(block.solimp, depth - block.margin)
    k, b = stiffness_damping(model, block.solref, block.solimp)
    return Softness(k * d * (residual - block.margin), b, (1 - d) / d * block.weight)


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


def constraint_rows(frame: Frame, kinds: RowKinds) -> Rows:
    """All rows at a state."""
    J, aref, D = _scalar_rows(frame, kinds)
    law = _no_law(kinds, frame.q.dtype)
    if kinds.contacts:
        J_contact = contact_jacobian(frame.model, frame.kin, frame.contacts, kinds.dim)
        moving = (J_contact.reshape(-1, frame.model.nv) @ frame.v).reshape(-1, kinds.dim)
        law = contact_law(frame.model, frame.contacts, kinds, moving)
        J = jnp.concatenate([J, J_contact.reshape(-1, frame.model.nv)])
    return spatial.materialize(Rows(J, jnp.concatenate([aref, law.aref.reshape(-1)]), _penalty(frame.model, D, law)))


def constraint_force(frame: Frame, a: Array, kinds: RowKinds) -> tuple[Array, Array]:
    """Constraint forces f (total,) = −∇s(J a − a_ref) at acceleration a (nv,), and Jᵀ f (nv,).

    Contacts take part without their Jacobian, so that derivatives of this function pass vectors around, not matrices.
    """
    J, aref, D = _scalar_rows(frame, kinds)
    x, law = [J @ a - aref], _no_law(kinds, frame.q.dtype)
    if kinds.contacts:
        lever = contact_lever(frame.model, frame.kin, frame.contacts, kinds.dim)
        law = contact_law(frame.model, frame.contacts, kinds, lever.motion(frame.v))
        x.append((lever.motion(a) - law.aref).reshape(-1))
    force = force_of(kinds, _penalty(frame.model, D, law), jnp.concatenate(x))
    pull = force[: kinds.scalar] @ J
    if kinds.contacts:
        pull = pull + lever.pull(force[kinds.scalar :].reshape(-1, kinds.dim))
    return force, pull


def scalar_force(kinds: RowKinds, here, a: Array) -> Array:
    """Jᵀ f (nv,) of the rows that are not contacts, at acceleration a (nv,)."""
    J, aref, D = _scalar_rows(frame_of(here), kinds)
    only = dataclasses.replace(kinds, contacts=0)
    return force_of(only, _penalty(here.model, D, _no_law(kinds, a.dtype)), J @ a - aref) @ J


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


def _scalar_rows(frame: Frame, kinds: RowKinds):
    """J, a_ref and D of the rows that are not contacts."""
    model, dtype = frame.model, frame.q.dtype
    J, aref, D = [jnp.zeros((0, model.nv), dtype)], [jnp.zeros(0, dtype)], [jnp.zeros(0, dtype)]
    for block in scalar_blocks(frame, kinds):
        a, _, stiff = reference(model, block, frame.v)
        J.append(block.J)
        aref.append(a)
        D.append(stiff)
    return jnp.concatenate(J), jnp.concatenate(aref), jnp.concatenate(D)


def _no_law(kinds: RowKinds, dtype) -> ContactLaw:
    empty = jnp.zeros(0, dtype)
    frame = jnp.zeros((0, kinds.dim), dtype)
    return ContactLaw(frame, empty, frame, frame[:, 1:], empty)


def _penalty(model: Model, D: Array, law: ContactLaw) -> Penalty:
    return Penalty(D, model.joints.frictionloss[model.joints.layout.dry], *law[1:])
