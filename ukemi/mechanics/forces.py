"""Forces that are not constraints: actuators, springs, dampers, gravity compensation, applied wrenches."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial
from ukemi.maths.gathers import mix, pick_rows
from ukemi.mechanics.dynamics import gravity
from ukemi.mechanics.fluid import fluid_force, fluid_slope
from ukemi.mechanics.kinematics import Kinematics, difference
from ukemi.mechanics.muscles import muscle_bias, muscle_gain, muscle_rate, muscles_of
from ukemi.mechanics.reflected import are_joints_damped, are_tendons_damped
from ukemi.mechanics.springs import joint_drag, joint_resistance, spring_potential, spring_pull
from ukemi.mechanics.tendons.paths import tendon_lengths, tendon_moments
from ukemi.mechanics.tendons.springs import is_elastic, tendon_energy, tendon_pull, tendon_resistance, within
from ukemi.mechanics.transmissions import transmission, turned_joint
from ukemi.model.records import Input, Model

# ---- actuators -----------------------------------------------------------------------------------------------


class Actuation(NamedTuple):
    """What the actuators do."""

    length: Array  # (nu,) [m] or [rad], times gear
    velocity: Array  # (nu,)
    force: Array  # (nu,) [N] or [N m]
    moment: Array  # (nu, nv) gradient of length
    act_dot: Array  # (na,) rate of the activations
    qfrc: Array  # (nv,) generalised force, within the joints' own limits
    slope: Array  # (nu,) ∂force/∂velocity where no limit is hit: what the implicit integrators treat implicitly

    def resistance(self, x: Array) -> Array:
        """Change (..., nv) of the forces on joints along changes x (..., nv) of the velocity."""
        return ((x @ self.moment.T) * self.slope) @ self.moment


def actuation(
    model: Model, kin: Kinematics, q: Array, v: Array, act: Array, ctrl: Array, held: Array, grips: Array | None = None
) -> Actuation:
    """Actuator forces; `held` (nv,) is gravity compensation that counts as actuator force, `grips`: see
    `transmission`.
    """
    disabled = model.options.layout.disabled
    if not model.nu:  # MuJoCo then leaves out `held`, too
        none, empty = jnp.zeros(0, q.dtype), jnp.zeros((0, model.nv), q.dtype)
        return Actuation(none, none, none, empty, jnp.zeros_like(act), jnp.zeros_like(v), none)
    length, moment = transmission(model, kin, q, grips)
    velocity = moment @ v
    if "actuation" in disabled:
        none = jnp.zeros_like(length)
        return Actuation(length, velocity, none, moment, jnp.zeros_like(act), jnp.zeros_like(v), none)
    force, slope, act_dot = actuator_force(model, length, velocity, act, ctrl)
    force, slope = within(model, force, slope)
    qfrc = force @ moment + held
    limited = model.joints.layout.force_limited[model.tree.dof_joint]
    if limited.any():
        at_limit = saturated(model, qfrc)
        low, high = model.joints.actuator_range[model.tree.dof_joint].T
        slope = jnp.where((drives(model) & at_limit).any(1), 0.0, slope)
        qfrc = jnp.where(limited, jnp.clip(qfrc, low, high), qfrc)
    return Actuation(length, velocity, force, moment, act_dot, qfrc, slope)


def actuator_force(model: Model, length: Array, velocity: Array, act: Array, ctrl: Array):
    """Force (nu,) of each actuator, its slope in velocity (nu,), and the rate of the activations (na,)."""
    actuators, layout = model.actuators, model.actuators.layout
    ctrl = _clamped(model, ctrl)
    act_dot = activation_rate(model, act, ctrl)
    signal = _signal(model, length, act, act_dot, ctrl)
    gain = actuators.gain[:, 0] + actuators.gain[:, 1] * length + actuators.gain[:, 2] * velocity
    bias = actuators.bias[:, 0] + actuators.bias[:, 1] * length + actuators.bias[:, 2] * velocity
    gain_slope, bias_slope = actuators.gain[:, 2], actuators.bias[:, 2]
    if layout.muscle_gains.any():
        k = np.nonzero(layout.muscle_gains)[0]
        active = muscle_gain(muscles_of(actuators.muscle_gain[k], actuators, k), length[k], velocity[k])
        gain, gain_slope = gain.at[k].set(active[0]), gain_slope.at[k].set(active[1])
    if layout.muscle_biases.any():
        k = np.nonzero(layout.muscle_biases)[0]
        bias = bias.at[k].set(muscle_bias(muscles_of(actuators.muscle_bias[k], actuators, k), length[k]))
    force, slope = gain * signal + bias, gain_slope * signal + bias_slope
    if layout.off.any():  # their range, if it leaves zero out, holds all the same
        force, slope = (jnp.where(layout.off, 0.0, x) for x in (force, slope))
    if layout.force_limited.any():
        low, high = actuators.force_range.T
        slope = jnp.where(layout.force_limited & ((force <= low) | (force >= high)), 0.0, slope)
        force = jnp.where(layout.force_limited, jnp.clip(force, low, high), force)
    return force, slope, act_dot


def saturated(model: Model, qfrc: Array) -> Array:
    """Dofs (nv,) whose total actuator force is at its joint's limit."""
    limited = model.joints.layout.force_limited[model.tree.dof_joint]
    low, high = model.joints.actuator_range[model.tree.dof_joint].T
    return limited & ((qfrc <= low) | (qfrc >= high))


