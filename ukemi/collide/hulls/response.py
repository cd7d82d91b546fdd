"""How contacts of polytopes follow their shapes: the derivative of the closed forms, at the corners that touch."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.frames import pulled, spin
from ukemi.collide.hulls.features import Around, Corners, Faces, Patch, around, corners_at
from ukemi.collide.hulls.features import patch as patch_of
from ukemi.collide.hulls.touching import Form, forms, settled, within
from ukemi.collide.shapes import Hit, Shape, sides
from ukemi.maths.gathers import put_rows, rows_at
from ukemi.maths.ranking import parts, places
from ukemi.model.hulls import Hulls
from ukemi.model.records import PairLayout
from ukemi.xla.batches import abreast, side_by_side, takes_turns

CHUNK = 4  # contacts looked at together; on a CPU those with planes alone, which are short programs, and many


class Touch(NamedTuple):
    """Contacts of a group (n, ...), with all that they are functions of."""

    row: Array  # (n,) which contacts of the step; beyond them where there are fewer
    a: Shape
    b: Shape
    codes: Array  # (n, FEATURES)
    patch: Patch  # (n, 2, ...)
    normal: Array  # (n, 3)
    geoms: Array  # (n, 2)
    kind: Array  # (n,) which pair of kinds of the family they are of


class Family(NamedTuple):
    """Groups of polytopes whose contacts of one form follow by one routine."""

    form: Form
    groups: list[int]


def families_of(layout: PairLayout, groups: list[int]) -> list[Family]:
    """Groups that are alike, of some."""
    return [Family(form, [groups[k] for k in form.places]) for form in forms([layout.groups[g].types for g in groups])]


def hit_of(form: Form, touch: Touch) -> Callable[[Shape, Shape, Array], Hit]:
    """A contact as a function of its shapes; of one without leading axes."""
    return lambda a, b, reach: settled(form, touch.kind, touch.codes[0], touch.patch, touch.normal, a, b)


def put(out: Array, row: Array, new: Array) -> Array:
    """`out` with rows (n, ...) written into the places `row` (n,), those beyond its end left out.

    On a CPU not by a scatter, which could be no part of a compact stage.
    """
    if not takes_turns():
        return out.at[row].set(new, mode="drop")
    for k in range(len(new)):
        at = jnp.minimum(row[k], len(out) - 1)
        out = put_rows(out, jnp.where(row[k] < len(out), new[k], rows_at(out, at))[None], at)
    return out


def each(layout: PairLayout, family: Family, shapes: Shape, contacts, own: Array, write, out):
    """write(touch, out) for a family's `own` contacts, a few at a time."""
    order, chunk = places(own, len(own)), CHUNK if family.form.is_flat else abreast(CHUNK)
    order = jnp.pad(order, (0, -len(order) % chunk))
    count, number = own.sum(), jnp.asarray(within(family.groups, len(layout.groups)))
    starts = np.array(layout.first[1:-1], np.int32)

    def some(i, out):
        at = i * chunk + np.arange(chunk)
        row = rows_at(order, at)
        known = contacts.pair, contacts.features, contacts.patch, contacts.frame
        pair, codes, patch, frame = jax.tree.map(lambda x: rows_at(x, row), known)
        geoms, kind = rows_at(layout.geoms, pair), rows_at(number, (pair[:, None] >= starts).sum(-1))
        a, b = sides(shapes, geoms)
        real = jnp.where(at < count, row, len(own))
        return write(Touch(real, a, b, codes, patch, frame[:, 0], geoms, kind), out)

    return lax.fori_loop(0, parts(count, chunk), some, out)


def bend(form: Form, hulls: Hulls, corners: Corners, along: Corners, touch: Touch) -> Array:
    """Changes (n, 7) of distance, point and frame (its rotation) as all corners move along."""
    numbers, faces = around(hulls, touch.codes)

    def one(touch: Touch, face: Faces, at: Around, move: Around) -> Array:
        now, change = jax.jvp(partial(_at_corners, form, touch, face), (at,), (move,))
        return jnp.concatenate([change.distance, change.point[0], spin(now, change)[0]])

    at, move = jax.jvp(lambda x: corners_at(x, numbers), (corners,), (along,))
    return side_by_side(one)(touch, faces, at, move)


def unbend(form: Form, hulls: Hulls, corners: Corners, touch: Touch, on: Array) -> Corners:
    """What `on` (n, 7), its rotation in the frame's own axes, pulls on all corners."""
    numbers, faces = around(hulls, touch.codes)

    def one(touch: Touch, face: Faces, at: Around, on: Array) -> Around:
        now, back = jax.vjp(partial(_at_corners, form, touch, face), at)
        return back(Hit(on[:1], on[None, 1:4], *pulled(now, on[None, 4:])))[0]

    at, back = jax.vjp(lambda x: corners_at(x, numbers), corners)
    return back(side_by_side(one)(touch, faces, at, on))[0]


def _at_corners(form: Form, touch: Touch, face: Faces, at: Around) -> Hit:
    patch = jax.vmap(patch_of)(at, face)
    return settled(form, touch.kind, touch.codes[0], patch, touch.normal, touch.a, touch.b)
