"""Rigid constraints as rows on velocities: what limits, friction, equalities and contacts ask of v⁺ = J v.

Rows have the order of `constraints.rows`. A contact or limit that is still open by φ may close within the
step but not cross it, J v⁺ ≥ −φ/h; one that closes with restitution leaves at J v⁺ = −e J v (Jade, eq. 7). Penetration
is not pushed back by velocities, which would add energy, but by a displacement of its own (`restore`).
"""

from typing import NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.constraints.block import Block, Frame, Side
from ukemi.constraints.contacts import contact_jacobian, contact_parameters, surface_slip
from ukemi.constraints.rows import RowKinds, placed, scalar_blocks
from ukemi.laws.here import Here, frame_of

YIELD = 1e-4  # of the displacement against penetration, relative to the inverse weights of what it moves


class Law(NamedTuple):
    """What each row asks for."""

    on: Array  # (total,) bool: may exert an impulse
    reach: Array  # (total,) velocity that pushes must not fall below, −φ/h, and that rows have that hold or stick
    restitution: Array  # (total,) e of pushes
    restore: Array  # (total,) displacement against penetration and drift [m] or [rad]
    weight: Array  # (total,) inverse weight of what the row moves, in any direction [1/kg]
    fixed: Array  # (total,) bound of an impulse that does not depend on others
    mu: Array  # (total,) bound of a friction impulse per impulse of its normal

    @property
    def yields(self) -> Array:
        """By how much less rows are displaced per λ (total,), so that what asks for different things agrees [1/kg]."""
        return YIELD * self.weight


def scalar_rows(frame: Frame) -> list[Block]:
    """The rows that are not contacts, kind by kind."""
    return scalar_blocks(frame, together=True)


def law(
    frame: Frame,
    kinds: RowKinds,
    blocks: list[Block],
    moving: Array,
    h: Array,
    options: "Stepping",
    event: "Event | None",
) -> Law:
    """The law of rows that move at `moving` = J v (total,), over a duration h [s]."""
    parts = [_scalar_law(block, moving[rows], h, options, event) for block, rows in placed(blocks)]
    if kinds.contacts:
        parts.append(_contact_law(frame, kinds, kinds.of_contacts(moving), h, options, event))
    if not parts:
        none = jnp.zeros(0, h.dtype)
        return Law(jnp.zeros(0, bool), *(none,) * 6)
    return Law(*(jnp.concatenate(column) for column in zip(*parts, strict=True)))


class Stepping(NamedTuple):
    """How impulses are sought; static."""

    correction: float  # share of a penetration that is taken back in a step
    explicit: bool  # positions move by the old velocities


class Event(NamedTuple):
    """What is sought, if it may be something else than velocities after a time step under all forces."""

    lasts: Array  # () bool: these velocities; else those after an instant, in which only impulses act (Jade, eq. 8)
    displaces: Array  # () bool: not velocities but displacements, from rest, that take all penetration and drift back


def _lasting(event: Event | None, yes, no):
    """What a time step asks for, or an instant."""
    return yes if event is None else jnp.where(event.lasts, yes, no)


def _displaced(event: Event | None, yes, no):
    """What displacements are asked for, or velocities."""
    return no if event is None else jnp.where(event.displaces, yes, no)


def _scalar_law(block: Block, moving: Array, h: Array, options: Stepping, event: Event | None) -> Law:
    zero = jnp.zeros_like(block.residual)
    on = jnp.ones_like(zero, bool)
    if block.side is Side.RUB:
        fixed = _lasting(event, h * cast(Array, block.bound), zero)
        return Law(on, zero, zero, zero, block.weight, fixed, zero)
    phi = block.residual - block.margin
    if block.side is Side.HOLD:
        reach = _displaced(event, -phi, zero)
        return Law(block.active, reach, zero, -options.correction * phi, block.weight, zero, zero)
    reach = _displaced(event, -phi, _reach(phi, moving, h, options))
    return Law(on, reach, zero, _restore(phi, options), block.weight, zero, zero)


