"""Forces that are not constraints: actuators, springs, dampers, gravity compensation, applied wrenches."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial
from ukemi.maths.gathers import mix, pick, pick_rows, placed, placed_sums, taken
from ukemi.maths.ramps import clamp
from ukemi.mechanics.activations import activation_rate, clamped, next_activation, servo_at, unwind
from ukemi.mechanics.delays import arriving, present
from ukemi.mechanics.dynamics import gravity
from ukemi.mechanics.fluid import fluid_force, fluid_slope
from ukemi.mechanics.kinematics import Kinematics, difference
from ukemi.mechanics.muscles import muscle_bias, muscle_gain, muscles_of
from ukemi.mechanics.orientations import orientation_force, orienting, outputs_of
from ukemi.mechanics.plasticity import at_rest
from ukemi.mechanics.reflected import are_joints_damped, are_tendons_damped
from ukemi.mechanics.servos import rotor_force, servo_force
from ukemi.mechanics.springs import joint_drag, joint_resistance, spring_potential, spring_pull
from ukemi.mechanics.tendons.paths import Lengths, tendon_lengths, tendon_moments
from ukemi.mechanics.tendons.springs import is_elastic, tendon_energy, tendon_pull, tendon_resistance, within
from ukemi.mechanics.transmissions import transmission, turned_joint
from ukemi.model.records import Input, Model

# ---- actuators -----------------------------------------------------------------------------------------------


class Actuation(NamedTuple):
    """What the actuators do; nout counts forces, of which most actuators have one."""

    length: Array  # (nout,) [m] or [rad], times gear
    velocity: Array  # (nout,)
    force: Array  # (nout,) [N] or [N m]
    moment: Array  # (nout, nv) gradient of length
    act_dot: Array  # (na,) rate of the activations
    qfrc: Array  # (nv,) generalised force, within the joints' own limits
    slope: Array  # (nout,) ∂force/∂velocity where no limit is hit: what the implicit integrators treat implicitly

    def resistance(self, x: Array) -> Array:
        """Change (..., nv) of the forces on joints along changes x (..., nv) of the velocity."""
        return ((x @ self.moment.T) * self.slope) @ self.moment


def actuation(
    model: Model,
    kin: Kinematics,
    q: Array,
    v: Array,
    act: Array,
    ctrl: Array,
    held: Array,
    grips: Array | None = None,
    lengths: Lengths | None = None,
) -> Actuation:
    """Actuator forces; `held` (nv,) is gravity compensation that counts as actuator force, `grips` and `lengths`: see
    `transmission`.
    """
    disabled = model.options.layout.disabled
    if not model.actuators.layout.count:  # MuJoCo then leaves out `held`, too
        none, empty = jnp.zeros(0, q.dtype), jnp.zeros((0, model.nv), q.dtype)
        return Actuation(none, none, none, empty, jnp.zeros_like(present(model, act)), jnp.zeros_like(v), none)
    length, moment = transmission(model, kin, q, grips, lengths)
    velocity = moment @ v
    if "actuation" in disabled:
        none = jnp.zeros_like(length)
        return Actuation(length, velocity, none, moment, jnp.zeros_like(present(model, act)), jnp.zeros_like(v), none)
    arrived = arriving(model, act, ctrl)
    force, slope, act_dot = actuator_force(model, length, velocity, present(model, act), arrived)
    qfrc = force @ moment + held
    limited, low, high = _joint_limits(model)
    if limited.any():
        at_limit = saturated(model, qfrc)
        slope = jnp.where((drives(model) & at_limit).any(1), 0.0, slope)
        qfrc = jnp.where(limited, clamp(qfrc, low, high), qfrc)
    return Actuation(length, velocity, force, moment, act_dot, qfrc, slope)


def actuator_force(model: Model, length: Array, velocity: Array, act: Array, ctrl: Array):
    """Force (nout,) of each output, its slope in velocity (nout,), and the rate of the activations, of activations
    without the past and of controls (nu,) that have arrived.
    """
    actuators, layout = model.actuators, model.actuators.layout
    ctrl = clamped(model, ctrl)
    act_dot = activation_rate(model, act, ctrl, length, velocity)
    l, w = pick(length, layout.output), pick(velocity, layout.output)
    after = next_activation(model, act, act_dot, length, velocity)
    signal = _signal(model, l, act, after, ctrl)
    gain = actuators.gain[:, 0] + actuators.gain[:, 1] * l + actuators.gain[:, 2] * w
    bias = actuators.bias[:, 0] + actuators.bias[:, 1] * l + actuators.bias[:, 2] * w
    gain_slope, bias_slope = actuators.gain[:, 2], actuators.bias[:, 2]
    if layout.muscle_gains.any():
        k = np.nonzero(layout.muscle_gains)[0]
        active = muscle_gain(muscles_of(actuators.muscle_gain[k], actuators, k), pick(l, k), pick(w, k))
        gain, gain_slope = placed(gain, k, active[0]), placed(gain_slope, k, active[1])
    if layout.muscle_biases.any():
        k = np.nonzero(layout.muscle_biases)[0]
        bias = placed(bias, k, muscle_bias(muscles_of(actuators.muscle_bias[k], actuators, k), pick(l, k)))
    force, slope = gain * signal + bias, gain_slope * signal + bias_slope
    servos = model.servos.layout.actuator
    if len(servos):
        at = servo_at(model, length, velocity, act, ctrl)
        states = model.servos.layout.states
        driven = servo_force(model, at, taken(after, states), layout.early[servos])
        force, slope = (x + placed_sums(y, servos, len(x)) for x, y in zip((force, slope), driven, strict=True))
    force, slope = _limited(model, force, slope)
    if len(servos):
        free = rotor_force(model, at, taken(act_dot, states))
        free = (jnp.where(layout.off[servos], 0.0, x) for x in free)
        force, slope = (x + placed_sums(y, servos, len(x)) for x, y in zip((force, slope), free, strict=True))
    if len(orienting(layout)):
        early = layout.early[layout.owner]
        turned = orientation_force(model, length, velocity, jnp.where(early, after, act), ctrl)
        outputs = outputs_of(layout)
        force, slope = (placed(pick(x, layout.source), outputs, y) for x, y in zip((force, slope), turned, strict=True))
    return force, slope, act_dot


def _limited(model: Model, force: Array, slope: Array) -> tuple[Array, Array]:
    """Forces (n,) within their limits, those on one tendon within its own first; and their slopes in velocity, none at
    a limit.
    """
    actuators, layout = model.actuators, model.actuators.layout
    if layout.off.any():  # their range, if it leaves zero out, holds all the same
        force, slope = (jnp.where(layout.off, 0.0, x) for x in (force, slope))
    force, slope = within(model, force, slope)
    if layout.force_limited.any():
        low, high = actuators.force_range.T
        slope = jnp.where(layout.force_limited & ((force <= low) | (force >= high)), 0.0, slope)
        force = jnp.where(layout.force_limited, clamp(force, low, high), force)
    return force, slope


def _joint_limits(model: Model) -> tuple[np.ndarray, Array, Array]:
    """Which dofs' joints limit the total actuator force (nv,), and where."""
    joints, own = model.joints, model.tree.dof_joint
    return joints.layout.force_limited[own], *joints.actuator_range[own].T


