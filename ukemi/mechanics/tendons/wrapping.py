"""How strings go around spheres and cylinders, or through them as through rings.

A sphere is met in the plane of its centre and both ends, a cylinder in the plane across its axis, where the string is
the shortest way around a circle; along the cylinder it climbs evenly. As in MuJoCo, a side site outside the shape says
which way round the string goes, and one inside says that it goes through: the string then bends at one point of the
circle, where both ends leave at the same angle.

All strings are looked at at once: they are the last axis of every array, over which XLA's CPU loops vectorise, and the
coordinates are the axis before it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.maths.spatial import columns_across, columns_cross, materialize, safe_norm

NEWTON = 4  # steps towards a bend, which leave an error of 1e-6 rad at the most
POLISH = 2  # more steps, differentiated: the first brings first derivatives of the root, the second those up to third
UP = np.array([0.0, 0.0, 1.0])[:, None]


class Flat(NamedTuple):
    """Strings at circles about the origin: two straight legs, and what lies on the circle between them."""

    touches: Array  # (n,) bool
    reach: Array  # (2, n) lengths of the legs
    along: Array  # (2, 2, n) their directions, outwards, leg by leg
    arc: Array  # (n,) in between
    swing: Array  # (2, n) how far each leg turns as the point of a ring moves on along the circle, else zero
    give: Array  # (n,) by how much it moves on as legs pull it there, else zero


class Ways(NamedTuple):
    """Strings between two points each, in the frames of the shapes that they may touch."""

    touches: Array  # (n,) bool
    length: Array  # (n,)
    slope: Array  # (2, 3, n) of the length in both ends
    axes: Array  # (2, 3, n) of the plane that the string is in, seen along a cylinder's axis
    ends: Array  # (2, 2, n) in these axes
    flat: Flat
    rise: Array  # (n,) along a cylinder, per length in the plane


class Bending(NamedTuple):
    """Second derivatives of lengths in both ends: the sum over k of stiff rowᵀ row."""

    rows: Array  # (k, 2, 3, n)
    stiff: Array  # (k, n)


def ways(p: Array, radius: Array, side: Array, round_: np.ndarray, sided: np.ndarray) -> Ways:
    """Strings between points p (2, 3, n) at shapes; round_ (n,): spheres, else cylinders; side (3, n): side sites,
    which count where `sided` (n,).
    """
    axes = jnp.where(round_, _plane(p), np.eye(2, 3)[..., None])
    d = _inner(axes, p[:, None])
    inside = sided & (_dot(side, side) < radius**2)
    d, beside, axes = materialize((d, jnp.where(inside, 0.0, _inner(axes, side)), axes))
    around = _around(d, beside, radius, sided & ~inside)
    flat = jax.tree.map(lambda x, y: jnp.where(inside, x, y), _through(d, radius), around) if sided.any() else around
    total = flat.reach.sum(0) + flat.arc
    rise = jnp.where(round_, 0.0, p[1, 2] - p[0, 2]) / jnp.where(total == 0, 1.0, total)
    slant = jnp.sqrt(1 + rise**2)
    slope = (_in_space(axes, flat.along) + rise * UP * np.array([-1.0, 1.0])[:, None, None]) / slant
    apart = p[1] - p[0]
    size = _norm(apart)
    straight = apart / jnp.where(size == 0, 1.0, size)
    met = flat.touches & (jnp.abs(p).max(1) > 0).all(0)
    slope = jnp.where(met, slope, jnp.stack([-straight, straight]))
    return Ways(met, jnp.where(met, total * slant, size), slope, axes, d, flat, rise)


def bending(way: Ways, round_: np.ndarray) -> Bending:
    """How strings give way across themselves, where they touch their shapes and where they do not.

    A leg turns about the point at which it leaves a shape; that of a ring gives way, too. A cylinder's length is that
    of a right triangle, climb over way around. For ends that leave the plane of a sphere by angles α and β, the angle
    G at the centre changes in second order by (cos G (α² + β²) − 2 α β) / sin G, and their distances ρ by α² ρ.
    """
    flat, none = way.flat, jnp.zeros_like(way.slope[0])
    slant, turned = jnp.sqrt(1 + way.rise**2), _in_space(way.axes, _quarter(flat.along))
    climb = (way.rise * _in_space(way.axes, flat.along) + UP * np.array([1.0, -1.0])[:, None, None]) / slant
    d, square = way.ends, _dot(way.ends, way.ends)
    off = columns_cross(way.axes[0], way.axes[1]) / jnp.sqrt(jnp.where(square > 0, square, 1.0))[:, None]
    sine, cosine = _area(d[0], d[1]), _dot(d[0], d[1])
    torque = _area(d[1], flat.along[1]) / jnp.where(sine == 0, 1.0, sine)  # ∂length/∂G / sin G, less ρ₀ ρ₁
    both = torque * jnp.sqrt(square[0] * square[1])
    each = torque * cosine - both + _dot(d, flat.along)
    touching = jnp.stack(
        [
            *(jnp.stack([turned[0], none]), jnp.stack([none, turned[1]]), flat.swing[:, None] * turned),
            *(jnp.where(round_, jnp.stack([off[0], none]), climb), jnp.stack([none, off[1]])),
            jnp.stack([off[0], -off[1]]),
        ]
    )
    length = jnp.where(way.length > 0, way.length, 1.0)
    reach = jnp.where(way.touches, flat.reach, length)
    on_shape = jnp.where(round_, jnp.stack([*each, both]), jnp.stack([1 / length, *jnp.zeros_like(reach)]))
    across = columns_across(way.slope[1])
    free = jnp.stack([jnp.stack([-x, x]) for x in across])
    rows = jnp.concatenate([jnp.where(way.touches, touching[:2], free), touching[2:]])
    stiff = jnp.concatenate([-flat.give[None] / slant, on_shape])
    stiff = jnp.concatenate([1 / (reach * jnp.where(way.touches, slant, 1.0)), jnp.where(way.touches, stiff, 0.0)])
    return Bending(rows, jnp.where(way.length > 0, stiff, 0.0))


# ---- in the plane ----------------------------------------------------------------------------------------------------


def _dot(a: Array, b: Array) -> Array:
    return (a * b).sum(-2)


def _inner(axes: Array, x: Array) -> Array:
    """Coordinates (..., 2, n) of vectors (..., 3, n) or (..., 1, 3, n) along axes (2, 3, n)."""
    return (axes * x).sum(-2)


def _in_space(axes: Array, x: Array) -> Array:
    """Vectors (..., 3, n) with coordinates (..., 2, n) along axes (2, 3, n)."""
    return x[..., :1, :] * axes[0] + x[..., 1:, :] * axes[1]


def _area(a: Array, b: Array) -> Array:
    return a[..., 0, :] * b[..., 1, :] - a[..., 1, :] * b[..., 0, :]


def _quarter(x: Array) -> Array:
    """Vectors (..., 2, n) turned by a quarter."""
    return jnp.stack([-x[..., 1, :], x[..., 0, :]], -2)


def _norm(x: Array) -> Array:
    return safe_norm(x, -2)


def _unit(x: Array) -> Array:
    size = _norm(x)[..., None, :]
    return x / jnp.where(size == 0, 1.0, size)


def _plane(p: Array) -> Array:
    """Axes (2, 3, n) of the plane through the origin and both points; of one such plane where these are on a line."""
    along = _unit(p[0])
    normal = columns_cross(p[0], p[1])
    line = _dot(normal, normal) <= 1e-30
    other = columns_cross(along, 1.0 * (np.arange(3)[:, None] != jnp.argmax(jnp.abs(along), 0)))
    normal = _unit(jnp.where(line, other, normal))
    return jnp.stack([along, columns_cross(normal, along)])


def _around(d: Array, side: Array, radius: Array, sided: Array | np.ndarray) -> Flat:
    """Around a circle, not behind its centre as seen from `side` where that counts, else the shorter way."""
    square, apart = _dot(d, d), d[1] - d[0]
    outside = square > radius**2
    length = _dot(apart, apart)
    share = jnp.clip(-_dot(apart, d[0]) / jnp.where(length > 0, length, 1.0), 0.0, 1.0)
    nearest = d[0] + share * apart
    # seen from the side site a string is behind the centre if it crosses the ray from there straight away from the site
    beyond, turns = _area(side, d), _area(d[0], d[1])
    behind = sided & (beyond[0] * beyond[1] < 0) & (turns * (beyond[1] - beyond[0]) < 0)
    free = (_dot(nearest, nearest) > radius**2) & ~behind
    reach = jnp.sqrt(jnp.where(outside, square - radius**2, 1.0))
    square = jnp.where(outside, square, 1.0)[:, None]
    # the shorter way, clockwise or not, and the other one from behind
    sign = jnp.where((turns < 0) != behind, 1.0, -1.0)
    quarter = _quarter(d) * np.array([-1.0, 1.0])[:, None, None] * sign
    at = materialize(radius * (radius * d + reach[:, None] * quarter) / square)
    turn = -sign * jnp.arctan2(_area(at[0], at[1]), _dot(at[0], at[1]))
    turn = jnp.where(turn < -1e-9, turn + 2 * np.pi, turn)  # where it just touches, rounding is no full turn
    ok = outside.all(0) & ~free & (length > 0) & (radius > 0)
    along = (reach[:, None] * d - radius * quarter) / square
    return Flat(ok, reach, along, radius * turn, jnp.zeros_like(reach), jnp.zeros_like(turn))


def _through(d: Array, radius: Array) -> Flat:
    """Through a circle: where a straight way would miss it, the string bends at one point of it.

    With φ the angle between a leg and the radius of that point, those of legs sum up to that between the ends:
    2 φ = asin(A sin φ) + asin(B sin φ) + G, A = r/|d₀|, B = r/|d₁|. Angles are kept as complex numbers of length one.
    """
    square, apart = _dot(d, d), d[1] - d[0]
    outside = (square > radius**2).all(0) & (radius > 0)
    length = _dot(apart, apart)
    share = -_dot(apart, d[0]) / jnp.where(length > 0, length, 1.0)
    nearest = d[0] + share * apart
    met = (share > 0) & (share < 1) & (_dot(nearest, nearest) <= radius**2)
    size = jnp.sqrt(jnp.where(outside, square, 1.0))
    ratio, ray = jnp.where(outside, radius / size, 0.5), d / size[:, None]
    turn, cosine = _area(ray[0], ray[1]), _dot(ray[0], ray[1])
    pair, G = (ratio[0], ratio[1]), (cosine, jnp.abs(turn))
    # where both ends are equally far, tan φ = sin(G/2) / (cos(G/2) − A)
    fixed = lax.stop_gradient((pair, G))
    cos_half, sin_half = (_norm(lax.stop_gradient(x)) / 2 for x in (ray[0] + ray[1], ray[0] - ray[1]))
    start = _unit(jnp.stack([cos_half - sum(fixed[0]) / 2, sin_half]))
    phi = _within_quarter((start[0], start[1]))
    phi = lax.fori_loop(0, NEWTON, lambda _, phi: _towards_bend(phi, *fixed), phi)
    for _ in range(POLISH):
        phi = _towards_bend(phi, pair, G)
    sine = pair[0] * phi[1]
    back, aside = _product(phi, (jnp.sqrt(1 - sine**2), -sine))
    turned = jnp.stack(_product((back, jnp.where(turn < 0, -aside, aside)), (ray[0, 0], ray[0, 1])))
    beside = jnp.abs(turn) < 4.5e-8  # both ends on one ray, or on opposite ones
    bend = jnp.where(beside, _unit(d.sum(0)), turned)
    legs = d - radius * bend
    reach = _norm(legs)
    along = legs / jnp.where(reach == 0, 1.0, reach)[:, None]
    # as the point moves on along the circle: turns of the legs, and how that is resisted
    swing = radius * _dot(_quarter(along), _quarter(bend)) / jnp.where(reach == 0, 1.0, reach)
    resisted = radius * (swing * _dot(_quarter(along), _quarter(bend)) + _dot(along, bend)).sum(0)
    give = 1 / jnp.where(resisted == 0, 1.0, resisted)
    ok = outside & ~met & ~(beside & (cosine < 0))
    return Flat(ok, reach, along, jnp.zeros_like(turn), swing, give)


Complex = tuple[Array, Array]  # (n,) each


def _product(a: Complex, b: Complex) -> Complex:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _within_quarter(z: Complex) -> Complex:
    """Angles within a quarter turn, from zero on."""
    (cos, sin), behind, below = z, z[0] < 0, z[1] < 0
    return jnp.where(below, 1.0, jnp.where(behind, 0.0, cos)), jnp.where(below, 0.0, jnp.where(behind, 1.0, sin))


def _towards_bend(phi: Complex, ratio: tuple[Array, Array], G: Complex) -> Complex:
    """A step of Newton's method for the angle between leg and radius, as complex numbers."""
    (cos, sin), legs, slope = phi, G, -2.0
    for each in ratio:
        x = each * sin
        root = jnp.sqrt(1 - x**2)
        legs, slope = _product(legs, (root, x)), slope + each * cos / root
    off = legs[1] * (cos**2 - sin**2) - 2 * legs[0] * sin * cos
    step = off * (1 + off**2 / 6) / -slope  # the angle, of at most 0.6, from its sine
    half = step / 2 * (1 + step**2 / 12)  # the tangent of half of it
    turned = _product(phi, (1 - half**2, 2 * half))
    return _within_quarter((turned[0] / (1 + half**2), turned[1] / (1 + half**2)))
