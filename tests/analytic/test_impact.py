"""Rigid contact resolved in time: no intersection, closed-form impacts, and derivatives through their times (Jade)."""

# ruff: noqa: E501  XML reads better unbroken

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from ukemi.collide.sweep.impacts import distance
from ukemi.mechanics.kinematics import difference, integrate, kinematics
from ukemi.simulate.linearization import leaf, replace_leaves

ALLOWED = 1e-9  # penetration [m] at any recorded time

SHEET = """<mujoco><option timestep="0.01"/><worldbody><geom type="box" size="0.5 0.5 0.0005"/>
<body pos="0 0 0.8"><freejoint/><geom type="sphere" size="0.05" mass="1"/></body></worldbody></mujoco>"""

BOX = """<mujoco><option timestep="0.01"/><worldbody><geom type="plane" size="5 5 .1" friction="0.6"/>
<body pos="0 0 0.4" euler="20 35 10"><freejoint/><geom type="box" size="0.1 0.15 0.2" mass="1" friction="0.6"/></body>
</worldbody></mujoco>"""

BALL = """<mujoco><option timestep="0.01"/><custom><numeric name="restitution" data="0.8"/></custom><worldbody>
<geom type="plane" size="5 5 .1"/><body pos="0 0 0.5"><freejoint/><geom type="sphere" size="0.05" mass="1"/></body>
</worldbody></mujoco>"""

# two balls on a frictionless table, the second at rest (Jade, V-B)
BALLS = """<mujoco><option timestep="0.01" gravity="0 0 0"/><custom><numeric name="restitution" data="1"/></custom>
<default><geom type="sphere" size="0.05" mass="1" condim="1"/></default><worldbody>
<body pos="-0.4 0 0"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/><geom/></body>
<body><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/><geom/></body></worldbody></mujoco>"""

# a parallel gripper over a standing plate (Jade, V-A)
GRIPPER = """<mujoco><option timestep="0.01"/><default><geom type="box" friction="0.8"/></default><worldbody>
<geom type="plane" size="2 2 .1"/><body pos="0 0 0.06"><joint name="lift" type="slide" axis="0 0 1"/>
<geom size="0.03 0.02 0.01" pos="0 0 0.05" mass="0.5" contype="0" conaffinity="0"/>
<body pos="0 0.045 0"><joint name="left" type="slide" axis="0 -1 0"/><geom size="0.01 0.005 0.03" mass="0.1"/></body>
<body pos="0 -0.045 0"><joint name="right" type="slide" axis="0 1 0"/><geom size="0.01 0.005 0.03" mass="0.1"/></body>
</body><body pos="0 0 0.05"><freejoint/><geom size="0.05 {half} 0.05" mass="0.1"/></body></worldbody>
<actuator><motor joint="lift"/><motor joint="left"/><motor joint="right"/></actuator></mujoco>"""


@functools.cache
def loaded(text: str) -> uk.Model:
    return uk.load(text)


def rolled(model, state, ctrls):
    states = uk.rollout(model, state, jnp.asarray(ctrls), uk.Impact())
    uk.raise_if_failed(states)
    return states


def deepest(model, states) -> float:
    """Smallest distance between any two shapes at any recorded time [m]."""
    smallest = jax.jit(lambda q: jax.lax.map(lambda q: distance(model, kinematics(model, q)).min(), q))
    return float(smallest(states.q).min())


@pytest.mark.slow
def test_sheet_of_a_millimetre_stops_a_ball_at_50_metres_a_second():
    model = loaded(SHEET)
    states = rolled(model, uk.initial_state(model, v=[0, 0, -50, 0, 0, 0]), np.zeros((10, 0)))
    np.testing.assert_allclose(states.q[1:, 2], 0.0505, atol=ALLOWED)
    assert deepest(model, states) > -ALLOWED


@pytest.mark.slow
def test_box_tumbles_to_rest_without_overlap_or_energy():
    model = loaded(BOX)
    start = uk.initial_state(model, v=[1, 0.5, 0, 3, -2, 1])
    states = rolled(model, start, np.zeros((160, 0)))
    assert deepest(model, states) > -ALLOWED
    energy = jax.jit(jax.vmap(lambda s: uk.energy(model, s).total))(states)
    # displacements of sunk corners and the symplectic step each lift by no more than ½ h² times accelerations ~ 30 m/s²
    assert np.diff(energy).max() < 9.81 * 0.5 * 0.01**2 * 30
    np.testing.assert_allclose(states.v[-1], 0, atol=1e-9)
    np.testing.assert_allclose(states.q[-1, 2], 0.1, atol=ALLOWED)


