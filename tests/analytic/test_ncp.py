"""Hard contact by the interior point: what closed forms, the papers and the law itself say (Dojo, III and V)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.cones import EVERY_ROW, settled
from tests.scenes.derivatives import quick
from tests.scenes.slow import few
from ukemi.checking.modes import tightly

BOX = """<mujoco><option timestep="0.01"/><worldbody><geom type="plane" size="5 5 1" friction="{0}"/>
<body pos="0 0 .25"><freejoint/><geom type="box" size=".25 .25 .25" mass="1" friction="{0}"/></body>
</worldbody></mujoco>"""
NONE = jnp.zeros((300, 0))


@eqx.filter_jit
def roll(model, state, ctrls, method):
    return uk.rollout(model, state, ctrls, method)


def test_a_box_slides_straight_and_as_far_as_friction_says():
    """Dojo, Fig. 5: μ = 0.25, from (4, 0.8) m/s. Implicit steps of h stop it v h / 2 before the parabola's end."""
    model = uk.load(BOX.format(0.25))
    start = uk.initial_state(model, v=[4, 0.8, 0, 0, 0, 0])
    speed, along = np.hypot(4, 0.8), np.array([4, 0.8]) / np.hypot(4, 0.8)
    drift = {}
    for cone in ("elliptic", "pyramidal"):
        states = roll(model, start, NONE, uk.NCP(cone=cone))
        assert int(states.status[-1]) == 0
        x, y, z = np.asarray(states.q[:, :3]).T
        drift[cone] = abs(along[0] * y[-1] - along[1] * x[-1])
        assert z.min() - 0.25 > -1e-7
        if cone == "elliptic":
            far = along @ [x[-1], y[-1]]
            np.testing.assert_allclose(far, speed**2 / (2 * 0.25 * 9.81) - speed * 0.01 / 2, atol=1e-4)
    assert drift["elliptic"] < 1e-6 and drift["pyramidal"] > 0.1  # a bound on each axis alone pulls aside


def test_creep_on_a_slope_is_that_of_the_central_path():
    """v = ρκ/(μγ(1 − ρ²)), ρ = |b|/μγ: what sticks creeps, since κ is not zero."""
    tilt, mu, h = 0.2, 0.5, 0.01
    model = uk.load(f"""<mujoco><option timestep="{h}" gravity="{9.81 * np.sin(tilt)} 0 {-9.81 * np.cos(tilt)}"/>
    <worldbody><geom type="plane" size="5 5 1" friction="{mu}"/><body pos="0 0 .1"><joint type="slide" axis="1 0 0"/>
    <joint type="slide" axis="0 0 1"/><geom size=".1" mass="1" friction="{mu}"/></body></worldbody></mujoco>""")
    gamma, b = 9.81 * np.cos(tilt) * h, 9.81 * np.sin(tilt) * h
    rho = b / (mu * gamma)
    for kappa in (1e-8, 1e-6):
        states = roll(model, uk.initial_state(model), NONE[:60], uk.NCP(kappa=jnp.asarray(kappa)))
        np.testing.assert_allclose(states.v[-1, 0], rho * kappa / (mu * gamma * (1 - rho**2)), rtol=1e-2)


def test_forces_are_on_the_central_path_and_carry_the_weight():
    model = uk.load(BOX.format(0.5))
    kappa = 1e-6
    law = uk.NCP(kappa=kappa)
    state = jax.tree.map(lambda x: x[-1], roll(model, uk.initial_state(model), NONE[:20], law))
    found = uk.contacts(model, state, None, law)
    force, phi = np.asarray(found.force)[np.asarray(found.active)], np.asarray(found.distance)[np.asarray(found.active)]
    np.testing.assert_allclose(force[:, 2].sum(), 9.81, rtol=1e-6)
    np.testing.assert_allclose(0.01 * force[:, 2] * phi, kappa, rtol=1e-2)  # γ φ = κ, but for δ


