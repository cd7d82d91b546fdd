"""Forces that are not constraints: actuators, springs, dampers, gravity compensation, applied wrenches."""

from typing import NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial
from ukemi.maths.gathers import mix, pick, pick_rows
from ukemi.mechanics.dynamics import gravity
from ukemi.mechanics.fluid import fluid_force, fluid_slope
from ukemi.mechanics.kinematics import Kinematics, difference, point_jacobian, site_frames
from ukemi.model.records import Input, Model
from ukemi.model.tree import BALL, FREE

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


def actuation(model: Model, kin: Kinematics, q: Array, v: Array, act: Array, ctrl: Array, held: Array) -> Actuation:
    """Actuator forces; `held` (nv,) is gravity compensation that counts as actuator force."""
    disabled = model.options.layout.disabled
    if not model.nu:  # MuJoCo then leaves out `held`, too
        none, empty = jnp.zeros(0, q.dtype), jnp.zeros((0, model.nv), q.dtype)
        return Actuation(none, none, none, empty, jnp.zeros_like(act), jnp.zeros_like(v), none)
    length, moment = transmission(model, kin, q)
    velocity = moment @ v
    if "actuation" in disabled:
        none = jnp.zeros_like(length)
        return Actuation(length, velocity, none, moment, jnp.zeros_like(act), jnp.zeros_like(v), none)
    force, slope, act_dot = actuator_force(model, length, velocity, act, ctrl)
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
    force, slope = gain * signal + bias, actuators.gain[:, 2] * signal + actuators.bias[:, 2]
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
    joint = np.where(np.array(layout.transmission) == "site", -1, layout.target[:, 0])
    return joint[:, None] == model.tree.dof_joint


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
    """Rate of the activations (na,): integrator, or first-order filter of the control."""
    owner = _owners(model)
    if not len(owner):
        return jnp.zeros_like(act)
    filters = np.array([model.actuators.layout.dynamics[k] != "integrator" for k in owner])
    tau = jnp.where(filters, model.actuators.time_constant[owner], 1.0)
    # a filter takes the short way round
    target = _unwind(model, ctrl, _by_actuator(model, act))[owner]
    return jnp.where(filters, (target - act) / tau, ctrl[owner])


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


# ---- transmissions -----------------------------------------------------------------------------------------


def transmission(model: Model, kin: Kinematics, q: Array) -> tuple[Array, Array]:
    """Length (nu,) and moment (nu, nv) of every actuator."""
    layout, tree = model.actuators.layout, model.tree
    kinds = np.array(layout.transmission)
    target = np.where(kinds == "site", 0, layout.target[:, 0])
    joint_type = tree.joint_type[target] if tree.nj else np.zeros(model.nu, int)
    classes = [
        (_scalar_transmission, (kinds != "site") & (joint_type != FREE) & (joint_type != BALL)),
        (_ball_transmission, (kinds != "site") & (joint_type == BALL)),
        (_free_transmission, (kinds != "site") & (joint_type == FREE)),
        (_site_transmission, (kinds == "site") & (layout.target[:, 1] < 0)),
        (_relative_transmission, (kinds == "site") & (layout.target[:, 1] >= 0)),
    ]
    parts, order = [], []
    for function, mask in classes:
        index = np.nonzero(mask)[0]
        if len(index):
            parts.append(function(model, kin, q, index))
            order.append(index)
    back = np.argsort(np.concatenate(order))
    length, moment = (jnp.concatenate(part) for part in zip(*parts, strict=True))
    return (length, moment) if (back == np.arange(len(back))).all() else (length[back], moment[back])


def acts_on_joints(model: Model) -> bool:
    """Whether all actuators drive hinges or slides, whose moments are constant."""
    layout = model.actuators.layout
    if "site" in layout.transmission:
        return False
    return not model.nu or not np.isin(model.tree.joint_type[layout.target[:, 0]], (FREE, BALL)).any()


def on_joints(model: Model, moment: Array, slope: Array) -> Array:
    """momentᵀ diag(slope) moment (nv, nv); on hinges and slides, of which each is one dof, a diagonal."""
    if acts_on_joints(model):
        return jnp.diag((moment**2 * slope[:, None]).sum(0))
    return (moment.T * slope) @ moment


def _select(model: Model, index: np.ndarray, offset: int = 0) -> np.ndarray:
    """One-hot rows (n, nv) of the first dof of each actuator's joint, plus an offset."""
    dof = model.tree.joint_dof[model.actuators.layout.target[index, 0]] + offset
    return np.arange(model.nv) == dof[:, None]


def _scalar_transmission(model: Model, kin, q: Array, index: np.ndarray) -> tuple[Array, Array]:
    gear = model.actuators.gear[index, 0]
    adr = model.tree.joint_qpos[model.actuators.layout.target[index, 0]]
    return pick(q, adr) * gear, gear[:, None] * _select(model, index)


def _in_parent(model: Model, index: np.ndarray) -> np.ndarray:
    return np.array([model.actuators.layout.transmission[k] == "jointinparent" for k in index])[:, None]


