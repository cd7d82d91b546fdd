"""Contacts of convex shapes with height fields, as MuJoCo has them.

Each cell of the grid is two triangles; what is beneath one down to the field's base is a prism. Each prism beneath a
shape (the box along the field's axes that holds it, and all within reach) which the shape touches is one contact, in
the order of rows, columns and triangles: where and how deep is for the search among polytopes to find, as for meshes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.geometry import cross, dot, rotate, unit, unrotate
from ukemi.collide.hulls import touching
from ukemi.collide.hulls.features import FEATURES, Corners, Features
from ukemi.collide.hulls.search import search
from ukemi.collide.hulls.support import Body, Joined, support
from ukemi.collide.kinds import KINDS
from ukemi.collide.shapes import EMPTY, Hit, Shape
from ukemi.maths import spatial
from ukemi.model.heights import Heights
from ukemi.model.hulls import Hulls
from ukemi.model.records import PairGroup

MOST = 50  # contacts of a shape with a field that MuJoCo keeps
# Corners of a cell's triangles, (row, column) from its first; MuJoCo's order.
TRIANGLES = np.array([[(1, 0), (0, 0), (1, 1)], [(0, 0), (1, 1), (0, 1)]])
NOWHERE = 0.5 * EMPTY  # distance from a field that is not beneath at all [m]


class Found(NamedTuple):
    """Contacts of one pair, those there are first."""

    hit: Hit  # (k, ...)
    codes: Array  # (k, FEATURES)
    which: Array  # (k,) prism, in MuJoCo's order
    count: Array  # () how many there are
    lost: Array  # () bool: there are more than counted, or more cells beneath than looked at
    failed: Array  # () bool: a search did not end


class Window(NamedTuple):
    """Cells of a field beneath a shape, and around it."""

    first: Array  # (2,) row and column
    last: Array  # (2,) one after
    lost: Array  # () bool: more than there is room for


def most(cells: tuple[int, int]) -> int:
    """Contacts of one pair at the most, with so many cells beneath."""
    return min(MOST, 2 * cells[0] * cells[1])


def window(shape: Array, size: Array, low: Array, high: Array, reach: Array, room: tuple[int, int]) -> Window:
    """Cells between `low` and `high` (3,) in the field's axes, and those within reach of them where there is room.

    There is at load for margins; laws that look ahead of a step may reach further than ever matters.
    """
    grid = (shape - 1)[::-1]  # along x and y

    def at(x: Array) -> Array:
        return (x[:2] + size[:2]) / (2 * size[:2]) * grid

    def within(x: Array) -> Array:
        return jnp.clip(x, 0, grid).astype(jnp.int32)

    first, last = within(jnp.floor(at(low))), within(jnp.ceil(at(high)))
    spare = jnp.asarray(room[::-1]) - (last - first)
    before = jnp.clip(first - within(jnp.floor(at(low - reach))), 0, jnp.maximum(spare + 1, 0) // 2)
    after = jnp.clip(within(jnp.ceil(at(high + reach))) - last, 0, jnp.maximum(spare - before, 0))
    return Window((first - before)[::-1], (last + after)[::-1], (spare < 0).any())


def apart(heights: Heights, group: PairGroup, shapes: Shape, end: Array, radius: Array, reach: Array) -> Array:
    """How far (n,) shapes of pairs are above what of the field is beneath their bounding capsules, at least [m].

    end, radius: half axes (ng, 3) in the world, and radii (ng,), of the capsules.
    """
    room = group.cells[0] + 2, group.cells[1] + 2
    layout = heights.layout

    def one(geoms: Array, reach: Array) -> Array:
        a, b = geoms
        mat, size, field = shapes.mat[a], shapes.size[a], jnp.asarray(layout.of)[a]
        place = unrotate(mat, shapes.pos[b] - shapes.pos[a])
        half = jnp.abs(unrotate(mat, end[b])) + radius[b]
        shape = jnp.asarray(layout.shape)[field]
        near = window(shape, size, place - half, place + half, reach, room)
        row, column = (near.first[k] + np.arange(room[k] + 1) for k in (0, 1))
        there = (row <= near.last[0])[:, None] & (column <= near.last[1])
        index = jnp.asarray(layout.first)[field] + row[:, None] * shape[1] + column
        z = heights.data[jnp.where(there, index, 0)] * size[2]
        above = place[2] - half[2] - jnp.where(there, z, -jnp.inf).max()
        beside = jnp.abs(place[:2]) - half[:2] - size[:2]
        below = -heights.base[field] - place[2] - half[2]
        found = jnp.maximum(jnp.maximum(above, beside.max()), below)
        nothing = 0.0 * (beside.sum() + below)  # but NaN, of which a window says nothing
        found = jnp.where((near.last <= near.first).any(), NOWHERE + nothing, found)
        return jnp.where(near.lost, -NOWHERE + nothing, found)

    return jax.vmap(one)(jnp.asarray(group.geoms), reach)


class _Pair(NamedTuple):
    """One pair in the axes of its field, with its origin where the shape is."""

    body: Body  # the shape
    place: Array  # (3,) of the shape from the field's origin
    size: Array  # (3,) of the field
    shape: Array  # (2,) rows and columns of its grid
    first: Array  # () first elevation
    base: Array  # ()


def _pair(group: PairGroup, hulls: Hulls, heights: Heights, geoms: Array, a: Shape, b: Shape) -> _Pair:
    k = jnp.asarray(heights.layout.of)[geoms[0]]
    own = b._replace(pos=jnp.zeros_like(b.pos), mat=spatial.compose(a.mat.T, b.mat))
    body = touching.body(group.types[1], own, jnp.asarray(hulls.of)[geoms[1]])
    place, layout = unrotate(a.mat, b.pos - a.pos), heights.layout
    return _Pair(body, place, a.size, jnp.asarray(layout.shape)[k], jnp.asarray(layout.first)[k], heights.base[k])


def contacts(group: PairGroup, hulls: Hulls, corners: Corners, geoms: Array, a: Shape, b: Shape, reach: Array) -> Found:
    """Contacts of a field and a shape, a pair of geoms (2,), at less than `reach`."""
    pair, points = _pair(group, hulls, corners.heights, geoms, a, b), most(group.cells)
    low, high = _box(hulls, corners.hulls, pair.body)
    near = window(pair.shape, pair.size, pair.place + low, pair.place + high, reach, group.cells)
    cells, there = _cells(near, group.cells)
    top = _top(corners, pair, jnp.where(there[:, None, None], cells[:, None] + TRIANGLES[np.arange(len(there)) % 2], 0))
    there = there & ~(low[2] - top[..., 2].max(-1) > reach)
    there = there & ~(_outside(group.types[1], hulls, pair.body, b.size, top) > reach)
    order, count, start = jnp.argsort(~there, stable=True), there.sum(), len(corners.hulls)

    def further(at):
        k, found = at
        cell, odd = cells[order[k]], order[k] % 2
        hit, codes, failed = _prism(group, hulls, corners, pair, (a, b), cell, odd, start, reach)
        touches, here = hit.distance[0] < reach, found.count
        row = jnp.where(touches, here, points)
        which = 2 * (cell[0] * (pair.shape[1] - 1) + cell[1]) + odd
        kept = jax.tree.map(lambda x, new: x.at[row].set(new[0], mode="drop"), found.hit, hit)
        return k + 1, Found(
            hit=kept,
            codes=found.codes.at[row].set(codes, mode="drop"),
            which=found.which.at[row].set(which.astype(jnp.int32), mode="drop"),
            count=here + touches.astype(jnp.int32),
            lost=found.lost,
            failed=found.failed | failed,
        )

    dtype = a.pos.dtype
    blank = Found(
        Hit(jnp.full(points, EMPTY, dtype), *jnp.zeros((2, points, 3), dtype)),
        jnp.zeros((points, FEATURES), jnp.int32),
        jnp.zeros(points, jnp.int32),
        jnp.int32(0),
        near.lost,
        jnp.array(False),
    )
    k, found = lax.while_loop(lambda at: (at[0] < count) & (at[1].count < points), further, (jnp.int32(0), blank))
    nowhere = jnp.isnan(low + high).any()  # then no cell is beneath: one contact at NaN is enough to tell
    distance = found.hit.distance.at[0].set(jnp.where(nowhere, jnp.nan, found.hit.distance[0]))
    held = jnp.maximum(found.count, nowhere.astype(jnp.int32))
    return found._replace(hit=found.hit._replace(distance=distance), count=held, lost=found.lost | (k < count))


def _box(hulls: Hulls, corners: Joined | Array, body: Body) -> tuple[Array, Array]:
    """Least and largest coordinates (3,) of a body in the field's axes, from its origin."""
    axes = jnp.eye(3, dtype=body.scale.dtype)
    ends = [jax.vmap(lambda n: support(hulls, corners, body, n)[1])(sign * axes) for sign in (-1.0, 1.0)]
    low, high = (jnp.diagonal(x) for x in ends)
    return low - body.radius, high + body.radius


