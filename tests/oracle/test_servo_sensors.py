"""Sensors of actuators of several outputs, of motors and late controls, and of what limits leave, against MuJoCo."""

import jax.numpy as jnp
import mujoco
import numpy as np

import ukemi as uk
from tests.scenes.servos import LATE, MOTORS, ORIENTATIONS

KINDS = ("actuatorpos", "actuatorvel", "actuatorfrc")


def test_sensors_read_each_output():
    drives = {
        "turn": (ORIENTATIONS["quaternion"], "joint='ball'"),
        "motor": (MOTORS["everything"], "joint='hinge'"),
        "late": (LATE["cubic"], "joint='hinge' gear='2'"),
    }
    actuators = "".join(kind.format(f"name='{name}' {to}") for name, (kind, to) in drives.items())
    sensors = "".join(f"<{kind} name='{kind} {name}' actuator='{name}'/>" for kind in KINDS for name in drives)
    m = mujoco.MjModel.from_xml_string(
        "<mujoco><option timestep='.01'/><worldbody><body><joint name='ball' type='ball'/>"
        "<geom size='.1' pos='.1 0 0'/>"
        "<body pos='.3 0 0'><joint name='hinge'/><geom size='.1' pos='.1 0 0'/></body></body></worldbody>"
        f"<actuator>{actuators}</actuator><sensor>{sensors}<jointactuatorfrc joint='hinge'/></sensor></mujoco>"
    )
    model, d, rng = uk.load(m), mujoco.MjData(m), np.random.default_rng(0)
    q = rng.normal(size=m.nq)
    q[:4] /= np.linalg.norm(q[:4])
    late = model.delays.layout
    past = rng.normal(size=late.slot.shape)
    d.qpos[:], d.qvel[:], d.act[:] = q, rng.normal(size=m.nv), 0.3 * rng.normal(size=m.na)
    d.ctrl[:] = rng.normal(size=m.nu)
    times = -m.opt.timestep * np.arange(late.slot.shape[1], 0, -1)
    mujoco.mj_initCtrlHistory(m, d, 2, times, past[:, ::-1].T)
    act = np.concatenate([d.act, past.ravel()])
    state, ctrl = uk.initial_state(model, q=q, v=np.array(d.qvel), act=act), jnp.asarray(np.array(d.ctrl))
    mujoco.mj_forward(m, d)
    assert m.sensor_dim.tolist() == [3, 1, 1] * 3 + [1]
    np.testing.assert_allclose(uk.sensors(model, state, ctrl).flat, d.sensordata, atol=1e-12)
    assert np.abs(d.sensordata).min() > 1e-3


def test_the_limit_of_a_tendon_acts_before_those_of_its_actuators():
    m = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><joint name='j'/><geom size='.1'/></body></worldbody><tendon><fixed name='t' "
        "actuatorfrclimited='true' actuatorfrcrange='-1 1'><joint joint='j' coef='1'/></fixed></tendon><actuator>"
        "<motor name='a' tendon='t' forcerange='-.5 .5'/><motor name='b' tendon='t'/></actuator>"
        "<sensor><actuatorfrc actuator='a'/><actuatorfrc actuator='b'/><tendonactuatorfrc tendon='t'/></sensor>"
        "</mujoco>"
    )
    model, d = uk.load(m), mujoco.MjData(m)
    d.ctrl[:] = 3, 1
    mujoco.mj_forward(m, d)
    read = uk.sensors(model, uk.initial_state(model), jnp.array([3.0, 1.0])).flat
    np.testing.assert_allclose(read, d.sensordata, atol=1e-12)
    np.testing.assert_allclose(read, [0.5, 0.25, 0.75], atol=1e-12)