def _ball_transmission(model: Model, kin, q: Array, index: np.ndarray) -> tuple[Array, Array]:
    adr = model.tree.joint_qpos[model.actuators.layout.target[index, 0]]
    quat = spatial.quat_normalize(q[adr[:, None] + np.arange(4)])
    gear = model.actuators.gear[index, :3]
    axis = jnp.where(_in_parent(model, index), spatial.rotate(spatial.quat_conj(quat), gear), gear)
    moment = cast(Array, sum(axis[:, k, None] * _select(model, index, k) for k in range(3)))
    return (spatial.quat_log(quat) * axis).sum(-1), moment


def _free_transmission(model: Model, kin, q: Array, index: np.ndarray) -> tuple[Array, Array]:
    adr = model.tree.joint_qpos[model.actuators.layout.target[index, 0]] + 3
    quat = spatial.quat_normalize(q[adr[:, None] + np.arange(4)])
    gear = model.actuators.gear[index]
    turn = jnp.where(_in_parent(model, index), spatial.rotate(spatial.quat_conj(quat), gear[:, 3:]), gear[:, 3:])
    axis = jnp.concatenate([gear[:, :3], turn], -1)
    moment = cast(Array, sum(axis[:, k, None] * _select(model, index, k) for k in range(6)))
    return jnp.zeros(len(index), q.dtype), moment  # a free joint has no meaningful length


def _site_transmission(model: Model, kin: Kinematics, q: Array, index: np.ndarray) -> tuple[Array, Array]:
    """Wrench fixed to a site, as of jets and propellers."""
    site = model.actuators.layout.target[index, 0]
    pos, quat = site_frames(model, kin)
    gear = model.actuators.gear[index]
    force, torque = spatial.rotate(quat[site], gear[:, :3]), spatial.rotate(quat[site], gear[:, 3:])
    J = point_jacobian(model.tree, kin, model.sites.layout.body[site], pos[site])
    return jnp.zeros(len(index), q.dtype), jnp.einsum("nkv,nk->nv", J, jnp.concatenate([torque, force], -1))


def _relative_transmission(model: Model, kin: Kinematics, q: Array, index: np.ndarray) -> tuple[Array, Array]:
    """Pose of a site in the frame of a reference site, projected on the gear."""
    site, base = model.actuators.layout.target[index].T
    pos, quat = site_frames(model, kin)
    body = model.sites.layout.body
    gear = model.actuators.gear[index]
    apart = spatial.rotate(spatial.quat_conj(quat[base]), pos[site] - pos[base])
    angle = spatial.quat_sub(quat[site], quat[base])
    wrench = jnp.concatenate([spatial.rotate(quat[base], gear[:, 3:]), spatial.rotate(quat[base], gear[:, :3])], -1)
    shared = (model.tree.moves[body[site]] & model.tree.moves[body[base]])[:, None]
    J = point_jacobian(model.tree, kin, body[site], pos[site]) - point_jacobian(model.tree, kin, body[base], pos[base])
    moment = jnp.einsum("nkv,nk->nv", jnp.where(shared, 0.0, J), wrench)
    return (apart * gear[:, :3]).sum(-1) + (angle * gear[:, 3:]).sum(-1), moment


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
        qfrc = qfrc - joints.stiffness[model.tree.dof_joint] * _stretch(model, q)
    if joints.layout.damped and "damper" not in disabled:
        qfrc = qfrc - joints.damping * v
    if model.options.layout.fluid:
        qfrc = qfrc + fluid_force(model, kin, v)
    if not model.bodies.layout.compensated or "gravity" in disabled:
        return Passive(qfrc, zero)
    lift = -(model.bodies.mass * model.bodies.gravcomp)[:, None] * gravity(model)[3:]
    held = body_wrench(model, kin, jnp.concatenate([lift, jnp.zeros_like(lift)], -1))
    actuated = joints.layout.actuated_gravcomp[model.tree.dof_joint]
    return Passive(qfrc + jnp.where(actuated, 0.0, held), jnp.where(actuated, held, 0.0))


def passive_slope(model: Model, kin: Kinematics, v: Array) -> Array:
    """∂(passive forces)/∂v (nv, nv): what the implicit integrators treat implicitly."""
    disabled = model.options.layout.disabled
    slope = jnp.zeros((model.nv, model.nv), v.dtype)
    if "damper" not in disabled:
        slope = slope - jnp.diag(model.joints.damping)
    if model.options.layout.fluid and not ("spring" in disabled and "damper" in disabled):
        slope = slope + fluid_slope(model, kin, v)
    return slope


def _stretch(model: Model, q: Array) -> Array:
    """How far springs (nv,) are from rest."""
    return difference(model.tree, q, model.joints.qpos_spring, turned=model.joints.layout.turning_springs)


def spring_energy(model: Model, q: Array) -> Array:
    """Potential energy of the joint springs [J]."""
    if not model.joints.layout.springs or "spring" in model.options.layout.disabled:
        return jnp.zeros((), q.dtype)
    return 0.5 * (model.joints.stiffness[model.tree.dof_joint] * _stretch(model, q) ** 2).sum()


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
