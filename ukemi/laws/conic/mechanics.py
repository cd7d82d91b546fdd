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

import jax
import jax.numpy as jnp
from jax import Array

from ukemi.constraints.block import Frame
from ukemi.constraints.contacts import contact_jacobian, contact_lever
from ukemi.constraints.rows import RowKinds, constant_dofs, row_map, row_matrix
from ukemi.laws.conic.balance import Rows, rows_at
from ukemi.laws.conic.cones import layout, of_heads
from ukemi.laws.conic.end import Across, blocks_of, frame_after
from ukemi.laws.here import Here, applied, frame_of
from ukemi.laws.momentum import FreeMotion, damped, damping, missing_impulse
from ukemi.mechanics import variational
from ukemi.mechanics.kinematics import Kinematics
from ukemi.mechanics.variational import Chords, chord_impulse, chord_inertia


class Mechanics(abc.ABC):
    """A balance of impulses over a step."""

    keeps = False  # whether it has invariants, so that residuals are brought down to rounding
    dense = False  # whether `laws.conic.slopes` has its derivatives

    def ending(self, here: Here, kinds: RowKinds, v: Array, duration: Array, contacts_at) -> tuple[Frame, Rows]:
        """What rows are made from at the end, and what they ask for; contacts_at: function of kinematics."""
        end = frame_after(here, v, duration, contacts_at)
        return end, rows_at(end, kinds, blocks_of(end))

    def moves(self, end: Frame, kinds: RowKinds, duration: Array) -> Array:
        """Rows (total, nv) by which what is asked changes with h v⁺."""
        return Across.of(end.model.tree, end.v, duration).rows(row_matrix(end, kinds, blocks_of(end)))

    def motion(self, end: Frame, kinds: RowKinds, duration: Array) -> Array:
        """How rows (total,) move at the end."""
        return row_map(end, kinds, blocks_of(end)).motion(Across.of(end.model.tree, end.v, duration).rates(end.v))

    @abc.abstractmethod
    def begin(self, here: Here, kinds: RowKinds, duration: Array, free: FreeMotion) -> Any:
        """What the balance takes from the start of a step."""

    @abc.abstractmethod
    def missing(self, begun, here: Here, end: Frame, duration: Array) -> tuple[Array, Array]:
        """Impulse (nv,) that the velocity at the end needs, and its slope (nv, nv)."""

    @abc.abstractmethod
    def pulls(self, begun, here: Here, end: Frame, kinds: RowKinds, moves: Array) -> Array:
        """Rows (total, nv) along which impulses pull; moves: along which rows move."""

    @abc.abstractmethod
    def left(self, here: Here, end: Frame, kinds: RowKinds, duration: Array, f: Array) -> Array:
        """Impulse (nv,) that is missing after impulses f (total,) of rows, as a function to differentiate."""

    def bending(self, here: Here, kinds: RowKinds, v: Array, duration: Array, held: Array) -> Array | None:
        """∂(J⁺ᵀ f)/∂v (nv, nv) of impulses `held` (scalar,) of rows that are not contacts; None where these stay."""
        return None


class Joints(Mechanics):
    """With the mass matrix and the forces of the start, in joint coordinates."""

    dense = True

    def begin(self, here, kinds, duration, free):
        """The motion without impulses."""
        return free

    def missing(self, begun, here, end, duration):
        """M̂ (v⁺ − v_free)."""
        return begun.M @ (end.v - begun.v), begun.M

    def pulls(self, begun, here, end, kinds, moves):
        """J⁺."""
        return moves

    def left(self, here, end, kinds, duration, f):
        """The same, in terms of forces."""
        J, across = row_map(end, kinds, blocks_of(end)), Across.of(here.model.tree, end.v, duration)
        return missing_impulse(here, end.v, duration) - across.rows(J.pull(f))

    def bending(self, here, kinds, v, duration, held):
        """Of loops and of ball joints' limits, which bend much."""
        if constant_dofs(here.model) is not None:
            return None

        def pulled(v: Array) -> Array:
            end = frame_after(here, v, duration, lambda kin: here.contacts)
            J = row_map(end, dataclasses.replace(kinds, contacts=0), blocks_of(end))
            return Across.of(here.model.tree, v, duration).rows(J.pull(held))

        return jax.jacfwd(pulled)(v)


