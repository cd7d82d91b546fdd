"""Between joint coordinates and those of all bodies."""

import dataclasses

import jax.numpy as jnp

from ukemi import values
from ukemi.implicit.worlds import of_one_world
from ukemi.laws.checks import check, check_state
from ukemi.mechanics.maximal import MaximalState, to_maximal, to_minimal
from ukemi.model.checks import check_model
from ukemi.model.records import Model, State
from ukemi.simulate.stepping import initial_state
from ukemi.status import Status, bit
from ukemi.xla.entry import compiled


def maximal_state(model: Model, state: State) -> MaximalState:
    """Poses and velocities of all bodies, in maximal coordinates.

    Velocities are mean ones of the step that led to the state, so that `minimal_state` finds the state again.

    Args:
        model: the robot.
        state: where it is.
    """
    check(model, state)
    return _maximal(model, state)


def minimal_state(model: Model, bodies: MaximalState, near: State | None = None) -> State:
    """The state whose bodies are where they are said to be.

    Poses that the joints do not allow leave the status bit NOT_CONVERGED, at what Newton's method came to.

    Args:
        model: the robot.
        bodies: poses and velocities of all bodies.
        near: a state near it: hinges that may turn more than once, and bodies with several joints, are ambiguous. It
            brings activations, time and memory, too. The model's initial state if left out.
    """
    check_model(model)
    meaning = "must be what uk.maximal_state returns"
    values.require(isinstance(bodies, MaximalState), "minimal_state", "bodies", bodies, meaning)
    nb, dtype = model.tree.nb, model.options.timestep.dtype
    near = initial_state(model) if near is None else near
    check_state(model, near)
    fields = {field.name: getattr(bodies, field.name) for field in dataclasses.fields(bodies)}
    given = {name: values.array(f"bodies.{name}", value, dtype) for name, value in fields.items()}
    for name, value in given.items():
        values.check_shape(f"bodies.{name}", value.shape, (nb, 4 if name == "quat" else 3), model)
    return _minimal(model, MaximalState(**given), near)


@compiled
def _maximal(model, state):
    return of_one_world(lambda model, state: to_maximal(model, state.q, state.v))(model, state)


@compiled
def _minimal(model, bodies, near):
    def found(model, bodies, near):
        q, v, fits = to_minimal(model, bodies, near.q)
        status = near.status | bit(Status.NOT_CONVERGED, ~fits)
        return dataclasses.replace(near, q=q, v=v, status=jnp.asarray(status, jnp.int32))

    return of_one_world(found)(model, bodies, near)
