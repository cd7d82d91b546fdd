"""What every contact law offers."""

import abc

import equinox as eqx

from ukemi.model import Input, Model, State


class Method(eqx.Module):
    """A contact law with its solver and integrator: an immutable value."""

    @abc.abstractmethod
    def step(self, model: Model, state: State, inputs: Input) -> State:
        """The state one model time step later."""

    def dense_step(self, model: Model, state: State, inputs: Input) -> State:
        """The same step for those who want all columns of its derivative in state and controls."""
        return self.step(model, state, inputs)
