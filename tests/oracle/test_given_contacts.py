"""Next states where curved shapes meet: MuJoCo's with our contacts, since it knows its own to its tolerance alone."""

import os

os.environ["JAX_ENABLE_X64"] = "1"

import jax
import mujoco
import numpy as np

import ukemi as uk
from tests.scenes.agreement import CONVERGED, QUICK
from tests.scenes.given import Giver
from tests.scenes.states import converged, load_sample, random_states, stack

jax.config.update("jax_enable_x64", True)

# A fly in little: curved parts that lie in each other in nearly all states, of which one grips.
SCENE = """<mujoco><option cone="elliptic" noslip_iterations="3" timestep="5e-4"/>
<default><geom margin=".002" gap=".002" solref="1e-3 1"/><joint armature=".002" damping=".01"/></default>
<worldbody><geom type="ellipsoid" size=".1 .08 .06"/>
  <body pos=".16 0 .08"><joint axis="0 1 0"/><joint axis="0 0 1"/>
    <geom type="cylinder" size=".04 .05" pos="-.03 0 -.03"/>
    <body pos="0 .06 .03"><joint axis="1 0 0"/><joint axis="0 0 1"/>
      <geom type="capsule" size=".03 .04" pos="-.03 0 0"/></body></body>
  <body pos="0 .12 .1" name="grip"><joint axis="1 0 0"/><joint axis="0 1 0"/>
    <geom type="ellipsoid" size=".05 .03 .04" pos="0 -.03 -.03"/>
    <body pos=".02 .03 .04"><joint type="ball"/><geom type="cylinder" size=".03 .02" pos=".02 -.01 0"/></body></body>
  <body pos=".05 -.12 .1"><joint axis="1 0 0"/><joint axis="0 0 1"/>
    <geom type="capsule" size=".02 .06" pos="-.02 .03 -.03"/></body>
</worldbody><actuator><adhesion body="grip" ctrlrange="0 1" gain="5"/></actuator></mujoco>"""


def _one(model, state, inputs):
    return uk.step(model, state, inputs, CONVERGED), CONVERGED.forward(model, state, inputs).contacts


_all = jax.jit(lambda model, samples: jax.lax.map(lambda s: _one(model, *s), samples), compiler_options=QUICK)


def test_next_state_with_the_same_contacts():
    m = mujoco.MjModel.from_xml_string(SCENE)
    model, m = uk.load(m), converged(m)
    samples = random_states(m, 60)
    moved, found = jax.tree.map(np.asarray, _all(model, stack(model, samples)))
    d, giver, kinds = mujoco.MjData(m), Giver(m, model), set()
    assert giver.can() and not found.overflow.any()
    for k, sample in enumerate(samples):
        contacts = jax.tree.map(lambda x, k=k: x[k], found)
        load_sample(d, sample)
        mujoco.mj_forward(m, d)
        assert giver.forward(d, contacts), k
        giver.advance(d)
        for mine, theirs in ((moved.q[k], d.qpos), (moved.v[k], d.qvel)):
            assert np.abs(mine - theirs).max() < 1e-10 * max(1, np.abs(theirs).max()), k
        kinds |= {tuple(m.geom_type[giver.geoms[pair]].tolist()) for pair in contacts.pair[contacts.active]}
    geom = mujoco.mjtGeom
    assert kinds >= {(geom.mjGEOM_CAPSULE, geom.mjGEOM_ELLIPSOID), (geom.mjGEOM_ELLIPSOID, geom.mjGEOM_CYLINDER)}
