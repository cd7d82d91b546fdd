"""Corners of meshes that are furthest along a direction, of all or of those on this side of a plane.

A search along a step asks for many of them. Of whole meshes only the corners are looked at that may be furthest along
directions of a cell (`Hulls.cells`), of cut ones all; corners are read where they lie, since to copy those of the
largest mesh for each of some hundred pairs would take a hundred times as long as the search.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.collide.geometry import dot
from ukemi.collide.hulls.support import cell, entries, highest
from ukemi.collide.near import are_meshes
from ukemi.maths.gathers import rows_at
from ukemi.model.hulls import Hulls
from ukemi.model.records import Model


class Meshes(NamedTuple):
    """Corners of all meshes of a model."""

    hulls: Hulls
    corners: Array  # (nvert, 3) in units of their scale


class Mesh(NamedTuple):
    """One of them, with corners left out; leading axes broadcast."""

    hull: Array  # (...) which of `Hulls`; −1: the shape is no mesh
    scale: Array  # (..., 3) of its corners
    bound: Array  # (...) distance of its furthest corner from the origin [m]
    cut: Array  # (..., 3) direction, along its axes in units of corners
    limit: Array  # (...) corners this far along it, and farther, are left out [m]

    @property
    def there(self) -> Array:
        """Whether it is one."""
        return self.hull >= 0


def meshes_of(model: Model) -> tuple[Meshes | None, Mesh | None]:
    """Corners of a model's meshes, and its geoms (ng, ...) as whole ones; none if it has no meshes."""
    own, hulls, size = are_meshes(model), model.pairs.layout.hulls, model.geoms.size
    if not own.any():
        return None, None
    bound = jnp.asarray(hulls.bound[hulls.of], size.dtype) * jnp.abs(size).max(-1)
    hull, endless = jnp.asarray(np.where(own, hulls.of, -1), jnp.int32), jnp.full_like(bound, jnp.inf)
    mesh = Mesh(hull, size, jnp.where(own, bound, 0.0), jnp.zeros_like(size), endless)
    return Meshes(hulls, model.geoms.vertices), mesh


def furthest(meshes: Meshes, mesh: Mesh, n: Array, but: Array | int = -1) -> tuple[Array, Array, Array]:
    """The corner () of a mesh that is furthest along n (3,), along its axes, where (3,) it is, and how far () that is:
    −∞ of what is no mesh, or has no corners left.

    but: a corner that does not count; then all others do, not those of a cell alone.
    """
    hulls, corners, towards = meshes.hulls, meshes.corners, mesh.scale * n
    of = jnp.maximum(mesh.hull, 0)
    all_of_them = (mesh.limit < jnp.inf) | (jnp.asarray(but) >= 0)
    first, side = rows_at(hulls.grid, of)
    near, whole = entries(hulls.cells, first + cell(towards, side)), entries(hulls.first.astype(np.int32), of)
    start, end = (jnp.where(all_of_them, x, y) for x, y in zip(whole, near, strict=True))

    def look(entry):
        listed = rows_at(hulls.near, jnp.minimum(entry, len(hulls.near) - 1))
        k = jnp.where(all_of_them, entry, listed) - len(hulls.fixed)
        some = rows_at(corners, k)
        gone = (dot(some, mesh.cut) >= mesh.limit) | (k == but)  # NaN is not
        return k, jnp.where(gone, -jnp.inf, dot(some, towards))

    best, height = highest(jnp.where(mesh.there, start, end), end, look, n.dtype)
    return best, mesh.scale * rows_at(corners, best), height
