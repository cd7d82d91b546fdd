"""Faces of hulls: which meet at a corner, which corners they have, and four of these that say most."""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.geometry import cross, dot, rotate
from ukemi.collide.hulls.support import Body, Joined, entries
from ukemi.collide.simplex import direction
from ukemi.model.hulls import Hulls

EDGES = 8  # edges of a face looked at together


def faces_at(hulls: Hulls, corner: Array) -> tuple[Array, Array]:
    """Faces (w,) that meet at a corner (), and which of these are real (w,)."""
    start, end = entries(hulls.fans, corner)
    at = start + np.arange(hulls.widest)
    return jnp.asarray(hulls.fan)[jnp.clip(at, 0, jnp.maximum(end - 1, 0))], at < end


def corners_of(hulls: Hulls, face: Array) -> tuple[Array, Array]:
    """Corners (..., k) of faces (...), counterclockwise, the last one repeated; and how many there are (...)."""
    start, end = entries(hulls.loops, face)
    at = jnp.minimum(start[..., None] + np.arange(hulls.longest), end[..., None] - 1)
    return jnp.asarray(hulls.loop)[at], end - start


def face_plane(hulls: Hulls, corners: Joined | Array, face: Array) -> tuple[Array, Array]:
    """Areas (..., 3) of faces (...), along outward normals, and a corner (..., 3) of each; see `features.patch`."""
    start, end = entries(hulls.loops, face)
    base = corners[jnp.asarray(hulls.loop)[start]]

    def further(k, total):
        at = jnp.minimum((start + k * EDGES)[..., None] + np.arange(EDGES + 1), end[..., None] - 1)
        arms = corners[jnp.asarray(hulls.loop)[at]] - base[..., None, :]
        return total + 0.5 * cross(arms[..., :-1, :], arms[..., 1:, :]).sum(-2)

    count = 1 if hulls.longest <= EDGES else -(-(end - start - 1).max() // EDGES)
    return lax.fori_loop(0, count, further, jnp.zeros_like(base)), corners[jnp.asarray(hulls.loop)[end - 1]]


def normals(hulls: Hulls, body: Body, faces: Array) -> Array:
    """Outward unit normals (..., 3) of faces (...) in the world, as loaded."""
    s = body.scale
    area = jnp.asarray(hulls.areas, s.dtype)[faces] * jnp.roll(s, -1) * jnp.roll(s, 1)
    return rotate(body.mat, direction(area))


def four(place: Array, count: Array) -> Array:
    """Places (4,) in a convex polygon (k, 3) with `count` corners of four that enclose much: the first, and three more.

    As MuJoCo finds them: each of the three goes on as long as the area grows.
    """

    def area(b, c, d):
        p, q, r, s = place[0], place[b % count], place[c % count], place[d % count]
        x = cross(r - p, s - q)
        return dot(x, x)

    def advance(k: int, at):
        """Move corner k on while the area grows."""

        def further(at):
            corners, most, _ = at
            new = tuple(x + (j == k) for j, x in enumerate(corners))
            value = area(*new)
            more = value > most
            kept = tuple(jnp.where(more, x, y) for x, y in zip(new, corners, strict=True))
            return kept, jnp.maximum(value, most), more

        def grows(at):
            return at[2]

        corners, most, _ = lax.while_loop(grows, further, (*at, jnp.array(True)))
        return corners, most

    def turn(at):
        corners, most, _ = at
        b, c, d = corners
        value = area(b, c, d + 1)
        more = value > most
        at = (b, c, jnp.where(more, d + 1, d)), jnp.where(more, value, most)
        corners, most = advance(0, advance(1, at))
        return tuple(jnp.where(more, x, y) for x, y in zip(corners, at[0], strict=True)), most, more

    start = tuple(jnp.int32(k) for k in (1, 2, 3))
    corners, _, _ = lax.while_loop(lambda at: at[2], turn, (start, area(*start), jnp.array(True)))
    return jnp.stack([jnp.int32(0), *(x % count for x in corners)]).astype(jnp.int32)
