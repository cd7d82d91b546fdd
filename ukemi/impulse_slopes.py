"""Dense derivatives of the balance of impulses in closed form: what `linearize` of rigid contact is made of.

Columns are position (tangent space) and velocity; what depends on activations and controls is the same as for the soft
law. The residual and its unknowns are those of `methods.impulses`.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi import impulse as i_
from ukemi import spatial
from ukemi.constraint import Frame, scalar_blocks
from ukemi.contact import of_contacts, pair_parameters
from ukemi.penalty import RowKinds
from ukemi.solvers.boxed import CLAMPED, roles
from ukemi.turning import Change, Follow, Turning, carried_force, wrench_slopes


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


def contact_slopes(kinds: RowKinds, stepping: i_.Stepping, motion: Motion, z: OfRows, follow: Follow) -> RowSlopes:
    """Slopes of the contacts."""
    frame, dim = motion.frame, kinds.dim
    model, nv = frame.model, len(frame.v)
    n, h = kinds.contacts, model.options.timestep
    side, bounce = z.side.reshape(n, dim), z.bounce.reshape(n, dim)[:, 0]
    prm = of_contacts(pair_parameters(model), frame.contacts.pair)
    phi = frame.contacts.distance - prm.margin
    clamped = frame.contacts.active[:, None] & (side == CLAMPED)
    normal = np.arange(dim) == 0
    one = _diagonal(clamped.astype(phi.dtype))
    turning = Turning.of(model, frame.kin, frame.contacts, dim, jnp.stack([motion.after, frame.v], -1), follow)
    # what normals ask for: −φ/h while open (explicit: less J v), −e J v where they bounce
    closing = frame.contacts.active & ~bounce
    open_ = closing & (phi + (h * turning.rates.relative[0, 1] if stepping.explicit else 0.0) > 0)
    per_velocity = jnp.where(bounce, prm.restitution, jnp.where(open_ & stepping.explicit, 1.0, 0.0))
    second = _diagonal(clamped * jnp.where(normal, per_velocity[:, None], 0.0))
    distance = jnp.where(clamped & normal, jnp.where(open_, 1 / h, 0.0)[:, None], 0.0).T
    J, rows, _ = wrench_slopes(turning, Change(jnp.zeros((6, n), phi.dtype), one, second, distance), [])
    by_velocity = second[np.arange(dim), np.arange(dim)][..., None] * J[:dim]
    pull = _pull_slope(model, turning, z.f.reshape(n, dim))
    # the displacement: friction takes no part
    firm = _diagonal(jnp.where(normal, clamped, False).astype(phi.dtype))
    nearer = jnp.where(clamped & normal & (phi < 0)[:, None], stepping.correction, 0.0).T
    there = turning.at(model, jnp.stack([motion.shift, frame.v], -1))
    _, restore, _ = wrench_slopes(there, Change(jnp.zeros((6, n), phi.dtype), firm, 0.0 * firm, nearer), [])
    drag = _pull_slope(model, turning, z.lam.reshape(n, dim))
    ordered = (part[:dim].transpose(1, 0, 2).reshape(-1, nv) for part in (rows, by_velocity, restore))
    return RowSlopes(pull, drag, *ordered)


def _diagonal(values: Array) -> Array:
    """Diagonal matrices (dim, dim, n) of values (n, dim)."""
    return jnp.moveaxis(values[:, :, None] * np.eye(values.shape[1], dtype=values.dtype), 0, -1)


def _pull_slope(model, turning: Turning, force: Array) -> Array:
    """∂(Jᵀ f)/∂q (nv, nv) at forces (n, dim) that do not change in their frames."""
    n, dim = force.shape
    full = jnp.pad(force, ((0, 0), (0, 6 - dim))).T
    none = jnp.zeros((dim, dim, n), force.dtype)
    J, Z, _ = wrench_slopes(turning, Change(full, none, none, jnp.zeros((dim, n), force.dtype)), [])
    nv = J.shape[-1]
    return spatial.gram(J.reshape(-1, nv), Z.reshape(-1, nv)) + carried_force(model.tree, turning, full)


def scalar_slopes(kinds: RowKinds, stepping: i_.Stepping, frame: Frame, z) -> tuple[Array, Array, Array]:
    """∂/∂q and ∂/∂v of the conditions of sides, and ∂/∂q of those of the displacement, (scalar, nv) each.

    For rows with constant Jacobians: dry friction, and limits of hinges and slides.
    """
    nv, own = len(frame.v), roles(kinds)
    none = jnp.zeros((0, nv), frame.v.dtype)
    q, v, restore = [none], [none], [none]
    start = 0
    for block in scalar_blocks(frame, kinds):
        rows = slice(start, start + len(block.residual))
        start = rows.stop
        phi = block.residual - block.margin
        held = (own.push[rows] & (z.side[rows] == CLAMPED))[:, None]
        h = frame.model.options.timestep
        gap = phi + h * (block.J @ frame.v) if stepping.explicit else phi
        closing = held & (gap > 0)[:, None]
        q.append(jnp.where(closing, block.J / h, 0.0))
        v.append(jnp.where(closing & stepping.explicit, block.J, 0.0))
        restore.append(jnp.where(held & (phi < 0)[:, None], stepping.correction * block.J, 0.0))
    return jnp.concatenate(q), jnp.concatenate(v), jnp.concatenate(restore)
