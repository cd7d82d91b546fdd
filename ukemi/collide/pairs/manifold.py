"""Several contact points where the flat or straight parts of two convex shapes meet.

One witness point cannot hold a cylinder upright on a box. So the part of each shape that faces
the other is taken as a flat region: a cap (disc), a face (rectangle), or the line along which a
cylinder or capsule lies (a segment). Contacts are then added where lines through the overlap of
the two regions leave it: along the segment if there is one, else along two tangents through the
middle of the overlap. Their distances are those between the two flat parts along the normal,
so that they grow as the shapes tilt and the extra contacts fade by themselves.

MuJoCo clips polygons that approximate the two parts instead. Its points differ from these, and
its deepest one may be less deep than the shapes are; here the first contact always is the deepest.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.geometry import contact_frame, dot, hit_with_shared_normal, rotate, smallest, unrotate
from ukemi.collide.pairs.convex import Body, Optimum, Witness, body_among, recalled, witness
from ukemi.collide.shapes import EMPTY, Hit, Shape, ShapeKind

FLAT = 0.98  # cosine of the greatest angle between a flat part and the contact plane
STRAIGHT = 1e-2  # sine of the greatest angle between two segments that meet along a line
WIDE = 1e6  # half width of a region in a direction in which it has no bounds [m]


class _Region(NamedTuple):
    """The flat or straight part of a shape that faces the other one."""

    centre: Array  # (3,) in the world [m]
    normal: Array  # (3,) unit, of its plane
    half: Array  # (3,) half widths along the shape's axes, WIDE where unbounded [m]
    radius: Array  # () of a disc about the shape's z axis, WIDE for other regions [m]
    straight: Array  # () bool: a segment along the shape's z axis


def line_part(shape: Shape, towards: Array) -> _Region:
    """The line along a capsule's or cylinder's wall on the side of the direction `towards`."""
    axis = shape.mat[:, 2]
    side = towards - axis * dot(axis, towards)
    squared = dot(side, side)
    side = side / jnp.sqrt(jnp.where(squared > 1e-12, squared, 1.0))
    half = jnp.stack([jnp.full_like(squared, WIDE), jnp.full_like(squared, WIDE), shape.size[1]])
    return _Region(shape.pos + shape.size[0] * side, side, half, jnp.full_like(squared, WIDE), jnp.array(True))


def _cap_part(shape: Shape, towards: Array) -> _Region:
    """The cap of a cylinder on the side of the direction `towards`."""
    axis = shape.mat[:, 2]
    normal = jnp.where(dot(axis, towards) > 0, axis, -axis)
    wide = jnp.full_like(shape.size, WIDE)
    centre = shape.pos + shape.size[1] * normal
    return _Region(centre, normal, wide, shape.size[0], jnp.array(False))


def face_part(shape: Shape, towards: Array) -> _Region:
    """The face of a box on the side of the direction `towards`."""
    local = unrotate(shape.mat, lax.stop_gradient(towards))
    face = jnp.arange(3) == jnp.argmax(jnp.abs(local))
    outward = jnp.where(face, jnp.sign(local), 0.0)
    normal = rotate(shape.mat, outward)
    centre = shape.pos + rotate(shape.mat, outward * shape.size)
    half = jnp.where(face, WIDE, shape.size)
    return _Region(centre, normal, half, jnp.full_like(half[0], WIDE), jnp.array(False))


def cylinder_part(shape: Shape, towards: Array) -> _Region:
    """The cap or the wall of a cylinder, whichever faces the direction `towards`."""
    cap, line = _cap_part(shape, towards), line_part(shape, towards)
    at_cap = jnp.abs(dot(shape.mat[:, 2], towards)) > 0.5**0.5
    return _Region(*(jnp.where(at_cap, c, w) for c, w in zip(cap, line)))


def _steepness(region: _Region, normal: Array) -> Array:
    """normal·region.normal, made harmless where the part is not nearly flat and goes unused."""
    slope = dot(region.normal, normal)
    return jnp.where(jnp.abs(slope) > 0.5, slope, 1.0)


def _interval(shape: Shape, region: _Region, normal: Array, origin: Array, line: Array):
    """Where lines origin + t line, (n, 3) each, run inside a region: t from (n,) to (n,).

    The lines are moved along the contact normal onto the region's plane. An interval whose
    begin is above its end is empty.
    """
    lift = normal / _steepness(region, normal)
    origin = origin + lift * dot(region.centre - origin, region.normal)[:, None]
    line = line - lift * dot(line, region.normal)[:, None]
    start = unrotate(shape.mat, origin - shape.pos)
    slope = unrotate(shape.mat, line)
    flat = jnp.abs(slope) < smallest(slope)
    inverse = 1 / jnp.where(flat, 1.0, slope)
    first, second = (-region.half - start) * inverse, (region.half - start) * inverse
    missed = jnp.where(jnp.abs(start) <= region.half, -WIDE, WIDE)
    low = jnp.max(jnp.where(flat, missed, jnp.minimum(first, second)), axis=-1)
    high = jnp.min(jnp.where(flat, WIDE, jnp.maximum(first, second)), axis=-1)

    start, slope = start[:, :2], slope[:, :2]
    squared, along = dot(slope, slope), dot(start, slope)
    inside = region.radius**2 - dot(start, start)
    point = squared < smallest(slope) ** 2
    room = along**2 + squared * inside
    missed = point & (inside < 0) | (room < 0)
    root = jnp.sqrt(jnp.where(missed | point | (room <= 0), 1.0, room))
    root = jnp.where(room > 0, root, 0.0)
    squared = jnp.where(point, 1.0, squared)
    disc_low = jnp.where(missed, WIDE, jnp.where(point, -WIDE, (-along - root) / squared))
    disc_high = jnp.where(missed, -WIDE, jnp.where(point, WIDE, (-along + root) / squared))
    round_ = region.radius < WIDE
    low = jnp.where(round_, jnp.maximum(low, disc_low), low)
    return low, jnp.where(round_, jnp.minimum(high, disc_high), high)


def _common(shapes: Shape, regions: _Region, normal: Array, origin: Array, line: Array):
    """The interval (n,), (n,) of lines (n, 3), (n, 3) that is inside both regions."""
    inside = jax.vmap(_interval, in_axes=(0, 0, None, None, None))
    low, high = inside(shapes, regions, normal, origin, line)
    return jnp.max(low, axis=0), jnp.min(high, axis=0)


def _lines(shapes: Shape, regions: _Region, normal: Array) -> tuple[Array, Array, Array]:
    """Two lines through the overlap: origins (2, 3), directions (2, 3), which are used (2,)."""
    a_straight = regions.straight[0]
    straight = jnp.any(regions.straight)
    # the middle of the overlap on the line between the centres
    apart = regions.centre[1] - regions.centre[0]
    low, high = _common(shapes, regions, normal, regions.centre[:1], apart[None])
    middle = 0.5 * (jnp.clip(low[0], 0.0, 1.0) + jnp.clip(high[0], 0.0, 1.0))

    tangents = contact_frame(normal)[1:]
    axes = shapes.mat[:, :, 2]
    along = jnp.where(a_straight, axes[0], axes[1])
    along = along - normal * dot(normal, along)
    squared = dot(along, along)
    along = along / jnp.sqrt(jnp.where(squared > 1e-12, squared, 1.0))
    on_line = jnp.where(a_straight, regions.centre[0], regions.centre[1])
    origin = jnp.where(straight, on_line, regions.centre[0] + middle * apart)
    direction = jnp.stack([jnp.where(straight, along, tangents[0]), tangents[1]])
    used = jnp.stack([jnp.array(True), ~straight])
    return jnp.stack([origin, origin]), direction, used


def _facing(shapes: Shape, regions: _Region, normal: Array) -> Array:
    """Whether both parts lie flat enough in the contact plane to share more than a point."""
    slopes = dot(regions.normal, normal)
    flat = (slopes[0] > FLAT) & (slopes[1] < -FLAT)
    crossing = jnp.abs(dot(shapes.mat[0, :, 2], shapes.mat[1, :, 2])) < (1 - STRAIGHT**2) ** 0.5
    return flat & ~(jnp.all(regions.straight) & crossing)


def _extra_contacts(shapes: Shape, regions: _Region, found: Witness) -> tuple[Array, Array]:
    """Up to four further contacts: distances (4,), EMPTY where there is none, and points (4, 3).

    Args:
      shapes, regions: both shapes and their facing parts, stacked along a leading axis.
      found: the witness points.
    """
    normal = found.normal
    origin, line, used = _lines(shapes, regions, normal)
    low, high = _common(shapes, regions, normal, origin, line)
    facing = _facing(shapes, regions, normal)
    real = used & facing & (low <= high)
    low, high = jnp.where(real, low, 0.0), jnp.where(real, high, 0.0)
    place = jnp.concatenate([origin + line * low[:, None], origin + line * high[:, None]])

    # heights (4, 2) of both flat parts above these places, along the normal
    slope = jax.vmap(_steepness, in_axes=(0, None))(regions, normal)
    height = dot(regions.centre - place[:, None], regions.normal) / slope
    point = place + normal * (0.5 * jnp.sum(height, axis=1))[:, None]
    # a contact that repeats the witness would count twice
    gap = point - 0.5 * (found.point_a + found.point_b)
    apart = dot(gap, gap) > (0.02 * jnp.min(shapes.size[:, :2])) ** 2
    real = jnp.concatenate([real, real]) & apart
    return jnp.where(real, height[:, 1] - height[:, 0], EMPTY), point


def _part(kinds: list[ShapeKind], kind: Array | int, shape: Shape, towards: Array) -> _Region:
    """The flat or straight part of a shape of one of several kinds; of one that has none, anything."""
    parts = list(dict.fromkeys(k.facing for k in kinds if k.facing))
    found = [part(shape, towards) for part in parts]
    own = jnp.asarray([parts.index(k.facing) if k.facing else 0 for k in kinds])[kind]
    out = found[0]
    for k, region in enumerate(found[1:], 1):
        out = _Region(*(jnp.where(own == k, new, old) for new, old in zip(region, out, strict=True)))
    return out


def convex_contacts(*types: tuple[ShapeKind, ShapeKind]):
    """The pair function of any two convex kinds, of which `kind` says those of a pair; how many contacts it gives; and
    a function that makes of the first of them what it is told as `known`, so that it need not search.

    Where both have flat or straight parts, these add to the witness points as many contacts as the simpler one may.
    """
    firsts, seconds = ([pair[k] for pair in types] for k in (0, 1))
    ends = np.array([min(a.ends, b.ends) for a, b in types])
    extra = ends.max()

    def bodies(kind: Array | int) -> tuple[Body, Body]:
        a, b = ([k.convex for k in kinds if k.convex] for kinds in (firsts, seconds))
        return body_among(a, kind), body_among(b, kind)

    def contacts(a: Shape, b: Shape, margin: Array, kind: Array | int = 0, known: Optimum | None = None) -> Hit:
        found = witness(*bodies(kind), a, b, known)
        distance, point = found.distance[None], 0.5 * (found.point_a + found.point_b)[None]
        if not extra:
            return hit_with_shared_normal(distance, point, found.normal)
        parts = _part(firsts, kind, a, found.normal), _part(seconds, kind, b, -found.normal)
        both = jax.tree.map(lambda *x: jnp.stack(x), (a, parts[0]), (b, parts[1]))
        further, place = _extra_contacts(both[0], both[1], found)
        keep = np.array([0, 2, 1, 3])[:extra]  # the two on the first line come first
        further = jnp.where(np.arange(extra) < jnp.asarray(ends)[kind], further[keep], EMPTY)
        distance, point = jnp.concatenate([distance, further]), jnp.concatenate([point, place[keep]])
        return hit_with_shared_normal(distance, point, found.normal)

    def recall(a: Shape, b: Shape, hit: Hit, kind: Array | int = 0) -> Optimum:
        return recalled(*bodies(kind), a, b, hit)

    return contacts, int(1 + extra), recall
