"""Derivatives of hard contact, in state, controls, κ and parameters, against differences; and of its softer rule."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.cones import EVERY_ROW, count, moved, outcome, settled

KAPPA, WIDTH = 1e-4, 0.01
STEP = 3e-7  # of differences: the law bends over distances of κ/γ


@functools.cache
def scene(condim: int, cone: str):
    model, ctrl = uk.load(EVERY_ROW.format(condim=condim)), jnp.array([0.6])
    law = uk.NCP(kappa=KAPPA, ahead=WIDTH, cone=cone)
    return model, settled(model, 20, ctrl, law), ctrl


def after(model, at, ctrl, x, law_of):
    """Where a step leads from a change x; law_of: the law for a relative change of κ."""
    base = uk.step(model, at, ctrl, law_of(0.0))
    model, state, ctrl, change = moved(model, at, ctrl, x, law_of)
    return outcome(model, uk.step(model, state, ctrl, law_of(change)), base)


def hard(cone: str):
    return lambda change: uk.NCP(kappa=KAPPA * (1 + change), ahead=WIDTH, cone=cone)


def relaxed(change):
    return uk.NCP(gradient=uk.CentralPath(kappa=KAPPA * (1 + change), width=WIDTH))


@functools.cache
def differences(condim: int, cone: str) -> np.ndarray:
    """(2 nv, n) of the hard law at KAPPA."""
    model, at, ctrl = scene(condim, cone)
    steps = STEP * jnp.eye(count(model))

    @jax.jit
    def ends(steps):
        return jax.lax.map(lambda x: after(model, at, ctrl, x, hard(cone)), steps, batch_size=16)

    return (np.asarray(ends(steps)) - np.asarray(ends(-steps))).T / (2 * STEP)


def agree(found, wanted, tolerance: float) -> None:
    assert abs(found - wanted).max() < tolerance * max(1.0, abs(wanted).max())


@pytest.mark.parametrize("condim, cone", [(6, "elliptic"), pytest.param(4, "pyramidal", marks=pytest.mark.slow)])
def test_exact_in_everything(condim, cone):
    """Forward and reverse mode, along all of state, controls, κ and parameters."""
    model, at, ctrl = scene(condim, cone)
    assert int(at.status) == 0
    zero, weights = jnp.zeros(count(model)), np.random.default_rng(0).standard_normal(2 * model.nv)
    function = lambda x: after(model, at, ctrl, x, hard(cone))  # noqa: E731
    J = np.asarray(jax.jit(jax.jacfwd(function))(zero))
    agree(J, differences(condim, cone), 1e-6)
    pulled = jax.jit(jax.grad(lambda x: jnp.asarray(weights) @ function(x)))(zero)
    agree(np.asarray(pulled), weights @ J, 1e-10)


def test_central_path_is_the_softer_law_and_moves_nothing():
    """Its derivative is that of the law at its κ; the motion is bitwise that without it."""
    model, at, ctrl = scene(6, "elliptic")
    zero = jnp.zeros(count(model))

    def both(x):
        return after(model, at, ctrl, x, relaxed)

    J = np.asarray(jax.jit(jax.jacfwd(both))(zero))
    rows = slice(model.nv, None)  # positions move by v⁺, which differs between the two
    agree(J[rows], differences(6, "elliptic")[rows], 1e-6)
    plain, ruled = uk.step(model, at, ctrl, uk.NCP()), uk.step(model, at, ctrl, relaxed(0.0))
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(ruled), strict=True))


@pytest.mark.slow  # as `identity` has it for all laws; linearize is made of the columns tested above
def test_the_motion_is_the_same_where_it_is_differentiated():
    model, at, ctrl = scene(6, "elliptic")
    law = hard("elliptic")(0.0)
    plain = uk.step(model, at, ctrl, law)
    along = eqx.filter_jit(
        lambda v: jax.jvp(lambda v: uk.step(model, eqx.tree_at(lambda s: s.v, at, v), ctrl, law).v, (v,), (v,))
    )
    assert np.array_equal(plain.v, along(at.v)[0])
    assert np.array_equal(plain.q, uk.linearize(model, at, ctrl, law).next.q)