def test_what_was_inside_is_taken_back_without_velocity():
    model = uk.load(BOX.format(0.5))
    start = uk.initial_state(model, q=[0, 0, 0.24, 1, 0, 0, 0])
    states = roll(model, start, NONE[:30], uk.NCP(correction=0.2))
    depth = 0.25 - np.asarray(states.q[:, 2])
    np.testing.assert_allclose(depth[1:10] / depth[:9], 0.8, rtol=1e-2)
    assert abs(states.v).max() < 1e-3 and int(states.status[-1]) == 0


@pytest.mark.parametrize("what", ["limit", "floor"])
def test_what_presses_does_not_sink(what):
    """It gives by δγ, which is not kept for the next step."""
    range_, floor = ('range="0 1"', "") if what == "limit" else ("", '<geom type="plane" size="5 5 1"/>')
    model = uk.load(f"""<mujoco><option timestep="0.01" gravity="0 0 -1000"/><worldbody>{floor}
    <body pos="0 0 .1"><joint type="slide" axis="0 0 1" {range_}/><geom size=".1" mass="1"/></body></worldbody>
    </mujoco>""")
    states = roll(model, uk.initial_state(model), NONE, uk.NCP())
    depth = -np.asarray(states.q[:, 0])
    assert 1e-9 < depth[0] < 2e-8 and int(states.status[-1]) == 0
    np.testing.assert_allclose(depth[1:], depth[1], rtol=1e-2)


def test_a_ball_bounces_with_its_restitution():
    model = uk.load("""<mujoco><option timestep="0.001"/><worldbody><geom type="plane" size="5 5 1"/><body pos="0 0 .6">
    <joint type="slide" axis="0 0 1"/><geom size=".1" mass="1"/></body></worldbody></mujoco>""")
    model = eqx.tree_at(lambda m: m.geoms.restitution, model, jnp.full(2, 0.5))
    states = roll(model, uk.initial_state(model), jnp.zeros((400, 0)), uk.NCP())
    v = np.asarray(states.v[:, 0])
    k = np.nonzero((v[1:] > 0.5) & (v[:-1] < 0))[0][0]
    np.testing.assert_allclose(v[k + 1], -0.5 * v[k], rtol=1e-5)  # contacts give by δ = 1e-7 of the impulse
    assert int(states.status[-1]) == 0


def test_what_reports_step_is_the_same_law_solved_to_rounding():
    """`check_gradients` takes differences of it."""
    model = uk.load("""<mujoco><worldbody><geom type="plane" size="5 5 1"/><body pos="0 0 .1">
    <joint type="slide" axis="0 0 1"/><joint type="slide" axis="1 0 0"/><geom size=".1" mass="1"/></body>
    </worldbody></mujoco>""")
    state = uk.initial_state(model, v=[-0.1, 0.3])
    plain, tight = (quick(lambda law=law: uk.step(model, state, None, law))() for law in (uk.NCP(), tightly(uk.NCP())))
    assert plain.status == tight.status == 0 and tight.cache.iterations > plain.cache.iterations
    np.testing.assert_allclose(tight.v, plain.v, atol=1e-6)


BALLS = "".join(f'<body pos="{k} 0 .1"><freejoint/><geom size=".1"/></body>' for k in range(8))


def test_contacts_without_room_count_where_they_may_push():
    """Four balls lie on the floor, and four hang within what is looked at, but not within what pushes."""
    model = uk.load(f'<mujoco><worldbody><geom type="plane" size="9 9 1"/>{BALLS}</worldbody></mujoco>', contacts=4)

    @quick
    def step(restitution, lifted):
        bouncy = eqx.tree_at(lambda m: m.geoms.restitution, model, jnp.full(9, restitution))
        q = model.joints.qpos0.reshape(8, 7).at[:, 2].add(lifted)
        return uk.step(bouncy, uk.initial_state(model, q=q.ravel()), method=uk.NCP(kappa=1e-8))

    lifted, lost = np.array([0.0] * 4 + [0.008] * 4), uk.Status.CONTACT_OVERFLOW
    after = step(0.0, lifted)
    assert after.status == 0
    mass, fall = 4 / 3 * np.pi, 9.81 * 0.002
    rise = 1e-8 / (mass * fall * 0.002)  # impulse times gap is κ
    np.testing.assert_allclose(after.v.reshape(8, 6)[:, 2], np.where(lifted > 0, -fall, rise), rtol=0.01)
    # what bounces is looked at as it comes, and a fifth ball on the floor would sink
    assert step(0.5, lifted).status == lost
    assert step(0.0, lifted[[0, 0, *range(1, 7)]]).status & lost


