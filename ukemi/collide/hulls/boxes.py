"""Boxes around polytopes: pairs whose boxes are apart need no search."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.collide.kinds import KINDS
from ukemi.maths import spatial
from ukemi.model.hulls import Hulls


def boxes(kinds: tuple[str, ...], hulls: Hulls, size: Array) -> tuple[Array, Array]:
    """Centres and half sizes (ng, 3) of boxes around all geoms that are polytopes, along their own axes [m]."""
    held = np.asarray(hulls.boxes)[hulls.of]
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


def apart(center: Array, half: Array, pos: Array, mat: Array, pairs: np.ndarray | Array) -> Array:
    """How far (n,) the boxes of pairs of geoms (n, 2) are apart along one of their axes, at most [m].

    Never more than the distance of what they hold.
    """
    a, b = pairs.T
    middle = pos + spatial.apply(mat, center)
    way = middle[b] - middle[a]
    turn = spatial.compose(mat.mT[a], mat[b])
    gap_a = jnp.abs(spatial.apply(mat.mT[a], way)) - half[a] - spatial.apply(jnp.abs(turn), half[b])
    gap_b = jnp.abs(spatial.apply(mat.mT[b], way)) - half[b] - spatial.apply(jnp.abs(turn.mT), half[a])
    return jnp.maximum(gap_a.max(-1), gap_b.max(-1))
