"""The built-in models: they load whole, stay sane for seconds in MuJoCo and do what their descriptions say."""

import mujoco
import numpy as np
import pytest

from ukemi.files import source, support

NAMES = source.builtin_names()
ACTUATORS = {
    "ball": 0, "box": 0, "pendulum": 1, "double_pendulum": 2, "cartpole": 1, "billiards": 0, "hopper": 3,
    "half_cheetah": 6, "walker": 6, "ant": 8, "humanoid": 21, "quadruped": 12, "arm": 7, "quadrotor": 4,
}


def start(name: str, key: int | str = "home") -> tuple[mujoco.MjModel, mujoco.MjData]:
    m = source.read(name)
    d = mujoco.MjData(m)
    mujoco.mj_resetDataKeyframe(m, d, m.key(key).id)
    mujoco.mj_forward(m, d)
    return m, d


def run(m: mujoco.MjModel, d: mujoco.MjData, seconds: float, rng: np.random.Generator | None = None) -> None:
    """Simulate with the controls as they are, or with new random ones every 20th of a second."""
    low, high = m.actuator_ctrlrange.T
    for i in range(round(seconds / m.opt.timestep)):
        if rng is not None and i % round(0.05 / m.opt.timestep) == 0:
            d.ctrl[:] = rng.uniform(low, high)
        mujoco.mj_step(m, d)


def test_names_and_actuators():
    assert {name: source.read(name).nu for name in NAMES} == ACTUATORS


@pytest.mark.parametrize("name", NAMES)
def test_nothing_in_it_is_unsupported_or_ignored(name):
    m = source.read(name)
    assert support.unsupported(m) == [] and support.ignored(m) == []
    assert m.key("home").id == 0 and m.actuator_ctrllimited.all()


@pytest.mark.parametrize("name", NAMES)
def test_keyframes_start_without_deep_penetration_and_within_limits(name):
    m = source.read(name)
    for key in range(m.nkey):
        _, d = start(name, key)
        assert np.all(d.contact.dist > -0.003)
        limited = m.jnt_limited.astype(bool)
        q = d.qpos[m.jnt_qposadr[limited]]
        assert np.all(q >= m.jnt_range[limited, 0]) and np.all(q <= m.jnt_range[limited, 1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("driven", [False, True], ids=["held", "random"])
def test_motion_stays_plausible(name, driven):
    rng = np.random.default_rng(1) if driven else None
    m = source.read(name)
    for key in range(m.nkey):
        _, d = start(name, key)
        run(m, d, 3, rng)
        assert np.isfinite(d.qpos).all() and not any(warning.number for warning in d.warning)
        assert np.abs(d.qvel).max() < 100 and np.all(d.xipos[1:, 2] > -0.05)


def test_humanoid_stands_for_a_moment_and_then_falls_to_the_floor():
    m, d = start("humanoid")
    feet = {g for g in range(m.ngeom) if "sole" in m.geom(g).name}
    assert {g for pair in d.contact.geom for g in pair} - {m.geom("floor").id} == feet
    run(m, d, 0.5)
    assert d.qpos[2] > 0.94
    run(m, d, 2.5)
    assert 0.05 < d.qpos[2] < 0.4


def test_quadruped_stands_on_its_feet():
    m, d = start("quadruped")
    run(m, d, 3)
    assert abs(d.qpos[2] - 0.29) < 0.01 and np.abs(d.qvel).max() < 0.01
    touching = {m.geom(g).name for pair in d.contact.geom for g in pair}
    assert touching == {"floor", "front_left_foot", "front_right_foot", "rear_left_foot", "rear_right_foot"}


def test_quadrotor_hovers_and_turns_with_the_drag_of_its_rotors():
    m, d = start("quadrotor")
    run(m, d, 3)
    np.testing.assert_allclose(d.qpos, [0, 0, 1, 1, 0, 0, 0], atol=1e-6)
    d.ctrl += [0.1, -0.1, 0.1, -0.1]
    run(m, d, 0.5)
    assert d.qvel[5] > 0.1 and np.abs(d.qvel[:5]).max() < 1e-6


def test_arm_holds_a_pose_against_gravity_and_reaches_another():
    m, d = start("arm")
    run(m, d, 1)
    np.testing.assert_allclose(d.qpos, m.key("home").qpos, atol=1e-6)
    d.ctrl[:] = [0.5, 0.2, -0.3, -1.0, 0.4, 0.6, 1.0]
    run(m, d, 5)
    np.testing.assert_allclose(d.qpos, d.ctrl, atol=0.02)


def test_billiard_balls_scatter_and_stay_on_the_table():
    m, d = start("billiards", "break")
    run(m, d, 3)
    balls = d.qpos.reshape(7, 7)[:, :3]
    assert np.all(np.abs(balls) < [1.0, 0.5, 0.05])
    moved = np.linalg.norm(balls - m.key("break").qpos.reshape(7, 7)[:, :3], axis=1)
    assert np.sum(moved > 0.05) == 7


def test_swings_keep_their_energy_but_for_the_error_of_the_integrator():
    for name in ("pendulum", "double_pendulum"):
        m, d = start(name, "raised")
        m.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
        m.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
        m.opt.timestep = 0.0005
        mujoco.mj_forward(m, d)
        before = d.energy.sum()
        run(m, d, 2)
        assert abs(d.energy.sum() - before) < 1e-4
