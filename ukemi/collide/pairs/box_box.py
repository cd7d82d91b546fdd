"""Contacts of two boxes: a separating-axis test chooses a face or a pair of edges.

A face of one box (the reference) meets the most opposed face of the other (the incident one):
the contacts are the corners of the polygon in which the two overlap, seen along the normal. Two
edges meet in one point. Which case applies is decided on values alone; everything that is
differentiated comes after that, in closed form.

Where two edges cross at a small angle a little turn decides between one point of them and a whole
polygon, which a search for the end of a step can go back and forth between. Faces alone do not
jump there, and touch where the edges do: where these cross is a corner of the polygon.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.geometry import (
    cross,
    dot,
    first_slots,
    hit_with_shared_normal,
    rotate,
    smallest,
    take,
    unrotate,
)
from ukemi.collide.shapes import EMPTY, Hit, Shape
from ukemi.maths.ramps import clamp

NEVER = -1e6  # separation along an axis that does not exist [m]
# Row i: the axes in cyclic order, beginning after axis i and ending with it.
CYCLE = np.array([np.roll(np.eye(3), -i - 1, axis=0) for i in range(3)])
# Signs of a face's corners in cyclic order, and of a rectangle's.
LOOP = np.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])


class _Pose(NamedTuple):
    """Box b seen from box a, in the axes of a, and the half sizes of both."""

    turn: Array  # (3, 3) columns are the axes of b
    apart: Array  # (3,) centre of b
    size_a: Array  # (3,)
    size_b: Array  # (3,)


class _Tolerance(NamedTuple):
    """Rounding scales, those of MuJoCo where it has one."""

    separation: float  # slack of the separation test, relative to the summed half sizes
    parallel: float  # squared sine below which two edges have no common perpendicular
    corner: float  # component of the axis below which two edges support equally
    duplicate: float  # squared relative distance below which two corners are one
    clip: float  # relative distance by which a corner may lie outside and still count
    on_line: float  # relative distance below which a corner is on a clip line (MuJoCo: none)

    @staticmethod
    def of(dtype) -> "_Tolerance":
        if dtype == jnp.float64:
            return _Tolerance(1e-13, 1e-16, 1e-9, 1e-14, 1e-15, 0.0)
        return _Tolerance(1e-6, 1e-7, 1e-5, 1e-10, 3e-6, 3e-6)


class _Axis(NamedTuple):
    """The axis of greatest separation."""

    at_edges: Array  # () bool: a pair of edges, not a face
    edge_a: Array  # () index of the edge direction of a
    edge_b: Array  # () index of the edge direction of b
    face_of_a: Array  # () bool: the reference face is one of a
    face: Array  # () index of the reference face's axis
    apart: Array  # () bool: some axis separates by more than the margin


def _edge_axes(turn: Array) -> tuple[Array, Array]:
    """Common perpendiculars (9, 3) of the edges of both boxes, and which pairs (9,) have none."""
    axes = cross(jnp.eye(3, dtype=turn.dtype)[:, None], turn.T[None]).reshape(9, 3)
    squared = dot(axes, axes)
    parallel = squared < _Tolerance.of(turn.dtype).parallel
    return axes / jnp.sqrt(jnp.where(parallel, 1.0, squared))[:, None], parallel


def _separations(pose: _Pose) -> tuple[Array, Array, Array]:
    """Separation along face normals (6,) and edge pairs (9,), and the latters' axes (9, 3)."""
    turn, apart, size_a, size_b = pose
    face_a = jnp.abs(apart) - size_a - rotate(jnp.abs(turn), size_b)
    face_b = jnp.abs(unrotate(turn, apart)) - size_b - unrotate(jnp.abs(turn), size_a)

    axes, parallel = _edge_axes(turn)
    radius = dot(jnp.abs(axes), size_a) + dot(jnp.abs(unrotate(turn, axes)), size_b)
    edges = jnp.where(parallel, NEVER, jnp.abs(dot(axes, apart)) - radius)
    return jnp.concatenate([face_a, face_b]), edges, axes


