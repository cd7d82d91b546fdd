"""Rigid contact by complementarity: closed forms of motion, what energy may do, and what every law must offer."""

# ruff: noqa: E501  XML reads better unbroken

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.rigid import energies, last, preceded, watch
from tests.scenes.slow import few
from ukemi.maths import spatial
from ukemi.simulate.linearization import replace_leaves

G, H, EXACT = 9.81, 0.01, 1e-10


# ---- balls -----------------------------------------------------------------------------------------------------------

BALL = """<mujoco><option timestep="0.01"/><custom><numeric name="restitution" data="{e}"/></custom>
<default><geom condim="{dim}" friction="{mu} {twist} {roll}"/></default><worldbody><geom type="plane" size="50 50 1"/>
<body pos="0 0 {z}"><freejoint/><geom size=".1" mass="2"/></body></worldbody></mujoco>"""
RADIUS, MASS = 0.1, 2.0
INERTIA = 0.4 * MASS * RADIUS**2


def test_a_spinning_ball_slows_down_by_torsional_friction():
    """Ω̇ = −μ_twist m g / I, exactly, to rest."""
    twist = 0.02
    model = uk.load(BALL.format(e=0, dim=4, mu=0.5, twist=twist, roll=0, z=RADIUS))
    out = watch(model, uk.initial_state(model, v=[0, 0, 0, 0, 0, 20.0]), 60)
    expected = np.maximum(20 - twist * MASS * G / INERTIA * H * np.arange(1, 61), 0)
    np.testing.assert_allclose(out.states.v[:, 5], expected, atol=1e-9)
    assert expected[-1] == 0 and out.residual.max() < EXACT


def test_a_rolling_ball_slows_down_by_rolling_friction():
    """Rolling without slip, ω̇ = −μ_roll m g / (I + m r²)."""
    roll, speed = 0.005, 1.0
    model = uk.load(BALL.format(e=0, dim=6, mu=0.5, twist=0.01, roll=roll, z=RADIUS))
    out = watch(model, uk.initial_state(model, v=[speed, 0, 0, 0, speed / RADIUS, 0]), 350)
    slower = roll * MASS * G / (INERTIA + MASS * RADIUS**2) * H * np.arange(1, 351)
    spin = np.maximum(speed / RADIUS - slower, 0)
    np.testing.assert_allclose(out.states.v[:, 0], RADIUS * spin, atol=1e-8)
    assert spin[-1] == 0 and out.residual.max() < EXACT


def test_a_sliding_ball_ends_up_rolling_at_five_sevenths_of_its_speed():
    """Sliding takes μ g per second from the speed and gives 5/2 of it to the rim, exactly in each step."""
    mu, speed = 0.2, 2.0
    model = uk.load(BALL.format(e=0, dim=3, mu=mu, twist=0, roll=0, z=RADIUS))
    out = watch(model, uk.initial_state(model, v=[speed, 0, 0, 0, 0, 0]), 60)
    slid = mu * G * H * np.arange(1, 61)
    expected = np.maximum(speed - slid, 5 / 7 * speed)
    np.testing.assert_allclose(out.states.v[:, 0], expected, atol=1e-9)
    assert out.residual.max() < EXACT


@pytest.mark.parametrize("e", [0.0, 0.5, 0.8, 1.0])
def test_a_ball_bounces_to_e_squared_of_its_height(e):
    """A step that would cross the floor reverses the velocity −v where it starts, at a height 0 ≤ φ < h v.

    Before it the semi-implicit parabola has v²/2g = H − φ − h v/2, after it the apex is at φ + (e v)²/2g + h e v/2, up
    to g h²: together e² H + φ (1 − e²) + h v (e − e²)/2.
    """
    height = 1.0
    model = uk.load(BALL.format(e=e, dim=1, mu=0.5, twist=0, roll=0, z=RADIUS + height))
    out = watch(model, uk.initial_state(model), 100)
    v, z = np.asarray(out.states.v[:, 2]), np.asarray(out.states.q[:, 2]) - RADIUS
    hit = int(np.argmax(v > v[0])) - (e == 0)
    speed, phi = -v[hit - 1], z[hit - 1]
    if e > 0:
        np.testing.assert_allclose(v[hit], e * speed, rtol=1e-12)
    after = z[hit:][: np.argmax(np.append(v[hit:] < 0, True)) + 1].max() if e > 0 else 0.0
    expected = e**2 * height + (phi * (1 - e**2) + H * speed * (e - e**2) / 2 if e > 0 else 0)
    assert abs(after - expected) < G * H**2
    assert z.min() > -1e-9 and out.residual.max() < EXACT