def _cells(near: Window, room: tuple[int, int]) -> tuple[Array, Array]:
    """Cells (2 n, 2) to look at, each twice for its two triangles, and which of these there are (2 n,)."""
    grid = np.stack(np.meshgrid(np.arange(room[0]), np.arange(room[1]), indexing="ij"), -1).reshape(-1, 2)
    cells = near.first + np.repeat(grid, 2, 0)
    return cells.astype(jnp.int32), (cells < near.last).all(-1)


def _elevations(pair: _Pair, at: Array) -> Array:
    """Numbers (...) of the elevations at rows and columns (..., 2)."""
    return pair.first + at[..., 0] * pair.shape[1] + at[..., 1]


def _top(corners: Corners, pair: _Pair, at: Array) -> Array:
    """Places (..., 3) of elevations at rows and columns (..., 2), from the shape."""
    across = (2 * at[..., ::-1].astype(pair.size.dtype) / (pair.shape - 1)[::-1] - 1) * pair.size[:2]
    z = corners.heights.data[_elevations(pair, at)] * pair.size[2]
    return jnp.concatenate([across, z[..., None]], -1) - pair.place


def _outside(kind: str, hulls: Hulls, body: Body, size: Array, top: Array) -> Array:
    """How far (n,) a body of a size (3,) is outside of the upper plane or a wall of prisms with triangles (n, 3, 3).

    Never more than the distance. Of a mesh, the box around it.
    """
    after, opposite = np.array([1, 2, 0]), np.array([2, 0, 1])
    edge, vertical = top[:, after] - top, jnp.array([0.0, 0.0, 1.0], top.dtype)
    walls = unit(cross(edge, vertical), vertical)
    inwards = dot(walls, top[:, opposite] - top) > 0
    walls = jnp.where(inwards[..., None], -walls, walls)
    up = unit(cross(edge[:, 0], edge[:, 1]), vertical)
    normals = jnp.concatenate([walls, jnp.where(up[:, 2:] < 0, -up, up)[:, None]], 1)
    towards, convex = unrotate(body.mat, -normals), KINDS[kind].convex
    if convex:
        reach = convex.reach(towards, size)
    else:
        held = jnp.asarray(hulls.boxes, size.dtype)[body.hull]
        reach = dot(towards, size * held[:3]) + dot(jnp.abs(towards), jnp.abs(size) * held[3:])
    return (-reach - dot(top[:, np.array([0, 1, 2, 0])], normals)).max(-1)


