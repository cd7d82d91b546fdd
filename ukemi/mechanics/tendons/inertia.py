"""Inertia along tendons: forces mᵀ μ (m a + ṁ v) of armatures μ, moments m; their slopes by AD."""

import jax
import jax.numpy as jnp
from jax import Array

from ukemi.mechanics.kinematics import Kinematics, carry
from ukemi.mechanics.reflected import tendon_armature
from ukemi.mechanics.tendons.paths import tendon_moments
from ukemi.model.records import Model


def tendon_inertia(model: Model, kin: Kinematics) -> Array:
    """What tendons add to the mass matrix (nv, nv)."""
    moment = tendon_moments(model, kin)
    return (moment.T * tendon_armature(model)) @ moment


def tendon_inertial_force(model: Model, kin: Kinematics, a: Array, v: Array | None = None) -> Array:
    """Force (nv,) that the motion along tendons needs; without velocities at rest."""
    moment = tendon_moments(model, kin)
    speeding = moment @ a
    if v is not None and len(model.tendons.layout.spans):
        rate = jax.jvp(lambda kin: tendon_moments(model, kin), (kin,), (carry(model, kin, v),))[1]
        speeding = speeding + rate @ v
    return (tendon_armature(model) * speeding) @ moment


def tendon_inertial_slopes(model: Model, kin: Kinematics, a: Array, v: Array | None = None) -> tuple[Array, Array]:
    """Its slopes (nv, nv) in position and in velocity."""
    still = jnp.zeros_like(a)

    def moved(shift, v):
        there = jax.tree.map(jnp.add, kin, carry(model, kin, shift))
        return tendon_inertial_force(model, there, a, v)

    if v is None:
        return jax.jacfwd(lambda shift: moved(shift, None))(still), jnp.zeros((len(a), len(a)), a.dtype)
    return jax.jacfwd(moved, argnums=(0, 1))(still, v)