def saturated(model: Model, qfrc: Array) -> Array:
    """Dofs (nv,) whose total actuator force is at its joint's limit."""
    limited, low, high = _joint_limits(model)
    return ((qfrc <= low) | (qfrc >= high)) & limited


def cut(model: Model, qfrc: Array) -> Array:
    """Dofs (nv,) of which it is beyond that, and a change of it changes nothing."""
    limited, low, high = _joint_limits(model)
    return ((qfrc < low) | (qfrc > high)) & limited


def drives(model: Model) -> np.ndarray:
    """Mask (nout, nv): the actuator's transmission is the joint of this dof."""
    layout = model.actuators.layout
    return turned_joint(layout)[layout.source][:, None] == model.tree.dof_joint


def _signal(model: Model, length: Array, act: Array, after: Array, ctrl: Array) -> Array:
    """What the gain multiplies (n,): control, or activation, on the turn nearest to the length if it wraps."""
    layout = model.actuators.layout
    stateful = layout.act >= 0
    signal = taken(ctrl, layout.ctrl)
    if stateful.any():
        current = taken(act, layout.act)
        if layout.early.any():
            current = jnp.where(layout.early, taken(after, layout.act), current)
        signal = jnp.where(stateful, current, signal)
    return unwind(model, signal, length)


# ---- passive and applied forces ------------------------------------------------------------------------------------


class Passive(NamedTuple):
    """Forces of springs, dampers, gravity compensation and the fluid."""

    qfrc: Array  # (nv,)
    held: Array  # (nv,) gravity compensation that counts as actuator force


def passive(model: Model, kin: Kinematics, q: Array, v: Array, act: Array, lengths: Lengths | None = None) -> Passive:
    """Passive forces at (q, v), of springs that yield where they rest by now (`act`); lengths: of tendons, if known."""
    model = at_rest(model, act)
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
        length, moment = lengths or tendon_lengths(model, kin, q)
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


def spring_energy(model: Model, kin: Kinematics, q: Array, act: Array) -> Array:
    """Potential energy of the springs of joints and tendons [J]."""
    model = at_rest(model, act)
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
