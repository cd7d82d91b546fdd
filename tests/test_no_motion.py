"""Models in which nothing moves: they step, as nothing, under every law and through every function."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import ukemi as uk
from tests.scenes.slow import few

WORLDS = {
    "empty": "<mujoco/>",
    "fixed": """<mujoco><worldbody><geom type="plane" size="1 1 .1"/>
        <body pos="0 0 .05"><geom type="sphere" size=".1"/></body>
        <body mocap="true"><geom type="sphere" size=".1"/><site name="s"/></body>
      </worldbody><actuator><general name="a" site="s" dyntype="integrator"/></actuator></mujoco>""",
    "joined": """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 .1"/>
        <body name="held"><geom size=".1"/></body>
        <body name="hand" mocap="true" pos="0 0 .05"><geom name="palm" size=".1"/></body>
      </worldbody>
      <equality><weld body1="hand" body2="held"/><connect body1="held" body2="hand" anchor="0 0 0"/></equality>
      <contact><pair geom1="floor" geom2="palm"/></contact></mujoco>""",
}
LAWS = {
    "Soft": uk.Soft(),
    "Soft CG": uk.Soft(solver="CG", integrator="implicitfast"),
    "Soft PGS": uk.Soft(solver="PGS", integrator="implicit"),
    "Soft RK4": uk.Soft(integrator="RK4", cone="elliptic"),
    "LCP": uk.LCP(),
    "NCP": uk.NCP(),
    "Maximal": uk.Maximal(),
    "Impact": uk.Impact(),
    "Adaptive": uk.Adaptive(),
}


CASES = list(itertools.product(WORLDS, LAWS))


@pytest.fixture(scope="module", params=WORLDS)
def model(request):
    return uk.load(WORLDS[request.param])


@pytest.mark.parametrize("case", few(CASES, *((world, "Soft") for world in WORLDS), ("empty", "NCP")), ids="-".join)
def test_every_law_steps(case):
    model, law = uk.load(WORLDS[case[0]]), LAWS[case[1]]
    state, ctrl = uk.initial_state(model), jnp.ones(model.nu)
    found = uk.linearize(model, state, ctrl, law, wrt="options.gravity")
    assert found.next.status == 0
    assert found.next.time == model.options.timestep
    assert found.A.shape == (model.na, model.na) and found.B.shape == (model.na, model.nu)
    assert jnp.allclose(found.next.act, model.options.timestep)  # an integrator goes on where nothing moves

    def end(gravity):
        there = eqx.tree_at(lambda m: m.options.gravity, model, gravity)
        states = uk.rollout(there, state, jnp.ones((2, model.nu)), law)
        return states.time[-1] + states.act.sum() + states.q.sum()

    assert not jax.grad(end)(model.options.gravity).any()


def test_every_function_answers(model):
    state = uk.initial_state(model)
    assert uk.inverse(model, state, jnp.zeros(0)).shape == (0,)
    assert [len(rate) for rate in uk.vector_field(model, state)] == [0, 0, model.na]
    assert uk.energy(model, state).kinetic == 0
    report = uk.contacts(model, state)
    assert report.active.sum() == len(model.pairs.layout.geoms) and not report.force.any()
    assert uk.refresh(model).nv == 0
    with pytest.raises(uk.InputError, match="no degrees of freedom"):
        uk.check_gradients(model)
