"""Actuators of a model."""

import dataclasses

import equinox as eqx
import numpy as np
from jax import Array
from jaxtyping import Float

from ukemi.model.tree import Static


class Actuators(eqx.Module):
    """Actuators: force = gain · (ctrl or act) + bias, each affine in length and velocity, or a muscle's."""

    gain: Float[Array, "nu 3"]  # constant, per length, per velocity
    bias: Float[Array, "nu 3"]  # constant, per length, per velocity
    time_constant: Float[Array, " nu"]  # of filters [s]
    gear: Float[Array, "nu 6"]
    crank_length: Float[Array, " nu"]  # of the rod of slider-cranks [m]
    armature: Float[Array, " nu"]  # of the rotor; gear² times it goes to the joint or tendon
    damping: Float[Array, " nu"]  # of the rotor, the same
    damping_poly: Float[Array, "nu 2"]  # and what it grows by, per speed and per speed squared
    ctrl_range: Float[Array, "nu 2"]
    force_range: Float[Array, "nu 2"]  # [N] or [N m]
    act_range: Float[Array, "nu 2"]
    muscle_gain: Float[Array, "nu 9"]  # MuJoCo's: range 2, force, scale, lmin, lmax, vmax, fpmax, fvmax
    muscle_bias: Float[Array, "nu 9"]  # the same, for the passive force
    muscle_time: Float[Array, "nu 3"]  # time constants up and down [s], width of the change between them
    length_range: Float[Array, "nu 2"]  # lengths that are `range` of a muscle [m]
    acc0: Float[Array, " nu"]  # acceleration by a unit force at qpos0, by which unspecified forces scale
    layout: "ActuatorLayout" = eqx.field(static=True)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ActuatorLayout(Static):
    """What each actuator acts on and how."""

    transmission: tuple[str, ...]  # joint, jointinparent, site, tendon, slidercrank or body
    target: np.ndarray  # (nu, 2) joint, tendon, body or site (of a crank), reference or slider site or -1
    dynamics: tuple[str, ...]  # none, integrator, filter, filterexact, muscle
    muscle_gains: np.ndarray  # (nu,) bool: the gain is a muscle's
    muscle_biases: np.ndarray  # (nu,) bool
    act: np.ndarray  # (nu,) activation, -1 for stateless
    ctrl_limited: np.ndarray  # (nu,) bool
    force_limited: np.ndarray  # (nu,) bool
    act_limited: np.ndarray  # (nu,) bool
    rotors: bool  # some actuator has armature
    damped: bool
    thickening: bool  # some damping grows with speed
    early: np.ndarray  # (nu,) bool: force uses the next activation
    wraps: np.ndarray  # (nu,) bool: the setpoint lives on a circle
    off: np.ndarray  # (nu,) bool: in a group that the file switches off
    names: tuple[str, ...]
