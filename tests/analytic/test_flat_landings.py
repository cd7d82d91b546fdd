"""Meshes that land flat, under laws that act before shapes overlap: on all corners at once, and so without a turn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.derivatives import quick
from tests.scenes.slow import few

CORNERS = " ".join(f"{x} {y} {z}" for z in (-0.05, 0.05) for x in (-0.1, 0.1) for y in (-0.1, 0.1))
BODIES = {  # on a plate's top at z = 0: a brick whose faces meet the plate's, a rod that lies along it
    "brick": '<body pos="-1 0 .07"><freejoint/><geom type="mesh" mesh="brick"/></body>',
    "rod": '<body pos="1 0 .05"><freejoint/><geom type="capsule" size=".03 .1" euler="90 0 20"/></body>',
}
SCENE = f"""<mujoco><option timestep=".005"/><custom><numeric name="restitution" data="%s"/></custom>
<asset><mesh name="brick" vertex="{CORNERS}"/><mesh name="plate" vertex="{CORNERS}" scale="20 20 1"/></asset>
<worldbody><geom type="mesh" mesh="plate" pos="0 0 -.05"/>{"".join(BODIES.values())}</worldbody></mujoco>"""
LAWS = {"LCP": uk.LCP(), "NCP": uk.NCP(), "Impact": uk.Impact()}
FALLING = [0, 0, -1.0, 0, 0, 0]


@pytest.mark.parametrize("law", few(LAWS, "LCP", "NCP"))
@pytest.mark.parametrize("restitution", few((0.0, 0.5), 0.5))
def test_meshes_that_fall_flat_land_flat(law, restitution):
    model = uk.load(SCENE % restitution)
    state = uk.initial_state(model, v=FALLING * 2)
    states = quick(lambda state: uk.rollout(model, state, jnp.zeros((12, 0)), LAWS[law]))(state)
    v, fall = np.asarray(states.v).reshape(12, 2, 6), 9.81 * 0.005
    assert int(states.status[-1]) == 0
    assert np.abs(v[:, :, [0, 1, 3, 4, 5]]).max() < 1e-9
    # each lands once, and leaves with its share of what it came with, a step's fall included or not
    down, up = v[:, :, 2].min(0), v[:, :, 2].max(0)
    assert (np.abs(up + restitution * down) < fall).all()
    assert (np.asarray(states.q).reshape(12, 2, 7)[:, :, 2] > np.array([0.05, 0.03]) - 1e-6).all()


@pytest.mark.slow
def test_the_time_of_impact_of_a_tilted_mesh_has_its_derivative():
    # several contacts take part, whose heights over a face are not quite the distance that falls to zero
    model = uk.load(SCENE.replace(BODIES["rod"], "") % 0.5)
    q = jnp.asarray(uk.initial_state(model).q).at[2].add(-0.0185)

    def landed(x):
        after = uk.step(model, uk.initial_state(model, q=q.at[2].add(x[0]), v=x[1:]), method=uk.Impact())
        return jnp.concatenate([after.q, after.v])

    x, step = jnp.asarray([0, 0.1, 0.05, -1.0, 0.02, 0.03, 0.01]), quick(landed)
    sides = [step(x + d) - step(x - d) for d in 1e-6 * np.eye(7)]
    np.testing.assert_allclose(quick(jax.jacfwd(landed))(x), np.stack(sides, -1) / 2e-6, atol=1e-6)