@pytest.mark.slow
@pytest.mark.parametrize("force", [1.0, 10.0])
@pytest.mark.parametrize("thickness", [0.02, 0.002])
def test_gripper_lifts_a_thin_plate_without_slip(thickness, force):
    model = gripper()
    model = eqx.tree_at(lambda m: m.geoms.size, model, model.geoms.size.at[-1, 1].set(thickness / 2))
    lift = np.where(np.arange(100) < 20, 0.0, 0.8 * 9.81 + 0.3)
    states = rolled(model, uk.initial_state(model), np.stack([lift, np.full(100, force), np.full(100, force)], 1))
    plate, hand = states.q[:, 5], states.q[:, 0]
    assert plate[-1] > plate[0] + 0.05
    # held from the moment both fingers touch
    np.testing.assert_allclose(np.diff(plate - hand)[30:], 0, atol=1e-12)
    assert deepest(model, states) > -ALLOWED


@functools.cache
def gripper() -> uk.Model:
    return uk.load(GRIPPER.format(half=0.01))


def final(velocity):
    model = loaded(BALLS)
    start = uk.initial_state(model, v=jnp.concatenate([velocity, jnp.zeros(2)]))
    return uk.rollout(model, start, jnp.zeros((20, 0)), uk.Impact()).q[-1, 2:]


def closed_form(velocity):
    """Where the second ball is after 0.2 s: it leaves along the line of centres at that part of the velocity."""
    start = jnp.array([-0.4, 0.0])
    a, b, c = velocity @ velocity, start @ velocity, start @ start - 0.1**2
    time = (-b - jnp.sqrt(b * b - a * c)) / a
    normal = -(start + velocity * time) / 0.1
    return (velocity @ normal) * normal * (0.2 - time)


@pytest.mark.slow
def test_two_balls_as_in_closed_form_and_to_their_target():
    start, target = jnp.array([4.0, -0.1]), jnp.array([0.3, 0.2])
    both = jax.jit(jax.jacfwd(lambda v: (final(v),) * 2, has_aux=True))
    J, here = both(start)
    np.testing.assert_allclose(here, closed_form(start), atol=1e-9)
    exact = jax.jacfwd(closed_form)(start)
    np.testing.assert_allclose(J, exact, atol=1e-8)
    velocity = start
    for _ in range(10):
        J, here = both(velocity)
        velocity = velocity - jnp.linalg.solve(J, here - target)
    np.testing.assert_allclose(both(velocity)[1], target, atol=1e-5)  # published: 1.56e-3
    # from (4, −0.1) along the paper's own line, whose first component stays 4: the same shot
    np.testing.assert_allclose(closed_form(velocity), target, atol=1e-8)


@pytest.mark.slow
def test_reverse_mode_through_an_impact():
    start = jnp.array([4.0, -0.1])
    np.testing.assert_allclose(jax.jit(jax.jacrev(final))(start), jax.jacfwd(closed_form)(start), atol=1e-8)


def test_a_bounce_turns_the_derivative_round():
    model = loaded(BALL)
    state = uk.initial_state(model, q=[0, 0, 0.06, 1, 0, 0, 0], v=[0.3, 0, -2, 0, 0, 0])
    lin = uk.linearize(model, state, None, uk.Impact())
    h, e, before = 0.01, 0.8, -2 - 9.81 * 0.01
    time = (0.06 - 0.05) / -before
    np.testing.assert_allclose(lin.A[2, 2], -e, atol=1e-8)
    # x⁺ = e u (h − t) with u the speed at which it falls and t = d/u
    np.testing.assert_allclose(lin.A[2, 8], -e * h, atol=1e-8)
    np.testing.assert_allclose(lin.next.q[2], 0.05 + e * -before * (h - time), atol=1e-9)
    np.testing.assert_allclose(lin.A[8, 8], -e, atol=1e-8)


@pytest.mark.slow
def test_impacts_beyond_the_bound_are_reported():
    """A ball under a ceiling: far above it the floor's impact is the only one, close to it a second one follows."""
    two = uk.load(
        BALL.replace("</worldbody>", '<geom type="plane" size="5 5 .1" pos="0 0 .12" euler="180 0 0"/></worldbody>')
    )
    two = eqx.tree_at(lambda m: m.geoms.restitution, two, jnp.ones(3))
    far = eqx.tree_at(lambda m: m.geoms.pos, two, two.geoms.pos.at[1, 2].set(5.0))
    state = uk.initial_state(two, q=[0, 0, 0.05 + 1e-6, 1, 0, 0, 0], v=[0, 0, -10, 0, 0, 0])
    uk.raise_if_failed(uk.step(far, state, None, uk.Impact(impacts=1)))
    after = uk.step(two, state, None, uk.Impact(impacts=1))
    assert after.status == uk.Status.TOO_MANY_IMPACTS
    assert deepest(two, jax.tree.map(lambda x: x[None], after)) > -ALLOWED
    with pytest.raises(uk.StepError, match="impacts"):
        uk.raise_if_failed(after)


