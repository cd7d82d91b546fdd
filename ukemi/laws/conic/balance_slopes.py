"""How the balances of `laws.conic.mechanics` change with where a step starts and with v⁺, in closed form.

With δ⁺ = C δ + T h dv⁺ at the end, as in `laws.conic.slopes`, and δ⁻ = C⁻ δ − T⁻ h dv a step before the start,

    of `Joints`         ∂/∂x (M̂ (v⁺ − v) − h (τ − c)) − Tᵀ ∂(J⁺ᵀ f)/∂q⁺ δ⁺ − d(Tᵀ) J⁺ᵀ f
    of `Variational`    slopes of `chord_impulse` along δ⁻, δ and δ⁺, of rotors, h D and h τ as above,
                        − ∂(J(q, p⁺)ᵀ f)/∂q δ − J(q, p⁺)ᵀ ∂f/∂q⁺ δ⁺    of contacts,
                        − ∂(Gᵀ f)/∂q δ    of equalities, and the last two terms of `Joints` of all other rows.
"""

import abc
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from ukemi.constraints.contact_slopes import carried, ridden
from ukemi.constraints.contacts import contact_jacobian, contact_lever
from ukemi.constraints.rows import RowKinds, constant_dofs
from ukemi.laws.conic.end_slopes import AtEnd, Riding, bend_of_scalars
from ukemi.laws.conic.mechanics import End, Joints, Variational, without_contacts
from ukemi.laws.here import Here, frame_of
from ukemi.laws.momentum import free_motion
from ukemi.laws.momentum_slopes import missing_slopes, with_forces
from ukemi.maths import spatial
from ukemi.mechanics.dynamics import rotor_inertia
from ukemi.mechanics.reflected import has_heavy_tendons
from ukemi.mechanics.tendons.inertia import tendon_inertial_slopes
from ukemi.mechanics.turns import Turns, integrate_slopes, slopes_in_velocity
from ukemi.mechanics.variational import before, chord_slopes


class ForceSlopes(NamedTuple):
    """How the impulse that is missing changes, and along which rows impulses pull."""

    after: Array  # (nv, nv) with v⁺
    start: Array  # (nv, 2nv + na + nu) with position (tangent space), velocity, activation and control
    pulls: Array  # (total, nv)


class BalanceSlopes(abc.ABC):
    """Derivatives of a balance."""

    @abc.abstractmethod
    def at_end(self, kinds: RowKinds, f: Array) -> Array:
        """The impulses (total,) that pull at the end."""

    @abc.abstractmethod
    def ride(self, riding: Riding) -> tuple[Array, ...]:
        """Slopes (nv, nv) of what contacts pull, to be added up over contacts."""

    @abc.abstractmethod
    def of(
        self, here: Here, end: End, at: AtEnd, f: Array, turned: tuple[Turns, Turns], duration: Array
    ) -> ForceSlopes:
        """All of it, at impulses f (total,); turned: (C, T)."""


class OfJoints(BalanceSlopes):
    """Of `Joints`."""

    def at_end(self, kinds, f):
        """All of them."""
        return f

    def ride(self, riding):
        """∂(J⁺ᵀ f)/∂q⁺."""
        return (ridden(riding.frame.model.tree, riding.turning, riding.force, riding.J, riding.slope),)

    def of(self, here, end, at, f, turned, duration):
        """With the mass matrix of the start."""
        free, v = free_motion(here, duration), end.frame.v
        after, start = _of_pull(here, v, duration, sum(at.contacts, at.scalars), f @ at.J, turned)
        force = missing_slopes(here, (v - here.v) / duration, free.M, free.velocity)
        return ForceSlopes(free.M - after, _in_positions(force, start), turned[1].rows(at.J))


class OfChords(BalanceSlopes):
    """Of `Variational`."""

    def at_end(self, kinds, f):
        """All but those of equalities."""
        return f.at[kinds.holding].set(0.0)

    def ride(self, riding):
        """∂(J(q, p⁺)ᵀ f) in q and in q⁺."""
        here, contacts, dim = riding.here, riding.frame.contacts, riding.turning.lever.dim
        lever = contact_lever(here.model, here.kin, contacts, dim)
        J = contact_jacobian(here.model, here.kin, contacts, 6).transpose(1, 0, 2)
        by_start = carried(here.model.tree, lever.S, lever.wrenches(riding.force[:dim].T))
        return by_start, spatial.gram(lax.collapse(J, 0, 2), lax.collapse(riding.slope, 0, 2))

    def of(self, here, end, at, f, turned, duration):
        """With chords."""
        (C, T), model, kinds, v, h = turned, here.model, end.kinds, end.frame.v, duration
        mechanics = Variational()
        begun = mechanics.begin(here, kinds, h, None)
        earlier, scalar = before(model, here.q, here.v, h, here.inputs), without_contacts(kinds)
        chord = chord_slopes(model, here.kin, begun.chords, earlier, end.frame.kin, h)
        back, turned_back = integrate_slopes(model.tree, here.v, -h)
        added = rotor_inertia(model, here.kin) + h * begun.damping
        others = self.at_end(kinds, f)[: kinds.scalar]
        after = position = jnp.zeros((model.nv, model.nv), f.dtype)
        if constant_dofs(model) is None:
            after, position = _of_pull(here, v, h, at.scalars, others @ at.J[: kinds.scalar], turned)
            held = f[: kinds.scalar] - others
            position = position + bend_of_scalars(scalar, frame_of(here), held)[0]
        if kinds.contacts:
            by_start, by_end = at.contacts
            after, position = after + h * T.rows(by_end), position + by_start + C.rows(by_end)
        q, by_v = chord.now + back.rows(chord.before) + C.rows(chord.after), -h * turned_back.rows(chord.before) - added
        if has_heavy_tendons(model):
            slopes = tendon_inertial_slopes(model, here.kin, (v - here.v) / h, here.v)
            q, by_v = q + h * slopes[0], by_v + h * slopes[1]
        start = with_forces(here, (v - here.v) / h, q - position, by_v)
        pulls = mechanics.pulls(begun, here, end, T.rows(at.J))
        return ForceSlopes(h * T.rows(chord.after) + added - after, start, pulls)


def _of_pull(here: Here, v: Array, duration: Array, pull: Array, g: Array, turned) -> tuple[Array, Array]:
    """Slopes of Tᵀ g in v⁺ and in q, where g (nv,) has the slope `pull` (nv, nv) in q⁺."""
    C, T = turned
    bend = jax.jacfwd(lambda v: slopes_in_velocity(here.model.tree, v, duration).rows(g))(v)
    pull = T.transposed().columns(pull)
    return bend + duration * T.rows(pull), C.rows(pull)


def _in_positions(force: Array, less: Array) -> Array:
    """Slopes less those in positions alone."""
    return force - jnp.pad(less, ((0, 0), (0, force.shape[1] - len(force))))


SLOPES = {Joints: OfJoints(), Variational: OfChords()}
