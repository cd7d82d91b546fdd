"""Contacts of a sphere or a capsule (a) with a box (b).

Both come down to a ball against the box. For a capsule the work is to find which one or two
balls along its axis to use: the one nearest to the box, and a second one where the capsule lies
along a face or an edge.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.geometry import dot, rotate, smallest, unit, unrotate
from ukemi.collide.shapes import EMPTY, Hit, Shape
from ukemi.maths.ramps import clamp

FAR = 1e6  # a segment parameter or squared distance that never wins a minimum


def _ball_box(centre: Array, radius: Array, size: Array) -> tuple[Array, Array, Array]:
    """Distance (), point (3,) and normal (3,) of a ball and a box, in the box's axes.

    A centre inside the box leaves through the nearest face.
    """
    # The second ball of a capsule lies on the box's rim by construction, give or take rounding.
    # It must not count as outside there in one part of a compiled program and inside in another.
    slack = 1e-12 if centre.dtype == jnp.float64 else 1e-6
    outside = jnp.abs(centre) > size * (1 + slack)
    gap = jnp.where(outside, jnp.where(centre > 0, size, -size) - centre, 0.0)
    room = jnp.stack([size + centre, size - centre], axis=-1).reshape(6)
    face = jnp.arange(6) == jnp.argmin(room)
    inside = dot(gap, gap) <= smallest(gap) ** 2
    inward = jnp.sum(face.reshape(3, 2) * jnp.array([1.0, -1.0], gap.dtype), axis=-1)
    normal = unit(gap, inward)
    depth = jnp.where(inside, jnp.sum(jnp.where(face, room, 0.0)), 0.0)
    reach = dot(normal, gap) - depth
    return reach - radius, centre + 0.5 * normal * (radius + reach), normal


def _in_world(box: Shape, distance: Array, point: Array, normal: Array) -> Hit:
    """A Hit from k contacts given in the box's axes."""
    return Hit(distance, box.pos + rotate(box.mat, point), rotate(box.mat, normal))


def sphere_box(a: Shape, b: Shape, margin: Array) -> Hit:
    """One contact, with the point of the box nearest to the sphere."""
    contact = _ball_box(unrotate(b.mat, a.pos - b.pos), a.size[0], b.size)
    return _in_world(b, *(x[None] for x in contact))


class _Edges(NamedTuple):
    """Edges of the box: axis (..., 3) one-hot, side (..., 3) signs with zero along the axis."""

    axis: Array
    side: Array


class _EdgePoint(NamedTuple):
    """Nearest points of an edge and the capsule's axis, as parameters in [-1, 1]."""

    on_edge: Array
    on_axis: Array
    clipped: Array  # -1, 0, 1: whether the edge's point was held at one of its ends
    squared: Array  # squared distance [m²], FAR where edge and capsule are parallel


def _box_edges() -> tuple[np.ndarray, np.ndarray]:
    """The 12 edges, ordered by axis and then by corner as in MuJoCo, which settles ties."""
    signs = np.array([[2 * (i >> k & 1) - 1 for k in range(3)] for i in range(8)])
    axis, side = [], []
    for k in range(3):
        for corner in signs[signs[:, k] < 0]:
            axis.append(np.eye(3)[k])
            side.append(corner * (1 - np.eye(3)[k]))
    return np.array(axis), np.array(side)


EDGE_AXIS, EDGE_SIDE = _box_edges()


def _nearest_on_edge(edges: _Edges, pos: Array, half: Array, size: Array) -> _EdgePoint:
    """Nearest points of box edges (...) and the segment pos ± half (3,), (3,)."""
    length = dot(edges.axis, size)
    start = edges.side * size - pos
    aa, ab, bb = length**2, -length * dot(edges.axis, half), dot(half, half)
    u, v = -length * dot(edges.axis, start), dot(start, half)
    det = aa * bb - ab**2
    parallel = jnp.abs(det) < (1e-15 if pos.dtype == jnp.float64 else 1e-6 * aa * bb)

    free = (bb * u - ab * v) / jnp.where(parallel, 1.0, det)
    x = clamp(free, -1.0, 1.0)
    # on the corner itself counts as clipped, or the second contact may repeat the first
    clipped = jnp.sign(free) * (jnp.abs(free) >= 1)
    free_y = (v - ab * x) / bb
    y = clamp(free_y, -1.0, 1.0)
    again = (u - ab * y) / aa
    moved = free_y != y
    # MuJoCo forgets no clip: a point that comes back from the edge's end still counts as there
    clipped_again = moved & (jnp.abs(again) >= 1)
    clipped = jnp.where(clipped_again, jnp.sign(again), clipped)
    x = jnp.where(moved, clamp(again, -1.0, 1.0), x)

    apart = start + edges.axis * (length * x)[..., None] - half * y[..., None]
    squared = jnp.where(parallel, FAR, dot(apart, apart))
    return _EdgePoint(x, y, clipped, squared)


class _Nearest(NamedTuple):
    """What of the box is nearest to the capsule: a face (or its inside), or an edge."""

    at_face: Array  # () bool, an end of the capsule lies over a face or inside the box
    end: Array  # () -1 or 1, which end that is
    face: Array  # (3,) bool one-hot: the axis of the face, all false inside
    edge: _Edges  # the nearest edge, where `at_face` is false


