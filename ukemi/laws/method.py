"""What every contact law offers."""

import abc
from typing import Any, NamedTuple, NoReturn, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.collide.detect import Contacts
from ukemi.errors import InputError
from ukemi.implicit.rules import Rule
from ukemi.mechanics.energy import Energy, Momentum, mechanical_energy, mechanical_momentum
from ukemi.mechanics.kinematics import Kinematics, coordinate_rate, tangent_vector
from ukemi.model.records import Input, Model, State


class Loads(NamedTuple):
    """How joints accelerate, and what rows of constraints do to them."""

    acceleration: Array  # (nv,)
    contacts: Contacts
    force: Array  # (total,) of all rows, in the order of `constraints.rows`; of contacts in their frames
    kin: Kinematics  # where connects and welds pull
    together: bool  # whether points that these join act together (`constraints.equalities`)


class Method(eqx.Module):
    """A contact law with its solver and integrator: an immutable value."""

    gradient: eqx.AbstractVar[Rule]

    @abc.abstractmethod
    def step(self, model: Model, state: State, inputs: Input) -> State:
        """The state one model time step later."""

    def check_times(self, model: Model, steps: int) -> None:
        """Refuse what a rollout of so many steps cannot return."""

    @property
    def ends_steps(self) -> bool:
        """Whether the states of a rollout are the ends of its time steps."""
        return True

    def saved(self, model: Model, state: State, states: State, inputs: Input) -> State:
        """What a rollout from `state` through `states` under inputs (T, ...) returns: each end of a time step."""
        return states

    def jacobian(self, model: Model, state: State, inputs: Input) -> tuple[State, Array]:
        """The next state and its derivative (2nv + na, 2nv + na + nu) in state (tangent space) and controls.

        Made of columns, one per coordinate; laws that have their Jacobian in closed form do better.
        """
        return columns(self.step, model, state, inputs)

    def check_forward(self) -> None:
        """Refuse derivatives in forward mode where the law has none."""

    def accelerate(self, model: Model, state: State, inputs: Input) -> Any:
        """The motion in continuous time, with its `kin` and `acceleration`, of laws that have one."""
        self._lacks("uk.vector_field", "uk.Soft(...) and uk.Adaptive(...) do")

    def inverse(self, model: Model, state: State, acceleration: Array, inputs: Input) -> Array:
        """Generalised force (nv,) that yields the acceleration, of laws whose forces follow from accelerations."""
        self._lacks("uk.inverse")

    def contact_forces(self, model: Model, state: State, inputs: Input) -> tuple[Any, Array]:
        """Contacts, and their forces (nc, dim) in the contacts' frames."""
        self._lacks("uk.contacts")

    def acceleration(self, model: Model, state: State, inputs: Input) -> Array:
        """Acceleration (nv,) that sensors feel: of laws of impulses the mean over the step, (v⁺ − v)/h."""
        return (self.step(model, state, inputs).v - state.v) / model.options.timestep

    def loads(self, model: Model, state: State, inputs: Input) -> Loads:
        """The same with the forces of all rows, of laws of impulses their means over the step."""
        self._lacks("forces to uk.sensors", "uk.Soft(...) does, and names=(...) asks for other sensors alone")

    def energy(self, model: Model, state: State) -> Energy:
        """Mechanical energy where the law has states."""
        return mechanical_energy(model, state)

    def momentum(self, model: Model, state: State) -> Momentum:
        """Momentum where the law has states."""
        return mechanical_momentum(model, state)

    def _lacks(self, function: str, others: str = "uk.Soft(...) does") -> NoReturn:
        raise InputError(f"method={type(self).__name__}(...) does not offer {function}; {others}.")


def columns(step, model: Model, state: State, inputs: Input) -> tuple[State, Array]:
    """The next state and its Jacobian, by pushing every coordinate through `step`."""

    def moved(q, v, act, ctrl):
        there = eqx.tree_at(lambda s: (s.q, s.v, s.act), state, (q, v, act))
        given = eqx.tree_at(lambda i: i.ctrl, inputs, ctrl)
        return step(model, there, given)

    after, push = jax.linearize(moved, state.q, state.v, state.act, inputs.ctrl)
    sizes = np.cumsum([model.nv, model.nv, model.na])

    def column(x):
        shift, v, act, ctrl = jnp.split(x, sizes)
        return tangent(model, after, push(coordinate_rate(model.tree, state.q, shift), v, act, ctrl))

    basis = jnp.eye(sizes[-1] + model.nu, dtype=state.v.dtype)
    return after, jax.vmap(column, out_axes=1)(basis)


def rows(step, model: Model, state: State, inputs: Input) -> tuple[State, Array]:
    """The same by pulling every coordinate of the next state back, for steps that only have reverse mode."""
    after = step(model, state, inputs)

    def moved(shift, v, act, ctrl):
        q = state.q + coordinate_rate(model.tree, state.q, shift)
        there = eqx.tree_at(lambda s: (s.q, s.v, s.act), state, (q, v, act))
        then = step(model, there, eqx.tree_at(lambda i: i.ctrl, inputs, ctrl))
        return jnp.concatenate([tangent_vector(model.tree, after.q, then.q), then.v, then.act])

    at = jnp.zeros_like(state.v), state.v, state.act, cast(Array, inputs.ctrl)
    present = tuple(k for k, x in enumerate(at) if x.size)
    return after, jnp.concatenate(jax.jacrev(moved, argnums=present)(*at), -1)


def tangent(model: Model, state: State, change: State) -> Array:
    """A change of the state as a vector (2nv + na,): positions in tangent space, velocities, activations."""
    return jnp.concatenate([tangent_vector(model.tree, state.q, change.q), change.v, change.act])
