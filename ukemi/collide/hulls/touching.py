"""Contacts of polytopes: what touches is found first, as corners; from these the contact follows in closed form."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.geometry import contact_frame, cross, dot, rotate, unit
from ukemi.collide.hulls import features
from ukemi.collide.hulls.contact import Posed, contact
from ukemi.collide.hulls.faces import corners_of, face_plane, faces_at, four, normals
from ukemi.collide.hulls.features import Corners, Features, Patch
from ukemi.collide.hulls.manifold import distinct, manifold
from ukemi.collide.hulls.search import Nearest, search
from ukemi.collide.hulls.support import Body, Joined, places, support
from ukemi.collide.kinds import KINDS
from ukemi.collide.pairs.convex import body_of, witness_of_corners
from ukemi.collide.shapes import EMPTY, Hit, Shape, Side
from ukemi.model.hulls import Hulls

SEVERAL = 4  # contacts of faces at the most


class Known(NamedTuple):
    """All corners, and which hulls the two shapes of a pair are."""

    corners: Joined | Array  # (nv, 3) in units of the shapes' sizes
    hull: Array  # (2,)


def body(kind: str, shape: Shape, hull: Array) -> Body:
    """A shape as a polytope."""
    scale, radius = side(kind).grown(shape.size)
    core = side(kind).core
    return Body(shape.pos, shape.mat, scale, core(shape.size) if core else None, radius, hull)


def one_of(kind: Array, values: list):
    """The value of a kind, of which only the number is known."""
    found = values[0]
    for k, value in enumerate(values[1:], 1):
        found = jax.tree.map(lambda x, y, k=k: jnp.where(kind == k, y, x), found, value)
    return found


def body_among(kinds: list[str], kind: Array, shape: Shape, hull: Array) -> Body:
    """A shape of one of several kinds as a polytope."""
    bodies = [body(name, shape, hull) for name in kinds]
    if any(x.core is not None for x in bodies):
        bodies = [x._replace(core=jnp.zeros_like(x.pos) if x.core is None else x.core) for x in bodies]
    return one_of(kind, bodies)


class Pair(NamedTuple):
    """Two shapes, and what they may be."""

    types: list[tuple[str, str]]  # the second one is of the same kind in all
    kind: Array  # () which of these they are
    geoms: Array  # (2,)
    a: Shape
    b: Shape
    reach: Array  # () [m]

    def bodies(self, hulls: Hulls) -> tuple[Body, Body]:
        """Both as polytopes."""
        hull = jnp.asarray(hulls.of)[self.geoms]
        first = body_among([a for a, _ in self.types], self.kind, self.a, hull[0])
        return first, body(self.types[0][1], self.b, hull[1])


def look(hulls: Hulls, corners: Corners, pair: Pair) -> tuple[Nearest, Array]:
    """Where the shapes of a pair are nearest, and whether () that is within reach."""
    one, other = pair.bodies(hulls)
    found = nearest(hulls, Known(corners.hulls, jnp.asarray(hulls.of)[pair.geoms]), one, other, pair.a, pair.reach)
    return found, found.distance <= pair.reach + one.radius + other.radius


def contacts(hulls: Hulls, corners: Corners, pair: Pair, found: Nearest | None) -> tuple[Hit, Array]:
    """Contacts (k, ...) of one pair and what touches (k, FEATURES).

    found: where the shapes are nearest; None if the first one is a plane.
    """
    types, kind, geoms, a, b, reach = pair
    kinds, second, alike = [a for a, _ in types], types[0][1], families(types)
    of_family = np.array([next(f for f, own in enumerate(alike) if k in own) for k in range(len(types))])
    known = Known(corners.hulls, jnp.asarray(hulls.of)[geoms])

    def hits(found: Features, hint: Array) -> tuple[Hit, Array]:
        codes = found.codes()
        touch = patches(hulls, corners, codes)

        def of(family: list[int]):
            own, one = [types[k] for k in family], jnp.asarray(within(family, len(types)))[kind]
            hit = jax.vmap(lambda case, patch: settled(own, one, case, patch, hint, a, b))
            return lambda: jax.tree.map(lambda x: x[:, 0], hit(found.case, touch))

        return lax.switch(jnp.asarray(of_family)[kind], [of(family) for family in alike]), codes

    other = body(second, b, known.hull[1])
    if KINDS[kinds[0]].endless:
        return hits(*_on_plane(hulls, known, a, b, other, reach))
    assert found
    one = body_among(kinds, kind, a, known.hull[0])
    return hits(*several(kinds, kind, hulls, known, one, other, found, a))


def families(types: list[tuple[str, str]]) -> list[list[int]]:
    """Which pairs of kinds, by their places, are settled by one routine: its program is made once for all of them.

    Planes and height fields have forms of their own, and shapes with a curved core a search.
    """
    found: dict = {}
    for k, (a, b) in enumerate(types):
        apart = KINDS[a].endless or KINDS[a].ground or side(a).core is not None
        found.setdefault((a, b) if apart else b, []).append(k)
    return list(found.values())


def within(family: list[int], count: int) -> np.ndarray:
    """Where in a family each of `count` places is; 0 for those that are not."""
    return np.array([family.index(k) if k in family else 0 for k in range(count)], np.int32)


def patches(hulls: Hulls, corners: Corners, codes: Array) -> Patch:
    """What touches, of both sides (n, 2, ...), for codes (n, FEATURES)."""
    ids, faces = codes[..., 1:7].reshape(*codes.shape[:-1], 2, 3), codes[..., 7:9]
    place, below = features.places_at(corners, ids)
    area, base = face_plane(hulls, corners.hulls, jnp.maximum(faces, 0))
    real = (faces >= 0)[..., None]
    return Patch(place, jnp.where(real, area, 0.0), jnp.where(real, base, place[..., 0, :]), below)


def extent(hulls: Hulls, body: Body) -> Array:
    """How far a body reaches from its origin, at most [m]."""
    far = jnp.asarray(hulls.bound, body.scale.dtype)[body.hull] * jnp.abs(body.scale).max() + body.radius
    return far if body.core is None else far + jnp.abs(body.core).max()


# ---- what touches ----------------------------------------------------------------------------------------------------


def nearest(hulls: Hulls, known: Known, one: Body, other: Body, a: Shape, reach: Array) -> Nearest:
    """Where two bodies, the first of which is shape a, are nearest."""
    apart = other.pos - one.pos
    size = extent(hulls, one) + extent(hulls, other) + jnp.sqrt(dot(apart, apart))
    start = unit(apart, a.mat[:, 0])
    return search(hulls, known.corners, one, other, reach, start, size)


def several(
    kinds: list[str], kind: Array, hulls: Hulls, known: Known, one: Body, other: Body, found: Nearest, a: Shape
) -> tuple[Features, Array]:
    """What touches: Features (k, ...), and a rough normal (3,) from a to b."""
    own = [side(name) for name in kinds]
    plain = jax.tree.map(lambda x: x[None], single(known.corners, one, other, found))
    first = one_of(kind, [beside_curved(found) if x.core else plain for x in own])
    if not any(x.flat or x.line for x in own):
        return first, found.normal
    first = jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros((SEVERAL - 1, *x.shape[1:]), x.dtype)]), first)

    def around():
        more = manifold(hulls, known.corners, one, other, found.a, found.b, found.normal, girth)
        enough = (more.case != features.NONE).any()
        return jax.tree.map(lambda x, y: jnp.where(enough, x, y), more, first)

    lines = any(x.line for x in own)
    girth = one_of(kind, [a.size[0] if x.line else jnp.zeros_like(a.size[0]) for x in own]) if lines else None
    touches = found.inside | (found.distance < one.radius + other.radius)
    touches = touches & one_of(kind, [jnp.array(x.flat or x.line) for x in own])
    return lax.cond(touches, around, lambda: first), found.normal


def side(kind: str) -> Side:
    """How a kind is a polytope."""
    found = KINDS[kind].side
    assert found
    return found


def line(kind: str, shape: Shape) -> Array | None:
    """The radius () of a capsule or cylinder; None of other shapes."""
    return shape.size[0] if side(kind).line else None


def beside_curved(found: Nearest) -> Features:
    """The corners of b that are nearest to a curved shape; (1, ...)."""
    ids, _ = distinct(found.b)
    return Features(jnp.full(1, features.CURVED, jnp.int32), ids[None], ids[None], jnp.full((1, 2), -1, jnp.int32))


def single(corners: Joined | Array, a: Body, b: Body, found: Nearest) -> Features:
    """The case of the simplex that a search ended with.

    Of an edge that lies along a face or an edge, the end that weighs most stands for it; where that is beyond the
    other's corners, the place where the edge leaves them, or the other's own end.
    """
    (ids_a, count_a), (ids_b, count_b) = distinct(found.a), distinct(found.b)
    place_a, place_b = places(corners, a, ids_a), places(corners, b, ids_b)
    up_a, up_b = _area(place_a, a.mat, found.normal), _area(place_b, b.mat, -found.normal)
    on_a = (count_a == 3) & ((count_b < 3) | (jnp.abs(up_a) >= jnp.abs(up_b)))
    on_b = (count_b == 3) & ~on_a
    edges = (count_a == 2) & (count_b == 2)
    case = jnp.where(edges, features.EDGES, features.NEAREST)
    case = jnp.where(on_a, features.POINT_ON_A, jnp.where(on_b, features.POINT_ON_B, case))
    turned_a = jnp.where(up_a < 0, ids_a[np.array([0, 2, 1])], ids_a)
    turned_b = jnp.where(up_b < 0, ids_b[np.array([0, 2, 1])], ids_b)
    heavy = jnp.argmax(found.weight)
    point_a, point_b = jnp.stack([found.a[heavy]] * 3), jnp.stack([found.b[heavy]] * 3)

    def world(body: Body, ids: Array) -> Array:
        return body.pos + rotate(body.mat, places(corners, body, ids))

    # the side with a face, or the first one of two edges, and the other
    face = jnp.where(on_a, world(a, turned_a), world(b, turned_b))
    edge, ends = jnp.where(on_a, world(b, found.b), world(a, found.a)), jnp.where(on_a, count_b, count_a) == 2
    leaves, k = beyond(face, edge[heavy], found.weight @ edge, found.normal)
    leaves = leaves & ends & (on_a | on_b)
    case = jnp.where(leaves, jnp.where(on_a, features.EDGE_OFF_A, features.EDGE_OFF_B), case)
    turn = jnp.where(leaves, (k + np.arange(3)) % 3, np.arange(3))
    turned_a, turned_b = turned_a[turn], turned_b[turn]
    point_a, point_b = jnp.where(leaves, ids_a, point_a), jnp.where(leaves, ids_b, point_b)

    along = jnp.stack([rotate(a.mat, place_a[1] - place_a[0]), rotate(b.mat, place_b[1] - place_b[0])])
    across = cross(along[0], along[1])
    parallel = edges & (dot(across, across) <= 1e-14 * dot(along[0], along[0]) * dot(along[1], along[1]))
    case = jnp.where(parallel, features.NEAREST, case)
    end_of_a, at = inner_end(world(a, ids_a)[:2], world(b, ids_b)[:2], (ids_a == found.a[heavy]).argmax())
    lone_a, lone_b = parallel & end_of_a, parallel & ~end_of_a

    out_a = jnp.where(on_a, turned_a, jnp.where(on_b, point_a, jnp.where(lone_a, ids_a[at], ids_a)))
    out_b = jnp.where(on_b, turned_b, jnp.where(on_a, point_b, jnp.where(lone_b, ids_b[at], ids_b)))
    return Features(case.astype(jnp.int32), out_a, out_b, jnp.full(2, -1, jnp.int32))


def beyond(face: Array, end: Array, within: Array, up: Array) -> tuple[Array, Array]:
    """Whether an `end` (3,) is outside of a triangle (3, 3), seen along `up` (3,), and the first of the two corners
    between which one leaves it on the way there from `within` (3,).
    """
    middle = face.mean(0)
    outward = cross(jnp.roll(face, -1, 0) - face, up)
    outward = outward * jnp.where(dot(face - middle, outward) < 0, -1.0, 1.0)[:, None]
    far, near = dot(end - face, outward), dot(within - face, outward)
    out = far > jnp.maximum(near, 0.0)
    leaves_at = jnp.where(out, -near / jnp.where(out, far - near, 1.0), jnp.inf)
    return out.any(), jnp.argmin(leaves_at)


def inner_end(a: Array, b: Array, heavy: Array) -> tuple[Array, Array]:
    """An end of two parallel edges (2, 3) that is beside the other one: whether one of a's, and which () of the two.

    The heavy end of a if that is one, else the one that is furthest from the other's ends.
    """

    def inside(ends: Array, of: Array) -> Array:
        along = of[1] - of[0]
        t = dot(ends - of[0], along) / dot(along, along)
        return jnp.minimum(t, 1 - t)

    depth = jnp.concatenate([inside(a, b), inside(b, a)])
    depth = jnp.where((jnp.arange(4) == heavy) & (depth >= 0), jnp.inf, depth)
    best = jnp.argmax(depth)
    return best < 2, best % 2


def _area(place: Array, mat: Array, n: Array) -> Array:
    """Twice the area of a triangle (3, 3) in a shape's axes, seen against n (3,) in the world."""
    return dot(rotate(mat, cross(place[1] - place[0], place[2] - place[0])), n)


