"""Several contacts where faces, or a face and an edge, of two polytopes lie on each other.

The rules are those of MuJoCo's native routine, so that numbers and places of contacts agree: which faces at the corners
that touch oppose each other within some degrees, first match first; one is cut to the other; at most four corners of
what is left count. All that comes out is which corners of the polytopes these contacts follow from (`features`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.geometry import cross, dot, rotate
from ukemi.collide.hulls import features
from ukemi.collide.hulls.faces import corners_of, faces_at, four, outward, span
from ukemi.collide.hulls.features import Features
from ukemi.collide.hulls.support import Body
from ukemi.model.hulls import Hulls

OPPOSED = 0.996  # cosine of the angle up to which faces lie on each other
ALONG = 0.0888  # sine of that up to which an edge lies along a face
MOST = 4


class Reached(NamedTuple):
    """One side of a search's end: what contacts may be of."""

    corner: Array  # (3,) distinct ones first
    count: Array  # () how many are distinct
    faces: Array  # (w,) that all of these share
    real: Array  # (w,) which of the faces there are
    normals: Array  # (w, 3) outward, in the world


class Loop(NamedTuple):
    """A face, clockwise seen from outside, or an edge and back; (k, ...) with k static."""

    corner: Array  # (k,) numbers
    place: Array  # (k, 3) in the world
    count: Array  # ()


class Polygon(NamedTuple):
    """What is left of a subject after cuts: corners, and lines from each to the next."""

    place: Array  # (k, 3)
    of: Array  # (k, 2) lines whose crossing a corner is; of the subject's own corners the second is -1
    line: Array  # (k,) of the edge to the next: edge of the subject, or `CUT` and the edge that cut
    count: Array  # ()


CUT = 1 << 20


def manifold(hulls: Hulls, corners: Array, a: Body, b: Body, ids_a: Array, ids_b: Array, normal: Array) -> Features:
    """Up to four contacts (4, ...) around the simplex that a search from inside ended with; NONE if there are none.

    ids_a, ids_b: (3,) its corners; normal: (3,) from a to b.
    """
    near_a = reached(hulls, corners, a, ids_a, normal)
    near_b = reached(hulls, corners, b, ids_b, -normal)
    pair, opposed = _first(dot(near_a.normals[:, None], near_b.normals[None]) < -OPPOSED, near_a.real, near_b.real)
    edges_a, edges_b = (edges_at(hulls, corners, body, near) for body, near in ((a, near_a), (b, near_b)))
    of_a = ~opposed & (near_a.count < 3) & (near_a.count <= near_b.count)
    of_b = ~opposed & ~of_a & (near_b.count < 3)
    flat_a = jnp.abs(dot(near_b.normals[:, None], edges_a[1][None])) < ALONG
    flat_b = jnp.abs(dot(near_a.normals[:, None], edges_b[1][None])) < ALONG
    along_a, lies_a = _first(flat_a, near_b.real, edges_a[2])
    along_b, lies_b = _first(flat_b, near_a.real, edges_b[2])

    face_a = near_a.faces[jnp.where(of_b, along_b[0], pair[0])]
    face_b = near_b.faces[jnp.where(of_a, along_a[0], pair[1])]
    loop_a, loop_b = face_loop(hulls, corners, a, face_a), face_loop(hulls, corners, b, face_b)
    edge_a = edge_loop(hulls, corners, a, near_a.corner[0], edges_a[0][along_a[1]])
    edge_b = edge_loop(hulls, corners, b, near_b.corner[0], edges_b[0][along_b[1]])

    # what cuts, and what is cut: b's face by a's, or an edge by the other's face
    clipper = jax.tree.map(lambda x, y: jnp.where(of_a, x, y), loop_b, loop_a)
    subject = jax.tree.map(lambda x, y, z: jnp.where(of_a, x, jnp.where(of_b, y, z)), edge_a, edge_b, loop_b)
    up = outward(jnp.where(of_a, _spanned(hulls, corners, b, face_b), _spanned(hulls, corners, a, face_a)))
    used = opposed | (of_a & lies_a) | (of_b & lies_b)
    left = cut(subject, clipper, up)
    chosen, there = choose(left, clipper.place[0], up, of_a | of_b)
    found = jax.vmap(lambda k: describe(left.of[k], subject, clipper, of_a, of_b))(chosen)
    return found._replace(case=jnp.where(there & used, found.case, features.NONE).astype(jnp.int32))


