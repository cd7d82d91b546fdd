"""Convex shapes as the hull of a few corners, each grown by an ellipsoid and a ball; the direction that separates two.

For every unit vector n the number

    f(n) = min over b of n·y − max over a of n·x

is a lower bound of the distance between two convex shapes, and the distance is its maximum. So a direction is as
good as its f, wherever it came from: nothing here that is inexact can make a distance too large. The direction comes
from the algorithm of Gilbert, Johnson and Keerthi: the point nearest to the origin of the set {y − x}, in simplices
of supporting points. Balls stay out of it and are subtracted at the end. Close to contact the nearest point cancels,
so where it lies inside a triangle the direction is that triangle's normal: a face's or two edges', to rounding.

This is one routine for all primitives, unlike the pair functions, whose answers beyond the margin need not be
distances (boxes that are apart diagonally have no contacts at all), and which know nothing of shapes with corners
left out, as `sweep` needs them.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.geometry import cross, dot, rotate, unit, unrotate
from ukemi.collide.hulls.boxes import boxes
from ukemi.collide.hulls.support import together
from ukemi.collide.kinds import KINDS
from ukemi.collide.near import are_meshes
from ukemi.collide.pairs.plane import CORNERS
from ukemi.collide.shapes import own_arrays
from ukemi.collide.simplex import length, nearest
from ukemi.collide.sweep.meshes import Mesh, Meshes, furthest, meshes_of
from ukemi.maths import spatial
from ukemi.maths.gathers import rows_at
from ukemi.model.records import Model

STEPS = 100  # of the search at most; polytopes need fewer than ten, curved shapes most near contact
CLOSE = 1e-4  # relative error of a distance, which shrinks with it, that is good enough
LEAST = 8  # corners that there is room for: `faceted` needs them
SHRINK = 0.01  # how much smaller shapes are made that touch or overlap, to see in which direction


class Hull(NamedTuple):
    """A convex shape; leading axes broadcast."""

    pos: Array  # (..., 3) centre [m]
    corners: Array  # (..., k, 3) from the centre, but for those of meshes [m]
    kept: Array  # (..., k) bool: which corners there are
    core: Array  # (..., 3, 3) rows C: the ellipsoid around each corner reaches |C n| along n [m]
    radius: Array  # (..., ) of the ball around each corner [m]
    flat: Array  # (...) bool: a plane, whose only direction is its z axis
    mat: Array  # (..., 3, 3) columns are the shape's axes
    mesh: Mesh | None  # None: no shape of the model is one


def posed(local: Hull, pos: Array, mat: Array) -> Hull:
    """The hull given in its own axes at a pose: pos (..., 3) and mat (..., 3, 3)."""
    corners = (mat[..., None, :, :] * local.corners[..., None, :]).sum(-1)
    core = (local.core[..., :, None, :] * mat[..., None, :, :]).sum(-1)
    return spatial.materialize(local._replace(pos=pos, corners=corners, core=core, mat=mat))


def local_hulls(model: Model) -> tuple[Hull, Meshes | None]:
    """All geoms (ng, ...) in their own axes, and where the corners of meshes are."""
    kinds, zero = [KINDS[kind] for kind in model.geoms.layout.type], jnp.zeros_like(model.geoms.pos)
    n, dtype = len(kinds), zero.dtype
    grains = {kind: kind.convex.grains(*own_arrays(model.geoms)) for kind in dict.fromkeys(kinds) if kind.convex}
    most = max([LEAST, *(corners.shape[1] for corners, _, _ in grains.values())])
    corners, axes, radius, count = jnp.zeros((n, most, 3), dtype), zero, zero[:, 0], np.ones(n, int)
    for kind, (own_corners, own_axes, own_radius) in grains.items():
        own, k = np.array([other is kind for other in kinds]), own_corners.shape[1]
        count[own] = k
        own_corners = jnp.pad(own_corners, ((0, 0), (0, most - k), (0, 0)))
        corners = jnp.where(own[:, None, None], own_corners, corners)
        axes, radius = jnp.where(own[:, None], own_axes, axes), jnp.where(own, own_radius, radius)
    meshes, mesh = meshes_of(model)
    if meshes:
        count[are_meshes(model)] = 0
    hulls = Hull(
        pos=zero,
        corners=corners,
        kept=jnp.asarray(np.arange(most) < count[:, None]),
        core=axes[:, :, None] * np.eye(3, dtype=dtype),
        radius=radius,
        flat=jnp.asarray(np.array([kind.endless for kind in kinds])),
        mat=jnp.broadcast_to(np.eye(3, dtype=dtype), (n, 3, 3)),
        mesh=mesh,
    )
    return hulls, meshes


def around(model: Model, local: Hull) -> Hull:
    """The same with boxes in place of meshes."""
    if local.mesh is None:
        return local
    center, half = boxes(model.geoms.layout.type, model.pairs.layout.hulls, model.geoms.size)
    corners = center[:, None] + half[:, None] * np.array(CORNERS, half.dtype)
    own = are_meshes(model)
    pad = ((0, 0), (0, local.corners.shape[1] - len(CORNERS)))
    kept = jnp.where(own[:, None], np.pad(np.ones((len(own), len(CORNERS)), bool), pad), local.kept)
    corners = jnp.where(own[:, None, None], jnp.pad(corners, (*pad, (0, 0))), local.corners)
    return local._replace(corners=corners, kept=kept, mesh=None)


def extent(hull: Hull) -> Array:
    """Largest distance (...) of a point of the shape, its ball left out, from the centre [m]."""
    far = jnp.sqrt(jnp.where(hull.kept, dot(hull.corners, hull.corners), 0.0).max(-1))
    far = far if hull.mesh is None else jnp.maximum(far, hull.mesh.bound)
    return far + jnp.sqrt(dot(hull.core, hull.core).max(-1))


def heights(hull: Hull, n: Array) -> Array:
    """How far (k,) each corner with its ellipsoid reaches from the centre along n (3,); no corner, no height."""
    return jnp.where(hull.kept, dot(hull.corners, n), -jnp.inf) + length(rotate(hull.core, n))


def reach(meshes: Meshes | None, hull: Hull, n: Array) -> Array:
    """Support function about the centre, the ball left out: max of n·x; n (3,) need not be a unit vector."""
    own = heights(hull, n).max()
    if meshes is None or hull.mesh is None:
        return own
    return jnp.maximum(own, furthest(meshes, hull.mesh, unrotate(hull.mat, n))[2])


def gap(meshes: Meshes | None, a: Hull, b: Hull, n: Array) -> Array:
    """f(n), the distance () between the planes with normal n (3,) that support a and b [m]."""
    reaches = jax.vmap(partial(reach, meshes))(together(a, b), jnp.stack([n, -n]))
    return dot(n, b.pos - a.pos) - reaches.sum() - a.radius - b.radius


def rounding(a: Hull, b: Hull) -> Array:
    """Error () to expect in a distance [m]."""
    size = jnp.abs(a.pos).max() + jnp.abs(b.pos).max() + extent(a) + extent(b) + a.radius + b.radius
    return 16 * jnp.finfo(size.dtype).eps * size


def supports(meshes: Meshes | None, a: Hull, b: Hull, n: Array) -> Array:
    """Points (2, 3) of both shapes, their balls left out, that are furthest along n (2, 3), from the centres."""
    return jax.vmap(partial(_support, meshes))(together(a, b), n)


def _support(meshes: Meshes | None, hull: Hull, n: Array) -> Array:
    best = jnp.arange(len(hull.kept)) == jnp.argmax(jnp.where(hull.kept, dot(hull.corners, n), -jnp.inf))
    corner = (best[:, None] * hull.corners).sum(0)
    if meshes is not None and hull.mesh is not None:
        place = rotate(hull.mat, furthest(meshes, hull.mesh, unrotate(hull.mat, n))[1])
        corner = jnp.where(hull.mesh.there, place, corner)
    x = rotate(hull.core, n)
    far = length(x)
    x = x / jnp.where(far > 0, far, 1.0)
    return corner + unrotate(hull.core, x)


def edges(meshes: Meshes | None, a: Hull, b: Hull, n: Array) -> tuple[Array, Array]:
    """Of both shapes, from the corner furthest along n (3,), or −n, to the next one: the edge in contact, if one is."""
    first, second = jax.vmap(partial(_edge, meshes))(together(a, b), jnp.stack([n, -n]))
    return first, second


def _edge(meshes: Meshes | None, hull: Hull, n: Array) -> Array:
    high = jnp.where(hull.kept, dot(hull.corners, n), -jnp.inf)
    best = jnp.argmax(high)
    rest = jnp.where(np.arange(len(high)) == best, -jnp.inf, high)
    edge = rows_at(hull.corners, jnp.argmax(rest)) - rows_at(hull.corners, best)
    edge = jnp.where(rest.max() > -jnp.inf, edge, 0.0)
    if meshes is None or hull.mesh is None:
        return edge
    towards = unrotate(hull.mat, n)
    first, here, _ = furthest(meshes, hull.mesh, towards)
    _, there, height = furthest(meshes, hull.mesh, towards, but=first)
    own = jnp.where(height > -jnp.inf, rotate(hull.mat, there - here), 0.0)
    return jnp.where(hull.mesh.there, own, edge)


class _Search(NamedTuple):
    """What the search knows."""

    points: Array  # (4, 3) of the set {y − x}
    weight: Array  # (4,) of the point nearest to the origin
    normal: Array  # (3,) where to look next
    upper: Array  # () distance of the nearest point [m]
    best: Array  # (3,) the direction with the largest f so far
    lower: Array  # () its f, balls left out [m]
    done: Array  # () bool
    count: Array  # ()


def separating_direction(meshes: Meshes | None, a: Hull, b: Hull, start: Array) -> Array:
    """The direction (3,) from a to b in which two shapes are furthest apart, to a relative error of `CLOSE` in f.

    start: (3,) where the search begins, any unit vector. Where the shapes overlap the direction means nothing.
    """
    apart, noise, balls = b.pos - a.pos, rounding(a, b), a.radius + b.radius
    start = jnp.where(a.flat, a.mat[:, 2], start)

    def nearer(n):
        x, y = supports(meshes, a, b, jnp.stack([n, -n]))
        return apart + y - x

    def further(at: _Search) -> _Search:
        new = nearer(at.normal)
        value = dot(at.normal, new)
        better = value > at.lower
        lower, best = jnp.where(better, value, at.lower), jnp.where(better, at.normal, at.best)
        points = jnp.where((jnp.arange(4) == jnp.argmin(at.weight))[:, None], new, at.points)
        weight, normal, upper, inside = nearest(points)
        done = at.done | inside | (upper - lower <= CLOSE * jnp.maximum(upper - balls, 0.0) + noise)
        return _Search(points, weight, normal, upper, best, lower, done, at.count + 1)

    first = nearer(start)
    normal = unit(first, start)
    weight = jnp.zeros(4, apart.dtype).at[0].set(1.0)
    upper = length(first)
    blank = _Search(jnp.tile(first, (4, 1)), weight, normal, upper, start, dot(start, first), a.flat, jnp.int32(0))
    return lax.while_loop(lambda at: ~at.done & (at.count < STEPS), further, blank).best


def axis_direction(a: Hull, b: Hull) -> tuple[Array, Array]:
    """The best (3,) of the axes of both shapes and the line of centres, and its f (): cheap, for far pairs `around`."""
    apart = b.pos - a.pos
    directions = jnp.concatenate([a.mat.T, b.mat.T, unit(apart, a.mat[:, 2])[None]])
    directions = directions * jnp.where(dot(directions, apart) < 0, -1.0, 1.0)[:, None]
    directions = jnp.where(a.flat, a.mat[:, 2], directions)
    values = jax.vmap(partial(gap, None), (None, None, 0))(a, b, directions)
    best = jnp.argmax(values)
    return directions[best], values[best]


def best_direction(meshes: Meshes | None, a: Hull, b: Hull, start: Array, near: Array) -> tuple[Array, Array]:
    """`separating_direction`, and its f (), that also serves shapes in touch or in slight overlap: where f is not above
    `near`, a search among smaller ones comes before another.
    """

    def search(at):
        k, *best = at
        scale = jnp.where(k == 1, 1 - SHRINK, 1.0).astype(start.dtype)
        direction = separating_direction(meshes, _scaled(a, scale), _scaled(b, scale), best[0])
        value = gap(meshes, a, b, direction)
        return k + 1, *(jnp.where(value > best[1], x, y) for x, y in zip((direction, value), best, strict=True))

    first = jnp.int32(0), start, jnp.full_like(a.radius, -jnp.inf)
    _, direction, value = lax.while_loop(lambda at: (at[0] < 1) | ((at[0] < 3) & ~(at[2] > near)), search, first)
    return direction, value


def _scaled(hull: Hull, scale: Array) -> Hull:
    mesh = None if hull.mesh is None else hull.mesh._replace(scale=scale * hull.mesh.scale)
    return hull._replace(corners=scale * hull.corners, core=scale * hull.core, mesh=mesh)


def without(meshes: Meshes | None, local: Hull, placed: Hull, n: Array, limit: Array) -> tuple[Hull, Array]:
    """A hull in its own axes without the corners that reach as far as `limit` along n (3,) where it is `placed`; and
    whether any are left.
    """
    kept = local.kept & ~(heights(placed, n) >= limit)
    if meshes is None or local.mesh is None:
        return local._replace(kept=kept), kept.any()
    towards = unrotate(placed.mat, n)
    mesh = local.mesh._replace(cut=local.mesh.scale * towards, limit=limit)
    left = ~(furthest(meshes, mesh, -towards)[2] <= -jnp.inf)
    return local._replace(kept=kept, mesh=mesh), kept.any() | left


def faceted(local: Hull, towards: Array) -> Hull:
    """A cylinder (core of two axes) as the hull of four rim points on each cap; other shapes as they are.

    towards: (3,) direction, in the shape's axes, in whose azimuth the first rim point lies.
    """
    cylinder = (local.core[0, 0] > 0) & (local.core[2, 2] == 0)
    flat = unit(towards * np.array([1.0, 1.0, 0.0], towards.dtype), jnp.array([1.0, 0.0, 0.0], towards.dtype))
    across = cross(jnp.array([0.0, 0.0, 1.0], towards.dtype), flat)
    rim = local.core[0, 0] * jnp.stack([flat, across, -flat, -across])
    corners = jnp.concatenate([local.corners[:1] + rim, local.corners[1:2] + rim])
    corners = jnp.pad(corners, ((0, len(local.corners) - LEAST), (0, 0)))
    return local._replace(
        corners=jnp.where(cylinder, corners, local.corners),
        kept=local.kept | cylinder,
        core=jnp.where(cylinder, 0.0, local.core),
    )
