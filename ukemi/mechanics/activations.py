"""Activations of actuators: what controls say, how activations move, and where they are a time step later."""

from typing import NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial
from ukemi.maths.gathers import pick, taken
from ukemi.maths.ramps import clamp
from ukemi.mechanics.delays import arriving, present
from ukemi.mechanics.muscles import muscle_rate
from ukemi.mechanics.orientations import orienting, shortened
from ukemi.mechanics.servos import Servo, nearest_turn, next_states, put, servo_of, servo_rates
from ukemi.mechanics.transmissions import transmission
from ukemi.model.records import Model


class Activity(NamedTuple):
    """How activations move, and what of the motion they look at: None where they do not."""

    rate: Array  # (na,)
    length: Array | None  # (nout,)
    velocity: Array | None  # (nout,)


def clamped(model: Model, ctrl: Array) -> Array:
    """Controls (nu,) within their ranges, where the file has ranges."""
    ctrl = _number(ctrl)
    limited = model.actuators.layout.ctrl_limited
    if not limited.any() or "clampctrl" in model.options.layout.disabled:
        return ctrl
    low, high = model.actuators.ctrl_range.T
    return jnp.where(limited, clamp(ctrl, low, high), ctrl)


def _number(x: Array) -> Array:
    """NaN in place of infinities, which limits of controls, activations or forces would make ordinary numbers."""
    return jnp.where(jnp.isinf(x), jnp.nan, x)


def period(model: Model) -> Array:
    """How far lengths (n,) are the same again, of setpoints that live on a circle; else 0."""
    gear, layout = model.actuators.gear, model.actuators.layout
    if not layout.wraps.any():
        return jnp.zeros_like(gear[:, 0])
    site = np.array([kind == "site" for kind in layout.transmission])[:, None]
    turn = 2 * np.pi * spatial.safe_norm(jnp.where(site, gear[:, 3:], gear[:, :3]))
    return jnp.where(layout.wraps, turn, 0.0)


def unwind(model: Model, setpoint: Array, length: Array) -> Array:
    """The representative of a setpoint (n,) nearest to the length, for servos of a rotation."""
    if not model.actuators.layout.wraps.any():
        return setpoint
    return nearest_turn(setpoint, length, period(model))


def servo_at(model: Model, length: Array, velocity: Array, act: Array, ctrl: Array) -> Servo:
    """Where servos are."""
    return servo_of(model, length, velocity, act, ctrl, period(model))


def follows_motion(model: Model) -> bool:
    """Whether activations depend on lengths and velocities of actuators."""
    layout = model.actuators.layout
    return bool((model.servos.layout.states >= 0).any() or layout.wraps[layout.owner].any())


def follow_alone(model: Model) -> bool:
    """Whether each activation depends on itself and on the control that feeds it, and on nothing else."""
    layout = model.actuators.layout
    return not (follows_motion(model) or len(orienting(layout)) or model.delays.layout.size or model.nplastic)


def activation_motion(model: Model, kin, q, v, act: Array, ctrl: Array) -> Activity:
    """How the activations move, of those and the past."""
    ctrl, act = arriving(model, act, ctrl), present(model, act)
    if not len(act) or "actuation" in model.options.layout.disabled:
        return Activity(jnp.zeros_like(act), None, None)
    length = velocity = None
    if follows_motion(model):
        length, moment = transmission(model, kin, q)
        velocity = moment @ v
    return Activity(activation_rate(model, act, clamped(model, ctrl), length, velocity), length, velocity)


def activation_rate(model: Model, act: Array, ctrl: Array, length: Array | None, velocity: Array | None) -> Array:
    """Rate of the activations (na,): integrator, first-order filter of the control, a muscle's, those of servos; none
    if off.
    """
    layout = model.actuators.layout
    owner = layout.owner
    if not len(owner):
        return jnp.zeros_like(act)
    kinds = np.array([layout.dynamics[k] for k in owner])
    filters, muscles = np.isin(kinds, ("filter", "filterexact")), kinds == "muscle"
    tau = jnp.where(filters, model.actuators.time_constant[owner], 1.0)
    # a filter takes the short way round
    given = target = taken(ctrl, layout.feed)
    if layout.wraps.any():
        target = pick(unwind(model, taken(ctrl, layout.ctrl), taken(act, layout.act)), owner)
    rate = jnp.where(filters, (target - act) / tau, given)
    if muscles.any():
        rate = jnp.where(muscles, muscle_rate(given, act, model.actuators.muscle_time[owner]), rate)
    if (model.servos.layout.states >= 0).any():
        at = servo_at(model, cast(Array, length), cast(Array, velocity), act, ctrl)
        rate = put(model.servos.layout, rate, servo_rates(model, at))
    off = layout.off[owner]
    return jnp.where(off, 0.0, rate) if off.any() else rate


def next_activation(model: Model, act: Array, rate: Array, length: Array | None, velocity: Array | None) -> Array:
    """Activations (na,) one time step later, within their ranges; exact for filterexact, currents and bristles."""
    layout, h = model.actuators.layout, model.options.timestep
    owner = layout.owner
    if not len(owner) or "actuation" in model.options.layout.disabled:
        return act
    exact = np.array([layout.dynamics[k] == "filterexact" for k in owner])
    tau = jnp.where(exact, model.actuators.time_constant[owner], 1.0)
    after = act + rate * jnp.where(exact, -tau * jnp.expm1(-h / tau), h)
    if (model.servos.layout.states >= 0).any():
        at = servo_at(model, cast(Array, length), cast(Array, velocity), act, jnp.zeros(model.nu, act.dtype))
        after = put(model.servos.layout, after, next_states(model, at, taken(rate, model.servos.layout.states)))
    return clamp_activation(model, after)


def hold_activation(model: Model, act: Array, rate: Array) -> Array:
    """The rate (na,) of activations in continuous time: zero where it would leave their ranges."""
    owner = model.actuators.layout.owner
    limited = model.actuators.layout.act_limited[owner]
    if not limited.any():
        return rate
    low, high = model.actuators.act_range[owner].T
    leaving = ((act <= low) & (rate < 0)) | ((act >= high) & (rate > 0))
    return jnp.where(limited & leaving, 0.0, rate)


def clamp_activation(model: Model, act: Array) -> Array:
    """Activations (na,) within their ranges."""
    owner = model.actuators.layout.owner
    limited = model.actuators.layout.act_limited[owner]
    if not limited.any():
        return act
    low, high = model.actuators.act_range[owner].T
    return jnp.where(limited, clamp(_number(act), low, high), act)


def wrap_activation(model: Model, act: Array, length: Array | None) -> Array:
    """Stored setpoints (na,) of wrapping servos moved to the turn nearest to the length, None where none wraps; those
    of orientations to less than half a turn.
    """
    layout = model.actuators.layout
    act = shortened(layout, act)
    own = layout.wraps[layout.owner] & (layout.act[layout.owner] >= 0)
    if length is None or not own.any():
        return act
    turned = pick(unwind(model, taken(act, layout.act), pick(length, layout.output)), layout.owner)
    return jnp.where(own, turned, act)