class Linear(Joints):
    """With rows of the start, too: φ(q) + h J v⁺ in place of φ(q⁺), as `LCP` sees contacts."""

    dense = False

    def ending(self, here, kinds, v, duration, contacts_at):
        """Rows of the start, moved along."""
        end = frame_of(here)._replace(v=v, contacts=contacts_at(here.kin))
        rows, moved = rows_at(end, kinds, blocks_of(end)), duration * self.motion(end, kinds, duration)
        phi, held = rows.phi + of_heads(layout(here.model, kinds), moved), rows.held + moved[kinds.holding]
        return end, rows._replace(phi=phi, held=held)

    def moves(self, end, kinds, duration):
        """J."""
        return row_matrix(end, kinds, blocks_of(end))

    def motion(self, end, kinds, duration):
        """J v⁺."""
        return row_map(end, kinds, blocks_of(end)).motion(end.v)

    def left(self, here, end, kinds, duration, f):
        """The same, in terms of forces."""
        return missing_impulse(here, end.v, duration) - row_map(end, kinds, blocks_of(end)).pull(f)

    def bending(self, here, kinds, v, duration, held):
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

    def begin(self, here, kinds, duration, free):
        """Chords, forces and equalities of the start."""
        start = frame_of(here)
        holds = row_matrix(start, dataclasses.replace(kinds, contacts=0), blocks_of(start))[kinds.holding]
        return Begun(_chords(here, duration), duration * applied(here), damping(here), holds)

    def missing(self, begun, here, end, duration):
        """S(q)ᵀ Σ m (…) − h τ, of rotors at joints M̂'s part."""
        added = jnp.diag(here.model.joints.armature) + duration * begun.damping
        needed = chord_impulse(here.model, here.kin, begun.chords, end.kin, duration)
        inertia = chord_inertia(here.model, here.kin, begun.chords, end.kin)
        slope = Across.of(here.model.tree, end.v, duration).rows(inertia) + added
        return needed + added @ (end.v - here.v) - begun.given, slope

    def pulls(self, begun, here, end, kinds, moves):
        """Equalities as at the start, contacts where they are at the end, on bodies where they are at the start."""
        parts = [begun.holds, moves[kinds.hold : kinds.scalar]]
        if kinds.contacts:
            J = contact_jacobian(here.model, here.kin, end.contacts, kinds.dim)
            parts.append(J.reshape(-1, here.model.nv))
        return jnp.concatenate(parts)

    def left(self, here, end, kinds, duration, f):
        """The same, as functions of what they depend on."""
        model, change = here.model, end.v - here.v
        needed = chord_impulse(model, here.kin, _chords(here, duration), end.kin, duration)
        needed = needed + model.joints.armature * change + duration * (damped(change, here) - applied(here))
        scalar = dataclasses.replace(kinds, contacts=0)
        start, across = frame_of(here), Across.of(model.tree, end.v, duration)
        others = f[: kinds.scalar].at[kinds.holding].set(0.0)
        out = needed - f[kinds.holding] @ row_matrix(start, scalar, blocks_of(start))[kinds.holding]
        out = out - across.rows(row_map(end, scalar, blocks_of(end)).pull(others))
        if kinds.contacts:
            lever = contact_lever(model, here.kin, end.contacts, kinds.dim)
            out = out - lever.pull(f[kinds.scalar :].reshape(-1, kinds.dim))
        return out


def _chords(here: Here, duration: Array) -> Chords:
    earlier: Kinematics = variational.before(here.model, here.q, here.v, duration, here.inputs)
    return variational.chords(here.model, here.kin, earlier, duration)
