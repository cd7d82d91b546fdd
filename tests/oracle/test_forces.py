"""Actuators, passive forces and inputs against MuJoCo: every kind at once, so that few programs need compiling."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.forces import GROWING, KINDS, TRANSMISSIONS, actuators, build
from tests.scenes.servos import MOTORS, ORIENTATIONS, PIDS, TURNING
from tests.scenes.slow import few
from tests.scenes.tendons import heavy
from ukemi.laws.soft.law import Soft
from ukemi.model.records import Input


def cases(m: mujoco.MjModel, n: int = 12, wide: float = 6.0) -> list[dict]:
    """Random states and inputs; controls and activations reach beyond their ranges and beyond a turn."""
    rng, out = np.random.default_rng(0), []
    for _ in range(n):
        q = np.array(m.qpos0)
        mujoco.mj_integratePos(m, q, 0.8 * rng.normal(size=m.nv), 1.0)
        mocap = rng.normal(size=(m.nmocap, 4))
        out.append({
            "qpos": q,
            "qvel": 1.5 * rng.normal(size=m.nv),
            "act": wide * rng.normal(size=m.na),
            "ctrl": wide * rng.normal(size=m.nu),
            "qfrc_applied": rng.normal(size=m.nv),
            "xfrc_applied": np.concatenate([np.zeros((1, 6)), rng.normal(size=(m.nbody - 1, 6))]),
            "mocap_pos": rng.normal(size=(m.nmocap, 3)),
            "mocap_quat": mocap / np.linalg.norm(mocap, axis=1, keepdims=True),
        })
    return out


def theirs(m: mujoco.MjModel, case: dict) -> dict:
    """MuJoCo's forces and next state."""
    d = mujoco.MjData(m)

    def reset():
        mujoco.mj_resetData(m, d)
        for name, value in case.items():
            getattr(d, name)[:] = value

    reset()
    mujoco.mj_forward(m, d)
    moment = np.zeros((m.nout, m.nv))
    mujoco.mju_sparse2dense(moment, d.actuator_moment.ravel(), d.moment_rownnz, d.moment_rowadr, d.moment_colind)
    out = {
        "length": d.actuator_length, "moment": moment, "velocity": d.actuator_velocity, "force": d.actuator_force,
        "act_dot": d.act_dot, "qfrc_actuator": d.qfrc_actuator, "qfrc_passive": d.qfrc_passive, "qacc": d.qacc,
    }
    out = {name: np.array(value) for name, value in out.items()}
    reset()
    mujoco.mj_step(m, d)
    return out | {"q": np.array(d.qpos), "v": np.array(d.qvel), "act": np.array(d.act)}


def ours(m: mujoco.MjModel, given: list[dict]) -> list[dict]:
    """The same from Ukemi."""
    model, method = uk.load(m), Soft()

    def one(c):
        state = uk.initial_state(model, q=c["qpos"], v=c["qvel"], act=c["act"])
        inputs = Input(c["ctrl"], c["qfrc_applied"], c["xfrc_applied"], c["mocap_pos"], c["mocap_quat"])
        now, after = method.forward(model, state, inputs), method.step(model, state, inputs)
        a = now.actuation
        return {
            "length": a.length, "moment": a.moment, "velocity": a.velocity, "force": a.force, "act_dot": a.act_dot,
            "qfrc_actuator": a.qfrc, "qfrc_passive": now.passive.qfrc, "qacc": now.solution.acceleration,
            "q": after.q, "v": after.v, "act": after.act,
        }

    batch = jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *given)
    found = jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(batch))
    return [{name: value[k] for name, value in found.items()} for k in range(len(given))]


def check(m: mujoco.MjModel, wide: float = 6.0, skip: tuple = ()) -> list[dict]:
    """Compare all cases but the names in `skip`; a failure names the actuators whose rows differ."""
    given = cases(m, wide=wide)
    found, wanted = ours(m, given), [theirs(m, case) for case in given]
    for mine, their in zip(found, wanted, strict=True):
        for name in their.keys() - set(skip):
            expected = their[name]
            error = np.abs(mine[name] - expected) / max(1.0, np.abs(expected).max(initial=0.0))
            rows = np.nonzero((error > 1e-9).reshape(len(error), -1).any(1))[0] if error.size else []
            names = [m.actuator(int(r)).name for r in rows] if len(error) == m.nactuator else rows
            assert not len(rows), (name, names, error.max())
    return wanted


@pytest.mark.parametrize("integrator", few(["Euler", "implicitfast", "implicit", "RK4"], "implicit", "RK4"))
def test_every_actuator_on_a_few_transmissions(integrator):
    wanted = check(build(integrator=integrator, actuator=actuators(["hinge", "ball", "site turned"], KINDS)))
    assert np.ptp([w["force"] for w in wanted], axis=0).min() > 1e-3, "an actuator that does nothing tests nothing"


@pytest.mark.parametrize("integrator", few(["Euler", "implicitfast", "implicit", "RK4"], "implicitfast"))
def test_controllers_and_motors(integrator):
    """With several controls and several activations each, or none."""
    both = actuators(["hinge", "ball"], PIDS) + actuators(["slide"], MOTORS)
    both += actuators(["site turned"], {name: text for name, text in MOTORS.items() if "armature" not in text})
    wanted = check(build(integrator=integrator, actuator=both), wide=2.0)
    assert np.ptp([w["force"] for w in wanted], axis=0).min() > 1e-3, "an actuator that does nothing tests nothing"