def distinct(ids: Array) -> tuple[Array, Array]:
    """Three corners with those that are distinct first, the others repeating the first; and how many these are."""
    x, y, z = ids
    second = jnp.where(y != x, y, z)
    third = jnp.where((z != x) & (z != second), z, x)
    count = 1 + (second != x).astype(jnp.int32) + (third != x).astype(jnp.int32)
    return jnp.stack([x, second, third]), count


def reached(hulls: Hulls, corners: Array, body: Body, ids: Array, towards: Array) -> Reached:
    """The faces that all corners `ids` (3,) share, of a box where these span none the one that looks `towards` (3,)."""
    corner, count = distinct(ids)
    faces, real = faces_at(hulls, corner[0])
    normals = jax.vmap(lambda face: outward(_spanned(hulls, corners, body, face)))(faces)
    shared = real
    for k in (1, 2):
        others, there = faces_at(hulls, corner[k])
        within = ((faces[:, None] == others) & there).any(1)
        shared = shared & (within | (count <= k))
    box = body.hull == 0
    looking = real & (dot(normals, towards) > OPPOSED)
    spans_none = box & (count > 1) & (shared.sum() != jnp.where(count == 2, 2, 1))
    return Reached(corner, count, faces, jnp.where(spans_none, looking, shared), normals)


def _spanned(hulls: Hulls, corners: Array, body: Body, face: Array) -> Array:
    return placed(body, corners, span(hulls, face))


def placed(body: Body, corners: Array, ids: Array) -> Array:
    """Corners (..., 3) in the world."""
    return body.pos + rotate(body.mat, body.scale * corners[ids])


def edges_at(hulls: Hulls, corners: Array, body: Body, near: Reached) -> tuple[Array, Array, Array]:
    """Other ends (w,) of edges from the first corner, their directions (w, 3), and which there are (w,)."""
    fan, real = faces_at(hulls, near.corner[0])

    def before(face: Array) -> Array:
        loop, count = corners_of(hulls, face)
        return loop[(jnp.argmax(loop == near.corner[0]) + count - 1) % count]

    one = jnp.arange(len(fan)) == 0
    ends = jnp.where(near.count == 1, jax.vmap(before)(fan), near.corner[1])
    along = placed(body, corners, ends) - placed(body, corners, near.corner[0])
    square = dot(along, along)[:, None]
    along = along / jnp.sqrt(jnp.where(square > 0, square, 1.0))
    return ends, along, jnp.where(near.count == 1, real, one)


