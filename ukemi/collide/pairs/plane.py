"""Contacts of a plane (a, its z axis pointing out) with every other primitive (b).

A plane meets the lowest point of a smooth shape, both ends of a capsule, four points of a
cylinder and up to four corners of a box.
"""

import jax.numpy as jnp
from jax import Array

from ukemi.collide.geometry import (
    cross,
    dot,
    first_slots,
    hit_with_shared_normal,
    rotate,
    steady_unit,
    take,
    unit,
    unrotate,
)
from ukemi.collide.shapes import EMPTY, Hit, Shape
from ukemi.maths.ramps import smooth_sign, smooth_step


def _drop(plane: Shape, points: Array, radius: Array | float) -> tuple[Array, Array]:
    """Distances (k,) of balls at points (k, 3) from the plane, and the contact points (k, 3)."""
    normal = plane.mat[:, 2]
    distance = dot(points - plane.pos, normal) - radius
    return distance, points - normal * (radius + 0.5 * distance)[:, None]


def plane_sphere(a: Shape, b: Shape, margin: Array) -> Hit:
    """One contact, below the sphere's centre."""
    distance, point = _drop(a, b.pos[None], b.size[0])
    return hit_with_shared_normal(distance, point, a.mat[:, 2])


def plane_capsule(a: Shape, b: Shape, margin: Array) -> Hit:
    """Two contacts, one below each end; the first tangent follows the capsule's axis."""
    half = b.mat[:, 2] * b.size[1]
    distance, point = _drop(a, jnp.stack([b.pos + half, b.pos - half]), b.size[0])
    return Hit(distance, point, a.mat[None, :, 2], b.mat[None, :, 2])


def plane_ellipsoid(a: Shape, b: Shape, margin: Array) -> Hit:
    """One contact, at the ellipsoid's lowest point."""
    scaled = -unrotate(b.mat, a.mat[:, 2]) * b.size
    lowest = b.size * unit(scaled, jnp.array([1.0, 0.0, 0.0], scaled.dtype))
    distance, point = _drop(a, (b.pos + rotate(b.mat, lowest))[None], 0.0)
    return hit_with_shared_normal(distance, point, a.mat[:, 2])


def plane_cylinder(a: Shape, b: Shape, margin: Array) -> Hit:
    """Four contacts: the lowest rim point, the one above it on the other cap, and two more.

    The last two complete an equilateral triangle on the lower cap, so that a standing cylinder
    rests on three points and a lying one on two. Which rim point is the lowest is undefined
    when the cylinder stands upright: then its x axis decides.
    """
    normal, axis = a.mat[:, 2], b.mat[:, 2]
    radius, half = b.size[0], b.size[1]
    tilt = dot(normal, axis)
    down = jnp.where(tilt > 0, -axis, axis)  # the axis towards the plane
    slope = down * dot(normal, down) - normal  # -normal without its part along the axis
    rim = radius * steady_unit(slope, down, b.mat[:, 0])
    across = 0.75**0.5 * cross(rim, down)
    near = b.pos + half * down
    far = b.pos - half * down
    corners = jnp.stack([near + rim, far + rim, near - 0.5 * rim + across, near - 0.5 * rim - across])
    distance, point = _drop(a, corners, 0.0)
    return hit_with_shared_normal(distance, point, normal)


def smooth_plane_cylinder(a: Shape, b: Shape, margin: Array, width: float) -> Hit:
    """The same without cases, slot by slot: a rim point of either cap, and the triangle's other two.

    Where the rim is within `width` of level, the first point turns towards the cylinder's x axis; where the axis is,
    the triangle moves from one cap to the other.
    """
    normal, axis = a.mat[:, 2], b.mat[:, 2]
    radius, half = b.size[0], b.size[1]
    tilt = dot(normal, axis)
    slope = axis * tilt - normal
    tilted = smooth_step(dot(slope, slope) * (radius / width) ** 2)
    x_axis = b.mat[:, 0]
    rim = radius * (x_axis + tilted * (unit(slope, x_axis) - x_axis))
    across = 0.75**0.5 * cross(rim, axis)
    end = half * axis
    third = -smooth_sign(tilt * half / width) * end - 0.5 * rim
    corners = b.pos + jnp.stack([end + rim, rim - end, third + across, third - across])
    distance, point = _drop(a, corners, 0.0)
    return hit_with_shared_normal(distance, point, normal)


# Corners of the unit box in MuJoCo's order: bit 0 of the index is x, bit 1 y, bit 2 z.
CORNERS = tuple((2.0 * (i & 1) - 1, 1.0 * (i & 2) - 1, 0.5 * (i & 4) - 1) for i in range(8))


def plane_box(a: Shape, b: Shape, margin: Array) -> Hit:
    """Up to four corners: of those on the box's lower half, the first four within the margin.

    More than four corners lie on the lower half only where some are exactly as high as the
    centre; those within the margin go first then.
    """
    offset = rotate(b.mat, jnp.array(CORNERS, b.size.dtype) * b.size)
    height = dot(offset, a.mat[:, 2])
    distance, point = _drop(a, b.pos + offset, 0.0)
    low, near = height <= 0, distance <= margin
    selected = first_slots(low & near, low & ~near, 4)
    return hit_with_shared_normal(take(selected, distance, EMPTY), take(selected, point), a.mat[:, 2])


def smooth_plane_box(a: Shape, b: Shape, margin: Array, width: float) -> Hit:
    """The lower one of each two opposite corners; where these are within `width` of level, a point between them."""
    offset = rotate(b.mat, jnp.array(CORNERS[:4], b.size.dtype) * b.size)
    corners = b.pos - smooth_sign(dot(offset, a.mat[:, 2]) / width)[:, None] * offset
    distance, point = _drop(a, corners, 0.0)
    return hit_with_shared_normal(distance, point, a.mat[:, 2])
