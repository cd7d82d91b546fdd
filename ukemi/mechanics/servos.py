"""PID controllers and DC motors, as MuJoCo has them: setpoints whose rate is bounded, an integral that does not wind
up, a current that follows the voltage, a winding that warms up, cogging, and friction by LuGre's bristles.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths.gathers import pick, placed, taken
from ukemi.maths.ramps import at_least, clamp
from ukemi.model.records import Model
from ukemi.model.servos import ServoLayout

LEAST = 1e-15  # in place of what MuJoCo divides by
SETPOINT, INTEGRAL, TEMPERATURE, BRISTLE, CURRENT = range(5)
POSITION, VELOCITY, FEEDFORWARD, VOLTAGE = range(4)


class Servo(NamedTuple):
    """Where servos are: each (n,) but `controls`."""

    length: Array
    velocity: Array
    controls: Array  # (n, 4) in the order of `ServoLayout.controls`, 0 where there is none
    states: Array  # (n, 5) in the order of `ServoLayout.states`
    period: Array  # of lengths that live on a circle, else 0


def servo_of(model: Model, length: Array, velocity: Array, act: Array, ctrl: Array, period: Array) -> Servo:
    """From what all actuators have: lengths and velocities of outputs, activations (na,), controls (nu,), periods."""
    layout, actuators = model.servos.layout, model.actuators.layout
    output = actuators.output[layout.actuator]
    given, known = taken(ctrl, layout.controls), taken(act, layout.states)
    return Servo(pick(length, output), pick(velocity, output), given, known, pick(period, layout.actuator))


def put(layout: ServoLayout, into: Array, values: Array) -> Array:
    """Activations (na,) with those of servos (n, 5) in their places."""
    has = layout.states >= 0
    return placed(into, layout.states[has], values[has]) if has.any() else into


def nearest_turn(setpoint: Array, to: Array, period: Array) -> Array:
    """The representative of a setpoint nearest to a length, where lengths have a period."""
    return setpoint - period * jnp.round((setpoint - to) / jnp.where(period == 0, 1.0, period))


def servo_rates(model: Model, at: Servo) -> Array:
    """Rates (n, 5) of the states, 0 where there is none."""
    servos, has, h = model.servos, model.servos.layout.states >= 0, model.options.timestep
    followed = _followed(model, at)
    come = at.states[:, SETPOINT]
    setpoint = (jnp.where(_first(servos.layout), followed, 0.0).sum(-1) - come) / h
    thermal, capacity = (jnp.where(has[:, TEMPERATURE], x, 1.0) for x in servos.thermal[:, 2:4].T)
    resistance, current = _resistance(model, at), at.states[:, CURRENT]
    voltage, K = _voltage(model, at, followed), servos.winding[:, 1]
    driven = (voltage - K * at.velocity) / resistance
    amperes = jnp.where(has[:, CURRENT], current, driven)
    warming = (resistance * amperes**2 - at.states[:, TEMPERATURE] / thermal) / capacity
    tau, fastest = jnp.where(has[:, CURRENT], servos.winding[:, 2], 1.0), servos.winding[:, 3]
    rising = (driven - current) / tau
    rising = jnp.where(servos.layout.bounded[:, 2], clamp(rising, -fastest, fastest), rising)
    decay = _decay(model, at.velocity)
    rates = [setpoint, _winding_up(model, at, followed), warming, decay * at.states[:, BRISTLE] + at.velocity, rising]
    return jnp.where(has, jnp.stack(rates, -1), 0.0)


def servo_force(model: Model, at: Servo, after: Array, early: np.ndarray) -> tuple[Array, Array]:
    """Force (n,) that limits bound, of servos that look at their states (n, 5) a time step later if `early`; and its
    slope in velocity, none where the voltage or the current's rate is at its bound.
    """
    servos, h = model.servos, model.options.timestep
    kd, K, has = servos.control[:, 1], servos.winding[:, 1], servos.layout.states >= 0
    followed = _followed(model, at)
    asked = _torque(model, at, followed, jnp.where(early, after[:, INTEGRAL], at.states[:, INTEGRAL]))
    if not servos.layout.electric.any():
        return asked, -kd
    resistance = _resistance(model, at)
    driven = K * (_voltage(model, at, followed) - K * at.velocity) / resistance
    current = jnp.where(early, after[:, CURRENT], at.states[:, CURRENT])
    electric = jnp.where(has[:, CURRENT], K * current, driven)
    # within its bound, the drive makes up for the voltage that the turning rotor induces
    drive, most = _drive(model, at, followed), servos.control[:, 5]
    free = _is_ruled(servos.layout) & (~servos.layout.bounded[:, 1] | (jnp.abs(drive) < most))
    net = jnp.where(free, -kd * servos.winding[:, 0] / resistance + K * K / resistance, 0.0) - K * K / resistance
    tau, fastest = jnp.where(has[:, CURRENT], servos.winding[:, 2], 1.0), servos.winding[:, 3]
    slow = ~servos.layout.bounded[:, 2] | (jnp.abs(driven / _safe(K) - at.states[:, CURRENT]) / tau < fastest)
    slope = jnp.where(has[:, CURRENT], jnp.where(slow, -jnp.expm1(-h / tau), 0.0), 1.0) * net
    which = servos.layout.electric
    return jnp.where(which, electric, asked), jnp.where(which, slope, -kd)


def rotor_force(model: Model, at: Servo, rates: Array) -> tuple[Array, Array]:
    """Force (n,) that no limit bounds: cogging, and friction of the bristles; and the slope in velocity that MuJoCo
    has for it, of bristles that stay as they are.
    """
    amplitude, poles, phase = model.servos.cogging.T
    force = amplitude * jnp.sin(poles * at.length + phase)
    stiffness, damping = model.servos.bristle[:, :2].T
    friction, has = stiffness * at.states[:, BRISTLE] + damping * rates[:, BRISTLE], model.servos.layout.states >= 0
    return force - jnp.where(has[:, BRISTLE], friction, 0.0), -jnp.where(has[:, BRISTLE], damping, 0.0)


def next_states(model: Model, at: Servo, rates: Array) -> Array:
    """States (n, 5) one time step later: of currents and bristles by the exact solution with all else held."""
    servos, h, has = model.servos, model.options.timestep, model.servos.layout.states >= 0
    after = at.states + h * rates
    tau = jnp.where(has[:, CURRENT], servos.winding[:, 2], 1.0)
    current = at.states[:, CURRENT] - rates[:, CURRENT] * tau * jnp.expm1(-h / tau)
    most, integral = servos.control[:, 4], after[:, INTEGRAL]
    clips = servos.layout.electric & servos.layout.bounded[:, 0]
    integral = jnp.where(clips, clamp(integral, -most, most), integral)
    decay = _decay(model, at.velocity)
    slow = jnp.abs(decay) <= LEAST
    reach = jnp.where(slow, h, jnp.expm1(decay * h) / jnp.where(slow, 1.0, decay))
    bristle = jnp.exp(decay * h) * at.states[:, BRISTLE] + reach * at.velocity
    columns = [after[:, SETPOINT], integral, after[:, TEMPERATURE], bristle, current]
    return jnp.where(has, jnp.stack(columns, -1), 0.0)


# ---- parts -------------------------------------------------------------------------------------------------------


def _first(layout: ServoLayout) -> np.ndarray:
    """Which control (n, 4) is the first of each, whose rate is bounded where that has a state."""
    present = layout.controls >= 0
    return present & (np.cumsum(present, 1) == 1) & (layout.states[:, :1] >= 0)


def _followed(model: Model, at: Servo) -> Array:
    """Controls (n, 4) as the controller follows them: the first moves towards what is asked no faster than allowed."""
    first = _first(model.servos.layout)
    if not first.any():
        return at.controls
    come, most = at.states[:, SETPOINT], model.servos.control[:, 3] * model.options.timestep
    asked = nearest_turn(jnp.where(first, at.controls, 0.0).sum(-1), come, at.period)
    return jnp.where(first, clamp(asked, come - most, come + most)[:, None], at.controls)


def _winding_up(model: Model, at: Servo, followed: Array) -> Array:
    """Rate (n,) of the integral of the error of position, which stops at its bound."""
    most, integral = model.servos.control[:, 4], at.states[:, INTEGRAL]
    error = nearest_turn(followed[:, POSITION], at.length, at.period) - at.length
    held = jnp.where(integral <= -most, jnp.where(error < 0, 0.0, error), error)
    held = jnp.where(integral >= most, jnp.where(error > 0, 0.0, error), held)
    return jnp.where(model.servos.layout.bounded[:, 0], held, error)


def _torque(model: Model, at: Servo, followed: Array, integral: Array) -> Array:
    """What the controller asks for."""
    kp, kd, ki = model.servos.control[:, :3].T
    setpoint = nearest_turn(followed[:, POSITION], at.length, at.period)
    error = kp * (setpoint - at.length) + kd * (followed[:, VELOCITY] - at.velocity)
    wound = jnp.where(model.servos.layout.states[:, INTEGRAL] >= 0, ki * integral, 0.0)
    return error + wound + followed[:, FEEDFORWARD]


def _voltage(model: Model, at: Servo, followed: Array) -> Array:
    """Voltage (n,) at the terminals: the drive's, which is bounded and makes up for the induced one, and the given."""
    drive, most = _drive(model, at, followed), model.servos.control[:, 5]
    drive = jnp.where(model.servos.layout.bounded[:, 1], clamp(drive, -most, most), drive)
    return jnp.where(_is_ruled(model.servos.layout), drive, 0.0) + followed[:, VOLTAGE]