@pytest.mark.slow  # their sensors: test_servo_sensors.py
def test_servos_of_orientations():
    m = build(integrator="Euler", actuator=actuators(TURNING, ORIENTATIONS))
    wanted = check(m, wide=2.0)
    assert np.ptp([w["force"] for w in wanted], axis=0).min() > 1e-3
    assert m.nout == 3 * m.nactuator


def test_every_transmission_with_a_few_actuators():
    check(build(actuator=actuators(TRANSMISSIONS, ["motor", "position filtered", "intvelocity", "affine"])))


def test_joint_limits_of_the_actuator_force_and_gravity_compensation():
    limited = "actuatorfrclimited='true' actuatorfrcrange='-0.4 0.3'"
    m = build(
        integrator="implicitfast",
        upper="gravcomp='0.7'", lower="gravcomp='1.3'", trunk="gravcomp='0.2'",
        hinge=limited + " actuatorgravcomp='true'", slide="actuatorgravcomp='true'", swing=limited,
        actuator="<velocity joint='hinge' kv='2'/><velocity joint='swing' kv='0.3'/><position joint='slide' kp='2'/>"
        "<damper joint='swing' kv='0.5' ctrlrange='0 1'/>",
    )
    wanted = check(m, wide=0.3)
    swing = np.array([w["qfrc_actuator"][m.joint("swing").dofadr[0]] for w in wanted])
    assert (swing == 0.3).any() or (swing == -0.4).any()
    assert ((swing > -0.4) & (swing < 0.3)).any()


def test_switched_off_groups_of_actuators():
    """They exert no force but what their range asks for, and their activations stay; held weights still count."""
    kinds = ["motor", "position filtered", "affine filtered", "early", "early integrator"]
    lines = actuators(["hinge", "site turned"], kinds).splitlines()
    lines = [line.replace("/>", f" group='{k % 3}'/>") for k, line in enumerate(lines)]
    lines.append("<general name='pushing' joint='hinge' group='1' forcelimited='true' forcerange='.5 .6'/>")
    hinge = "actuatorgravcomp='true' actuatorfrclimited='true' actuatorfrcrange='-0.4 0.3'"
    m = build(integrator="implicit", lower="gravcomp='1.3'", hinge=hinge, actuator="\n".join(lines))
    m.opt.disableactuator = 0b10
    wanted = check(m, skip=("act_dot",))  # MuJoCo has the rates, and does not integrate them
    assert (np.array([w["force"] for w in wanted]) == 0).all(0).sum() == 3


@pytest.mark.parametrize("integrator", ["Euler", "implicit"])
def test_springs_dampers_and_a_fluid(integrator):
    check(build(
        integrator=integrator,
        option="density='900' viscosity='0.8' wind='0.5 -1 0.3'",
        root="stiffness='3' damping='0.4'", ball="stiffness='2' damping='0.3'",
        hinge="stiffness='1.5' springref='20' ref='5' damping='0.2'",
        slide="stiffness='4' springref='0.1' ref='0.05' damping='0.6' armature='0.1'",
    ))


@pytest.mark.parametrize("integrator", few(["Euler", "implicitfast", "implicit", "RK4"], "Euler", "implicit"))
def test_stiffness_and_damping_that_grow_and_rotors(integrator):
    check(build(integrator=integrator, **GROWING))


@pytest.mark.parametrize("integrator", few(["Euler", "implicitfast", "implicit", "RK4"], "implicitfast"))
def test_inertia_along_tendons(integrator):
    check(heavy(integrator))


@pytest.mark.parametrize("off", ["actuation", "spring", "damper", "gravity", "clampctrl"])
def test_disabled_stages(off):
    m = build(
        integrator="implicitfast", option="density='500'", ball="stiffness='2' damping='0.3'", upper="gravcomp='0.5'",
        hinge="stiffness='2' damping='0.3'", actuator=actuators(["hinge"], ["motor", "intvelocity"]),
    )
    m.opt.disableflags |= getattr(mujoco.mjtDisableBit, f"mjDSBL_{off.upper()}")
    check(m, skip=("velocity",) if off == "actuation" else ())  # MuJoCo then leaves the velocity at zero


def test_fluid_slope_is_the_derivative_of_its_force():
    from ukemi.mechanics.fluid import fluid_force, fluid_slope
    from ukemi.mechanics.kinematics import kinematics

    model = uk.load(build(option="density='900' viscosity='0.8' wind='0.5 -1 0.3'"))
    rng = np.random.default_rng(1)
    kin, v = jax.jit(lambda q: kinematics(model, q))(model.joints.qpos0), jnp.asarray(rng.normal(size=model.nv))
    slope = jax.jit(lambda v: fluid_slope(model, kin, v))(v)
    assert np.allclose(slope, jax.jit(jax.jacfwd(lambda v: fluid_force(model, kin, v)))(v), atol=1e-10)
    assert np.linalg.eigvalsh(slope).max() < 1e-10