def test_contacts_of_an_impact_that_find_no_room_set_their_bit():
    feet = '<geom type="sphere" size=".05" pos=".1 0 0"/><geom type="sphere" size=".05" pos="-.1 0 0"/>'
    leg = f'<body pos="0 0 .06"><joint type="slide" axis="0 0 1"/>{feet}</body>'
    model = uk.load(f'<mujoco><worldbody><geom type="plane" size="1 1 .1"/>{leg}</worldbody></mujoco>', contacts=1)
    state = uk.initial_state(model, v=[-20.0])
    assert not uk.contacts(model, state, method=uk.Impact()).active.any()
    assert uk.Status(int(uk.step(model, state, None, uk.Impact()).status)) == uk.Status.CONTACT_OVERFLOW


@pytest.mark.slow
@pytest.mark.parametrize("when", [17, 24])
def test_gradient_of_a_tumbling_box_is_that_of_differences(when):
    # restitution in the middle of its range: at zero it has no derivative
    model = eqx.tree_at(lambda m: m.geoms.restitution, loaded(BOX), jnp.full(2, 0.3))
    state = tumbled(when)
    names = ("bodies.mass", "geoms.size", "geoms.friction", "geoms.restitution", "options.gravity", "options.timestep")
    lin = uk.linearize(model, state, None, uk.Impact(), wrt=names)
    rng = np.random.default_rng(when)
    along = {name: rng.normal(size=value.shape[1:]) * 0.1 for name, value in lin.parameters.items()}
    shift = jnp.asarray(rng.normal(size=12))
    want = lin.A @ shift + sum(jnp.tensordot(lin.parameters[n], along[n], along[n].ndim) for n in names)

    @jax.jit
    def moved(size):
        values = {n: leaf(model, n) + size * jnp.asarray(along[n]) for n in names}
        there = eqx.tree_at(
            lambda s: (s.q, s.v),
            state,
            (integrate(model.tree, state.q, shift[:6], size), state.v + size * shift[6:]),
        )
        after = uk.step(replace_leaves(model, values), there, None, uk.Impact())
        return jnp.concatenate([difference(model.tree, after.q, lin.next.q), after.v])

    slopes = [(moved(h) - moved(-h)) / (2 * h) for h in (2e-6, 1e-6)]
    got = (4 * slopes[1] - slopes[0]) / 3
    np.testing.assert_allclose(want, got, rtol=1e-6, atol=1e-6 * np.abs(got).max())


@functools.cache
def tumbled(steps: int) -> uk.State:
    """The box after some steps: a little before it hits the ground, or while it topples on its edge."""
    model = loaded(BOX)
    states = uk.rollout(model, uk.initial_state(model, v=[1, 0.5, 0, 3, -2, 1]), jnp.zeros((steps, 0)), uk.Impact())
    return jax.tree.map(lambda x: x[-1], states)


@pytest.mark.slow
@pytest.mark.optimized
def test_forward_pass_is_the_same_with_derivatives():
    model, state = loaded(BOX), tumbled(17)
    plain = uk.step(model, state, None, uk.Impact())
    lin = uk.linearize(model, state, None, uk.Impact())
    value, _ = jax.jit(
        jax.value_and_grad(lambda v: uk.step(model, eqx.tree_at(lambda s: s.v, state, v), None, uk.Impact()).q.sum())
    )(state.v)
    np.testing.assert_array_equal(plain.q, lin.next.q)
    np.testing.assert_array_equal(plain.v, lin.next.v)
    np.testing.assert_array_equal(jax.jit(lambda q: q.sum())(plain.q), value)


def test_bad_settings_are_refused():
    with pytest.raises(uk.InputError, match="impacts"):
        uk.Impact(impacts=0)
    with pytest.raises(uk.InputError, match="Exact"):
        uk.Impact(gradient=uk.Bounce())


@pytest.mark.slow
def test_second_derivatives_see_that_the_time_of_impact_moves():
    """A capsule that bounces off a slope with friction, turning, in the plane."""
    model = uk.load("""<mujoco><option timestep=".02"/><custom><numeric name="restitution" data=".6"/></custom>
      <worldbody><geom type="plane" size="9 9 1" friction=".5" euler="0 4 0"/><body pos="0 0 .13">
      <joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint axis="0 1 0"/>
      <geom type="capsule" fromto="-.1 0 0 .1 0 0" size=".05" mass="1"/></body></worldbody></mujoco>""")
    start = uk.initial_state(model, q=[0, -0.01, 0.1], v=[0.8, -6, 0.9])
    weights = jnp.asarray([0.3, -0.7, 0.2])

    def loss(x):
        there = dataclasses.replace(start, q=start.q + x[:3], v=start.v + x[3:])
        after = uk.step(model, there, None, uk.Impact())
        return weights @ after.v + 3 * weights @ after.q

    slope, none = jax.jit(jax.grad(loss)), jnp.zeros(6)
    along = jnp.asarray([0.1, 0.2, -0.3, 0.4, 0.5, -0.6])
    differences = (slope(1e-5 * along) - slope(-1e-5 * along)) / 2e-5
    assert jnp.abs(differences).max() > 1
    np.testing.assert_allclose(jax.jvp(slope, (none,), (along,))[1], differences, rtol=1e-6, atol=1e-6)
