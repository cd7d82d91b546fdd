"""Dense derivatives in closed form of the forces that are not constraints."""

from functools import partial
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial
from ukemi.mechanics.delays import arriving, late_slopes, present
from ukemi.mechanics.forces import actuator_force, saturated
from ukemi.mechanics.kinematics import Kinematics, difference
from ukemi.mechanics.plasticity import yields
from ukemi.mechanics.reflected import are_joints_damped, are_tendons_damped
from ukemi.mechanics.springs import joint_resistance, spring_stiffness, thickens
from ukemi.mechanics.tendons.paths import Lengths, tendon_lengths
from ukemi.mechanics.tendons.slopes import force_slopes_of_strings, velocity_slopes
from ukemi.mechanics.tendons.springs import is_elastic, tendon_pull
from ukemi.mechanics.transmissions import acts_on_joints, at_joints, at_tendons, on_joints, pulled_tendon, transmission
from ukemi.model.records import Model


class ForceSlopes(NamedTuple):
    """Derivatives of generalised forces (nv,)."""

    q: Array  # (nv, nv) tangent space
    v: Array  # (nv, nv)
    act: Array  # (nv, na)
    ctrl: Array  # (nv, nu)


def has_plain_forces(model: Model) -> bool:
    """Whether `force_slopes` covers all forces but applied wrenches: springs, dampers and actuators of joints and of
    tendons.
    """
    layout = model.actuators.layout
    others = acts_on_joints(model, at_joints(layout)) and (at_joints(layout) | at_tendons(layout)).all()
    if yields(model):
        return False
    odd = model.options.layout.fluid or model.bodies.layout.compensated or model.tendons.layout.force_limited.any()
    return bool(others and not odd)


def has_constant_damping(model: Model) -> bool:
    """Whether `damping_slopes` covers all damping: of joints, which it is constant of."""
    steady = not thickens(model) and not are_tendons_damped(model)
    return has_plain_forces(model) and acts_on_joints(model) and steady


def acts_along_tendons(model: Model) -> bool:
    """Whether springs, dampers or actuators act along tendons."""
    return is_elastic(model) or bool(at_tendons(model.actuators.layout).any())


def has_turning_forces(model: Model) -> bool:
    """Whether they act along strings, whose moment arms turn with the joints: what `force_pull` is for."""
    return acts_along_tendons(model) and len(model.tendons.layout.spans) > 0


def force_slopes(model: Model, kin, q: Array, v: Array, act: Array, ctrl: Array) -> ForceSlopes:
    """Slopes of actuators of hinges, slides and tendons, and of springs and dampers."""
    joints, disabled, nv = model.joints, model.options.layout.disabled, model.nv
    spring = damper = jnp.zeros((nv, nv), v.dtype)
    if joints.layout.springs and "spring" not in disabled:
        spring = _spring_slope(model, q)
    if are_joints_damped(model) and "damper" not in disabled:
        damper = -jnp.diag(joint_resistance(model, v))
    per_act, per_ctrl = (jnp.zeros((nv, n), v.dtype) for n in (model.na, model.nu))
    of_strings = _Strings.of(model, kin, q, v)
    if of_strings is not None and is_elastic(model):
        moment, (force, per_length, per_velocity) = of_strings.lengths.moment, of_strings.elastic(model)
        spring = spring + (moment.T * per_length) @ moment + (moment.T * per_velocity) @ of_strings.bent
        spring = spring + force_slopes_of_strings(model, kin, force)
        damper = damper + (moment.T * per_velocity) @ moment
    if model.actuators.layout.count and "actuation" not in disabled:
        moment, force, (per_length, per_velocity, *signal) = _actuator_slopes(model, kin, q, v, act, ctrl, 0)
        stuck = saturated(model, force @ moment)  # joints at their limit feel nothing of actuators
        felt = jnp.where(stuck, 0.0, moment)
        if of_strings is None:
            spring, damper = (x + on_joints(model, felt, y) for x, y in ((spring, per_length), (damper, per_velocity)))
        else:
            bent = of_strings.of_actuators(model, of_strings.bent)
            spring = spring + (felt.T * per_length) @ moment + (felt.T * per_velocity) @ bent
            spring = spring + jnp.where(stuck[:, None], 0.0, of_strings.turning(model, force))
            damper = damper + (felt.T * per_velocity) @ moment
        per_act, per_ctrl = _of_signal(felt, *signal)
    return ForceSlopes(spring, damper, per_act, per_ctrl)


