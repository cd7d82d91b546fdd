"""Shapes that adhere, and surfaces that run as belts do: against MuJoCo, under rigid laws, and their derivatives."""

import jax
import mujoco
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.reports import check
from tests.scenes.slow import few

# A belt, a turntable on a joint, and what lies on them: a box that adheres, a ball whose own surface runs and that is
# pulled from afar, and a capsule without friction.
SCENE = """
<mujoco>
  <option timestep="0.004" cone="{cone}" integrator="{integrator}" impratio="2"/>
  <default><geom friction=".6 .02 .01"/></default>
  <worldbody>
    <geom type="box" size="2 .5 .1" euler="3 5 0" surfacevel=".8 .1 0 0 0 0" friction=".7"/>
    <body pos="0 1.2 0"><joint axis="0 1 .3" damping="2" stiffness="50"/>
      <geom type="cylinder" size=".6 .1" surfacevel="0 0 .2 .3 -.2 2" adhesion="2"/></body>
    <body name="box" pos="0 0 .197" euler="3 5 0"><freejoint/>
      <geom type="box" size=".2 .15 .1" adhesion="9" gap=".002" condim="{condim}"/></body>
    <body name="ball" pos=".1 1.2 .198"><freejoint/><site name="ball" size=".2"/>
      <geom name="ball" size=".1" condim="{condim}" surfacevel=".3 -.2 .1 .3 .2 .5" adhesion="20" gap=".01"
            margin=".001"/></body>
    <body pos=".7 .1 .13"><freejoint/>
      <geom type="capsule" size=".08 .1" condim="1" adhesion="5" priority="1" gap=".01"/></body>
  </worldbody>
  <sensor><touch site="ball"/><force site="ball"/><accelerometer site="ball"/>
    <contact geom1="ball" data="found force torque dist pos normal linvel"/></sensor>
</mujoco>
"""
COARSE = dict(cone="pyramidal", integrator="Euler", condim=3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "cone, integrator, condim",
    [pytest.param("pyramidal", "Euler", 4, marks=pytest.mark.slow), ("elliptic", "implicitfast", 6)],
)
def test_motion_sensors_and_forces_are_those_of_mujoco(cone, integrator, condim):
    m = mujoco.MjModel.from_xml_string(SCENE.format(cone=cone, integrator=integrator, condim=condim))
    m.opt.tolerance, m.opt.iterations, m.opt.ls_iterations = 0, 300, 100
    model, step, rng, counts = uk.load(m), jax.jit(uk.step), np.random.default_rng(0), []
    for _ in range(16):
        d = mujoco.MjData(m)
        d.qvel[:] = 0.5 * rng.normal(size=m.nv)
        d.qpos[[3, 10, 17]] += rng.uniform(-0.004, 0.004), rng.uniform(-0.012, 0.012), rng.uniform(-0.01, 0.02)
        d.qpos[4:8] += 0.01 * rng.normal(size=4)
        state = uk.initial_state(model, q=d.qpos, v=d.qvel)
        after, report, told = step(model, state), uk.contacts(model, state), uk.sensors(model, state).flat
        mujoco.mj_forward(m, d)
        np.testing.assert_allclose(told, d.sensordata, atol=1e-7)
        np.testing.assert_allclose(_moments(report), _their_moments(m, d), atol=1e-7)
        counts.append((d.ncon, sum(c.dim == 1 for c in d.contact)))
        mujoco.mj_step(m, d)
        np.testing.assert_allclose(after.v, d.qvel, atol=1e-9)
    assert np.ptp(counts, axis=0).all(), "contacts that come and go, and such in the gap"


def _moments(report) -> np.ndarray:
    """Sum of forces and of their moments about the origin, whatever the order of contacts."""
    on, force, point = (np.asarray(x) for x in (report.active, report.force, report.point))
    return np.concatenate([force[on].sum(0), np.cross(point, force)[on].sum(0)])


def _their_moments(m, d) -> np.ndarray:
    total, local = np.zeros(6), np.zeros(6)
    for k, contact in enumerate(d.contact):
        mujoco.mj_contactForce(m, d, k, local)
        force = contact.frame.reshape(3, 3).T @ local[:3]
        total += np.concatenate([force, np.cross(contact.pos, force)])
    return total


# A box of 1 kg on a belt; balls below a ceiling, which their adhesion holds or not, one of them across a gap; and a box
# on a wall, which only friction and adhesion, of four contacts each, keep from sliding down.
RIGID = """
<mujoco>
  <option timestep="0.01" gravity="0 0 -10"/>
  <default><geom friction=".5"/></default>
  <worldbody>
    <geom type="plane" size="9 9 1" surfacevel=".4 0 0 0 0 0"/>
    <geom name="ceiling" type="box" size="5 5 .1" pos="0 0 3.1"/>
    <geom name="wall" type="box" size=".1 5 2" pos="5.1 0 1" surfacevel="1 0 0 0 0 0"/>
    <body pos="0 0 .1"><freejoint/><geom type="box" size=".1 .1 .1" mass="1"/></body>
    <body pos="1 0 2.9"><joint type="slide" axis="0 0 1"/><geom size=".1" mass="1" adhesion="12"/></body>
    <body pos="2 0 2.9"><joint type="slide" axis="0 0 1"/><geom size=".1" mass="1" adhesion="8"/></body>
    <body pos="3 0 2.895"><joint type="slide" axis="0 0 1"/><geom size=".1" mass="1" adhesion="12" gap=".05"/></body>
    <body pos="4.9 0 1.5"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
      <geom type="box" size=".1 .1 .1" mass="1" adhesion="7.5"/></body>
    <body pos="4.9 1 1.5"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
      <geom type="box" size=".1 .1 .1" mass="1" adhesion="3.5"/></body>
  </worldbody>
</mujoco>
"""


@pytest.mark.parametrize("law", few(["LCP", "Impact", "NCP"], "LCP"))
def test_rigid_laws(law):
    model, T = uk.load(RIGID), 40
    states = jax.jit(lambda s: uk.rollout(model, s, np.zeros((T, 0)), getattr(uk, law)()))(uk.initial_state(model))
    uk.raise_if_failed(states)
    q, v, t = np.asarray(states.q), np.asarray(states.v), 0.01 * np.arange(1, T + 1)
    np.testing.assert_allclose(v[:, 0], np.minimum(5 * t, 0.4), atol=1e-3)  # friction takes the box along
    assert abs(v[:, 6]).max() < 1e-3 and abs(q[-1, 7]) < 1e-4  # held
    np.testing.assert_allclose(v[:, 7], -0.02 - 10 * (t - 0.01), atol=1e-3)  # held back for a step, then let go
    assert (q[:, 9] < 0.005 + 1e-6).all() and abs(q[-1, 9] - 0.005) < 1e-4 and abs(v[-1, 8]) < 1e-3  # drawn up and held
    assert abs(v[:, 10]).max() < 1e-3 and abs(q[-1, 11]) < 1e-3  # 0.5 · 30 N hold 10 N
    np.testing.assert_allclose(v[:, 12], -(10 - 7) * t, atol=1e-3)  # 0.5 · 14 N do not


@pytest.mark.slow  # on a smaller scene: test_adhesion.py
@pytest.mark.parametrize("law", ["Soft", "LCP", "NCP"])
def test_derivatives(law):
    m = mujoco.MjModel.from_xml_string(SCENE.format(**COARSE))
    check(m, "geoms.adhesion", "geoms.surface_velocity", "geoms.pos", method=getattr(uk, law)(), share=0.25)
