"""Corners of hulls that are furthest along a direction."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.geometry import dot, rotate, unrotate
from ukemi.collide.simplex import direction
from ukemi.maths.gathers import rows_at
from ukemi.model.hulls import Hulls

BLOCK = 16  # corners looked at together
TURNED = np.array([(0, 1, 2), (1, 2, 0), (2, 0, 1)])  # axes from each on


class Body(NamedTuple):
    """One posed polytope, grown by an ellipsoid along its axes and by a ball."""

    pos: Array  # (3,)
    mat: Array  # (3, 3)
    scale: Array  # (3,) of its corners
    core: Array | None  # (3,) half axes of the ellipsoid, a disc if one is zero; None: there is none [m]
    radius: Array  # () of the ball, which a search leaves out [m]
    hull: Array  # () which of `Hulls`
    own: Array | None = None  # (k, 3) its corners, of a polytope that is none of them


class Joined(eqx.Module):
    """Corners of all hulls, in units of shapes' sizes; read by their numbers as one array would be.

    As they lie in memory: to join them would copy all corners at every step.
    """

    fixed: Array  # (nf, 3) of shapes that are no meshes
    free: Array  # (nvert, 3) of meshes, which are parameters

    def __getitem__(self, numbers: Array) -> Array:
        n = len(self.fixed)
        if not len(self.free):
            return rows_at(self.fixed, numbers)
        free = rows_at(self.free, jnp.maximum(numbers - n, 0))
        return jnp.where((numbers < n)[..., None], rows_at(self.fixed, jnp.minimum(numbers, n - 1)), free)

    def __len__(self) -> int:
        return len(self.fixed) + len(self.free)


def together(x, y):
    """Two that are alike as one, with a leading axis: what is done for both is compiled once."""
    return jax.tree.map(lambda x, y: jnp.stack([x, y]), x, y)


def each(both):
    """Both of what was put `together`."""
    first, second = (jax.tree.map(lambda x, k=k: x[k], both) for k in (0, 1))
    return first, second


def places(corners: Joined | Array, body: Body, ids: Array) -> Array:
    """Corners (..., 3) of a body along its axes, from its origin."""
    return body.scale * (corners if body.own is None else body.own)[ids]


def entries(starts: np.ndarray, k: Array) -> tuple[Array, Array]:
    """The first entry (...) of the k-th of lists that follow each other, and the one after its last."""
    return rows_at(starts, k), rows_at(starts, k + 1)


def cell(n: Array, side: Array) -> Array:
    """Cell () of a cube with `side` cells a side that the direction n (3,) points into."""
    axis = jnp.argmax(jnp.abs(n))
    turned = rows_at(n, rows_at(TURNED, axis))
    x, least = turned[0], jnp.finfo(n.dtype).tiny
    square = turned[1:] / jnp.maximum(jnp.abs(x), least)
    i, j = jnp.clip(jnp.floor((square + 1) * 0.5 * side).astype(jnp.int32), 0, side - 1)
    return ((2 * axis + (x < 0)) * side + i) * side + j


def highest(start: Array, end: Array, look: Callable, dtype, *, short: bool = False) -> tuple[Array, Array]:
    """Which corner () of a list's entries from start to end is highest, and how high () it is: −∞ of none.

    look: function of entries (k,), corners and their heights; short: no list is longer than a block.
    """

    def better(found):
        at, best, height = found
        corners, heights = look(jnp.minimum(at + np.arange(BLOCK, dtype=np.int32), end - 1))
        k = jnp.argmax(heights)
        most = rows_at(heights, k)
        higher = (most > height) | jnp.isnan(most)  # of which the comparison says no, as later ones do then
        return at + BLOCK, jnp.where(higher, rows_at(corners, k), best), jnp.where(higher, most, height)

    found = start, jnp.int32(0), jnp.asarray(-jnp.inf, dtype)
    return (better(found) if short else lax.while_loop(lambda found: found[0] < end, better, found))[1:]


def support(hulls: Hulls, corners: Joined | Array, body: Body, n: Array) -> tuple[Array, Array]:
    """Which corner () of a body is furthest along n (3,), and where (3,) it is, from the body's origin."""
    towards = body.scale * unrotate(body.mat, n)
    if body.own is not None:
        best = jnp.argmax(dot(body.own, towards)).astype(jnp.int32)
        return best, rotate(body.mat, body.scale * rows_at(body.own, best))
    first, side = rows_at(hulls.grid, body.hull)
    start, end = entries(hulls.cells, first + cell(towards, side))

    def look(entry):
        near = rows_at(hulls.near, entry)
        return near, dot(corners[near], towards)

    best, _ = highest(start, end, look, n.dtype, short=hulls.most_near <= BLOCK)
    place = body.scale * corners[best]
    if body.core is not None:
        place = place + body.core * direction(body.core * unrotate(body.mat, n))
    return best, rotate(body.mat, place)
