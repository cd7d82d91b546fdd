"""Small dense linear systems."""

from collections.abc import Callable

import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax import Array, lax


def eliminate(A: Array, B: Array, *, definite: bool = False) -> Array:
    """A⁻¹ B of A (n, n) with positive definite symmetric part and B (n, m), by Gauss–Jordan without pivoting.

    definite: NaN where A, which is symmetric, is not positive definite, as Cholesky's factors would be.

    One fused rank-one update per pivot: for n = 27, m = 75 four times faster than LAPACK's Cholesky and two triangular
    solves, which call a thread pool from eight columns on and then wait for it.
    """
    n = len(A)
    if not n:
        return B

    def pivot(k, T):
        own = np.arange(n)[:, None] == k
        size = jnp.where(T[k, k] > 0, T[k, k], jnp.nan) if definite else T[k, k]
        row = T[k] / size
        return jnp.where(own, row, T - T[:, k, None] * row)

    return lax.fori_loop(0, n, pivot, jnp.concatenate([A, B], -1))[:, n:]


FEW = 18  # unknowns up to which elimination beats LAPACK for one right side


def solve(A: Array, b: Array) -> Array:
    """A⁻¹ b (n,) of symmetric positive definite A (n, n); without reverse mode."""
    if len(A) <= FEW:
        return eliminate(A, b[:, None], definite=True)[:, 0]
    return jsl.cho_solve((lax.linalg.cholesky(A, symmetrize_input=False), True), b)


SMALL = 36  # unknowns up to which loops that are part of a compiled stage beat calls of LAPACK


def factored(A: Array) -> Callable[[Array], Array]:
    """b ↦ A⁻¹ b of any A (n, n), for vectors and matrices b, by LU with partial pivoting.

    Small systems apply L⁻¹ and U⁻¹ one after the other, which is more exact than their product.
    """
    if not len(A):
        return lambda b: b
    if len(A) > SMALL:
        factors, _, order = lax.linalg.lu(A)
        lower = lambda b: jsl.solve_triangular(factors, b[order], lower=True, unit_diagonal=True)  # noqa: E731
        return lambda b: jsl.solve_triangular(factors, lower(b))
    U, L_inverse = _eliminated(A)
    U_inverse = _inverse_of_upper(U)
    return lambda b: U_inverse @ (L_inverse @ b)


def factored_as_it_stands(A: Array) -> Callable[[Array], Array]:
    """The same by A⁻¹ without pivoting, a third of the work, of A whose symmetric part is positive definite.

    What A⁻¹ leaves of b, which is more than factors do, is solved for once more.
    """
    if not 0 < len(A) <= SMALL:
        return factored(A)
    rows = np.arange(len(A))

    def pivot(k, T):  # of Gauss and Jordan, in place: column k of A gives way to that of A⁻¹
        own = rows == k
        row = jnp.where(own, 1.0, T[k]) / T[k, k]
        column = jnp.where(own, 0.0, T[:, k])
        return jnp.where(own[:, None], row, jnp.where(own, 0.0, T) - column[:, None] * row)

    inverse = lax.fori_loop(0, len(A), pivot, A)

    def solved(b: Array) -> Array:
        x = inverse @ b
        return x + inverse @ (b - A @ x)

    return solved


def _eliminated(A: Array) -> tuple[Array, Array]:
    """U and L⁻¹ P of P A = L U. Rows stay where they are until the end; what has been a pivot is left alone."""
    n = len(A)
    rows = np.arange(n)

    def pivot(k, carry):
        T, order, free = carry
        column = T[:, k]
        p = jnp.argmax(jnp.where(free, jnp.abs(column), -1.0))
        free = free & (rows != p)
        factor = jnp.where(free, column / column[p], 0.0)
        return T - factor[:, None] * T[p], jnp.where(rows == k, p, order), free

    start = jnp.concatenate([A, jnp.eye(n, dtype=A.dtype)], -1), jnp.zeros(n, int), jnp.ones(n, bool)
    T, order, _ = lax.fori_loop(0, n, pivot, start)
    T = T[order]
    return T[:, :n], T[:, n:]


def _inverse_of_upper(U: Array) -> Array:
    n = len(U)
    rows = np.arange(n)

    def pivot(i, V):
        k = n - 1 - i
        row = V[k] / U[k, k]
        above = jnp.where(rows < k, U[:, k], 0.0)
        return jnp.where((rows == k)[:, None], row, V - above[:, None] * row)

    return lax.fori_loop(0, n, pivot, jnp.eye(n, dtype=U.dtype))
