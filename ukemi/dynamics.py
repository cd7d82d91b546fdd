"""Smooth dynamics by tree algebra: mass matrix, bias force, inverse dynamics, energy."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ukemi import spatial
from ukemi.kinematics import Kinematics, Velocities, accumulate, kinematics, velocities
from ukemi.model import Model, State


class Smooth(NamedTuple):
    """What the equations of motion M a + c = τ need."""

    M: Array  # (nv, nv) mass matrix with armature
    bias: Array  # (nv,) Coriolis, centrifugal and gravity forces c
    velocity: Velocities


def body_inertias(model: Model, kin: Kinematics) -> Array:
    """Pseudo-inertias (nb, 16) of the bodies in world axes about each tree's reference point."""
    bodies = model.bodies
    axes = spatial.quat_to_mat(bodies.iquat)
    local = spatial.pseudo_inertia(bodies.mass, bodies.ipos, axes, bodies.inertia, bodies.products)
    origin = jnp.pad(kin.ref[model.tree.body_tree][..., None], ((0, 0), (0, 1), (3, 0)))
    X = kin.X - origin
    return spatial.compose(spatial.compose(X, local), X.mT).reshape(-1, 16)


def gravity(model: Model) -> Array:
    """Gravity as the spatial acceleration (6,) that it amounts to, zero where the file disables it."""
    on = "gravity" not in model.options.layout.disabled
    zero = jnp.zeros(3, model.options.gravity.dtype)
    return jnp.concatenate([zero, model.options.gravity if on else zero])


def smooth(model: Model, kin: Kinematics, v: Array) -> Smooth:
    """Mass matrix, bias force and velocities at (q, v) in one pass over composites."""
    tree = model.tree
    pseudo = spatial.materialize(body_inertias(model, kin))
    velocity = velocities(tree, kin.S, v)
    force = _body_forces(model, pseudo, velocity, velocity.S_dot * v[:, None])
    down = tree.moves.T.astype(v.dtype)
    composite = spatial.materialize(down @ jnp.concatenate([pseudo, force], -1))
    momentum = spatial.materialize(spatial.apply(spatial.spatial_inertia(composite[:, :16]), kin.S))
    product = momentum @ kin.S.T
    M = tree.anc * product + (tree.strict * product).T + jnp.diag(model.joints.armature)
    M, bias = spatial.materialize((M, (kin.S * composite[:, 16:]).sum(-1)))
    return Smooth(M, bias, velocity)


def _body_forces(model: Model, pseudo: Array, velocity: Velocities, acceleration: Array) -> Array:
    """Forces (nb, 6) that the bodies' motion needs: f = I A + V ×* I V, with joint accelerations S a + Ṡ v."""
    inertia = spatial.spatial_inertia(pseudo)
    A = accumulate(model.tree, acceleration) - gravity(model)
    momentum = spatial.materialize(spatial.apply(inertia, velocity.body))
    return spatial.apply(inertia, A) + spatial.cross_force(velocity.body, momentum)


def inverse_dynamics(model: Model, q: Array, v: Array, a: Array) -> Array:
    """Generalised force τ (nv,) = M a + c of the bodies alone: no passive, actuator or constraint forces."""
    kin = kinematics(model, q)
    return motion_force(model, kin, velocities(model.tree, kin.S, v), v, a)


def motion_force(model: Model, kin: Kinematics, velocity: Velocities, v: Array, a: Array) -> Array:
    """M a + c (nv,) at the poses `kin`: forces of the bodies, summed over what each dof moves."""
    acceleration = kin.S * a[:, None] + velocity.S_dot * v[:, None]
    force = _body_forces(model, body_inertias(model, kin), velocity, acceleration)
    return _generalised(model, kin, force) + model.joints.armature * a


def inertial_force(model: Model, kin: Kinematics, a: Array) -> Array:
    """M a (nv,) without M."""
    inertia = spatial.spatial_inertia(body_inertias(model, kin))
    force = spatial.apply(inertia, accumulate(model.tree, kin.S * a[:, None]))
    return _generalised(model, kin, force) + model.joints.armature * a


def _generalised(model: Model, kin: Kinematics, force: Array) -> Array:
    """Generalised force (nv,) of forces (nb, 6) on the bodies about their trees' reference points."""
    return (kin.S * (model.tree.moves.T.astype(force.dtype) @ force)).sum(-1)


class Energy(NamedTuple):
    """Mechanical energy [J]."""

    kinetic: Array
    potential: Array

    @property
    def total(self) -> Array:
        """Kinetic plus potential."""
        return self.kinetic + self.potential


def energy(model: Model, state: State) -> Energy:
    """Kinetic energy with armature, and potential energy of gravity and joint springs [J]."""
    from ukemi.forces import spring_energy  # not at the top: forces imports this module

    kin = kinematics(model, state.q)
    M = smooth(model, kin, state.v).M
    weight = -(model.bodies.mass * (kin.com @ gravity(model)[3:])).sum()
    return Energy(0.5 * state.v @ M @ state.v, weight + spring_energy(model, state.q))


# ---- closed-form derivatives (design: tree algebra) -------------------------------------------------------------


def bias_slope(model: Model, kin: Kinematics, velocity: Velocities) -> Array:
    """∂c/∂v (nv, nv) of the bias force, in closed form."""
    tree, S = model.tree, kin.S
    composite = jnp.asarray(tree.moves.T.astype(S.dtype) @ _velocity_products(model, kin, velocity))
    inertia, B = composite[:, :36].reshape(-1, 6, 6), composite[:, 36:].reshape(-1, 6, 6)
    psi_dot = spatial.cross_motion(velocity.before, S)
    rate = psi_dot + velocity.S_dot
    above = [(spatial.apply(B.mT, S), S), (spatial.apply(inertia, S), rate)]
    return _assemble(tree, S, above, spatial.apply(B, S) + spatial.apply(inertia, rate))


def _velocity_products(model: Model, kin: Kinematics, velocity: Velocities) -> Array:
    """Per body (nb, 72): the inertia I and 2B(I, V) = −[V×]ᵀI + [x ↦ x ×* I V] − I[V×], as matrices."""
    I, V = spatial.spatial_inertia(body_inertias(model, kin)), velocity.body
    momentum = spatial.apply(I, V)
    turn = spatial.motion_matrix(V)
    B = spatial.force_bar_matrix(momentum) - turn.mT @ I - I @ turn
    return jnp.concatenate([I.reshape(-1, 36), B.reshape(-1, 36)], -1)


def _assemble(tree, S: Array, above: list[tuple[Array, Array]], below: Array) -> Array:
    """anc ∘ Σ left rightᵀ + strictᵀ ∘ S belowᵀ: rows are forces, columns are coordinates."""
    left, right = (jnp.concatenate(parts, -1) for parts in zip(*above, strict=True))
    return tree.anc * (left @ right.T) + tree.strict.T * (S @ below.T)
