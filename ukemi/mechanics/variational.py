"""A discrete mechanics: bodies are clouds of points that move straight from one time to the next (Dojo, III-A, III-B).

Between poses X and X⁺ a point x of a body has the velocity (x⁺ − x)/h, and a body the kinetic energy
tr((X⁺ − X) 𝒥 (X⁺ − X)ᵀ)/2h² with its pseudo-inertia 𝒥 = Σ m x xᵀ. What makes the sum of these energies stationary over
three times (Dojo, eqs. 14–16) is a balance of what the points do,

    Σ m δx · ((x⁺ − x) − (x − x⁻))/h = h (forces),

whose torque is Dojo's 2/h (c₊Jψ₊ + ψ₊ × Jψ₊ − …), with c, ψ the quaternion of the turn, written with matrices. Virtual
motions δx are those that the joints allow at X, so that joints do no work and need no impulses. Momentum is kept, and
energy does not drift.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ukemi.maths import spatial
from ukemi.maths.gathers import mix
from ukemi.mechanics.dynamics import gravity, local_inertias, poses_about_trees, rotor_inertia
from ukemi.mechanics.energy import Energy, Momentum, potential_energy
from ukemi.mechanics.kinematics import Kinematics, integrate, kinematics
from ukemi.model.records import Input, Model, State


class Chords(NamedTuple):
    """What a step's balance takes from its start."""

    X: Array  # (nb, 4, 4) poses
    past: Array  # (nb, 4, 4) (X − X⁻)/h, and what gravity adds to it
    carried: Array  # (nb, 4, 4) 𝒥 Xᵀ, about each tree's reference point


def before(model: Model, q: Array, v: Array, duration: Array, inputs: Input | None) -> Kinematics:
    """Where a motion was that arrived at q with v, a step earlier."""
    mocap = (None, None) if inputs is None else (inputs.mocap_pos, inputs.mocap_quat)
    return kinematics(model, integrate(model.tree, q, v, -duration), *mocap)


def chords(model: Model, kin: Kinematics, earlier: Kinematics, duration: Array) -> Chords:
    """What is known at the start of a step."""
    fall = jnp.zeros((4, 4), kin.X.dtype).at[:3, 3].set(duration * gravity(model)[3:])
    past = (kin.X - earlier.X) / duration + fall
    return Chords(kin.X, past, spatial.compose(local_inertias(model), poses_about_trees(model, kin).mT))


def chord_impulse(model: Model, kin: Kinematics, start: Chords, after: Kinematics, duration: Array) -> Array:
    """Impulse (nv,) that takes bodies to the poses `after`; kin: of the start."""
    rate = (after.X - start.X) / duration - start.past
    force = spatial.compose(rate, start.carried)
    wrench = mix(model.tree.moves.T, jnp.concatenate([_axial(force), force[:, :3, 3]], -1))
    return (kin.S * wrench).sum(-1)


def chord_inertia(model: Model, kin: Kinematics, start: Chords, after: Kinematics) -> Array:
    """Its derivative (nv, nv) in h⁻¹ times a tangent vector at the end: a mass matrix between two times.

    With 𝕀 the inertia of Σ m x⁺ xᵀ over what both dofs move, entries are Sᵢ · 𝕀 S⁺ⱼ.
    """
    tree = model.tree
    moments = chord_moments(model, start, after)
    inertia = spatial.spatial_inertia(spatial.materialize(mix(tree.moves.T, moments)))
    momentum, back = spatial.materialize((spatial.apply(inertia, after.S), spatial.apply(inertia.mT, kin.S)))
    return tree.anc * (back @ after.S.T) + tree.strict.T * (kin.S @ momentum.T)


def chord_moments(model: Model, start: Chords, after: Kinematics) -> Array:
    """Σ m x⁺ xᵀ (nb, 16) of all bodies, each about its tree's reference point at its time."""
    return spatial.compose(poses_about_trees(model, after), start.carried).reshape(-1, 16)


class ChordSlopes(NamedTuple):
    """How `chord_impulse` changes with the poses at three times, along tangent vectors there (nv, nv)."""

    before: Array
    now: Array
    after: Array


def chord_slopes(
    model: Model, kin: Kinematics, start: Chords, earlier: Kinematics, after: Kinematics, duration: Array
) -> ChordSlopes:
    """Its derivatives in closed form.

    What points do, a = (x⁺ − 2x + x⁻)/h, is linear in all three poses, which gives mass matrices between two times.
    Virtual motions u turn with the pose in the middle, the lower one of two dofs with the upper: with
    G_i = Σ m u_i × a over what i moves that adds ω_j · G_i for j at or above i, and ω_i · G_j for j below.
    """
    tree, turn, slide = model.tree, kin.S[:, :3], kin.S[:, 3:]
    past, now, future = (chord_inertia(model, kin, start, at) / duration for at in (earlier, kin, after))
    rate = (after.X - start.X) / duration - start.past
    force = spatial.materialize(mix(tree.moves.T, spatial.compose(rate, start.carried)[:, :3]))  # Σ m a xᵀ
    stretch = jnp.trace(force[:, :, :3], axis1=1, axis2=2)[:, None]
    turned = spatial.apply(force[:, :, :3].mT, turn) - stretch * turn + spatial.cross(slide, force[:, :, 3])
    bent = tree.anc * (turned @ turn.T) + tree.strict.T * (turn @ turned.T)
    return ChordSlopes(past, jnp.asarray(bent) - 2 * now, future)


# ---- what is kept ----------------------------------------------------------------------------------------------------


def chord_energy(model: Model, state: State) -> Energy:
    """Energy of the step that led to a state: of bodies on their way, and the mean potential of its two ends [J]."""
    kin, earlier, rate = _arriving(model, state)
    moving = 0.5 * (spatial.compose(rate, local_inertias(model)) * rate).sum()
    rotors = 0.5 * state.v @ rotor_inertia(model, kin) @ state.v
    q = integrate(model.tree, state.q, state.v, -model.options.timestep)
    ends = potential_energy(model, kin, state.q, state.act) + potential_energy(model, earlier, q, state.act)
    return Energy(moving + rotors, 0.5 * ends)


def chord_momentum(model: Model, state: State) -> Momentum:
    """Momentum of the step that led to a state: Σ m x⁻ × x/h, the same at both of its ends."""
    kin, _, rate = _arriving(model, state)
    force = spatial.compose(spatial.compose(rate, local_inertias(model)), kin.X.mT).sum(0)
    return Momentum(force[:3, 3], _axial(force))


def _arriving(model: Model, state: State) -> tuple[Kinematics, Kinematics, Array]:
    """Poses now and a step earlier, and their rate (nb, 4, 4)."""
    h = model.options.timestep
    kin, earlier = kinematics(model, state.q), before(model, state.q, state.v, h, None)
    return kin, earlier, (kin.X - earlier.X) / h


def _axial(moments: Array) -> Array:
    """Σ x × a (..., 3) of Σ a xᵀ (..., 4, 4)."""
    return jnp.stack([moments[..., j, i] - moments[..., i, j] for i, j in ((1, 2), (2, 0), (0, 1))], -1)
