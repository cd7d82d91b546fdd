"""When a solver whose residual falls unevenly has reached what the floating-point precision holds."""

import jax.numpy as jnp
from jax import Array

from ukemi.laws.soft.problem import Point

PATIENCE = 8  # iterations without improvement
NOISE = 4e3  # machine epsilons of the cancelling forces that rounding may leave in the gradient


def first_record(point: Point) -> tuple[Array, Array]:
    """Smallest gradient so far, and iterations since."""
    return point.size, jnp.zeros((), jnp.int32)


def record(before: tuple[Array, Array], point: Point) -> tuple[Array, Array]:
    """The record after one more iterate; an improvement counts from ten per cent on."""
    best, age = before
    better = point.size < 0.9 * best
    return jnp.minimum(best, point.size), jnp.where(better, 0, age + 1)


def stalled(record: tuple[Array, Array], point: Point, tolerance: float) -> Array:
    """Whether the gradient is down to rounding noise and no longer falls."""
    noise = NOISE * jnp.finfo(point.size.dtype).eps / tolerance * point.scale
    return (record[1] >= PATIENCE) & (point.size < noise)