# ---- energy ------------------------------------------------------------------------------------------------------------

CUBES = """<mujoco><option timestep="0.01"/><default><geom friction=".6"/></default><worldbody>
<geom type="plane" size="9 9 1"/><geom type="plane" size="9 9 1" pos="-.4 0 0" euler="0 60 0"/>{}</worldbody></mujoco>"""


def tumbling(n: int) -> str:
    poses = ((-0.1, 0, 0.3, 10, 20), (0.05, 0.03, 0.6, 40, 5), (0, -0.05, 0.95, 15, 70))[:n]
    return "".join(
        f'<body pos="{x} {y} {z}" euler="{a} {b} 0"><freejoint/><geom type="box" size=".1 .1 .1"/></body>'
        for x, y, z, a, b in poses
    )


def change(model, state, out):
    """Change of the total energy (T,) in each step, less the work that weight takes from the displacements."""
    states = preceded(state, out.states)
    weight = np.asarray(model.bodies.mass[1:]) * -float(model.options.gravity[2])
    lifted = np.asarray(out.shift).reshape(len(out.shift), -1, 6)[:, :, 2] @ weight
    return np.diff(np.asarray(energies(model, states).total)) - lifted


def test_energy_never_grows():
    """Cubes tumble down a slope onto each other.

    Their mass matrices are constant, so a step changes the energy by −½ Δv·M Δv + f·J v⁺ apart from the displacement
    that takes back penetration, and every term of f·J v⁺ is negative or zero: no oscillation is to be allowed for.
    """
    model = uk.load(CUBES.format(tumbling(3)), contacts=36)
    state = uk.initial_state(model, v=np.tile([0, 0, -1.0, 2, 3, 1], 3))
    out = watch(model, state, 200)
    assert out.residual.max() < EXACT
    grown = change(model, state, out)
    assert grown.max() < 1e-9 and grown.sum() < -10  # of 57 J at the start; they did fall


def test_taking_back_penetration_leaves_velocities_alone():
    """A cube that starts 2 cm inside of the floor rises by 20% of that per step, and never moves by itself."""
    model = uk.load(
        CUBES.format(tumbling(1)).replace('euler="0 60 0"', 'euler="0 0 0"').replace('pos="-.4 0 0"', 'pos="0 0 -1"')
    )
    state = uk.initial_state(model, q=[0, 0, 0.08, 1, 0, 0, 0])
    out = watch(model, state, 80)
    assert np.abs(out.states.v).max() < 1e-12
    np.testing.assert_allclose(out.states.q[:, 2], 0.1 - 0.02 * 0.8 ** np.arange(1, 81), atol=1e-5)
    never = watch(model, state, 5, uk.LCP(correction=0.0))
    np.testing.assert_allclose(never.states.q[:, 2], 0.08, atol=1e-12)


PILE = """<mujoco><option timestep="0.005"/><custom><numeric name="restitution" data="{e}"/></custom>
<default><geom condim="1"/></default><worldbody><geom type="plane" size="9 9 1"/>
<body pos="0 0 .3"><freejoint/><geom size=".1"/></body><body pos=".04 .02 .7"><freejoint/><geom size=".1"/></body>
<body pos=".3 0 .5"><freejoint/><geom size=".1"/></body></worldbody></mujoco>"""


@pytest.mark.parametrize("e", [0.5, 1.0])
def test_bouncing_balls_gain_no_energy(e):
    """Semi-implicit steps keep E − ½ h m g v_z in free fall, and E itself to O(h); a bounce keeps or lowers the former."""
    model, h = uk.load(PILE.format(e=e), contacts=6), 0.005
    state = uk.initial_state(model)
    out = watch(model, state, 300)
    upward = np.asarray(preceded(state, out.states).v).reshape(301, 3, 6)[:, :, 2] @ np.asarray(model.bodies.mass[1:])
    grown = change(model, state, out) - 0.5 * h * G * np.diff(upward)
    assert grown.max() < 1e-9 and out.residual.max() < EXACT
    assert abs(grown.sum()) < 1e-9 if e == 1 else grown.sum() < -10  # of 62 J at the start


# ---- rows other than contacts --------------------------------------------------------------------------------------------

