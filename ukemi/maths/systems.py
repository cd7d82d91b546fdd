"""Small dense linear systems."""

from collections.abc import Callable

import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax import Array, lax

from ukemi.maths.spatial import materialize

SMALL = 36  # unknowns up to which loops that are part of a compiled stage beat calls of LAPACK
VECTOR = 8  # numbers in what processors work on at a time


def eliminate(A: Array, B: Array, *, definite: bool = False) -> Array:
    """A⁻¹ B of A (n, n) with positive definite symmetric part and B (n, m), by Gauss–Jordan without pivoting.

    definite: NaN where A, which is symmetric, is not positive definite, as Cholesky's factors would be.
    """
    (n, m), T = B.shape, _even(A)
    whole = jnp.concatenate([T, jnp.pad(B, ((0, len(T) - n), (0, 0)))], -1)
    return _swept(whole, definite=definite)[:n, len(T) : len(T) + m] if n else B


def inverse(A: Array, *, definite: bool = False) -> Array:
    """A⁻¹ (n, n) in the same way."""
    return _swept(_even(A), definite=definite, inverts=True)[: len(A), : len(A)] if len(A) else A


def _even(A: Array) -> Array:
    """A of an even number of unknowns: the one that is added is nobody's."""
    more = len(A) % 2
    return jnp.pad(A, (0, more)) + np.diag(np.arange(len(A) + more) >= len(A)).astype(A.dtype) if more else A


def _swept(T: Array, *, definite: bool = False, inverts: bool = False) -> Array:
    """[one, A⁻¹ B] of T = [A, B], by Gauss and Jordan; inverts: [A⁻¹, A⁻¹ B], whose columns come in the place of A's.

    Two pivots at a time halve the passes over T, and a pass that finds its rows and columns written down is one fused
    sum, of vectors where rows are as long as these: for 27 unknowns a fifth of the time of a pass per pivot. The second
    pivot is what the first leaves: the determinant of both would cancel where a stiff contact is in either row.
    """
    T = jnp.pad(T, ((0, 0), (0, -T.shape[1] % VECTOR)))
    rows, columns, two = np.arange(len(T))[:, None], np.arange(T.shape[1]), np.arange(2)

    def pivots(i, T):
        k, own, mine = 2 * i, rows // 2 == i, columns // 2 == i
        across, down = lax.dynamic_slice_in_dim(T, k, 2, 0), lax.dynamic_slice_in_dim(T, k, 2, 1)
        (a, b), (c, d) = lax.dynamic_slice(T, (k, k), (2, 2))
        ratio = b / a
        second = d - c * ratio
        if definite:
            second = jnp.where((a > 0) & (second > 0), second, jnp.nan)
        across = jnp.where(mine, columns == k + two[:, None], across) if inverts else across
        p = across[0] / a
        q = (across[1] - c * p) / second
        first, other = jnp.where(rows == k, -1.0, jnp.where(own, 0.0, down[:, :1])), down[:, 1:]
        other = jnp.where(own, jnp.where(rows == k, ratio, -1.0), other - first * ratio)
        p, q, first, other = materialize((p, q, first, other))
        return jnp.where(own | mine if inverts else own, 0.0, T) - first * p - other * q

    return lax.fori_loop(0, len(T) // 2, pivots, T)


def solve(A: Array, b: Array) -> Array:
    """A⁻¹ b (n,) of symmetric positive definite A (n, n); NaN where it is not definite."""
    if len(A) <= SMALL:  # JAX cannot transpose a loop over what is linear, but knows the rule for the solution
        return lax.custom_linear_solve(
            lambda x: A @ x, b, lambda _, b: eliminate(A, b[:, None], definite=True)[:, 0], symmetric=True
        )
    return jsl.cho_solve((lax.linalg.cholesky(A, symmetrize_input=False), True), b)


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
    n, T = len(A), _even(A)
    U, L_inverse = _eliminated(T)
    U_inverse, L_inverse = _inverse_of_upper(U)[:n], L_inverse[:, :n]
    return lambda b: U_inverse @ (L_inverse @ b)


def factored_as_it_stands(A: Array) -> Callable[[Array], Array]:
    """The same by A⁻¹ without pivoting, a third of the work, of A whose symmetric part is positive definite.

    What A⁻¹ leaves of b, which is more than factors do, is solved for once more.
    """
    if not 0 < len(A) <= SMALL:
        return factored(A)
    inverted = inverse(A)

    def solved(b: Array) -> Array:
        x = inverted @ b
        return x + inverted @ (b - A @ x)

    return solved


def _eliminated(A: Array) -> tuple[Array, Array]:
    """U and L⁻¹ P of P A = L U, two columns at a time. Rows stay where they are until the end; what has been a pivot is
    left alone.
    """
    n = len(A)
    rows = np.arange(n)

    def chosen(column: Array, free: Array) -> tuple[Array, Array, Array]:
        """The pivot's row, what is still free, and what to take of that row from each."""
        p = jnp.argmax(jnp.where(free, jnp.abs(column), -1.0))
        free = free & (rows != p)
        return p, free, jnp.where(free, column / column[p], 0.0)

    def pivots(i, carry):
        T, order, free = carry
        first, second = lax.dynamic_slice_in_dim(T, 2 * i, 2, 1).T
        p, free, by_p = chosen(first, free)
        q, free, by_q = chosen(second - by_p * second[p], free)
        one = T[p]
        order = jnp.where(rows == 2 * i, p, jnp.where(rows == 2 * i + 1, q, order))
        one, other, by_p, by_q = materialize((one, T[q] - by_p[q] * one, by_p, by_q))
        return T - by_p[:, None] * one - by_q[:, None] * other, order, free

    start = jnp.concatenate([A, jnp.eye(n, dtype=A.dtype)], -1), jnp.zeros(n, int), jnp.ones(n, bool)
    T, order, _ = lax.fori_loop(0, n // 2, pivots, start)
    T = T[order]
    return T[:, :n], T[:, n:]


def _inverse_of_upper(U: Array) -> Array:
    n = len(U)
    rows = np.arange(n)[:, None]

    def pivots(i, V):
        k = n - 2 - 2 * i
        (a, b), (_, d) = lax.dynamic_slice(U, (k, k), (2, 2))
        own = lax.dynamic_slice_in_dim(V, k, 2, 0)
        q = own[1] / d
        p = (own[0] - b * q) / a
        here = rows == k + np.arange(2)
        above = jnp.where(here, -1.0, jnp.where(rows < k, lax.dynamic_slice_in_dim(U, k, 2, 1), 0.0))
        p, q, above = materialize((p, q, above))
        return jnp.where(here.any(-1, keepdims=True), 0.0, V) - above[:, :1] * p - above[:, 1:] * q

    return lax.fori_loop(0, n // 2, pivots, jnp.eye(n, dtype=U.dtype))
