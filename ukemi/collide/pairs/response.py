"""How the contacts of one pair follow its shapes, by AD of the pair's function."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.collide.frames import spin
from ukemi.collide.shapes import Hit, Shape, cut
from ukemi.maths import spatial


def pair_response(
    function, a: Shape, b: Shape, reach: Array, still: bool, sized: bool, go_with_both: bool = True
) -> Array:
    """Derivative (points, 7, columns) of a pair's Hit: without columns of the first shape's motion if it is `still`.

    AD moves the second shape alone if contacts go with both where these move as one: the first shape's motion is that
    of both less the second's.
    """

    def hit(move: Array) -> Hit:
        first = _moved(a, move[:6], cut(a, move, n)) if n > 6 else _grown(a, cut(a, move, n))
        return function(first, _moved(b, move[n - 6 : n], cut(b, move, n + w)), reach)

    n, w = 6 if still or go_with_both else 12, sum(x.size for x in a[2:])
    zero = jnp.zeros(n + 2 * w, a.pos.dtype)
    along = np.eye(n + 2 * w * sized, len(zero), dtype=a.pos.dtype)
    now, change = spatial.materialize(jax.vmap(lambda t: jax.jvp(hit, (zero,), (t,)), out_axes=(None, -1))(along))
    turned = jax.vmap(spin, (None, -1), -1)(now, change)
    own = jnp.concatenate([change.distance[:, None], change.point, turned], 1)
    if still or not go_with_both:
        return own
    both, between = _as_one(now, a.pos), spatial.skew(b.pos - a.pos)
    moved = spatial.materialize(own[..., :6])
    turns = jnp.concatenate([moved[..., :3], moved[..., 3:] - jnp.matmul(moved[..., :3], between)], -1)
    return jnp.concatenate([both - turns, own], -1)


def _as_one(now: Hit, origin: Array) -> Array:
    """How contacts (points, 7, 6) go with both shapes as these move as one, turning about the first one's origin."""
    points = len(now.point)

    def turned(axis: Array) -> Array:
        about = [None if x is None else spatial.cross(axis, x) for x in (now.point - origin, now.normal, now.along)]
        change = now._replace(distance=jnp.zeros_like(now.distance), point=about[0], normal=about[1], along=about[2])
        return jnp.concatenate([jnp.zeros((points, 1), origin.dtype), change.point, spin(now, change)], -1)

    moved = jnp.broadcast_to(np.eye(7, 3, -1, dtype=origin.dtype), (points, 7, 3))
    return jnp.concatenate([moved, jax.vmap(turned, out_axes=-1)(jnp.eye(3, dtype=origin.dtype))], -1)


def pair_pull(
    function, a: Shape, b: Shape, reach: Array, on: Array, width: int, still: bool, go_with_both: bool = True
) -> Array:
    """What `on` (points, 7) pulls on both shapes (2, width), or, if the first is `still`, on the second alone."""
    w = width - 6
    G = pair_response(function, a, b, reach, still, w > 0, go_with_both)
    pulled = (on[..., None] * G).sum((0, 1))
    moved, grown = jnp.split(jnp.pad(pulled, (6 * still, 0)), [12])
    return jnp.concatenate([moved.reshape(2, 6), grown.reshape(2, w)], 1)


def _moved(shape: Shape, move: Array, grow: list[Array]) -> Shape:
    """The shape after a small translation, rotation and change of parameters; only its derivative at zero is used."""
    turn = spatial.compose(spatial.skew(move[3:]), shape.mat)
    return _grown(shape._replace(pos=shape.pos + move[:3], mat=shape.mat + turn), grow)


def _grown(shape: Shape, grow: list[Array]) -> Shape:
    """The shape after a change of its parameters."""
    return type(shape)(*shape[:2], *map(jnp.add, shape[2:], grow))