def _first(good: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """The first (2,) of the `good` (n, m) entries whose row and column are real, and whether there is one."""
    good = (good & first[:, None] & second).ravel()
    k = jnp.argmax(good)
    return jnp.stack([k // len(second), k % len(second)]), good[k]


def face_loop(hulls: Hulls, corners: Array, body: Body, face: Array) -> Loop:
    """A face in MuJoCo's order: clockwise seen from outside."""
    loop, count = corners_of(hulls, face)
    loop = loop[jnp.maximum(count - 1 - np.arange(hulls.longest), 0)]
    return Loop(loop, placed(body, corners, loop), count)


def edge_loop(hulls: Hulls, corners: Array, body: Body, start: Array, end: Array) -> Loop:
    """An edge and back."""
    loop = jnp.where(np.arange(hulls.longest) == 0, start, end)
    return Loop(loop, placed(body, corners, loop), jnp.int32(2))


# ---- cutting ---------------------------------------------------------------------------------------------------------


def cut(subject: Loop, clipper: Loop, up: Array) -> Polygon:
    """The part of a subject that is over a face with normal `up` (3,): cut along its edges, one after the other."""
    n = len(subject.corner)
    k = jnp.arange(2 * n)
    place = jnp.pad(subject.place, ((0, n), (0, 0)))
    line = jnp.where(k < subject.count, k, 0)
    start = Polygon(place, jnp.stack([line, jnp.full(2 * n, -1)], -1), line, subject.count)

    def along_edge(e, left: Polygon) -> Polygon:
        p, q = clipper.place[e], clipper.place[(e + 1) % clipper.count]
        side = cross(q - p, up)
        return halved(left, p, side / jnp.sqrt(dot(side, side)), CUT + e)

    return lax.fori_loop(0, clipper.count, along_edge, start)


def halved(left: Polygon, p: Array, side: Array, name: Array) -> Polygon:
    """What of a polygon is on one `side` (3,) of a plane through p (3,)."""
    k = jnp.arange(len(left.line))
    after = (k + 1) % jnp.maximum(left.count, 1)
    here, there = left.place, left.place[after]
    height = dot(here - p, side)
    inside = height > -1e-15
    ends = inside[after]
    slope = dot(there - here, side)
    t = jnp.where(slope == 0, -1.0, -height / jnp.where(slope == 0, 1.0, slope))
    crosses = (inside != ends) & (t >= 0) & (t <= 1) & (k < left.count)
    kept = ends & (k < left.count)
    # from each edge: the crossing if there is one, then its end if that is inside
    total = jnp.cumsum(crosses.astype(jnp.int32) + kept)
    edge = jnp.minimum(jnp.searchsorted(total, k + 1), len(k) - 1)
    own = k - jnp.where(edge > 0, total[edge - 1], 0)
    new = crosses[edge] & (own == 0)
    end = after[edge]
    crossing = here[edge] + t[edge][:, None] * (there[edge] - here[edge])
    of_new = jnp.stack([left.line[edge], jnp.full(len(k), name)], -1)
    return Polygon(
        place=jnp.where(new[:, None], crossing, left.place[end]),
        of=jnp.where(new[:, None], of_new, left.of[end]),
        line=jnp.where(new, jnp.where(inside[edge], name, left.line[edge]), left.line[end]),
        count=total[-1].astype(jnp.int32),
    )


def choose(left: Polygon, base: Array, up: Array, of_edge: Array) -> tuple[Array, Array]:
    """Which corners (4,) of what is left below a face become contacts, and which of these there are (4,)."""
    k = jnp.arange(len(left.line))
    low = (k < left.count) & (dot(left.place - base, up) <= 0)
    order = jnp.argsort(~low, stable=True)
    count = low.sum().astype(jnp.int32)
    place = left.place[order]
    several = lax.cond(count > MOST, lambda: four(place, count), lambda: jnp.arange(MOST, dtype=jnp.int32))
    # of an edge the two ends that are furthest apart
    few = place[:8]
    gap = few[:, None] - few[None]
    real = np.arange(8) < count
    square = jnp.where(real[:, None] & real, dot(gap, gap), -1.0)
    far = jnp.argmax(square).astype(jnp.int32)
    ends = jnp.stack([far // 8, far % 8, far % 8, far % 8])
    pick = jnp.where(of_edge & (count > 2), ends, several)
    there = jnp.arange(MOST) < jnp.where(of_edge, jnp.minimum(count, 2), count)
    return order[pick], there


# ---- what the corners are --------------------------------------------------------------------------------------------


def describe(of: Array, subject: Loop, clipper: Loop, of_a: Array, of_b: Array) -> Features:
    """The features of one corner of what is left, from the lines (2,) that cross there."""
    n, m = clipper.count, subject.count
    first, second = of[0], of[1]
    plain = second < 0
    crossing = ~plain & (first < CUT)
    # two cuts meet at a corner of the clipper: where the later edge starts, or at the first corner if it is the last
    e, f = jnp.minimum(first, second) - CUT, jnp.maximum(first, second) - CUT
    corner = jnp.where((e == 0) & (f == n - 1) & (n > 2), 0, f)
    start_s = first % jnp.maximum(m, 1)
    edge = of_a | of_b
    face_c = around(clipper, jnp.where(crossing, n - 2 - (second - CUT), n - 1 - jnp.where(plain, 0, corner)))
    face_s = around(subject, jnp.where(crossing, m - 2 - start_s, m - 1 - jnp.where(plain, start_s, 0)))
    ends = jnp.stack([subject.corner[start_s], subject.corner[(start_s + 1) % jnp.maximum(m, 1)]])
    ends = jnp.where(plain, ends[:1], ends)[np.array([0, 1, 1])]
    of_s = jnp.where(edge, ends, face_s)
    faces = jnp.where(plain, features.FACES_AT_B, jnp.where(crossing, features.FACES_AT_EDGES, features.FACES_AT_A))
    on_a = jnp.where(plain, features.POINT_ON_A, features.EDGE_OFF_A)
    on_b = jnp.where(plain, features.POINT_ON_B, features.EDGE_OFF_B)
    case = jnp.where(of_a, on_b, jnp.where(of_b, on_a, faces))
    return Features(case, jnp.where(of_a, of_s, face_c), jnp.where(of_a, face_c, of_s))


def around(loop: Loop, k: Array) -> Array:
    """Three corners (3,) of a face, counterclockwise: the k-th in that order, the next, and one opposite."""
    n = jnp.maximum(loop.count, 1)
    turn = jnp.stack([k, k + 1, k + 1 + n // 2]) % n
    return loop.corner[n - 1 - turn]