def force_pull(model: Model, kin, q: Array, v: Array, act: Array, ctrl: Array, w: Array) -> ForceSlopes:
    """wᵀ times the same (nv,), (nv,), (na,), (nu,), without matrices of dofs by dofs where moment arms turn:
    wᵀ ∂(mᵀ f)/∂q = fᵀ ∂(m w)/∂q. Of models that have turning forces.
    """
    joints, disabled = model.joints, model.options.layout.disabled
    along_q, along_v = jnp.zeros_like(v), jnp.zeros_like(v)
    if joints.layout.springs and "spring" not in disabled:
        along_q = w @ _spring_slope(model, q)
    if are_joints_damped(model) and "damper" not in disabled:
        along_v = -joint_resistance(model, v) * w
    strings = cast(_Strings, _Strings.of(model, kin, q, v))
    bent = velocity_slopes(model, kin, w)
    if is_elastic(model):
        force, per_length, per_velocity = strings.elastic(model)
        moment, moved = strings.lengths.moment, strings.lengths.moment @ w
        along_q = along_q + (moved * per_length) @ moment + (moved * per_velocity) @ strings.bent + force @ bent
        along_v = along_v + (moved * per_velocity) @ moment
    if not model.actuators.layout.count or "actuation" in disabled:
        return ForceSlopes(along_q, along_v, jnp.zeros_like(act), jnp.zeros_like(ctrl))
    moment, force, (per_length, per_velocity, per_act, per_ctrl) = _actuator_slopes(model, kin, q, v, act, ctrl, 0)
    if joints.layout.force_limited.any():
        w = jnp.where(saturated(model, force @ moment), 0.0, w)
        bent = velocity_slopes(model, kin, w)
    moved, of_actuators = moment @ w, partial(strings.of_actuators, model)
    along_q = along_q + (moved * per_length) @ moment + (moved * per_velocity) @ of_actuators(strings.bent)
    along_q = along_q + force @ of_actuators(bent)
    return ForceSlopes(along_q, along_v + (moved * per_velocity) @ moment, moved @ per_act, moved @ per_ctrl)


class _Strings(NamedTuple):
    """Tendons at a state, and how their velocities follow positions."""

    kin: Kinematics
    lengths: Lengths
    v: Array
    bent: Array  # (nt, nv) ∂(moment v)/∂q

    @staticmethod
    def of(model: Model, kin: Kinematics, q: Array, v: Array) -> "_Strings | None":
        """None where no force acts along tendons."""
        if not acts_along_tendons(model):
            return None
        return _Strings(kin, tendon_lengths(model, kin, q), v, velocity_slopes(model, kin, v))

    def elastic(self, model: Model) -> tuple[Array, Array, Array]:
        """Forces (nt,) of springs and dampers along tendons, and their slopes in length and in velocity."""
        length, velocity = self.lengths.length, self.lengths.moment @ self.v
        one, none = jnp.ones_like(length), jnp.zeros_like(length)
        force, per_length = jax.jvp(lambda *x: tendon_pull(model, *x), (length, velocity), (one, none))
        return force, per_length, jax.jvp(lambda *x: tendon_pull(model, *x), (length, velocity), (none, one))[1]

    def of_actuators(self, model: Model, bent: Array) -> Array:
        """Rows (nu, nv) of actuators, zero of those of joints, from rows (nt, nv) of tendons."""
        tendon = pulled_tendon(model.actuators.layout)
        return jnp.where((tendon >= 0)[:, None], bent[tendon] * model.actuators.gear[:, :1], 0.0)

    def turning(self, model: Model, force: Array) -> Array:
        """∂(momentᵀ force)/∂q (nv, nv) of actuators' forces (nu,) that stay."""
        own = pulled_tendon(model.actuators.layout) == np.arange(len(self.bent))[:, None]
        return force_slopes_of_strings(model, self.kin, own @ (force * model.actuators.gear[:, 0]))