JOINTS = """<mujoco><option timestep="0.01"/><default><geom contype="0" conaffinity="0"/></default><worldbody>
<body name="swing" pos="0 0 2"><joint name="swing" axis="0 1 0" range="-30 40" limited="true"/><geom pos="0 0 -.4" size=".05" mass="1"/></body>
<body name="sled" pos="0 1 0"><joint name="sled" type="slide" axis="1 0 0" frictionloss="3"/><geom size=".1" mass="1.5"/></body>
<body name="link" pos="0 2 2"><freejoint/><geom type="box" size=".05 .05 .3" mass="1"/></body>
<body name="held" pos=".4 4 2"><freejoint/><geom type="box" size=".05 .1 .3" mass="1"/></body>
<body name="arm" pos="0 4 2"><joint axis="0 1 0" damping=".5"/><geom type="capsule" size=".05" fromto="0 0 0 .4 0 0" mass="1"/></body>
</worldbody><equality><connect body1="link" anchor="0 0 .3"/><weld body1="held" body2="arm"/></equality></mujoco>"""


@pytest.fixture(scope="module")
def swung():
    model = uk.load(JOINTS)
    v = np.zeros(model.nv)
    v[:2] = 6.0, 2.0  # the swing hits its limit, the sled slides
    v[3], v[5] = 0.9, 3.0  # the link turns about its anchor
    state = uk.initial_state(model, v=v)
    return model, state, watch(model, state, 200)


def test_joint_limits_are_never_overshot(swung):
    _, _, out = swung
    assert out.residual.max() < EXACT
    q = np.asarray(out.states.q[:, 0])
    assert q.max() < np.deg2rad(40) + 1e-12 and q.min() > np.deg2rad(-30) - 1e-12
    assert q.max() > np.deg2rad(40) - 1e-9  # it did get there


def test_dry_friction_stops_a_sled_at_its_own_rate(swung):
    """v falls by F h / m to rest, and stays."""
    _, _, out = swung
    expected = np.maximum(2.0 - 3 / 1.5 * H * np.arange(1, 201), 0)
    np.testing.assert_allclose(out.states.v[:, 1], expected, atol=1e-10)


def test_equalities_hold(swung):
    """Velocities along a connect and a weld are zero to rounding; positions drift by O(h²) and are taken back."""
    model, state, out = swung
    q, v = np.asarray(out.states.q), np.asarray(out.states.v)
    R = np.asarray(spatial.quat_to_mat(out.states.q[:, 5:9]))
    anchor = q[:, 2:5] + R[:, :, 2] * 0.3
    start = np.asarray(state.q[2:5]) + [0, 0, 0.3]
    swing = np.linalg.norm(v[:, 5:8], axis=1).max()
    assert swing > 2
    # a rotation by h ω moves the anchor off its tangent by ½ r (h ω)² per step, of which 20% is taken back
    assert np.abs(anchor - start).max() < 0.5 * 0.3 * (H * swing) ** 2 / 0.2
    # the arm swings with what is welded to its end
    arm, held = q[:, 16], q[:, 9:12] - [0, 4, 2]
    assert arm.max() > 1.0
    expected = 0.4 * np.stack([np.cos(arm), 0 * arm, -np.sin(arm)], 1)
    assert np.abs(held - expected).max() < 0.5 * 0.4 * (H * np.abs(v[:, 14]).max()) ** 2 / 0.2


SERVOS = """<mujoco><option timestep="0.01" integrator="implicitfast"/><worldbody>
<body pos="0 0 1"><joint name="a" axis="0 1 0" damping=".3"/><geom size=".05" pos=".3 0 .1" mass="1"/>
<body pos=".3 0 .1"><joint name="b" axis="1 .3 0" damping=".1"/><geom size=".05" pos=".1 .2 0" mass=".5"/><site name="tip" pos=".1 .2 0"/></body></body><site name="base" pos="0 0 .5"/></worldbody>
<actuator><general {drives} gaintype="affine" gainprm="900 0 -3" biastype="affine" biasprm="0 -900 -600"/></actuator></mujoco>"""


