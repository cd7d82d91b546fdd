"""Springs that yield against MuJoCo, over rollouts."""

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.plastic import compiled
from tests.scenes.reports import check
from tests.scenes.slow import few

STEPS = 14


def with_energy(model, state):
    return state, uk.energy(model, state)


@pytest.mark.parametrize("integrator", few(["Euler", "implicitfast", "implicit", "RK4"], "Euler"))
def test_springs_rest_where_mujoco_leaves_them(integrator):
    m = compiled(integrator)
    m.opt.enableflags |= int(mujoco.mjtEnableBit.mjENBL_ENERGY)
    model, d, rng = uk.load(m), mujoco.MjData(m), np.random.default_rng(0)
    d.qvel[:] = 2 * rng.normal(size=m.nv)
    ctrls, start = rng.normal(size=(STEPS, m.nu)), uk.initial_state(model, v=np.array(d.qvel))
    np.testing.assert_array_equal(start.act[-m.nplastic :], d.plastic)
    states, read = uk.rollout(model, start, jnp.asarray(ctrls), observe=with_energy)[1]
    first = np.array(d.plastic)
    for k, ctrl in enumerate(ctrls):
        d.ctrl[:] = ctrl
        mujoco.mj_step(m, d)
        for found, expected in ((states.q, d.qpos), (states.v, d.qvel), (states.act[:, -m.nplastic :], d.plastic)):
            np.testing.assert_allclose(found[k], expected, atol=1e-10)
        mujoco.mj_forward(m, d)
        np.testing.assert_allclose(read.potential[k], d.energy[0], atol=1e-10)
    assert (d.plastic != first).sum() >= m.nplastic - 2  # every spring has yielded; one lower end stays at zero


LAWS = [uk.LCP(), uk.NCP(), uk.Impact(), uk.Maximal(), uk.Adaptive()]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_every_law_lets_springs_yield(law):
    """A slide that is drawn out beyond what its spring bears rests as far from its end as that."""
    model = uk.load(
        "<mujoco><option timestep='.001' gravity='0 0 0'/><worldbody><body><joint type='slide' stiffness='3' "
        "springyield='.1'/><geom size='.1' mass='1'/></body></worldbody></mujoco>"
    )
    states = uk.rollout(model, uk.initial_state(model, q=[0.0995], v=[1.0]), jnp.zeros((4, 0)), law)
    q = np.asarray(states.q[:, 0])
    assert (np.diff(q) > 0).all()
    np.testing.assert_allclose(states.act[:, 0], np.maximum(q - 0.1, 0), atol=1e-12)


@pytest.mark.slow
def test_derivatives():
    check(compiled(), "act", "joints.springyield", "tendons.springyield", "joints.stiffness", samples=8, share=0.3)
