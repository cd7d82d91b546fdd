"""How soft constraints are: MuJoCo's impedance and reference spring, continued to a distance as in DiffMJX."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ukemi.implicit.rules import FromDistance
from ukemi.maths.codes import between, pack
from ukemi.maths.ramps import at_least, clamp
from ukemi.model.records import Model

TINY = 1e-15  # MuJoCo's mjMINVAL
MIN_IMPEDANCE, MAX_IMPEDANCE = 1e-4, 0.9999


def impedance(solimp: Array, depth: Array) -> Array:
    """Impedance d(r) between d₀ and d_width, a spline of power p with the given midpoint."""
    low, high = (clamp(solimp[..., k], MIN_IMPEDANCE, MAX_IMPEDANCE) for k in (0, 1))
    width = jnp.maximum(solimp[..., 2], 0.0)
    middle = clamp(solimp[..., 3], MIN_IMPEDANCE, MAX_IMPEDANCE)
    power = at_least(solimp[..., 4], 1.0)
    flat = width <= TINY
    x = jnp.abs(depth) / jnp.where(flat, 1.0, width)
    inside = ~((x <= 0) | (x >= 1))  # NaN, too, which the rest would drop
    x = jnp.where(inside, x, 0.5)
    rising = x <= middle
    base = jnp.where(rising, x / middle, (1 - x) / (1 - middle))
    curve = jnp.where(rising, middle, 1 - middle) * base**power
    y = jnp.where(rising, curve, 1 - curve)
    y = jnp.where(inside, y, jnp.where(jnp.abs(depth) >= width, 1.0, 0.0))
    return jnp.where(flat, 0.5 * (low + high), low + y * (high - low))


def impedance_ahead(rule: FromDistance, solimp: Array, depth: Array) -> Array:
    """Impedance continued to positive distance: from d₀ at touching down to d_c at the rule's width (Fig. 6)."""
    own = clamp(solimp[..., 0], MIN_IMPEDANCE, MAX_IMPEDANCE)
    start = own if rule.d_0 is None else jnp.full_like(own, rule.d_0)
    x = clamp(depth / rule.width, 0.0, 1.0)
    rising = x <= rule.midpoint
    base = jnp.where(rising, x / rule.midpoint, (1 - x) / (1 - rule.midpoint))
    curve = jnp.where(rising, rule.midpoint, 1 - rule.midpoint) * base**rule.power
    fallen = jnp.where(rising, curve, 1 - curve)
    beyond = jnp.maximum(start + fallen * (rule.d_c - start), TINY)
    return jnp.where(depth > 0, beyond, impedance(solimp, depth))


def deflection_ahead(rule: FromDistance, depth: Array) -> Array:
    """Deflection r of the reference spring, softened to −softplus(−r) so that it acts from a distance."""
    return -rule.onset * jax.nn.softplus(-depth / rule.onset)


def stiffness_damping(model: Model, solref: Array, solimp: Array) -> tuple[Array, Array]:
    """Virtual stiffness k and damping b of the reference spring, from either format of solref."""
    time, ratio = solref[..., 0], solref[..., 1]
    mixed = ((time <= 0) & (ratio > 0)) | ((time > 0) & (ratio <= 0))
    time, ratio = jnp.where(mixed, 0.02, time), jnp.where(mixed, 1.0, ratio)
    standard = ~(time <= 0)  # NaN, too: it must not be taken for the direct format with its other sign
    if "refsafe" not in model.options.layout.disabled:
        time = jnp.where(standard, at_least(time, 2 * model.options.timestep), time)
    top = clamp(solimp[..., 1], MIN_IMPEDANCE, MAX_IMPEDANCE)
    k = jnp.where(standard, 1 / jnp.maximum(TINY, (top * time * ratio) ** 2), -time / top**2)
    b = jnp.where(standard, 2 / jnp.maximum(TINY, top * time), -ratio / top)
    return k, b


class Softness(NamedTuple):
    """Spring, damper and regulariser of rows as functions of their distance: a_ref = −damping · velocity − push."""

    push: Array  # (n,) [m/s²]
    damping: Array  # (n, dim) or (n,) [1/s]
    R: Array  # (n,)


def softness_code(model: Model, solref: Array, solimp: Array, depth: Array) -> Array:
    """Pieces of the impedance and of the reference spring."""
    low, high, middle = (between(solimp[..., k], MIN_IMPEDANCE, MAX_IMPEDANCE) for k in (0, 1, 3))
    width, power = solimp[..., 2], solimp[..., 4]
    at = jnp.abs(depth) / jnp.where(width <= TINY, 1.0, width)
    curve = between(at, clamp(solimp[..., 3], MIN_IMPEDANCE, MAX_IMPEDANCE), 1.0)
    time, ratio = jnp.sign(solref[..., 0]), jnp.sign(solref[..., 1])
    safe = "refsafe" not in model.options.layout.disabled
    slow = jnp.sign(solref[..., 0] - 2 * model.options.timestep) if safe else time
    mixed = (time > 0) != (ratio > 0)
    slow = jnp.where(mixed, jnp.sign(0.02 - 2 * model.options.timestep), slow)
    return pack(low, high, middle, curve, (width <= TINY) + 0, jnp.sign(depth), jnp.sign(power - 1), time, ratio, slow)
