"""Smooth dynamics by tree algebra: mass matrix, bias force, inverse dynamics."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial
from ukemi.maths.gathers import pick_rows
from ukemi.mechanics.kinematics import Kinematics, Velocities, accumulate, accumulate_before, kinematics, velocities
from ukemi.mechanics.reflected import has_heavy_tendons, joint_armature
from ukemi.mechanics.tendons.inertia import tendon_inertia, tendon_inertial_force, tendon_inertial_slopes
from ukemi.model.records import Model
from ukemi.model.tree import Tree


class Smooth(NamedTuple):
    """What the equations of motion M a + c = τ need."""

    M: Array  # (nv, nv) mass matrix with armature
    bias: Array  # (nv,) Coriolis, centrifugal and gravity forces c
    velocity: Velocities


def body_inertias(model: Model, kin: Kinematics) -> Array:
    """Pseudo-inertias (nb, 16) of the bodies in world axes about each tree's reference point."""
    local, X = local_inertias(model), poses_about_trees(model, kin)
    return spatial.compose(spatial.materialize(spatial.compose(X, local)), X.mT).reshape(-1, 16)


def local_inertias(model: Model) -> Array:
    """Pseudo-inertias (nb, 4, 4) of the bodies in their own frames."""
    bodies = model.bodies
    axes = spatial.quat_to_mat(bodies.iquat)
    return spatial.pseudo_inertia(bodies.mass, bodies.ipos, axes, bodies.inertia, bodies.products)


def poses_about_trees(model: Model, kin: Kinematics) -> Array:
    """Poses (nb, 4, 4) of the bodies about each tree's reference point."""
    origin = jnp.pad(pick_rows(kin.ref, model.tree.body_tree)[..., None], ((0, 0), (0, 1), (3, 0)))
    return kin.X - origin


def gravity(model: Model) -> Array:
    """Gravity as the spatial acceleration (6,) that it amounts to, zero where the file disables it."""
    on = "gravity" not in model.options.layout.disabled
    zero = jnp.zeros(3, model.options.gravity.dtype)
    return jnp.concatenate([zero, model.options.gravity if on else zero])


def smooth(model: Model, kin: Kinematics, v: Array) -> Smooth:
    """Mass matrix, bias force and velocities at (q, v) in one pass over composites."""
    tree, S = model.tree, spatial.materialize(kin.S.T)
    pseudo = spatial.materialize(body_inertias(model, kin))
    velocity = velocities(tree, kin.S, v)
    force = _body_forces(model, pseudo, velocity.S_dot * v[:, None], velocity)
    mass, force = _composites(tree, _as_matrices(pseudo), force)
    M = _on_tree(tree, spatial.momentum(spatial.flow(S, mass)), S) + rotor_inertia(model, kin)
    M, bias = spatial.materialize((M, (S * force).sum(0)))
    if has_heavy_tendons(model):
        bias = bias + tendon_inertial_force(model, kin, jnp.zeros_like(v), v)
    return Smooth(M, bias, velocity)


def mass_matrix(model: Model, kin: Kinematics, pseudo: Array) -> Array:
    """Mass matrix (nv, nv) with armature, of bodies of pseudo-inertias (nb, 16)."""
    S, (mass,) = spatial.materialize(kin.S.T), _composites(model.tree, _as_matrices(pseudo))
    return _on_tree(model.tree, spatial.momentum(spatial.flow(S, mass)), S) + rotor_inertia(model, kin)


def _on_tree(tree: Tree, momentum: Array, S: Array) -> Array:
    """Products (nv, nv) of what each dof sets in motion (6, nv) with the dofs above it."""
    product = spatial.gram(momentum, S)
    return product * tree.anc + (product * tree.strict).T


def _as_matrices(pseudo: Array) -> Array:
    """Pseudo-inertias (4, 4, nb): XLA's CPU loops vectorise over the last axis."""
    return spatial.materialize(pseudo.T).reshape(4, 4, -1)