def _on_plane(hulls: Hulls, known: Known, a: Shape, b: Shape, other: Body, reach: Array):
    """The lowest corner, and of the face at it that is most level those corners that are within reach and lower than
    the middle of the shape. Of faces with more than four corners, four. MuJoCo's rule and order.
    """
    normal = a.mat[:, 2]
    lowest, _ = support(hulls, known.corners, other, -normal)

    fan, real = faces_at(hulls, lowest)
    level = dot(normals(hulls, other, fan), normal)
    face = fan[jnp.argmin(jnp.where(real, level, jnp.inf))]
    loop, count = corners_of(hulls, face)
    first = jnp.argmax(loop == lowest)
    loop = loop[(first + np.arange(hulls.longest)) % count]
    every = jnp.minimum(np.arange(4, dtype=np.int32), count - 1)
    chosen = lax.cond(count > 4, lambda: four(places(known.corners, other, loop), count, 1), lambda: every)
    corner = loop[chosen]
    above = dot(rotate(b.mat, places(known.corners, other, corner)), normal)
    near = (above + dot(b.pos - a.pos, normal) < reach) & (above < 0)
    there = (np.arange(4) < count) & (near | (np.arange(4) == 0))
    case = jnp.where(there, features.POINT_ON_A, features.NONE).astype(jnp.int32)
    triple = jnp.stack([corner] * 3, -1)
    return Features(case, triple, triple, jnp.full((SEVERAL, 2), -1, jnp.int32)), normal


