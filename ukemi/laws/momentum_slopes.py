"""Dense derivatives of the balance of momentum over a time step, for every law of impulses."""

from functools import partial
from typing import cast

import jax.numpy as jnp
from jax import Array

from ukemi.laws.here import Here
from ukemi.laws.here_slopes import applied_slopes, columns_of
from ukemi.laws.momentum import damped, damping_varies
from ukemi.mechanics.dynamics import motion_slopes
from ukemi.mechanics.force_slopes import damping_slopes, has_constant_damping
from ukemi.mechanics.kinematics import Velocities


def missing_slopes(here: Here, e: Array, M: Array, velocity: Velocities) -> Array:
    """Slopes (nv, 2nv + na + nu) of M̂ (v⁺ − v) − h (τ − c) at v⁺ = v + h e, in q, v, activations and controls.

    M: M̂; velocity: of the start.
    """
    inertial = motion_slopes(here.model, here.kin, e, velocity)
    h = here.model.options.timestep
    return with_forces(here, e, h * inertial.q, h * inertial.v - M)


def with_forces(here: Here, e: Array, q: Array, v: Array) -> Array:
    """The same for inertial parts with slopes q and v (nv, nv), the latter with −M̂."""
    h, push = here.model.options.timestep, applied_slopes(here)
    force = jnp.concatenate([q - h * push.q, v - h * push.v, -h * push.act, -h * push.ctrl], -1)
    return force + h * h * damped_slopes(e, here) if damping_varies(here.model) else force


def damped_slopes(x: Array, here: Here) -> Array:
    """Slopes (nv, 2nv + na + nu) of D x."""
    model, kin, _, q, v, act, _, inputs, *_ = here
    if has_constant_damping(model):
        return -jnp.concatenate(damping_slopes(model, kin, q, v, act, cast(Array, inputs.ctrl), x), -1)
    return jnp.concatenate(columns_of(partial(damped, x), here), -1)
