"""Sweeps over friction after the solver, against MuJoCo; and their derivatives."""

import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.derivatives import assert_exact, jacobians
from tests.scenes.robots import shared_robot
from tests.scenes.slow import few

# A box with an arm that rubs slides on the floor, with a ball on top of it.
SCENE = """
<mujoco>
  <option timestep="0.005" cone="{cone}" noslip_iterations="{sweeps}" tolerance="0" iterations="200"
          integrator="{integrator}"/>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body pos="0 0 .1">
      <freejoint/><geom type="box" size=".2 .15 .1" condim="{dim}"/>
      <body pos=".2 0 .1">
        <joint name="arm" axis="0 1 0" frictionloss=".3" damping=".1"/>
        <geom type="capsule" size=".04" fromto="0 0 0 .3 0 .2"/>
      </body>
    </body>
    <body pos="0 0 .35"><freejoint/><geom type="sphere" size=".15" condim="{dim}"/></body>
  </worldbody>
  <actuator><motor joint="arm"/></actuator>
</mujoco>
"""


def scene(cone: str, dim: int, sweeps: int, integrator: str = "Euler") -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(SCENE.format(cone=cone, dim=dim, sweeps=sweeps, integrator=integrator))


def states(m: mujoco.MjModel, n: int = 12):
    """Sliding states in contact, as MuJoCo's data."""
    rng = np.random.default_rng(0)
    for _ in range(n):
        d = mujoco.MjData(m)
        d.qpos[2], d.qpos[7] = 0.0999, 0.3 * rng.normal()
        d.qpos[8:11] = 0.05 * rng.normal(), 0.05 * rng.normal(), 0.349
        d.qvel[:], d.ctrl[:] = 0.3 * rng.normal(size=m.nv), rng.normal(size=1)
        yield d


ISLANDS = """
<mujoco><option noslip_iterations="10" noslip_tolerance="1e-5" tolerance="0" iterations="60"><flag {flag}/></option>
  <worldbody><geom type="plane" size="5 5 1"/>
    <body pos="0 0 .1"><freejoint/><geom type="box" size=".2 .15 .1"/></body>
    <body pos="0 0 .35"><freejoint/><geom size=".15"/></body>
    <body pos="1 0 .1"><freejoint/><geom size=".1" condim="6"/></body>
    <body pos="2 0 .1"><freejoint/><geom type="capsule" size=".1 .2" euler="0 90 0" condim="4"/></body>
  </worldbody></mujoco>
"""


@pytest.mark.parametrize("flag", ["", 'island="disable"'])
def test_each_island_stops_by_itself(flag):
    m = mujoco.MjModel.from_xml_string(ISLANDS.format(flag=flag))
    model, rng, step = uk.load(m), np.random.default_rng(1), jax.jit(uk.step)
    for _ in range(20):
        d = mujoco.MjData(m)
        d.qpos[2::7] -= 1e-4 * rng.uniform(size=4)
        d.qvel[:] = rng.normal(size=m.nv) * 10.0 ** rng.uniform(-4, 0, (4, 1)).repeat(6, 1).ravel()
        after = step(model, uk.initial_state(model, q=d.qpos.copy(), v=d.qvel.copy()), jnp.zeros(0))
        mujoco.mj_step(m, d)
        np.testing.assert_allclose(after.v, d.qvel, atol=1e-9)


CASES = [("pyramidal", 3, 1), ("pyramidal", 6, 4), ("elliptic", 3, 3), ("pyramidal", 4, 20), ("elliptic", 3, 1)]


@pytest.mark.parametrize("case", few(CASES, ("pyramidal", 6, 4), ("elliptic", 3, 3)))
def test_steps_agree_with_mujoco(case):
    cone, dim, sweeps = case
    m = scene(cone, dim, sweeps, "implicitfast")
    model, plain = uk.load(m), uk.load(scene(cone, dim, 0, "implicitfast"))
    step, matters = jax.jit(uk.step), []
    for d in states(m):
        state, ctrl = uk.initial_state(model, q=d.qpos, v=d.qvel), jnp.asarray(d.ctrl)
        after, without = step(model, state, ctrl), step(plain, state, ctrl)
        mujoco.mj_step(m, d)
        # MuJoCo ends its search within the slice of an elliptic cone at 1e-10 of squared force
        np.testing.assert_allclose(after.v, d.qvel, atol=1e-9 if cone == "pyramidal" else 1e-8)
        matters.append(np.abs(after.v - without.v).max())
    assert np.median(matters) > 1e-5, "sweeps that change nothing test nothing"


def test_forces_are_those_of_the_sweeps():
    m = scene("pyramidal", 3, 4)
    model = uk.load(m)
    d = next(states(m))
    found = uk.contacts(model, uk.initial_state(model, q=d.qpos, v=d.qvel), jnp.asarray(d.ctrl))
    mujoco.mj_forward(m, d)
    theirs, total = np.zeros(6), np.zeros(3)
    for k in range(d.ncon):
        mujoco.mj_contactForce(m, d, k, theirs)
        total += d.contact[k].frame.reshape(3, 3).T @ theirs[:3]
    np.testing.assert_allclose(np.asarray(found.force).sum(0), total, atol=1e-8)


@pytest.mark.parametrize("case", few([("pyramidal", 3, 5), ("elliptic", 4, 3)], ("elliptic", 4, 3)))
def test_derivatives(case):
    m = scene(*case)
    model = uk.load(m)
    for d in list(states(m))[::5]:
        assert_exact(model, uk.initial_state(model, q=d.qpos, v=d.qvel), jnp.asarray(d.ctrl))


@pytest.mark.slow  # above, but for how A and B are put together
@pytest.mark.parametrize("case", [("pyramidal", 3, 5), ("elliptic", 4, 3)])
def test_linearize(case):
    m = scene(*case)
    model = uk.load(m)
    for d in list(states(m))[::5]:
        at, ctrl = uk.initial_state(model, q=d.qpos, v=d.qvel), jnp.asarray(d.ctrl)
        A = jacobians(model, at, ctrl)[0]
        np.testing.assert_allclose(uk.linearize(model, at, ctrl).A, A, atol=1e-9 * np.abs(A).max())


def test_a_rule_that_knows_nothing_of_them_is_refused():
    model = uk.load(scene("pyramidal", 3, 1))
    with pytest.raises(uk.GradientError, match="noslip_iterations"):
        uk.step(model, uk.initial_state(model), None, uk.Soft(gradient=uk.FromDistance(width=0.01, d_0=0.1)))


def test_a_robot_that_asks_for_one_sweep():
    m = shared_robot("dynamixel_2r/dynamixel_2r.xml")
    model, rng = uk.load(m), np.random.default_rng(0)
    step = jax.jit(functools.partial(uk.step, method=uk.Soft()))
    for _ in range(200):
        d = mujoco.MjData(m)
        d.qpos[:], d.qvel[:], d.ctrl[:] = (s * rng.normal(size=n) for s, n in ((1, m.nq), (2, m.nv), (1, m.nu)))
        state = uk.initial_state(model, q=d.qpos, v=d.qvel)
        after = step(model, state, jnp.asarray(d.ctrl))
        mujoco.mj_step(m, d)
        np.testing.assert_allclose(np.concatenate([after.q, after.v]), np.concatenate([d.qpos, d.qvel]), atol=1e-9)
