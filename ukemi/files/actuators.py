"""Actuators of a compiled model."""

import mujoco
import numpy as np

from ukemi.files.leaves import leaf
from ukemi.files.support import switched_off
from ukemi.model.actuators import ActuatorLayout, Actuators
from ukemi.model.delays import DelayLayout, Delays
from ukemi.model.servos import ServoLayout, Servos
from ukemi.model.tree import BALL

TRANSMISSIONS = {
    int(mujoco.mjtTrn.mjTRN_JOINT): "joint",
    int(mujoco.mjtTrn.mjTRN_JOINTINPARENT): "jointinparent",
    int(mujoco.mjtTrn.mjTRN_SITE): "site",
    int(mujoco.mjtTrn.mjTRN_BODY): "body",
    int(mujoco.mjtTrn.mjTRN_SLIDERCRANK): "slidercrank",
    int(mujoco.mjtTrn.mjTRN_TENDON): "tendon",
    int(mujoco.mjtTrn.mjTRN_SO3): "so3",
}
DYNAMICS = {
    int(mujoco.mjtDyn.mjDYN_NONE): "none",
    int(mujoco.mjtDyn.mjDYN_INTEGRATOR): "integrator",
    int(mujoco.mjtDyn.mjDYN_FILTER): "filter",
    int(mujoco.mjtDyn.mjDYN_FILTEREXACT): "filterexact",
    int(mujoco.mjtDyn.mjDYN_MUSCLE): "muscle",
    int(mujoco.mjtDyn.mjDYN_DCMOTOR): "dcmotor",
    int(mujoco.mjtDyn.mjDYN_PID): "pid",
}

DC_MOTOR = int(mujoco.mjtDyn.mjDYN_DCMOTOR)
INPUTS = np.array([1, 2, 4, 8])  # bits of mjtCtrlInput: setpoints of position and velocity, force, voltage


def actuators(m, names: tuple[str, ...]) -> Actuators:
    """The actuators of a compiled model."""
    fixed = np.array(m.actuator_gaintype) == mujoco.mjtGain.mjGAIN_FIXED
    affine = np.array(m.actuator_biastype) == mujoco.mjtBias.mjBIAS_AFFINE
    orientations = np.array(m.actuator_gaintype) == int(mujoco.mjtGain.mjGAIN_SO3)
    gain = np.array(m.actuator_gainprm[:, :3])
    gain[fixed | orientations, 1:] = 0.0
    muscles = np.array(m.actuator_gaintype) == mujoco.mjtGain.mjGAIN_MUSCLE
    passive = np.array(m.actuator_biastype) == mujoco.mjtBias.mjBIAS_MUSCLE
    gain[muscles] = 0.0
    bias = np.where(affine[:, None], m.actuator_biasprm[:, :3], 0.0)
    compound = is_servo(m)
    gain[compound] = bias[compound, 1:] = 0.0
    bias = np.where(orientations[:, None], m.actuator_biasprm[:, :3] * [1, 0, 1], bias)
    several, owner = compound | orientations, _repeated(m.actuator_actnum)
    output = np.array(m.actuator_outadr, np.int32)
    layout = ActuatorLayout(
        transmission=tuple(TRANSMISSIONS[t] for t in m.actuator_trntype.tolist()),
        target=np.array(m.actuator_trnid, np.int32).reshape(m.nactuator, 2),
        dynamics=tuple(DYNAMICS[t] for t in m.actuator_dyntype.tolist()),
        muscle_gains=muscles,
        muscle_biases=passive,
        output=output,
        source=_repeated(m.actuator_outnum),
        ctrl=np.where(several, -1, m.actuator_ctrladr).astype(np.int32),
        act=np.where(several, -1, m.actuator_actadr).astype(np.int32),
        owner=owner,
        feed=np.where(compound[owner], -1, m.actuator_ctrladr[owner] + _ranks(owner)).astype(np.int32),
        commanded=_repeated(m.actuator_ctrlnum),
        ctrl_limited=_b(m.actuator_ctrllimited),
        force_limited=_b(m.actuator_forcelimited),
        act_limited=_b(m.actuator_actlimited) & (np.array(m.actuator_dyntype) != DC_MOTOR),
        rotors=bool(np.any(m.actuator_armature)),
        damped=bool(np.any(m.actuator_damping) or np.any(m.actuator_dampingpoly)),
        thickening=bool(np.any(m.actuator_dampingpoly)),
        early=_b(m.actuator_actearly),
        wraps=_wraps(m, fixed & affine),
        off=switched_off(m),
        names=names,
    )
    return Actuators(
        gain=leaf(gain),
        bias=leaf(bias),
        time_constant=leaf(np.maximum(m.actuator_dynprm[:, 0], 1e-15)),
        gear=leaf(m.actuator_gear[output]),
        crank_length=leaf(m.actuator_cranklength),
        armature=leaf(m.actuator_armature),
        damping=leaf(m.actuator_damping),
        damping_poly=leaf(m.actuator_dampingpoly),
        ctrl_range=leaf(m.actuator_ctrlrange),
        force_range=leaf(m.actuator_forcerange),
        act_range=leaf(m.actuator_actrange),
        muscle_gain=leaf(np.where(muscles[:, None], m.actuator_gainprm[:, :9], 0.0)),
        muscle_bias=leaf(np.where(passive[:, None], m.actuator_biasprm[:, :9], 0.0)),
        muscle_time=leaf(m.actuator_dynprm[:, :3]),
        length_range=leaf(m.actuator_lengthrange[output]),
        acc0=leaf(m.actuator_acc0[output]),
        layout=layout,
    )