def _composites(tree: Tree, *parts: Array) -> list[Array]:
    """Sums (..., nv) of what bodies have (..., nb) over those that each dof moves."""
    sizes = np.cumsum([int(np.prod(x.shape[:-1])) for x in parts])[:-1]
    flat = spatial.materialize(jnp.concatenate([x.reshape(-1, x.shape[-1]) for x in parts]))
    total = jnp.split(spatial.materialize(flat @ jnp.asarray(tree.moves, flat.dtype)), sizes)
    return [x.reshape(*like.shape[:-1], tree.nv) for x, like in zip(total, parts, strict=True)]


def rotor_inertia(model: Model, kin: Kinematics) -> Array:
    """Armature (nv, nv): inertia of what turns at joints and runs along tendons."""
    at_joints = jnp.diag(joint_armature(model))
    return at_joints + tendon_inertia(model, kin) if has_heavy_tendons(model) else at_joints


def _rates(kin: Kinematics, a: Array, velocity: Velocities | None) -> Array:
    """Accelerations (nv, 6) that the joints add: S a + Ṡ v."""
    return kin.S * a[:, None] if velocity is None else kin.S * a[:, None] + velocity.S_dot * velocity.v[:, None]


def _body_forces(model: Model, pseudo: Array, rates: Array, velocity: Velocities | None) -> Array:
    """Forces (6, nb) that the bodies' motion needs: f = I A + V ×* I V."""
    mass, A = _as_matrices(pseudo), accumulate(model.tree, rates)
    if velocity is None:
        return spatial.momentum(spatial.flow(spatial.materialize(A.T), mass))
    A, V = spatial.materialize(((A - gravity(model)).T, velocity.body.T))
    return spatial.momentum(spatial.flow(A, mass)) + spatial.turning(V, spatial.flow(V, mass))


def inverse_dynamics(model: Model, q: Array, v: Array, a: Array) -> Array:
    """Generalised force τ (nv,) = M a + c of the bodies alone: no passive, actuator or constraint forces."""
    kin = kinematics(model, q)
    return motion_force(model, kin, a, velocities(model.tree, kin.S, v))


def motion_force(model: Model, kin: Kinematics, a: Array, velocity: Velocities | None = None) -> Array:
    """M a + c (nv,) at the poses `kin`: forces of the bodies, summed over what each dof moves.

    Without velocities M a alone, at rest and without gravity; so do the derivatives below.
    """
    force = _body_forces(model, body_inertias(model, kin), _rates(kin, a, velocity), velocity)
    (force,) = _composites(model.tree, force)
    total = (kin.S.T * force).sum(0) + joint_armature(model) * a
    if not has_heavy_tendons(model):
        return total
    return total + tendon_inertial_force(model, kin, a, None if velocity is None else velocity.v)


# ---- closed-form derivatives (docs/architecture.md: tree algebra) --------------------------------------------------


class MotionSlopes(NamedTuple):
    """Derivatives of τ = M a + c in tangent coordinates; rows are forces, columns coordinates."""

    q: Array  # (nv, nv)
    v: Array  # (nv, nv)


