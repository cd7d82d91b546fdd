"""Derivatives through tendons and muscles against central differences."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes import tendons
from tests.scenes.slow import few
from ukemi.mechanics.kinematics import difference, integrate

STATES, SIZES = 50, (1e-6, 1e-5, 1e-4)


@jax.jit
def both(model, law, given):
    """A and B, fourth-order central differences of a step, what one may doubt of these, and the step's status.

    Small differences carry rounding, which is 1e-10 where two limits and an equality jam a joint that they hold by a
    lever of a millimetre; large ones run into what opens and closes. Each column is of the size that is doubted least.
    """

    def stepped(at, x):
        n, na = model.nv, model.na
        q, v = integrate(model.tree, at["qpos"], x[:n], 1.0), at["qvel"] + x[n : 2 * n]
        state = uk.initial_state(model, q=q, v=v, act=at["act"] + x[2 * n : 2 * n + na])
        return uk.step(model, state, at["ctrl"] + x[2 * n + na :], law)

    def one(at):
        state = uk.initial_state(model, q=at["qpos"], v=at["qvel"], act=at["act"])
        lin = uk.linearize(model, state, at["ctrl"], law)
        size = 2 * model.nv + model.na + model.nu

        def moved(x):
            after = stepped(at, x)
            return jnp.concatenate([difference(model.tree, after.q, lin.next.q), after.v, after.act])

        tiny, sizes = 1e-8 * jnp.ones((1, size)), jnp.array(SIZES)
        ways = jnp.concatenate([tiny, -tiny, 0 * tiny, *(h * k * jnp.eye(size) for h in SIZES for k in (1, -1, 2, -2))])
        after = jax.lax.map(moved, ways)  # all in one loop, so that the step is compiled once
        rounding = jnp.abs(after[0] + after[1] - 2 * after[2]).max()
        ahead, behind, far_ahead, far_behind = after[3:].reshape(len(SIZES), 4, size, -1).swapaxes(0, 1)
        near, far = ((ahead - behind).T / (2 * sizes), (far_ahead - far_behind).T / (4 * sizes))
        doubt = jnp.abs(near - far).max(0) / 3 + 30 * rounding / sizes
        best = doubt.argmin(-1)
        expected = jnp.take_along_axis((4 * near - far) / 3, best[None, :, None], -1)[:, :, 0]
        return jnp.concatenate([lin.A, lin.B], 1), expected, doubt.min(-1).max(), lin.next.status

    return jax.lax.map(one, given)


CASES = {"Soft": (uk.Soft(), False), "limited": (uk.Soft(), True), "LCP": (uk.LCP(), False), "NCP": (uk.NCP(), True)}


@pytest.mark.parametrize("name", few(CASES, "Soft"))
def test_a_step_in_state_and_controls(name):
    """limited: with what has no closed form."""
    law, limited = CASES[name]
    m = tendons.compiled("implicitfast", limited=limited)
    given = tendons.cases(m, STATES, seed=2)
    found, expected, doubt, status = map(np.asarray, both(uk.load(m), law, jax.tree.map(jnp.asarray, given)))
    scale = 1 + np.abs(expected).max((1, 2))
    off = np.abs(found - expected).max((1, 2)) / scale
    # elsewhere a string takes off, a limit opens within the differences, or hard rows jam
    smooth = (doubt < 1e-5 * scale) & (status == 0)
    assert np.isfinite(found).all() and smooth.mean() > (0.9 if name in ("Soft", "limited") else 0.8), smooth.mean()
    assert off[smooth].max() < 1e-6, np.sort(off[smooth])[-5:]


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
