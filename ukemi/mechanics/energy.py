"""Kinetic energy, and potential energy of gravity and springs."""

from typing import NamedTuple

from jax import Array

from ukemi.mechanics.dynamics import gravity, smooth
from ukemi.mechanics.forces import spring_energy
from ukemi.mechanics.kinematics import kinematics
from ukemi.model.records import Model, State


class Energy(NamedTuple):
    """Mechanical energy [J]."""

    kinetic: Array
    potential: Array

    @property
    def total(self) -> Array:
        """Kinetic plus potential."""
        return self.kinetic + self.potential


def mechanical_energy(model: Model, state: State) -> Energy:
    """Kinetic energy with armature, and potential energy of gravity and joint springs [J]."""
    kin = kinematics(model, state.q)
    M = smooth(model, kin, state.v).M
    weight = -(model.bodies.mass * (kin.com @ gravity(model)[3:])).sum()
    return Energy(0.5 * state.v @ M @ state.v, weight + spring_energy(model, state.q))