def _clamped(model: Model, ctrl: Array) -> Array:
    """Controls (nu,) within their ranges, where the file has ranges."""
    ctrl = _number(ctrl)
    limited = model.actuators.layout.ctrl_limited
    if not limited.any() or "clampctrl" in model.options.layout.disabled:
        return ctrl
    low, high = model.actuators.ctrl_range.T
    return jnp.where(limited, jnp.clip(ctrl, low, high), ctrl)


def _number(x: Array) -> Array:
    """NaN in place of infinities, which limits of controls, activations or forces would make ordinary numbers."""
    return jnp.where(jnp.isinf(x), jnp.nan, x)


def activation_motion(model: Model, kin, q, act: Array, ctrl: Array) -> tuple[Array, Array | None]:
    """Rate of the activations (na,), and the actuators' lengths (nu,) where stored setpoints wrap."""
    layout = model.actuators.layout
    if not model.na or "actuation" in model.options.layout.disabled:
        return jnp.zeros_like(act), None
    wraps = layout.wraps[_owners(model)].any()
    length = transmission(model, kin, q)[0] if wraps else None
    return activation_rate(model, act, _clamped(model, ctrl)), length


def drives(model: Model) -> np.ndarray:
    """Mask (nu, nv): the actuator's transmission is the joint of this dof."""
    layout = model.actuators.layout
    return turned_joint(layout)[:, None] == model.tree.dof_joint


def _signal(model: Model, length: Array, act: Array, act_dot: Array, ctrl: Array) -> Array:
    """What the gain multiplies (nu,): control, or activation, on the turn nearest to the length if it wraps."""
    layout = model.actuators.layout
    stateful = layout.act >= 0
    signal = ctrl
    if stateful.any():
        k = np.maximum(layout.act, 0)
        current = act[k]
        if layout.early.any():
            current = jnp.where(layout.early, next_activation(model, act, act_dot)[k], current)
        signal = jnp.where(stateful, current, ctrl)
    return _unwind(model, signal, length)


def _unwind(model: Model, setpoint: Array, length: Array) -> Array:
    """The representative of a setpoint (nu,) nearest to the length, for servos of a rotation."""
    layout = model.actuators.layout
    if not layout.wraps.any():
        return setpoint
    site = np.array([kind == "site" for kind in layout.transmission])[:, None]
    gear = model.actuators.gear
    period = 2 * np.pi * spatial.safe_norm(jnp.where(site, gear[:, 3:], gear[:, :3]))
    turns = jnp.round((setpoint - length) / jnp.where(period == 0, 1.0, period))
    return setpoint - jnp.where(layout.wraps, period * turns, 0.0)


def _owners(model: Model) -> np.ndarray:
    """Actuator (na,) of each activation."""
    layout = model.actuators.layout
    owner = np.nonzero(layout.act >= 0)[0]
    return owner[np.argsort(layout.act[owner])]


def activation_rate(model: Model, act: Array, ctrl: Array) -> Array:
    """Rate of the activations (na,): integrator, first-order filter of the control, or a muscle's; none if off."""
    owner = _owners(model)
    if not len(owner):
        return jnp.zeros_like(act)
    kinds = np.array([model.actuators.layout.dynamics[k] for k in owner])
    filters, muscles = np.isin(kinds, ("filter", "filterexact")), kinds == "muscle"
    tau = jnp.where(filters, model.actuators.time_constant[owner], 1.0)
    # a filter takes the short way round
    target = _unwind(model, ctrl, _by_actuator(model, act))[owner]
    rate = jnp.where(filters, (target - act) / tau, ctrl[owner])
    if muscles.any():
        rate = jnp.where(muscles, muscle_rate(ctrl[owner], act, model.actuators.muscle_time[owner]), rate)
    off = model.actuators.layout.off[owner]
    return jnp.where(off, 0.0, rate) if off.any() else rate


def next_activation(model: Model, act: Array, act_dot: Array) -> Array:
    """Activations (na,) one time step later, within their ranges; exact for filterexact."""
    layout, h = model.actuators.layout, model.options.timestep
    owner = _owners(model)
    if not len(owner) or "actuation" in model.options.layout.disabled:
        return act
    exact = np.array([layout.dynamics[k] == "filterexact" for k in owner])
    tau = jnp.where(exact, model.actuators.time_constant[owner], 1.0)
    return clamp_activation(model, act + act_dot * jnp.where(exact, -tau * jnp.expm1(-h / tau), h))


def hold_activation(model: Model, act: Array, rate: Array) -> Array:
    """The rate (na,) of activations in continuous time: zero where it would leave their ranges."""
    owner = _owners(model)
    limited = model.actuators.layout.act_limited[owner]
    if not limited.any():
        return rate
    low, high = model.actuators.act_range[owner].T
    leaving = ((act <= low) & (rate < 0)) | ((act >= high) & (rate > 0))
    return jnp.where(limited & leaving, 0.0, rate)


