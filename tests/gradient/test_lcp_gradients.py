"""Derivatives of rigid contact: all parameters against differences, the gradient rules, and what they leave alone."""

# ruff: noqa: E501  XML reads better unbroken

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.models import CASES
from tests.scenes.reports import check
from tests.scenes.rigid import watch
from ukemi.checking.contact_states import random_states
from ukemi.checking.modes import step_with_mode
from ukemi.laws import method as base
from ukemi.model.records import as_input

LCP = uk.LCP()

# A crawler of few contacts: bouncing, sliding and sticking feet, a knee with limit, spring, damper and dry friction, a
# tail on a connect, a torsional and rolling ball, a hand held by a motion-capture body, and a servo whose damping, which is
# taken implicitly, depends on its control.
CRAWLER = """<mujoco><option timestep="0.01" integrator="implicitfast"/>
<custom><numeric name="restitution" data=".3"/><tuple name="restitution"><element objtype="geom" objname="ball" prm=".8"/></tuple></custom>
<default><geom contype="0" conaffinity="0"/></default><worldbody>
<geom name="floor" type="plane" size="5 5 1" friction=".6" contype="1"/>
<body name="hand" mocap="true" pos="-.6 0 .5"><geom size=".05"/></body>
<body name="trunk" pos="0 0 .2"><freejoint/><geom type="box" size=".2 .1 .03" mass="2"/>
  <geom name="rear" size=".04" pos="-.2 0 -.16" conaffinity="1" friction=".7" mass=".1"/>
  <body pos=".2 0 0"><joint name="knee" axis="0 1 0" range="-25 25" limited="true" damping=".2" stiffness="3" springref="10" frictionloss=".15" armature=".01"/>
    <geom name="foot" type="capsule" fromto="0 -.05 -.16 0 .05 -.16" size=".04" conaffinity="1" mass=".3"/></body>
  <body pos="-.25 0 .05"><joint name="tail" axis="0 1 0" damping=".05"/><geom type="capsule" size=".02" fromto="0 0 0 -.3 0 0" mass=".2"/></body></body>
<body pos=".6 .1 .1"><freejoint/><geom name="ball" size=".1" conaffinity="1" condim="6" friction=".5 .02 .01" mass=".5"/></body>
<body name="held" pos="-.6 0 .4"><freejoint/><geom type="box" size=".03 .05 .02" mass=".3"/></body></worldbody>
<equality><weld body1="hand" body2="held"/><joint joint1="tail" joint2="knee" polycoef="0 .5 .2 0 0"/></equality>
<actuator><general joint="knee" gaintype="affine" gainprm="4 0 -.1" biastype="affine" biasprm="0 -4 -.2" ctrlrange="-1 1"/></actuator></mujoco>"""
EFFECTS = (
    "ctrl", "qfrc", "xfrc", "mocap_pos", "mocap_quat", "bodies.mass", "bodies.inertia", "bodies.ipos", "bodies.pos", "bodies.quat",
    "geoms.pos", "geoms.size", "geoms.quat", "geoms.friction", "geoms.restitution", "geoms.margin", "joints.damping",
    "joints.armature", "joints.stiffness", "joints.qpos_spring", "joints.frictionloss", "joints.range", "joints.pos", "joints.axis",
    "equalities.data", "actuators.gain", "actuators.bias", "actuators.gear", "options.gravity", "options.timestep",
)  # fmt: skip


