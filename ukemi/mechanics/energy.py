"""Kinetic energy, potential energy of gravity and springs, and momentum."""

from typing import NamedTuple

from jax import Array

from ukemi.maths import spatial
from ukemi.maths.gathers import pick_rows
from ukemi.mechanics.dynamics import body_inertias, gravity, smooth
from ukemi.mechanics.forces import spring_energy
from ukemi.mechanics.kinematics import Kinematics, kinematics, velocities
from ukemi.model.records import Model, State


class Energy(NamedTuple):
    """Mechanical energy [J]."""

    kinetic: Array
    potential: Array

    @property
    def total(self) -> Array:
        """Kinetic plus potential."""
        return self.kinetic + self.potential


class Momentum(NamedTuple):
    """Momentum of all bodies, in world axes."""

    linear: Array  # (3,) [N s]
    angular: Array  # (3,) about the origin [N m s]


def mechanical_energy(model: Model, state: State) -> Energy:
    """Kinetic energy with armature, and potential energy of gravity and springs [J]."""
    kin = kinematics(model, state.q)
    M = smooth(model, kin, state.v).M
    return Energy(0.5 * state.v @ M @ state.v, potential_energy(model, kin, state.q, state.act))


def potential_energy(model: Model, kin: Kinematics, q: Array, act: Array) -> Array:
    """Potential energy of gravity and springs [J]."""
    weight = -(model.bodies.mass * (kin.com @ gravity(model)[3:])).sum()
    return weight + spring_energy(model, kin, q, act)


def mechanical_momentum(model: Model, state: State) -> Momentum:
    """Momentum of the bodies, without what spins in their joints (armature)."""
    kin = kinematics(model, state.q)
    inertia = spatial.spatial_inertia(body_inertias(model, kin))
    each = spatial.apply(inertia, velocities(model.tree, kin.S, state.v).body)
    arm = pick_rows(kin.ref, model.tree.body_tree)
    return Momentum(each[:, 3:].sum(0), (each[:, :3] + spatial.cross(arm, each[:, 3:])).sum(0))
