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

from ukemi import spatial
from ukemi.batching import one_by_one
from ukemi.collide.primitives import PAIRS, chunk_of, pair_function
from ukemi.collide.shapes import Hit, Shape
from ukemi.gradient import filled, is_zero
from ukemi.maps import mix
from ukemi.model import PairLayout


def follow(layout: PairLayout, reach: Array, shapes: Shape, along: Shape, contacts) -> Hit:
    """Derivative of the contacts as the shapes move along tangents, whose leaves may be SymbolicZero."""
    sized = not is_zero(along.size)
    turn = filled(along.mat, shapes.mat)
    spin = spatial.materialize(_axial(spatial.compose(turn, shapes.mat.mT)))
    tangent = jnp.concatenate([filled(along.pos, shapes.pos), spin], -1)
    geoms = jnp.asarray(layout.geoms)[contacts.pair]
    # products with 0/1 matrices, whose transposes are no scatters
    sides = (geoms[:, :, None] == np.arange(len(tangent))).astype(tangent.dtype)
    columns = [mix(sides[:, 0], tangent), mix(sides[:, 1], tangent)]
    if sized:
        columns += [mix(sides[:, 0], along.size), mix(sides[:, 1], along.size)]
    still = np.zeros(len(layout.groups), bool)
    G = one_by_one(partial(responses, layout, sized, still))(reach, shapes, contacts)
    moved = spatial.apply(G, jnp.concatenate(columns, -1))
    frame = spatial.cross(moved[:, None, 4:], contacts.frame)
    return Hit(moved[:, 0], moved[:, 1:4], frame)


def _axial(matrix: Array) -> Array:
    """Vector ω of the skew part of matrices [ω×] (..., 3, 3)."""
    a = 0.5 * (matrix - matrix.mT)
    return jnp.stack([a[..., 2, 1], a[..., 0, 2], a[..., 1, 0]], -1)


def responses(layout: PairLayout, sized: bool, still: np.ndarray, reach: Array, shapes: Shape, contacts) -> Array:
    """G (nc, 7, 12 or 18): change of distance, point and frame (its rotation) per motion of a contact's shapes.

    Columns: translation and rotation of the first shape, of the second, in world axes, the rotation about the
    shape's own origin; then the sizes of both if `sized`. still: groups whose first shapes do not move, whose columns
    are then left at zero.
    """
    n, width = len(contacts.pair), 18 if sized else 12
    G = jnp.zeros((n, 7, width), shapes.pos.dtype)
    for g in range(len(layout.groups)):
        own = contacts.active & (contacts.pair >= layout.first[g]) & (contacts.pair < layout.first[g + 1])
        columns = np.arange(6 if still[g] else 0, width)
        fill = partial(_fill, layout, g, columns, reach, shapes, contacts, own)
        G = fill(G) if len(layout.groups) == 1 else lax.cond(own.any(), fill, lambda G: G, G)
    return G


def _fill(layout: PairLayout, g: int, columns: np.ndarray, reach, shapes: Shape, contacts, own: Array, G: Array):
    """Write the responses of a group's `own` contacts, several pairs at a time."""
    group, chunk, points = layout.groups[g], chunk_of(layout.groups[g]), PAIRS[layout.groups[g].types].points
    numbers, blank = np.arange(len(group.geoms)), G.shape[-1] - len(columns)
    used = ((contacts.pair[:, None] == layout.first[g] + numbers) & own[:, None]).any(0)
    rank = spatial.materialize(jnp.where(used, jnp.cumsum(used), 0))

    def some(i, G):
        turn = i * chunk + np.arange(1, chunk + 1)
        mine = rank == turn[:, None]
        index = spatial.materialize((mine * numbers).sum(-1))
        geoms = jnp.asarray(group.geoms)[index]
        a, b = (jax.tree.map(lambda x, k=k: x[k], shapes) for k in (geoms[:, 0], geoms[:, 1]))
        respond = partial(_pair_response, pair_function(layout, group), columns)
        new = jax.vmap(respond)(a, b, reach[layout.first[g] + index])
        new = jnp.pad(new.reshape(chunk * points, 7, -1), ((0, 0), (0, 0), (blank, 0)))
        same = (contacts.pair[:, None] == layout.first[g] + index) & mine.any(-1) & contacts.active[:, None]
        row = jnp.argmax(same, -1) * points + contacts.which
        found, row, new = spatial.materialize((same.any(-1), row, new))
        return jnp.where(found[:, None, None], new[row], G)

    return lax.fori_loop(0, -(-used.sum() // chunk), some, G)


def _pair_response(function, columns: np.ndarray, a: Shape, b: Shape, reach: Array) -> Array:
    """Derivative (points, 7, columns) of a pair's Hit."""

    def hit(move: Array) -> Hit:
        return function(_moved(a, move[:6], move[12:15]), _moved(b, move[6:12], move[15:18]), reach)

    zero = jnp.zeros(18, a.pos.dtype)
    along = np.eye(18, dtype=a.pos.dtype)[columns]
    now, change = jax.vmap(lambda t: jax.jvp(hit, (zero,), (t,)), out_axes=(None, -1))(along)
    # the frame's rows turn by δe = ω × e: δE Eᵀ has the rotation in the frame's axes as its entries 12, 20, 01
    frame = now.frame
    spin = [(change.frame[:, i] * frame[:, j, :, None]).sum(1) for i, j in ((1, 2), (2, 0), (0, 1))]
    turned = jnp.stack(spatial.materialize(spin), 1)
    spin = (frame[..., None] * turned[:, :, None]).sum(1)
    return jnp.concatenate([change.distance[:, None], change.point, spin], 1)


def _moved(shape: Shape, move: Array, grow: Array) -> Shape:
    """The shape after a small translation, rotation and change of size; only its derivative at zero is used."""
    turn = spatial.compose(spatial.skew(move[3:]), shape.mat)
    return Shape(shape.pos + move[:3], shape.mat + turn, shape.size + grow)