def motion_slopes(model: Model, kin: Kinematics, a: Array, velocity: Velocities) -> MotionSlopes:
    """∂(M a + c)/∂q and ∂(M a + c)/∂v in closed form.

    With composites over what each dof moves, ψ̇ = V_λ × S and ψ̈ = A_λ × S + V_λ × ψ̇:
    ∂τ/∂q = anc ∘ (2Bᵀ S ψ̇ᵀ + I S ψ̈ᵀ) + strictᵀ ∘ S (2B ψ̇ + I ψ̈ + S ×* f)ᵀ,
    ∂τ/∂v = anc ∘ (2Bᵀ S Sᵀ + I S (ψ̇ + Ṡ)ᵀ) + strictᵀ ∘ S (2B S + I (ψ̇ + Ṡ))ᵀ,
    where 2B(I, V) = −[V×]ᵀI + [x ↦ x ×* I V] − I[V×]: it takes that force to turn the bodies' momenta twice as x does.
    """
    tree, rates = model.tree, _rates(kin, a, velocity)
    S, V, before, Ab = spatial.materialize((kin.S.T, velocity.body.T, velocity.before.T, _before(model, rates).T))
    pseudo = body_inertias(model, kin)
    mass, force = _as_matrices(pseudo), _body_forces(model, pseudo, rates, velocity)
    mass, flow, force = _composites(tree, mass, 2 * spatial.flow(V, mass), force)
    psi_dot, psi_ddot = _carried(S, before, Ab)
    psi_ddot, rate = spatial.materialize((psi_ddot, psi_dot + velocity.S_dot.T))
    below_q = _below(mass, flow, psi_dot, psi_ddot) + spatial.columns_cross_force(S, force)
    right = jnp.concatenate([_turned(psi_dot, psi_ddot), _turned(S, rate)], 1)
    below = jnp.concatenate([below_q, _below(mass, flow, S, rate)], 1)
    both = _on_paths(tree, S, _left(mass, flow, S), right, below)
    slopes = MotionSlopes(both[:, : model.nv], both[:, model.nv :])
    if not has_heavy_tendons(model):
        return slopes
    along = tendon_inertial_slopes(model, kin, a, velocity.v)
    return MotionSlopes(slopes.q + along[0], slopes.v + along[1])


def _before(model: Model, rates: Array) -> Array:
    """Accelerations (nv, 6) of what each dof's joint is attached to, as if gravity were one."""
    return accumulate_before(model.tree, rates) - gravity(model)


def _carried(S: Array, before: Array, accelerations: Array) -> tuple[Array, Array]:
    """ψ̇ = V_λ × S and ψ̈ = A_λ × S + V_λ × ψ̇ (6, nv), as what dofs are attached to moves (6, nv)."""
    rate = spatial.materialize(spatial.columns_cross_motion(before, S))
    return rate, spatial.columns_cross_motion(accelerations, S) + spatial.columns_cross_motion(before, rate)


def _left(mass: Array, flow: Array, S: Array) -> Array:
    """2Bᵀ S, whose linear part is zero, and I S (9, nv) of composites."""
    return jnp.concatenate([spatial.turning_back(S, flow), spatial.momentum(spatial.flow(S, mass))])


def _turned(rate: Array, change: Array) -> Array:
    """What `_left` is multiplied with (9, nv): the angular part of one motion, and another."""
    return jnp.concatenate([rate[:3], change])


def _below(mass: Array, flow: Array, rate: Array, change: Array) -> Array:
    """2B rate + I change (6, nv) of composites."""
    return spatial.turning(rate, flow) + spatial.momentum(spatial.flow(change, mass))


def _on_paths(tree: Tree, S: Array, left: Array, right: Array, below: Array) -> Array:
    """anc ∘ leftᵀ right + strictᵀ ∘ Sᵀ below (nv, n nv): of pairs of dofs of which one is above the other, n kinds."""
    n = right.shape[1] // max(1, tree.nv)
    right, below = spatial.materialize((right, below))
    above, under = spatial.gram(left, right), spatial.gram(S, below)
    return above * np.tile(tree.anc, n) + under * np.tile(tree.strict.T, n)


