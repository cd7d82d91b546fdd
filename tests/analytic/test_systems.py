"""Small dense systems against numpy, also where they are hard: large ratios, an odd number of unknowns, none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ukemi.maths.systems import eliminate, factored, factored_as_it_stands, inverse, solve

SIZES = (0, 1, 2, 3, 8, 27, 35)


def matrices(n: int, graded: bool = False):
    """A matrix whose symmetric part is positive definite, its symmetric part, and right sides."""
    rng = np.random.default_rng(n)
    scale = np.diag(10.0 ** rng.uniform(-4, 4, n)) if graded else np.eye(n)
    root = scale @ rng.normal(size=(n, n))
    definite = root @ root.T + scale @ scale
    turned = scale @ (lambda x: x - x.T)(rng.normal(size=(n, n))) @ scale
    return definite + turned, definite, rng.normal(size=(n, 2 * n + 3))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("graded", [False, True])
def test_systems_are_solved(n, graded):
    A, definite, B = matrices(n, graded)
    b = B[:, 0]
    for x, of in ((eliminate(A, B), A), (factored(jnp.asarray(A))(B), A), (inverse(jnp.asarray(A)) @ B, A)):
        np.testing.assert_allclose(x, np.linalg.solve(of, B), rtol=1e-10, atol=1e-11 * np.abs(x).max(initial=1.0))
    np.testing.assert_allclose(factored_as_it_stands(jnp.asarray(A))(b), np.linalg.solve(A, b), rtol=1e-10)
    np.testing.assert_allclose(solve(jnp.asarray(definite), b), np.linalg.solve(definite, b), rtol=1e-9)


def test_what_is_not_definite_is_not_solved_where_it_must_be():
    _, A, B = matrices(5)
    for wrong in (-A, A - 1.1 * np.linalg.eigvalsh(A)[0] * np.eye(5)):
        assert np.isnan(eliminate(jnp.asarray(wrong), B, definite=True)).any()
        assert np.isnan(inverse(jnp.asarray(wrong), definite=True)).any()
        assert np.isnan(solve(jnp.asarray(wrong), B[:, 0])).any()
    assert np.isfinite(eliminate(jnp.asarray(A), B, definite=True)).all()


def test_pivots_are_chosen_where_the_order_of_rows_would_fail():
    A = np.array([[0.0, 1, 2, 0], [1, 0, 0, 0], [0, 1, 2, 1], [3, 0, 1, 0]])
    b = np.arange(1.0, 5)
    np.testing.assert_allclose(factored(jnp.asarray(A))(b), np.linalg.solve(A, b), rtol=1e-12)
    odd = np.roll(np.eye(5), 2, axis=0) + 1e-14
    np.testing.assert_allclose(factored(jnp.asarray(odd))(np.arange(5.0)), np.linalg.solve(odd, np.arange(5.0)))


def test_columns_move_along_tangents():
    A, _, B = matrices(5)
    dA = np.random.default_rng(1).normal(size=A.shape)
    dx = jax.jvp(lambda A: eliminate(A, B), (jnp.asarray(A),), (jnp.asarray(dA),))[1]
    np.testing.assert_allclose(dx, -np.linalg.solve(A, dA @ np.linalg.solve(A, B)), rtol=1e-9)


@pytest.mark.parametrize("n", SIZES[3:])
def test_what_presses_hard_does_not_swamp_the_rest(n):
    """A stiff contact across the first unknowns, as a resting body's: their block, alone, is all but singular."""
    A, _, B = matrices(n)
    J = np.random.default_rng(n).normal(size=n)
    stiff, b = A + 1e11 * np.outer(J, J), B[:, 0]
    y, z = np.linalg.solve(A, b), np.linalg.solve(A, J)
    x = y - z * (J @ y) / (1e-11 + J @ z)  # Sherman, Morrison: without the large numbers
    bound = 1e-4 * np.abs(x).max()
    np.testing.assert_allclose(eliminate(jnp.asarray(stiff), b[:, None])[:, 0], x, atol=bound)
    np.testing.assert_allclose(factored(jnp.asarray(stiff))(b), x, atol=bound)
    np.testing.assert_allclose(factored_as_it_stands(jnp.asarray(stiff))(b), x, atol=bound)
