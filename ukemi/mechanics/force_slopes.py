"""Dense derivatives in closed form of the forces that are not constraints."""

from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial
from ukemi.maths.gathers import pick
from ukemi.mechanics.delays import arriving, late_slopes, present
from ukemi.mechanics.forces import actuator_force, cut, saturated
from ukemi.mechanics.kinematics import Kinematics, difference
from ukemi.mechanics.plasticity import yields
from ukemi.mechanics.reflected import are_joints_damped, are_tendons_damped
from ukemi.mechanics.springs import joint_resistance, spring_stiffness, thickens
from ukemi.mechanics.tendons.paths import Lengths, Strung, lengths_of, strings
from ukemi.mechanics.tendons.slopes import (
    Turns,
    force_slopes_of_strings,
    pull_of_strings,
    turns,
    velocity_slopes,
)
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


def force_slopes(
    model: Model, kin, q: Array, v: Array, act: Array, ctrl: Array, tendons: Strung | None = None
) -> ForceSlopes:
    """Slopes of actuators of hinges, slides and tendons, and of springs and dampers; tendons: where known."""
    joints, disabled, nv = model.joints, model.options.layout.disabled, model.nv
    spring = damper = jnp.zeros((nv, nv), v.dtype)
    if joints.layout.springs and "spring" not in disabled:
        spring = _spring_slope(model, q)
    if are_joints_damped(model) and "damper" not in disabled:
        damper = -jnp.diag(joint_resistance(model, v))
    per_act, per_ctrl = (jnp.zeros((nv, n), v.dtype) for n in (model.na, model.nu))
    found = _Strings.of(model, kin, q, v, tendons)
    if found is not None and is_elastic(model):
        moment, (force, per_length, per_velocity) = found.lengths.moment, found.elastic(model)
        spring = spring + moment.T @ (per_length[:, None] * moment + per_velocity[:, None] * found.bent)
        spring = spring + force_slopes_of_strings(model, found.turns, force)
        damper = damper + (moment.T * per_velocity) @ moment
    if model.actuators.layout.count and "actuation" not in disabled:
        drive = _drive(model, kin, q, v, act, ctrl, 0, found)
        moment, force, per_length, per_velocity = drive[:4]
        stuck = cut(model, force @ moment)
        felt = jnp.where(stuck, 0.0, moment)
        if found is None:
            spring, damper = (x + on_joints(model, felt, y) for x, y in ((spring, per_length), (damper, per_velocity)))
        else:
            bent = found.of_actuators(model, found.bent)
            spring = spring + felt.T @ (per_length[:, None] * moment + per_velocity[:, None] * bent)
            turned = force_slopes_of_strings(model, found.turns, found.on_tendons(model, force))
            spring = spring + jnp.where(stuck[:, None], 0.0, turned)
            damper = damper + (felt.T * per_velocity) @ moment
        per_act, per_ctrl = drive.in_signals(model, felt.T)
    return ForceSlopes(spring, damper, per_act, per_ctrl)


def force_pull(
    model: Model, kin, q: Array, v: Array, act: Array, ctrl: Array, w: Array, tendons: Strung | None = None
) -> ForceSlopes:
    """wᵀ times the same (nv,), (nv,), (na,), (nu,), without matrices of dofs by dofs where moment arms turn:
    wᵀ ∂(mᵀ f)/∂q = fᵀ ∂(m w)/∂q. Of models that have turning forces.
    """
    joints, disabled = model.joints, model.options.layout.disabled
    along_q, along_v = jnp.zeros_like(v), jnp.zeros_like(v)
    if joints.layout.springs and "spring" not in disabled:
        along_q = w @ _spring_slope(model, q)
    if are_joints_damped(model) and "damper" not in disabled:
        along_v = -joint_resistance(model, v) * w
    found, turning = cast(_Strings, _Strings.of(model, kin, q, v, tendons)), []
    if is_elastic(model):
        force, per_length, per_velocity = found.elastic(model)
        moment, moved = found.lengths.moment, found.lengths.moment @ w
        turning += [(moved * per_velocity, v), (force, w)]
        along_q = along_q + (moved * per_length) @ moment
        along_v = along_v + (moved * per_velocity) @ moment
    in_signals = jnp.zeros_like(act), jnp.zeros_like(ctrl)
    if model.actuators.layout.count and "actuation" not in disabled:
        drive = _drive(model, kin, q, v, act, ctrl, 0, found)
        moment, force, per_length, per_velocity = drive[:4]
        if joints.layout.force_limited.any():
            w = jnp.where(cut(model, force @ moment), 0.0, w)
        moved = moment @ w
        turning += [(found.on_tendons(model, moved * per_velocity), v), (found.on_tendons(model, force), w)]
        along_q = along_q + (moved * per_length) @ moment
        along_v = along_v + (moved * per_velocity) @ moment
        in_signals = (x[0] for x in drive.in_signals(model, moved[None]))
    return ForceSlopes(along_q + pull_of_strings(model, found.turns, turning), along_v, *in_signals)