def _choose_axis(pose: _Pose, margin: Array) -> _Axis:
    """The axis of greatest separation; a face wins near ties, since it gives several contacts."""
    faces, edges, axes = _separations(pose)
    face = jnp.argmax(faces)
    best_face, best_edge = jnp.max(faces), jnp.max(edges)
    # the first edge pair that no later one beats by more than rounding
    edge = jnp.argmax(edges >= best_edge - 1e-6 * jnp.abs(best_edge))
    edge_wins = edges[edge] - 1e-6 * jnp.abs(edges[edge]) > best_face
    # an edge axis within 8 degrees of the best face's normal must be better by five percent
    normals = jnp.concatenate([jnp.eye(3, dtype=axes.dtype), pose.turn.T])
    alike = jnp.abs(dot(axes[edge], normals[face])) > 0.99
    slightly = edges[edge] < best_face + 0.05 * jnp.abs(best_face) + smallest(best_face)
    slack = _Tolerance.of(faces.dtype).separation * jnp.sum(pose.size_a + pose.size_b)
    return _Axis(
        edge_wins & ~(alike & slightly),
        edge // 3,
        edge % 3,
        face < 3,
        face % 3,
        jnp.maximum(best_face, best_edge) > margin + slack,
    )


def _edge_contact(pose: _Pose, chosen: _Axis) -> tuple[Array, Array, Array]:
    """Distance (), point (3,) and normal (3,) of the chosen edges, in the axes of a."""
    turn, apart, size_a, size_b = pose
    dtype = turn.dtype
    along_a = jnp.eye(3, dtype=dtype)[chosen.edge_a]
    pick_b = jnp.eye(3, dtype=dtype)[chosen.edge_b]
    along_b = rotate(turn, pick_b)
    normal = cross(along_a, along_b)
    squared = dot(normal, normal)
    parallel = squared < _Tolerance.of(dtype).parallel
    normal = normal / jnp.sqrt(jnp.where(parallel, 1.0, squared))
    normal = jnp.where(dot(normal, apart) < 0, -normal, normal)
    normal_b = unrotate(turn, normal)

    # A component of the axis near zero leaves open which of two edges supports: try both.
    open_ = _Tolerance.of(dtype).corner
    side_a = jnp.where(normal >= 0, 1.0, -1.0) * (1 - along_a)
    side_b = jnp.where(normal_b >= 0, -1.0, 1.0) * (1 - pick_b)
    other_a = jnp.where(jnp.abs(normal) < open_, -side_a, side_a)
    other_b = jnp.where(jnp.abs(normal_b) < open_, -side_b, side_b)
    corner_a = jnp.stack([side_a, side_a, other_a, other_a]) * size_a
    corner_b = apart + rotate(turn, jnp.stack([side_b, other_b, side_b, other_b]) * size_b)

    # Nearest points of the two segments, each clamp solving again for the other parameter.
    half_a, half_b = dot(along_a, size_a), dot(pick_b, size_b)
    gap = corner_b - corner_a
    u, v, cosine = dot(gap, along_a), dot(gap, along_b), dot(along_a, along_b)
    along = squared < smallest(squared)  # where the lines cross is then rounding: begin at the middle
    s = jnp.where(along, 0.0, (u - cosine * v) / jnp.where(along, 1.0, squared))
    t = clamp(cosine * clamp(s, -half_a, half_a) - v, -half_b, half_b)
    s = clamp(u + cosine * t, -half_a, half_a)
    on_a = corner_a + along_a * s[:, None]
    gap = corner_b + along_b * t[:, None] - on_a
    nearest = (jnp.arange(4) == jnp.argmin(dot(gap, gap)))[None]
    on_a, gap = take(nearest, on_a)[0], take(nearest, gap)[0]
    return dot(gap, normal), on_a + 0.5 * gap, normal


