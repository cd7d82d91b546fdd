"""Dense derivatives in closed form of the forces that are not constraints."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial
from ukemi.mechanics.forces import acts_on_joints, actuator_force, on_joints, saturated, transmission
from ukemi.mechanics.kinematics import difference
from ukemi.model.records import Model


class ForceSlopes(NamedTuple):
    """Derivatives of generalised forces (nv,)."""

    q: Array  # (nv, nv) tangent space
    v: Array  # (nv, nv)
    act: Array  # (nv, na)
    ctrl: Array  # (nv, nu)


def has_plain_forces(model: Model) -> bool:
    """Whether `force_slopes` covers all forces but applied wrenches: springs, dampers and actuators of joints."""
    return not (model.options.layout.fluid or model.bodies.layout.compensated) and acts_on_joints(model)


def force_slopes(model: Model, kin, q: Array, v: Array, act: Array, ctrl: Array) -> ForceSlopes:
    """Slopes of actuators of hinges and slides, and of joint springs and dampers."""
    joints, disabled, nv = model.joints, model.options.layout.disabled, model.nv
    spring = damper = jnp.zeros((nv, nv), v.dtype)
    if joints.layout.springs and "spring" not in disabled:
        spring = _spring_slope(model, q)
    if joints.layout.damped and "damper" not in disabled:
        damper = -jnp.diag(joints.damping)
    per_act, per_ctrl = (jnp.zeros((nv, n), v.dtype) for n in (model.na, model.nu))
    if model.nu and "actuation" not in disabled:
        moment, force, (per_length, per_velocity, *signal) = _actuator_slopes(model, kin, q, v, act, ctrl, 0)
        moment = jnp.where(saturated(model, force @ moment), 0.0, moment)  # joints at their limit feel nothing of them
        spring = spring + on_joints(model, moment, per_length)
        damper = damper + on_joints(model, moment, per_velocity)
        per_act, per_ctrl = _of_signal(model, moment, *signal)
    return ForceSlopes(spring, damper, per_act, per_ctrl)


def damping_slopes(model: Model, kin, q: Array, v: Array, act: Array, ctrl: Array, e: Array) -> ForceSlopes:
    """Slopes of D e (nv,), with D the forces' own slope in velocity: that of actuators depends on what their gain
    multiplies alone, that of joints' dampers is constant.

    `forces.actuation` has D: nothing of actuators of joints at their limit.
    """
    still, per_act, per_ctrl = (jnp.zeros((model.nv, n), e.dtype) for n in (model.nv, model.na, model.nu))
    if model.nu and "actuation" not in model.options.layout.disabled:
        moment, force, (_, _, *signal) = _actuator_slopes(model, kin, q, v, act, ctrl, 1)
        moment = jnp.where(saturated(model, force @ moment), 0.0, moment)
        per_act, per_ctrl = _of_signal(model, moment**2 * e, *signal)
    return ForceSlopes(still, still, per_act, per_ctrl)


def _spring_slope(model: Model, q: Array) -> Array:
    """∂(spring forces)/∂q (nv, nv): of a rotation, stretched by u, with ∂u = J_r(u)⁻¹ δ."""
    tree, stretch = model.tree, np.eye(model.nv, dtype=q.dtype)
    if model.joints.layout.turning_springs:
        u = spatial.pick(difference(tree, q, model.joints.qpos_spring), tree.quat_dof)
        stretch = spatial.with_blocks(stretch, tree.quat_dof, spatial.right_jacobian_inverse(u))
    return -model.joints.stiffness[tree.dof_joint][:, None] * stretch


def _actuator_slopes(model: Model, kin, q: Array, v: Array, act: Array, ctrl: Array, which: int):
    """Moment (nu, nv) and force (nu,) of actuators of joints, and slopes of the force (which = 0), or of its own slope
    in velocity (1), in each actuator's length, velocity, activation and control (nu,).
    """
    length, moment = transmission(model, kin, q)
    values = length, moment @ v, act, ctrl
    partials = []
    for k, value in enumerate(values):
        along = tuple(jnp.ones_like(x) if i == k else jnp.zeros_like(x) for i, x in enumerate(values))
        if value.size:
            partials.append(jax.jvp(lambda *x: actuator_force(model, *x)[which], values, along)[1])
        else:
            partials.append(jnp.zeros(model.nu, v.dtype))
    return moment, actuator_force(model, *values)[0], partials


def _of_signal(model: Model, moment: Array, per_act: Array, per_ctrl: Array) -> tuple[Array, Array]:
    """Slopes of momentᵀ force in activation (nv, na) and control (nv, nu)."""
    own = model.actuators.layout.act[:, None] == np.arange(model.na)
    return (moment.T * per_act) @ own.astype(moment.dtype), moment.T * per_ctrl
