"""Points inside shapes, and rays that meet their surfaces: closed forms in each shape's own axes."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.collide.geometry import dot

TINY = 1e-15  # below it a ray runs along a plane, as in MuJoCo


# ---- inside ------------------------------------------------------------------------------------------------------


def inside(kind: str, size: Array, p: Array) -> Array:
    """Whether points p (..., 3) are inside a shape of a size (3,), in its axes."""
    square, half = (p * p), jnp.abs(p)
    if kind == "sphere":
        return square.sum(-1) < size[0] ** 2
    if kind == "capsule":
        above = p[..., 2] - jnp.clip(p[..., 2], -size[1], size[1])
        return square[..., :2].sum(-1) + above**2 < size[0] ** 2
    if kind == "ellipsoid":
        return (square / size**2).sum(-1) < 1
    if kind == "cylinder":
        return (half[..., 2] < size[1]) & (square[..., :2].sum(-1) < size[0] ** 2)
    if kind == "box":
        return (half < size).all(-1)
    return p[..., 2] < 0 if kind == "plane" else jnp.zeros(p.shape[:-1], bool)


# ---- rays ----------------------------------------------------------------------------------------------------------


class Crossings(NamedTuple):
    """Where a ray p + x u may cross a surface."""

    x: Array  # (k,) along the ray
    there: Array  # (k,) bool: it does
    normal: Array  # (k, 3) outward, of any length


class Meeting(NamedTuple):
    """Where a ray first meets a shape."""

    x: Array  # () infinite where it does not
    normal: Array  # (3,) unit, outward, in the shape's axes; zero where it does not


def first_meeting(kind: str, size: Array, p: Array, u: Array) -> Meeting:
    """Where the ray from p (3,) along u (3,) first meets the surface of a shape of a size (3,), in its axes."""
    if kind not in SURFACES:
        return Meeting(jnp.full((), jnp.inf, p.dtype), jnp.zeros_like(p))
    return nearest_of(SURFACES[kind](size, p, u))


def nearest_of(found: Crossings) -> Meeting:
    """The first of a surface's crossings."""
    there = found.there & (found.x >= 0)
    k = jnp.argmin(jnp.where(there, found.x, jnp.inf))
    normal = found.normal[k]
    square = dot(normal, normal)
    met = there.any() & (square > 0)
    normal = normal / jnp.sqrt(jnp.where(met, square, 1.0))
    return Meeting(jnp.where(there.any(), found.x[k], jnp.inf), jnp.where(met, normal, 0.0))


def _roots(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """Both roots (2,) of a x² + 2 b x + c, and whether there are any."""
    room, straight = b * b - a * c, a < TINY
    real = ~((room < 0) | straight)
    # the square root has no slope at zero, where the ray is a tangent
    root = jnp.where(real & (room > 0), jnp.sqrt(jnp.where(real & (room > 0), room, 1.0)), 0.0)
    return (-b + root * np.array([-1.0, 1.0])) / jnp.where(straight, 1.0, a), jnp.broadcast_to(real, (2,))


def _ball(center: Array, radius: Array, p: Array, u: Array) -> Crossings:
    apart = p - center
    x, there = _roots(dot(u, u), dot(u, apart), dot(apart, apart) - radius**2)
    return Crossings(x, there, apart + x[:, None] * u)


def _sphere(size: Array, p: Array, u: Array) -> Crossings:
    return _ball(jnp.zeros_like(p), size[0], p, u)


def _ellipsoid(size: Array, p: Array, u: Array) -> Crossings:
    weight = 1 / size**2
    x, there = _roots(dot(weight * u, u), dot(weight * u, p), dot(weight * p, p) - 1)
    return Crossings(x, there, weight * (p + x[:, None] * u))


def _wall(size: Array, p: Array, u: Array) -> Crossings:
    """Of the round side of a capsule or cylinder."""
    flat = jnp.array([1.0, 1.0, 0.0])
    x, there = _roots(dot(flat * u, u), dot(flat * u, p), dot(flat * p, p) - size[0] ** 2)
    return Crossings(x, there & (jnp.abs(p[2] + x * u[2]) <= size[1]), flat * (p + x[:, None] * u))


def _capsule(size: Array, p: Array, u: Array) -> Crossings:
    parts, up = [_wall(size, p, u)], np.array([0.0, 0.0, 1.0])
    for side in (1.0, -1.0):
        cap = _ball(side * size[1] * up, size[0], p, u)
        parts.append(cap._replace(there=cap.there & (side * (p[2] + cap.x * u[2]) >= size[1])))
    return _together(parts)


def _faces(half: Array, axis: int, p: Array, u: Array) -> tuple[Array, Array, Array]:
    """Crossings (2,) with the planes at ± half along an axis, whether there are any, and the sides (2,)."""
    sides, along = jnp.array([-1.0, 1.0]), jnp.abs(u[axis]) <= TINY
    return (sides * half - p[axis]) / jnp.where(along, 1.0, u[axis]), jnp.broadcast_to(~along, (2,)), sides


def _cylinder(size: Array, p: Array, u: Array) -> Crossings:
    x, there, sides = _faces(size[1], 2, p, u)
    at = p + x[:, None] * u
    normal = sides[:, None] * np.array([0.0, 0.0, 1.0])
    caps = Crossings(x, there & ((at[:, :2] ** 2).sum(-1) <= size[0] ** 2), jnp.asarray(normal, p.dtype))
    return _together([_wall(size, p, u), caps])


def box_faces(size: Array, p: Array, u: Array) -> Crossings:
    """Of a box of half sizes (3,)."""
    parts = []
    for axis in range(3):
        x, there, sides = _faces(size[axis], axis, p, u)
        at, others = p + x[:, None] * u, np.delete(np.arange(3), axis)
        within = (jnp.abs(at[:, others]) <= size[others]).all(-1)
        parts.append(Crossings(x, there & within, jnp.asarray(sides[:, None] * np.eye(3)[axis], p.dtype)))
    return _together(parts)


def _plane(size: Array, p: Array, u: Array) -> Crossings:
    """From above alone, and within its picture, whose sizes of zero have no bound."""
    faces = u[2] <= -TINY
    x = -p[2] / jnp.where(faces, u[2], 1.0)
    at = p[:2] + x * u[:2]
    within = ((size[:2] <= 0) | (jnp.abs(at) <= size[:2])).all()
    return Crossings(x[None], (faces & within)[None], jnp.asarray(np.array([[0.0, 0.0, 1.0]]), p.dtype))


def _together(parts: list[Crossings]) -> Crossings:
    return Crossings(*(jnp.concatenate(part) for part in zip(*parts, strict=True)))


SURFACES: dict[str, Callable[[Array, Array, Array], Crossings]] = {
    "plane": _plane,
    "sphere": _sphere,
    "capsule": _capsule,
    "ellipsoid": _ellipsoid,
    "cylinder": _cylinder,
    "box": box_faces,
}
