"""Constraint rows of the soft law: Jacobian, reference acceleration and softness, and the force that they yield."""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ukemi.constraints.contacts import contact_jacobian, contact_lever
from ukemi.constraints.rows import Block, Frame, scalar_blocks
from ukemi.constraints.softness import TINY, Softness, impedance, stiffness_damping
from ukemi.laws.here import Here, frame_of
from ukemi.laws.soft.contacts import ContactLaw, contact_law
from ukemi.laws.soft.penalty import Penalty, penalty_force
from ukemi.maths import spatial
from ukemi.model.records import Model
from ukemi.model.rows import RowKinds


class Rows(NamedTuple):
    """Everything that the solvers need to know of the constraints."""

    J: Array  # (total, nv)
    aref: Array  # (total,) reference acceleration
    penalty: Penalty


def reference(model: Model, block: Block, v: Array) -> tuple[Array, Array, Array]:
    """a_ref, R and D of the rows of a block (MuJoCo, "Parameters")."""
    soft = row_softness(model, block, block.residual, block.depth)
    aref = -soft.damping * (block.J @ v) - soft.push - block.drift
    R = jnp.maximum(TINY, soft.R)
    return aref, R, jnp.where(block.active, 1 / R, 0.0)


def row_softness(model: Model, block: Block, residual: Array, depth: Array) -> Softness:
    """Softness of a block's rows at the given position errors (n,)."""
    d = impedance(block.solimp, depth - block.margin)
    k, b = stiffness_damping(model, block.solref, block.solimp)
    return Softness(k * d * (residual - block.margin), b, (1 - d) / d * block.weight)


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
    force = penalty_force(kinds, _penalty(frame.model, D, law), jnp.concatenate(x))
    pull = force[: kinds.scalar] @ J
    if kinds.contacts:
        pull = pull + lever.pull(force[kinds.scalar :].reshape(-1, kinds.dim))
    return force, pull


def scalar_force(kinds: RowKinds, a: Array, here: Here) -> Array:
    """Jᵀ f (nv,) of the rows that are not contacts, at acceleration a (nv,)."""
    J, aref, D = _scalar_rows(frame_of(here), kinds)
    only = dataclasses.replace(kinds, contacts=0)
    return penalty_force(only, _penalty(here.model, D, _no_law(kinds, a.dtype)), J @ a - aref) @ J


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
