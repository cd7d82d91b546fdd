"""Muscles, as MuJoCo has them: activation, active and passive force (DiffMJX, section 5.2)."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths.ramps import at_least, clamp
from ukemi.model.actuators import Actuators

LEAST = 1e-15  # in place of what MuJoCo divides by


class Muscle(NamedTuple):
    """Parameters, of any number of muscles: each (n,)."""

    low: Array  # range of lengths, relative to the optimal one
    high: Array
    force: Array  # peak at rest [N]; negative: as `scale` says
    scale: Array  # peak by what the muscle accelerates
    lmin: Array  # lengths between which there is active force, relative to the optimal one
    lmax: Array
    vmax: Array  # speed of shortening at which there is none, in optimal lengths per second
    fpmax: Array  # passive force at lmax, relative to the peak
    fvmax: Array  # active force when lengthening fast, relative to the peak
    shortest: Array  # length that is `low` [m]
    longest: Array  # and `high` [m]
    acc0: Array  # acceleration by a unit force at qpos0


def muscles_of(prm: Array, actuators: Actuators, index: np.ndarray) -> Muscle:
    """Parameters from rows (n, 9) of actuators `index`."""
    own = [*jnp.moveaxis(prm, -1, 0), *actuators.length_range[index].T, actuators.acc0[index]]
    return Muscle(*own)


def _scaled(prm: Muscle, length: Array) -> tuple[Array, Array, Array]:
    """Peak force, optimal length, and the length relative to that."""
    peak = jnp.where(prm.force < 0, prm.scale / jnp.maximum(LEAST, prm.acc0), prm.force)
    optimal = jnp.maximum(LEAST, (prm.longest - prm.shortest) / jnp.maximum(LEAST, prm.high - prm.low))
    return peak, optimal, prm.low + (length - prm.shortest) / optimal


def muscle_gain(prm: Muscle, length: Array, velocity: Array) -> tuple[Array, Array]:
    """Active force (n,) at full activation, and its slope in velocity."""
    peak, optimal, L = _scaled(prm, length)
    fastest = jnp.maximum(LEAST, optimal * prm.vmax)
    V, y = velocity / fastest, prm.fvmax - 1
    over = jnp.maximum(LEAST, y)
    rising = at_least(V, -1.0) + 1
    by_speed = jnp.where(V > y, prm.fvmax, jnp.where(V > 0, prm.fvmax - (y - V) ** 2 / over, rising**2))
    slope = jnp.where(V > y, 0.0, jnp.where(V > 0, 2 * (y - V) / over, 2 * rising))
    active = -peak * _by_length(L, prm.lmin, prm.lmax)
    return active * by_speed, active * slope / fastest


def _by_length(L: Array, lmin: Array, lmax: Array) -> Array:
    """A bump of four parabolas, 1 at the optimal length."""
    a, b = 0.5 * (lmin + 1), 0.5 * (1 + lmax)

    def part(distance: Array, width: Array) -> Array:
        return 0.5 * (distance / jnp.maximum(LEAST, width)) ** 2

    below = jnp.where(L <= a, part(L - lmin, a - lmin), 1 - part(1 - L, 1 - a))
    above = jnp.where(L <= b, 1 - part(L - 1, b - 1), part(lmax - L, lmax - b))
    return jnp.where((L < lmin) | (L > lmax), 0.0, jnp.where(L <= 1, below, above))


def muscle_bias(prm: Muscle, length: Array) -> Array:
    """Passive force (n,): a parabola beyond the optimal length, and a straight line from half way to lmax on."""
    peak, _, L = _scaled(prm, length)
    x = (L - 1) / jnp.maximum(LEAST, 0.5 * (1 + prm.lmax) - 1)
    return -peak * prm.fpmax * jnp.where(x <= 0, 0.0, jnp.where(x <= 1, 0.5 * x**2, x - 0.5))


def muscle_rate(ctrl: Array, act: Array, times: Array) -> Array:
    """Rate of activations (n,): up faster than down, as Millard et al. (2013) scale it; times: (n, 3)."""
    up, down, width = times.T
    stretch = 0.5 + 1.5 * clamp(act, 0.0, 1.0)
    up, down = up * stretch, down / stretch
    excess = clamp(ctrl, 0.0, 1.0) - act
    hard = width < LEAST
    x = clamp(excess / jnp.where(hard, 1.0, width) + 0.5, 0.0, 1.0)
    smooth = down + (up - down) * x**3 * (3 * x * (2 * x - 5) + 10)
    # what is asked as it is counts as more to come, which is all that a muscle at rest can be asked
    return excess / jnp.maximum(LEAST, jnp.where(hard, jnp.where(excess >= 0, up, down), smooth))
