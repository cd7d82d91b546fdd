"""FromDistance: the derivative is that of the softened law, the motion that of the exact one."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.slow import few
from ukemi.constraints import softness
from ukemi.laws.here import here_of
from ukemi.model.records import as_input

quick = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
RULE = uk.FromDistance(width=0.1, d_0=0.3, onset=0.02)
# a box just above the floor, its corners at several distances
SCENE = """<mujoco><option gravity="0 0 -9" timestep=".004" integrator="{}" cone="{}"/>
  <default><geom friction=".6 .02 .01" condim="4" solref=".03 .9" solimp=".6 .9 .01 .4 2"/></default>
  <worldbody><geom type="plane" size="5 5 1"/>
  <body pos="0 0 .1" euler="10 20 0"><freejoint/><geom type="box" size=".1 .08 .06"/></body>
  </worldbody></mujoco>"""


def start(model, seed=0):
    rng = np.random.default_rng(seed)
    return uk.initial_state(model, v=0.5 * rng.normal(size=model.nv) - np.eye(6)[2])


def softened(model, q, v, method):
    """Acceleration of the law that the rule looks at, from the solver: no derivative involved."""
    state = uk.initial_state(model, q=q, v=v)
    here = here_of(model, state, as_input(model, None))
    zero = jnp.zeros_like(state.v)
    return method._from_distance(RULE, here, zero, None)[0][0][0]


@pytest.mark.slow
@pytest.mark.parametrize("cone", ["elliptic", pytest.param("pyramidal", marks=pytest.mark.slow)])
def test_acceleration_has_the_derivative_of_the_softened_law(cone):
    model = uk.load(SCENE.format("Euler", cone))
    state = start(model)
    exact, rule = uk.Soft(), uk.Soft(gradient=RULE)
    find = quick(partial(softened, model, method=rule))

    def field(q, v, method):
        return uk.vector_field(model, uk.initial_state(model, q=q, v=v), None, method)[1]

    np.testing.assert_array_equal(field(state.q, state.v, exact), field(state.q, state.v, rule))
    assert float(jnp.abs(find(state.q, state.v) - field(state.q, state.v, exact)).max()) > 0.1
    slopes = quick(jax.jacfwd(partial(field, method=rule), argnums=(0, 1)))(state.q, state.v)
    h = 1e-6
    for k in range(model.nv):
        e = jnp.zeros(model.nv).at[k].set(1.0)
        differences = (find(state.q, state.v + h * e) - find(state.q, state.v - h * e)) / (2 * h)
        np.testing.assert_allclose(slopes[1][:, k], differences, rtol=1e-5, atol=1e-5)
    for k in range(3):
        e = jnp.zeros(model.nq).at[k].set(1.0)
        differences = (find(state.q + h * e, state.v) - find(state.q - h * e, state.v)) / (2 * h)
        scale = float(jnp.abs(differences).max())
        np.testing.assert_allclose(slopes[0][:, k], differences, rtol=1e-5, atol=1e-6 * scale + 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["Euler", "implicit"])
def test_linearize_has_the_same_derivative(integrator):
    """The closed form, the vector form forward and reverse, and parameters."""
    model = uk.load(SCENE.format(integrator, "elliptic"))
    state, rule = start(model), uk.Soft(gradient=RULE)
    lin = uk.linearize(model, state, None, rule, wrt="geoms.size")

    def after(v, size):
        geoms = dataclasses.replace(model.geoms, size=size)
        return uk.step(dataclasses.replace(model, geoms=geoms), dataclasses.replace(state, v=v), None, rule).v

    forward = quick(jax.jacfwd(after, argnums=(0, 1)))(state.v, model.geoms.size)
    reverse = quick(jax.jacrev(after, argnums=(0, 1)))(state.v, model.geoms.size)
    np.testing.assert_allclose(lin.A[model.nv :, model.nv :], forward[0], atol=1e-9)
    np.testing.assert_allclose(lin.parameters["geoms.size"][model.nv :], forward[1], atol=1e-9)
    for f, r in zip(forward, reverse):
        np.testing.assert_allclose(f, r, atol=1e-9)
    plain = uk.linearize(model, state)
    assert float(jnp.abs(plain.A - lin.A).max()) > 1e-3
    for mine, theirs in zip((lin.next.q, lin.next.v), (plain.next.q, plain.next.v)):  # bitwise: tests `optimized`
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-15)


def test_impedance_and_deflection_go_on_smoothly():
    """Left of touching the law's own; right of it falling from d₀ to d_c at the width, and no further."""
    solimp, rule = jnp.array([0.3, 0.9, 0.01, 0.5, 2.0]), uk.FromDistance(width=0.1)
    inside = jnp.linspace(-0.02, 0, 9)
    np.testing.assert_array_equal(softness.impedance_ahead(rule, solimp, inside), softness.impedance(solimp, inside))
    r = jnp.linspace(1e-6, 0.0999, 200)
    d = softness.impedance_ahead(rule, solimp, r)
    assert abs(float(d[0]) - 0.3) < 1e-8 and float(d[-1]) < 1e-6 and bool((jnp.diff(d) < 0).all())
    assert float(softness.impedance_ahead(rule, solimp, jnp.array(0.2))) < 1e-12
    pull = softness.deflection_ahead(rule, jnp.array([-0.5, 0.0, 0.5]))
    np.testing.assert_allclose(pull, [-0.5, -0.001 * np.log(2), 0], atol=1e-12)


