"""Constraint rows of the soft law: Jacobian, reference acceleration and softness, and the force that they yield."""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ukemi.constraints.block import Block, Frame
from ukemi.constraints.contacts import surface_slip
from ukemi.constraints.rows import RowKinds, row_map, row_matrix, scalar_blocks
from ukemi.constraints.softness import TINY, Softness, impedance, stiffness_damping
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
    """What the soft law makes of the rows that are not contacts."""

    aref: Array  # (scalar,)
    R: Array  # (scalar,)
    D: Array  # (scalar,) 1/R of those that are active, else zero
    bound: Array  # (rub,)


def scalar_rows(frame: Frame, blocks: list[Block], softness: list[Softness] | None = None) -> ScalarRows:
    """What the law makes of blocks, of which the softness may be known."""
    none = jnp.zeros(0, frame.q.dtype)
    if softness is None:
        softness = [row_softness(frame.model, block, block.residual, block.depth) for block in blocks]
    laws = [reference(block, soft, frame.v) for block, soft in zip(blocks, softness, strict=True)]
    bounds = [block.bound for block in blocks if block.bound is not None]
    aref, R, D = (jnp.concatenate([none, *(law[k] for law in laws)]) for k in range(3))
    return ScalarRows(aref, R, D, jnp.concatenate([none, *bounds]))


def constraint_rows(frame: Frame, kinds: RowKinds) -> Rows:
    """All rows at a state."""
    blocks = scalar_blocks(frame)
    J, scalar, law = row_matrix(frame, kinds, blocks), scalar_rows(frame, blocks), _no_law(kinds, frame.q.dtype)
    if kinds.contacts:
        law = _contact_law(frame, kinds, kinds.of_contacts(J @ frame.v))
    aref = jnp.concatenate([scalar.aref, law.aref.reshape(-1)])
    return spatial.materialize(Rows(J, aref, _penalty(scalar, law)))


def constraint_force(frame: Frame, a: Array, kinds: RowKinds) -> tuple[Array, Array]:
    """Constraint forces f (total,) = −∇s(J a − a_ref) at acceleration a (nv,), and Jᵀ f (nv,).

    Contacts take part without their Jacobian, so that derivatives of this function pass vectors around, not matrices.
    """
    blocks = scalar_blocks(frame)
    rows, scalar, law = row_map(frame, kinds, blocks), scalar_rows(frame, blocks), _no_law(kinds, frame.q.dtype)
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
