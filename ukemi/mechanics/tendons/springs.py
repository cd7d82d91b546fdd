"""Forces along tendons: springs with a dead band, dampers, and what their actuators may pull together."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.mechanics.transmissions import pulled_tendon
from ukemi.model.records import Model


def is_elastic(model: Model) -> bool:
    """Whether tendons have springs or dampers that act."""
    layout, disabled = model.tendons.layout, model.options.layout.disabled
    return (layout.springs and "spring" not in disabled) or (layout.damped and "damper" not in disabled)


def tendon_pull(model: Model, length: Array, velocity: Array) -> Array:
    """Forces (nt,) of springs and dampers along tendons, positive where they lengthen."""
    tendons, disabled = model.tendons, model.options.layout.disabled
    force = jnp.zeros_like(length)
    if tendons.layout.springs and "spring" not in disabled:
        force = force - tendons.stiffness * _stretch(model, length)
    if tendons.layout.damped and "damper" not in disabled:
        force = force - tendons.damping * velocity
    return force


def tendon_energy(model: Model, length: Array) -> Array:
    """Energy of the springs [J]."""
    return 0.5 * (model.tendons.stiffness * _stretch(model, length) ** 2).sum()


def _stretch(model: Model, length: Array) -> Array:
    """How far springs (nt,) are from the band in which they rest."""
    low, high = model.tendons.spring.T
    return jnp.where(length > high, length - high, jnp.where(length < low, length - low, 0.0))


def within(model: Model, force: Array, slope: Array) -> tuple[Array, Array]:
    """Forces of actuators (nu,), and their slopes in velocity, of which those on one tendon keep to its limit."""
    tendon = pulled_tendon(model.actuators.layout)
    on = tendon >= 0
    if not model.tendons.layout.force_limited[tendon[on]].any():
        return force, slope
    own = tendon == np.arange(len(model.tendons.layout.names))[:, None]
    total, (low, high) = own @ force, model.tendons.actuator_range.T
    over = model.tendons.layout.force_limited & ((total < low) | (total > high))
    share = jnp.where(over, jnp.clip(total, low, high) / jnp.where(over, total, 1.0), 1.0)
    held = on & over[tendon]
    return jnp.where(on, force * share[tendon], force), jnp.where(held, 0.0, slope)
