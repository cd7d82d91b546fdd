"""How rows at the end of a step change with the pose there, in closed form."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ukemi.constraints.block import Frame
from ukemi.constraints.contact_slopes import Change, Follow, Turning, wrench_slopes
from ukemi.constraints.rows import RowKinds, constant_dofs, row_map, row_matrix
from ukemi.laws.active_contacts import AtFrame, in_chunks
from ukemi.laws.conic.cones import layout, of_heads
from ukemi.laws.conic.end import blocks_of
from ukemi.laws.conic.mechanics import End, without_contacts
from ukemi.laws.here import Here
from ukemi.laws.here_slopes import following
from ukemi.mechanics.kinematics import carry, coordinate_rate


class Riding(NamedTuple):
    """Contacts whose impulses ride on their frames at the end."""

    here: Here  # of the start
    frame: Frame  # at the end
    turning: Turning
    force: Array  # (6, n) impulses, in their frames
    J: Array  # (6, n, nv)
    slope: Array  # (6, n, nv) change of the impulses with the frames, in q⁺


class AtEnd(NamedTuple):
    """How rows at the end change with the pose there, in its tangent space."""

    J: Array  # (total, nv)
    turn: Array  # (total, nv) ∂(J v⁺)/∂q⁺
    nearer: Array  # (H, nv) ∂φ⁺/∂q⁺ of heads
    scalars: Array  # (nv, nv) ∂(Jᵀ f)/∂q⁺ of rows that are not contacts
    contacts: tuple[Array, ...]  # sums that `ride` makes of contacts


def at_end(here: Here, end: End, f: Array, ahead, ride: Callable[[Riding], tuple[Array, ...]]) -> AtEnd:
    """Slopes of the rows at the end, with impulses f (total,)."""
    kinds, frame, nv = end.kinds, end.frame, here.model.nv
    scalar, n = without_contacts(kinds), kinds.scalar
    pull, turn, sums = jnp.zeros((nv, nv), f.dtype), jnp.zeros((n, nv), f.dtype), ()
    nearer = jnp.zeros((0, nv), f.dtype)
    if constant_dofs(here.model) is None:
        pull, turn = bend_of_scalars(scalar, frame, f[:n])
    rows = row_matrix(frame, scalar, end.blocks)
    parts, limits = ([rows], [turn]), of_heads(layout(here.model, scalar), rows)
    if kinds.contacts:
        follow = following(here.at(frame.kin, contacts=frame.contacts), ahead)

        def of_contacts(own: RowKinds, at: AtFrame, follow: Follow, forces: Array):
            return _of_contacts(own, here, at.frame, follow, forces, ride)

        sums, (*by_row, nearer) = in_chunks(of_contacts, kinds)(AtFrame(frame), follow, kinds.of_contacts(f))
        for part, rows in zip(parts, by_row, strict=True):
            part.append(rows.reshape(-1, nv))
    J, turn = (jnp.concatenate(part) for part in parts)
    return AtEnd(J, turn, jnp.concatenate([limits, nearer]), pull, sums)


def _of_contacts(own: RowKinds, here: Here, frame: Frame, follow: Follow, forces: Array, ride):
    """What `ride` makes of a few contacts, and their J and ∂(J v)/∂q (n, dim nv), and ∂φ/∂q (n, nv).

    Points of contact may slide along edges and rims, where what is between two shapes is no plane: then the distance
    changes otherwise than by the approach J v of the bodies.
    """
    dim = own.dim
    turning = Turning.of(frame.model, frame.kin, frame.contacts, dim, frame.v[:, None], follow)
    there = frame.contacts.active.astype(frame.v.dtype)
    force = jnp.pad(forces, ((0, 0), (0, 6 - dim))).T
    ones = jnp.eye(dim, dtype=frame.v.dtype)[:, :, None] * there
    still = jnp.zeros((dim, len(there)), frame.v.dtype)
    changes = [Change(None, (ones,), still), Change(force, (None,), None), Change(None, (None,), there[None])]
    J, (moved, slope, nearer), _ = wrench_slopes(turning, changes, [])
    sums = ride(Riding(here, frame, turning, force, J, slope))
    rows = (x.transpose(1, 0, 2).reshape(len(there), -1) for x in (J[:dim] * there[:, None], moved, nearer))
    return sums, tuple(rows)


def bend_of_scalars(kinds: RowKinds, at: Frame, f: Array) -> tuple[Array, Array]:
    """∂(Jᵀ f)/∂q (nv, nv) and ∂(J v)/∂q (scalar, nv) of rows that are not contacts."""

    def bent(shift: Array) -> tuple[Array, Array]:
        kin = jax.tree.map(jnp.add, at.kin, carry(at.model, at.kin, shift))
        q = at.q + coordinate_rate(at.model.tree, at.q, shift)
        frame = at._replace(kin=kin, q=q)
        rows = row_map(frame, kinds, blocks_of(frame))
        return rows.pull(f), rows.motion(at.v)

    return jax.jacfwd(bent)(jnp.zeros_like(at.v))