def _clip_loop(corner: Array, limit: Array) -> tuple[Array, Array]:
    """Clips the four edges of a polygon to the rectangle |x| <= limit[0], |y| <= limit[1].

    Signs decide where an edge crosses a clip line, not its slope: two edges that coincide but for
    a turn by 1e-14 do cross, and MuJoCo has a contact there.

    Args:
      corner: (4, 3) corners, x, y and height, in cyclic order.
      limit: (2,) half sizes of the rectangle.

    Returns:
      Begins and ends (8, 3) of what is left of the edges, and which of them (8,) are corners of
      the overlap: an end only where it is not the next edge's begin.
    """
    tolerance = _Tolerance.of(corner.dtype)
    side = jnp.roll(corner, -1, axis=0) - corner
    start, slope = corner[:, :2], side[:, :2]
    # which corners are beyond the upper and the lower limits, and at which the edges end
    beyond = lax.stop_gradient(jnp.stack([start, -start]) - limit) > tolerance.on_line * limit  # (2, 4, 2)
    after = jnp.roll(beyond, -1, axis=1)
    enters, leaves = jnp.any(beyond & ~after, axis=0), jnp.any(~beyond & after, axis=0)
    missed = jnp.any(beyond & after, axis=(0, 2))

    inverse = 1 / jnp.where(slope == 0, 1.0, slope)
    ahead = jnp.where(slope < 0, -limit, limit)
    enter, leave = (-ahead - start) * inverse, (ahead - start) * inverse
    # Along an edge nearly parallel to a clip line the crossing moves without bound as the edge
    # turns, though the contact hardly changes: there it is held still.
    nearly = jnp.abs(slope) < (1e-7 if slope.dtype == jnp.float64 else 1e-3) * limit
    enter, leave = (clamp(jnp.where(nearly, lax.stop_gradient(t), t), 0.0, 1.0) for t in (enter, leave))
    enter = jnp.max(jnp.where(enters, enter, 0.0), axis=-1)
    leave = jnp.min(jnp.where(leaves, leave, 1.0), axis=-1)
    left = ~missed & (enter <= leave + tolerance.clip)
    times = jnp.concatenate([jnp.where(left, enter, 0.0), jnp.where(left, leave, 0.0)])
    points = jnp.concatenate([corner, corner]) + times[:, None] * jnp.concatenate([side, side])
    return points, jnp.concatenate([left, left & jnp.any(leaves, axis=-1)])


def _overlap(centre: Array, u: Array, v: Array, limit: Array) -> tuple[Array, Array]:
    """Corners (12, 3) of a parallelogram's overlap with a rectangle, and which are real (12,).

    The parallelogram is centre ± u ± v, each (3,): x, y and height. The rectangle is
    |x| <= limit[0], |y| <= limit[1]. At most eight of the corners are real and distinct.
    """
    loop = jnp.array(LOOP, u.dtype)
    corner = centre + loop[:, :1] * u + loop[:, 1:] * v
    clipped, real = _clip_loop(corner, limit)

    rectangle = loop * limit
    offset = rectangle - centre[:2]
    det = u[0] * v[1] - u[1] * v[0]
    along_u = (offset[:, 0] * v[1] - offset[:, 1] * v[0]) / det
    along_v = (offset[:, 1] * u[0] - offset[:, 0] * u[1]) / det
    height = centre[2] + along_u * u[2] + along_v * v[2]
    within = 1 + _Tolerance.of(u.dtype).clip
    covered = (jnp.abs(along_u) <= within) & (jnp.abs(along_v) <= within)
    points = jnp.concatenate([clipped, jnp.concatenate([rectangle, height[:, None]], axis=-1)])
    real = jnp.concatenate([real, covered])

    gap = points[:, None, :2] - points[None, :, :2]
    close = dot(gap, gap) < _Tolerance.of(u.dtype).duplicate * dot(limit, limit)
    earlier = jnp.tri(12, k=-1, dtype=bool)
    return points, real & ~jnp.any(close & earlier & real, axis=-1)


