"""What pulls along tendons: springs, dampers, actuators, and the rows of their limits, friction and couplings."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.constraints.block import nearer_end
from ukemi.constraints.equalities import quartic, rows_of
from ukemi.constraints.tendons import TENDON_COUPLINGS, TENDON_DRY_FRICTION, TENDON_LIMITS
from ukemi.maths.gathers import mix
from ukemi.mechanics.plasticity import at_rest
from ukemi.mechanics.tendons.springs import is_elastic, tendon_pull
from ukemi.mechanics.transmissions import pulled_tendon
from ukemi.observe.scene import Scene


def tensions(scene: Scene) -> Array:
    """Forces (nt,) along tendons, positive where they lengthen."""
    model, (length, moment) = scene.model, scene.tendons
    count = np.arange(len(length))[:, None]
    total = jnp.zeros_like(length)
    if is_elastic(model):
        total += tendon_pull(at_rest(model, scene.state.act), length, moment @ scene.state.v)
    layout = model.actuators.layout
    if layout.count:
        pulled = model.actuators.gear[:, 0] * scene.actuation.force[layout.output]
        total += mix(count == pulled_tendon(layout), pulled)
    dry = scene.force_of(TENDON_DRY_FRICTION.name)
    if len(dry):
        total += mix(count == model.tendons.layout.dry, dry)
    limits = scene.force_of(TENDON_LIMITS.name)
    if len(limits):
        own, side = model.tendons.layout.limit_rows.T
        _, lower = nearer_end(length[own], model.tendons.range[own], side)
        total += mix(count == own, jnp.where(lower, limits, -limits))
    held = scene.force_of(TENDON_COUPLINGS.name)
    return total + _of_couplings(scene, held) if len(held) else total


def _of_couplings(scene: Scene, force: Array) -> Array:
    """Of forces (n,) of couplings, by which tendon 1 follows a polynomial of tendon 2."""
    equalities, length = scene.model.equalities, scene.tendons.length
    index = rows_of(scene.model, "tendon")
    first, second = equalities.layout.objects[index].T
    x, count = (length - scene.model.tendons.length0)[np.maximum(second, 0)], np.arange(len(length))[:, None]
    _, slope = quartic(equalities.data[index], x)
    return mix(count == first, force) - mix(count == second, slope * force)
