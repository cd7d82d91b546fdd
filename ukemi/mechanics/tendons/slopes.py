"""How moment arms turn with the joints: second derivatives of lengths, in closed form but for the way at one shape.

With m = ∂L/∂q and tangent vectors, ∂(m v)/∂q is the rate of m along v, but where a rotation has three dofs: these do
not commute, [e_i, e_j] = ε_ijk e_k, which adds v × m of each.

Of constant tensions, with D the motion of an end relative to its base, Ω the turn of the base, X the end's own motion,

    ∂(Jᵀ F)/∂q = anc ∘ (S ×* F^C) Sᵀ + Dᵀ (K D + Ω × F) + (S_ω)ᵀ (X × F)

where K is the slope of the pulls in the base's frame, and S_ω turns the body or the base (docs/architecture.md, tree
algebra, as of contacts' rows).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ukemi.maths import spatial
from ukemi.maths.gathers import mix
from ukemi.mechanics.kinematics import Kinematics, carry, shared_reference
from ukemi.mechanics.tendons.paths import Ends, between, in_shapes, parts, shares, straight, tendon_moments, way
from ukemi.model.records import Model


def velocity_slopes(model: Model, kin: Kinematics, v: Array) -> Array:
    """∂(m v)/∂q (nt, nv) of velocities along tendons."""
    if not len(model.tendons.layout.spans):
        return jnp.zeros((len(model.tendons.layout.names), model.nv), v.dtype)
    moment, rate = jax.jvp(lambda kin: tendon_moments(model, kin), (kin,), (carry(model, kin, v),))
    dofs = model.tree.quat_dof
    if not len(dofs):
        return rate
    return rate.at[:, dofs].add(spatial.cross(v[dofs], moment[:, dofs]))


class _Motion(NamedTuple):
    """What dofs do to ends, (n, 3, nv) each."""

    relative: Array  # D
    turn: Array  # S_ω, of the body less the base
    own: Array  # X
    base: Array  # Ω

    @staticmethod
    def of(model: Model, kin: Kinematics, ends: Ends) -> "_Motion":
        origin, S = shared_reference(model.tree, kin)
        moves, arm = model.tree.moves.astype(S.dtype), ends.point - origin
        linear = jnp.swapaxes(S[:, 3:] + spatial.cross(S[:, :3], arm[:, None]), 1, 2)
        apart = between(model, ends).astype(S.dtype)[:, None]
        return _Motion(
            linear * apart,
            S[:, :3].T * apart,
            linear * moves[ends.body][:, None],
            S[:, :3].T * moves[ends.base][:, None],
        )


def force_slopes_of_strings(model: Model, kin: Kinematics, tension: Array) -> Array:
    """∂(mᵀ f)/∂q (nv, nv) of constant tensions (nt,)."""
    origin, S = shared_reference(model.tree, kin)
    total, summed = jnp.zeros((model.nv, model.nv), S.dtype), jnp.zeros_like(S)
    for spans, function in parts(model):
        size, ends = function(model, kin, spans)
        pull = ends.force * tension[ends.tendon][:, None]
        wrench = jnp.concatenate([spatial.cross(ends.point - origin, pull), pull], -1)
        summed = summed + mix(between(model, ends).T, wrench)
        motion = _Motion.of(model, kin, ends)
        stiff = _straight_stiffness if function is straight else _wrapped_stiffness
        follow = stiff(model, kin, spans, ends, size, tension, motion.relative)
        across = -spatial.skew(pull)  # a ↦ a × F
        follow = follow + across @ motion.base
        left = jnp.concatenate([motion.relative, motion.turn]).reshape(-1, model.nv)
        total = total + left.T @ jnp.concatenate([follow, across @ motion.own]).reshape(-1, model.nv)
    return total + model.tree.anc * (spatial.cross_force(S, summed) @ S.T)


def _straight_stiffness(model, kin, spans, ends: Ends, size: Array, tension: Array, D: Array) -> Array:
    """K D (n, 3, nv) of straight parts: across their direction, by tension over length."""
    square = (ends.force * ends.force).sum(-1)  # of the share
    stiff = jnp.where(size > 0, square * tension[ends.tendon] / jnp.where(size > 0, size, 1.0), 0.0)
    along = ends.force / jnp.sqrt(jnp.where(square > 0, square, 1.0))[:, None]
    return stiff[:, None, None] * (D - along[:, :, None] * (along[:, None] @ D))


def _wrapped_stiffness(model, kin, spans, ends: Ends, size: Array, tension: Array, D: Array) -> Array:
    """The same at shapes, where both ends count."""
    mat, p, shape = in_shapes(model, kin, spans)
    K = jax.vmap(jax.jacfwd(lambda p, *shape: way(p, *shape)[1]))(p, *shape)  # (n, 2, 3, 2, 3)
    n = len(spans)
    turn = mat[:, None] @ K.transpose(0, 1, 3, 2, 4).reshape(n, 4, 3, 3) @ mat[:, None].mT
    weight = shares(model, spans) * tension[spans[:, 0]]
    turn = turn.reshape(n, 2, 2, 3, 3) * weight[:, None, None, None, None]
    D = D.reshape(2, n, 3, -1)
    out = jnp.stack([turn[:, e, 0] @ D[0] + turn[:, e, 1] @ D[1] for e in range(2)])
    return out.reshape(2 * n, 3, -1)