BALLS = """<mujoco><option gravity="0 0 0" timestep=".01"/>
  <default><geom size=".042" mass=".17" solref=".02 1" solimp="0 .95 .001 .5 2"/></default><worldbody>
  <body pos="-.375 0 0"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/><geom/></body>
  <body pos="-.2 0 0"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/><geom/></body>
  </worldbody></mujoco>"""


@pytest.mark.parametrize("law", few([uk.Soft, uk.Adaptive], uk.Soft))
def test_a_ball_that_misses_has_a_gradient_from_distance_only(law):
    """States with and without the rule, with and without a gradient, are bitwise the same."""
    model, rule = uk.load(BALLS), uk.FromDistance(width=0.3, d_0=0.1)

    def run(speed, method):
        state = uk.initial_state(model, v=jnp.array([1.0, 0, 0, 0]).at[1].set(speed))
        states = uk.rollout(model, state, jnp.zeros((30, 0)), method)
        return states.q[-1, 3], states

    program = jax.jit(jax.value_and_grad(run, has_aux=True), static_argnums=1)
    (miss, plain), nothing = program(1.2, law())
    (_, states), slope = program(1.2, law(gradient=rule))
    without = jax.jit(run, static_argnums=1)(1.2, law(gradient=rule))[1]
    assert miss == 0 and nothing == 0 and abs(float(slope)) > 1e-4
    for a, b, c in zip(*(jax.tree.leaves((s.q, s.v, s.status, s.time)) for s in (plain, states, without))):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    uk.raise_if_failed(states)


def test_more_near_pairs_than_capacity_are_reported():
    """Five balls in reach of one another with room for two contacts: the motion is free of contact, and says so."""
    bodies = "".join(f'<body pos="{0.2 * k} 0 0"><freejoint/><geom size=".05"/></body>' for k in range(5))
    model = uk.load(f'<mujoco><option gravity="0 0 0"/><worldbody>{bodies}</worldbody></mujoco>', contacts=2)
    state = uk.initial_state(model)
    assert int(uk.step(model, state).status) == 0
    after = uk.step(model, state, None, uk.Soft(gradient=uk.FromDistance(width=0.5)))
    assert int(after.status) == uk.Status.FAR_OVERFLOW
    with pytest.raises(uk.StepError, match="FromDistance"):
        uk.raise_if_failed(after)


@pytest.mark.parametrize(
    "options, match",
    [({"width": 0.0}, "width"), ({"width": -1.0}, "width"), ({"d_0": 1.0}, "impedance"), ({"d_c": -0.1}, "impedance"),
     ({"midpoint": 0.0}, "midpoint"), ({"power": 0.5}, "power"), ({"onset": 0.0}, "onset")],
)  # fmt: skip
def test_bad_options_are_refused(options, match):
    with pytest.raises(uk.InputError, match=match):
        uk.FromDistance(**options)


def test_rules_that_a_law_does_not_know_are_refused():
    with pytest.raises(uk.InputError, match="uk.Exact"):
        uk.Soft(gradient="exact")
    with pytest.raises(uk.InputError, match="Exact"):
        uk.check_gradients(uk.load(BALLS), uk.Soft(gradient=RULE))
