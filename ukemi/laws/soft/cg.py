"""Nonlinear conjugate gradient for the soft-constraint problem (MuJoCo, eq. 8), preconditioned with the mass matrix.

The direction update is Hager and Zhang's (SIAM J. Optim. 16, 2005): it stays a descent direction where the penalty's
curvature jumps, which it does whenever a constraint awakes. The line search is the exact one of Newton's method.
"""

from typing import NamedTuple

import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import Array, lax

from ukemi.constraints.rows import RowKinds
from ukemi.laws.soft.newton import line_search
from ukemi.laws.soft.problem import Point, Problem, evaluate, first_record, record, solution, stalled

LEAST = 0.01  # how far β may fall below zero, relative to the search direction (Hager and Zhang's η)


class _Carry(NamedTuple):
    point: Point
    downhill: Array  # (nv,) M⁻¹ gradient
    search: Array  # (nv,)
    record: tuple
    k: Array  # ()


def cg(kinds: RowKinds, problem: Problem, start: Array, *, iterations: int, searches: int, tolerance: float):
    """Solve from the warm start (nv,) until the gradient is `tolerance` relative to the forces, or no longer falls."""
    J, aref = problem.rows.J, problem.rows.aref
    factor = jnp.linalg.cholesky(problem.M)

    def precondition(gradient: Array) -> Array:
        return jsl.cho_solve((factor, True), gradient)

    def unfinished(carry: _Carry):
        point = carry.point
        return (point.size > point.scale) & (carry.k < iterations) & ~stalled(carry.record, point, tolerance)

    def advance(carry: _Carry) -> _Carry:
        point, search = carry.point, carry.search
        M_step, J_step = problem.M @ search, J @ search
        tries = jnp.where(unfinished(carry), searches, 0)  # under vmap, worlds that are done must not search
        alpha = line_search(kinds, problem, point, search, M_step, J_step, tries, tolerance)
        moved = (point.a + alpha * search, point.Ma + alpha * M_step, point.x + alpha * J_step)
        after = evaluate(kinds, problem, *moved, tolerance)
        downhill = precondition(after.gradient)
        beta = _beta(point.gradient, carry.downhill, after.gradient, downhill, search)
        turned = -downhill + beta * search
        turned = jnp.where(turned @ after.gradient < 0, turned, -downhill)
        return _Carry(after, downhill, turned, record(carry.record, after), carry.k + 1)

    first = evaluate(kinds, problem, start, problem.M @ start, J @ start - aref, tolerance)
    downhill = precondition(first.gradient)
    carry = _Carry(first, downhill, -downhill, first_record(first), jnp.zeros((), jnp.int32))
    last = lax.while_loop(unfinished, advance, carry)
    point = last.point
    converged = (point.size <= point.scale) | stalled(last.record, point, tolerance)
    return solution(point, last.k, converged)


def _beta(g0: Array, p0: Array, g1: Array, p1: Array, search: Array) -> Array:
    """Share of the old direction in the new one, from gradients g and preconditioned gradients p before and after."""
    change = g1 - g0
    along = search @ change
    safe = jnp.where(along > 0, along, 1.0)
    beta = (change @ p1 - 2 * (change @ (p1 - p0)) / safe * (search @ g1)) / safe
    least = jnp.linalg.norm(search) * jnp.minimum(LEAST, jnp.linalg.norm(g0))
    floor = -1 / jnp.maximum(least, jnp.finfo(g0.dtype).tiny)
    return jnp.where(along > 0, jnp.maximum(beta, floor), 0.0)