def damping_slopes(model: Model, kin, q: Array, v: Array, act: Array, ctrl: Array, e: Array) -> ForceSlopes:
    """Slopes of D e (nv,), with D the forces' own slope in velocity: that of actuators depends on what their gain
    multiplies alone, that of joints' dampers is constant.

    `forces.actuation` has D: nothing of actuators of joints at their limit.
    """
    still, per_act, per_ctrl = (jnp.zeros((model.nv, n), e.dtype) for n in (model.nv, model.na, model.nu))
    if model.actuators.layout.count and "actuation" not in model.options.layout.disabled:
        moment, force, (_, _, *signal) = _actuator_slopes(model, kin, q, v, act, ctrl, 1)
        moment = jnp.where(saturated(model, force @ moment), 0.0, moment)
        per_act, per_ctrl = _of_signal(moment**2 * e, *signal)
    return ForceSlopes(still, still, per_act, per_ctrl)


def _spring_slope(model: Model, q: Array) -> Array:
    """∂(spring forces)/∂q (nv, nv): of a rotation, stretched by u, with ∂u = J_r(u)⁻¹ δ."""
    tree, stretch = model.tree, np.eye(model.nv, dtype=q.dtype)
    x = difference(tree, q, model.joints.qpos_spring, turned=model.joints.layout.turning_springs)
    if model.joints.layout.turning_springs:
        u = spatial.pick(x, tree.quat_dof)
        stretch = spatial.with_blocks(stretch, tree.quat_dof, spatial.right_jacobian_inverse(u))
    if model.joints.layout.stiffening:
        return -spring_stiffness(model, x) @ stretch
    return -model.joints.stiffness[tree.dof_joint][:, None] * stretch


def _actuator_slopes(model: Model, kin, q: Array, v: Array, act: Array, ctrl: Array, which: int):
    """Moment (n, nv) and force (n,) of actuators of joints and tendons, of which each looks at what is its own alone,
    and slopes of the force (which = 0), or of its own slope in velocity (1), in each actuator's length and velocity
    (n,), in activations (n, na) and in controls (n, nu).
    """
    length, moment = transmission(model, kin, q)
    arrived, layout = arriving(model, act, ctrl), model.actuators.layout
    values = length, moment @ v, present(model, act), arrived

    def change(k: int, direction: Array | np.ndarray) -> Array:
        along = tuple(jnp.asarray(direction, x.dtype) if i == k else jnp.zeros_like(x) for i, x in enumerate(values))
        return jax.jvp(lambda *x: actuator_force(model, *x)[which], values, along)[1]

    def in_each(k: int, owner: np.ndarray) -> Array:
        """Of several that one actuator has, one after the other; all actuators at once."""
        own = owner == np.arange(layout.count)[:, None]
        place = np.where(own, np.cumsum(own, 1), 0).max(0, initial=0)
        out = jnp.zeros(own.shape, v.dtype)
        for p in range(1, place.max(initial=0) + 1):
            out = out + jnp.where(own & (place == p), change(k, place == p)[:, None], 0.0)
        return out

    ones = np.ones(layout.count)
    late, given = late_slopes(model, in_each(3, layout.commanded))
    signal = jnp.concatenate([in_each(2, layout.owner), late], 1), given
    partials = change(0, ones), change(1, ones), *signal
    return moment, actuator_force(model, *values)[0], partials


def _of_signal(moment: Array, per_act: Array, per_ctrl: Array) -> tuple[Array, Array]:
    """Slopes of momentᵀ force in activation (nv, na) and control (nv, nu)."""
    return moment.T @ per_act, moment.T @ per_ctrl
