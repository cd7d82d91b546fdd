"""Time integrators of the soft law: from the acceleration to the next positions, velocities and activations.

All but RK4 use v⁺ = v + h e, M̂ e = M a, with M̂ = M − h D (MuJoCo, eq. 6), and differ in the slope D of the forces
that they take implicitly: Euler the joints' damping, implicitfast also the actuators', the fluid's and the bias force
of bodies that float alone, implicit all but the constraints'.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.implicit.rule import isolated
from ukemi.maths import spatial
from ukemi.maths.gathers import pick, placed
from ukemi.maths.systems import eliminate, solve
from ukemi.mechanics.activations import (
    Activity,
    activation_motion,
    follow_alone,
    follows_motion,
    hold_activation,
    next_activation,
    wrap_activation,
)
from ukemi.mechanics.delays import foreseen, joined, past, present, remembered
from ukemi.mechanics.dynamics import bias_slope
from ukemi.mechanics.forces import Actuation, passive_slope
from ukemi.mechanics.kinematics import (
    Kinematics,
    Velocities,
    carry,
    coordinate_rate,
    integrate,
    of_state,
)
from ukemi.mechanics.plasticity import rests, settled
from ukemi.mechanics.reflected import are_tendons_damped
from ukemi.mechanics.springs import joint_resistance, thickens
from ukemi.mechanics.transmissions import acts_on_joints, on_joints
from ukemi.mechanics.turns import integrate_slopes
from ukemi.model.records import Input, Model, State
from ukemi.xla.stages import compact


class Moved(NamedTuple):
    """Positions, velocities and activations one step later."""

    q: Array
    v: Array
    act: Array


# ---- what is taken implicitly --------------------------------------------------------------------------------


class Slope(NamedTuple):
    """Derivatives of forces in velocity that an integrator takes implicitly: D − C."""

    force: Array  # (nv, nv) D, of passive and actuator forces
    bias: Array | None  # (nv, nv) C, of the bias force


@dataclass(frozen=True)
class Integrator:
    """How accelerations become the next velocities."""

    name: str
    takes_forces: bool = False  # implicitly, slopes of passive and actuator forces; else of the joints' damping alone
    takes_bias: bool = False  # and the slope of the bias force; else of bodies that float alone
    stages: int = 1  # accelerations per step

    def implicit(self, model: Model) -> "Integrator | None":
        """Itself where it differs from explicit use of the acceleration."""
        return self if self.takes_forces or (self.stages == 1 and damps_joints(model)) else None

    def takes_forces_of_joints(self, model: Model) -> bool:
        """Whether what is taken are slopes of passive forces, and of actuators with constant moments, alone."""
        of_joints = acts_on_joints(model) and not are_tendons_damped(model)
        return self.takes_forces and not self.takes_bias and of_joints and not len(model.bodies.layout.free)

    def follows_state(self, model: Model) -> bool:
        """Whether what is taken does; the damping that Euler takes is a parameter, unless it grows with speed."""
        return self.takes_forces or thickens(model)

    def slope(self, model: Model, kin: Kinematics, velocity: Velocities, v: Array, drive: Actuation) -> Slope:
        """Slope of the forces that are taken implicitly."""
        if not self.takes_forces:
            return Slope(-jnp.diag(joint_resistance(model, v)), None)
        related = model.tree.anc | model.tree.anc.T  # dofs that M couples
        D = on_joints(model, drive.moment, drive.slope) + passive_slope(model, kin, v, symmetric=not self.takes_bias)
        D = jnp.where(related, D, 0.0)
        if self.takes_bias:
            return Slope(D, bias_slope(model, kin, velocity))
        if not len(model.bodies.layout.free):
            return Slope(D, None)
        return Slope(D, jnp.where(_free_blocks(model), bias_slope(model, kin, velocity), 0.0))

    def product(self, model: Model, kin: Kinematics, velocity: Velocities, v: Array, drive: Actuation, e: Array):
        """(D − C) e (nv,), for derivatives without matrices where the actuators drive joints."""
        if not self.takes_forces:
            return -joint_resistance(model, v) * e
        if self.takes_forces_of_joints(model):
            return drive.resistance(e) + passive_slope(model, kin, v, symmetric=True) @ e
        slope = self.slope(model, kin, velocity, v, drive)
        return slope.force @ e if slope.bias is None else slope.force @ e - slope.bias @ e

    def solve(self, model: Model, M: Array, slope: Slope, force: Array) -> Array:
        """e with (M − h (D − C)) e = force (nv,)."""
        h = model.options.timestep
        M_hat = M - h * slope.force
        if self.takes_bias:
            return jnp.linalg.solve(M_hat + h * cast(Array, slope.bias), force)
        if slope.bias is None:
            return solve(M_hat, force)
        # blocks of bodies that float alone need be neither symmetric nor definite
        others = jnp.where(_free_blocks(model), M, M_hat)
        out = solve(others, force)
        dofs = jnp.asarray(_free_dofs(model))
        block = (M_hat + h * slope.bias)[dofs[:, :, None], dofs[:, None, :]]
        alone = jnp.linalg.solve(block, force[dofs][..., None])[..., 0]
        return placed(out, _free_dofs(model), alone)

    def solve_transposed(self, model: Model, M: Array, slope: Slope, force: Array) -> Array:
        """u with (M − h (D − C))ᵀ u = force (nv,)."""
        matrix = implicit_matrix(model, M, slope)
        if not self.takes_forces or self.takes_forces_of_joints(model):  # symmetric
            return solve(matrix, force)
        return eliminate(matrix.T, force[:, None])[:, 0]


EULER = Integrator("Euler")
IMPLICITFAST = Integrator("implicitfast", takes_forces=True)
IMPLICIT = Integrator("implicit", takes_forces=True, takes_bias=True)
RUNGE_KUTTA = Integrator("RK4", stages=4)
INTEGRATORS = {each.name: each for each in (EULER, IMPLICITFAST, IMPLICIT, RUNGE_KUTTA)}


def damps_joints(model: Model) -> bool:
    """Whether Euler's method takes the joints' damping implicitly."""
    return model.joints.layout.slowed and not {"eulerdamp", "damper"} & set(model.options.layout.disabled)


def implicit_matrix(model: Model, M: Array, slope: Slope) -> Array:
    """M̂ = M − h (D − C) (nv, nv)."""
    D = slope.force if slope.bias is None else slope.force - slope.bias
    return M - model.options.timestep * D


def _free_dofs(model: Model) -> np.ndarray:
    """(n, 6) dofs of the bodies that float alone."""
    joints = model.tree.slots[model.bodies.layout.free, 0]
    return model.tree.joint_dof[joints][:, None] + np.arange(6)


def _free_blocks(model: Model) -> np.ndarray:
    """(nv, nv) bool: both dofs are of the same of these bodies."""
    mask, dofs = np.zeros((model.nv, model.nv), bool), _free_dofs(model)
    mask[dofs[:, :, None], dofs[:, None, :]] = True
    return mask


# ---- moving on ---------------------------------------------------------------------------------------------------


def advance(model: Model, state: State, motion, inputs: Input) -> Moved:
    """Semi-implicit step with the integrator's own acceleration: velocities first, positions by the new ones."""
    return compact(_advance)(model, state, motion.kin, motion.effective, inputs)


