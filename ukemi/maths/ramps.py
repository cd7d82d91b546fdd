"""Functions in pieces, with the derivative of one piece also where two meet.

jnp.clip, jnp.maximum and jnp.minimum halve derivatives at a tie, which is no piece's, and compiled code may see the tie
in one half only. Ties are common: a control at its bound, an activation of zero, a time constant of two time steps.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

Bound = Array | np.ndarray | float


def clamp(x: Array, low: Bound, high: Bound, width: float = 0.0) -> Array:
    """x held between low and high, with the derivative of x also at the bounds, so that what stops there may leave.

    With a width the two corners are rounded within that distance of them, to two continuous derivatives.
    """
    if width:
        return width * (_rounded_ramp((x - low) / width) - _rounded_ramp((x - high) / width)) + low
    return jnp.where((low <= x) & (x <= high), x, jnp.clip(x, low, high))  # clip keeps what is NaN of the three


def at_least(x: Array, low: Bound) -> Array:
    """x, or `low` where that is more; the derivative of x where they are equal."""
    return jnp.where(low <= x, x, jnp.maximum(x, low))


def _rounded_ramp(t: Array) -> Array:
    """max(t, 0), rounded between -1 and 1; its derivative is a smooth step."""
    inside = clamp(t, -1.0, 1.0)
    return jnp.where(t > 1, t, (inside + 1) ** 3 * (3 - inside) / 16)


def smooth_step(t: Array) -> Array:
    """From 0 at t <= 0 to 1 at t >= 1, with two continuous derivatives."""
    t = clamp(t, 0.0, 1.0)
    return t**3 * (10 - 15 * t + 6 * t**2)


def smooth_sign(t: Array) -> Array:
    """From -1 at t <= -1 to 1 at t >= 1, with two continuous derivatives."""
    return 2 * smooth_step(0.5 * (t + 1)) - 1
