"""Worlds in which nothing can move: every law steps them, and only time and activations change."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk

EMPTY = "<mujoco/>"
# What else may be there without a degree of freedom: a plane, fixed bodies, a weld between them, a mocap body, an
# actuator whose activation changes all the same.
STILL = """
<mujoco>
  <worldbody>
    <geom type='plane' size='1 1 1'/>
    <body name='fixed'><geom size='.1'/><body pos='1 0 0'><geom size='.1'/><site name='s'/></body></body>
    <body name='led' mocap='true' pos='0 0 1'><geom size='.1'/></body>
  </worldbody>
  <equality><weld body1='fixed' body2='led'/></equality>
  <actuator><general site='s' dyntype='integrator' actlimited='true' actrange='-1 1'/></actuator>
</mujoco>
"""
METHODS = [
    *(uk.Soft(integrator=name) for name in ("Euler", "implicitfast", "implicit", "RK4")),
    *(uk.Soft(solver=name) for name in ("CG", "PGS")),
    uk.Soft(gradient=uk.FromDistance(0.1)),
    uk.LCP(),
    uk.LCP(gradient=uk.Bounce()),
    uk.Impact(),
    uk.Adaptive(),
]


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_a_step_of_an_empty_world_passes_time(method):
    model = uk.load(EMPTY)
    step = uk.linearize(model, uk.initial_state(model), None, method)
    assert step.next.time == model.options.timestep and step.next.status == 0
    assert step.A.shape == step.B.shape == (0, 0)


RULES = [uk.Soft(), uk.LCP(gradient=uk.ComplementarityAware()), uk.Impact(), uk.Adaptive()]


@pytest.mark.parametrize("method", RULES, ids=repr)
def test_activations_move_where_nothing_else_can(method):
    model = uk.load(STILL)
    start = uk.initial_state(model)

    @eqx.filter_value_and_grad(has_aux=True)
    def reached(model):
        end = uk.rollout(model, start, jnp.full((3, 1), 2.0), method)
        return end.act[-1, 0] + end.q.sum(), end

    (_, states), gradient = reached(model)
    np.testing.assert_allclose(states.act[:, 0], 2.0 * states.time, rtol=1e-12)
    assert not states.status.any() and states.q.shape == (3, 0)
    assert gradient.options.timestep == pytest.approx(6.0)
    assert not any(np.any(leaf) for part in (gradient.bodies, gradient.geoms) for leaf in jax.tree.leaves(part))


def test_every_other_function_takes_an_empty_world():
    model = uk.load(EMPTY)
    state, none = uk.initial_state(model), jnp.zeros(0)
    assert uk.inverse(model, state, none).shape == (0,)
    assert uk.energy(model, state) is not None
    assert uk.contacts(model, state) is not None
    assert uk.vector_field(model, state, none) is not None
    assert jax.tree.structure(uk.refresh(model)) == jax.tree.structure(model)
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state)
    np.testing.assert_array_equal(
        jax.vmap(lambda state: uk.step(model, state))(batch).time, [model.options.timestep] * 2
    )
    report = uk.check_gradients(model, samples=1)
    assert report.compared and not report.failed