def _drive(model: Model, at: Servo, followed: Array) -> Array:
    """Voltage (n,) by which the drive would have the torque that the controller asks for."""
    K = model.servos.winding[:, 1]
    asked = _torque(model, at, followed, at.states[:, INTEGRAL])
    return model.servos.winding[:, 0] / _safe(K) * asked + K * at.velocity


def _is_ruled(layout: ServoLayout) -> np.ndarray:
    """Which servos (n,) have a controller on board."""
    return np.any(layout.controls[:, :VOLTAGE] >= 0, axis=1)


def _resistance(model: Model, at: Servo) -> Array:
    """Resistance (n,) of the winding as warm as it is."""
    per_kelvin, reference, _, _, ambient = model.servos.thermal.T
    warm = 1 + per_kelvin * (at.states[:, TEMPERATURE] + ambient - reference)
    warm = jnp.where(model.servos.layout.states[:, TEMPERATURE] >= 0, warm, 1.0)
    return _safe(model.servos.winding[:, 0] * warm)


def _decay(model: Model, velocity: Array) -> Array:
    """Rate (n,) at which bristles spring back: −σ₀|v|/g(v), with Stribeck's g."""
    stiffness, _, coulomb, static, stribeck = model.servos.bristle.T
    has = model.servos.layout.states[:, BRISTLE] >= 0
    g = coulomb + (static - coulomb) * jnp.exp(-((velocity / at_least(stribeck, LEAST)) ** 2))
    return jnp.where(has, -stiffness * jnp.abs(velocity) / jnp.where(has, jnp.maximum(g, LEAST), 1.0), 0.0)


