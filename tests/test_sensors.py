"""Readings by name, under every law; what cannot be read; rollouts that observe; frames and their Jacobians."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukemi as uk

RESTING = """
<mujoco><option timestep=".002"/><worldbody><geom name="floor" type="plane" size="0 0 .1"/>
  <body name="ball" pos="0 0 .1"><freejoint/><geom name="round" size=".1" mass="2"/>
    <site name="skin" size=".12" quat=".9 .1 .2 .3"/></body>
  <body name="arm" pos="1 0 1"><joint name="hinge" axis="0 1 0" damping=".1"/>
    <geom name="rod" type="capsule" fromto="0 0 0 .3 0 0" size=".03" contype="0" conaffinity="0"/>
    <site name="end" pos=".3 0 0"/></body></worldbody>
  <actuator><motor name="turn" joint="hinge"/></actuator>
  <sensor><accelerometer name="felt" site="skin"/><touch name="weight" site="skin"/><force name="held" site="end"/>
    <framelinvel name="speed" objtype="site" objname="end"/><jointpos name="angle" joint="hinge"/></sensor></mujoco>"""
GRAVITY = 9.81


@pytest.fixture(scope="module")
def model() -> uk.Model:
    return uk.load(RESTING)


def settled(model):
    """A ball at rest on the floor, as deep in it as soft contact lets it sink."""
    q = model.joints.qpos0.at[2].add(-2e-5)
    return uk.initial_state(model, q=q)


@pytest.mark.parametrize("law", ["LCP", pytest.param("NCP", marks=pytest.mark.slow)])
def test_laws_of_impulses_tell_means_over_the_step(model, law):
    """A ball that rests feels gravity and its weight; a hanging rod accelerates as v⁺ − v says."""
    state, method = uk.initial_state(model), getattr(uk, law)()
    read = uk.sensors(model, state, method=method)
    felt = jnp.linalg.norm(read["felt"])
    np.testing.assert_allclose(felt, GRAVITY, rtol=1e-2)  # the interior point lifts the ball a little at first
    np.testing.assert_allclose(read["weight"], 2 * felt, rtol=1e-6)
    after = uk.step(model, state, method=method)
    mean = (after.v[-1] - state.v[-1]) / model.options.timestep
    arm, mass = 0.15, model.bodies.mass[2]
    np.testing.assert_allclose(read["held"], [0, 0, mass * (GRAVITY - mean * arm)], atol=1e-9)


@pytest.mark.slow
def test_forces_of_rigid_laws_have_no_derivative_but_accelerations_do(model):
    state = uk.initial_state(model)

    def turned(x, name):
        return uk.sensors(model, state, x[None], uk.LCP(), names=name)[name].sum()

    with pytest.raises(uk.GradientError, match="names="):
        jax.grad(turned)(0.3, "weight")
    assert jax.grad(lambda x: uk.sensors(model, state, x[None], names="held").flat[2])(0.3) != 0


def test_a_law_without_forces_still_reads_the_rest(model):
    state = uk.initial_state(model)
    with pytest.raises(uk.InputError, match="names="):
        uk.sensors(model, state, method=uk.Impact())
    assert uk.sensors(model, state, method=uk.Impact(), names=("speed", "angle")).flat.shape == (4,)


def test_names_choose(model):
    state = settled(model)
    everything = uk.sensors(model, state)
    some = uk.sensors(model, state, names=("angle", "held"))
    assert some.keys() == ("held", "angle") and "felt" not in some and len(dict(everything)) == 5
    np.testing.assert_array_equal(some.flat, jnp.concatenate([everything["held"], everything["angle"]]))
    with pytest.raises(uk.InputError, match="'felt'"):
        uk.sensors(model, state, names="nose")
    with pytest.raises(uk.InputError, match="'angle'"):
        some["felt"]


def test_what_cannot_be_read_is_named_when_it_is_asked_for():
    late = '<jointpos name="late" joint="hinge" delay=".1" nsample="60"/><user name="mine" dim="2"/></sensor>'
    model = uk.load(RESTING.replace("</sensor>", late))
    read = uk.sensors(model, uk.initial_state(model), names=("angle",))
    assert read.flat.shape == (1,)
    with pytest.raises(uk.UnsupportedModelError, match="'late': delay"):
        uk.sensors(model, uk.initial_state(model), names="late")
    read = uk.sensors(model, uk.initial_state(model))
    assert read["speed"].shape == (3,)
    with pytest.raises(uk.UnsupportedModelError, match="'mine'.*callback"):
        read["mine"]
    with pytest.raises(uk.UnsupportedModelError, match="2 unsupported"):
        read.flat  # noqa: B018


def test_a_rollout_observes_what_its_states_would_tell(model):
    state, ctrls = uk.initial_state(model), jnp.linspace(0, 1, 7)[:, None]

    def observe(model, state):
        return {"read": uk.sensors(model, state), "time": state.time}

    states = uk.rollout(model, state, ctrls)
    expected = jax.vmap(lambda at: uk.sensors(model, at).flat)(states)
    for checkpoint in (None, 3):
        last, told = uk.rollout(model, state, ctrls, observe=observe, checkpoint=checkpoint)
        np.testing.assert_allclose(told["read"].flat, expected, rtol=1e-12, atol=1e-12)
        assert told["read"]["speed"].shape == (7, 3)
        np.testing.assert_array_equal(told["time"], states.time)
        np.testing.assert_array_equal(last.q, states.q[-1])

    def speed(ctrls):
        return uk.rollout(model, state, ctrls, observe=swing)[1].sum()

    def swing(model, state):
        return uk.sensors(model, state, names="speed").flat

    slope, along, h = jax.grad(speed)(ctrls), jnp.ones_like(ctrls), 1e-4
    difference = (speed(ctrls + h * along) - speed(ctrls - h * along)) / (2 * h)
    np.testing.assert_allclose(slope.sum(), difference, rtol=1e-6)
    with pytest.raises(uk.InputError, match="saveat"):
        uk.rollout(model, state, ctrls, uk.Adaptive(saveat=[0.001]), observe=observe)


def test_frames_are_mujocos_and_jacobians_their_slopes(model):
    m = mujoco.MjModel.from_xml_string(RESTING)
    d = mujoco.MjData(m)
    rng = np.random.default_rng(0)
    d.qpos[:], d.qvel[:] = rng.normal(size=m.nq), rng.normal(size=m.nv)
    mujoco.mj_forward(m, d)
    frames = uk.frames(model, uk.initial_state(model, q=d.qpos, v=d.qvel))
    for poses, pos, mat in (
        (frames.bodies, d.xpos, d.xmat),
        (frames.centers, d.xipos, d.ximat),
        (frames.geoms, d.geom_xpos, d.geom_xmat),
        (frames.sites, d.site_xpos, d.site_xmat),
    ):
        np.testing.assert_allclose(poses.pos, pos, atol=1e-12)
        np.testing.assert_allclose(poses.mat.reshape(-1, 9), mat, atol=1e-12)
    np.testing.assert_allclose(frames.bodies.quat, d.xquat, atol=1e-12)
    np.testing.assert_allclose(frames.com, d.subtree_com[0], atol=1e-12)
    np.testing.assert_array_equal(frames.sites["end"].pos, frames.sites[1].pos)
    linear, angular = np.zeros((2, 3, m.nv))
    far = [1.0, 2, 3]
    for given, site, body in (({"site": "end"}, d.site_xpos[1], 2), ({"body": 1, "point": far}, far, 1)):
        mujoco.mj_jac(m, d, linear, angular, np.array(site), body)
        J = frames.jacobian(**given)
        np.testing.assert_allclose(J.linear, linear, atol=1e-12)
        np.testing.assert_allclose(J.angular, angular, atol=1e-12)
    for wrong in ({"site": "nose"}, {"site": 7}, {}, {"site": 0, "body": 0}):
        with pytest.raises(uk.InputError):
            frames.jacobian(**wrong)
