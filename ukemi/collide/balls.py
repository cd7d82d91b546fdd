"""Contacts between spheres, capsules and cylinders that come down to two balls.

A capsule is a ball that slides along a segment; the wall of a cylinder is one too, for a sphere
beside it; its rim is a ball of radius zero. So each pair finds two centres and measures there.
"""

import jax.numpy as jnp
from jax import Array, lax

from .geometry import cross, dot, first_slots, hit_selected, contact_frame, smallest, unit
from .shapes import Hit, Shape


def _ball_contacts(
    a: Shape, b: Shape, centre_a: Array, centre_b: Array, radius_a: Array, radius_b: Array
) -> tuple[Array, Array, Array]:
    """Distance (...), point (..., 3), normal (..., 3) of balls at centres (..., 3).

    Where the centres coincide the normal is perpendicular to both shapes' z axes, or the world's
    x axis where those are parallel.
    """
    x_axis = jnp.array([1.0, 0.0, 0.0], a.pos.dtype)
    apart = centre_b - centre_a
    normal = unit(apart, unit(cross(a.mat[:, 2], b.mat[:, 2]), x_axis))
    distance = dot(normal, apart) - radius_a - radius_b
    return distance, centre_a + normal * (radius_a + 0.5 * distance)[..., None], normal


def _single(distance: Array, point: Array, normal: Array) -> Hit:
    """A Hit with one slot."""
    return Hit(distance[None], point[None], contact_frame(normal)[None])


def sphere_sphere(a: Shape, b: Shape, margin: Array) -> Hit:
    """One contact on the line of centres."""
    return _single(*_ball_contacts(a, b, a.pos, b.pos, a.size[0], b.size[0]))


def sphere_capsule(a: Shape, b: Shape, margin: Array) -> Hit:
    """One contact, with the capsule's ball nearest to the sphere."""
    axis, half = b.mat[:, 2], b.size[1]
    along = jnp.clip(dot(axis, a.pos - b.pos), -half, half)
    return _single(*_ball_contacts(a, b, a.pos, b.pos + axis * along, a.size[0], b.size[0]))


def sphere_cylinder(a: Shape, b: Shape, margin: Array) -> Hit:
    """One contact, with the cylinder's wall, one of its caps, or its rim.

    A centre inside the cylinder leaves by the nearer of wall and cap.
    """
    axis = b.mat[:, 2]
    radius, half = b.size[0], b.size[1]
    apart = a.pos - b.pos
    along = dot(axis, apart)
    outward = apart - axis * along
    side = jnp.where(along > 0, 1.0, -1.0)
    radial = unit(outward, jnp.zeros_like(axis))  # zero on the axis, where it has no direction
    across = dot(radial, outward)
    beside, above = jnp.abs(along) < half, across < radius
    cap_first = half - jnp.abs(along) < radius - across
    on_wall = beside & ~(above & cap_first)
    on_cap = above & ~on_wall

    rim = axis * (side * half) + radial * radius
    centre = b.pos + jnp.where(on_wall, axis * along, rim)
    ball = _ball_contacts(a, b, a.pos, centre, a.size[0], jnp.where(on_wall, radius, 0.0))

    cap_normal = -side * axis
    cap_distance = side * along - half - a.size[0]
    cap_point = a.pos + cap_normal * (a.size[0] + 0.5 * cap_distance)
    cap = (cap_distance, cap_point, cap_normal)
    return _single(*(jnp.where(on_cap, c, d) for c, d in zip(cap, ball)))


def capsule_capsule(a: Shape, b: Shape, margin: Array) -> Hit:
    """One contact between the nearest points of the axes, or two where the axes are parallel.

    For parallel axes the candidates are the two ends of a against b and then the two ends of b
    against a; the first two within the margin count (beyond it: the ends of a).
    """
    axis_a, axis_b = a.mat[:, 2] * a.size[1], b.mat[:, 2] * b.size[1]
    apart = a.pos - b.pos
    aa, bb, ab = dot(axis_a, axis_a), dot(axis_b, axis_b), -dot(axis_a, axis_b)
    u, v = -dot(axis_a, apart), dot(axis_b, apart)
    normal = cross(axis_a, axis_b)
    det = dot(normal, normal)  # = aa bb - ab², without that difference's cancellation
    parallel = det < smallest(det)

    def nearest_on_a(y: Array) -> Array:
        return jnp.clip((u - ab * y) / aa, -1.0, 1.0)

    def nearest_on_b(x: Array) -> Array:
        return jnp.clip((v - ab * x) / bb, -1.0, 1.0)

    # crossing axes: the unbounded minimum, clipped on a, then on b, then again on a
    x = jnp.clip((bb * u - ab * v) / jnp.where(parallel, 1.0, det), -1.0, 1.0)
    free = (v - ab * x) / bb
    y = jnp.clip(free, -1.0, 1.0)
    x = jnp.where(free == y, x, nearest_on_a(y))

    ends = jnp.array([1.0, -1.0], a.pos.dtype)
    on_a = jnp.where(parallel, jnp.concatenate([ends, nearest_on_a(ends)]), x)
    on_b = jnp.where(parallel, jnp.concatenate([nearest_on_b(ends), ends]), y)
    centre_a = a.pos + axis_a * on_a[:, None]
    centre_b = b.pos + axis_b * on_b[:, None]
    distance, point, normals = _ball_contacts(a, b, centre_a, centre_b, a.size[0], b.size[0])

    counted = parallel | (jnp.arange(4) < 1)
    near = lax.stop_gradient(distance) <= margin
    selected = first_slots(counted & near, counted & ~near, 2)
    return hit_selected(selected, distance, point, normals)