def _advance(model: Model, state: State, kin: Kinematics, acceleration: Array, inputs: Input) -> Moved:
    h = model.options.timestep
    v = spatial.materialize(state.v + h * acceleration)
    q = integrate(model.tree, state.q, v, h)
    return Moved(q, v, moved_activation(model, state, kin, inputs, q))


def moved_activation(model: Model, state: State, kin: Kinematics, inputs: Input, after: Array) -> Array:
    """Activations (na,) one step later, where positions are `after`."""
    moved = _moved_activation(model, state.act, cast(Array, inputs.ctrl), _activity(model, state, kin, inputs))
    return joined(moved, settled(model, rests(model, state.act), kin, state.q, after))


def _moved_activation(model: Model, act: Array, ctrl: Array, moving: Activity) -> Array:
    """All but where springs rest."""
    after = next_activation(model, present(model, act), *moving)
    return joined(wrap_activation(model, after, moving.length), remembered(model, act, ctrl))


def _activity(model: Model, state: State, kin: Kinematics, inputs: Input) -> Activity:
    return activation_motion(model, kin, state.q, state.v, state.act, cast(Array, inputs.ctrl))


def advance_slopes(model: Model, state: State, inputs: Input, rate: Array, change: Array, velocity: Array) -> Array:
    """Derivative (2nv + na, 2nv + na + nu) of a step in state (tangent space) and controls.

    velocity: ∂v⁺ (nv, ·); change: that of the rate (nv,) at which positions move, q⁺ = q ⊕ h rate. On a rotation
    δ⁺ = R(h ω)ᵀ δ + h J_r(h ω) δω.
    """
    # apart from the step: see `implicit.rule.isolated`
    state, rate, change, velocity = spatial.materialize((state, rate, change, velocity))
    return compact(_advance_slopes)(model, state, inputs, rate, change, velocity)


def _advance_slopes(model: Model, state: State, inputs: Input, rate: Array, change: Array, velocity: Array) -> Array:
    h, nv, tree = model.options.timestep, model.nv, model.tree
    carried, turned = integrate_slopes(tree, rate, h)
    position = h * turned.columns(change) + jnp.pad(carried.dense(rate.dtype), ((0, 0), (0, velocity.shape[1] - nv)))
    activation = _activation_slopes(model, state, inputs, velocity.dtype)
    return jnp.concatenate([position, velocity, activation])