def clamp_activation(model: Model, act: Array) -> Array:
    """Activations (na,) within their ranges."""
    owner = _owners(model)
    limited = model.actuators.layout.act_limited[owner]
    if not limited.any():
        return act
    low, high = model.actuators.act_range[owner].T
    return jnp.where(limited, jnp.clip(_number(act), low, high), act)


def wrap_activation(model: Model, act: Array, length: Array | None) -> Array:
    """Stored setpoints (na,) of wrapping servos moved to the turn nearest to the length; None where none wraps."""
    if length is None:
        return act
    owner = _owners(model)
    return _unwind(model, _by_actuator(model, act), length)[owner]


def _by_actuator(model: Model, act: Array) -> Array:
    """Activations (na,) as an array over actuators (nu,), zero for stateless ones."""
    index = model.actuators.layout.act
    return jnp.where(index >= 0, act[np.maximum(index, 0)], 0.0)


# ---- passive and applied forces ------------------------------------------------------------------------------------


class Passive(NamedTuple):
    """Forces of springs, dampers, gravity compensation and the fluid."""

    qfrc: Array  # (nv,)
    held: Array  # (nv,) gravity compensation that counts as actuator force


def passive(model: Model, kin: Kinematics, q: Array, v: Array) -> Passive:
    """Passive forces at (q, v)."""
    joints, disabled = model.joints, model.options.layout.disabled
    zero = jnp.zeros_like(v)
    if "spring" in disabled and "damper" in disabled:  # MuJoCo then leaves out all passive forces
        return Passive(zero, zero)
    qfrc = zero
    if joints.layout.springs and "spring" not in disabled:
        qfrc = qfrc - spring_pull(model, _stretch(model, q))
    if are_joints_damped(model) and "damper" not in disabled:
        qfrc = qfrc - joint_drag(model, v)
    if is_elastic(model):
        length, moment = tendon_lengths(model, kin, q)
        qfrc = qfrc + tendon_pull(model, length, moment @ v) @ moment
    if model.options.layout.fluid:
        qfrc = qfrc + fluid_force(model, kin, v)
    if not model.bodies.layout.compensated or "gravity" in disabled:
        return Passive(qfrc, zero)
    lift = -(model.bodies.mass * model.bodies.gravcomp)[:, None] * gravity(model)[3:]
    held = body_wrench(model, kin, jnp.concatenate([lift, jnp.zeros_like(lift)], -1))
    actuated = joints.layout.actuated_gravcomp[model.tree.dof_joint]
    return Passive(qfrc + jnp.where(actuated, 0.0, held), jnp.where(actuated, held, 0.0))


def passive_slope(model: Model, kin: Kinematics, v: Array, *, symmetric: bool = False) -> Array:
    """∂(passive forces)/∂v (nv, nv): what implicit integrators treat implicitly; `symmetric`, see `fluid_slope`."""
    disabled = model.options.layout.disabled
    slope = jnp.zeros((model.nv, model.nv), v.dtype)
    if "damper" not in disabled:
        slope = slope - jnp.diag(joint_resistance(model, v))
        if are_tendons_damped(model):
            moment = tendon_moments(model, kin)
            slope = slope - (moment.T * tendon_resistance(model, moment @ v)) @ moment
    if model.options.layout.fluid and not ("spring" in disabled and "damper" in disabled):
        slope = slope + fluid_slope(model, kin, v, symmetric=symmetric)
    return slope


def _stretch(model: Model, q: Array) -> Array:
    """How far springs (nv,) are from rest."""
    return difference(model.tree, q, model.joints.qpos_spring, turned=model.joints.layout.turning_springs)


def spring_energy(model: Model, kin: Kinematics, q: Array) -> Array:
    """Potential energy of the springs of joints and tendons [J]."""
    energy = jnp.zeros((), q.dtype)
    if "spring" in model.options.layout.disabled:
        return energy
    if model.joints.layout.springs:
        energy = energy + spring_potential(model, _stretch(model, q)).sum()
    if model.tendons.layout.springs:
        energy = energy + tendon_energy(model, tendon_lengths(model, kin, q).length)
    return energy


def body_wrench(model: Model, kin: Kinematics, xfrc: Array) -> Array:
    """Generalised force (nv,) of forces and torques (nb, 6) at the bodies' centres of mass, in world axes."""
    force, torque = xfrc[:, :3], xfrc[:, 3:]
    arm = kin.com - pick_rows(kin.ref, model.tree.body_tree)
    wrench = jnp.concatenate([torque + spatial.cross(arm, force), force], -1)
    return (kin.S * mix(model.tree.moves.T, wrench)).sum(-1)


def applied(model: Model, kin: Kinematics, inputs: Input, like: Array) -> Array:
    """Generalised force (nv,) of the inputs qfrc and xfrc."""
    out = jnp.zeros_like(like) if inputs.qfrc is None else inputs.qfrc
    return out if inputs.xfrc is None else out + body_wrench(model, kin, inputs.xfrc)
