"""Capsules that hold shapes of one kind: half axes (n, 3) in their frames and radii (n,) [m].

These functions take all arrays that say what shapes are (`shapes.own_arrays`), and need the first, their sizes (n, 3).
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial
from ukemi.maths.ranking import ascending


def of_ball(size: Array, *_: Array) -> tuple[Array, Array]:
    """Of a sphere: itself."""
    return jnp.zeros_like(size), size[:, 0]


def of_rod(size: Array, *_: Array) -> tuple[Array, Array]:
    """Of a capsule: itself; and of a cylinder, whose rim is one radius from its axis' end."""
    return size[:, 1:2] * np.array([0.0, 0.0, 1.0], size.dtype), size[:, 0]


def of_box(size: Array, *_: Array) -> tuple[Array, Array]:
    """Along a box's longest axis."""
    order = ascending(size)
    return _longest(size) * order[:, 2:], spatial.safe_norm(order[:, :2])


def of_ellipsoid(size: Array, *_: Array) -> tuple[Array, Array]:
    """Along an ellipsoid's longest axis, as thick as the next one."""
    order = ascending(size)
    return _longest(size) * (order[:, 2:] - order[:, 1:2]), order[:, 1]


def of_field(size: Array, *_: Array) -> tuple[Array, Array]:
    """Of a height field: a ball around what elevations from 0 to 1 reach."""
    return jnp.zeros_like(size), spatial.safe_norm(size)


def _longest(size: Array) -> Array:
    return jnp.arange(3) == jnp.argmax(size, -1)[:, None]