def inertial_slope(model: Model, kin: Kinematics, a: Array) -> Array:
    """∂(M a)/∂q (nv, nv), at constant a: `motion_slopes` at rest and without gravity, where ψ̇ and B are zero."""
    tree, rates = model.tree, _rates(kin, a, None)
    S, before = spatial.materialize((kin.S.T, accumulate_before(tree, rates).T))
    pseudo = body_inertias(model, kin)
    mass, force = _composites(tree, _as_matrices(pseudo), _body_forces(model, pseudo, rates, None))
    psi_ddot = spatial.materialize(spatial.columns_cross_motion(before, S))
    below = spatial.momentum(spatial.flow(psi_ddot, mass)) + spatial.columns_cross_force(S, force)
    slope = _on_paths(tree, S, spatial.momentum(spatial.flow(S, mass)), psi_ddot, below)
    return slope + tendon_inertial_slopes(model, kin, a)[0] if has_heavy_tendons(model) else slope


def bias_slope(model: Model, kin: Kinematics, velocity: Velocities) -> Array:
    """∂c/∂v (nv, nv) of the bodies' bias force: ∂τ/∂v of `motion_slopes`, which does not depend on a.

    What implicit integrators take; MuJoCo leaves out the bias of tendons' inertia there.
    """
    S, V, before = spatial.materialize((kin.S.T, velocity.body.T, velocity.before.T))
    mass = _as_matrices(body_inertias(model, kin))
    mass, flow = _composites(model.tree, mass, 2 * spatial.flow(V, mass))
    rate = spatial.materialize(spatial.columns_cross_motion(before, S) + velocity.S_dot.T)
    return _on_paths(model.tree, S, _left(mass, flow, S), _turned(S, rate), _below(mass, flow, S, rate))


def motion_pull(
    model: Model, kin: Kinematics, pseudo: Array, a: Array, w: Array, velocity: Velocities | None = None
) -> tuple[Array, Array]:
    """wᵀ ∂(M a + c)/∂q and wᵀ ∂(M a + c)/∂v (nv,), of bodies of pseudo-inertias (nb, 16) and of rotors."""
    of_bodies = _motion_pull(model, kin, pseudo, a, w, velocity)
    if not has_heavy_tendons(model):
        return of_bodies
    along = tendon_inertial_slopes(model, kin, a, None if velocity is None else velocity.v)
    return of_bodies[0] + w @ along[0], of_bodies[1] + w @ along[1]


def _motion_pull(
    model: Model, kin: Kinematics, pseudo: Array, a: Array, w: Array, velocity: Velocities | None
) -> tuple[Array, Array]:
    """The same of the bodies alone, in closed form.

    The formulas of `motion_slopes` added up over their rows: with the bodies' velocities W at joint rates w, and sums
    over the bodies that each dof moves,
    q̄ = (W_λ × S)·Σf + ψ̇·Σg + ψ̈·ΣI W,  v̄ = S·Σg + (ψ̇ + Ṡ)·ΣI W,  g = 2BᵀW, whose linear part is zero.
    """
    tree, rates, weighted = model.tree, _rates(kin, a, velocity), _rates(kin, w, None)
    mass, force = _as_matrices(pseudo), _body_forces(model, pseudo, rates, velocity)
    S, W, psi = kin.S.T, accumulate(tree, weighted).T, accumulate_before(tree, weighted).T
    S, W, psi = spatial.materialize((S, W, psi))
    psi, carried = spatial.columns_cross_motion(psi, S), spatial.momentum(spatial.flow(W, mass))
    if velocity is None:
        force, carried = _composites(tree, force, carried)
        psi_ddot = spatial.columns_cross_motion(accumulate_before(tree, rates).T, S)
        return (psi * force + psi_ddot * carried).sum(0), jnp.zeros_like(a)
    V, before, Ab = spatial.materialize((velocity.body.T, velocity.before.T, _before(model, rates).T))
    g = spatial.turning_back(W, 2 * spatial.flow(V, mass))
    force, g, carried = _composites(tree, force, g, carried)
    psi_dot, psi_ddot = _carried(S, before, Ab)
    q = (psi * force + psi_ddot * carried).sum(0) + (psi_dot[:3] * g).sum(0)
    return q, (S[:3] * g).sum(0) + ((psi_dot + velocity.S_dot.T) * carried).sum(0)
