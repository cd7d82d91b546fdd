"""Newton's method for the soft-constraint problem (MuJoCo, eq. 8), with an exact line search.

The residual is r(a) = M a − τ − Jᵀ f(J a − a_ref); its Jacobian H = M + Jᵀ H[s] J is symmetric positive definite.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import Array, lax

from ukemi import penalty as p_
from ukemi.constraint import Rows
from ukemi.penalty import RowKinds


class Solution(NamedTuple):
    """Acceleration, constraint force, and how the solver fared."""

    acceleration: Array  # (nv,)
    force: Array  # (total,) constraint forces, in the order of the rows
    iterations: Array  # ()
    converged: Array  # () bool


class Problem(NamedTuple):
    """min over a of ½ aᵀMa − τᵀa + s(J a − a_ref)."""

    M: Array  # (nv, nv)
    tau: Array  # (nv,) all forces but constraints
    rows: Rows


class Point(NamedTuple):
    """An iterate and what is known there."""

    a: Array
    Ma: Array
    x: Array  # J a − a_ref
    force: Array
    gradient: Array
    size: Array  # norm of the gradient
    scale: Array  # norm below which the gradient is noise or small enough


def evaluate(kinds: RowKinds, problem: Problem, a: Array, Ma: Array, x: Array, tolerance: float) -> Point:
    """Force and gradient at a; `scale` is `tolerance` relative to the terms that cancel in the gradient."""
    rows = problem.rows
    f = p_.force(kinds, rows.penalty, x)
    pull = f @ rows.J
    gradient = Ma - problem.tau - pull
    scale = tolerance * (jnp.linalg.norm(Ma) + jnp.linalg.norm(problem.tau) + jnp.linalg.norm(pull))
    return Point(a, Ma, x, f, gradient, jnp.linalg.norm(gradient), scale)


def hessian(kinds: RowKinds, problem: Problem, x: Array) -> Array:
    """H = M + Jᵀ H[s] J (nv, nv)."""
    J = problem.rows.J
    blocks = p_.hessian(kinds, problem.rows.penalty, x)
    return problem.M + J.T @ p_.apply_hessian(kinds, blocks, J)


def newton(kinds: RowKinds, problem: Problem, start: Array, *, iterations: int, searches: int, tolerance: float):
    """Solve from the warm start (nv,) until the gradient is `tolerance` relative to the forces, or no longer falls."""
    J, aref = problem.rows.J, problem.rows.aref
    noise = 4 * jnp.finfo(start.dtype).eps
    first = evaluate(kinds, problem, start, problem.M @ start, J @ start - aref, tolerance)

    def unfinished(carry):
        point, previous, k = carry
        stalled = (point.size > 0.5 * previous) & (point.size < 1e3 * noise / tolerance * point.scale)
        return (point.size > point.scale) & (k < iterations) & ~stalled

    def advance(carry):
        point, _, k = carry
        H = hessian(kinds, problem, point.x)
        step = -jsl.cho_solve((jnp.linalg.cholesky(H), True), point.gradient)
        M_step, J_step = problem.M @ step, J @ step
        alpha = line_search(kinds, problem, point, step, M_step, J_step, searches)
        moved = (point.a + alpha * step, point.Ma + alpha * M_step, point.x + alpha * J_step)
        return evaluate(kinds, problem, *moved, tolerance), point.size, k + 1

    carry = (first, jnp.full((), jnp.inf, start.dtype), jnp.zeros((), jnp.int32))
    point, previous, k = lax.while_loop(unfinished, advance, carry)
    converged = (point.size <= point.scale) | (k < iterations)
    return Solution(point.a, point.force, k, converged)


def line_search(kinds: RowKinds, problem: Problem, point: Point, step, M_step, J_step, searches: int) -> Array:
    """Step length α at the minimum along `step`: root of the slope φ'(α), which never decreases."""
    curve, slope = step @ M_step, step @ (point.Ma - problem.tau)

    def derivatives(alpha):
        x = point.x + alpha * J_step
        f = p_.force(kinds, problem.rows.penalty, x)
        blocks = p_.hessian(kinds, problem.rows.penalty, x)
        first = slope + alpha * curve - J_step @ f
        return first, curve + J_step @ p_.apply_hessian(kinds, blocks, J_step)

    start = step @ point.gradient
    small = 1e-3 * jnp.abs(start)
    one = jnp.ones_like(curve)

    def unfinished(carry):
        alpha, low, high, first, second, k = carry
        return (jnp.abs(first) > small) & (k < searches)

    def improve(carry):
        alpha, low, high, first, second, k = carry
        low, high = jnp.where(first < 0, alpha, low), jnp.where(first < 0, high, alpha)
        newton_step = alpha - first / second
        middle = jnp.where(jnp.isinf(high), 2 * alpha, 0.5 * (low + high))
        alpha = jnp.where((newton_step > low) & (newton_step < high), newton_step, middle)
        return alpha, low, high, *derivatives(alpha), k + 1

    bracket = (one, jnp.zeros_like(one), jnp.full_like(one, jnp.inf))
    alpha, *_ = lax.while_loop(unfinished, improve, (*bracket, *derivatives(one), jnp.zeros((), jnp.int32)))
    return alpha