class _Strings(NamedTuple):
    """Tendons at a state, and how their velocities follow positions."""

    lengths: Lengths
    turns: Turns
    v: Array
    bent: Array  # (nt, nv) ∂(moment v)/∂q

    @staticmethod
    def of(model: Model, kin: Kinematics, q: Array, v: Array, tendons: Strung | None) -> "_Strings | None":
        """None where no force acts along tendons."""
        if not acts_along_tendons(model):
            return None
        parts = strings(model, kin, tendons and tendons.ways)
        lengths = tendons.lengths if tendons else lengths_of(model, kin, q, parts)
        found = turns(model, kin, parts)
        return _Strings(lengths, found, v, velocity_slopes(model, found, v))

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

    def on_tendons(self, model: Model, force: Array) -> Array:
        """What forces of actuators (nu,) are along tendons (nt,)."""
        own = pulled_tendon(model.actuators.layout) == np.arange(len(self.bent))[:, None]
        return own @ (force * model.actuators.gear[:, 0])


def damping_slopes(model: Model, kin, q: Array, v: Array, act: Array, ctrl: Array, e: Array) -> ForceSlopes:
    """Slopes of D e (nv,), with D the forces' own slope in velocity: that of actuators depends on what their gain
    multiplies alone, that of joints' dampers is constant.

    `forces.actuation` has D: nothing of actuators of joints at their limit.
    """
    still, per_act, per_ctrl = (jnp.zeros((model.nv, n), e.dtype) for n in (model.nv, model.na, model.nu))
    if model.actuators.layout.count and "actuation" not in model.options.layout.disabled:
        drive = _drive(model, kin, q, v, act, ctrl, 1, None)
        moment = jnp.where(saturated(model, drive.force @ drive.moment), 0.0, drive.moment)
        per_act, per_ctrl = drive.in_signals(model, (moment**2 * e).T)
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


def _drive(model: Model, kin, q: Array, v: Array, act: Array, ctrl: Array, which: int, found: _Strings | None):
    """`_Actuators`, whose lengths are those of tendons that were found, if any."""
    at = transmission(model, kin, q, lengths=found and found.lengths)
    return _Actuators.of(model, at, act, ctrl, v, which)


class _Actuators(NamedTuple):
    """Actuators of joints and tendons, of which each looks at what is its own alone, and slopes of their forces, or of
    these forces' slopes in velocity.
    """

    moment: Array  # (n, nv)
    force: Array  # (n,)
    per_length: Array  # (n,)
    per_velocity: Array  # (n,)
    per_act: Array  # (na,) of its actuator's, each activation but the past
    per_ctrl: Array  # (nu,) and each control that has arrived

    @staticmethod
    def of(model: Model, at: tuple, act: Array, ctrl: Array, v: Array, which: int) -> "_Actuators":
        """at: lengths and moments; which: 0 for forces, 1 for their slopes in velocity."""
        (length, moment), layout = at, model.actuators.layout
        values = length, moment @ v, present(model, act), arriving(model, act, ctrl)
        owners = layout.owner, layout.commanded
        ways = [(0, np.ones(layout.count, bool)), (1, np.ones(layout.count, bool))]
        # of several that one actuator has, one after the other; all actuators at once
        turns = [_turns(owner) for owner in owners]
        ways += [(2 + k, turn == p) for k, turn in enumerate(turns) for p in range(max(turn, default=-1) + 1)]
        along = (np.array([way if k == i else np.zeros(x.shape) for i, way in ways]) for k, x in enumerate(values))
        along = tuple(jnp.asarray(x, v.dtype) for x in along)

        def change(*way):
            return jax.jvp(lambda *x: actuator_force(model, *x)[which], values, way)[1]

        changes = iter(jax.vmap(change)(*along))
        slopes, signals = [next(changes), next(changes)], []
        for owner, turn in zip(owners, turns, strict=True):
            each = [jnp.where(turn == p, pick(next(changes), owner), 0.0) for p in range(max(turn, default=-1) + 1)]
            signals.append(sum(each) if each else jnp.zeros(0, v.dtype))
        return _Actuators(moment, actuator_force(model, *values)[0], *slopes, *signals)

    def in_signals(self, model: Model, weight: Array) -> tuple[Array, Array]:
        """weight (k, n) times slopes: (k, na) in activations and (k, nu) in controls, which may arrive late."""
        layout = model.actuators.layout
        past, given = late_slopes(model, pick(weight, layout.commanded) * self.per_ctrl)
        return jnp.concatenate([pick(weight, layout.owner) * self.per_act, past], -1), given


def _turns(owner: np.ndarray) -> np.ndarray:
    """Which of its owner's (n,) each is, from 0 on."""
    same = owner[:, None] == owner
    return (same & np.tri(len(owner), k=-1, dtype=bool)).sum(1)
