"""Servos: PID controllers and DC motors, which have several controls and several activations, or none."""

import dataclasses

import equinox as eqx
import numpy as np
from jax import Array
from jaxtyping import Float

from ukemi.model.tree import Static


class Servos(eqx.Module):
    """What these actuators have beside what every actuator has; MuJoCo's units, and its zeros for what is left out."""

    control: Float[Array, "nservo 6"]  # kp, kd, ki; bounds on the first setpoint's rate, the integral, the voltage [V]
    winding: Float[Array, "nservo 4"]  # resistance [Ω], torque constant [N m/A], time constant [s], bound on rate [A/s]
    thermal: Float[Array, "nservo 5"]  # per kelvin, from [°C]; resistance [K/W], capacitance [J/K], ambient [°C]
    cogging: Float[Array, "nservo 3"]  # amplitude [N m], poles, phase
    bristle: Float[Array, "nservo 5"]  # LuGre's stiffness, damping, Coulomb and static friction, Stribeck's velocity
    layout: "ServoLayout" = eqx.field(static=True)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ServoLayout(Static):
    """Which actuators these are, and where their controls and activations stand; -1 where there is none."""

    actuator: np.ndarray  # (n,)
    electric: np.ndarray  # (n,) bool: a DC motor, else a controller whose force is what it asks for
    controls: np.ndarray  # (n, 4) setpoints of position and velocity, force, voltage
    states: np.ndarray  # (n, 5) setpoint as far as it has come, integral, temperature, bristle, current
    bounded: np.ndarray  # (n, 3) bool: the integral is, the voltage of the drive, the rate of the current