def _activation_slopes(model: Model, state: State, inputs: Input, dtype) -> Array:
    """Derivative (na, 2nv + na + nu) of the next activations; few depend on more than activations and controls."""
    if not model.na:
        return jnp.zeros((0, 2 * model.nv + model.nu), dtype)
    follows = follows_motion(model)
    kin = of_state(model, state, inputs) if follows else None

    def next_act(shift, v, act, ctrl):
        there, q = kin, state.q
        if kin is not None:
            there = jax.tree.map(jnp.add, kin, carry(model, kin, shift))
            q = q + coordinate_rate(model.tree, q, shift)
        return _moved_activation(model, act, ctrl, activation_motion(model, there, q, v, act, ctrl))

    at = jnp.zeros_like(state.v), state.v, state.act, cast(Array, inputs.ctrl)
    still = () if follows else (jnp.zeros((model.na, 2 * model.nv), dtype),)
    if follow_alone(model):  # all at once
        one, none = jax.tree.map(jnp.ones_like, at[2:]), jax.tree.map(jnp.zeros_like, at[2:])
        ways = (one[0], none[1]), (none[0], one[1])
        own, given = spatial.materialize([jax.jvp(partial(next_act, *at[:2]), at[2:], way)[1] for way in ways])
        fed = model.actuators.layout.feed[:, None] == np.arange(model.nu)
        slopes = jnp.diag(own), given[:, None] * fed
    else:
        slopes = jax.jacfwd(next_act, argnums=(0, 1, 2, 3) if follows else (2, 3))(*at)
    return jnp.concatenate([*still, *slopes], -1)


def rates(model: Model, state: State, motion, inputs: Input) -> tuple[Array, Array, Array]:
    """F of x' = F(x) in continuous time: rates of coordinates, velocities and activations, held at limits."""
    rate = _activity(model, state, motion.kin, inputs).rate
    held = hold_activation(model, present(model, state.act), rate)
    still = past(model, state.act), rests(model, state.act)  # controls are given at steps, where springs settle, too
    held = joined(held, *(jnp.zeros_like(x) for x in still))
    return coordinate_rate(model.tree, state.q, state.v), motion.acceleration, held


def runge_kutta(accelerate, model: Model, state: State, inputs: Input):
    """Classic fourth-order Runge–Kutta; rotations by Munthe-Kaas, so that they keep the order.

    accelerate: function (model, state, inputs) -> Motion. Returns the moved state and the motion at its beginning.
    """
    h, tree = model.options.timestep, model.tree
    now = accelerate(model, state, inputs)
    moving = _activity(model, state, now.kin, inputs)
    stages = [(state.v, now.acceleration, moving.rate)]
    for weight in (0.5, 0.5, 1.0):
        u, a, w = stages[-1]
        shift = h * weight * u
        q = integrate(tree, state.q, weight * u, h)
        v = state.v + h * weight * a
        cache = replace(state.cache, acceleration=lax.stop_gradient(a))
        act = present(model, state.act) + h * weight * w
        act = joined(act, foreseen(model, state.act, weight), rests(model, state.act))
        there = State(q, v, act, state.time, state.status, cache)
        then = accelerate(model, there, inputs)
        stages.append((_pull_back(model, shift, v), then.acceleration, _activity(model, there, then.kin, inputs).rate))
    weights = (1 / 6, 1 / 3, 1 / 3, 1 / 6)
    rates = [cast(Array, sum(b * s[k] for b, s in zip(weights, stages, strict=True))) for k in range(3)]
    # bristles look at the motion of the first stage, as in MuJoCo
    act = _moved_activation(model, state.act, cast(Array, inputs.ctrl), moving._replace(rate=rates[2]))
    q = integrate(tree, state.q, rates[0], h)
    act = joined(act, settled(model, rests(model, state.act), now.kin, state.q, q))
    return Moved(q, state.v + h * rates[1], act), now


def _pull_back(model: Model, shift: Array, v: Array) -> Array:
    """Velocity at the configuration `shift` away, as a tangent vector at the start: J_r⁻¹ on each rotation."""
    tree = model.tree
    if not len(tree.quat_joints):
        return v
    return isolated(partial(_turn_back, tree))(shift, v)


def _turn_back(tree, shift: Array, v: Array) -> Array:
    turn = spatial.right_jacobian_inverse(spatial.short_way(pick(shift, tree.quat_dof)))
    return placed(v, tree.quat_dof, spatial.apply(turn, pick(v, tree.quat_dof)))
