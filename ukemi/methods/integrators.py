"""Time integrators of the soft law: from forward dynamics to the next positions, velocities and activations.

Each takes `forward(model, state, inputs)` and returns the moved state with the forward dynamics of the step's
beginning. All but RK4 use v⁺ = v + h M̂⁻¹ (τ + Jᵀf) with M̂ = M − h D (MuJoCo, eq. 6) and differ in D.
"""

from typing import NamedTuple, cast

import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax import Array, lax

from ukemi import spatial
from ukemi.dynamics import bias_slope
from ukemi.forces import next_activation, passive_slope, wrap_activation
from ukemi.kinematics import integrate
from ukemi.model import Cache, Input, Model, State


class Moved(NamedTuple):
    """Positions, velocities and activations one step later."""

    q: Array
    v: Array
    act: Array


def euler(forward, model: Model, state: State, inputs: Input):
    """Semi-implicit Euler; joint damping is taken implicitly."""
    now = forward(model, state, inputs)
    disabled = model.options.layout.disabled
    if model.joints.layout.damped and "eulerdamp" not in disabled and "damper" not in disabled:
        h = model.options.timestep
        M_hat = now.smooth.M + h * jnp.diag(model.joints.damping)
        return _advance(model, state, now, _solve_symmetric(M_hat, total_force(now))), now
    return _advance(model, state, now, now.solution.acceleration), now


def implicitfast(forward, model: Model, state: State, inputs: Input):
    """Implicit in the velocity of passive and actuator forces, and of the bias force of bodies that float alone."""
    now = forward(model, state, inputs)
    h = model.options.timestep
    M_hat = now.smooth.M - h * _force_slope(model, now, state.v)
    force = total_force(now)
    acceleration = _solve_symmetric(M_hat, force)
    if len(model.bodies.layout.free):
        dofs = jnp.asarray(_free_dofs(model))
        block = (M_hat + h * bias_slope(model, now.kin, now.smooth.velocity))[dofs[:, :, None], dofs[:, None, :]]
        acceleration = acceleration.at[dofs].set(jnp.linalg.solve(block, force[dofs][..., None])[..., 0])
    return _advance(model, state, now, acceleration), now


def implicit(forward, model: Model, state: State, inputs: Input):
    """Implicit in the velocity of all forces but those of constraints."""
    now = forward(model, state, inputs)
    slope = _force_slope(model, now, state.v) - bias_slope(model, now.kin, now.smooth.velocity)
    M_hat = now.smooth.M - model.options.timestep * slope
    return _advance(model, state, now, jnp.linalg.solve(M_hat, total_force(now))), now


def runge_kutta(forward, model: Model, state: State, inputs: Input):
    """Classic fourth-order Runge–Kutta; rotations by Munthe-Kaas, so that they keep the order."""
    h, tree = model.options.timestep, model.tree
    now = forward(model, state, inputs)
    stages = [(state.v, now.solution.acceleration, now.actuation.act_dot)]
    for weight in (0.5, 0.5, 1.0):
        u, a, w = stages[-1]
        shift = h * weight * u
        q = integrate(tree, state.q, weight * u, h)
        v = state.v + h * weight * a
        there = State(q, v, state.act + h * weight * w, state.time, state.status, state.cache)
        cache = Cache(acceleration=stages[-1][1], iterations=state.cache.iterations)
        then = forward(model, State(q, v, there.act, there.time, there.status, cache), inputs)
        stages.append((_pull_back(model, shift, v), then.solution.acceleration, then.actuation.act_dot))
    weights = (1 / 6, 1 / 3, 1 / 3, 1 / 6)
    rates = [cast(Array, sum(b * s[k] for b, s in zip(weights, stages, strict=True))) for k in range(3)]
    act = next_activation(model, state.act, rates[2])
    act = wrap_activation(model, act, now.actuation.length)
    return Moved(integrate(tree, state.q, rates[0], h), state.v + h * rates[1], act), now


def _pull_back(model: Model, shift: Array, v: Array) -> Array:
    """Velocity at the configuration `shift` away, as a tangent vector at the start: dexp⁻¹ on each rotation.

    For right perturbations dexp⁻¹_u(ω) = ω + ½ u×ω + (1 − ½θ cot ½θ)/θ² u×(u×ω), θ = |u|.
    """
    tree = model.tree
    if not len(tree.quat_joints):
        return v
    u, w = shift[tree.quat_dof], v[tree.quat_dof]
    square = (u * u).sum(-1, keepdims=True)
    small = square < 0.01
    angle = jnp.sqrt(jnp.where(small, 1.0, square))
    series = 1 / 12 + square * (1 / 720 + square * (1 / 30240 + square / 1209600))
    factor = jnp.where(small, series, (1 - 0.5 * angle / jnp.tan(0.5 * angle)) / angle**2)
    turn = spatial.cross(u, w)
    return v.at[tree.quat_dof].set(w + 0.5 * turn + factor * spatial.cross(u, turn))


INTEGRATORS = {"Euler": euler, "implicitfast": implicitfast, "implicit": implicit, "RK4": runge_kutta}


# ---- parts ----------------------------------------------------------------------------------------------------


def total_force(now) -> Array:
    """All generalised forces less the bias: τ + Jᵀ f."""
    return now.tau + now.solution.pull


def _solve_symmetric(matrix: Array, rhs: Array) -> Array:
    return jsl.cho_solve((lax.linalg.cholesky(matrix, symmetrize_input=False), True), rhs)


def _force_slope(model: Model, now, v: Array) -> Array:
    """D = ∂(passive and actuator forces)/∂v, restricted to dofs that M couples."""
    drive, tree = now.actuation, model.tree
    related = tree.anc | tree.anc.T
    D = (drive.moment.T * drive.slope) @ drive.moment + passive_slope(model, now.kin, v)
    return jnp.where(related, D, 0.0)


def _free_dofs(model: Model) -> np.ndarray:
    """(n, 6) dofs of the bodies that float alone."""
    joints = model.tree.slots[model.bodies.layout.free, 0]
    return model.tree.joint_dof[joints][:, None] + np.arange(6)


def _advance(model: Model, state: State, now, acceleration: Array) -> Moved:
    h = model.options.timestep
    v = state.v + h * acceleration
    act = next_activation(model, state.act, now.actuation.act_dot)
    act = wrap_activation(model, act, now.actuation.length)
    return Moved(integrate(model.tree, state.q, v, h), v, act)
