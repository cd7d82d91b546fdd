"""Several contacts where faces, or a face and an edge, of two polytopes lie on each other.

The rules are those of MuJoCo's native routine, so that numbers and places of contacts agree: which faces at the corners
that touch oppose each other best, within some degrees, or which edge lies along a face; one is cut to the other; at
most four corners of what is left count. All that comes out is which corners of the polytopes these contacts follow from
(`features`).
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.geometry import cross, dot, rotate
from ukemi.collide.hulls import features
from ukemi.collide.hulls.contact import sidewards
from ukemi.collide.hulls.faces import corners_of, faces_at, four, normals
from ukemi.collide.hulls.features import Features
from ukemi.collide.hulls.support import Body, Joined, each, together
from ukemi.collide.simplex import direction
from ukemi.maths import spatial
from ukemi.maths.gathers import rows_at, rows_where
from ukemi.maths.ranking import places, row_and_column, wrapped
from ukemi.model.hulls import Hulls

OPPOSED = 0.996  # cosine of the angle up to which faces lie on each other
LOOKS = 0.5  # cosine of the angle up to which a cap may be what touches
ALONG = 0.0888  # sine of that up to which an edge lies along a face
MOST = 4
SLACK = 1e-6  # how much lower a corner is that takes another one's place [m]


class Reached(NamedTuple):
    """One side of a search's end: what contacts may be of."""

    corner: Array  # (3,) distinct ones first
    count: Array  # () how many are distinct
    faces: Array  # (w,) that all of these share
    real: Array  # (w,) which of the faces there are
    normals: Array  # (w, 3) outward, in the world


class Loop(NamedTuple):
    """A face, clockwise seen from outside from its last corner on, or an edge and back; (k, ...) with k static."""

    corner: Array  # (k,) numbers
    place: Array  # (k, 3) in the world
    count: Array  # ()


class Polygon(NamedTuple):
    """What is left of a subject after cuts: corners, and lines from each to the next.

    Which corner is the first decides which four stay, so the order is MuJoCo's: after a cut, of each edge the crossing
    and then its end, so that corners move on by one.
    """

    place: Array  # (k, 3)
    of: Array  # (k, 2) lines whose crossing a corner is; of the subject's own corners the second is -1
    line: Array  # (k,) of the edge to the next: edge of the subject, or `CUT` and the edge that cut
    count: Array  # ()


CUT = 1 << 20
BOX, ROD, _, DRUM = range(4)  # the hulls that are no meshes, see `files/hulls`


def manifold(
    hulls: Hulls,
    corners: Joined | Array,
    a: Body,
    b: Body,
    ids_a: Array,
    ids_b: Array,
    normal: Array,
    girth: Array | None,
    early: Array | None,
) -> Features:
    """Up to four contacts (4, ...) around the simplex that a search ended with; NONE if there are none.

    ids_a, ids_b: (3,) its corners; normal: (3,) from a to b; girth: () radius of a if that is a capsule or cylinder,
    else zero; None where it is never one. early: () how high above the other one corners count; None: not above.
    """
    bodies = together(a._replace(core=None), b._replace(core=None))
    near = jax.vmap(partial(reached, hulls))(bodies, together(ids_a, ids_b), together(normal, -normal))
    if a.core is not None:
        round_a = np.array([True, False]) & (a.core != 0).any()
        near = rows_where(round_a, jax.vmap(partial(caps, hulls))(bodies, near, together(normal, -normal)), near)
    near = spatial.materialize(near)
    pair, opposed = _least(dot(near.normals[0, :, None], near.normals[1]), -OPPOSED, *near.real)
    ends, ways, there = spatial.materialize(jax.vmap(partial(edges_at, hulls, corners))(bodies, near))
    flat = jnp.abs(dot(near.normals[::-1, :, None], ways[:, None])) < ALONG
    along, lies = jax.vmap(_first)(flat, near.real[::-1], there)
    lies = lies & ~opposed & (near.count < 3)
    of_a, of_b = lies[0], lies[1] & ~lies[0]

    own = jnp.where(jnp.stack([of_b, of_a]), along[::-1, 0], pair)
    of_a, of_b, own, along = spatial.materialize((of_a, of_b, own, along))
    face, (up_a, up_b) = jax.vmap(rows_at)(near.faces, own), jax.vmap(rows_at)(near.normals, own)
    faces = jax.vmap(partial(face_loop, hulls, corners))(bodies, face)
    ends = jax.vmap(rows_at)(ends, along[:, 1])
    edges = jax.vmap(partial(edge_loop, hulls, corners))(bodies, near.corner[:, 0], ends)
    ((loop_a, loop_b), (edge_a, edge_b)) = (each(x) for x in spatial.materialize((faces, edges)))

    if girth is not None:
        edge_a = edge_a._replace(place=edge_a.place + girth * sidewards(a.mat[:, 2], -up_b))
    # what cuts, and what is cut: b's face by a's, or an edge by the other's face
    clipper = jax.tree.map(lambda x, y: jnp.where(of_a, x, y), loop_b, loop_a)
    subject = jax.tree.map(lambda x, y, z: jnp.where(of_a, x, jnp.where(of_b, y, z)), edge_a, edge_b, loop_b)
    clipper, subject = spatial.materialize((clipper, subject))
    used = opposed | of_a | of_b
    up = jnp.where(of_a, up_b, up_a)
    left = cut(subject, clipper, up)
    # b's face stays where it is over a's, seen along its own normal
    along = jnp.where(of_a | of_b, 1.0, -dot(up_a, up_b))
    height = along * dot(left.place - clipper.place[0], up)
    height = jnp.where(of_a | of_b | real_corners(left, clipper, up), height, jnp.inf)
    chosen, there = spatial.materialize(choose(left, height, of_a | of_b, early))
    found = jax.vmap(lambda of: describe(of, subject, clipper, of_a, of_b))(rows_at(left.of, chosen))
    faces = jnp.where(jnp.stack([of_a, of_b]), -1, face)
    case = jnp.where(there & used, found.case, features.NONE).astype(jnp.int32)
    if girth is not None:
        case = jnp.where((girth > 0) & (case == features.POINT_ON_B), features.LINE_ON_B, case)
        case = jnp.where((girth > 0) & (case == features.EDGE_OFF_B), features.LINE_OFF_B, case)
    return found._replace(case=case, faces=jnp.broadcast_to(faces, (MOST, 2)).astype(jnp.int32))


