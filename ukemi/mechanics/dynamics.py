"""Smooth dynamics by tree algebra: mass matrix, bias force, inverse dynamics."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial
from ukemi.maths.gathers import mix, pick_rows
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
    tree = model.tree
    pseudo = spatial.materialize(body_inertias(model, kin))
    velocity = velocities(tree, kin.S, v)
    force = _body_forces(model, pseudo, velocity.S_dot * v[:, None], velocity)
    composite = spatial.materialize(mix(tree.moves.T, jnp.concatenate([pseudo, force], -1)))
    momentum = spatial.materialize(spatial.apply(spatial.spatial_inertia(composite[:, :16]), kin.S))
    product = momentum @ kin.S.T
    M, bias = tree.anc * product + (tree.strict * product).T + rotor_inertia(model, kin), composite[:, 16:]
    M, bias = spatial.materialize((M, (kin.S * bias).sum(-1)))
    if has_heavy_tendons(model):
        bias = bias + tendon_inertial_force(model, kin, jnp.zeros_like(v), v)
    return Smooth(M, bias, velocity)


def mass_matrix(model: Model, kin: Kinematics, pseudo: Array) -> Array:
    """Mass matrix (nv, nv) with armature, of bodies of pseudo-inertias (nb, 16)."""
    tree = model.tree
    composite = spatial.spatial_inertia(spatial.materialize(mix(tree.moves.T, pseudo)))
    momentum = spatial.materialize(spatial.apply(composite, kin.S))
    product = momentum @ kin.S.T
    return tree.anc * product + (tree.strict * product).T + rotor_inertia(model, kin)


def rotor_inertia(model: Model, kin: Kinematics) -> Array:
    """Armature (nv, nv): inertia of what turns at joints and runs along tendons."""
    at_joints = jnp.diag(joint_armature(model))
    return at_joints + tendon_inertia(model, kin) if has_heavy_tendons(model) else at_joints


def _rates(kin: Kinematics, a: Array, velocity: Velocities | None) -> Array:
    """Accelerations (nv, 6) that the joints add: S a + Ṡ v."""
    return kin.S * a[:, None] if velocity is None else kin.S * a[:, None] + velocity.S_dot * velocity.v[:, None]


def _body_forces(model: Model, pseudo: Array, rates: Array, velocity: Velocities | None) -> Array:
    """Forces (nb, 6) that the bodies' motion needs: f = I A + V ×* I V."""
    inertia = spatial.spatial_inertia(pseudo)
    if velocity is None:
        return spatial.apply(inertia, accumulate(model.tree, rates))
    A = accumulate(model.tree, rates) - gravity(model)
    momentum = spatial.materialize(spatial.apply(inertia, velocity.body))
    return spatial.apply(inertia, A) + spatial.cross_force(velocity.body, momentum)


def inverse_dynamics(model: Model, q: Array, v: Array, a: Array) -> Array:
    """Generalised force τ (nv,) = M a + c of the bodies alone: no passive, actuator or constraint forces."""
    kin = kinematics(model, q)
    return motion_force(model, kin, a, velocities(model.tree, kin.S, v))


