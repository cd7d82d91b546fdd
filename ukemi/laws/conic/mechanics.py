"""How velocities and impulses balance over a step: in joint coordinates, or by the variational integrator.

    M̂ (v⁺ − v) − h (τ − c) = J⁺ᵀ f                                 `Joints`: as the other laws of impulses have it
                           = J(q)ᵀ f                                `Linear`: with the rows of the start
    S(q)ᵀ Σ m ((x⁺ − x) − (x − x⁻))/h − h τ = J(q, p⁺)ᵀ f          `Variational`: Dojo, eqs. 16–18, along the joints

Both take τ at the start and damping at the end. In the second, as in Dojo, equalities pull where bodies are at the
start, and so do contacts, at the points p⁺ where shapes meet at the end: what acts between bodies acts on both at one
point and at one time, and so keeps their momentum.
"""

import abc
import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from ukemi.constraints.block import Block, Frame
from ukemi.constraints.contacts import contact_jacobian, contact_lever, surface_slip
from ukemi.constraints.rows import RowKinds, constant_dofs, row_kinds, row_map, row_matrix
from ukemi.laws.conic.balance import Rows, rows_at
from ukemi.laws.conic.bending import bending
from ukemi.laws.conic.cones import layout, of_heads
from ukemi.laws.conic.end import blocks_of, frame_after
from ukemi.laws.here import Here, applied, frame_of
from ukemi.laws.momentum import FreeMotion, damping, damps_by_servos, missing_impulse
from ukemi.mechanics import variational
from ukemi.mechanics.articulated import LONG, Articulated
from ukemi.mechanics.dynamics import rotor_inertia
from ukemi.mechanics.reflected import has_heavy_tendons
from ukemi.mechanics.tendons.inertia import tendon_inertial_force
from ukemi.mechanics.turns import Turns, slopes_in_velocity
from ukemi.mechanics.variational import Chords, chord_impulse, chord_inertia, chord_moments


class Arrival(NamedTuple):
    """What is at the end of a step whichever contacts count."""

    frame: Frame
    blocks: list[Block]  # rows that are not contacts
    across: Turns  # of h v⁺


class End(NamedTuple):
    """Rows at the end of a step."""

    kinds: RowKinds
    frame: Frame
    blocks: list[Block]  # those that are not contacts
    rows: Rows
    across: Turns  # of h v⁺

    def moves(self) -> Array:
        """Rows (total, nv) by which what is asked changes with h v⁺."""
        return self.across.rows(row_matrix(self.frame, self.kinds, self.blocks))

    def motion(self) -> Array:
        """How rows (total,) move, the running of surfaces included."""
        return row_map(self.frame, self.kinds, self.blocks).motion(self.across.columns(self.frame.v)) + self.slip()

    def slip(self) -> Array | float:
        """What surfaces that run add to the motion of rows (total,)."""
        frame, kinds = self.frame, self.kinds
        if not (kinds.contacts and frame.model.geoms.layout.conveys):
            return 0.0
        slip = jnp.asarray(surface_slip(frame.model, frame.kin, frame.contacts, kinds.dim))
        slip = jnp.where(frame.contacts.active[:, None], slip, 0.0).reshape(-1)
        return jnp.concatenate([jnp.zeros(kinds.scalar, slip.dtype), slip])

    def pull(self, f: Array) -> Array:
        """What impulses (total,), or the first of them that are not contacts', pull on (nv,)."""
        kinds = self.kinds if len(f) == self.kinds.total else without_contacts(self.kinds)
        return self.across.rows(row_map(self.frame, kinds, self.blocks).pull(f))


def without_contacts(kinds: RowKinds) -> RowKinds:
    """The other rows alone."""
    return dataclasses.replace(kinds, contacts=0)


class Mechanics(abc.ABC):
    """A balance of impulses over a step."""

    keeps = False  # whether it has invariants, so that residuals are brought down to rounding
    dense = True  # whether `laws.conic.slopes` has its derivatives
    holds_as_begun = False  # whether equalities pull along rows of the start
    looks_again = True  # whether contacts are those of the end

    def ending(self, here: Here, kinds: RowKinds, v: Array, duration: Array, contacts_at) -> End:
        """The end of a step at v; contacts_at: function of kinematics."""
        return self.rows(kinds, self.arrival(here, v, duration, contacts_at), duration)

    def arrival(self, here: Here, v: Array, duration: Array, contacts_at) -> Arrival:
        """The same before rows are looked at."""
        frame = frame_after(here, v, duration, contacts_at)
        return Arrival(frame, blocks_of(frame), slopes_in_velocity(here.model.tree, v, duration))

    def rows(self, kinds: RowKinds, at: Arrival, duration: Array) -> End:
        """The end with its rows."""
        return End(kinds, at.frame, at.blocks, rows_at(at.frame, kinds, at.blocks), at.across)

    @abc.abstractmethod
    def begin(self, here: Here, kinds: RowKinds, duration: Array, free: FreeMotion | None) -> Any:
        """What the balance takes from the start of a step."""

    @abc.abstractmethod
    def missing(self, begun, here: Here, end: Arrival | End, duration: Array) -> tuple[Array, Array | Articulated]:
        """Impulse (nv,) that the velocity at the end needs, and its slope (nv, nv)."""

    @abc.abstractmethod
    def pulls(self, begun, here: Here, end: End, moves: Array) -> Array:
        """Rows (total, nv) along which impulses pull; moves: along which rows move."""

    @abc.abstractmethod
    def left(self, here: Here, end: End, duration: Array, f: Array) -> Array:
        """Impulse (nv,) that is missing after impulses f (total,) of rows, as a function to differentiate."""

    def bending(self, here: Here, v: Array, duration: Array, held: Array) -> Array | None:
        """∂(J⁺ᵀ f)/∂v (nv, nv) of impulses `held` (scalar,) of rows that are not contacts; None where these stay."""
        return None


