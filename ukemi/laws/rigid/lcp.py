"""Rigid contact by complementarity: impulses that stop what would penetrate, stick and slip exactly (Nimble; Jade)."""

from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi import values
from ukemi.collide.detect import Contacts, unsound
from ukemi.collide.sweep.motion import approached, covered
from ukemi.constraints.adhesion import with_hair
from ukemi.constraints.rows import row_kinds
from ukemi.errors import GradientError, InputError
from ukemi.implicit import rules
from ukemi.implicit.rule import dense, straight_through, without_derivative
from ukemi.laws.arrival import arrive
from ukemi.laws.conic.relaxed import relaxed
from ukemi.laws.here import Here, here_at, net_forces
from ukemi.laws.integrators import Moved, advance_slopes, moved_activation
from ukemi.laws.memory import remember
from ukemi.laws.method import Loads, Method, columns
from ukemi.laws.rigid import boxes, derivative
from ukemi.laws.rigid.conditions import Stepping
from ukemi.laws.rigid.impulses import Impulses
from ukemi.laws.rigid.memory import NAME, Sides, recalled
from ukemi.mechanics.kinematics import Kinematics, integrate, of_state
from ukemi.mechanics.plasticity import yields
from ukemi.model.records import Input, Model, State
from ukemi.status import Status
from ukemi.xla.stages import compact

FORCES = (
    "Contact forces of rigid laws have no derivative here: where contacts are more than the degrees of freedom, they "
    "are not determined. Differentiate the states that they lead to, other sensors (uk.sensors(..., names=...)), or "
    "forces under uk.Soft()."
)