def distinct(ids: Array) -> tuple[Array, Array]:
    """Three corners with those that are distinct first, the others repeating the first; and how many these are."""
    x, y, z = ids
    second = jnp.where(y != x, y, z)
    third = jnp.where((z != x) & (z != second), z, x)
    count = 1 + (second != x).astype(jnp.int32) + (third != x).astype(jnp.int32)
    return jnp.stack([x, second, third]), count


def reached(hulls: Hulls, body: Body, ids: Array, towards: Array) -> Reached:
    """The faces that all corners `ids` (3,) share, of a box where these span none the one that looks `towards` (3,)."""
    corner, count = distinct(ids)
    faces, real = faces_at(hulls, corner[0])
    ups = normals(hulls, body, faces)
    shared = real
    for k in (1, 2):
        others, there = faces_at(hulls, corner[k])
        within = ((faces[:, None] == others) & there).any(1)
        shared = shared & (within | (count <= k))
    box = body.hull == BOX
    looking = real & (dot(ups, towards) > OPPOSED)
    spans_none = box & (count > 1) & (shared.sum() != jnp.where(count == 2, 2, 1))
    return Reached(corner, count, faces, jnp.where(spans_none, looking, shared), ups)


def caps(hulls: Hulls, body: Body, near: Reached, towards: Array) -> Reached:
    """A cylinder's side of a search's end: the one of its two caps, as polygons, that looks `towards` (3,)."""
    first = int(np.searchsorted(hulls.loops, np.flatnonzero(hulls.loop == hulls.first[DRUM])[0], "right")) - 1
    k = np.arange(len(near.real))
    faces = jnp.asarray(first + np.minimum(k, 1), jnp.int32)
    ups = normals(hulls, body, faces)
    return near._replace(faces=faces, real=(k < 2) & (dot(ups, towards) > LOOKS), normals=ups)


def placed(body: Body, corners: Joined | Array, ids: Array) -> Array:
    """Corners (..., 3) in the world."""
    return body.pos + rotate(body.mat, body.scale * corners[ids])