class Joints(Mechanics):
    """With the mass matrix and the forces of the start, in joint coordinates."""

    def begin(self, here, kinds, duration, free):
        """The motion without impulses."""
        return free

    def missing(self, begun, here, end, duration):
        """M̂ (v⁺ − v_free)."""
        return begun.M @ (end.frame.v - begun.v), begun.M

    def pulls(self, begun, here, end, moves):
        """J⁺."""
        return moves

    def left(self, here, end, duration, f):
        """The same, in terms of forces."""
        return missing_impulse(here, end.frame.v, duration) - end.pull(f)

    def bending(self, here, v, duration, held):
        """Of loops and of ball joints' limits, which bend much."""
        return bending(here, v, duration, held)


class Linear(Joints):
    """With rows of the start, too: φ(q) + h J v⁺ in place of φ(q⁺), as `LCP` sees contacts."""

    dense = False
    looks_again = False

    def arrival(self, here, v, duration, contacts_at):
        """The start."""
        frame = frame_of(here)._replace(v=v, contacts=contacts_at(here.kin))
        return Arrival(frame, blocks_of(frame), Turns(here.model.tree, None))

    def rows(self, kinds, at, duration):
        """Rows of the start, moved along."""
        end = super().rows(kinds, at, duration)
        rows, moved = end.rows, duration * end.motion()
        phi, held = rows.phi + of_heads(layout(at.frame.model, kinds), moved), rows.held + moved[kinds.holding]
        return end._replace(rows=rows._replace(phi=phi, held=held))

    def bending(self, here, v, duration, held):
        """Nothing bends."""
        return None


class Begun(NamedTuple):
    """What the variational balance takes from the start."""

    chords: Chords
    given: Array  # (nv,) impulse of forces but damping's change
    damping: Array  # (nv, nv) D
    holds: Array  # (hold, nv) rows of equalities


class Variational(Mechanics):
    """With bodies that move straight from one time to the next (`mechanics.variational`)."""

    keeps = True
    holds_as_begun = True

    def begin(self, here, kinds, duration, free):
        """Chords, forces and equalities of the start."""
        start, earlier = frame_of(here), variational.before(here.model, here.q, here.v, duration, here.inputs)
        holds = row_matrix(start, without_contacts(kinds), blocks_of(start))[kinds.holding]
        chords = variational.chords(here.model, here.kin, earlier, duration)
        force = applied(here)
        if has_heavy_tendons(here.model):
            force = force - tendon_inertial_force(here.model, here.kin, jnp.zeros_like(force), here.v)
        return Begun(chords, duration * force, damping(here), holds)

    def missing(self, begun, here, end, duration):
        """S(q)ᵀ Σ m (…) − h τ, of rotors at joints M̂'s part."""
        model, after = here.model, end.frame.kin
        added = rotor_inertia(model, here.kin) + duration * begun.damping
        needed = chord_impulse(model, here.kin, begun.chords, after, duration)
        missed = needed + added @ (end.frame.v - here.v) - begun.given
        if _is_a_long_chain(here):
            pseudo, ahead = chord_moments(model, begun.chords, after), end.across.rows(after.S.T).T
            return missed, Articulated.of(model.tree, here.kin.S, ahead, pseudo, jnp.diagonal(added))
        return missed, end.across.rows(chord_inertia(model, here.kin, begun.chords, after)) + added

    def pulls(self, begun, here, end, moves):
        """Equalities as at the start, contacts where they are at the end, on bodies where they are at the start."""
        kinds = end.kinds
        parts = [begun.holds, moves[kinds.hold : kinds.scalar]]
        if kinds.contacts:
            J = contact_jacobian(here.model, here.kin, end.frame.contacts, kinds.dim)
            parts.append(J.reshape(-1, here.model.nv))
        return jnp.concatenate(parts)

    def left(self, here, end, duration, f):
        """The same, as a function of what it depends on."""
        kinds, begun = end.kinds, self.begin(here, end.kinds, duration, None)
        others = f[: kinds.scalar].at[kinds.holding].set(0.0)
        out = self.missing(begun, here, end, duration)[0] - f[kinds.holding] @ begun.holds - end.pull(others)
        if kinds.contacts:
            lever = contact_lever(here.model, here.kin, end.frame.contacts, kinds.dim)
            out = out - lever.pull(f[kinds.scalar :].reshape(-1, kinds.dim))
        return out


def _is_a_long_chain(here: Here) -> bool:
    """Whether Newton's matrix is of bodies along a tree and of single dofs alone, and better solved in their order."""
    model = here.model
    alone = not row_kinds(model).contacts and constant_dofs(model) is not None
    return model.nv >= LONG and alone and not has_heavy_tendons(model) and not damps_by_servos(model)
