"""Derivatives of a step of a swimmer against central differences: in state, controls, and what describes the fluid."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import ukemi as uk
from tests.scenes.fluids import WIND, swimmer
from ukemi.mechanics.kinematics import difference, integrate
from ukemi.simulate.linearization import leaf, replace_leaves

NAMES = [
    *("geoms.fluid", "geoms.fluid_axes", "geoms.fluid_inertia", "geoms.size"),
    *("options.density", "options.viscosity", "options.wind"),
]
H = 1e-6


@jax.jit
def both(model, given):
    """[A, B], all derivatives by central differences, and the gradient of a weighted sum of the next velocities."""
    flat, unflat = ravel_pytree({name: leaf(model, name) for name in NAMES})
    n, size = 2 * model.nv + model.nu, 2 * model.nv + model.nu + flat.size

    def stepped(at, x):
        q, v = integrate(model.tree, at[0], x[: model.nv], 1.0), at[1] + x[model.nv : 2 * model.nv]
        there = replace_leaves(model, unflat(flat + x[n:]))
        return uk.step(there, uk.initial_state(model, q=q, v=v), at[2] + x[2 * model.nv : n])

    def one(at):
        lin = uk.linearize(model, uk.initial_state(model, q=at[0], v=at[1]), at[2])

        def moved(x):
            after = stepped(at, x)
            return jnp.concatenate([difference(model.tree, after.q, lin.next.q), after.v])

        ahead, behind = jnp.split(jax.lax.map(moved, H * jnp.concatenate([jnp.eye(size), -jnp.eye(size)])), 2)
        back = jax.grad(lambda x: stepped(at, x).v @ at[3])(jnp.zeros(size))
        return jnp.concatenate([lin.A, lin.B], 1), (ahead - behind).T / (2 * H), back

    return jax.lax.map(one, given)


@pytest.mark.slow
@pytest.mark.parametrize("option", [WIND, ""], ids=["moving", "at rest"])
def test_a_step_in_state_controls_and_what_describes_the_fluid(option):
    """At rest in a still fluid every drag has a kink of second order: its slope is zero, and not NaN."""
    m, rng, n = swimmer("implicitfast", option), np.random.default_rng(1), 5
    q = np.repeat(m.qpos0[None], n, 0)
    q[:, m.joint("hinge").qposadr] = 0.1 * rng.uniform(-1, 1, size=(n, 1))  # within its limits
    v, ctrl = (rng.normal(size=(n, k)) * bool(option) for k in (m.nv, m.nu))
    weights = rng.normal(size=(n, m.nv))
    found, expected, back = map(np.asarray, both(uk.load(m), tuple(map(jnp.asarray, (q, v, ctrl, weights)))))
    np.testing.assert_allclose(found, expected[..., : found.shape[-1]], rtol=0, atol=1e-6)
    weighted = np.einsum("nij,ni->nj", expected[:, m.nv :], weights)
    np.testing.assert_allclose(back, weighted, rtol=0, atol=1e-6 * max(1.0, np.abs(weighted).max()))
