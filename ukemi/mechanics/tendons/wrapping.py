"""How a string goes around a sphere or a cylinder, or through one as through a ring.

A sphere is met in the plane of its centre and both ends, a cylinder in the plane across its axis, where the string is
the shortest way around a circle; along the cylinder it climbs evenly. As in MuJoCo, a side site outside the shape says
which way round the string goes, and one inside says that it goes through: the string then bends at one point of the
circle, where both ends leave at the same angle.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.maths import spatial

NEWTON = 4  # steps towards a bend, which leave an error of 1e-6 rad at the most
POLISH = 2  # more steps, differentiated: the first brings first derivatives of the root, the second those up to third


class Wrap(NamedTuple):
    """What a string between two points does at a shape."""

    touches: Array  # () bool
    first: Array  # (3,) where it comes to rest on the shape, in its frame
    last: Array  # (3,) where it takes off
    length: Array  # () in between


class Flat(NamedTuple):
    """The same at a circle about the origin."""

    touches: Array
    first: Array  # (2,)
    last: Array  # (2,)
    length: Array


def wrap(p: Array, radius: Array, side: Array, round_: Array, sided: Array) -> Wrap:
    """The way of a string between two points p (2, 3) at a shape, all in its frame; round_: a sphere, else a cylinder.

    side: (3,) the side site, which counts where `sided`.
    """
    axes = jnp.where(round_, _plane(p), np.eye(2, 3))  # (2, 3)
    d, inside = spatial.apply(axes, p), sided & (side @ side < radius**2)
    around = _around(d, jnp.where(inside, 0.0, axes @ side), radius, sided & ~inside)
    flat = jax.tree.map(lambda x, y: jnp.where(inside, x, y), _through(d, radius), around)
    # along the axis of a cylinder
    legs = jnp.stack([_norm(d[0] - flat.first), flat.length, _norm(d[1] - flat.last)])
    total = legs.sum()
    rise = jnp.where(round_, 0.0, p[1, 2] - p[0, 2]) / jnp.where(total == 0, 1.0, total)
    start = jnp.where(round_, 0.0, p[0, 2])
    up = jnp.array([0.0, 0.0, 1.0], p.dtype)
    first = flat.first @ axes + (start + rise * legs[0]) * up
    last = flat.last @ axes + (start + rise * (legs[0] + legs[1])) * up
    ok = flat.touches & (jnp.abs(p).max(-1) > 0).all()
    return Wrap(ok, first, last, jnp.where(ok, flat.length * jnp.sqrt(1 + rise**2), 0.0))


def _norm(x: Array) -> Array:
    return spatial.safe_norm(x)


def _unit(x: Array) -> Array:
    size = spatial.safe_norm(x)[..., None]
    return x / jnp.where(size == 0, 1.0, size)


def _plane(p: Array) -> Array:
    """Axes (2, 3) of the plane through the origin and both points; of one such plane where these are on a line."""
    along = _unit(p[0])
    normal = spatial.cross(p[0], p[1])
    line = normal @ normal <= 1e-30
    other = spatial.cross(along, 1.0 * (np.arange(3) != jnp.argmax(jnp.abs(along))))
    normal = _unit(jnp.where(line, other, normal))
    return jnp.stack([along, spatial.cross(normal, along)])


def _around(d: Array, side: Array, radius: Array, sided: Array) -> Flat:
    """Around a circle, on the side of `side` where that counts, else the shorter way."""
    square, apart = (d * d).sum(-1), d[1] - d[0]
    outside = square > radius**2
    length = apart @ apart
    share = jnp.clip(-(apart @ d[0]) / jnp.where(length > 0, length, 1.0), 0.0, 1.0)
    nearest = d[0] + share * apart
    # a string beside the circle is free unless it passes behind it, seen from the side site
    beyond, turns = jnp.stack([_area(side, d[0]), _area(side, d[1])]), _area(d[0], d[1])
    behind = (beyond[0] * beyond[1] < 0) & (turns * (beyond[1] - beyond[0]) < 0)
    free = (nearest @ nearest > radius**2) & (~sided | ~behind)
    reach = jnp.sqrt(jnp.where(outside, square - radius**2, 1.0))  # of the straight parts
    square = jnp.where(outside, square, 1.0)

    def way(sign):
        """Clockwise for 1, the other way round for −1."""
        quarter = sign * jnp.stack([jnp.stack([d[0, 1], -d[0, 0]]), jnp.stack([-d[1, 1], d[1, 0]])])
        at = radius * (radius * d + reach[:, None] * quarter) / square[:, None]
        crosses = _cross(d[0], at[0], d[1], at[1])
        turn = -sign * jnp.arctan2(_area(*at), at[0] @ at[1])
        turn = jnp.where(turn < -1e-9, turn + 2 * np.pi, turn)  # where it just touches, rounding is no full turn
        gap = at[0] - at[1]
        good = jnp.where(sided, _unit(at.sum(0)) @ side, -(gap @ gap))
        return at, crosses, turn, jnp.where(crosses, -1e4, good)

    (one, crossed, turn, good), (two, crossed_two, turn_two, good_two) = way(1.0), way(-1.0)
    first = good > good_two
    at, turn = jnp.where(first, one, two), jnp.where(first, turn, turn_two)
    ok = outside.all() & ~free & ~jnp.where(first, crossed, crossed_two) & (length > 0) & (radius > 0)
    return Flat(ok, at[0], at[1], radius * turn)


def _area(a: Array, b: Array) -> Array:
    return a[0] * b[1] - a[1] * b[0]


def _cross(a: Array, b: Array, c: Array, d: Array) -> Array:
    """Whether the segments a b and c d meet."""
    u, w, between = b - a, d - c, a - c
    det = w[1] * u[0] - w[0] * u[1]
    safe = jnp.where(jnp.abs(det) < 1e-15, 1.0, det)
    s, t = (w[0] * between[1] - w[1] * between[0]) / safe, (u[0] * between[1] - u[1] * between[0]) / safe
    return (jnp.abs(det) >= 1e-15) & (s >= 0) & (s <= 1) & (t >= 0) & (t <= 1)


def _through(d: Array, radius: Array) -> Flat:
    """Through a circle: where a straight way would miss it, the string bends at one point of it.

    With φ the angle between a leg and the radius of that point, those of legs sum up to that between the ends:
    2 φ = asin(A sin φ) + asin(B sin φ) + G, A = r/|d₀|, B = r/|d₁|.
    """
    size, apart = _norm(d), d[1] - d[0]
    outside = (size > radius).all() & (radius > 0)
    square = apart @ apart
    share = -(apart @ d[0]) / jnp.where(square > 0, square, 1.0)
    nearest = d[0] + share * apart
    met = (share > 0) & (share < 1) & (nearest @ nearest <= radius**2)
    ratio = jnp.where(outside, radius / jnp.where(outside, size, 1.0), 0.5)
    turn, along = _area(*d), d[0] @ d[1]
    flat = turn == 0  # the derivative of the angle between ends on one ray has two signs
    G = jnp.arctan2(jnp.abs(jnp.where(flat, 0.0, turn)), jnp.where(flat & (along == 0), 1.0, along))

    def newton(phi, ratio, G):
        x = ratio * jnp.sin(phi)
        slope = (ratio * jnp.cos(phi) / jnp.sqrt(1 - x**2)).sum() - 2
        return jnp.clip(phi - (jnp.arcsin(x).sum() - 2 * phi + G) / slope, 0.0, np.pi / 2)

    # the root if both ends are equally far
    fixed, half = lax.stop_gradient((ratio, G)), lax.stop_gradient(G) / 2
    phi = jnp.clip(jnp.arctan2(jnp.sin(half), jnp.cos(half) - fixed[0].mean()), 0.0, np.pi / 2)
    for _ in range(NEWTON):
        phi = newton(phi, *fixed)
    for _ in range(POLISH):
        phi = newton(phi, ratio, G)
    back = jnp.where(turn < 0, -1.0, 1.0) * (phi - jnp.arcsin(ratio[0] * jnp.sin(phi)))
    cos, sin, ray = jnp.cos(back), jnp.sin(back), _unit(d[0])
    bend = radius * jnp.stack([cos * ray[0] - sin * ray[1], sin * ray[0] + cos * ray[1]])
    mean = radius * _unit(d.sum(0))
    at = jnp.where(jnp.cos(G) > 1 - 1e-15, mean, bend)  # both ends on one ray
    return Flat(outside & ~met & (jnp.cos(G) > -1 + 1e-15), at, at, jnp.zeros((), d.dtype))
