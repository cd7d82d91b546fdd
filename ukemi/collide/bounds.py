"""Capsules that hold shapes: of all geoms as if they were of one kind, half axes (ng, 3) and radii (ng,) [m]."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial
from ukemi.maths.ranking import ascending
from ukemi.model.records import Geoms


def of_ball(geoms: Geoms) -> tuple[Array, Array]:
    """Of a sphere: itself."""
    return jnp.zeros_like(geoms.size), geoms.size[:, 0]


def of_rod(geoms: Geoms) -> tuple[Array, Array]:
    """Of a capsule: itself; and of a cylinder, whose rim is one radius from its axis' end."""
    return geoms.size[:, 1:2] * np.array([0.0, 0.0, 1.0], geoms.size.dtype), geoms.size[:, 0]


def of_box(geoms: Geoms) -> tuple[Array, Array]:
    """Along a box's longest axis."""
    order = ascending(geoms.size)
    return _longest(geoms) * order[:, 2:], spatial.safe_norm(order[:, :2])


def of_ellipsoid(geoms: Geoms) -> tuple[Array, Array]:
    """Along an ellipsoid's longest axis, as thick as the next one."""
    order = ascending(geoms.size)
    return _longest(geoms) * (order[:, 2:] - order[:, 1:2]), order[:, 1]


def _longest(geoms: Geoms) -> Array:
    return jnp.arange(3) == jnp.argmax(geoms.size, -1)[:, None]
