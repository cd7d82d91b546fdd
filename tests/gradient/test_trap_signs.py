"""Traps that derivatives of other engines have fallen into: signs, factors, rotations, numbers far apart."""

# ruff: noqa: E501  XML reads better unbroken

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.derivatives import (
    ARMS,
    BALLS,
    FLOOR,
    SLIDER,
    assert_exact,
    jacobians,
    quick,
    scene,
)
from tests.scenes.slow import few
from ukemi.mechanics.kinematics import integrate
from ukemi.model.records import as_input

# ---- signs and factors -----------------------------------------------------------------------------------------------

SPINNER = """
<body pos="0 0 1"><freejoint/><geom type="box" size=".1 .2 .3" pos=".1 .05 .2" euler="10 20 30"/>
  <body pos=".2 .1 0"><joint type="ball" damping=".3"/><geom type="box" size=".1 .05 .2" pos=".1 0 .1"/>
    <body pos=".2 0 0"><joint axis="0 1 .3" damping=".2"/><geom type="capsule" size=".04 .1" pos=".1 0 0"/></body></body></body>"""


@pytest.mark.parametrize("integrator", few(["RK4", "implicit", "implicitfast", "Euler"], "RK4"))
def test_integrators_are_not_off_by_factors(integrator):
    """Large steps, large velocities: an integrator whose derivative forgets a stage or a slope is off by per cents."""
    alone = SPINNER.replace("<geom", '<geom contype="0" conaffinity="0"')  # pairs would be compiled for every stage
    model = uk.load(scene(alone, f'integrator="{integrator}" timestep=".02"'))
    rng = np.random.default_rng(1)
    q = integrate(model.tree, model.joints.qpos0, jnp.asarray(0.5 * rng.normal(size=model.nv)), 1.0)
    at = uk.initial_state(model, q=q, v=3 * rng.normal(size=model.nv))
    assert_exact(model, at, tolerance=1e-8)

@pytest.mark.parametrize("solver", few(["Newton", "CG", "PGS"], "Newton"))
@pytest.mark.parametrize("kind", few(["connect", "weld"], "weld"))
def test_equalities_have_the_right_sign_under_every_solver(kind, solver):
    anchor = ' anchor=".1 .05 .02"' if kind == "connect" else ""
    off = scene(ARMS.replace("<geom", '<geom contype="0" conaffinity="0"'), more=f'<equality><{kind} body1="b" body2="c"{anchor}/></equality>')
    model = uk.load(off)
    rng = np.random.default_rng(2)
    at = uk.initial_state(model, v=0.3 * rng.normal(size=model.nv))
    J = assert_exact(model, at, method=uk.Soft(solver=solver), tolerance=1e-6 if solver == "Newton" else 1e-5)
    if kind == "weld":  # the two move as one: what one is given, the other takes over
        assert J[model.nv + 2, model.nv] * J[model.nv, model.nv + 2] > 0


@pytest.mark.parametrize("cone", few(["pyramidal", "elliptic"], "pyramidal"))
def test_friction_in_the_velocity(cone):
    """A box that slides keeps its speed but for a constant; one that sticks loses what it is given."""
    model = uk.load(scene(SLIDER.format(3), f'cone="{cone}"'))
    slides = assert_exact(model, uk.initial_state(model, v=[1.0, 0.05, 0, 0, 0, 0]))
    assert abs(slides[6, 6] - 1) < 0.05
    sticks = assert_exact(model, uk.initial_state(model, v=[1e-5, 0, 0, 0, 0, 0]))
    assert abs(sticks[6, 6]) < 0.9 < slides[6, 6]


def test_a_box_on_a_plane_is_pushed_back_where_it_came_from():
    model = uk.load(scene(SLIDER.format(3)))
    J = assert_exact(model, uk.initial_state(model))
    assert J[8, 2] < 0 and J[8, 8] < 1  # deeper means faster up, a push down is braked
    assert (np.diag(J[9:11, 3:5]) < 0).all()  # a tilt is righted


def test_applied_wrenches_have_a_gradient():
    model = uk.load("humanoid")
    state = uk.initial_state(model)
    body, h = 5, float(model.options.timestep)

    def after(xfrc):
        return uk.step(model, state, uk.Input(xfrc=jnp.zeros((model.tree.nb, 6)).at[body].set(xfrc))).v

    J = np.asarray(quick(jax.jacrev(after))(jnp.zeros(6)))
    M = jax.jit(lambda s: uk.Soft().forward(model, s, as_input(model, None)).smooth.M)(state)
    assert np.abs(J).max(0).min() > 1e-4 and np.abs(J).max() < 10 * h * np.abs(np.linalg.inv(M)).max()
    d = 1e-3
    column = (after(jnp.zeros(6).at[4].set(d)) - after(jnp.zeros(6).at[4].set(-d))) / (2 * d)
    np.testing.assert_allclose(J[:, 4], column, atol=1e-7 * np.abs(J).max())


