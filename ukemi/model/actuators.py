"""Actuators of a model."""

import dataclasses

import equinox as eqx
import numpy as np
from jax import Array
from jaxtyping import Float

from ukemi.model.tree import Static


class Actuators(eqx.Module):
    """Actuators: force = gain · (ctrl or act) + bias, each affine in length and velocity, or a muscle's."""

    gain: Float[Array, "nact 3"]  # constant, per length, per velocity
    bias: Float[Array, "nact 3"]  # constant, per length, per velocity
    time_constant: Float[Array, " nact"]  # of filters [s]
    gear: Float[Array, "nact 6"]
    crank_length: Float[Array, " nact"]  # of the rod of slider-cranks [m]
    armature: Float[Array, " nact"]  # of the rotor; gear² times it goes to the joint or tendon
    damping: Float[Array, " nact"]  # of the rotor, the same
    damping_poly: Float[Array, "nact 2"]  # and what it grows by, per speed and per speed squared
    ctrl_range: Float[Array, "nu 2"]
    force_range: Float[Array, "nact 2"]  # [N] or [N m]
    act_range: Float[Array, "nact 2"]
    muscle_gain: Float[Array, "nact 9"]  # MuJoCo's: range 2, force, scale, lmin, lmax, vmax, fpmax, fvmax
    muscle_bias: Float[Array, "nact 9"]  # the same, for the passive force
    muscle_time: Float[Array, "nact 3"]  # time constants up and down [s], width of the change between them
    length_range: Float[Array, "nact 2"]  # lengths that are `range` of a muscle [m]
    acc0: Float[Array, " nact"]  # acceleration by a unit force at qpos0, by which unspecified forces scale
    layout: "ActuatorLayout" = eqx.field(static=True)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ActuatorLayout(Static):
    """What each actuator acts on and how."""

    transmission: tuple[str, ...]  # joint, jointinparent, site, tendon, slidercrank, body, so3
    target: np.ndarray  # (n, 2) joint, tendon, body or site, reference or slider site or -1
    output: np.ndarray  # (n,) first of its outputs: lengths and forces
    source: np.ndarray  # (nout,) actuator of each output
    dynamics: tuple[str, ...]  # none, integrator, filter, filterexact, muscle, pid, dcmotor
    muscle_gains: np.ndarray  # (n,) bool: the gain is a muscle's
    muscle_biases: np.ndarray  # (n,) bool
    ctrl: np.ndarray  # (n,) control that the gain multiplies where no activation does, -1 for none
    act: np.ndarray  # (n,) activation that it multiplies, -1 for none
    owner: np.ndarray  # (na,) actuator of each activation
    feed: np.ndarray  # (na,) control that each follows, -1 for those of servos
    commanded: np.ndarray  # (nu,) actuator of each control
    ctrl_limited: np.ndarray  # (nu,) bool
    force_limited: np.ndarray  # (n,) bool
    act_limited: np.ndarray  # (n,) bool
    rotors: bool  # some actuator has armature
    damped: bool
    thickening: bool  # some damping grows with speed
    early: np.ndarray  # (n,) bool: force uses the next activation
    wraps: np.ndarray  # (n,) bool: the setpoint lives on a circle
    off: np.ndarray  # (n,) bool: in a group that the file switches off
    names: tuple[str, ...]

    @property
    def count(self) -> int:
        """Number of actuators."""
        return len(self.names)
