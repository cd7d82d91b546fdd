"""Derivatives through tendons and muscles against central differences."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes import tendons
from tests.scenes.derivatives import linearized

STATES = 50
# law, whether what has no closed form is there, and the least share of states that differences tell of: hard rows jam
CASES = {
    "Soft": (uk.Soft(), False, 1.0), "limited": (uk.Soft(), True, 1.0), "LCP": (uk.LCP(), False, 0.9),
    "NCP": (uk.NCP(), True, 0.8),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_step_in_state_and_controls(name):
    law, limited, share = CASES[name]
    m = tendons.compiled("implicitfast", limited=limited)
    at = tendons.cases(m, STATES, seed=2)
    given = {"q": at["qpos"], "v": at["qvel"], "act": at["act"], "ctrl": at["ctrl"]}
    off, told = linearized(uk.load(m), law, given)
    assert told.mean() >= share
    assert off[told].max() < 1e-6, np.sort(off[told])[-5:]


GROUPS = {
    "tendons": "stiffness spring damping frictionloss range solref_limit invweight length0 coefficient divisor".split(),
    "actuators": "muscle_gain muscle_bias muscle_time length_range acc0 gear".split(),
    "geoms": ["size", "pos", "quat"],
    "sites": ["pos"],
    "equalities": ["data"],
}


def with_(model, values):
    """The model with fields replaced, `values` by group and field."""
    groups = {name: dataclasses.replace(getattr(model, name), **fields) for name, fields in values.items()}
    return dataclasses.replace(model, **groups)


@jax.jit
def loss(values, model, state, ctrl):
    """A random sum of what a step leads to."""
    w = jnp.asarray(np.random.default_rng(1).normal(size=model.nq + model.nv + model.na))
    after = uk.step(with_(model, values), state, ctrl)
    return w @ jnp.concatenate([after.q, after.v, after.act])


gradient = jax.jit(jax.grad(loss))


def slopes(model, values, along, state, ctrl):
    """Reverse derivatives of a step along random directions, one for each field; and differences."""
    found = jax.tree.map(jnp.vdot, gradient(values, model, state, ctrl), along)
    (leaves, tree), ways, expected = jax.tree.flatten(values), jax.tree.leaves(along), []
    for k, way in enumerate(ways):

        def at(h, k=k, way=way):
            moved = [x + h * way if i == k else x for i, x in enumerate(leaves)]
            return loss(tree.unflatten(moved), model, state, ctrl)

        near, far = ((at(h) - at(-h)) / (2 * h) for h in (1e-5, 2e-5))
        expected.append((4 * near - far) / 3)
    return found, np.array(expected)


def test_a_step_in_every_parameter_of_tendons_and_muscles():
    m = tendons.compiled("Euler", limited=False)
    model, rng = uk.load(m), np.random.default_rng(0)
    values = {group: {name: getattr(getattr(model, group), name) for name in names} for group, names in GROUPS.items()}
    along = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape) * (0.1 + np.abs(x))), values)
    along["geoms"]["size"] *= 0.1
    given, seen = tendons.cases(m, 6, seed=4), []
    for k in range(6):
        state = uk.initial_state(model, q=given["qpos"][k], v=given["qvel"][k], act=given["act"][k])
        found, expected = slopes(model, values, along, state, jnp.asarray(given["ctrl"][k]))
        found = np.array(jax.tree.leaves(found))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * (1 + np.abs(expected).max()))
        seen.append(np.abs(found))
    names = [f"{group}.{name}" for group in sorted(GROUPS) for name in sorted(GROUPS[group])]
    silent = [name for name, most in zip(names, np.max(seen, 0), strict=True) if most == 0]
    assert silent == [], silent


TETHER = """<mujoco><worldbody><site name="w" pos="0 0 1"/><body><joint name="a" axis="0 1 0"/>
<geom size=".1" pos=".3 0 0"/><site name="s" pos=".3 0 0"/></body></worldbody>
<tendon><spatial limited="true" range=".1 1.02"><site site="w"/><site site="s"/></spatial></tendon>
<actuator><motor joint="a"/></actuator></mujoco>"""


@pytest.mark.slow
def test_a_string_that_only_limits_beside_an_actuator_of_a_joint():
    """No force acts along it but that of its row, so that it has no part in the closed form."""
    model = uk.load(TETHER)
    state, ctrl, h = uk.initial_state(model), jnp.array([0.3]), 1e-5

    def loss(ctrl):
        return uk.step(model, state, ctrl).v.sum()

    expected = (loss(ctrl + h) - loss(ctrl - h)) / (2 * h)
    np.testing.assert_allclose(jax.grad(loss)(ctrl)[0], expected, rtol=1e-6)
    np.testing.assert_allclose(uk.linearize(model, state, ctrl).B[1, 0], expected, rtol=1e-6)


def test_a_spring_of_a_tendon_is_elastic_where_it_rests():
    """Where a robot begins: springs without a length of their own rest there."""
    model = uk.load(
        """<mujoco><worldbody><body><joint name="a" axis="0 1 0"/><geom size=".1" pos="0 0 -.3"/></body></worldbody>
        <tendon><fixed stiffness="30 2 1"><joint joint="a" coef="2"/></fixed></tendon></mujoco>"""
    )
    state, h = uk.initial_state(model), 1e-5
    step = jax.jit(lambda q: uk.step(model, uk.initial_state(model, q=q)).v)
    expected = (step(jnp.array([h])) - step(jnp.array([-h]))) / (2 * h)
    np.testing.assert_allclose(uk.linearize(model, state).A[1, 0], expected[0], rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda q: step(q)[0])(state.q), expected, rtol=1e-6)