# ---- the contact -----------------------------------------------------------------------------------------------------


def settled(
    types: list[tuple[str, str]], kind: Array, case: Array, patch: Patch, hint: Array, a: Shape, b: Shape
) -> Hit:
    """The contact (1, ...) of one case, where patches of both shapes (2, ...) touch.

    types: what the shapes may be, one of `families`, and kind: () which of these they are.
    """
    kinds, firsts = types[0], [a for a, _ in types]
    if KINDS[kinds[0]].endless:
        normal = a.mat[:, 2]
        place = b.pos + rotate(b.mat, b.size * patch.corners[1, 0])
        distance = dot(place - a.pos, normal)
        point = place - 0.5 * distance * normal
    elif KINDS[kinds[0]].ground:  # what touches a field is looked at the other way round
        distance, point, normal = _between([kinds[1]], kind, kinds[0], case, patch, -hint, b, a)
        normal = -normal
    else:
        distance, point, normal = _between(firsts, kind, kinds[1], case, patch, hint, a, b)
    distance = jnp.where(case == features.NONE, EMPTY, distance)
    return Hit(distance[None], point[None], contact_frame(normal)[None])


def _between(firsts: list[str], kind: Array, second: str, case: Array, patch: Patch, hint: Array, a: Shape, b: Shape):
    """Distance (), point (3,) and normal (3,) of two shapes that have an end."""
    own, other = posed_among(firsts, kind, a, patch, 0), posed(second, b, patch, 1)
    distance, point, normal = contact(case, own, other, hint)
    convex = KINDS[firsts[0]].convex
    if side(firsts[0]).core and convex:
        found, curved = witness_of_corners(body_of(convex), a, other.corners, hint), case == features.CURVED
        distance = jnp.where(curved, found.distance, distance)
        point = jnp.where(curved, 0.5 * (found.point_a + found.point_b), point)
        normal = jnp.where(curved, found.normal, normal)
    return distance, point, normal


def posed_among(kinds: list[str], kind: Array, shape: Shape, patch: Patch, k: int) -> Posed:
    """One side of a patch, of a shape of one of several kinds."""
    found = [posed(name, shape, patch, k) for name in kinds]
    if any(x.girth is not None for x in found):
        found = [x._replace(axis=shape.mat[:, 2], girth=0.0 * x.radius if x.girth is None else x.girth) for x in found]
    return one_of(kind, found)


def posed(kind: str, shape: Shape, patch: Patch, k: int) -> Posed:
    """One side of a patch in the world."""
    scale, radius = side(kind).grown(shape.size)
    area = jnp.roll(scale, -1) * jnp.roll(scale, 1) * patch.area[k]
    corners, base = scale * patch.corners[k], shape.pos + rotate(shape.mat, scale * patch.base[k])
    if KINDS[kind].ground and patch.below is not None:
        corners = corners - patch.below[k][:, None] * np.array([0.0, 0.0, 1.0], corners.dtype)
    corners = shape.pos + rotate(shape.mat, corners)
    girth = line(kind, shape)
    return Posed(corners, rotate(shape.mat, area), base, radius, None if girth is None else shape.mat[:, 2], girth)