def _safe(x: Array) -> Array:
    """In place of zeros, of controllers without a winding, 1."""
    return jnp.where(x == 0, 1.0, x)


def servo_pieces(model: Model, at: Servo) -> Array:
    """Which bounds (n, 7) hold, and on which side of rest bristles are: where forces and rates have kinks."""
    servos, h = model.servos, model.options.timestep
    first, followed = _first(servos.layout), _followed(model, at)
    most, bound, integral = servos.control[:, 3] * h, servos.control[:, 4], at.states[:, INTEGRAL]
    moved = jnp.where(first, followed, 0.0).sum(-1) - at.states[:, SETPOINT]
    setpoint = followed[:, POSITION]
    error = nearest_turn(setpoint, at.length, at.period) - at.length
    drive = _drive(model, at, followed)
    rates = servo_rates(model, at)
    has, (winds, clips, rises) = servos.layout.states >= 0, servos.layout.bounded.T
    winds, rises = winds & has[:, INTEGRAL], rises & has[:, CURRENT]
    codes = [
        jnp.where(has[:, SETPOINT], _side(moved, most), 0),
        jnp.where(winds, 4 * _side(integral, bound) + jnp.sign(error), 0),
        jnp.where(winds, _side(next_states(model, at, rates)[:, INTEGRAL], bound), 0),
        jnp.where(clips, _side(drive, servos.control[:, 5]), 0),
        jnp.where(rises, _side(rates[:, CURRENT], servos.winding[:, 3]), 0),
        jnp.where(has[:, BRISTLE], jnp.sign(at.velocity), 0),
        jnp.where(at.period > 0, jnp.round((setpoint - error - at.length) / jnp.where(at.period > 0, at.period, 1)), 0),
    ]
    return jnp.stack(codes, -1).astype(int)


def _side(x: Array, bound: Array) -> Array:
    """-1 at or below -bound, 1 at or above it, else 0."""
    return jnp.where(x >= bound, 1, jnp.where(x <= -bound, -1, 0))
