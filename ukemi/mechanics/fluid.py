"""Drag of a surrounding fluid, by MuJoCo's inertia-box model.

Each body stands for the box of equal mass and inertia. Viscosity resists the box as it would a sphere of its mean
size (Stokes); density resists each face in proportion to its area and the square of its speed. Force and torque
act at the centre of mass and are diagonal in the box's axes: component k depends on velocity component k alone.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial
from ukemi.maths.gathers import mix
from ukemi.mechanics.kinematics import Kinematics
from ukemi.model.records import Model

TINY = 1e-15  # lightest body that feels the fluid [kg], and least squared size of its box


def fluid_force(model: Model, kin: Kinematics, v: Array) -> Array:
    """Generalised force (nv,) of the fluid at velocity v (nv,)."""
    local, turn = local_velocity(model, kin, v)
    viscous, quadratic = _coefficients(model)
    wrench = -(viscous + quadratic * jnp.abs(local)) * local
    torque, force = spatial.apply(turn, wrench[:, :3]), spatial.apply(turn, wrench[:, 3:])
    arm = kin.com - kin.ref[model.tree.body_tree]
    about = jnp.concatenate([torque + spatial.cross(arm, force), force], -1)
    return (kin.S * mix(model.tree.moves.T, about)).sum(-1)


def fluid_slope(model: Model, kin: Kinematics, v: Array) -> Array:
    """∂fluid_force/∂v (nv, nv), in closed form: symmetric, negative semidefinite."""
    tree, S = model.tree, kin.S
    local, turn = local_velocity(model, kin, v)
    viscous, quadratic = _coefficients(model)
    slope = -(viscous + 2 * quadratic * jnp.abs(local))
    # columns: local axes at the centre of mass as wrenches about the tree's reference point
    axes = turn.mT
    arm = (kin.com - kin.ref[tree.body_tree])[:, None, :]
    pushes = jnp.concatenate([spatial.cross(arm, axes), axes], -1)
    wrenches = jnp.concatenate([jnp.concatenate([axes, jnp.zeros_like(axes)], -1), pushes], 1)
    drag = jnp.einsum("bk,bki,bkj->bij", slope, wrenches, wrenches)
    composite = jnp.tensordot(tree.moves.T.astype(v.dtype), drag, 1)
    product = spatial.apply(composite, S) @ S.T
    return jnp.asarray(tree.anc * product + (tree.strict * product).T)


def local_velocity(model: Model, kin: Kinematics, v: Array) -> tuple[Array, Array]:
    """Velocity (nb, 6) [angular; linear] relative to the fluid at the centres of mass in the boxes' axes (nb, 3, 3)."""
    turn = spatial.compose(kin.mat, spatial.quat_to_mat(model.bodies.iquat))
    V = mix(model.tree.moves, kin.S * v[:, None])
    arm = kin.com - kin.ref[model.tree.body_tree]
    linear = V[:, 3:] + spatial.cross(V[:, :3], arm) - model.options.wind
    return jnp.concatenate([spatial.apply(turn.mT, V[:, :3]), spatial.apply(turn.mT, linear)], -1), turn


def _coefficients(model: Model) -> tuple[Array, Array]:
    """Viscous and quadratic drag (nb, 6) per component of the local velocity, torques first."""
    mass, inertia, options = model.bodies.mass, model.bodies.inertia, model.options
    solid = mass >= TINY
    rest = jnp.maximum(inertia @ (1 - 2 * np.eye(3)), TINY)  # twice the mass times the mean square along each axis
    box = jnp.sqrt(6 * rest / jnp.where(solid, mass, 1.0)[:, None])
    box = jnp.where(solid[:, None], box, 0.0)
    size = box.mean(-1, keepdims=True)
    viscous = np.pi * options.viscosity * jnp.repeat(jnp.concatenate([size**3, 3 * size], -1), 3, -1)
    after, before = jnp.roll(box, -1, -1), jnp.roll(box, 1, -1)  # the two other sides
    turning = box * (after**4 + before**4) / 64
    return viscous, options.density * jnp.concatenate([turning, 0.5 * after * before], -1)