def _prism(group, hulls: Hulls, corners: Corners, pair: _Pair, sides, cell: Array, odd: Array, start: int, reach):
    """The contact (1, ...) with one prism, its features (FEATURES,), and whether its search failed."""
    at = cell + jnp.asarray(TRIANGLES)[odd]
    ids = _elevations(pair, at)
    top = _top(corners, pair, at)
    bottom = jnp.concatenate([top[:, :2], jnp.full_like(top[:, 2:], -pair.base - pair.place[2])], 1)
    numbers = start + jnp.concatenate([2 * ids, 2 * ids + 1])
    zero = jnp.zeros_like(pair.place)
    axes, every = jnp.eye(3, dtype=zero.dtype), jnp.concatenate([top, bottom])
    prism = Body(zero, axes, jnp.ones_like(zero), None, zero[0], jnp.int32(0), own=every)
    far = jnp.sqrt(jnp.maximum(dot(top, top).max(), dot(bottom, bottom).max()))
    size = touching.extent(hulls, pair.body) + far
    down = jnp.array([0.0, 0.0, -1.0], zero.dtype)
    found = search(hulls, corners.hulls, pair.body, prism, reach, down, size)
    if pair.body.core is not None:
        own = jax.tree.map(lambda x: x[0], touching.beside_curved(found))
    else:
        own = touching.single(corners.hulls, pair.body, prism, found)
    first = jnp.zeros_like(own.a) if pair.body.core is not None else own.a
    own = Features(own.case, first, numbers[own.b], own.faces)
    codes = own.codes()
    patch = jax.tree.map(lambda x: x[0], touching.patches(hulls, corners, codes[None]))
    hint = -rotate(sides[0].mat, found.normal)
    (form,) = touching.forms([group.types])
    hit = touching.settled(form, jnp.int32(0), own.case, patch, hint, *sides)
    apart = found.distance > reach + pair.body.radius  # then the search ended early, and features say nothing
    return hit._replace(distance=jnp.where(apart, EMPTY, hit.distance)), codes, found.failed
