"""Constraint rows of the soft law: Jacobian, reference acceleration and softness, and the force that they yield."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from ukemi.constraints.block import Block, Frame, joined
from ukemi.constraints.contacts import contact_jacobian, surface_slip
from ukemi.constraints.rows import RowKinds, map_with_contacts, scalar_blocks
from ukemi.constraints.softness import TINY, Softness, impedance, stiffness_damping
from ukemi.laws.active_contacts import AtFrame, in_chunks
from ukemi.laws.here import Here, frame_of
from ukemi.laws.soft.contacts import ContactLaw, contact_law
from ukemi.laws.soft.penalty import Penalty, penalty_force
from ukemi.maths import spatial
from ukemi.model.records import Model


class Rows(NamedTuple):
    """Everything that the solvers need to know of the constraints."""

    J: Array  # (total, nv)
    aref: Array  # (total,) reference acceleration
    penalty: Penalty


def reference(block: Block, soft: Softness, v: Array) -> tuple[Array, Array, Array]:
    """a_ref, R and D of the rows of a block (MuJoCo, "Parameters")."""
    aref = -soft.damping * (block.J @ v) - soft.push - block.drift
    R = jnp.maximum(TINY, soft.R)
    return aref, R, jnp.where(block.active, 1 / R, 0.0)


def row_softness(model: Model, block: Block, residual: Array, depth: Array) -> Softness:
    """Softness of a block's rows at the given position errors (n,)."""
    d, (k, b) = impedance(block.solimp, depth - block.margin), stiffness_damping(model, block.solref, block.solimp)
    d, k, b = spatial.materialize((d, k, b))
    return Softness(k * d * (residual - block.margin), b, (1 - d) / d * block.weight)


class ScalarRows(NamedTuple):
    """The rows that are not contacts, and what the soft law makes of them."""

    J: Array  # (scalar, nv)
    aref: Array  # (scalar,)
    R: Array  # (scalar,)
    D: Array  # (scalar,) 1/R of those that are active, else zero
    bound: Array  # (rub,)


def scalar_rows(frame: Frame) -> ScalarRows:
    """The scalar rows at a state."""
    rows, bound = all_scalar(frame)
    return rows_of_softness(frame, rows, bound, row_softness(frame.model, rows, rows.residual, rows.depth))


def all_scalar(frame: Frame) -> tuple[Block, Array]:
    """All scalar rows as one block, and the bounds (rub,) of those that rub."""
    blocks, dtype = scalar_blocks(frame), frame.q.dtype
    bounds = [block.bound for block in blocks if block.bound is not None]
    return joined(blocks, frame.model.nv, dtype), jnp.concatenate([jnp.zeros(0, dtype), *bounds])


def rows_of_softness(frame: Frame, rows: Block, bound: Array, soft: Softness) -> ScalarRows:
    """The same, of a block whose softness is known."""
    return ScalarRows(rows.J, *reference(rows, soft, frame.v), bound)


class RowParts(NamedTuple):
    """All rows, scalar ones and contacts apart."""

    scalar: ScalarRows
    frames: Array  # (nc, dim, nv) Jacobian of the contacts
    law: ContactLaw


def row_parts(frame: Frame, kinds: RowKinds) -> RowParts:
    """All rows at a state, of contacts as many as are active: by a loop, which has no derivative in reverse."""
    if not kinds.contacts:
        return _whole_parts(frame, kinds)
    _, (J, law) = in_chunks(_contact_rows, kinds)(AtFrame(frame))
    law = law._replace(mu=jnp.where(law.mu > 0, law.mu, 1.0))  # it divides, also where no contact is
    return spatial.materialize(RowParts(scalar_rows(frame), J, law))


def _whole_parts(frame: Frame, kinds: RowKinds) -> RowParts:
    """The same of all contacts."""
    law, J = _no_law(kinds, frame.q.dtype), jnp.zeros((0, kinds.dim, frame.model.nv), frame.q.dtype)
    if kinds.contacts:
        _, (J, law) = _contact_rows(kinds, AtFrame(frame))
    return spatial.materialize(RowParts(scalar_rows(frame), J, law))


def first_rows(parts: RowParts, kinds: RowKinds) -> Rows:
    """Of the contacts as many as there are kinds for: the first ones."""
    scalar, J, law = parts
    J, law = jax.tree.map(lambda x: x[: kinds.contacts], (J, law))
    aref = jnp.concatenate([scalar.aref, law.aref.reshape(-1)])
    J = jnp.concatenate([scalar.J, lax.collapse(J, 0, 2)])
    return spatial.materialize(Rows(J, aref, _penalty(scalar, law)))


def constraint_rows(frame: Frame, kinds: RowKinds) -> Rows:
    """All rows at a state."""
    return first_rows(_whole_parts(frame, kinds), kinds)


def _contact_rows(kinds: RowKinds, at: AtFrame) -> tuple[tuple, tuple[Array, ContactLaw]]:
    """Jacobian (n, dim, nv) and law of contacts."""
    frame = at.frame
    J = contact_jacobian(frame.model, frame.kin, frame.contacts, kinds.dim)
    velocity = (lax.collapse(J, 0, 2) @ frame.v).reshape(J.shape[:2])
    return (), (J, _contact_law(frame, kinds, velocity))


def constraint_force(frame: Frame, a: Array, kinds: RowKinds) -> tuple[Array, Array]:
    """Constraint forces f (total,) = −∇s(J a − a_ref) at acceleration a (nv,), and Jᵀ f (nv,).

    Contacts take part without their Jacobian, so that derivatives of this function pass vectors around, not matrices.
    """
    scalar, law = scalar_rows(frame), _no_law(kinds, frame.q.dtype)
    rows = map_with_contacts(frame, kinds, scalar.J)
    if rows.lever is not None:
        law = _contact_law(frame, kinds, rows.lever.motion(frame.v))
    aref = jnp.concatenate([scalar.aref, law.aref.reshape(-1)])
    force = penalty_force(kinds, _penalty(scalar, law), rows.motion(a) - aref)
    return force, rows.pull(force)


def scalar_force(kinds: RowKinds, a: Array, here: Here) -> Array:
    """Jᵀ f (nv,) of the rows that are not contacts, at acceleration a (nv,)."""
    return constraint_force(frame_of(here), a, dataclasses.replace(kinds, contacts=0))[1]


def _contact_law(frame: Frame, kinds: RowKinds, moving: Array) -> ContactLaw:
    """Of contacts whose bodies move at `moving` (n, dim)."""
    slip = surface_slip(frame.model, frame.kin, frame.contacts, kinds.dim)
    return spatial.materialize(contact_law(frame.model, frame.contacts, kinds, moving + slip))


def _no_law(kinds: RowKinds, dtype) -> ContactLaw:
    empty = jnp.zeros(0, dtype)
    frame = jnp.zeros((0, kinds.dim), dtype)
    return ContactLaw(frame, empty, frame, frame[:, 1:], empty)


def _penalty(scalar: ScalarRows, law: ContactLaw) -> Penalty:
    return Penalty(scalar.D, scalar.bound, *law[1:])