class LCP(Method):
    """Rigid contact: no penetration, stick and slip within a box of two friction directions, restitution.

    Args:
        gradient: `Exact()`, `Bounce()`, `ComplementarityAware()`, or `CentralPath(...)` for that of a softer law.
        correction: share of a penetration, or of an equality's drift, that a step takes back.
        ahead: contacts count from this distance on, besides what the bodies cover in a step [m].
        explicit: move positions by the old velocities, as Nimble writes it, instead of by the new ones.
    """

    gradient: rules.Rule = rules.Exact()
    correction: float = eqx.field(converter=values.plain, static=True, default=0.2)
    ahead: float = eqx.field(converter=values.plain, static=True, default=0.005)
    explicit: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        own = rules.Exact, rules.Bounce, rules.ComplementarityAware, rules.CentralPath
        rules.require("LCP", self.gradient, own)
        between = "must be between 0 and 1"
        values.check_number("LCP", "correction", self.correction, lambda x: 0 <= x <= 1, between)
        values.check_number("LCP", "ahead", self.ahead, lambda x: x >= 0, "must not be negative")
        values.check_flag("LCP", "explicit", self.explicit)
        if self.explicit and isinstance(self.gradient, rules.CentralPath):
            remedy = "the softer law moves positions by the new velocities. Leave explicit out"
            raise InputError(f"LCP(explicit=True, gradient=uk.CentralPath(...)): {remedy}.")

    def step(self, model: Model, state: State, inputs: Input) -> State:
        """The state one model time step later."""
        return self._after(state, inputs, *self._found(model, state, inputs))

    def _found(self, model: Model, state: State, inputs: Input):
        """Where the step begins, what it finds and how, and what failed of the softer law of its gradient rule."""
        here = self.here(model, state, inputs)
        z, facts = self.impulses(here, state)
        if not isinstance(self.gradient, rules.CentralPath):
            return here, z, facts, {}
        softer, far = relaxed(self.gradient, model, state, inputs)
        failed = {Status.FAR_OVERFLOW: far & ~here.contacts.overflow}
        return here, z._replace(v=straight_through(z.v, softer)), facts, failed

    def jacobian(self, model: Model, state: State, inputs: Input) -> tuple[State, Array]:
        """The next state and its derivative (2nv + na, 2nv + na + nu) in state (tangent space) and controls."""
        if isinstance(self.gradient, rules.ComplementarityAware):
            raise GradientError(
                "uk.ComplementarityAware() is a rule of reverse mode: which contacts count depends on the loss, so "
                "that there is no Jacobian. Use jax.grad or jax.vjp, or another rule for uk.linearize."
            )
        if yields(model) or isinstance(self.gradient, rules.CentralPath):
            return columns(self.step, model, state, inputs)
        here, h = self.here(model, state, inputs), model.options.timestep
        z, facts = self.impulses(here, state)
        args, nv = (here, h, recalled(state)), model.nv
        bounces = isinstance(self.gradient, rules.Bounce)

        def jacobians(z, args):
            ahead = self._ahead(model, args[0].kin, args[0].v)
            return derivative.jacobians(row_kinds(model), self._stepping, bounces, z, args, ahead)

        dv, shift = dense(jacobians, z, args)
        change = np.eye(nv, dv.shape[1], nv, dtype=dv.dtype) if self.explicit else dv
        slopes = advance_slopes(model, state, inputs, self._rate(state.v, z, h), jnp.asarray(change) + shift / h, dv)
        return self._after(state, inputs, here, z, facts), slopes

    def here(self, model: Model, state: State, inputs: Input) -> Here:
        """Kinematics and contacts of a state, of those that may close within the step too."""
        model, kin = with_hair(model), of_state(model, state, inputs)
        early = None if model.pairs.layout.hulls.idle else self._ahead(model, kin, state.v, approached)
        return here_at(model, state, inputs, kin, self._ahead(model, kin, state.v), early)

    def _ahead(self, model: Model, kin: Kinematics, v: Array, reach: Callable = covered) -> Array | None:
        """Distances (pairs,) from which on contacts count, or from which on polytopes that come nearer have several."""
        if not model.pairs.layout.groups:
            return None
        steps = 2 if self.explicit else 1  # the first of two goes where the old velocities lead, whatever is in the way
        return lax.stop_gradient(steps * compact(reach)(model, kin, v) + self.ahead)

    def _rate(self, v: Array, z: Impulses, h: Array) -> Array:
        """What positions move by in a second."""
        return (v if self.explicit else z.v) + z.shift / h

    def impulses(self, here: Here, state: State) -> tuple[Impulses, tuple[Array, Array]]:
        """What the step finds, with the gradient rule, and (linear systems solved, whether that found a solution)."""
        args = here, here.model.options.timestep, recalled(state)
        if isinstance(self.gradient, rules.ComplementarityAware):
            return derivative.solve_aware(self._stepping, args)
        return derivative.solve(self._stepping, args, bounces=isinstance(self.gradient, rules.Bounce))

    @property
    def _stepping(self) -> Stepping:
        return Stepping(self.correction, self.explicit)

    def _after(self, state: State, inputs: Input, here: Here, z: Impulses, facts, failed=None) -> State:
        model = here.model
        moved = compact(self._moved)(model, state, here.kin, inputs, z)
        failed = {**unsound(here.contacts), **(failed or {})}
        return arrive_with(model, state, moved, Sides(here.contacts.names, z.side), facts, failed)

    def _moved(self, model: Model, state: State, kin: Kinematics, inputs: Input, z: Impulses) -> Moved:
        h = model.options.timestep
        q = integrate(model.tree, state.q, self._rate(state.v, z, h), h)
        return Moved(q, z.v, moved_activation(model, state, kin, inputs, q))

    def contact_forces(self, model: Model, state: State, inputs: Input) -> tuple[Contacts, Array]:
        """Contacts, and their mean forces (nc, dim) over the step in the contacts' frames."""
        here = self.here(model, state, inputs)
        return report_forces(here, self.impulses(here, state)[0])

    def loads(self, model: Model, state: State, inputs: Input) -> Loads:
        """Acceleration and forces of all rows, means over the step."""
        here, z, _, _ = self._found(model, state, inputs)
        a = (z.v - state.v) / model.options.timestep
        return Loads(a, here.contacts, mean_force(here, z), here.kin, True)


def arrive_with(model: Model, state: State, moved: Moved, sides: Sides, facts, failed) -> State:
    """The next state, which remembers the sides; facts: (linear systems solved, whether each found a solution)."""
    h, (rounds, solved) = model.options.timestep, facts
    sides = replace(sides, rows=jnp.maximum(sides.rows, boxes.LOW))
    cache = remember(state, (moved.v - state.v) / h, rounds, **{NAME: sides})
    return arrive(state, moved, h, solved, cache, failed)


def report_forces(here: Here, z: Impulses) -> tuple[Contacts, Array]:
    """Contacts, and their mean forces (nc, dim) over a time step in the contacts' frames."""
    return here.contacts, row_kinds(here.model).of_contacts(mean_force(here, z))


def mean_force(here: Here, z: Impulses) -> Array:
    """Mean forces (total,) of all rows over a time step, of contacts net."""
    force = without_derivative(lambda f: f, FORCES)(z.f) / here.model.options.timestep
    return net_forces(here, row_kinds(here.model), force)
