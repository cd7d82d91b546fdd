"""Dense derivatives of the balance of impulses in closed form: what `linearize` of rigid contact is made of.

Columns are position (tangent space) and velocity; what depends on activations and controls is the same as for the soft
law. The residual and its unknowns are those of `laws.rigid.impulses`.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.constraints.adhesion import adhesion_at
from ukemi.constraints.block import Frame
from ukemi.constraints.contact_slopes import Change, Follow, Turning, of_slip, ridden, wrench_slopes
from ukemi.constraints.contacts import contact_parameters
from ukemi.constraints.rows import RowKinds, placed
from ukemi.laws.rigid import conditions
from ukemi.laws.rigid.boxes import CLAMPED, OPENING, roles
from ukemi.laws.rigid.conditions import Stepping, push_slopes


class Motion(NamedTuple):
    """What the rows of a step are made from, and where it leads."""

    frame: Frame
    after: Array  # (nv,) v⁺
    shift: Array  # (nv,) δ


class OfRows(NamedTuple):
    """The rows' part of the unknowns."""

    f: Array
    lam: Array
    side: Array
    bounce: Array


class RowSlopes(NamedTuple):
    """What contacts add to the slopes of the residual, per row (n, nv) or summed (nv, nv)."""

    pull: Array  # (nv, nv) ∂(Jᵀ f)/∂q
    drag: Array  # (nv, nv) ∂(Jᵀ λ)/∂q
    q: Array  # (n, nv) conditions of the sides
    v: Array  # (n, nv)
    restore: Array  # (n, nv) conditions on the displacement, in q


def contact_slopes(kinds: RowKinds, stepping: Stepping, motion: Motion, z: OfRows, follow: Follow) -> RowSlopes:
    """Slopes of the contacts."""
    frame, dim = motion.frame, kinds.dim
    model = frame.model
    n, h = kinds.contacts, model.options.timestep
    side, bounce = z.side.reshape(n, dim), z.bounce.reshape(n, dim)[:, 0]
    prm = contact_parameters(model, frame.contacts.pair)
    phi = frame.contacts.distance - prm.margin
    clamped = frame.contacts.active[:, None] & (side == CLAMPED)
    rates = jnp.stack([motion.after, frame.v, motion.shift], -1)
    turning = Turning.of(model, frame.kin, frame.contacts, dim, rates, follow)
    asked = push_slopes(phi, turning.rates.relative[0, 1], prm.restitution, bounce, h, stepping)
    stops = clamped[:, 0]
    opening = frame.contacts.active & (side[:, 0] == OPENING)
    second = _of_normals(jnp.where(stops, -asked.target_by_motion, 0.0), dim)
    distance = jnp.where(stops, -asked.target_by_phi, 0.0)[None]
    # the displacement, in which friction takes no part
    firm = _of_normals((stops | opening).astype(phi.dtype), dim)
    leaving = _of_normals(jnp.where(opening, h, 0.0), dim)
    nearer = jnp.where(stops | opening, -asked.restore_by_phi, 0.0)[None]
    f = z.f.reshape(n, dim)
    if model.pairs.layout.adheres:
        f = f.at[:, 0].add(-h * adhesion_at(model, frame.contacts))
    forces = [jnp.pad(x, ((0, 0), (0, 6 - dim))).T for x in (f, z.lam.reshape(n, dim))]
    sticks = _diagonal(clamped.astype(phi.dtype))
    changes = [
        Change(None, (sticks, second, None, *of_slip(model, sticks)), jnp.pad(distance, ((0, dim - 1), (0, 0)))),
        Change(None, (leaving, None, firm), nearer),
        *(Change(force, (None, None, None), None) for force in forces),
    ]
    J, (rows, restore, *rides), _ = wrench_slopes(turning, changes, [])
    pull, drag = (ridden(model.tree, turning, *pair) for pair in zip(forces, [J, J], rides, strict=True))
    room = ((0, dim - 1), (0, 0), (0, 0))
    by_velocity = jnp.pad(second[:, 0, :, None] * J[:1], room)
    ordered = (lax.collapse(part.transpose(1, 0, 2), 0, 2) for part in (rows, by_velocity, jnp.pad(restore, room)))
    return RowSlopes(pull, drag, *ordered)


def _of_normals(values: Array, dim: int) -> Array:
    """Matrices (1, dim, n) that take what normals do times values (n,)."""
    return jnp.pad(values[None, None], ((0, 0), (0, dim - 1), (0, 0)))


def _diagonal(values: Array) -> Array:
    """Diagonal matrices (dim, dim, n) of values (n, dim)."""
    return jnp.moveaxis(values[:, :, None] * np.eye(values.shape[1], dtype=values.dtype), 0, -1)


def scalar_slopes(kinds: RowKinds, stepping: Stepping, frame: Frame, z) -> tuple[Array, Array, Array]:
    """∂/∂q and ∂/∂v of the conditions of sides, and ∂/∂q of those of the displacement, (scalar, nv) each.

    For rows with constant Jacobians: dry friction, and limits of hinges and slides.
    """
    nv, own, h = len(frame.v), roles(kinds), frame.model.options.timestep
    none = jnp.zeros((0, nv), frame.v.dtype)
    q, v, restore = [none], [none], [none]
    for block, rows in placed(conditions.scalar_rows(frame)):
        phi = block.residual - block.margin
        asked = push_slopes(phi, block.J @ frame.v, 0.0, np.zeros(len(block), bool), h, stepping)
        stops = own.push[rows] & (z.side[rows] == CLAMPED)
        firm = stops | (own.push[rows] & (z.side[rows] == OPENING))
        q.append(jnp.where(stops, -asked.target_by_phi, 0.0)[:, None] * block.J)
        v.append(jnp.where(stops, -asked.target_by_motion, 0.0)[:, None] * block.J)
        restore.append(jnp.where(firm, -asked.restore_by_phi, 0.0)[:, None] * block.J)
    return jnp.concatenate(q), jnp.concatenate(v), jnp.concatenate(restore)