def _nearest_feature(pos: Array, half: Array, size: Array) -> _Nearest:
    """Chooses among the capsule's two ends over the faces and the box's twelve edges."""
    ends = jnp.array([-1.0, 1.0], pos.dtype)
    tips = pos + half * ends[:, None]
    outside = jnp.abs(tips) > size
    over = tips - clamp(tips, -size, size)
    face_squared = jnp.where(jnp.sum(outside, axis=-1) > 1, FAR, dot(over, over))
    edges = _Edges(jnp.array(EDGE_AXIS, pos.dtype), jnp.array(EDGE_SIDE, pos.dtype))
    squared = jnp.concatenate([face_squared, _nearest_on_edge(edges, pos, half, size).squared])
    # Edges that meet in the nearest corner tie up to rounding: the first one counts.
    best = jnp.argmax(squared <= jnp.min(squared) + smallest(squared))
    at_second = best == 1
    # some edge also where a face is nearer: without one the formulas would divide by zero
    edge = (jnp.arange(12) == jnp.maximum(best - 2, 0))[:, None]
    return _Nearest(
        best < 2,
        jnp.where(at_second, 1.0, -1.0).astype(pos.dtype),
        jnp.where(at_second, outside[1], outside[0]),
        _Edges(jnp.sum(edge * edges.axis, axis=0), jnp.sum(edge * edges.side, axis=0)),
    )


def _pick(mask: Array, values: Array) -> Array:
    """The value (3,) at a one-hot mask (3,)."""
    return jnp.sum(jnp.where(mask, values, 0.0))


def _step_from_corner(first: Array, reach: Array, axis_squared: Array, differs: Array) -> Array:
    """Where the second ball lies from a corner, along an edge or across a face; FAR if none.

    `differs` (3,) says along which axes the capsule runs away from the corner.
    """
    count = jnp.sum(differs)
    alone = jnp.where(count == 1, differs, ~differs)
    sign = jnp.where(count == 1, 1.0, -1.0)
    along_edge = jnp.minimum(1 - sign * first, _pick(alone, reach))
    across_face = jnp.minimum(1 + sign * first, jnp.min(jnp.where(alone, FAR, reach)))
    step = jnp.where(_pick(alone, axis_squared) > 0.5, along_edge, -across_face)
    return jnp.where((count == 1) | (count == 2), sign * step, FAR)


def _step_from_edge(point: _EdgePoint, edge: Array, reach: Array, half: Array, upward: Array, differs: Array) -> Array:
    """Where the second ball lies from inside an edge, across the face that is flatter to it."""
    sides = differs & ~edge
    after, before = jnp.roll(edge, 1), jnp.roll(edge, 2)
    steep = _pick(after, jnp.abs(half)) > _pick(before, jnp.abs(half))
    across = jnp.where(steep, after, before)
    turned = jnp.any(across & sides)
    sign = jnp.where(turned, 1.0, -1.0)
    towards = jnp.where(jnp.any(upward & edge) == turned, 1.0, -1.0)
    left_on_edge = 0.5 * _pick(edge, reach) * (1 - towards * point.on_edge)
    step = jnp.minimum(1 - sign * point.on_axis, _pick(across, reach))
    return jnp.where(jnp.sum(sides) == 1, sign * jnp.minimum(step, left_on_edge), FAR)


def _step_from_face(nearest: _Nearest, pos: Array, half: Array, size: Array) -> Array:
    """Where the second ball lies from an end over a face: the far end, or above the rim."""
    tip = pos + nearest.end * half
    flat = jnp.abs(half) < smallest(half)
    slope = -nearest.end / jnp.where(flat, 1.0, half)
    exits = jnp.stack([size - tip, -size - tip]) * slope
    usable = (exits > 0) & ~flat & ~nearest.face
    step = jnp.minimum(2.0, jnp.min(jnp.where(usable, exits, FAR)))
    return jnp.where(jnp.any(nearest.face), -nearest.end * step, FAR)


def _balls_on_axis(pos: Array, half: Array, size: Array) -> tuple[Array, Array]:
    """Parameters of the two balls on the axis pos ± half, the second FAR where there is none."""
    nearest = _nearest_feature(*lax.stop_gradient((pos, half, size)))
    point = _nearest_on_edge(nearest.edge, pos, half, size)
    edge = nearest.edge.axis > 0

    flat = jnp.abs(half) < smallest(half)
    reach = jnp.where(flat, FAR, 2 * size / jnp.where(flat, 1.0, jnp.abs(half)))
    upward = half > 0
    corner = jnp.where(edge, point.clipped > 0, nearest.edge.side > 0)
    differs = upward ^ corner
    at_corner = point.clipped != 0
    step = jnp.where(
        at_corner,
        _step_from_corner(point.on_axis, reach, half**2 / dot(half, half), differs),
        _step_from_edge(point, edge, reach, half, upward, differs),
    )
    step = jnp.where(nearest.at_face, _step_from_face(nearest, pos, half, size), step)
    first = jnp.where(nearest.at_face, nearest.end, point.on_axis)
    return first, jnp.where(jnp.abs(step) < 3, first + step, FAR)


def capsule_box(a: Shape, b: Shape, margin: Array) -> Hit:
    """One or two contacts: the ball nearest to the box, and one where the capsule leaves it.

    The second contact is MuJoCo's heuristic: from the nearest face, edge or corner along the
    capsule to where it ends or where the box does. A point exactly on a corner counts as the
    corner, so that a capsule whose end lies exactly above an edge keeps its second contact, which
    MuJoCo drops.
    """
    pos, half = unrotate(b.mat, a.pos - b.pos), unrotate(b.mat, a.mat[:, 2]) * a.size[1]
    first, second = _balls_on_axis(pos, half, b.size)
    missing = second > 3
    where_on_axis = jnp.stack([first, jnp.where(missing, 0.0, second)])
    centres = pos + half * where_on_axis[:, None]
    distance, point, normal = jax.vmap(lambda c: _ball_box(c, a.size[0], b.size))(centres)
    distance = jnp.stack([distance[0], jnp.where(missing, EMPTY, distance[1])])
    return _in_world(b, distance, point, normal)
