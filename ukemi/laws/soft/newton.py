"""Newton's method for the soft-constraint problem (MuJoCo, eq. 8), with an exact line search.

The residual is r(a) = M a − τ − Jᵀ f(J a − a_ref); its Jacobian H = M + Jᵀ H[s] J is symmetric positive definite.
"""

from typing import cast

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.constraints.rows import RowKinds, squares
from ukemi.laws.active_contacts import CHUNK
from ukemi.laws.soft.penalty import active_contacts, apply_hessian, penalty_force, penalty_hessian
from ukemi.laws.soft.problem import Point, Problem, evaluate, solution
from ukemi.maths import spatial
from ukemi.maths.ranking import parts
from ukemi.maths.systems import solve


def hessian(kinds: RowKinds, problem: Problem, x: Array, active: Array) -> Array:
    """H = M + Jᵀ H[s] J (nv, nv); contacts come nearest first, so chunks beyond `active` contacts add nothing."""
    J, n, nv = problem.rows.J, kinds.scalar, problem.M.shape[0]
    diagonal, blocks = spatial.materialize(penalty_hessian(kinds, problem.rows.penalty, x))
    H = problem.M + squares(kinds, J[:n], diagonal) if n else problem.M
    if not kinds.contacts:
        return H
    size = min(CHUNK, kinds.contacts)
    count = -(-kinds.contacts // size)
    frame = J[n:].reshape(kinds.contacts, kinds.dim, nv)

    def add(k, H):
        # the last chunk starts early enough to fit; contacts that the one before it has seen are masked
        start = jnp.minimum(k * size, kinds.contacts - size)
        rows, block = (lax.dynamic_slice_in_dim(part, start, size) for part in (frame, blocks))
        block = jnp.where((start + np.arange(size) >= k * size)[:, None, None], block, 0.0)
        rows, block = spatial.materialize((rows, block))
        stiff = cast(Array, sum(block[:, :, j, None] * rows[:, None, j] for j in range(kinds.dim)))
        return H + spatial.gram(lax.collapse(rows, 0, 2), lax.collapse(stiff, 0, 2))

    return lax.fori_loop(0, jnp.minimum(parts(active, size), count), add, H)


def newton(kinds: RowKinds, problem: Problem, start: Array, *, iterations: int, searches: int, tolerance: float):
    """Solve from the warm start (nv,) until the gradient is `tolerance` relative to the forces, or no longer falls."""
    J, aref = problem.rows.J, problem.rows.aref
    noise = 4 * jnp.finfo(start.dtype).eps
    first = evaluate(kinds, problem, start, problem.M @ start, J @ start - aref, tolerance)
    active = active_contacts(problem.rows.penalty)

    def unfinished(carry):
        point, previous, k, step_size, grain = carry
        # Rounding in stiff rows can hold the gradient up; the full step M H⁻¹ r then says how near the solution is. And
        # no a can do without the gradient that the last digits of a make: where friction creeps, a few newtons balance
        # at a J a of thousands, and it may be more than the tolerance asks for.
        rounding = noise / tolerance * point.scale
        near = (point.size < 1e3 * rounding) | (step_size < 1e2 * rounding) | (point.size < 10 * noise * grain)
        return (point.size > point.scale) & (k < iterations) & ~((point.size > 0.5 * previous) & near)

    def advance(carry):
        point, _, k, *_ = carry
        H = spatial.materialize(hessian(kinds, problem, point.x, active))
        step = -solve(H, point.gradient)
        M_step, J_step = spatial.materialize((problem.M @ step, J @ step))
        # under vmap the body runs for finished worlds too: they must not search
        tries = jnp.where(unfinished(carry), searches, 0)
        alpha = line_search(kinds, problem, point, step, M_step, J_step, tries, tolerance)
        moved = (point.a + alpha * step, point.Ma + alpha * M_step, point.x + alpha * J_step)
        grain = jnp.linalg.norm(jnp.abs(H) @ jnp.abs(point.a))
        return evaluate(kinds, problem, *moved, tolerance), point.size, k + 1, jnp.linalg.norm(M_step), grain

    infinite = jnp.full((), jnp.inf, start.dtype)
    carry = (first, infinite, jnp.zeros((), jnp.int32), infinite, jnp.zeros_like(infinite))
    point, _, k, *_ = lax.while_loop(unfinished, advance, carry)
    converged = (point.size <= point.scale) | (k < iterations)
    return solution(point, k, converged)


def line_search(
    kinds: RowKinds, problem: Problem, point: Point, step, M_step, J_step, tries, tolerance: float
) -> Array:
    """Step length α at the minimum along `step`: root of the slope φ'(α), which never decreases."""
    penalty = problem.rows.penalty
    curve, slope = step @ M_step, step @ (point.Ma - problem.tau)
    # a slope is zero when it has fallen a thousandfold, or to rounding of the terms that cancel in it
    rounding = 4 * jnp.finfo(step.dtype).eps * jnp.linalg.norm(step) * point.scale / tolerance
    small = jnp.maximum(1e-3 * jnp.abs(step @ point.gradient), rounding)
    one = jnp.ones_like(curve)

    def unfinished(carry):
        *_, first, k = carry
        return (jnp.abs(first) > small) & (k <= tries)

    def improve(carry):
        alpha, low, high, _, k = carry
        x = point.x + alpha * J_step
        first = slope + alpha * curve - J_step @ penalty_force(kinds, penalty, x)
        second = curve + J_step @ apply_hessian(kinds, penalty_hessian(kinds, penalty, x), J_step)
        low, high = jnp.where(first < 0, alpha, low), jnp.where(first < 0, high, alpha)
        newton_step = alpha - first / second
        middle = jnp.where(jnp.isinf(high), 2 * alpha, 0.5 * (low + high))
        better = jnp.where((newton_step > low) & (newton_step < high), newton_step, middle)
        alpha = jnp.where((jnp.abs(first) > small) & (k < tries), better, alpha)
        return alpha, low, high, first, k + 1

    # the slope is found where its change is, so that both compile once: at first it is unknown
    infinite = jnp.full_like(one, jnp.inf)
    start = (one, jnp.zeros_like(one), infinite, infinite, jnp.zeros((), jnp.int32))
    return lax.while_loop(unfinished, improve, start)[0]