def edges_at(hulls: Hulls, corners: Joined | Array, body: Body, near: Reached) -> tuple[Array, Array, Array]:
    """Other ends (w,) of edges from the first corner, their directions (w, 3), and which there are (w,)."""
    fan, real = faces_at(hulls, near.corner[0])

    def before(face: Array) -> Array:
        loop, count = corners_of(hulls, face)
        return rows_at(loop, wrapped(jnp.argmax(loop == near.corner[0]) + count - 1, count))

    one = jnp.arange(len(fan)) == 0
    first = jax.vmap(before)(fan)
    if len(fan) >= 3:  # of a box in the order of its axes
        flip = np.array([1, 2, 4] + [4] * (len(fan) - 3), np.int32)
        first = jnp.where(body.hull == BOX, near.corner[0] ^ flip, first)
    rod = body.hull == ROD
    first = jnp.where(rod, 2 * int(hulls.first[ROD]) + 1 - near.corner[0], first)
    ends = jnp.where(near.count == 1, first, near.corner[1])
    along = direction(placed(body, corners, ends) - placed(body, corners, near.corner[0]))
    return ends, along, jnp.where((near.count == 1) & ~rod, real, one)


def _least(values: Array, bound: float, first: Array, second: Array) -> tuple[Array, Array]:
    """Where (2,) the least of values (n, m) is, of those whose row and column are real; whether it is below a bound."""
    values = jnp.where(first[:, None] & second, values, jnp.inf).ravel()
    k = jnp.argmin(values)
    return row_and_column(k, len(second)), rows_at(values, k) < bound


