"""Actuators that press bodies onto what they touch, shapes that adhere by themselves, and their derivatives."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.reports import check

# A box on a slope that runs, and a ball beside it, which is within its gap at times and adheres by itself, too.
SCENE = """
<mujoco>
  <option timestep="0.004" cone="{cone}" integrator="implicitfast"/>
  <worldbody>
    <geom type="plane" size="5 5 1" euler="0 20 0" margin=".002" surfacevel=".3 .1 0 0 0 .2"/>
    <body name="box" pos="0 0 .12" euler="0 20 0">
      <freejoint/><geom type="box" size=".2 .15 .1" margin=".002" gap=".003"/>
      <body pos="0 0 .1"><joint name="arm" axis="0 1 0" damping=".1"/>
        <geom type="capsule" size=".04" fromto="0 0 0 .3 0 .2" mass=".2" contype="0" conaffinity="0"/></body>
    </body>
    <body name="ball" pos="0 .31 .12" euler="0 20 0"><freejoint/>
      <geom type="sphere" size=".15" gap=".002" adhesion="3"/></body>
  </worldbody>
  <actuator>
    <adhesion body="box" ctrlrange="0 2" gain="30"/><motor joint="arm" gear="2"/>
    <adhesion body="ball" ctrlrange="0 3" gain="10"/>
  </actuator>
</mujoco>
"""


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_forces_and_motion(cone):
    m = mujoco.MjModel.from_xml_string(SCENE.format(cone=cone))
    m.opt.tolerance, m.opt.iterations = 0, 200
    model, step, rng, counts = uk.load(m), jax.jit(uk.step), np.random.default_rng(0), []
    for _ in range(24):
        d = mujoco.MjData(m)
        d.qvel[:], d.ctrl[:] = 0.5 * rng.normal(size=m.nv), 2 * rng.random(3)
        d.ctrl[1], d.qpos[2] = rng.normal(), d.qpos[2] + rng.uniform(-0.018, -0.008)
        d.qpos[3:7] += 0.01 * rng.normal(size=4)
        d.qpos[10] += 0.0435 + rng.uniform(-0.004, 0.002)
        state, ctrl = uk.initial_state(model, q=d.qpos, v=d.qvel), jnp.asarray(d.ctrl)
        after = step(model, state, ctrl)
        mujoco.mj_step(m, d)
        np.testing.assert_allclose(after.v, d.qvel, atol=1e-9)
        counts.append((d.ncon, sum(c.exclude for c in d.contact)))
    assert np.ptp([n for n, _ in counts]) and max(k for _, k in counts), "contacts that come and go, some in the gap"


@pytest.mark.slow  # `linearize` of what adheres is in the quick set
@pytest.mark.parametrize("law", ["Soft", "LCP", "NCP"])
def test_derivatives(law):
    m = mujoco.MjModel.from_xml_string(SCENE.format(cone="pyramidal"))
    effects = "ctrl", "actuators.gain", "geoms.size", "geoms.adhesion", "geoms.surface_velocity"
    check(m, *effects, method=getattr(uk, law)(), samples=5, share=0.25)
