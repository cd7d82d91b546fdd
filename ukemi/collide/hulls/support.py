"""Corners of hulls that are furthest along a direction."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.geometry import dot, rotate, unrotate
from ukemi.collide.simplex import direction
from ukemi.model.hulls import Hulls

BLOCK = 16  # corners looked at together


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
            return self.fixed[numbers]
        free = self.free[jnp.maximum(numbers - n, 0)]
        return jnp.where((numbers < n)[..., None], self.fixed[jnp.minimum(numbers, n - 1)], free)

    def __len__(self) -> int:
        return len(self.fixed) + len(self.free)


def places(corners: Joined | Array, body: Body, ids: Array) -> Array:
    """Corners (..., 3) of a body along its axes, from its origin."""
    return body.scale * (corners if body.own is None else body.own)[ids]


def entries(starts: np.ndarray, k: Array) -> tuple[Array, Array]:
    """The first entry (...) of the k-th of lists that follow each other, and the one after its last."""
    table = jnp.asarray(starts)
    return table[k], table[k + 1]


def cell(n: Array, side: Array) -> Array:
    """Cell () of a cube with `side` cells a side that the direction n (3,) points into."""
    axis = jnp.argmax(jnp.abs(n))
    turned = [(axis == k) * jnp.stack([n[k], n[(k + 1) % 3], n[(k + 2) % 3]]) for k in range(3)]
    x, u, w = turned[0] + turned[1] + turned[2]
    least = jnp.finfo(n.dtype).tiny
    square = jnp.stack([u, w]) / jnp.maximum(jnp.abs(x), least)
    i, j = jnp.clip(jnp.floor((square + 1) * 0.5 * side).astype(jnp.int32), 0, side - 1)
    return ((2 * axis + (x < 0)) * side + i) * side + j


def support(hulls: Hulls, corners: Joined | Array, body: Body, n: Array) -> tuple[Array, Array]:
    """Which corner () of a body is furthest along n (3,), and where (3,) it is, from the body's origin."""
    towards = body.scale * unrotate(body.mat, n)
    if body.own is not None:
        best = jnp.argmax(dot(body.own, towards)).astype(jnp.int32)
        return best, rotate(body.mat, body.scale * body.own[best])
    first, side = jnp.asarray(hulls.grid)[body.hull]
    start, end = entries(hulls.cells, first + cell(towards, side))

    def better(found):
        at, best, height = found
        near = jnp.asarray(hulls.near)[jnp.minimum(at + np.arange(BLOCK), end - 1)]
        heights = dot(corners[near], towards)
        k = jnp.argmax(heights)
        higher = heights[k] > height
        return at + BLOCK, jnp.where(higher, near[k], best), jnp.where(higher, heights[k], height)

    found = better((start, jnp.int32(0), jnp.asarray(-jnp.inf, n.dtype)))
    if hulls.most_near > BLOCK:
        found = lax.while_loop(lambda found: found[0] < end, better, found)
    place = body.scale * corners[found[1]]
    if body.core is not None:
        place = place + body.core * direction(body.core * unrotate(body.mat, n))
    return found[1], rotate(body.mat, place)
