"""Contacts of polytopes: what touches is found first, as corners; from these the contact follows in closed form."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.geometry import cross, dot, rotate, unit
from ukemi.collide.hulls import features
from ukemi.collide.hulls.contact import Posed, contact
from ukemi.collide.hulls.faces import corners_of, face_plane, faces_at, four, normals
from ukemi.collide.hulls.features import Corners, Features, Patch
from ukemi.collide.hulls.manifold import distinct, manifold
from ukemi.collide.hulls.search import Nearest, search
from ukemi.collide.hulls.support import Body, Joined, places, support, together
from ukemi.collide.kinds import KINDS
from ukemi.collide.pairs.convex import body_among, witness_of_corners
from ukemi.collide.shapes import EMPTY, Hit, Shape, Side
from ukemi.maths import spatial
from ukemi.maths.gathers import rows_at
from ukemi.maths.ranking import wrapped
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


def polytope_among(kinds: list[str], kind: Array, shape: Shape, hull: Array) -> Body:
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
    early: Array | None  # () how far above a face corners are contacts [m]; None: not above, and if shapes overlap

    def bodies(self, hulls: Hulls) -> tuple[Body, Body]:
        """Both as polytopes."""
        hull = rows_at(hulls.of, self.geoms)
        first = polytope_among([a for a, _ in self.types], self.kind, self.a, hull[0])
        return spatial.materialize((first, body(self.types[0][1], self.b, hull[1])))


def look(hulls: Hulls, corners: Corners, pair: Pair) -> tuple[Nearest, Array]:
    """Where the shapes of a pair are nearest, and whether () that is within reach."""
    one, other = pair.bodies(hulls)
    found = nearest(hulls, Known(corners.hulls, rows_at(hulls.of, pair.geoms)), one, other, pair.a, pair.reach)
    return found, found.distance <= pair.reach + one.radius + other.radius


def contacts(hulls: Hulls, corners: Corners, pair: Pair, found: Nearest | None) -> tuple[Hit, Array]:
    """Contacts (k, ...) of one pair and what touches (k, FEATURES).

    found: where the shapes are nearest; None if the first one is a plane.
    """
    types, kind, geoms, a, b, reach, early = pair
    kinds, second, every = [a for a, _ in types], types[0][1], forms(types)
    known = Known(corners.hulls, rows_at(hulls.of, geoms))

    def hits(found: Features, hint: Array) -> tuple[Hit, Array]:
        codes, case = spatial.materialize((found.codes(), found.case))
        touch = spatial.materialize(patches(hulls, corners, codes))

        def of(form: Form):
            one = jnp.asarray(within(form.places, len(types)))[kind]
            each = jax.vmap(lambda case, patch: _placed(form, one, case, patch, hint, a, b))
            return lambda: each(case, touch)

        number = jnp.asarray(case[0] == features.CURVED, jnp.int32) if len(every) > 1 else 0
        distance, point, normal = lax.switch(number, [of(form) for form in every])
        return Hit(distance, point, normal), codes

    if KINDS[kinds[0]].endless:
        return hits(*_on_plane(hulls, known, a, b, body(second, b, known.hull[1]), reach))
    assert found
    one, other = pair.bodies(hulls)
    return hits(*several(kinds, kind, hulls, known, one, other, found, a, early))


class Form(NamedTuple):
    """Pairs of kinds whose contacts are settled by one routine: its program is made once for all of them."""

    types: list[tuple[str, str]]  # either all second ones are of one kind, or all first ones: planes, or height fields
    places: list[int]  # where these are in the list that they were taken from
    curved: bool  # contacts of a curved core, which are searched for; else those of corners in closed form

    @property
    def is_flat(self) -> bool:
        """Whether the first ones are planes."""
        return KINDS[self.types[0][0]].endless


def forms(types: list[tuple[str, str]]) -> list[Form]:
    """How pairs of kinds are settled, those of corners first. A cylinder is in two of them: its side may lie flat."""
    found: dict = {}
    for k, (a, b) in enumerate(types):
        flat, ground = KINDS[a].endless, KINDS[a].ground
        core = None if flat else side(b if ground else a).core
        cornered = core is None or (side(a).line and not ground)
        for curved in [False] * cornered + [True] * (core is not None):
            found.setdefault((curved, flat, ground), []).append(k)
    return [Form([types[k] for k in own], own, curved) for (curved, *_), own in sorted(found.items())]


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
    far = rows_at(jnp.asarray(hulls.bound, body.scale.dtype), body.hull) * jnp.abs(body.scale).max() + body.radius
    return far if body.core is None else far + jnp.abs(body.core).max()


# ---- what touches ----------------------------------------------------------------------------------------------------


def nearest(hulls: Hulls, known: Known, one: Body, other: Body, a: Shape, reach: Array) -> Nearest:
    """Where two bodies, the first of which is shape a, are nearest."""
    apart = other.pos - one.pos
    size = extent(hulls, one) + extent(hulls, other) + jnp.sqrt(dot(apart, apart))
    start = unit(apart, a.mat[:, 0])
    return search(hulls, known.corners, one, other, reach, start, size)


def several(
    kinds: list[str],
    kind: Array,
    hulls: Hulls,
    known: Known,
    one: Body,
    other: Body,
    found: Nearest,
    a: Shape,
    early: Array | None,
) -> tuple[Features, Array]:
    """What touches: Features (k, ...), and a rough normal (3,) from a to b.

    MuJoCo has several contacts where shapes overlap. Laws that act before they do would see one of what lands flat, and
    turn it about that; with `early` those of shapes that are near count as well.
    """
    own = [side(name) for name in kinds]
    plain = jax.tree.map(lambda x: x[None], single(known.corners, one, other, found))
    first = one_of(kind, [beside_curved(found) if x.core else plain for x in own])
    if not any(x.flat or x.line for x in own):
        return first, found.normal
    first = jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros((SEVERAL - 1, *x.shape[1:]), x.dtype)]), first)

    def around():
        more = manifold(hulls, known.corners, one, other, found.a, found.b, found.normal, girth, early)
        enough = (more.case != features.NONE).any()
        return jax.tree.map(lambda x, y: jnp.where(enough, x, y), more, first)

    lines = any(x.line for x in own)
    girth = one_of(kind, [a.size[0] if x.line else jnp.zeros_like(a.size[0]) for x in own]) if lines else None
    touches = found.inside | (found.distance < one.radius + other.radius + (0.0 if early is None else early))
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
    ids, (count_a, count_b) = spatial.materialize(jax.vmap(distinct)(together(found.a, found.b)))
    mat, pos = together(a.mat, b.mat), together(a.pos, b.pos)[:, None]

    def at(a_and_b: Array) -> Array:
        return together(places(corners, a, a_and_b[0]), places(corners, b, a_and_b[1]))

    place = at(ids)
    up = jax.vmap(_area)(place, mat, together(found.normal, -found.normal))
    on_a = (count_a == 3) & ((count_b < 3) | (jnp.abs(up[0]) >= jnp.abs(up[1])))
    on_b = (count_b == 3) & ~on_a
    edges = (count_a == 2) & (count_b == 2)
    case = jnp.where(edges, features.EDGES, features.NEAREST)
    case = jnp.where(on_a, features.POINT_ON_A, jnp.where(on_b, features.POINT_ON_B, case))
    turned = jnp.where(up[:, None] < 0, ids[:, np.array([0, 2, 1])], ids)
    heavy = jnp.argmax(found.weight)
    point = together(rows_at(found.a, heavy), rows_at(found.b, heavy))
    seen = place, at(together(found.a, found.b)), at(turned)
    world, given, facing = spatial.materialize(tuple(pos + jax.vmap(rotate)(mat, x) for x in seen))
    # the side with a face, or the first one of two edges, and the other
    face, edge = jnp.where(on_a, facing[0], facing[1]), jnp.where(on_a, given[1], given[0])
    leaves, k = beyond(face, rows_at(edge, heavy), found.weight @ edge, found.normal)
    leaves = leaves & (jnp.where(on_a, count_b, count_a) == 2) & (on_a | on_b)
    case = jnp.where(leaves, jnp.where(on_a, features.EDGE_OFF_A, features.EDGE_OFF_B), case)
    turned = rows_at(turned.T, jnp.where(leaves, wrapped(k + np.arange(3), 3), np.arange(3))).T
    points = jnp.where(leaves, ids, point[:, None])

    along = jax.vmap(rotate)(mat, place[:, 1] - place[:, 0])
    across, (square_a, square_b) = cross(along[0], along[1]), dot(along, along)
    parallel = edges & (dot(across, across) <= 1e-14 * square_a * square_b)
    case = jnp.where(parallel, features.NEAREST, case)
    end_of_a, end = inner_end(world[0, :2], world[1, :2], (ids[0] == point[0]).argmax())
    lone = parallel & together(end_of_a, ~end_of_a)
    lone = jnp.where(lone[:, None], rows_at(ids.T, end)[:, None], ids)

    on = together(on_a, on_b)[:, None]
    out = jnp.where(on, turned, jnp.where(on[::-1], points, lone))
    return Features(case.astype(jnp.int32), out[0], out[1], jnp.full(2, -1, jnp.int32))


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
    return best < 2, wrapped(best, 2)


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
    face = rows_at(fan, jnp.argmin(jnp.where(real, level, jnp.inf)))
    loop, count = corners_of(hulls, face)
    first = jnp.argmax(loop == lowest)
    loop = rows_at(loop, wrapped(first + np.arange(hulls.longest), count))
    every = jnp.minimum(np.arange(4, dtype=np.int32), count - 1)
    chosen = lax.cond(count > 4, lambda: four(places(known.corners, other, loop), count, 1), lambda: every)
    corner = rows_at(loop, chosen)
    above = dot(rotate(b.mat, places(known.corners, other, corner)), normal)
    near = (above + dot(b.pos - a.pos, normal) < reach) & (above < 0)
    there = (np.arange(4) < count) & (near | (np.arange(4) == 0))
    case = jnp.where(there, features.POINT_ON_A, features.NONE).astype(jnp.int32)
    triple = jnp.stack([corner] * 3, -1)
    return Features(case, triple, triple, jnp.full((SEVERAL, 2), -1, jnp.int32)), normal


# ---- the contact -----------------------------------------------------------------------------------------------------


def settled(form: Form, kind: Array, case: Array, patch: Patch, hint: Array, a: Shape, b: Shape) -> Hit:
    """The contact (1, ...) of one case, where patches of both shapes (2, ...) touch.

    kind: () which of the form's pairs of kinds they are.
    """
    distance, point, normal = _placed(form, kind, case, patch, hint, a, b)
    return Hit(distance[None], point[None], normal[None])


def _placed(form: Form, kind: Array, case: Array, patch: Patch, hint: Array, a: Shape, b: Shape):
    """Its distance (), point (3,) and normal (3,)."""
    firsts, seconds = zip(*form.types, strict=True)
    if form.is_flat:
        normal = a.mat[:, 2]
        place = b.pos + rotate(b.mat, b.size * patch.corners[1, 0])
        distance = dot(place - a.pos, normal)
        point = place - 0.5 * distance * normal
    elif KINDS[firsts[0]].ground:  # what touches a field is looked at the other way round
        distance, point, normal = _between(form, seconds, kind, firsts[0], case, patch, -hint, b, a)
        normal = -normal
    else:
        distance, point, normal = _between(form, firsts, kind, seconds[0], case, patch, hint, a, b)
    return spatial.materialize((jnp.where(case == features.NONE, EMPTY, distance), point, normal))


def _between(form: Form, firsts, kind: Array, second: str, case: Array, patch: Patch, hint: Array, a: Shape, b: Shape):
    """Distance (), point (3,) and normal (3,) of two shapes that have an end."""
    other = posed([second], jnp.int32(0), b, patch, 1)
    if form.curved:
        curved = [convex for name in firsts if (convex := KINDS[name].convex)]
        found = witness_of_corners(body_among(curved, kind), a, spatial.materialize(other.corners), hint)
        return found.distance, 0.5 * (found.point_a + found.point_b), found.normal
    own, other = spatial.materialize((posed(firsts, kind, a, patch, 0), other))
    return contact(case, own, other, hint)


def posed(kinds: Sequence[str], kind: Array, shape: Shape, patch: Patch, k: int) -> Posed:
    """One side of a patch in the world, of a shape of one of several kinds."""
    scale, radius = one_of(kind, [side(name).grown(shape.size) for name in kinds])
    area = jnp.roll(scale, -1) * jnp.roll(scale, 1) * patch.area[k]
    corners, base = scale * patch.corners[k], shape.pos + rotate(shape.mat, scale * patch.base[k])
    if KINDS[kinds[0]].ground and patch.below is not None:
        corners = corners - patch.below[k][:, None] * np.array([0.0, 0.0, 1.0], corners.dtype)
    corners = shape.pos + rotate(shape.mat, corners)
    girths = [line(name, shape) for name in kinds]
    if all(girth is None for girth in girths):
        return Posed(corners, rotate(shape.mat, area), base, radius)
    girth = one_of(kind, [0.0 * radius if girth is None else girth for girth in girths])
    return Posed(corners, rotate(shape.mat, area), base, radius, shape.mat[:, 2], girth)
