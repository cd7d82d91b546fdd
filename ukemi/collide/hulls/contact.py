"""The contact of two polytopes as a function of the few corners that touch, in closed form.

Whatever found them, and however, distances, points and normals come from here, with and without derivatives alike.
"""

from functools import reduce
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ukemi.collide.geometry import cross, dot, unit
from ukemi.collide.hulls import features
from ukemi.collide.simplex import direction
from ukemi.maths import spatial


class Posed(NamedTuple):
    """One side of a contact, in the world."""

    corners: Array  # (3, 3)
    area: Array  # (3,) of the face; zero if that is the triangle of the corners
    base: Array  # (3,) corner of the face
    radius: Array  # () of the ball that grows the polytope
    axis: Array | None = None  # (3,) of a capsule or cylinder
    girth: Array | None = None  # () and its radius [m]


def contact(case: Array, a: Posed, b: Posed, hint: Array) -> tuple[Array, Array, Array]:
    """Distance (), point (3,) midway between the surfaces, and normal (3,) from a to b.

    case: of `features`; hint: (3,) the normal, but for its exact direction.
    """
    A, B, up_a, up_b = a.corners, b.corners, _up(a, hint), _up(b, -hint)
    radius = a.radius
    if a.axis is not None and a.girth is not None:
        lies = (case == features.LINE_ON_B) | (case == features.LINE_OFF_B)
        A = jnp.where(lies, A + a.girth * sidewards(a.axis, -up_b), A)
        radius = jnp.where(lies, 0.0, radius)

    A, up_a, up_b, radius = spatial.materialize((A, up_a, up_b, radius))

    def among(*cases: int) -> Array:
        return reduce(jnp.logical_or, [case == one for one in cases])

    (nearest, between), (crossing, middle) = spatial.materialize((_nearest(A, B, hint), _edges(A, B, hint)))
    # a point, and the face over which its height is the distance
    point = jnp.where(among(features.POINT_ON_B, features.LINE_ON_B, features.FACES_AT_A), A[0], B[0])
    point = jnp.where(among(features.EDGE_OFF_B, features.LINE_OFF_B), _off(A, B, up_b), point)
    point = jnp.where(among(features.EDGE_OFF_A, features.FACES_AT_EDGES), _off(B, A, up_a), point)
    on_a = among(features.POINT_ON_A, features.EDGE_OFF_A)
    up, base = jnp.where(on_a, up_a, up_b), jnp.where(on_a, a.base, b.base)
    # faces need not be quite flat: what of b there is, is seen on the plane of a's
    base = jnp.where(among(features.FACES_AT_B, features.FACES_AT_EDGES), point, base)
    seen = among(features.FACES_AT_A, features.FACES_AT_B, features.FACES_AT_EDGES)
    point = jnp.where(seen, point - dot(point - a.base, up_a) * up_a, point)
    height = dot(point - base, up)
    normal = jnp.where(on_a, up_a, -up_b)
    halfway = point - 0.5 * height * up

    straight = among(features.NEAREST)
    normal = jnp.where(straight, nearest, jnp.where(case == features.EDGES, crossing, normal))
    ends = jnp.where(straight, between, middle)  # (2, 3) on a and on b
    two = among(features.NEAREST, features.EDGES)
    distance = jnp.where(two, dot(ends[1] - ends[0], normal), height)
    halfway = jnp.where(two, 0.5 * (ends[0] + ends[1]), halfway)
    return distance - radius - b.radius, halfway + 0.5 * (radius - b.radius) * normal, normal


def sidewards(axis: Array, towards: Array) -> Array:
    """The unit vector (3,) across an axis that goes most `towards` (3,)."""
    across = towards - dot(axis, towards) * axis
    return unit(across, towards)


def _up(side: Posed, otherwise: Array) -> Array:
    """The outward normal (3,) of a side's face."""
    P = side.corners
    given = dot(side.area, side.area) > 0
    return direction(jnp.where(given, side.area, cross(P[1] - P[0], P[2] - P[0])), otherwise)


def _off(P: Array, Q: Array, up: Array) -> Array:
    """Where the edge of P's first two corners crosses the plane that stands on that of Q's along `up`."""
    side, along = cross(Q[1] - Q[0], up), P[1] - P[0]
    slope = dot(side, along)
    flat = slope == 0
    return P[0] + jnp.where(flat, 0.0, dot(Q[0] - P[0], side) / jnp.where(flat, 1.0, slope)) * along


def _edges(P: Array, Q: Array, hint: Array) -> tuple[Array, Array]:
    """Normal (3,) and nearest points (2, 3) of two lines that cross."""
    u, w, r = P[1] - P[0], Q[1] - Q[0], Q[0] - P[0]
    normal = direction(cross(u, w), hint)
    normal = normal * jnp.where(dot(normal, hint) < 0, -1.0, 1.0)
    uu, ww, uw = dot(u, u), dot(w, w), dot(u, w)
    ur, wr = dot(u, r), dot(w, r)
    square = uu * ww - uw * uw
    flat = square <= 0
    square = jnp.where(flat, 1.0, square)
    s = jnp.where(flat, 0.0, (ur * ww - uw * wr) / square)
    t = jnp.where(flat, 0.0, (ur * uw - uu * wr) / square)
    return normal, jnp.stack([P[0] + s * u, Q[0] + t * w])


def _nearest(P: Array, Q: Array, hint: Array) -> tuple[Array, Array]:
    """Normal (3,) and nearest points (2, 3) of two points, or of a point and a line."""
    p, q = spatial.materialize((_foot(P, Q[0]), _foot(Q, P[0])))
    normal = unit(q - p, hint)
    return normal * jnp.where(dot(normal, hint) < 0, -1.0, 1.0), jnp.stack([p, q])


def _foot(P: Array, q: Array) -> Array:
    """The point of P's first two corners' line that is nearest to q (3,); its first corner, if both are one."""
    along = P[1] - P[0]
    square = dot(along, along)
    point = square == 0
    return P[0] + jnp.where(point, 0.0, dot(q - P[0], along) / jnp.where(point, 1.0, square)) * along
