"""Contacts between spheres, capsules and cylinders that come down to two balls.

A capsule is a ball that slides along a segment; the wall of a cylinder is one too, for a sphere
beside it; its rim is a ball of radius zero. So each pair finds two centres and measures there.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ukemi.collide.geometry import cross, dot, unit
from ukemi.collide.shapes import EMPTY, Hit, Shape
from ukemi.maths.ramps import clamp, smooth_step
from ukemi.maths.spatial import materialize


def _ball_contacts(
    a: Shape, b: Shape, centre_a: Array, centre_b: Array, radius_a: Array, radius_b: Array
) -> tuple[Array, Array, Array]:
    """Distance (...), point (..., 3), normal (..., 3) of balls at centres (..., 3).

    Where the centres coincide the normal is perpendicular to both shapes' z axes, or the world's
    x axis where those are parallel.
    """
    x_axis = jnp.array([1.0, 0.0, 0.0], a.pos.dtype)
    apart = centre_b - centre_a
    normal = materialize(unit(apart, unit(cross(a.mat[:, 2], b.mat[:, 2]), x_axis)))
    distance = dot(normal, apart) - radius_a - radius_b
    return distance, centre_a + normal * (radius_a + 0.5 * distance)[..., None], normal


def _single(distance: Array, point: Array, normal: Array) -> Hit:
    """A Hit with one slot."""
    return Hit(distance[None], point[None], normal[None])


def sphere_sphere(a: Shape, b: Shape, margin: Array) -> Hit:
    """One contact on the line of centres."""
    return _single(*_ball_contacts(a, b, a.pos, b.pos, a.size[0], b.size[0]))


def sphere_capsule(a: Shape, b: Shape, margin: Array, width: float = 0.0) -> Hit:
    """One contact, with the capsule's ball nearest to the sphere; within `width` of its ends nearly so."""
    axis, half = b.mat[:, 2], b.size[1]
    along = clamp(dot(axis, a.pos - b.pos), -half, half, width)
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


class Axes(NamedTuple):
    """Two capsules' axes; places on them are measured from their centres."""

    a: Array  # (3,) direction
    b: Array
    half_a: Array  # () half length
    half_b: Array
    u: Array  # () the other's centre along a, and along b
    v: Array
    cosine: Array
    sine_squared: Array

    @staticmethod
    def of(a: Shape, b: Shape) -> "Axes":
        """Those of two capsules."""
        axis_a, axis_b, apart = a.mat[:, 2], b.mat[:, 2], b.pos - a.pos
        u, v, cosine = dot(axis_a, apart), dot(axis_b, apart), dot(axis_a, axis_b)
        # the sine from the cross product: 1 - cosine² would cancel
        normal = cross(axis_a, axis_b)
        return Axes(axis_a, axis_b, a.size[1], b.size[1], u, v, cosine, dot(normal, normal))

    def foot_on_a(self, y: Array, width: float = 0.0) -> Array:
        """The place on a nearest to that at y on b."""
        return clamp(self.u + self.cosine * y, -self.half_a, self.half_a, width)

    def foot_on_b(self, x: Array, width: float = 0.0) -> Array:
        """The place on b nearest to that at x on a."""
        return clamp(self.cosine * x - self.v, -self.half_b, self.half_b, width)

    def ends_of_b(self) -> Array:
        """Both ends of b (2,)."""
        return self.half_b * jnp.array([1.0, -1.0], self.half_b.dtype)

    def contacts(self, a: Shape, b: Shape, on_a: Array, on_b: Array) -> tuple[Array, Array, Array]:
        """Distance, point and normal of the balls at the places (k,) of both."""
        on_a, on_b = materialize((on_a, on_b))
        centres = a.pos + self.a * on_a[:, None], b.pos + self.b * on_b[:, None]
        return _ball_contacts(a, b, *centres, a.size[0], b.size[0])


# Sine of the angle between two capsules below which they count as parallel.
PARALLEL = 1e-4


def capsule_capsule(a: Shape, b: Shape, margin: Array) -> Hit:
    """One contact between the nearest points of the axes, or two where the axes are parallel.

    Parallel axes (within 1e-4 rad) touch along an interval: its two ends are the contacts. Each
    is an end of b and its foot on a, or else an end of a and its foot on b. Where the interval
    is empty both slots hold the same contact between two ends, as in MuJoCo 4.0.
    """
    axes = Axes.of(a, b)
    u, v, cosine = axes.u, axes.v, axes.cosine
    parallel = axes.sine_squared < PARALLEL**2

    # crossing axes: the unbounded minimum, clipped on a, then on b, then again on a
    x = (u - cosine * v) / jnp.where(parallel, 1.0, axes.sine_squared)
    x = clamp(x, -axes.half_a, axes.half_a)
    crossing_b = axes.foot_on_b(x)
    crossing_a = jnp.where(crossing_b == cosine * x - v, x, axes.foot_on_a(crossing_b))

    end_b = axes.ends_of_b()
    interval_a = axes.foot_on_a(end_b)
    interval_b = jnp.where(interval_a == u + cosine * end_b, end_b, axes.foot_on_b(interval_a))

    on_a = jnp.where(parallel, interval_a, crossing_a)
    on_b = jnp.where(parallel, interval_b, crossing_b)
    distance, point, normal = axes.contacts(a, b, on_a, on_b)
    second = jnp.where(parallel, distance[1], EMPTY)
    return Hit(jnp.stack([distance[0], second]), point, normal)


def smooth_capsule_capsule(a: Shape, b: Shape, margin: Array, width: float) -> Hit:
    """The same without cases: as the axes turn, the two ends of the interval merge into the contact of crossing axes.

    The second one recedes from touching meanwhile. Parallel are axes that diverge by less than half the width over
    the capsules' length; they cross where they diverge by more than it.
    """
    axes = Axes.of(a, b)
    reach = 2 * axes.half_a * axes.half_b / (axes.half_a + axes.half_b)
    crossing = smooth_step((axes.sine_squared * (reach / width) ** 2 - 0.25) / 0.75)
    x = (axes.u - axes.cosine * axes.v) / jnp.where(crossing > 0, axes.sine_squared, 1.0)
    crossing_b = axes.foot_on_b(clamp(x, -axes.half_a, axes.half_a, width), width)
    crossing_a = axes.foot_on_a(crossing_b, width)
    interval_a = axes.foot_on_a(axes.ends_of_b(), width)
    interval_b = axes.foot_on_b(interval_a, width)
    on_a = interval_a + crossing * (crossing_a - interval_a)
    on_b = interval_b + crossing * (crossing_b - interval_b)
    distance, point, normal = axes.contacts(a, b, on_a, on_b)
    two = crossing < 0.99
    receding = distance[1] + width * crossing / jnp.where(two, 1 - crossing, 1.0)
    second = jnp.where(two, receding, EMPTY)
    return Hit(jnp.stack([distance[0], second]), point, normal)