@pytest.mark.slow  # in derivatives of everything at once
def test_every_row_holds():
    model = uk.load(EVERY_ROW.format(condim=6))
    ctrl, law, start = jnp.array([0.6]), uk.NCP(), uk.initial_state(model)
    for steps in (5, 100):
        state = settled(model, steps, ctrl, law)
        assert int(state.status) == 0
        q = dict(zip(model.tree.joint_names, model.tree.joint_qpos, strict=True))
        assert -0.5 - 1e-7 < state.q[q["arm"]] < 0.3 + 1e-7
        np.testing.assert_allclose(state.q[-2:], start.q[-2:], atol=1e-9)  # two links and a fixed end leave no freedom
        found = uk.contacts(model, state, ctrl, law)
        assert np.asarray(found.distance)[np.asarray(found.active)].min() > -1e-7


def test_worlds_in_a_batch_are_as_one_by_one():
    model = uk.load(BOX.format(0.5))
    speeds = jnp.array([[1.0, 0, -1, 0, 2, 0], [0, 0, 0, 0, 0, 0], [0, 3, 0, 0, 0, 1]])
    starts = [uk.initial_state(model, v=v) for v in speeds]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *starts)
    batch = jax.vmap(lambda start: uk.rollout(model, start, NONE[:10], uk.NCP()))(stacked)
    for k, start in enumerate(starts):
        alone = roll(model, start, NONE[:10], uk.NCP())
        np.testing.assert_allclose(batch.q[k], alone.q, atol=1e-9)


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"kappa": 0.0}, r"NCP\(kappa=0.0\): must be a positive number"),
        ({"kappa": jnp.ones(2)}, "must be a positive number"),
        ({"cone": "round"}, "choose one of 'elliptic', 'pyramidal'"),
        ({"gradient": uk.Bounce()}, r"this law offers uk.Exact\(\), uk.CentralPath\(\)"),
        ({"correction": 2}, "must be between 0 and 1"),
        ({"ahead": 0}, "must be positive"),
        ({"iterations": 0}, "must be a positive integer"),
        ({"starts": 13}, "must be an integer from 1 to 12"),
    ],
)
def test_wrong_arguments_are_refused_by_name(wrong, words):
    with pytest.raises(uk.InputError, match=words):
        uk.NCP(**wrong)


@pytest.mark.parametrize("law", few([uk.NCP(), uk.Maximal()], uk.NCP()), ids=["NCP", "Maximal"])
def test_what_turns_about_its_centre_of_mass_stops_at_the_floor(law):
    """MuJoCo gives it no inverse weight, by which gaps and starts are scaled; beside it, what cannot move at all."""
    model = uk.load("""<mujoco><option timestep="0.005"/><worldbody><geom type="plane" size="5 5 .1"/>
    <body pos="0 0 .3"><joint axis="0 1 0"/><geom type="capsule" size=".05 .3" euler="0 60 0" friction="0.3"/></body>
    <body pos="2 0 .3"><joint axis="0 0 1"/><geom type="cylinder" size=".1 .2"/></body></worldbody></mujoco>""")
    assert not np.asarray(model.bodies.invweight)[:, 0].any()
    states = roll(model, uk.initial_state(model, v=[-3, 1]), NONE[:60], law)
    assert int(states.status[-1]) == 0
    low = np.arcsin(0.25 / 0.3) - np.pi / 6  # until the capsule's end is down
    np.testing.assert_allclose(states.q[-1], [-low, 0.3], atol=1e-4)
    np.testing.assert_allclose(states.v[-1], [0, 1], atol=1e-2)
