"""Faces of hulls: which meet at a corner, which corners they have, and four of these that say most."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.geometry import cross, dot, rotate
from ukemi.collide.hulls.support import Body, Joined, entries
from ukemi.collide.simplex import direction
from ukemi.maths.gathers import rows_at
from ukemi.maths.ranking import parts, wrapped
from ukemi.model.hulls import Hulls

EDGES = 8  # edges of a face looked at together


def faces_at(hulls: Hulls, corner: Array) -> tuple[Array, Array]:
    """Faces (w,) that meet at a corner (), and which of these are real (w,)."""
    start, end = entries(hulls.fans, corner)
    at = start + np.arange(hulls.widest)
    return rows_at(hulls.fan, jnp.clip(at, 0, jnp.maximum(end - 1, 0))), at < end


def corners_of(hulls: Hulls, face: Array) -> tuple[Array, Array]:
    """Corners (..., k) of faces (...), counterclockwise, the last one repeated; and how many there are (...)."""
    start, end = entries(hulls.loops, face)
    at = jnp.minimum(start[..., None] + np.arange(hulls.longest), end[..., None] - 1)
    return rows_at(hulls.loop, at), end - start


def face_plane(hulls: Hulls, corners: Joined | Array, face: Array) -> tuple[Array, Array]:
    """Areas (..., 3) of faces (...), along outward normals, and a corner (..., 3) of each; see `features.patch`."""
    start, end = entries(hulls.loops, face)
    base = corners[rows_at(hulls.loop, start)]

    def further(k, total):
        at = jnp.minimum((start + k * EDGES)[..., None] + np.arange(EDGES + 1), end[..., None] - 1)
        arms = corners[rows_at(hulls.loop, at)] - base[..., None, :]
        return total + 0.5 * cross(arms[..., :-1, :], arms[..., 1:, :]).sum(-2)

    count = 1 if hulls.longest <= EDGES else parts((end - start - 1).max(), EDGES)
    rounding = rows_at(jnp.asarray(hulls.rounding, base.dtype), face)
    return lax.fori_loop(0, count, further, rounding), corners[rows_at(hulls.loop, end - 1)]


def normals(hulls: Hulls, body: Body, faces: Array) -> Array:
    """Outward unit normals (..., 3) of faces (...) in the world, as loaded."""
    s = body.scale
    area = rows_at(jnp.asarray(hulls.areas, s.dtype), faces) * jnp.roll(s, -1) * jnp.roll(s, 1)
    return rotate(body.mat, direction(area))


class _Marks(NamedTuple):
    """Four corners of a polygon, and those of the largest area so far."""

    now: Array  # (4,)
    best: Array  # (4,)
    most: Array  # () area, squared
    grew: Array  # () bool: the last step made it larger


def four(place: Array, count: Array, turns: Array | int) -> Array:
    """Places (4,) in a convex polygon (k, 3) with `count` corners of four that enclose much.

    As MuJoCo finds them: for the first `turns` places of the first mark, the last one goes on as long as the area
    grows, and after each of its steps so do the two between.
    """

    def area(marks: Array) -> Array:
        p, q, r, s = rows_at(place, marks)
        x = cross(r - p, s - q)
        return dot(x, x)

    def step(at: _Marks, k: int) -> _Marks:
        new = wrapped(at.now + np.eye(4, dtype=np.int32)[k], count)
        value = area(new)
        return _Marks(new, new, value, value > at.most)

    def go(at: _Marks, k: int, after: tuple[int, ...] = ()) -> _Marks:
        def further(at: _Marks) -> _Marks:
            new = step(at, k)
            grew, more = new.grew, new
            for other in after:
                more = go(more, other)
            return jax.tree.map(lambda x, y: jnp.where(grew, x, y), more, at)._replace(grew=grew)

        return lax.while_loop(lambda at: at.grew, further, at._replace(grew=jnp.array(True)))

    def turn(a: Array, at: _Marks) -> _Marks:
        at = go(at._replace(now=jnp.concatenate([a[None], at.now[1:]])), 3, (2, 1))
        _, b, c, d = at.now
        met = b == a  # marks stay in order
        b = jnp.where(met, wrapped(b + 1, count), b)
        met = met & (c == b)
        c = jnp.where(met, wrapped(c + 1, count), c)
        d = jnp.where(met & (d == c), wrapped(d + 1, count), d)
        return at._replace(now=jnp.stack([a, b, c, d]))

    start = jnp.arange(4, dtype=jnp.int32)
    first = _Marks(start, start, area(start), jnp.array(True))
    return lax.fori_loop(0, turns, turn, first).best
