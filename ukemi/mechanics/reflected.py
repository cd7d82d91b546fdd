"""What rotors of actuators add to the joints and tendons that they turn: gear² times their armature and damping."""

import numpy as np
from jax import Array

from ukemi.maths.gathers import mix
from ukemi.mechanics.transmissions import pulled_tendon, turned_joint
from ukemi.model.records import Model


def joint_armature(model: Model) -> Array:
    """Armature (nv,) of dofs, with that of rotors."""
    joints, actuators = model.joints, model.actuators
    return joints.armature + _at_joints(model, actuators.armature) if actuators.layout.rotors else joints.armature


def tendon_armature(model: Model) -> Array:
    """Armature (nt,) of tendons, with that of rotors."""
    tendons, actuators = model.tendons, model.actuators
    return tendons.armature + _at_tendons(model, actuators.armature) if actuators.layout.rotors else tendons.armature


def has_heavy_tendons(model: Model) -> bool:
    """Whether some tendon has armature."""
    layout = model.actuators.layout
    return model.tendons.layout.heavy or (layout.rotors and bool((pulled_tendon(layout) >= 0).any()))


def joint_damping(model: Model) -> tuple[Array, Array]:
    """Damping (nv,) of dofs and its growth with speed (nv, 2), with those of rotors."""
    joints, actuators = model.joints, model.actuators
    if not actuators.layout.damped:
        return joints.damping, joints.damping_poly
    added = _at_joints(model, actuators.damping), _at_joints(model, actuators.damping_poly)
    return joints.damping + added[0], joints.damping_poly + added[1]


def tendon_damping(model: Model) -> tuple[Array, Array]:
    """The same (nt,), (nt, 2) of tendons."""
    tendons, actuators = model.tendons, model.actuators
    if not actuators.layout.damped:
        return tendons.damping, tendons.damping_poly
    added = _at_tendons(model, actuators.damping), _at_tendons(model, actuators.damping_poly)
    return tendons.damping + added[0], tendons.damping_poly + added[1]


def are_joints_damped(model: Model) -> bool:
    """Whether joints may have damping."""
    layout = model.actuators.layout
    return model.joints.layout.damped or (layout.damped and bool((turned_joint(layout) >= 0).any()))


def are_tendons_damped(model: Model) -> bool:
    """Whether tendons may have damping."""
    layout = model.actuators.layout
    return model.tendons.layout.damped or (layout.damped and bool((pulled_tendon(layout) >= 0).any()))


def _at_joints(model: Model, rotor: Array) -> Array:
    """gear² of it (nu, …) at the dofs (nv, …) of the actuators' joints."""
    return _reflected(model, rotor, turned_joint(model.actuators.layout) == model.tree.dof_joint[:, None])


def _at_tendons(model: Model, rotor: Array) -> Array:
    """gear² of it (nu, …) at the actuators' tendons (nt, …)."""
    own = np.arange(len(model.tendons.layout.names))[:, None]
    return _reflected(model, rotor, pulled_tendon(model.actuators.layout) == own)


def _reflected(model: Model, rotor: Array, at: np.ndarray) -> Array:
    ratio = model.actuators.gear[:, 0] ** 2
    return mix(at, (rotor.T * ratio).T)
