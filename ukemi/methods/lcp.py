"""Rigid contact by complementarity: impulses that stop what would penetrate, stick and slip exactly (Nimble; Jade)."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax

from ukemi import impulse as i_
from ukemi import rules
from ukemi.collide.detect import Contacts, detect
from ukemi.errors import GradientError, InputError
from ukemi.forces import activation_motion, next_activation, wrap_activation
from ukemi.gradient import root, without_derivative
from ukemi.kinematics import integrate, of_state, velocities
from ukemi.methods import balance as b_
from ukemi.methods import impulses as p_
from ukemi.methods.base import Method
from ukemi.model import Input, Model, State
from ukemi.penalty import RowKinds, row_kinds
from ukemi.status import Status, bit


FORCES = (
    "Contact forces of rigid laws have no derivative here: where contacts are more than the degrees of freedom, they are "
    "not determined. Differentiate the states that they lead to, or uk.contacts under uk.Soft()."
)


class LCP(Method):
    """Rigid contact: no penetration, stick and slip within a box of two friction directions, restitution.

    gradient: `uk.Exact()`, `uk.Bounce()` or `uk.ComplementarityAware()`;
    correction: share of a penetration, or of an equality's drift, that a step takes back;
    ahead: contacts count from this distance on, besides what the bodies cover in a step [m];
    explicit: move positions by the old velocities, as Nimble writes it, instead of by the new ones.
    """

    gradient: rules.Rule = rules.Exact()
    correction: float = eqx.field(static=True, default=0.2)
    ahead: float = eqx.field(static=True, default=0.005)
    explicit: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        rules.require("LCP", self.gradient, (rules.Exact, rules.Bounce, rules.ComplementarityAware))
        if not 0 <= self.correction <= 1:
            raise InputError(f"LCP(correction={self.correction!r}): must be between 0 and 1.")
        if not self.ahead >= 0:
            raise InputError(f"LCP(ahead={self.ahead!r}): must not be negative.")

    def step(self, model: Model, state: State, inputs: Input) -> State:
        """The state one model time step later."""
        here = self.here(model, state, inputs)
        z, facts = self.impulses(here, state)
        return self._after(state, inputs, here, z, facts)

    def jacobian(self, model: Model, state: State, inputs: Input) -> tuple[State, Array]:
        """The next state and its derivative (2nv + na, 2nv + na + nu) in state (tangent space) and controls."""
        if isinstance(self.gradient, rules.ComplementarityAware):
            raise GradientError(
                "uk.ComplementarityAware() is a rule of reverse mode: which contacts count depends on the loss, so that "
                "there is no Jacobian. Use jax.grad or jax.vjp, or another rule for uk.linearize."
            )
        return super().jacobian(model, state, inputs)

    def here(self, model: Model, state: State, inputs: Input) -> b_.Here:
        """Kinematics and contacts of a state, of those that may close within the step too."""
        kin = of_state(model, state, inputs)
        ahead = None
        if model.pairs.layout.groups:
            velocity = velocities(model.tree, kin.S, state.v)
            steps = 2 if self.explicit else 1  # the first of two goes where the old velocities lead, whatever is in the way
            ahead = lax.stop_gradient(steps * i_.covered(model, kin, velocity) + self.ahead)
        return b_.here_at(model, state, inputs, kin, detect(model, kin, ahead))

    def impulses(self, here: b_.Here, state: State) -> tuple[p_.Impulses, tuple[Array, Array]]:
        """What the step finds, with the gradient rule, and (linear systems solved, whether that found a solution)."""
        kinds, stepping = row_kinds(here.model), self._stepping

        def find(args):
            return p_.find(kinds, stepping, p_.scene(*args))

        if isinstance(self.gradient, rules.ComplementarityAware):
            find = p_.complementarity_aware(kinds, stepping, find)
            return find((here, state.cache.contacts, state.cache.sides))
        rule = partial(p_.exact_rule, kinds, stepping, isinstance(self.gradient, rules.Bounce))
        return root(find, rule)((here, state.cache.contacts, state.cache.sides))

    @property
    def _stepping(self) -> i_.Stepping:
        return i_.Stepping(self.correction, self.explicit)

    def _after(self, state: State, inputs: Input, here: b_.Here, z: p_.Impulses, facts) -> State:
        model, h = here.model, here.model.options.timestep
        rounds, solved = facts
        v = z.v
        q = integrate(model.tree, state.q, (state.v if self.explicit else v) + z.shift / h, h)
        rate, length = activation_motion(model, here.kin, state.q, state.act, inputs.ctrl)
        act = wrap_activation(model, next_activation(model, state.act, rate), length)
        q, v, act = lax.optimization_barrier((q, v, act))  # rounded alike, whoever looks
        finite = jnp.isfinite(q).all() & jnp.isfinite(v).all()
        status = (
            state.status
            | bit(Status.NOT_FINITE, ~finite)
            | bit(Status.NOT_CONVERGED, ~solved & finite)
            | bit(Status.CONTACT_OVERFLOW, here.contacts.overflow)
        )
        cache = replace(
            state.cache,
            acceleration=lax.stop_gradient((v - state.v) / h),
            iterations=rounds,
            contacts=p_.names(here.contacts),
            sides=z.side,
        )
        return State(q, v, act, state.time + h, status, cache)

    def contact_forces(self, model: Model, state: State, inputs: Input) -> tuple[Contacts, Array]:
        """Contacts, and their mean forces (nc, dim) over the step in the contacts' frames."""
        here, kinds = self.here(model, state, inputs), row_kinds(model)
        z, _ = self.impulses(here, state)
        force = without_derivative(lambda f: f, FORCES)(z.f) / model.options.timestep
        return here.contacts, force[kinds.scalar :].reshape(kinds.contacts, kinds.dim)