def is_servo(m) -> np.ndarray:
    """Which actuators (n,) are PID controllers or DC motors."""
    return np.isin(m.actuator_gaintype, (int(mujoco.mjtGain.mjGAIN_PID), int(mujoco.mjtGain.mjGAIN_DCMOTOR)))


def servos(m) -> Servos:
    """The PID controllers and DC motors among them."""
    which = np.flatnonzero(is_servo(m)).astype(np.int32)
    electric = np.array(m.actuator_gaintype)[which] == int(mujoco.mjtGain.mjGAIN_DCMOTOR)
    dynamics, gain, bias = (np.array(x)[which] for x in (m.actuator_dynprm, m.actuator_gainprm, m.actuator_biasprm))
    kp, kd, ki = np.where(electric, gain[:, [4, 6, 5]].T, np.stack([-bias[:, 1], -bias[:, 2], gain[:, 0]]))
    slew, most = np.where(electric, dynamics[:, [7, 8]].T, dynamics[:, [1, 0]].T)
    motors = electric[:, None]
    volts, rate = np.where(electric, gain[:, 7], 0.0), np.where(electric, dynamics[:, 1], 0.0)
    layout = ServoLayout(
        actuator=which,
        electric=electric,
        controls=_places(m.actuator_ctrladr[which], (m.actuator_ctrlspec[which][:, None] & INPUTS) != 0),
        states=_places(
            m.actuator_actadr[which],
            np.stack([slew > 0, ki > 0, *(electric & (dynamics[:, k] > 0) for k in (2, 5, 0))], -1)
            & (np.array(m.actuator_actnum)[which] > 0)[:, None],
        ),
        bounded=np.stack([most > 0, volts > 0, rate > 0], -1),
    )
    return Servos(
        control=leaf(np.stack([kp, kd, ki, slew, most, volts], -1)),
        winding=leaf(np.where(motors, np.concatenate([gain[:, :2], dynamics[:, :2]], -1), 0.0)),
        thermal=leaf(np.where(motors, np.concatenate([gain[:, 2:4], dynamics[:, 2:5]], -1), 0.0)),
        cogging=leaf(np.where(motors, bias[:, :3], 0.0)),
        bristle=leaf(np.where(motors, np.concatenate([dynamics[:, 5:7], bias[:, 3:6]], -1), 0.0)),
        layout=layout,
    )


def delays(m) -> Delays:
    """The delays of controls."""
    late = np.flatnonzero(m.actuator_delay)
    number = m.actuator_ctrlnum[late]
    kept = np.repeat(m.actuator_history[late, 0], number).astype(np.int32)
    first = np.cumsum(kept) - kept
    most = np.arange(kept.max(initial=0))
    layout = DelayLayout(
        control=np.flatnonzero(np.isin(_repeated(m.actuator_ctrlnum), late)).astype(np.int32),
        owner=_repeated(number),
        order=np.repeat(m.actuator_history[late, 1], number).astype(np.int32),
        kept=kept,
        slot=np.where(most < kept[:, None], first[:, None] + most, -1).astype(np.int32),
    )
    return Delays(time=leaf(m.actuator_delay[late]), layout=layout)


def _places(first: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Where each of those that are present (n, k) stands, one after the other from `first` (n,) on; else -1."""
    return np.where(present, first[:, None] + np.cumsum(present, 1) - 1, -1).astype(np.int32)


def _repeated(number) -> np.ndarray:
    """The actuator of each of what they have several of."""
    return np.repeat(np.arange(len(number), dtype=np.int32), number)


def _ranks(owner: np.ndarray) -> np.ndarray:
    """Of each in a row of those that belong together, how many are before it."""
    return np.arange(len(owner)) - np.searchsorted(owner, owner)


def _wraps(m, servo) -> np.ndarray:
    """Which actuators are position servos of a rotation, whose setpoint MuJoCo takes modulo a turn."""
    out = np.zeros(m.nactuator, bool)
    controlled = np.array(m.actuator_gaintype) == int(mujoco.mjtGain.mjGAIN_PID)
    for k in np.nonzero(servo | controlled)[0]:
        matched = controlled[k] or m.actuator_gainprm[k, 0] == -m.actuator_biasprm[k, 1]
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


def _b(x):
    return np.array(x, bool)
