"""How contacts follow their shapes: the derivative of the pair functions in the motions of two shapes.

Each contact depends on 12 tangents, the translation and rotation of both shapes, and on their 6 sizes. AD of the
small pair function along these is all that is ever differentiated of collision detection; which contacts there
are, and how they were found, is constant.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from ukemi import spatial
from ukemi.batching import one_by_one
from ukemi.collide.primitives import PAIRS, chunk_of
from ukemi.collide.shapes import Hit, Shape
from ukemi.gradient import filled
from ukemi.model import PairLayout


def follow(layout: PairLayout, reach: Array, shapes: Shape, along: Shape, contacts) -> Hit:
    """Derivative of the contacts as the shapes move along tangents, whose leaves may be SymbolicZero."""
    sized = not isinstance(along.size, SymbolicZero)
    turn = filled(along.mat, shapes.mat)
    spin = spatial.materialize(_axial(spatial.compose(turn, shapes.mat.mT)))
    tangent = jnp.concatenate([filled(along.pos, shapes.pos), spin], -1)
    geoms = jnp.asarray(layout.geoms)[contacts.pair]
    columns = [tangent[geoms[:, 0]], tangent[geoms[:, 1]]]
    if sized:
        columns += [along.size[geoms[:, 0]], along.size[geoms[:, 1]]]
    G = one_by_one(partial(responses, layout, sized))(reach, shapes, contacts)
    moved = spatial.apply(G, jnp.concatenate(columns, -1))
    return Hit(moved[:, 0], moved[:, 1:4], moved[:, 4:].reshape(-1, 3, 3))


def _axial(matrix: Array) -> Array:
    """Vector ω of the skew part of a matrix [ω×]."""
    a = 0.5 * (matrix - matrix.mT)
    return jnp.stack([a[..., 2, 1], a[..., 0, 2], a[..., 1, 0]], -1)


def responses(layout: PairLayout, sized: bool, reach: Array, shapes: Shape, contacts) -> Array:
    """G (nc, 13, 12 or 18): distance, point and frame of each active contact per motion of its two shapes.

    Columns: translation and rotation of the first shape, of the second, in world axes, the rotation about the
    shape's own origin; then the sizes of both if `sized`.
    """
    n, width = len(contacts.pair), 18 if sized else 12
    used = jnp.zeros(layout.first[-1], bool).at[contacts.pair].max(contacts.active)
    G = jnp.zeros((n, 13, width), shapes.pos.dtype)
    for g in range(len(layout.groups)):
        own = used[layout.first[g] : layout.first[g + 1]]
        count = own.sum()
        fill = partial(_fill, layout, g, sized, reach, shapes, contacts, own, count)
        G = lax.cond(count > 0, fill, lambda G: G, G)
    return jnp.where(contacts.active[:, None, None], G, 0.0)


def _fill(layout: PairLayout, g: int, sized: bool, reach, shapes: Shape, contacts, used: Array, count: Array, G: Array):
    """Write the responses of the contacts of one group, several pairs at a time."""
    group, chunk, points = layout.groups[g], chunk_of(layout.groups[g]), PAIRS[layout.groups[g].types].points
    _, order = lax.top_k(used.astype(jnp.float32), min(len(group.geoms), len(contacts.pair)))
    order = jnp.pad(order, (0, -len(order) % chunk))

    def some(i, G):
        index = lax.dynamic_slice_in_dim(order, i * chunk, chunk)
        geoms = jnp.asarray(group.geoms)[index]
        a, b = (jax.tree.map(lambda x, k=k: x[k], shapes) for k in (geoms[:, 0], geoms[:, 1]))
        new = jax.vmap(partial(_pair_response, PAIRS[group.types].function, sized))(
            a, b, reach[layout.first[g] + index]
        )
        real = i * chunk + np.arange(chunk) < count
        same = (contacts.pair[:, None] == layout.first[g] + index) & real
        row = jnp.argmax(same, -1) * points + contacts.which
        mine = spatial.materialize(new.reshape(-1, *new.shape[2:]))[row]
        return jnp.where(same.any(-1)[:, None, None], mine, G)

    return lax.fori_loop(0, -(-count // chunk), some, G)


def _pair_response(function, sized: bool, a: Shape, b: Shape, reach: Array) -> Array:
    """Derivative (points, 13, 12 or 18) of a pair's Hit."""

    def hit(move: Array) -> Array:
        found = function(_moved(a, move[:6], move[12:15]), _moved(b, move[6:12], move[15:18]), reach)
        return jnp.concatenate([found.distance[:, None], found.point, found.frame.reshape(-1, 9)], -1)

    along = np.eye(18 if sized else 12, 18, dtype=a.pos.dtype)
    zero = jnp.zeros(18, a.pos.dtype)
    return jnp.moveaxis(jax.vmap(lambda t: jax.jvp(hit, (zero,), (t,))[1])(along), 0, -1)


def _moved(shape: Shape, move: Array, grow: Array) -> Shape:
    """The shape after a small translation, rotation and change of size; only its derivative at zero is used."""
    turn = spatial.compose(spatial.skew(move[3:]), shape.mat)
    return Shape(shape.pos + move[:3], shape.mat + turn, shape.size + grow)
