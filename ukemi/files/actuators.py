"""Actuators of a compiled model."""

import jax.numpy as jnp
import mujoco
import numpy as np

from ukemi.files.support import switched_off
from ukemi.model.actuators import ActuatorLayout, Actuators
from ukemi.model.tree import BALL

TRANSMISSIONS = {
    int(mujoco.mjtTrn.mjTRN_JOINT): "joint",
    int(mujoco.mjtTrn.mjTRN_JOINTINPARENT): "jointinparent",
    int(mujoco.mjtTrn.mjTRN_SITE): "site",
    int(mujoco.mjtTrn.mjTRN_BODY): "body",
    int(mujoco.mjtTrn.mjTRN_SLIDERCRANK): "slidercrank",
    int(mujoco.mjtTrn.mjTRN_TENDON): "tendon",
}
DYNAMICS = {
    int(mujoco.mjtDyn.mjDYN_NONE): "none",
    int(mujoco.mjtDyn.mjDYN_INTEGRATOR): "integrator",
    int(mujoco.mjtDyn.mjDYN_FILTER): "filter",
    int(mujoco.mjtDyn.mjDYN_FILTEREXACT): "filterexact",
    int(mujoco.mjtDyn.mjDYN_MUSCLE): "muscle",
}


def actuators(m, names: tuple[str, ...]) -> Actuators:
    """The actuators of a compiled model."""
    fixed = np.array(m.actuator_gaintype) == mujoco.mjtGain.mjGAIN_FIXED
    affine = np.array(m.actuator_biastype) == mujoco.mjtBias.mjBIAS_AFFINE
    gain = np.array(m.actuator_gainprm[:, :3])
    gain[fixed, 1:] = 0.0
    muscles = np.array(m.actuator_gaintype) == mujoco.mjtGain.mjGAIN_MUSCLE
    passive = np.array(m.actuator_biastype) == mujoco.mjtBias.mjBIAS_MUSCLE
    gain[muscles] = 0.0
    bias = np.where(affine[:, None], m.actuator_biasprm[:, :3], 0.0)
    layout = ActuatorLayout(
        transmission=tuple(TRANSMISSIONS[t] for t in m.actuator_trntype.tolist()),
        target=np.array(m.actuator_trnid, np.int32).reshape(m.nu, 2),
        dynamics=tuple(DYNAMICS[t] for t in m.actuator_dyntype.tolist()),
        muscle_gains=muscles,
        muscle_biases=passive,
        act=np.array(m.actuator_actadr, np.int32),
        ctrl_limited=_b(m.actuator_ctrllimited),
        force_limited=_b(m.actuator_forcelimited),
        act_limited=_b(m.actuator_actlimited),
        rotors=bool(np.any(m.actuator_armature)),
        damped=bool(np.any(m.actuator_damping) or np.any(m.actuator_dampingpoly)),
        thickening=bool(np.any(m.actuator_dampingpoly)),
        early=_b(m.actuator_actearly),
        wraps=_wraps(m, fixed & affine),
        off=switched_off(m),
        names=names,
    )
    return Actuators(
        gain=_f(gain),
        bias=_f(bias),
        time_constant=_f(np.maximum(m.actuator_dynprm[:, 0], 1e-15)),
        gear=_f(m.actuator_gear),
        crank_length=_f(m.actuator_cranklength),
        armature=_f(m.actuator_armature),
        damping=_f(m.actuator_damping),
        damping_poly=_f(m.actuator_dampingpoly),
        ctrl_range=_f(m.actuator_ctrlrange),
        force_range=_f(m.actuator_forcerange),
        act_range=_f(m.actuator_actrange),
        muscle_gain=_f(np.where(muscles[:, None], m.actuator_gainprm[:, :9], 0.0)),
        muscle_bias=_f(np.where(passive[:, None], m.actuator_biasprm[:, :9], 0.0)),
        muscle_time=_f(m.actuator_dynprm[:, :3]),
        length_range=_f(m.actuator_lengthrange),
        acc0=_f(m.actuator_acc0),
        layout=layout,
    )


def _wraps(m, servo) -> np.ndarray:
    """Which actuators are position servos of a rotation, whose setpoint MuJoCo takes modulo a turn."""
    out = np.zeros(m.nu, bool)
    for k in np.nonzero(servo)[0]:
        matched = m.actuator_gainprm[k, 0] == -m.actuator_biasprm[k, 1]
        target, reference = m.actuator_trnid[k]
        transmission = TRANSMISSIONS[int(m.actuator_trntype[k])]
        if transmission in ("tendon", "slidercrank", "body"):
            rotation = False
        elif transmission == "site":
            rotation = reference >= 0 and not np.any(m.actuator_gear[k, :3])
        else:
            rotation = m.jnt_type[target] == BALL
        out[k] = matched and rotation
    return out


def _f(x):
    """A float leaf at JAX's default precision."""
    return jnp.asarray(np.array(x, np.float64))


def _b(x):
    return np.array(x, bool)
