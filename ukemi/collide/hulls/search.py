"""Which corners of two polytopes are nearest, or deepest in each other.

With D = {y − x : x in a, y in b}, the distance is that of D from the origin; where D holds the origin the depth is the
origin's distance from D's surface. Gilbert, Johnson and Keerthi's algorithm finds the nearest point in simplices of
supporting points, van den Bergen's expanding polytope the nearest face from inside. Both end at a simplex whose
corners are differences of corners: which these are is all that they return.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.geometry import cross, dot, unit
from ukemi.collide.hulls.support import Body, Joined, support
from ukemi.collide.simplex import FACES, length, nearest
from ukemi.maths.gathers import put_rows, rows_at
from ukemi.maths.ranking import smallest
from ukemi.model.hulls import Hulls

STEPS = 64  # of the first search
CORNERS = 100  # of the expanding polytope at the most
CLOSE = 1e-7  # relative error of distances that ends a search among curved shapes
NUDGE = {"float64": 1e-11, "float32": 1e-6}  # relative to the pair's size
SLOTS = 2 * CORNERS - 4  # its faces then


class Points(NamedTuple):
    """Points of D (k, ...): where they are, and of which corners they are the difference."""

    place: Array  # (k, 3) [m]
    a: Array  # (k,)
    b: Array  # (k,)


class Nearest(NamedTuple):
    """Where two polytopes are nearest; balls left out."""

    normal: Array  # (3,) from a to b
    distance: Array  # () signed: a lower bound where they are beyond reach [m]
    a: Array  # (3,) corners, some of them the same
    b: Array  # (3,)
    weight: Array  # (3,) of the nearest point in the simplex
    inside: Array  # () bool: they overlap
    failed: Array  # () bool: the search did not end

    @staticmethod
    def blank(n: int, dtype) -> "Nearest":
        """Of n pairs that nothing is known of."""
        three, corners, no = jnp.zeros((n, 3), dtype), jnp.zeros((n, 3), jnp.int32), jnp.zeros(n, bool)
        return Nearest(three, three[:, 0], corners, corners, three, no, no)


class _Search(NamedTuple):
    points: Points  # four
    weight: Array  # (4,)
    normal: Array  # (3,)
    upper: Array  # () distance of the nearest point [m]
    best: Array  # (3,) direction of the largest lower bound
    lower: Array  # () and that bound [m]
    inside: Array  # () bool
    done: Array  # () bool
    count: Array


def _furthest(hulls: Hulls, corners: Joined | Array, a: Body, b: Body, n: Array, size: Array) -> Points:
    """The point of D furthest against n, a little off by which corners it is of.

    So no four are quite in a plane, nor is the origin in one with three: what is found does not hang on rounding.
    """
    i, x = support(hulls, corners, a, n)
    j, y = support(hulls, corners, b, -n)
    wave = jnp.sin((i * 12.9898 + j * 78.233 + np.array([0.0, 37.719, 11.135])).astype(size.dtype)) * 43758.5453
    nudge = NUDGE[size.dtype.name] * size * (wave - jnp.floor(wave) - 0.5)
    return Points(b.pos - a.pos + y - x + nudge, i, j)


def _same(points: Points, new: Points) -> Array:
    """Which of several points (k,) a new one is."""
    return (points.a == new.a) & (points.b == new.b) & (points.place == new.place).all(-1)


def search(hulls: Hulls, corners: Joined | Array, a: Body, b: Body, reach: Array, start: Array, size: Array) -> Nearest:
    """Where polytopes are nearest, or that they are further apart than reach and the radii of their balls.

    start: (3,) where to look first. size: () of the pair, for rounding [m].
    """
    noise = (16 * jnp.finfo(size.dtype).eps + 16 * NUDGE[size.dtype.name]) * size
    for core in (a.core, b.core):
        if core is not None:  # what ends a search among curved shapes is refined afterwards
            noise = jnp.where((core != 0).any(), jnp.maximum(noise, CLOSE * size), noise)
    at = _approach(hulls, corners, a, b, reach + a.radius + b.radius, start, noise, size)
    apart = _ended(at)
    return lax.cond(at.inside, lambda: _expand(hulls, corners, a, b, at.points, noise, size), lambda: apart)


def _approach(
    hulls: Hulls, corners: Joined | Array, a: Body, b: Body, reach: Array, start: Array, noise: Array, size: Array
) -> _Search:
    """The search from outside."""

    def further(at: _Search) -> _Search:
        new = _furthest(hulls, corners, a, b, at.normal, size)
        value = dot(at.normal, new.place)
        better = value > at.lower
        lower, best = jnp.where(better, value, at.lower), jnp.where(better, at.normal, at.best)
        known = (_same(at.points, new) & (at.weight > 0)).any()
        slot = jnp.arange(4) == jnp.argmin(at.weight)
        points = jax.tree.map(lambda x, y: jnp.where(slot if x.ndim == 1 else slot[:, None], y, x), at.points, new)
        weight, normal, upper, inside = nearest(points.place)
        ended = known | (at.upper - lower <= noise) | (lower > reach)
        now = _Search(points, weight, normal, upper, best, lower, inside, inside, at.count + 1)
        kept = at._replace(best=best, lower=lower, done=jnp.array(True), count=at.count + 1)
        return jax.tree.map(lambda x, y: jnp.where(ended, x, y), kept, now)

    first = _furthest(hulls, corners, a, b, start, size)
    points = jax.tree.map(lambda x: jnp.stack([x] * 4), first)
    weight = jnp.asarray(np.eye(4)[0], start.dtype)
    no = jnp.array(False)
    value = dot(start, first.place)
    blank = _Search(
        points, weight, unit(first.place, start), length(first.place), start, value, no, value > reach, jnp.int32(0)
    )
    return lax.while_loop(lambda at: ~at.done & (at.count < STEPS), further, blank)


def _ended(at: _Search) -> Nearest:
    """The simplex that holds the nearest point; what does not count repeats its heaviest point."""
    order = smallest(-at.weight, 3)
    weight = rows_at(at.weight, order)
    pick = jnp.where(weight > 0, order, order[0])
    a, b = rows_at(at.points.a, pick), rows_at(at.points.b, pick)
    return Nearest(at.best, jnp.maximum(at.lower, 0.0), a, b, weight, jnp.array(False), ~at.done)


# ---- from inside -----------------------------------------------------------------------------------------------------


class _Polytope(NamedTuple):
    """A polytope around the origin, of points of D."""

    points: Points  # (CORNERS, ...)
    count: Array  # () of them
    faces: Array  # (SLOTS, 3) of points, counterclockwise seen from outside
    alive: Array  # (SLOTS,)
    normal: Array  # (SLOTS, 3) outward, unit; zero of faces without area
    height: Array  # (SLOTS,) over the origin, inf of faces without area [m]
    owner: Array  # (CORNERS, CORNERS) face that has the edge from one point to another
    nearest: Array  # () face
    done: Array  # () bool


def _planes(place: Array, faces: Array, noise: Array) -> tuple[Array, Array]:
    """Normals (n, 3) and heights (n,) of faces."""
    p, q, r = (rows_at(place, faces[:, k]) for k in range(3))
    n = cross(q - p, r - p)
    area = length(n)
    flat = area <= noise * jnp.maximum(length(q - p), length(r - p))
    n = jnp.where(flat[:, None], 0.0, n / jnp.where(flat, 1.0, area)[:, None])
    height = dot(n, p)
    return n, jnp.where(flat | (height < -noise), jnp.inf, height)


def _first_polytope(points: Points, noise: Array) -> _Polytope:
    """The tetrahedron of four points."""
    p = points.place
    faces = jnp.asarray(np.array(FACES, np.int32))
    fourth = p[np.array([3, 2, 1, 0])]
    n = cross(p[faces[:, 1]] - p[faces[:, 0]], p[faces[:, 2]] - p[faces[:, 0]])
    turned = dot(n, fourth - p[faces[:, 0]]) > 0
    faces = jnp.where(turned[:, None], faces[:, np.array([0, 2, 1])], faces)
    faces = jnp.pad(faces, ((0, SLOTS - 4), (0, 0)))
    points = jax.tree.map(lambda x: jnp.pad(x, ((0, CORNERS - 4),) + ((0, 0),) * (x.ndim - 1)), points)
    alive = jnp.arange(SLOTS) < 4
    normal, height = _planes(points.place, faces, noise)
    none = jnp.zeros((CORNERS, CORNERS), jnp.int32)
    owner = lax.fori_loop(0, 4, lambda k, owner: _own(owner, rows_at(faces, k), k), none)
    return _Polytope(points, jnp.int32(4), faces, alive, normal, height, owner, jnp.int32(0), jnp.array(False))


def _own(owner: Array, face: Array, slot: Array) -> Array:
    """Write down which edges a face (3,) in a slot has."""
    for i, j in ((0, 1), (1, 2), (2, 0)):
        new = jnp.asarray(slot, jnp.int32)[None, None]
        owner = lax.dynamic_update_slice(owner, new, (face[i], face[j]), allow_negative_indices=False)
    return owner


def _expand(
    hulls: Hulls, corners: Joined | Array, a: Body, b: Body, points: Points, noise: Array, size: Array
) -> Nearest:
    """The face of D nearest to the origin, from inside."""

    def further(at: _Polytope) -> _Polytope:
        face = jnp.argmin(jnp.where(at.alive, at.height, jnp.inf)).astype(jnp.int32)
        normal, height = rows_at(at.normal, face), rows_at(at.height, face)
        new = _furthest(hulls, corners, a, b, -normal, size)
        known = (_same(at.points, new) & (jnp.arange(CORNERS) < at.count)).any()
        done = known | (dot(normal, new.place) - height <= noise)
        at = at._replace(nearest=face, done=done)
        return jax.tree.map(lambda x, y: jnp.where(done, x, y), at, _with(at, new, noise))

    at = lax.while_loop(lambda at: ~at.done & (at.count < CORNERS), further, _first_polytope(points, noise))
    # of faces in one plane, nudged apart, that which the origin is over
    level = at.alive & (at.height <= rows_at(at.height, at.nearest) + noise)
    place = rows_at(at.points.place, at.faces)
    weights = dot(cross(place[:, np.array([1, 2, 0])], place[:, np.array([2, 0, 1])]), at.normal[:, None])
    face = jnp.argmax(jnp.where(level, weights.min(-1), -jnp.inf))
    normal, height, weight, pick = (rows_at(x, face) for x in (at.normal, at.height, weights, at.faces))
    i, j = rows_at(at.points.a, pick), rows_at(at.points.b, pick)
    return Nearest(-normal, -height, i, j, weight, jnp.array(True), ~at.done)


def _with(at: _Polytope, new: Points, noise: Array) -> _Polytope:
    """The hull of a polytope and one more point: the faces that the point sees give way to a cone over their rim."""
    points = jax.tree.map(lambda x, y: put_rows(x, y[None], at.count), at.points, new)
    seen = at.alive & (dot(at.normal, new.place) - at.height > noise)
    seen = seen | (jnp.arange(SLOTS) == at.nearest)
    start, end = at.faces, at.faces[:, np.array([1, 2, 0])]
    rim = seen[:, None] & ~rows_at(seen, rows_at(at.owner.ravel(), end * CORNERS + start))
    kept = at.alive & ~seen
    count = jnp.minimum(rim.sum(), SLOTS - kept.sum())  # a rim is short, and most slots stay as they are

    def add(_, carry):
        left, now = carry
        edge, slot = jnp.argmax(left), jnp.argmin(now.alive)
        face = jnp.stack([rows_at(start.ravel(), edge), rows_at(end.ravel(), edge), at.count])
        normal, height = _planes(points.place, face[None], noise)
        new = dict(faces=face[None], alive=jnp.ones(1, bool), normal=normal, height=height)
        new = {k: put_rows(getattr(now, k), x, slot) for k, x in new.items()}
        left = put_rows(left, jnp.zeros(1, bool), edge)
        return left, now._replace(**new, owner=_own(now.owner, face, slot))

    now = at._replace(points=points, count=at.count + 1, alive=kept)
    return lax.fori_loop(0, count, add, (rim.ravel(), now))[1]
