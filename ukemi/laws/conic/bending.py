"""How the pull of rows that are not contacts turns with the velocity that a search tries."""

import jax
import jax.numpy as jnp
from jax import Array

from ukemi.constraints.block import Frame
from ukemi.constraints.contact_slopes import carried
from ukemi.constraints.equalities import CONNECTS, COUPLINGS, wrenches
from ukemi.constraints.rows import present
from ukemi.laws.conic.end import frame_after
from ukemi.laws.here import Here
from ukemi.maths import spatial
from ukemi.mechanics.kinematics import point_jacobian, shared_reference
from ukemi.mechanics.turns import slopes_in_velocity


def bending(here: Here, v: Array, duration: Array, f: Array) -> Array | None:
    """∂(J⁺ᵀ f)/∂v (nv, nv) of impulses f (scalar,); None where nothing bends much.

    Of connects in closed form, of what else moves several dofs by forward differentiation, which rebuilds these rows
    along every velocity.
    """
    kinds, tree, start = [], here.model.tree, 0
    for kind, moves in present(here.model):
        if kind is not COUPLINGS and (moves.sum(1) > 1).any():
            kinds.append((kind, slice(start, start + len(moves))))
        start += len(moves)
    if not kinds:
        return None
    others = [(kind, own) for kind, own in kinds if kind is not CONNECTS]
    held, bend = jnp.zeros_like(v), jnp.zeros((len(v), len(v)), v.dtype)
    for _, own in kinds[: len(kinds) - len(others)]:
        held, bend = _of_connects(_end(here, v, duration), f[own])

    def pulled(v: Array) -> Array:
        g = held
        if others:
            end = _end(here, v, duration)
            g = g + sum(f[own] @ kind.block(end, True).J for kind, own in others)
        return slopes_in_velocity(tree, v, duration).rows(g)

    T = slopes_in_velocity(tree, v, duration)
    return jax.jacfwd(pulled)(v) + duration * T.rows(T.transposed().columns(bend))


def _end(here: Here, v: Array, duration: Array) -> Frame:
    return frame_after(here, v, duration, lambda kin: here.contacts)


def _of_connects(at: Frame, f: Array) -> tuple[Array, Array]:
    """Jᵀ f (nv,) of connects, and its slope in positions (nv, nv): forces stay as they are, and act on both bodies at
    points that move with the first.
    """
    tree, kin = at.model.tree, at.kin
    first, second = wrenches(at.model, kin, CONNECTS.name, f)
    origin, S = shared_reference(tree, kin)
    moves = jnp.asarray(1.0 * tree.moves[first.body] - 1.0 * tree.moves[second.body], f.dtype)  # (n, nv)
    on = spatial.gram(moves, jnp.concatenate([spatial.cross(first.point - origin, first.force), first.force], -1))
    along = point_jacobian(tree, kin, first.body, first.point)[:, 3:].mT  # (n, nv, 3)
    by_point = spatial.gram(moves, spatial.cross(along, first.force[:, None]).reshape(len(moves), -1))
    levers = (S[:, None, :3] * by_point.reshape(len(S), -1, 3)).sum(-1)
    return (S * on).sum(-1), carried(tree, S, on) + levers