@pytest.mark.parametrize("drives", few(['joint="b"', 'site="tip" refsite="base" gear=".3 .8 .5 0 0 0"'], 'joint="b"'))
def test_servos_are_damped_implicitly_where_the_file_says_so(drives):
    """Where nothing touches, both laws are the same motion, of servos that no explicit step would bear."""
    model = uk.load(SERVOS.format(drives=drives))
    state, ctrl = uk.initial_state(model, v=[0.7, -1.1]), jnp.asarray([0.4])
    soft, rigid = (uk.linearize(model, state, ctrl, method) for method in (uk.Soft(), uk.LCP()))
    np.testing.assert_allclose(rigid.next.v, soft.next.v, rtol=1e-12)
    np.testing.assert_allclose(rigid.A, soft.A, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(rigid.B, soft.B, rtol=1e-10, atol=1e-10)
    ctrls = jnp.full((100, 1), 0.4)
    soft, rigid = (uk.rollout(model, state, ctrls, method).v for method in (uk.Soft(), uk.LCP()))
    np.testing.assert_allclose(rigid, soft, atol=1e-9)
    assert np.abs(rigid).max() < 10
    # explicitly, h D is more than twice the inertia
    explicit = dataclasses.replace(model.options.layout, integrator="Euler")
    model = dataclasses.replace(model, options=dataclasses.replace(model.options, layout=explicit))
    assert not np.abs(uk.rollout(model, state, ctrls, uk.LCP()).v).max() < 4 * np.abs(rigid).max()


def test_explicit_positions_move_by_the_old_velocity():
    """Nimble writes q⁺ = q + h v: free fall is then ahead of the parabola by ½ g h t, and nothing penetrates either."""
    model = uk.load(BALL.format(e=0, dim=3, mu=0.5, twist=0, roll=0, z=1.1))
    out = watch(model, uk.initial_state(model, v=[0.3, 0, 0, 0, 0, 0]), 100, uk.LCP(explicit=True))
    t = H * np.arange(1, 101)
    falling = t < 0.4
    expected = 1.1 - 0.5 * G * t**2 + 0.5 * G * H * t
    np.testing.assert_allclose(out.states.q[falling, 2], expected[falling], atol=1e-12)
    assert out.states.q[:, 2].min() > RADIUS - 1e-9 and out.residual.max() < EXACT
    assert abs(out.states.q[-1, 2] - RADIUS) < 1e-9


# ---- what every law offers ---------------------------------------------------------------------------------------------------

SMALL = """<mujoco><option timestep="0.01"/><worldbody><geom type="plane" size="9 9 1"/>
<body pos="0 0 .25" euler="10 20 0"><freejoint/><geom type="box" size=".1 .15 .08"/>
<body pos=".2 0 0"><joint axis="0 1 0" range="-20 20" limited="true" frictionloss=".1"/><geom type="capsule" size=".03 .1"/></body></body>
</worldbody><actuator><motor joint="" gear="1"/></actuator></mujoco>""".replace('joint=""', 'joint="knee"').replace(
    "<joint axis", '<joint name="knee" axis'
)


@pytest.fixture(scope="module")
def small():
    return uk.load(SMALL, contacts=12)


def starts(model, n: int):
    rng = np.random.default_rng(0)
    return [uk.initial_state(model, v=0.5 * rng.normal(size=model.nv)) for _ in range(n)]


@pytest.mark.slow
def test_a_batch_equals_a_loop_and_compiled_equals_eager(small):
    states, ctrls = starts(small, 3), jnp.asarray(np.random.default_rng(1).normal(size=(3, 40, small.nu)))
    run = lambda s, c: uk.rollout(small, s, c, uk.LCP())  # noqa: E731
    together = jax.jit(jax.vmap(run))(jax.tree.map(lambda *x: jnp.stack(x), *states), ctrls)
    compiled = jax.jit(run)
    for k, (state, ctrl) in enumerate(zip(states, ctrls, strict=True)):
        alone = compiled(state, ctrl)
        assert alone.cache.laws["rigid"].rows.any() and not alone.status.any()
        np.testing.assert_allclose(together.q[k], alone.q, rtol=0, atol=1e-12)
        np.testing.assert_allclose(together.v[k], alone.v, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(together.status[k], alone.status)
    inside, outside = jax.jit(uk.step, static_argnames="method"), uk.step
    inputs = small, last(alone), ctrls[0, 0]
    for a, b in zip(*(jax.tree.leaves(f(*inputs, method=uk.LCP())) for f in (inside, outside)), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def test_contacts_that_find_no_room_set_their_bit():
    text = '<mujoco><worldbody><geom type="plane" size="1 1 1"/><body pos="0 0 .1"><freejoint/><geom type="box" size=".1 .1 .1"/></body></worldbody></mujoco>'
    model = uk.load(text, contacts=3)
    out = last(watch(model, uk.initial_state(model), 1, ok=False).states)
    assert int(out.status) & uk.Status.CONTACT_OVERFLOW
    with pytest.raises(uk.StepError, match="contacts"):
        uk.raise_if_failed(out)


def test_what_is_not_a_number_sets_its_bit(small):
    broken = replace_leaves(small, {"bodies.mass": small.bodies.mass.at[1].set(jnp.nan)})
    out = last(watch(broken, uk.initial_state(small), 1, ok=False).states)
    assert int(out.status) & uk.Status.NOT_FINITE


def test_wrong_options_are_refused():
    for options in ({"correction": 1.5}, {"correction": -0.1}, {"ahead": -1.0}, {"gradient": "exact"}):
        with pytest.raises(uk.InputError):
            uk.LCP(**options)
