"""How the pull of rows that are not contacts turns with the velocity that a search tries."""

from typing import cast

import jax
import jax.numpy as jnp
from jax import Array

from ukemi.constraints.block import Frame, RowKind
from ukemi.constraints.contact_slopes import carried
from ukemi.constraints.equalities import CONNECTS, COUPLINGS, wrenches
from ukemi.constraints.rows import present
from ukemi.constraints.tendons import TENDON_COUPLINGS, TENDON_DRY_FRICTION, TENDON_LIMITS, tensions
from ukemi.laws.conic.end import frame_after
from ukemi.laws.here import Here
from ukemi.maths import spatial
from ukemi.mechanics.kinematics import point_jacobian, shared_reference
from ukemi.mechanics.tendons.paths import lengths_of, strings
from ukemi.mechanics.tendons.slopes import force_slopes_of_strings, turns
from ukemi.mechanics.turns import slopes_in_velocity
from ukemi.model.records import Model

TENDONS = TENDON_COUPLINGS, TENDON_DRY_FRICTION, TENDON_LIMITS


def bending(here: Here, v: Array, duration: Array, f: Array) -> Array | None:
    """∂(J⁺ᵀ f)/∂v (nv, nv) of impulses f (scalar,); None where nothing bends much.

    Of connects and of tendons' rows in closed form, but for the polynomials that couple these; of what else moves
    several dofs by forward differentiation, which rebuilds these rows along every velocity.
    """
    rows = _rows_that_bend(here.model)
    if not rows:
        return None
    tree, at = here.model.tree, _end(here, v, duration)
    held, bend = jnp.zeros_like(v), jnp.zeros((len(v), len(v)), v.dtype)
    if CONNECTS in rows:
        held, bend = _of_connects(at, f[rows.pop(CONNECTS)])
    along = {kind: f[rows.pop(kind)] for kind in TENDONS if kind in rows}
    if along:
        more = _of_tendons(at, along)
        held, bend = held + more[0], bend + more[1]

    def pulled(v: Array) -> Array:
        g = held
        if rows:
            end = _end(here, v, duration)
            g = g + sum(f[own] @ kind.block(end, True).J for kind, own in rows.items())
        return slopes_in_velocity(tree, v, duration).rows(g)

    T = slopes_in_velocity(tree, v, duration)
    return jax.jacfwd(pulled)(v) + duration * T.rows(T.transposed().columns(bend))


def _rows_that_bend(model: Model) -> dict[RowKind, slice]:
    """The rows, kind by kind, that move several dofs, but for couplings of joints, which hardly bend."""
    found, start = {}, 0
    for kind, moves in present(model):
        if kind is not COUPLINGS and (moves.sum(1) > 1).any():
            found[kind] = slice(start, start + len(moves))
        start += len(moves)
    return found


def _end(here: Here, v: Array, duration: Array) -> Frame:
    return frame_after(here, v, duration, lambda kin: here.contacts)


def _of_connects(at: Frame, f: Array) -> tuple[Array, Array]:
    """Jᵀ f (nv,) of connects, and its slope in positions (nv, nv): forces turn with the second body, and act on both at
    points that move with the first.
    """
    tree, kin = at.model.tree, at.kin
    first, second = wrenches(at.model, kin, CONNECTS.name, f, True)
    origin, S = shared_reference(tree, kin)
    moves = jnp.asarray(1.0 * tree.moves[first.body] - 1.0 * tree.moves[second.body], f.dtype)  # (n, nv)
    arm, force = first.point - origin, first.force
    on = spatial.gram(moves, jnp.concatenate([spatial.cross(arm, force), force], -1))
    along = point_jacobian(tree, kin, first.body, first.point)[:, 3:].mT  # (n, nv, 3)
    turned = spatial.cross(S[:, :3] * tree.moves[second.body][..., None], force[:, None])  # ∂force/∂q (n, nv, 3)
    moment = spatial.cross(along, force[:, None]) + spatial.cross(arm[:, None], turned)
    changed = spatial.gram(moves, jnp.concatenate([moment, turned], -1).reshape(len(moves), -1))
    return (S * on).sum(-1), carried(tree, S, on) + (S[:, None] * changed.reshape(len(S), -1, 6)).sum(-1)


def _of_tendons(at: Frame, f: dict[RowKind, Array]) -> tuple[Array, Array]:
    """The same of tendons' rows, with constant tensions."""
    model, kin, parts = at.model, at.kin, strings(at.model, at.kin)
    length, moment = lengths_of(model, kin, at.q, parts)
    tension = cast(Array, sum(tensions(kind, model, length, x) for kind, x in f.items()))
    return tension @ moment, force_slopes_of_strings(model, turns(model, kin, parts), tension)
