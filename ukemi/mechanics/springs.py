"""Springs and dampers of joints, of which MuJoCo lets stiffness and damping grow by polynomials."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial
from ukemi.mechanics import polynomials
from ukemi.mechanics.reflected import joint_damping
from ukemi.model.records import Model
from ukemi.model.tree import BALL, FREE


def spring_pull(model: Model, stretch: Array) -> Array:
    """What springs (nv,) pull with, against their stretch: k(x) x."""
    joints, of = model.joints, model.tree.dof_joint
    if not joints.layout.stiffening:
        return joints.stiffness[of] * stretch
    return stretch * polynomials.secant(joints.stiffness[of], joints.stiffness_poly[of], _size(model, stretch))


def spring_stiffness(model: Model, stretch: Array) -> Array:
    """∂(k(x) x)/∂x (nv, nv), of a stretch in space k + k′(|x|) x xᵀ/|x|."""
    joints, of = model.joints, model.tree.dof_joint
    linear, growth, size = joints.stiffness[of], joints.stiffness_poly[of], _size(model, stretch)
    at_rest = size == 0
    rising = (growth[:, 0] + 2 * growth[:, 1] * size) / jnp.where(at_rest, 1.0, size)
    outer = jnp.where(_together(model), stretch[:, None] * stretch, 0.0)
    return jnp.diag(polynomials.secant(linear, growth, size)) + jnp.where(at_rest, 0.0, rising)[:, None] * outer


def spring_potential(model: Model, stretch: Array) -> Array:
    """Energy [J] of springs, (nv,) with that of a translation or rotation in space shared by its dofs."""
    joints, of = model.joints, model.tree.dof_joint
    if not joints.layout.stiffening:
        return 0.5 * joints.stiffness[of] * stretch**2
    size = _size(model, stretch)
    whole = polynomials.potential(joints.stiffness[of], joints.stiffness_poly[of], size)
    return jnp.where(_together(model).sum(1) > 1, whole / 3, whole)


def joint_drag(model: Model, v: Array) -> Array:
    """What dampers (nv,) brake with."""
    damping, growth = joint_damping(model)
    return polynomials.drag(damping, growth, v) if thickens(model) else damping * v


def joint_resistance(model: Model, v: Array) -> Array:
    """∂(damping force)/∂v (nv,), positive where it brakes."""
    damping, growth = joint_damping(model)
    return polynomials.slope(damping, growth, jnp.abs(v)) if thickens(model) else damping


def thickens(model: Model) -> bool:
    """Whether damping may depend on speed."""
    return model.joints.layout.thickening or model.actuators.layout.thickening


def _together(model: Model) -> np.ndarray:
    """(nv, nv) bool: dofs of the same translation or rotation in space."""
    tree = model.tree
    joint, kind = tree.dof_joint, tree.joint_type[tree.dof_joint]
    turns = (kind == BALL) | ((kind == FREE) & (tree.dof_axis >= 3))
    return (joint[:, None] == joint) & (turns[:, None] == turns)


def _size(model: Model, stretch: Array) -> Array:
    """Stretch (nv,) that a polynomial is of: in space its length."""
    together = _together(model)
    length = spatial.safe_norm(jnp.where(together, stretch, 0.0))
    return jnp.where(together.sum(1) > 1, length, stretch)