def _face_contacts(pose: _Pose, chosen: _Axis) -> tuple[Array, Array, Array]:
    """Distances (8,), points (8, 3) and normal (3,) at the chosen face, in its box's axes."""
    of_a = chosen.face_of_a
    turn = jnp.where(of_a, pose.turn, pose.turn.T)
    apart = jnp.where(of_a, pose.apart, -unrotate(pose.turn, pose.apart))
    size = jnp.where(of_a, pose.size_a, pose.size_b)
    size_other = jnp.where(of_a, pose.size_b, pose.size_a)

    # in the reference face: x and y along it, height above it
    basis = jnp.array(CYCLE, turn.dtype)[chosen.face]
    side = jnp.where(dot(basis[2], apart) >= 0, 1.0, -1.0)
    upright = jnp.array([1.0, 1.0, 0.0], turn.dtype) + jnp.array([0.0, 0.0, 1.0], turn.dtype) * side
    axes = upright[:, None] * jnp.sum(basis[:, :, None] * turn[None], axis=1)
    extent = rotate(basis, size)

    # the face of the other box that is most opposed, by its centre and half edges
    opposed = jnp.argmax(jnp.abs(axes[2]))
    basis_other = jnp.array(CYCLE, turn.dtype)[opposed]
    edges = rotate(basis_other, size_other)[:, None] * jnp.sum(basis_other[:, None, :] * axes[None], axis=-1)
    centre = upright * rotate(basis, apart) - jnp.where(edges[2, 2] > 0, 1.0, -1.0) * edges[2]
    centre = centre - extent * jnp.array([0.0, 0.0, 1.0], turn.dtype)

    corners, real = _overlap(centre, edges[0], edges[1], extent[:2])
    selected = first_slots(real, jnp.zeros_like(real), 8)
    corners = take(selected, corners)
    height = corners[:, 2]
    local = jnp.stack([corners[:, 0], corners[:, 1], side * (extent[2] + 0.5 * height)], axis=-1)
    distance = jnp.where(jnp.any(selected, axis=1), height, EMPTY)
    normal = jnp.where(of_a, side, -side) * basis[2]
    return distance, unrotate(basis, local), normal


def _seen_from(a: Shape, b: Shape) -> _Pose:
    turn = jnp.sum(a.mat[:, :, None] * b.mat[:, None, :], axis=0)
    return _Pose(turn, unrotate(a.mat, b.pos - a.pos), a.size, b.size)


def by_faces(a: Shape, b: Shape, hit: Hit) -> Array:
    """Whether a contact is one of two faces, not of edges, as its normal says."""
    turn, normal = _seen_from(a, b).turn, unrotate(a.mat, hit.normal)
    edges, parallel = _edge_axes(turn)
    across = cross(jnp.concatenate([jnp.eye(3, dtype=turn.dtype), turn.T, edges]), normal)
    off = dot(across, across)
    return off[:6].min() <= jnp.where(parallel, 1.0, off[6:]).min()


def box_box(a: Shape, b: Shape, margin: Array, known: Array | bool = False) -> Hit:
    """Up to eight contacts of two faces, or one of two edges; known: whether faces alone count.

    Distances are along the normal of the chosen face, as in MuJoCo: for boxes that are apart
    diagonally the overlap is empty and so is the Hit, whatever their true distance.
    """
    pose = _seen_from(a, b)
    chosen = _choose_axis(lax.stop_gradient(pose), lax.stop_gradient(margin))
    chosen = chosen._replace(at_edges=chosen.at_edges & ~jnp.asarray(known))
    edge_distance, edge_point, edge_normal = _edge_contact(pose, chosen)
    distance, point, normal = _face_contacts(pose, chosen)

    at_edges, of_a = chosen.at_edges, chosen.face_of_a | chosen.at_edges
    first = jnp.arange(8) == 0
    single = jnp.where(first, edge_distance, EMPTY)
    distance = jnp.where(at_edges, single, distance)
    # MuJoCo gives up where any axis separates, also where the chosen one is not that axis
    distance = jnp.where(chosen.apart & (distance <= margin), EMPTY, distance)
    local = jnp.where(at_edges, edge_point, point)
    mat, pos = jnp.where(of_a, a.mat, b.mat), jnp.where(of_a, a.pos, b.pos)
    normal = rotate(mat, jnp.where(at_edges, edge_normal, normal))
    return hit_with_shared_normal(distance, pos + rotate(mat, local), normal)
