"""Controls that arrive late against MuJoCo's history buffers, over rollouts."""

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.forces import build
from tests.scenes.servos import LATE, ORIENTATIONS
from tests.scenes.slow import few

STEPS = 10
PLACES = "joint='hinge'", "joint='slide'", "joint='swing'"
TURN = ORIENTATIONS["held quaternion"].replace("{}", "{} nsample='3' delay='.025' interp='zoh'").format("joint='ball'")


@pytest.mark.parametrize("integrator", few(["Euler", "implicitfast", "implicit", "RK4"], "implicit"))
def test_late_controls_act_as_in_mujoco(integrator):
    late = [kind.format(PLACES[k % 3]) for k, kind in enumerate(LATE.values())]
    m = build(integrator=integrator, actuator="\n".join([*late, TURN, "<motor joint='hinge' nsample='4'/>"]))
    model, d = uk.load(m), mujoco.MjData(m)
    ctrls = np.random.default_rng(0).normal(size=(STEPS, m.nu))
    states = uk.rollout(model, uk.initial_state(model), jnp.asarray(ctrls))
    assert model.na == m.na + (m.actuator_history[:, 0] * m.actuator_ctrlnum)[m.actuator_delay > 0].sum()
    for k, ctrl in enumerate(ctrls):
        d.ctrl[:] = ctrl
        mujoco.mj_step(m, d)
        for found, expected in ((states.q, d.qpos), (states.v, d.qvel), (states.act[:, : m.na], d.act)):
            np.testing.assert_allclose(found[k], expected, atol=1e-9 * (1 + np.abs(expected).max()))
    assert np.abs(d.qvel).max() > 0.1


@pytest.mark.slow
def test_what_is_given_now_acts_later_alone():
    """Under every law: a motor with a delay of two steps."""
    model = uk.load(
        "<mujoco><option timestep='.01' gravity='0 0 0'/><worldbody><body><joint type='slide' name='j'/>"
        "<geom size='.1' mass='2'/></body></worldbody><actuator><motor joint='j' nsample='2' delay='.02'/></actuator>"
        "</mujoco>"
    )
    ctrls, h = jnp.array([[3.0], [1.0], [0.0], [0.0]]), 0.01
    for law in (uk.Soft(), uk.LCP(), uk.NCP(), uk.Impact(), uk.Maximal(), uk.Adaptive()):
        states = uk.rollout(model, uk.initial_state(model), ctrls, law)
        np.testing.assert_allclose(states.v[:, 0], np.array([0, 0, 3, 4]) * h / 2, atol=1e-9)
        np.testing.assert_allclose(states.act, [[3, 0], [1, 3], [0, 1], [0, 0]], atol=1e-12)
    with pytest.raises(uk.InputError, match="controls that arrive late or springs"):
        uk.rollout(model, uk.initial_state(model), ctrls, uk.Adaptive(saveat=[0.005]))
