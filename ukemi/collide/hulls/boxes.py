"""Boxes around convex shapes: pairs whose boxes are apart need no search."""

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.collide.kinds import KINDS
from ukemi.maths import spatial
from ukemi.model.hulls import Hulls


def boxes(kinds: tuple[str, ...], hulls: Hulls, size: Array) -> tuple[Array, Array]:
    """Centres and half sizes (ng, 3) of boxes around all geoms that are convex, along their own axes [m]."""
    pieces = [hulls.boxes[k] if k >= 0 else _unit(kind) for k, kind in zip(hulls.of, kinds, strict=True)]
    held = np.array(pieces).astype(size.dtype)
    center, half = jnp.zeros_like(size), jnp.zeros_like(size)
    for name in dict.fromkeys(kinds):
        side = KINDS[name].side
        if side is None:
            continue
        own = np.array([kind == name for kind in kinds])[:, None]
        scale, radius = jax.vmap(side.grown)(size)
        grown = jnp.abs(scale) * held[:, 3:] + radius[:, None] + (jax.vmap(side.core)(size) if side.core else 0.0)
        center, half = jnp.where(own, scale * held[:, :3], center), jnp.where(own, grown, half)
    return center, half


def _unit(kind: str) -> np.ndarray:
    """Centre and half size (6,) of a box around the corners of a kind, of size one."""
    convex = KINDS[kind].convex
    corners = np.array(convex.corners if convex else (), float).reshape(-1, 3)
    return np.concatenate([np.zeros(3), np.abs(corners).max(0, initial=0.0)])


def apart(center: Array, half: Array, pos: Array, mat: Array, pairs: np.ndarray | Array) -> Array:
    """How far (n,) the boxes of pairs of geoms (n, 2) are apart along one of their axes, at most [m].

    Never more than the distance of what they hold.
    """
    middle = pos + spatial.apply(mat, center)
    # Coordinates lead, and are summed one by one: then all is one loop over pairs. Rows stay (1, n), since XLA moves a
    # reshape past one operation in each round of all its simplifications.
    table = jnp.concatenate([mat.mT.reshape(-1, 9), middle, half], -1).T
    (axes_a, at_a, half_a), (axes_b, at_b, half_b) = (
        ([x[:3], x[3:6], x[6:9]], x[9:12], x[12:]) for x in (jnp.split(table[:, own], len(table)) for own in pairs.T)
    )
    way = [b - a for a, b in zip(at_a, at_b, strict=True)]
    turn = [[jnp.abs(_dot(x, y)) for y in axes_b] for x in axes_a]
    sides = (axes_a, half_a, turn, half_b), (axes_b, half_b, zip(*turn, strict=True), half_a)
    gaps = [
        jnp.abs(_dot(axis, way)) - own - _dot(seen, other)
        for axes, half, turned, other in sides
        for axis, own, seen in zip(axes, half, turned, strict=True)
    ]
    return reduce(jnp.maximum, gaps)[0]


def _dot(x, y) -> Array:
    return x[0] * y[0] + x[1] * y[1] + x[2] * y[2]