def _first(good: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """The first (2,) of the `good` (n, m) entries whose row and column are real, and whether there is one."""
    good = (good & first[:, None] & second).ravel()
    k = jnp.argmax(good)
    return row_and_column(k, len(second)), rows_at(good, k)


def face_loop(hulls: Hulls, corners: Joined | Array, body: Body, face: Array) -> Loop:
    """A face, clockwise seen from outside."""
    loop, count = corners_of(hulls, face)
    loop = rows_at(loop, jnp.maximum(count - 1 - np.arange(hulls.longest), 0))
    return Loop(loop, placed(body, corners, loop), count)


def edge_loop(hulls: Hulls, corners: Joined | Array, body: Body, start: Array, end: Array) -> Loop:
    """An edge and back."""
    loop = jnp.where(np.arange(hulls.longest) == 0, start, end)
    return Loop(loop, placed(body, corners, loop), jnp.int32(2))


# ---- cutting ---------------------------------------------------------------------------------------------------------


def cut(subject: Loop, clipper: Loop, up: Array) -> Polygon:
    """The part of a subject that is over a face, seen along `up` (3,): cut along its edges, one after the other."""
    n = len(subject.corner)
    k = jnp.arange(2 * n)
    place = jnp.pad(subject.place, ((0, n), (0, 0)))
    line = jnp.where(k < subject.count, k, 0)
    start = Polygon(place, jnp.stack([line, jnp.full(2 * n, -1)], -1), line, subject.count)

    def along_edge(e, left: Polygon) -> Polygon:
        p, q = rows_at(clipper.place, e), rows_at(clipper.place, wrapped(e + 1, clipper.count))
        side = cross(q - p, up)
        return halved(left, p, side / jnp.sqrt(dot(side, side)), CUT + e)

    return lax.fori_loop(0, clipper.count, along_edge, start)


def halved(left: Polygon, p: Array, side: Array, name: Array) -> Polygon:
    """What of a polygon is on one `side` (3,) of a plane through p (3,)."""
    k = jnp.arange(len(left.line))
    after = wrapped(k + 1, jnp.maximum(left.count, 1))
    here, there = left.place, rows_at(left.place, after)
    height = dot(here - p, side)
    inside = height > -1e-15
    ends = rows_at(inside, after)
    slope = dot(there - here, side)
    t = jnp.where(slope == 0, -1.0, -height / jnp.where(slope == 0, 1.0, slope))
    crosses = (inside != ends) & (t >= 0) & (t <= 1) & (k < left.count)
    kept = ends & (k < left.count)
    # of each edge: the crossing if there is one, then its end if that is inside
    total = jnp.cumsum(crosses.astype(jnp.int32) + kept)
    edge = jnp.minimum(jnp.searchsorted(total, k + 1), len(k) - 1)
    of_edge = jax.tree.map(lambda x: rows_at(x, edge), (crosses, here, there, t, left.line, inside, after))
    crosses, start, stop, t, line, inside, end = spatial.materialize(of_edge)
    own = k - jnp.where(edge > 0, rows_at(total, jnp.maximum(edge - 1, 0)), 0)
    new = crosses & (own == 0)
    crossing = start + t[:, None] * (stop - start)
    of_new = jnp.stack([line, jnp.full(len(k), name)], -1)
    return Polygon(
        place=jnp.where(new[:, None], crossing, rows_at(left.place, end)),
        of=jnp.where(new[:, None], of_new, rows_at(left.of, end)),
        line=jnp.where(new, jnp.where(inside, name, line), rows_at(left.line, end)),
        count=total[-1].astype(jnp.int32),
    )


def where_cuts_meet(of: Array, count: Array) -> Array:
    """The corner (...) of a clipper with `count` where two of its edges, cuts `of` (..., 2), meet.

    Where the later edge starts, or the first corner if that edge is the last one.
    """
    e, f = of.min(-1) - CUT, of.max(-1) - CUT
    return jnp.where((e == 0) & (f == count - 1) & (count > 2), 0, f)


def real_corners(left: Polygon, clipper: Loop, up: Array) -> Array:
    """Which corners (k,) are no crossings of two cuts away from the clipper's own corners.

    Corners in line are off it by rounding, so that edges further on cut a little off, anywhere along the line.
    """
    corner = jnp.clip(where_cuts_meet(left.of, clipper.count), 0, len(clipper.corner) - 1)
    gap = left.place - rows_at(clipper.place, corner)
    gap = gap - dot(gap, up)[:, None] * up
    span = clipper.place - clipper.place[0]
    return (left.of < CUT).any(-1) | (dot(gap, gap) <= 1e-8 * dot(span, span).max())


def choose(left: Polygon, height: Array, of_edge: Array, early: Array | None) -> tuple[Array, Array]:
    """Which corners (4,) of what is left become contacts, and which of these there are (4,): those of no height.

    Of a face those above the other one are left out first, then four are chosen. Where those above count `early`, which
    four these are must not change with rounding at rest, but what is lower than all of them has to be one.
    """
    highest = 0.0 if early is None else early
    # of an edge the two ends that are furthest apart
    few = left.place[:8]
    gap = few[:, None] - few[None]
    real = np.arange(8) < left.count
    square = jnp.where(real[:, None] & real, dot(gap, gap), -1.0)
    far = jnp.argmax(square).astype(jnp.int32)
    first, second = row_and_column(far, 8)
    ends = jnp.stack([first, second, second, second])
    every = jnp.arange(MOST, dtype=jnp.int32)
    below = (height <= highest) & (jnp.arange(len(height)) < left.count)
    order, count = places(below, len(below)), below.sum().astype(jnp.int32)
    at = lax.cond(count > MOST, lambda: four(rows_at(left.place, order), count, count), lambda: every)
    if early is not None:
        heights = rows_at(height, order)
        low = jnp.argmin(jnp.where(np.arange(len(order)) < count, heights, jnp.inf)).astype(jnp.int32)
        left_out = rows_at(heights, low) < rows_at(heights, at).min() - SLACK
        nearest = jnp.argmin(jnp.abs(at - low))
        at = jnp.where(left_out & (every == nearest), low, at)
    several = rows_at(order, at)
    whole = jnp.where(left.count > 2, ends, every)
    pick = jnp.where(of_edge, whole, several)
    there = every < jnp.where(of_edge, jnp.minimum(left.count, 2), count)
    return pick, there & (rows_at(height, pick) <= highest)


# ---- what the corners are --------------------------------------------------------------------------------------------


def describe(of: Array, subject: Loop, clipper: Loop, of_a: Array, of_b: Array) -> Features:
    """The features of one corner of what is left, from the lines (2,) that cross there."""
    first, second = of[0], of[1]
    plain = second < 0
    crossing = ~plain & (first < CUT)
    corner = where_cuts_meet(of, clipper.count)
    of_c = edge(clipper, jnp.where(crossing, second - CUT, jnp.where(plain, 0, corner)), crossing)
    of_s = edge(subject, jnp.where(first < CUT, first, 0), crossing)
    faces = jnp.where(plain, features.FACES_AT_B, jnp.where(crossing, features.FACES_AT_EDGES, features.FACES_AT_A))
    on_a = jnp.where(plain, features.POINT_ON_A, features.EDGE_OFF_A)
    on_b = jnp.where(plain, features.POINT_ON_B, features.EDGE_OFF_B)
    case = jnp.where(of_a, on_b, jnp.where(of_b, on_a, faces))
    return Features(case, jnp.where(of_a, of_s, of_c), jnp.where(of_a, of_c, of_s), jnp.full(2, -1))


def edge(loop: Loop, k: Array, whole: Array) -> Array:
    """Corner k of a loop, and if `whole` the next one; (3,)."""
    after = jnp.where(whole, wrapped(k + 1, jnp.maximum(loop.count, 1)), k)
    return rows_at(loop.corner, jnp.stack([k, after, after]))