# ---- rotations -------------------------------------------------------------------------------------------------------
BALL_SERVO = '<actuator><general joint="{}" gear="1 .5 .2" gainprm="3" biastype="affine" biasprm="0 -3 -.1"/></actuator>'


@pytest.mark.parametrize("turn", [0.0, 1e-9, 1e-5, np.pi - 1e-3, np.pi - 1e-9, np.pi, np.pi + 1e-3])
def test_rotations_at_the_identity_and_at_half_a_turn(turn):
    """Springs, limits and servos of balls use the logarithm, which has a kink at half a turn and 0/0 at none."""
    model = uk.load(scene(BALLS.format(60), more=BALL_SERVO.format("b")))
    axis = np.array([0.6, -0.48, 0.64])
    one = np.concatenate([[np.cos(turn / 2)], np.sin(turn / 2) * axis])
    at = uk.initial_state(model, q=np.concatenate([one, one]), v=0.1 * np.arange(6))
    forward, reverse, expected = jacobians(model, at, jnp.ones(1), h=1e-6)
    assert np.isfinite(forward).all() and np.isfinite(reverse).all()
    np.testing.assert_allclose(reverse, forward, atol=1e-11 * (1 + np.abs(forward).max()))
    # across half a turn the force jumps, and at no turn the limit's axis is undefined (though it does not act there)
    if abs(turn - np.pi) > 1e-4:
        np.testing.assert_allclose(forward, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("upright", [True, False])
def test_a_free_body_upright_and_upside_down(upright):
    model = uk.load(scene(FLOOR.format("1 .01 .01") + '<body pos="0 0 .0997"><freejoint/><geom type="box" size=".1 .2 .1"/></body>'))
    q = np.array([0, 0, 0.0997, *([1, 0, 0, 0] if upright else [0, 1, 0, 0])])
    assert_exact(model, uk.initial_state(model, q=q, v=[0.1, 0, 0, 0, 0.1, 0.2]))


# ---- numbers that are far apart ------------------------------------------------------------------------------------------


def test_unlimited_ranges_do_not_turn_into_nan():
    """Limits that do not apply are zero or infinite in the model; neither may reach a derivative."""
    model = uk.load(scene(ARMS, more='<actuator><motor joint="a0"/><position joint="a0" kp="3"/></actuator>'))
    huge = jnp.full_like(model.actuators.ctrl_range, jnp.inf) * jnp.array([-1.0, 1.0])
    actuators = dataclasses.replace(model.actuators, ctrl_range=huge, force_range=huge)
    endless = dataclasses.replace(model, actuators=actuators)
    state = uk.initial_state(model, v=0.1 * np.arange(model.nv))

    @quick
    def gradients(model, v, ctrl):
        def loss(model, v, ctrl):
            there = uk.initial_state(model, q=state.q, v=v)
            return (uk.step(model, there, ctrl).v ** 2).sum()

        return jax.grad(loss, (0, 1, 2))(model, v, ctrl)

    for variant in (model, endless):
        found = gradients(variant, state.v, jnp.array([0.3, -0.2]))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))
        assert np.abs(found[2]).min() > 0


@pytest.mark.slow
@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
@pytest.mark.parametrize("masses", [(1e3, 1e-3), (1e-3, 1e3)])
def test_mass_ratios_of_a_million(masses, cone):
    """A heavy ball on a light one on the floor, and the other way round."""
    body = FLOOR.format(".7 .01 .01") + "".join(
        f'<body pos=".003 0 {z}"><freejoint/><geom size=".1" mass="{mass}"/></body>' for z, mass in zip((0.0996, 0.2992), masses)
    )
    model = uk.load(scene(body, f'cone="{cone}"'))
    at = uk.initial_state(model, v=0.01 * np.random.default_rng(0).normal(size=12))
    assert_exact(model, at, tolerance=1e-5)


def test_parameters_of_a_free_body_in_a_fluid_have_reverse_mode():
    """An integrator that treats its rotation implicitly wrote its part of the solution where that had no transpose."""
    model = uk.load(
        """<mujoco><option integrator="implicitfast" density="1000" viscosity=".01"/>
        <worldbody><body><freejoint/><geom type="capsule" fromto="0 0 0 .3 0 0" size=".05"/></body></worldbody></mujoco>"""
    )
    state = uk.initial_state(model, v=np.linspace(0.1, 1, 6))

    def loss(x):
        there = eqx.tree_at(lambda m: (m.bodies.mass, m.options.gravity), model, (x[0] * model.bodies.mass, x[1:]))
        after = uk.step(there, state)
        return after.q.sum() + after.v.sum()

    both = jax.jit(jax.value_and_grad(loss))
    x = jnp.asarray([1.0, 0.1, 0.2, -9.81])
    steps = 1e-4 * np.eye(4)
    differences = [(both(x + h)[0] - both(x - h)[0]) / 2e-4 for h in steps]
    np.testing.assert_allclose(both(x)[1], differences, rtol=1e-6, atol=1e-9)
