"""Whole robots against MuJoCo: every stage of forward dynamics and the next state, over random states.

`make test` looks at a few states of some robots; the slow run at 200 states of each. `accuracy.py` writes what it
measures to docs/accuracy.md.
"""

# ruff: noqa: E501  XML reads better unbroken

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.agreement import CONVERGED, Report, assert_agrees, compare
from tests.scenes.models import CASES
from tests.scenes.slow import few
from tests.scenes.states import converged

FEW = ["ukemi/humanoid", "shared/cassie"]


def check(m: mujoco.MjModel, report: Report) -> None:
    """All bounds hold, over states of which at least half have something active where anything can be."""
    assert_agrees(report)
    assert report.overflow <= 0.02 * report.states
    compared = report.states - report.inexact - report.overflow
    assert compared >= 0.5 * report.states
    if m.jnt_limited.any() or m.neq or uk.load(m).pairs.layout.groups:
        assert report.active >= 0.5 * report.states


@pytest.mark.parametrize("name", FEW)
def test_agrees_with_mujoco(name):
    m = CASES[name]()
    check(m, compare(m, n=40, seed=1))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_mujoco_over_many_states(name):
    m = CASES[name]()
    check(m, compare(m, n=200, seed=2))


OTHER = ["ukemi/humanoid", "ukemi/ant", "ukemi/billiards", "shared/a1", "dm_control/hopper"]


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["Euler", "RK4", "implicit", "implicitfast"])
@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
@pytest.mark.parametrize("name", OTHER)
def test_agrees_with_other_options(name, cone, integrator):
    m = CASES[name]()
    m.opt.cone = ["pyramidal", "elliptic"].index(cone)
    m.opt.integrator = ["Euler", "RK4", "implicit", "implicitfast"].index(integrator)
    check(m, compare(m, n=100, seed=3))


# Scenes in which small differences do not grow: 100 steps end within 1e-6.
CALM = ["ukemi/ball", "ukemi/box", "ukemi/pendulum", "ukemi/cartpole", "ukemi/quadruped", "ukemi/arm", "ukemi/quadrotor", "shared/iiwa14"]


@pytest.mark.parametrize("name", few(CALM, "ukemi/box", "ukemi/cartpole", "ukemi/quadruped"))
def test_a_hundred_steps(name):
    m = converged(CASES[name]())
    model, d = uk.load(m), mujoco.MjData(m)
    if m.nkey:
        mujoco.mj_resetDataKeyframe(m, d, 0)
    if name == "ukemi/ball":
        d.qpos[2] -= d.qpos[2] - 0.12  # else it would not land in time
    d.qvel[:] = 0.1 * np.random.default_rng(0).normal(size=m.nv)
    state = uk.initial_state(model, q=d.qpos, v=d.qvel, act=d.act)
    states = uk.rollout(model, state, jnp.broadcast_to(jnp.asarray(d.ctrl), (100, m.nu)), CONVERGED)
    uk.raise_if_failed(states)
    touched = 0
    for k in range(100):
        mujoco.mj_step(m, d)
        touched += d.ncon > 0
        np.testing.assert_allclose(states.q[k], d.qpos, rtol=0, atol=1e-6)
        np.testing.assert_allclose(states.v[k], d.qvel, rtol=0, atol=1e-6)
        np.testing.assert_allclose(states.time[k], d.time, rtol=1e-12)
    assert touched or name.split("/")[1] not in ("ball", "box", "quadruped")
