"""How contacts of polytopes follow their shapes: the derivative of the closed forms, at the corners that touch."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.hulls.features import Around, Corners, Patch, around, corners_at
from ukemi.collide.hulls.features import patch as patch_of
from ukemi.collide.hulls.touching import settled
from ukemi.collide.shapes import Hit, Shape, sides
from ukemi.model.hulls import Hulls
from ukemi.model.records import PairLayout

CHUNK = 4  # contacts looked at together


class Touch(NamedTuple):
    """Contacts of a group (n, ...), with all that they are functions of."""

    row: Array  # (n,) which contacts of the step; beyond them where there are fewer
    a: Shape
    b: Shape
    codes: Array  # (n, FEATURES)
    patch: Patch  # (n, 2, ...)
    normal: Array  # (n, 3)
    geoms: Array  # (n, 2)


def hit_of(kinds: tuple[str, str], touch: Touch) -> Callable[[Shape, Shape, Array], Hit]:
    """A contact as a function of its shapes; of one without leading axes."""
    return lambda a, b, reach: settled(kinds, touch.codes[0], touch.patch, touch.normal, a, b)


def each(layout: PairLayout, g: int, shapes: Shape, contacts, own: Array, write, out):
    """write(touch, out) for a group's `own` contacts, a few at a time."""
    order = jnp.argsort(~own, stable=True)
    order = jnp.pad(order, (0, -len(order) % CHUNK))
    count = own.sum()

    def some(i, out):
        at = i * CHUNK + np.arange(CHUNK)
        row = lax.dynamic_slice_in_dim(order, i * CHUNK, CHUNK)
        geoms = jnp.asarray(layout.geoms)[contacts.pair[row]]
        a, b = sides(shapes, geoms)
        patch = jax.tree.map(lambda x: x[row], contacts.patch)
        real = jnp.where(at < count, row, len(own))
        return write(Touch(real, a, b, contacts.features[row], patch, contacts.frame[row, 0], geoms), out)

    return lax.fori_loop(0, -(-count // CHUNK), some, out)


def bend(kinds: tuple[str, str], hulls: Hulls, corners: Corners, along: Corners, touch: Touch) -> Array:
    """Changes (n, 7) of distance, point and frame (its rotation) as all corners move along."""
    numbers, real = around(hulls, touch.codes)

    def one(touch: Touch, real: Array, at: Around, move: Around) -> Array:
        now, change = jax.jvp(partial(_at_corners, kinds, touch, real), (at,), (move,))
        return jnp.concatenate([change.distance, change.point[0], spin(now.frame[0], change.frame[0])])

    at, move = jax.jvp(lambda x: corners_at(x, numbers), (corners,), (along,))
    return jax.vmap(one)(touch, real, at, move)


def unbend(kinds: tuple[str, str], hulls: Hulls, corners: Corners, touch: Touch, on: Array) -> Corners:
    """What `on` (n, 7), its rotation in the frame's own axes, pulls on all corners."""
    numbers, real = around(hulls, touch.codes)

    def one(touch: Touch, real: Array, at: Around, on: Array) -> Around:
        now, back = jax.vjp(partial(_at_corners, kinds, touch, real), at)
        return back(Hit(on[:1], on[None, 1:4], pulled_frame(now.frame, on[None, 4:])))[0]

    at, back = jax.vjp(lambda x: corners_at(x, numbers), corners)
    return back(jax.vmap(one)(touch, real, at, on))[0]


def _at_corners(kinds: tuple[str, str], touch: Touch, real: Array, at: Around) -> Hit:
    patch = jax.vmap(patch_of)(at, real)
    return settled(kinds, touch.codes[0], patch, touch.normal, touch.a, touch.b)


def spin(frame: Array, change: Array) -> Array:
    """The rotation (..., 3) in world axes by which rows of frames (..., 3, 3) change.

    They turn by δe = ω × e: δE Eᵀ has the rotation in the frame's axes as its entries 12, 20, 01.
    """
    turned = [(change[..., i, :] * frame[..., j, :]).sum(-1) for i, j in ((1, 2), (2, 0), (0, 1))]
    x, y, z = (turned[k][..., None] * frame[..., k, :] for k in range(3))
    return x + y + z


def pulled_frame(frame: Array, turn: Array) -> Array:
    """What a pull (..., 3) on the rotation, in the frame's own axes, is on frames (..., 3, 3): the transpose."""
    return jnp.stack([turn[..., k, None] * frame[..., j, :] for k, j in ((2, 1), (0, 2), (1, 0))], -2)
