"""Rays that meet height fields: cells beneath a ray are searched, the crossing follows from the triangle found."""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.geometry import cross, dot
from ukemi.model.heights import Heights
from ukemi.observe.zones import TINY, Crossings, Meeting, box_faces, nearest_of

# Corners (row, column) of a cell's triangles, counterclockwise seen from above.
TRIANGLES = np.array([[(0, 0), (1, 1), (1, 0)], [(0, 0), (0, 1), (1, 1)]])


def first_meeting(heights: Heights, field: int, size: Array, p: Array, u: Array) -> Meeting:
    """Where the ray from p (3,) along u (3,) first meets a field of a size (3,), in its axes."""
    base = heights.base[field]
    middle = p + 0.5 * base * np.array([0.0, 0.0, 1.0])
    below = box_faces(jnp.stack([size[0], size[1], 0.5 * base]), middle, u)
    args = lax.stop_gradient((heights, size, p, u))
    top = _crossing(heights, field, size, p, u, *_first_triangle(args[0], field, *args[1:]))
    parts = [below, top, *_sides(heights, field, size, p, u)]
    return nearest_of(Crossings(*(jnp.concatenate(part) for part in zip(*parts, strict=True))))


def _corners(heights: Heights, field: int, size: Array, at: Array) -> Array:
    """Places (..., 3) of elevations at rows and columns (..., 2)."""
    shape = heights.layout.shape[field]
    across = (2 * at[..., ::-1].astype(size.dtype) / (shape[::-1] - 1) - 1) * size[:2]
    index = heights.layout.first[field] + at[..., 0] * shape[1] + at[..., 1]
    return jnp.concatenate([across, (size[2] * heights.data[index])[..., None]], -1)


def _crossing(heights: Heights, field: int, size: Array, p: Array, u: Array, cell: Array, odd: Array, there: Array):
    """Where (1,) the ray crosses the plane of one triangle."""
    a, b, c = _corners(heights, field, size, cell + jnp.asarray(TRIANGLES)[odd])
    normal = cross(b - a, c - a)
    slope = dot(normal, u)
    x = dot(normal, a - p) / jnp.where(slope == 0, 1.0, slope)
    return Crossings(x[None], (there & (slope != 0))[None], normal[None])


def _first_triangle(heights: Heights, field: int, size: Array, p: Array, u: Array) -> tuple[Array, Array, Array]:
    """Cell (2,), triangle () and whether there is one () that the ray meets first: cell after cell beneath the ray."""
    grid = (heights.layout.shape[field] - 1)[::-1]  # along x and y
    step = 2 * size[:2] / grid
    still = jnp.abs(u[:2]) <= TINY
    along = jnp.where(still, 1.0, u[:2])
    ends = jnp.stack([(-size[:2] - p[:2]) / along, (size[:2] - p[:2]) / along])
    out = still & (jnp.abs(p[:2]) > size[:2])
    enter = jnp.maximum(jnp.where(still, -jnp.inf, ends.min(0)).max(), 0.0)
    leave = jnp.where(out.any(), -jnp.inf, jnp.where(still, jnp.inf, ends.max(0)).min())
    start = jnp.floor((p[:2] + enter * u[:2] + size[:2]) / step)
    start = jnp.clip(start, 0, grid - 1).astype(jnp.int32)
    way = jnp.where(u[:2] > 0, 1, -1)

    def meets(cell: Array) -> Array:
        """Where (2,) the ray meets a cell's triangles."""
        a, b, c = (_corners(heights, field, size, cell[::-1] + TRIANGLES[:, k]) for k in range(3))
        normal = cross(b - a, c - a)
        slope = dot(normal, u)
        x = dot(normal, a - p) / jnp.where(slope == 0, 1.0, slope)
        at = p + x[:, None] * u
        edges = [cross(k - j, at - j)[:, 2] for j, k in ((a, b), (b, c), (c, a))]
        within = jnp.stack(edges).min(0) >= -1e-12 * step.prod()
        return jnp.where(within & (slope != 0) & (x >= 0), x, jnp.inf)

    def go_on(at):
        cell, _, best, inside = at
        return inside & ~jnp.isfinite(best)

    def further(at):
        cell, _, _, _ = at
        x = meets(cell)
        border = jnp.where(still, jnp.inf, ((cell + (way > 0)) * step - size[:2] - p[:2]) / along)
        axis = jnp.argmin(border)
        then = cell + way * (jnp.arange(2) == axis)
        goes = (border[axis] < leave) & (then >= 0).all() & (then < grid).all()
        found = jnp.isfinite(x).any()
        then = jnp.where(found | ~goes, cell, then).astype(jnp.int32)
        return then, jnp.argmin(x).astype(jnp.int32), x.min(), goes

    begin = start, jnp.int32(0), jnp.asarray(jnp.inf, p.dtype), enter <= leave
    cell, odd, best, _ = lax.while_loop(go_on, further, begin)
    return cell[::-1], odd, jnp.isfinite(best)


def _sides(heights: Heights, field: int, size: Array, p: Array, u: Array) -> list[Crossings]:
    """Crossings with the four walls between elevation zero and the edges of the field."""
    rows, columns = heights.layout.shape[field].tolist()
    found = []
    for axis in (0, 1):
        count = (rows, columns)[axis]  # of elevations along a wall across this axis
        for sign in (-1.0, 1.0):
            along = jnp.abs(u[axis]) <= TINY
            x = (sign * size[axis] - p[axis]) / jnp.where(along, 1.0, u[axis])
            at = p + x * u
            place = (at[1 - axis] / size[1 - axis] + 1) * 0.5 * (count - 1)
            k = jnp.clip(jnp.floor(lax.stop_gradient(place)), 0, count - 2).astype(jnp.int32)
            edge = 0 if sign < 0 else ((columns, rows)[axis] - 1)
            index = heights.layout.first[field] + (
                (k + np.arange(2)) * columns + edge if axis == 0 else edge * columns + k + np.arange(2)
            )
            low, high = size[2] * heights.data[index]
            top = low + (place - k) * (high - low)
            there = ~along & (place >= 0) & (place <= count - 1) & (at[2] >= 0) & (at[2] <= top)
            normal = jnp.asarray(sign * np.eye(3)[axis], p.dtype)
            found.append(Crossings(x[None], there[None], normal[None]))
    return found