def test_every_kind_of_row_and_every_parameter():
    check(CRAWLER, *EFFECTS, method=LCP, samples=12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hopper", "quadruped"])
def test_models(name):
    report = check(name, "bodies.mass", "geoms.size", "options.gravity", method=LCP, samples=6)
    assert report.touching


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_all_models(name):
    """Robots of capsules that share an end at a joint are undetermined at many states: that joint on the ground is two
    contacts at one point, of which nothing decides which one rubs (see `STRAIGHT` below).
    """
    m = CASES[name]()
    samples = 40 if name == "shared/cassie" else 20  # one of seven random poses of whose closed legs touches the ground
    report = check(m, "bodies.mass", method=LCP, samples=samples, share=0.3)
    # a finger that seldom finds what it turns, and a ball that slides along the ground at a distance of 0
    if uk.load(m).pairs.layout.groups and name not in ("dm_control/finger", "gymnasium/point"):
        assert report.touching >= 4, str(report)


@pytest.mark.slow
def test_explicit_positions():
    check(CRAWLER, *EFFECTS[:2], method=uk.LCP(explicit=True), samples=6)


# ---- linearize -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crawler():
    """The model, and states in contact."""
    model = uk.load(CRAWLER)
    return model, random_states(model, 6, seed=2, method=LCP)


def test_linearize_is_the_vector_rule_column_by_column(crawler):
    """The two share no derivative code, and differences have shown the vector rule right at such states."""
    model, states = crawler
    linearize = jax.jit(uk.linearize, static_argnames="method")
    columns = jax.jit(lambda *args: base.columns(LCP.step, *args)[1])
    for state, inputs in states:
        lin, J = linearize(model, state, inputs, method=LCP), columns(model, state, inputs)
        np.testing.assert_allclose(jnp.hstack([lin.A, lin.B]), J, atol=1e-9 * max(1.0, float(jnp.abs(J).max())))


@pytest.fixture(scope="module")
def sliding():
    """A hopper whose foot slides, of whose second derivatives the change of forces is most, as the state at a change
    (2nv,) of positions and velocities.
    """
    model = uk.load("hopper")
    state, inputs = random_states(model, 4, seed=2, method=LCP)[3]

    def at(x):
        return uk.State(state.q + x[: model.nv], state.v + x[model.nv :], state.act, state.time, state.status, state.cache)

    return model, at, inputs


def assert_slope(function, nv, rtol, atol, relative=0.0):
    """The derivative of a derivative along all coordinates is its difference; `relative` to the largest entry."""
    along = jnp.ones(2 * nv)
    both = jax.jit(lambda x: jax.jvp(function, (x,), (along,)))
    differences = (both(1e-6 * along)[0] - both(-1e-6 * along)[0]) / 2e-6
    tangent = both(0 * along)[1]
    bound = atol + relative * float(jnp.abs(differences).max())
    np.testing.assert_allclose(tangent, differences, rtol=rtol, atol=bound)
    assert jnp.abs(tangent).max() > 1


@pytest.mark.slow
def test_second_derivatives_are_differences_of_first_ones(sliding):
    model, at, inputs = sliding
    assert uk.contacts(model, at(jnp.zeros(2 * model.nv)), inputs, LCP).active.sum() == 2
    weights = jnp.asarray(np.random.default_rng(0).normal(size=model.nv))

    def loss(x):
        after = uk.step(model, at(x), inputs, LCP)
        return weights @ after.v + weights @ after.q

    assert_slope(jax.grad(loss), model.nv, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_derivatives_of_linearize_are_differences(sliding):
    model, at, inputs = sliding
    assert_slope(lambda x: uk.linearize(model, at(x), inputs, LCP).A, model.nv, rtol=1e-7, atol=0.0, relative=1e-7)


def test_linearize_has_no_reverse_mode():
    model = uk.load(BALL.format(e=0))
    with pytest.raises(uk.GradientError, match="no reverse mode"):
        jax.eval_shape(jax.grad(lambda v: uk.linearize(model, uk.initial_state(model, v=v), None, LCP).A.sum()), jnp.zeros(6))


@pytest.mark.slow
@pytest.mark.optimized
def test_linearize_leaves_the_step_alone(crawler):
    """At many states: where it is rounded otherwise, that may show at one of four only."""
    model, _ = crawler
    states = random_states(model, 24, seed=3, method=LCP)
    linearize, step = (jax.jit(f, static_argnames="method") for f in (uk.linearize, uk.step))
    for state, inputs in states:
        assert_same(linearize(model, state, inputs, method=LCP).next, step(model, state, inputs, method=LCP))


def assert_same(a: uk.State, b: uk.State) -> None:
    for name in ("q", "v", "act", "time", "status", "cache"):
        for x, y in zip(jax.tree.leaves(getattr(a, name)), jax.tree.leaves(getattr(b, name)), strict=True):
            np.testing.assert_array_equal(x, y, err_msg=name)


# ---- gradients leave the states alone ------------------------------------------------------------------------------------


def gradient(method):
    """Value, states and gradients of a loss on a short rollout in start, controls and the model."""

    def loss(v, ctrls, model, state):
        there = uk.State(state.q, v, state.act, state.time, state.status, state.cache)
        states = uk.rollout(model, there, ctrls, method)
        return (states.q**2).sum() + (states.v**2).sum(), states

    return jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True)


@pytest.fixture(scope="module")
def reverse():
    return jax.jit(gradient(LCP))


HOP = """<mujoco><option timestep="0.01"/><worldbody><geom type="plane" size="5 5 1" friction=".6"/>
<body pos="0 0 .1"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint axis="0 1 0"/>
<geom size=".1" mass="1"/><body pos="0 0 .1"><joint name="hip" axis="0 1 0" range="-20 20" limited="true"/>
<geom type="capsule" fromto="0 0 0 .2 0 .2" size=".03" contype="0" conaffinity="0"/></body></body></worldbody>
<actuator><motor joint="hip"/></actuator></mujoco>"""


HOPS = [([0, 0, 0, 0], [2, -0.1, 0, 0.3]), ([0, 0, 0, 0.35], [0.1, 0, 1, 2]), ([0, 0.02, 0.3, 0], [0, -1, 0, 0])]


def starting(name: str, request) -> tuple[uk.Model, list[uk.State]]:
    """A model and three states. The hopping scene starts in contact, near a limit, and in the air."""
    if name == "hop":
        model = uk.load(HOP)
        return model, [uk.initial_state(model, q=q, v=v) for q, v in HOPS]
    model, states = request.getfixturevalue("crawler")
    return model, [state for state, _ in states[:3]]


@pytest.mark.optimized
@pytest.mark.slow
@pytest.mark.parametrize("name", ["hop", "crawler"])
def test_rollouts_with_gradients_are_bitwise_those_without(name, reverse, request):
    model, starts = starting(name, request)
    plain = jax.jit(lambda model, state, ctrls: uk.rollout(model, state, ctrls, LCP))
    ctrls = jnp.asarray(np.random.default_rng(3).normal(size=(12, model.nu)))
    for state in starts:
        (_, found), slopes = reverse(state.v, ctrls, model, state)
        assert_same(found, plain(model, state, ctrls))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hop", "crawler"])
def test_batched_gradients_are_those_of_a_loop(name, request):
    model, starts = starting(name, request)
    ctrls = jnp.asarray(np.random.default_rng(3).normal(size=(4, model.nu)))
    batch = jax.tree.map(lambda *x: jnp.stack(x), *starts)

    def of(state):
        loss = gradient(LCP)
        return loss(state.v, ctrls, model, state)[1][:2]

    together, loop = jax.jit(lambda batch: (jax.vmap(of)(batch), jax.lax.map(of, batch)))(batch)
    for a, b in zip(together, loop, strict=True):
        for k in range(3):
            np.testing.assert_allclose(a[k], b[k], atol=1e-8 * (1 + np.abs(b[k]).max()))
        assert (jnp.abs(b).max(axis=tuple(range(1, b.ndim))) > 0).all()


# ---- the rules -------------------------------------------------------------------------------------------------------------

BALL = """<mujoco><option timestep="0.01"/><custom><numeric name="restitution" data="{e}"/></custom><worldbody>
<geom type="plane" size="5 5 1" condim="1"/><body pos="0 0 .11"><freejoint/><geom size=".1" condim="1"/></body></worldbody></mujoco>"""


@pytest.mark.slow
@pytest.mark.parametrize("e", [1.0, 0.6])
def test_a_bounce_turns_a_displacement_round(e):
    """Nimble, VI: ∂x⁺/∂x = −e and ∂x⁺/∂v = −e h with `Bounce`; the step's own derivative has ∂x⁺/∂x = 1 instead."""
    model, h = uk.load(BALL.format(e=e)), 0.01
    state = uk.initial_state(model, v=[0.2, 0, -3.0, 0, 0, 0])
    for rule, expected in ((uk.Bounce(), -e), (uk.Exact(), 1.0)):
        lin = uk.linearize(model, state, None, uk.LCP(gradient=rule))
        assert abs(lin.next.v[2] - 3 * e) < 1e-12
        n = model.nv
        assert abs(lin.A[2, 2] - expected) < 1e-8 and abs(lin.A[2, n + 2] + e * h) < 1e-8
        assert abs(lin.A[n + 2, n + 2] + e) < 1e-8
        along = np.delete(np.arange(n), 2)  # nothing else turns round
        np.testing.assert_allclose(lin.A[np.ix_(along, along)], np.eye(n - 1), atol=1e-8)
    back = jax.grad(lambda v, z: after_bounce(model, v, z), argnums=(0, 1))(-3.0, 0.11)
    np.testing.assert_allclose(back, [-e * h, -e], atol=1e-8)


def after_bounce(model, v, z):
    state = uk.initial_state(model, q=jnp.array([0, 0, z, 1, 0, 0, 0]), v=jnp.array([0.2, 0, v, 0, 0, 0]))
    return uk.step(model, state, None, uk.LCP(gradient=uk.Bounce())).q[2]


def test_complementarity_aware_gradients_have_no_forward_mode():
    model = uk.load(BALL.format(e=0))
    state, method = uk.initial_state(model), uk.LCP(gradient=uk.ComplementarityAware())
    with pytest.raises(uk.GradientError, match="reverse"):
        uk.linearize(model, state, None, method)
    with pytest.raises(TypeError, match="forward-mode|custom_vjp"):
        jax.jvp(lambda v: uk.step(model, uk.initial_state(model, v=v), None, method).v, (state.v,), (state.v,))


@pytest.mark.slow
def test_complementarity_aware_gradients_leave_the_step_alone_and_let_go():
    """A resting ball that the loss wants higher: the exact gradient of a push is zero, the aware one that of free flight."""
    model = uk.load(BALL.format(e=0).replace('pos="0 0 .11"', 'pos="0 0 .1"'))
    state, found = last_of(watch(model, uk.initial_state(model), 3)), {}
    for rule in (uk.Exact(), uk.ComplementarityAware()):
        method = uk.LCP(gradient=rule)

        def height(push, method=method):
            after = uk.step(model, state, uk.Input(qfrc=jnp.zeros(6).at[2].set(push)), method)
            return -after.v[2], after

        (_, after), slope = jax.value_and_grad(height, has_aux=True)(0.0)
        found[type(rule)] = slope, after
    assert found[uk.Exact][0] == 0
    np.testing.assert_allclose(found[uk.ComplementarityAware][0], -0.01 / model.bodies.mass[1], rtol=1e-9)
    assert_same(found[uk.Exact][1], found[uk.ComplementarityAware][1])


def last_of(watched):
    return jax.tree.map(lambda x: x[-1], watched.states)


# ---- where there is none -----------------------------------------------------------------------------------------------------

STRAIGHT = """<mujoco><option timestep="0.01"/><worldbody><geom type="plane" size="5 5 1" friction=".2"/>
<body pos="0 0 .05"><freejoint/><geom type="capsule" fromto="-.3 0 0 0 0 0" size=".05" friction=".3"/>
<body><joint axis="0 0 1"/><geom type="capsule" fromto="0 0 0 .3 0 0" size=".05" friction=".9"/></body></body></worldbody></mujoco>"""


@pytest.mark.slow
def test_states_that_leave_velocities_open_are_counted_not_compared():
    """Two capsule ends at one point: what their normals share decides on the friction, and nothing decides on that."""
    model = uk.load(STRAIGHT)
    mode = jax.jit(lambda state: step_with_mode(LCP, model, state, as_input(model, None))[1][-1])
    sliding = uk.initial_state(model, v=[0.5, 0.0, 0, 0, 0, 0, 0])
    apart = uk.initial_state(model, q=[0, 0, 0.5, 1, 0, 0, 0, 0], v=[0.5, 0, 0, 0, 0, 0, 0])
    assert mode(sliding) == -1 and mode(apart) == 0
