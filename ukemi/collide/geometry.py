"""Small vector algebra for the pair functions, safe for automatic differentiation.

Products are written as multiply-and-sum: XLA fuses those with their neighbours, while it would
call a library for each tiny matrix product.
"""

import jax.numpy as jnp
from jax import Array, lax

from ukemi.collide.shapes import EMPTY, Hit


def smallest(x: Array) -> float:
    """The length below which a vector has no direction: MuJoCo's 1e-15, or 5e-7 in float32."""
    return 1e-15 if x.dtype == jnp.float64 else 5e-7


def dot(a: Array, b: Array) -> Array:
    """Inner product over the last axis: (..., n), (..., n) -> (...)."""
    return jnp.sum(a * b, axis=-1)


def cross(a: Array, b: Array) -> Array:
    """Cross product over the last axis: (..., 3), (..., 3) -> (..., 3)."""
    ax, ay, az = a[..., 0], a[..., 1], a[..., 2]
    bx, by, bz = b[..., 0], b[..., 1], b[..., 2]
    return jnp.stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx], axis=-1)


def rotate(mat: Array, v: Array) -> Array:
    """mat v for (3, 3) and (..., 3): from the shape's axes to the world's."""
    return jnp.sum(mat * v[..., None, :], axis=-1)


def unrotate(mat: Array, v: Array) -> Array:
    """matᵀ v for (3, 3) and (..., 3): from the world's axes to the shape's."""
    return jnp.sum(mat * v[..., :, None], axis=-2)


def unit(v: Array, fallback: Array) -> Array:
    """v / |v| over the last axis, or `fallback` (unit length) where v has no direction.

    The length itself is best taken as dot(unit(v, fallback), v): it is exact, and where v is
    zero its derivative is along `fallback`, so that a force still knows where to push.
    """
    squared = dot(v, v)[..., None]
    found = squared > smallest(v) ** 2
    length = jnp.sqrt(jnp.where(found, squared, 1.0))
    return jnp.where(found, v / length, fallback)


def steady_unit(v: Array, axis: Array, fallback: Array) -> Array:
    """Direction of v (3,), perpendicular to the unit `axis`, with a bounded derivative.

    The derivative of a direction grows as 1/|v|. Where v is little more than rounding (a
    cylinder that stands on a plane) it has no meaning, so there the direction is held still
    and only kept perpendicular to the axis. Values are those of `unit`, as MuJoCo has them, but
    for what rounding leaves of v along the axis: as a share of a short v it would tilt the rim.
    """
    v = v - axis * dot(axis, v)
    direction, squared = unit(v, fallback), dot(v, v)
    held = lax.stop_gradient(direction)
    overlap = dot(axis, held)
    held = held - axis * (overlap - lax.stop_gradient(overlap))
    least = 1e-7 if v.dtype == jnp.float64 else 1e-3
    still = (squared < least**2) & (squared > smallest(v) ** 2)
    return jnp.where(still, held, direction)


def contact_frame(normal: Array) -> Array:
    """Completes unit normals (..., 3) to frames (..., 3, 3) with rows normal, tangent, tangent.

    The first tangent is the world's y axis made perpendicular to the normal, or its z axis where
    the normal is within 60 degrees of y.
    """
    y_axis = jnp.array([0.0, 1.0, 0.0], normal.dtype)
    z_axis = jnp.array([0.0, 0.0, 1.0], normal.dtype)
    start = jnp.where(jnp.abs(normal[..., 1:2]) < 0.5, y_axis, z_axis)
    return _frame(normal, start - normal * dot(normal, start)[..., None])


def _frame(normal: Array, tangent: Array) -> Array:
    """Frame from a unit normal and a perpendicular vector that is not zero."""
    tangent = tangent / jnp.sqrt(dot(tangent, tangent))[..., None]
    return jnp.stack([normal, tangent, cross(normal, tangent)], axis=-2)


def contact_frame_along(normal: Array, axis: Array) -> Array:
    """Completes a unit normal (3,) to a frame whose first tangent follows the unit `axis` (3,).

    Where the axis is the normal the tangent follows the world's x axis, as in MuJoCo; where
    that is the normal too, the frame is completed as usual (MuJoCo's would be singular there).
    """
    flat = axis - normal * dot(normal, axis)
    x_axis = jnp.array([1.0, 0.0, 0.0], normal.dtype)
    flat_x = x_axis - normal * normal[..., :1]
    other = jnp.where(dot(flat_x, flat_x) > 1e-6, unit(flat_x, x_axis), contact_frame(normal)[1])
    tangent = steady_unit(flat, normal, other)
    return jnp.stack([normal, tangent, cross(normal, tangent)], axis=-2)


def first_slots(wanted: Array, spare: Array, k: int) -> Array:
    """Selects k of n candidates: those `wanted` in their order, then those `spare` in theirs.

    Args:
      wanted: (n,) bool.
      spare: (n,) bool, disjoint from `wanted`.
      k: number of slots, static.

    Returns:
      (k, n) bool, row j true at the candidate of slot j, or nowhere where none is left.
    """
    n = wanted.shape[0]
    upto = jnp.tri(n, dtype=bool)
    count = jnp.sum(upto & wanted, axis=-1)
    count_spare = jnp.sum(upto & spare, axis=-1) + count[-1]
    rank = jnp.where(wanted, count, jnp.where(spare, count_spare, 0))
    return rank == jnp.arange(1, k + 1)[:, None]


def take(selected: Array, values: Array, missing: float = 0.0) -> Array:
    """Values (n, ...) of the selected candidates: (k, n) bool -> (k, ...), `missing` if none."""
    extra = values.ndim - 1
    chosen = selected.reshape(selected.shape + (1,) * extra)
    found = jnp.any(chosen, axis=1)
    return jnp.where(found, jnp.sum(jnp.where(chosen, values, 0.0), axis=1), missing)


def hit_with_shared_normal(distance: Array, point: Array, normal: Array) -> Hit:
    """A Hit of k contacts (k,), (k, 3) that have one unit normal (3,) in common."""
    return Hit(distance, point, normal[None])


def hit_selected(selected: Array, distance: Array, point: Array, normal: Array) -> Hit:
    """The k selected ones of n candidate contacts; normals of empty slots are still of unit length."""
    x_axis = jnp.array([1.0, 0.0, 0.0], normal.dtype)
    found = jnp.any(selected, axis=1)
    normals = jnp.where(found[:, None], take(selected, normal), x_axis)
    return Hit(take(selected, distance, EMPTY), take(selected, point), normals)
