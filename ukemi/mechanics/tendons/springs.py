"""Forces along tendons: springs with a dead band, dampers, and what their actuators may pull together."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths.ramps import clamp
from ukemi.mechanics import polynomials
from ukemi.mechanics.reflected import are_tendons_damped, tendon_damping
from ukemi.mechanics.transmissions import pulled_tendon
from ukemi.model.records import Model


def is_elastic(model: Model) -> bool:
    """Whether tendons have springs or dampers that act."""
    layout, disabled = model.tendons.layout, model.options.layout.disabled
    return (layout.springs and "spring" not in disabled) or (are_tendons_damped(model) and "damper" not in disabled)


def tendon_pull(model: Model, length: Array, velocity: Array) -> Array:
    """Forces (nt,) of springs and dampers along tendons, positive where they lengthen."""
    tendons, disabled = model.tendons, model.options.layout.disabled
    force = jnp.zeros_like(length)
    if tendons.layout.springs and "spring" not in disabled:
        force = force - _elastic(model, _stretch(model, length))
    if are_tendons_damped(model) and "damper" not in disabled:
        force = force - polynomials.drag(*tendon_damping(model), velocity)
    return force


def tendon_energy(model: Model, length: Array) -> Array:
    """Energy of the springs [J]."""
    tendons = model.tendons
    return polynomials.potential(tendons.stiffness, tendons.stiffness_poly, _stretch(model, length)).sum()


def tendon_resistance(model: Model, velocity: Array) -> Array:
    """∂(damping force)/∂velocity (nt,), positive where it brakes."""
    return polynomials.slope(*tendon_damping(model), jnp.abs(velocity))


def _elastic(model: Model, stretch: Array) -> Array:
    return stretch * polynomials.secant(model.tendons.stiffness, model.tendons.stiffness_poly, stretch)


def _stretch(model: Model, length: Array) -> Array:
    """How far springs (nt,) are from the band in which they rest; one without width is elastic where it rests, too."""
    low, high = model.tendons.spring.T
    return jnp.where(length >= high, length - high, length - clamp(length, low, high))


def within(model: Model, force: Array, slope: Array) -> tuple[Array, Array]:
    """Forces of actuators (nu,), and their slopes in velocity, of which those on one tendon keep to its limit."""
    tendon = pulled_tendon(model.actuators.layout)
    on = tendon >= 0
    if not model.tendons.layout.force_limited[tendon[on]].any():
        return force, slope
    own = tendon == np.arange(len(model.tendons.layout.names))[:, None]
    total, (low, high) = own @ force, model.tendons.actuator_range.T
    over = model.tendons.layout.force_limited & ((total < low) | (total > high))
    share = jnp.where(over, clamp(total, low, high) / jnp.where(over, total, 1.0), 1.0)
    held = on & over[tendon]
    return jnp.where(on, force * share[tendon], force), jnp.where(held, 0.0, slope)