def _contact_law(frame: Frame, kinds: RowKinds, moving: Array, h: Array, options: Stepping, event) -> Law:
    model, contacts, normal = frame.model, frame.contacts, np.arange(kinds.dim) == 0
    prm = contact_parameters(model, contacts.pair)
    own = np.arange(kinds.dim) < model.pairs.layout.condim[:, None]
    mu = jnp.pad(prm.friction[:, : kinds.dim - 1], ((0, 0), (1, 0)))
    mu = jnp.where(jnp.asarray(own)[contacts.pair], mu, 0.0)
    # slots without a contact have a distance that is not one
    phi = jnp.where(contacts.active, contacts.distance - prm.margin, 0.0)
    # in an instant what touches must part (Jade, eq. 8)
    reach = _lasting(event, _reach(phi, moving[:, 0], h, options), jnp.zeros_like(phi))
    reach, mu = _displaced(event, -phi, reach), _displaced(event, jnp.zeros_like(mu), mu)
    # surfaces that run keep what rubs on them in motion
    slip = _displaced(event, 0.0, surface_slip(model, frame.kin, contacts, kinds.dim))
    restitution, restore = (jnp.where(normal, x[:, None], 0.0) for x in (prm.restitution, _restore(phi, options)))
    columns = jnp.where(normal, reach[:, None], 0.0) - slip, restitution, restore
    on, weight = (jnp.broadcast_to(part[:, None], mu.shape) for part in (contacts.active, prm.weight))
    return Law(*(part.reshape(-1) for part in (on, *columns, weight, jnp.zeros_like(mu), mu)))


# ---- what pushes ask for, with its derivatives -----------------------------------------------------------------------


def positive(x: Array) -> Array:
    """max(x, 0), with derivative 0 at 0, where a contact or limit that just touches is clamped, not closing."""
    return jnp.where(x <= 0, 0.0, x)


def _gap(phi: Array, moving: Array, h: Array, options: Stepping) -> Array:
    """Distance that the new velocity may use up [m]."""
    return phi + h * moving if options.explicit else phi


def _reach(phi: Array, moving: Array, h: Array, options: Stepping) -> Array:
    """Velocity below which what is at distance φ, and moves at J v, must not fall."""
    return -positive(_gap(phi, moving, h, options)) / h


def _restore(phi: Array, options: Stepping) -> Array:
    """Displacement that takes a share of an overlap back."""
    return options.correction * positive(-phi)


def rebound(restitution: Array, moving: Array) -> Array:
    """Velocity at which rows that close at `moving` leave: −e J v."""
    return restitution * positive(-moving)


class PushSlopes(NamedTuple):
    """Derivatives (n,) of what pushes ask for: of `_reach`, or of `rebound` where they bounce, and of `_restore`."""

    target_by_phi: Array
    target_by_motion: Array  # J v
    restore_by_phi: Array


def push_slopes(phi: Array, moving: Array, restitution, bounce, h: Array, options: Stepping) -> PushSlopes:
    """The same at distances φ of what moves at J v, and leaves with restitution where it bounces."""
    closing = ~bounce & (_gap(phi, moving, h, options) > 0)
    by_motion = jnp.where(bounce, -restitution, jnp.where(closing & options.explicit, -1.0, 0.0))
    return PushSlopes(jnp.where(closing, -1 / h, 0.0), by_motion, jnp.where(phi < 0, -options.correction, 0.0))


# ---- how far and how fast --------------------------------------------------------------------------------------------


def drift(here: Here) -> Array:
    """How far equalities are from being met, or limits overrun, at the most [m] or [rad]."""
    worst = jnp.zeros((), here.q.dtype)
    for block in scalar_rows(frame_of(here)):
        if block.side is not Side.RUB:
            phi = block.residual - block.margin
            worst = jnp.maximum(worst, jnp.max(jnp.abs(phi) if block.side is Side.HOLD else -phi))
    return worst


def mobility_of_points(frame: Frame, kinds: RowKinds, inverse: Array, mobility: Array) -> Array:
    """Of rows (total,) of contacts: how mobile their point is in three directions together [1/kg]; 0 for other rows.

    inverse: (nv, nv) of the mass matrix; mobility: (total,) of the rows.
    """
    if not kinds.contacts:
        return jnp.zeros_like(mobility)
    ways = kinds.of_contacts(mobility)[:, :3]
    if kinds.dim == 1:
        J = contact_jacobian(frame.model, frame.kin, frame.contacts, 3)
        ways = ((J @ inverse) * J).sum(-1)
    return jnp.pad(jnp.repeat(ways.sum(-1), kinds.dim), (kinds.scalar, 0))
