"""The soft-constraint problem (MuJoCo, eq. 8) as the solvers see it: min over a of ½ aᵀMa − τᵀa + s(J a − a_ref)."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ukemi.constraints.rows import RowKinds
from ukemi.laws.soft.penalty import penalty_force
from ukemi.laws.soft.rows import Rows

PATIENCE = 8  # iterations without improvement
NOISE = 4e3  # machine epsilons of the cancelling forces that rounding may leave in the gradient


class Solution(NamedTuple):
    """Acceleration, constraint force, and how the solver fared."""

    acceleration: Array  # (nv,)
    force: Array  # (total,) constraint forces, in the order of the rows
    pull: Array  # (nv,) the same as a generalised force, Jᵀ f
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
    pull: Array  # Jᵀ force
    gradient: Array
    size: Array  # norm of the gradient
    scale: Array  # norm below which the gradient is noise or small enough


def evaluate(kinds: RowKinds, problem: Problem, a: Array, Ma: Array, x: Array, tolerance: float) -> Point:
    """Force and gradient at a; `scale` is `tolerance` relative to the terms that cancel in the gradient."""
    rows = problem.rows
    f = penalty_force(kinds, rows.penalty, x)
    pull = f @ rows.J
    gradient = Ma - problem.tau - pull
    scale = tolerance * (jnp.linalg.norm(Ma) + jnp.linalg.norm(problem.tau) + jnp.linalg.norm(pull))
    return Point(a, Ma, x, f, pull, gradient, jnp.linalg.norm(gradient), scale)


def solution(point: Point, iterations: Array, converged: Array) -> Solution:
    """Where a solver stopped. Nothing is known of an acceleration whose residual is not finite: it is none."""
    a = jnp.where(jnp.isfinite(point.size), point.a, jnp.nan)
    return Solution(a, point.force, point.pull, iterations, converged)


# ---- when a residual that falls unevenly has reached what the floating-point precision holds ------------------------


def first_record(point: Point) -> tuple[Array, Array]:
    """Smallest gradient so far, and iterations since."""
    return point.size, jnp.zeros((), jnp.int32)


def record(before: tuple[Array, Array], point: Point) -> tuple[Array, Array]:
    """The record after one more iterate; an improvement counts from ten per cent on."""
    best, age = before
    better = point.size < 0.9 * best
    return jnp.minimum(best, point.size), jnp.where(better, 0, age + 1)


def stalled(record: tuple[Array, Array], point: Point, tolerance: float) -> Array:
    """Whether the gradient is down to rounding noise and no longer falls."""
    noise = NOISE * jnp.finfo(point.size.dtype).eps / tolerance * point.scale
    return (record[1] >= PATIENCE) & (point.size < noise)
