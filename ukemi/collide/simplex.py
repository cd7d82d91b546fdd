"""The point of a tetrahedron nearest to the origin."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.collide.geometry import cross, dot, unit

EDGES = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
FACES = np.array([(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)])


def length(x: Array) -> Array:
    """|x| over the last axis, with derivative zero at zero."""
    square = dot(x, x)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def direction(x: Array, otherwise: Array | float = 0.0) -> Array:
    """x / |x| over the last axis, however short it is, or `otherwise` where it is zero.

    `geometry.unit` takes what is shorter than a length for zero: an area or a product of edges is no length.
    """
    square = dot(x, x)[..., None]
    found = square > 0
    return jnp.where(found, x / jnp.sqrt(jnp.where(found, square, 1.0)), otherwise)


def nearest(points: Array) -> tuple[Array, Array, Array, Array]:
    """The point of a tetrahedron's surface nearest to the origin, and whether the origin is inside.

    Returns its weights (4,), the direction to it (3,), its distance (), and the flag (). The tetrahedron may be flat.
    """
    eye = np.eye(4, dtype=points.dtype)
    tiny = jnp.finfo(points.dtype).tiny
    p, q = points[EDGES[:, 0]], points[EDGES[:, 1]]
    along = q - p
    square = dot(along, along)
    t = jnp.clip(-dot(p, along) / jnp.maximum(square, tiny), 0.0, 1.0)[:, None]
    on_edge = p + t * along
    edge_weight = (1 - t) * eye[EDGES[:, 0]] + t * eye[EDGES[:, 1]]

    x, y, z = (points[FACES[:, k]] for k in range(3))
    n = cross(y - x, z - x)
    area = jnp.maximum(dot(n, n), tiny)
    share = jnp.stack([dot(cross(y, z), n), dot(cross(z, x), n), dot(cross(x, y), n)], -1) / area[:, None]
    longest = jnp.maximum(jnp.maximum(dot(y - x, y - x), dot(z - x, z - x)), dot(z - y, z - y))
    proper = dot(n, n) > (64 * jnp.finfo(points.dtype).eps * longest) ** 2
    within = proper & (share >= 0).all(-1)
    unit_n = n / jnp.sqrt(area)[:, None]
    height = dot(unit_n, x)
    face_weight = (share[:, :, None] * eye[FACES]).sum(1)

    squares = jnp.concatenate([dot(on_edge, on_edge), jnp.where(within, height**2, jnp.inf)])
    best = (jnp.arange(10) == jnp.argmin(squares))[:, None]
    weight = (best * jnp.concatenate([edge_weight, jnp.where(within[:, None], face_weight, 0.0)])).sum(0)
    distance = jnp.sqrt(squares.min())
    side = jnp.where(height < 0, -1.0, 1.0)[:, None]
    direction = jnp.concatenate([on_edge / jnp.maximum(length(on_edge), tiny)[:, None], unit_n * side])
    normal = unit((best * direction).sum(0), jnp.array([1.0, 0.0, 0.0], points.dtype))
    # inside: seen from every face the origin is on the side of the fourth point
    fourth = points[np.array([3, 2, 1, 0])]
    beyond = dot(n, fourth - x)
    solid = (jnp.abs(beyond) > 1e-12 * jnp.sqrt(area) * jnp.sqrt(longest.max())) & proper
    inside = (solid & (beyond * dot(n, -x) > 0)).all() | (distance <= 0)
    return weight, normal, distance, inside