def motion_force(model: Model, kin: Kinematics, a: Array, velocity: Velocities | None = None) -> Array:
    """M a + c (nv,) at the poses `kin`: forces of the bodies, summed over what each dof moves.

    Without velocities M a alone, at rest and without gravity; so do the derivatives below.
    """
    force = _body_forces(model, body_inertias(model, kin), _rates(kin, a, velocity), velocity)
    total = (kin.S * mix(model.tree.moves.T, force)).sum(-1) + joint_armature(model) * a
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
    ∂τ/∂v = anc ∘ (2Bᵀ S Sᵀ + I S (ψ̇ + Ṡ)ᵀ) + strictᵀ ∘ S (2B S + I (ψ̇ + Ṡ))ᵀ.
    """
    tree, S, rates = model.tree, kin.S, _rates(kin, a, velocity)
    pseudo = body_inertias(model, kin)
    terms = _composites(model, pseudo, velocity, _body_forces(model, pseudo, rates, velocity))
    before = accumulate_before(tree, rates) - gravity(model)
    psi_dot = spatial.cross_motion(velocity.before, S)
    psi_ddot = spatial.cross_motion(before, S) + spatial.cross_motion(velocity.before, psi_dot)
    rate = psi_dot + velocity.S_dot
    psi_dot, psi_ddot, rate = spatial.materialize((psi_dot, psi_ddot, rate))
    turned, momentum = spatial.apply(terms.B.mT, S), spatial.apply(terms.inertia, S)
    below_q = spatial.apply(terms.B, psi_dot) + spatial.apply(terms.inertia, psi_ddot)
    below_q = below_q + spatial.cross_force(S, terms.force)
    below_v = spatial.apply(terms.B, S) + spatial.apply(terms.inertia, rate)
    left = spatial.materialize(jnp.concatenate([turned, momentum], -1))
    right = jnp.concatenate([jnp.concatenate([psi_dot, psi_ddot], -1), jnp.concatenate([S, rate], -1)])
    both = _on_paths(
        tree, S, left, spatial.materialize(right), spatial.materialize(jnp.concatenate([below_q, below_v]))
    )
    slopes = MotionSlopes(both[:, : model.nv], both[:, model.nv :])
    if not has_heavy_tendons(model):
        return slopes
    along = tendon_inertial_slopes(model, kin, a, velocity.v)
    return MotionSlopes(slopes.q + along[0], slopes.v + along[1])


def _on_paths(tree: Tree, S: Array, left: Array, right: Array, below: Array) -> Array:
    """anc ∘ left rightᵀ + strictᵀ ∘ S belowᵀ (nv, n nv): of pairs of dofs of which one is above the other, n kinds."""
    n = len(right) // max(1, tree.nv)
    return jnp.asarray(np.tile(tree.anc, n) * (left @ right.T) + np.tile(tree.strict.T, n) * (S @ below.T))


def inertial_slope(model: Model, kin: Kinematics, a: Array) -> Array:
    """∂(M a)/∂q (nv, nv), at constant a: `motion_slopes` at rest and without gravity, where ψ̇ and B are zero."""
    tree, S, rates = model.tree, kin.S, _rates(kin, a, None)
    pseudo = body_inertias(model, kin)
    force = _body_forces(model, pseudo, rates, None)
    composite = mix(tree.moves.T, jnp.concatenate([pseudo, force], -1))
    inertia, force = spatial.spatial_inertia(composite[:, :16]), composite[:, 16:]
    psi_ddot = spatial.materialize(spatial.cross_motion(accumulate_before(tree, rates), S))
    below = spatial.apply(inertia, psi_ddot) + spatial.cross_force(S, force)
    momentum, below = spatial.materialize((spatial.apply(inertia, S), below))
    slope = _on_paths(tree, S, momentum, psi_ddot, below)
    return slope + tendon_inertial_slopes(model, kin, a)[0] if has_heavy_tendons(model) else slope


def bias_slope(model: Model, kin: Kinematics, velocity: Velocities) -> Array:
    """∂c/∂v (nv, nv) of the bodies' bias force: ∂τ/∂v of `motion_slopes`, which does not depend on a.

    What implicit integrators take; MuJoCo leaves out the bias of tendons' inertia there.
    """
    tree, S = model.tree, kin.S
    terms = _composites(model, body_inertias(model, kin), velocity, jnp.zeros_like(velocity.body))
    rate = spatial.cross_motion(velocity.before, S) + velocity.S_dot
    left = jnp.concatenate([spatial.apply(terms.B.mT, S), spatial.apply(terms.inertia, S)], -1)
    below = spatial.apply(terms.B, S) + spatial.apply(terms.inertia, rate)
    return _on_paths(tree, S, left, jnp.concatenate([S, rate], -1), below)


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
    q̄ = (W_λ × S)·Σf + ψ̇·Σg + ψ̈·ΣI W,  v̄ = S·Σg + (ψ̇ + Ṡ)·ΣI W,  g = 2BᵀW = V ×* I W − W ×* I V − I (V × W).
    """
    tree, S, rates, weighted = model.tree, kin.S, _rates(kin, a, velocity), _rates(kin, w, None)
    inertia, W, psi = spatial.spatial_inertia(pseudo), accumulate(tree, weighted), accumulate_before(tree, weighted)
    psi, force = spatial.cross_motion(psi, S), _body_forces(model, pseudo, rates, velocity)
    if velocity is None:
        parts = jnp.concatenate([force, spatial.apply(inertia, W)], -1)
        force, carried = jnp.split(mix(tree.moves.T, spatial.materialize(parts)), 2, -1)
        psi_ddot = spatial.cross_motion(accumulate_before(tree, rates), S)
        return (psi * force + psi_ddot * carried).sum(-1), jnp.zeros_like(a)
    V = velocity.body
    momentum, turned = spatial.apply(inertia, V), spatial.apply(inertia, spatial.cross_motion(V, W))
    carried = spatial.materialize(spatial.apply(inertia, W))
    g = spatial.cross_force(V, carried) - spatial.cross_force(W, momentum) - turned
    parts = jnp.concatenate([force, g, carried], -1)
    force, g, carried = jnp.split(mix(tree.moves.T, spatial.materialize(parts)), 3, -1)
    before = accumulate_before(tree, rates) - gravity(model)
    psi_dot = spatial.materialize(spatial.cross_motion(velocity.before, S))
    psi_ddot = spatial.cross_motion(before, S) + spatial.cross_motion(velocity.before, psi_dot)
    q = (psi * force + psi_dot * g + psi_ddot * carried).sum(-1)
    return q, (S * g + (psi_dot + velocity.S_dot) * carried).sum(-1)


class _Composites(NamedTuple):
    """Sums over the bodies that each dof moves."""

    inertia: Array  # (nv, 6, 6) I
    B: Array  # (nv, 6, 6) 2B(I, V) = −[V×]ᵀI + [x ↦ x ×* I V] − I[V×]
    force: Array  # (nv, 6)


def _composites(model: Model, pseudo: Array, velocity: Velocities, force: Array) -> _Composites:
    inertia, turn = spatial.materialize((spatial.spatial_inertia(pseudo), spatial.motion_matrix(velocity.body)))
    momentum = spatial.materialize(spatial.apply(inertia, velocity.body))
    half = spatial.materialize(spatial.compose(inertia, turn))
    B = spatial.force_bar_matrix(momentum) - half.mT - half  # I is symmetric: [V×]ᵀI = (I[V×])ᵀ
    parts = spatial.materialize(jnp.concatenate([pseudo, B.reshape(-1, 36), force], -1))
    total = mix(model.tree.moves.T, parts)
    return _Composites(spatial.spatial_inertia(total[:, :16]), total[:, 16:52].reshape(-1, 6, 6), total[:, 52:])
