"""Springs and dampers whose stiffness or damping grows: k + p₁ x + p₂ x² of the stretch, or of the speed."""

import jax.numpy as jnp
from jax import Array


def secant(linear: Array, growth: Array, x: Array) -> Array:
    """What x (…,) is multiplied by: k + p₁ x + p₂ x²; growth: (…, 2)."""
    return linear + (growth[..., 0] + growth[..., 1] * x) * x


def slope(linear: Array, growth: Array, x: Array) -> Array:
    """∂(x secant)/∂x, for dampers with x the speed without its sign."""
    return linear + (2 * growth[..., 0] + 3 * growth[..., 1] * x) * x


def potential(linear: Array, growth: Array, x: Array) -> Array:
    """∫ x secant dx from 0."""
    return (linear / 2 + (growth[..., 0] / 3 + growth[..., 1] / 4 * x) * x) * x**2


def drag(linear: Array, growth: Array, v: Array) -> Array:
    """Force that a damper exerts against v: odd in it."""
    return v * secant(linear, growth, jnp.abs(v))
