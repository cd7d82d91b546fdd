"""Projected Gauss–Seidel for the dual of the soft-constraint problem (MuJoCo, eq. 9).

The forces f minimise ½ fᵀ(A + R)f + fᵀ(J a_smooth − a_ref) with A = J M⁻¹ Jᵀ: dry friction within a box, limits and
the edges of friction pyramids on a half line, each elliptic contact within its cone. A sweep visits one row, or one
elliptic contact, after the other. It carries the acceleration a = a_smooth + M⁻¹ Jᵀ f instead of A: the residual
of a row is then J a − a_ref + R f, and a visit costs nv instead of all rows. Rows that are not active come last
in the order of visits and are never reached.

Sweeps start from a guess extrapolated with Nesterov's momentum, which starts afresh when a sweep turns back
(O'Donoghue and Candès, Found. Comput. Math. 15, 2015). Often that takes a third of the sweeps, but it may cycle:
where the gradient does not fall, the momentum is halved until plain sweeps remain, which always converge.
"""

from typing import NamedTuple

import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax import Array, lax

from ukemi.constraints.rows import RowKinds
from ukemi.laws.soft import cone_visits
from ukemi.laws.soft.penalty import Penalty, penalty_force
from ukemi.laws.soft.problem import Point, Problem, evaluate, first_record, record, solution, stalled

PROBATION = 16  # sweeps without improvement after which the momentum is halved


class Lines(NamedTuple):
    """Rows whose force lives in an interval: scalar rows, then pyramid edges or frictionless normals."""

    J: Array  # (n, nv)
    W: Array  # (n, nv) J M⁻¹
    aref: Array  # (n,)
    R: Array  # (n,)
    low: Array  # (n,)
    high: Array  # (n,)
    order: Array  # (n,) rows in the order of visits, active ones first
    count: Array  # () active rows


class Forces(NamedTuple):
    """Dual variables."""

    lines: Array  # (n,)
    cones: Array  # (nc, dim) of elliptic contacts, (0, dim) where there are none


class _Carry(NamedTuple):
    f: Forces
    before: Forces  # one sweep ago
    age: Array  # () sweeps since the momentum started afresh
    trust: Array  # () part of the momentum that is used
    point: Point
    record: tuple
    k: Array  # ()


def pgs(kinds: RowKinds, problem: Problem, start: Array, *, iterations: int, searches: int, tolerance: float):
    """Sweep until the primal gradient is `tolerance` relative to the forces; `searches` is not needed.

    The warm start is the force at the acceleration `start` (nv,), unless no force at all costs less.
    """
    rows = problem.rows
    factor = (jnp.linalg.cholesky(problem.M), True)
    free = jsl.cho_solve(factor, problem.tau)
    lines, cones = _dual(kinds, problem, factor)

    def acceleration(f: Forces) -> Array:
        return free + f.lines @ lines.W + jnp.einsum("ck,ckv->v", f.cones, cones.W)

    def examine(f: Forces, a: Array):
        Ma = problem.tau + _to_rows(kinds, rows.penalty, f) @ rows.J
        return evaluate(kinds, problem, a, Ma, rows.J @ a - rows.aref, tolerance)

    def sweep(f: Forces) -> Forces:
        a, (moved, turned) = acceleration(f), f
        if len(lines.aref):
            a, moved = lax.fori_loop(0, lines.count, _visit_line(lines), (a, moved))
        if len(cones.aref):
            _, turned = lax.fori_loop(0, cones.count, cone_visits.visit(cones), (a, turned))
        return Forces(moved, turned)

    def unfinished(carry: _Carry):
        point = carry.point
        return (point.size > point.scale) & (carry.k < iterations) & ~stalled(carry.record, point, tolerance)

    def advance(carry: _Carry) -> _Carry:
        guess = _extrapolate(lines, cones, carry)
        f = sweep(guess)
        back = sum(((g - new) * (new - old)).sum() for g, new, old in zip(guess, f, carry.f, strict=True))
        point = examine(f, acceleration(f))
        age = jnp.where(back > 0, 1.0, carry.age + 1)
        seen = record(carry.record, point)
        trust = jnp.where((seen[1] + 1) % PROBATION == 0, 0.5, 1.0) * carry.trust
        return _Carry(f, carry.f, age, trust, point, seen, carry.k + 1)

    f = _warm(kinds, problem, lines, cones, free, start)
    point = examine(f, acceleration(f))
    one = jnp.ones((), start.dtype)
    carry = _Carry(f, f, one, one, point, first_record(point), jnp.zeros((), jnp.int32))
    last = lax.while_loop(unfinished, advance, carry)
    point = last.point
    converged = (point.size <= point.scale) | stalled(last.record, point, tolerance)
    force = _to_rows(kinds, rows.penalty, last.f)
    return solution(point, last.k, converged)._replace(force=force, pull=force @ rows.J)


def _extrapolate(lines: Lines, cones: cone_visits.Cones, carry: _Carry) -> Forces:
    """Admissible forces ahead of the last two sweeps."""
    share = carry.trust * (carry.age - 1) / (carry.age + 2)
    ahead = [new + share * (new - old) for new, old in zip(carry.f, carry.before, strict=True)]
    return Forces(jnp.clip(ahead[0], lines.low, lines.high), cone_visits.admissible(cones, ahead[1]))


def _visit_line(lines: Lines):
    """One visit: the row's force at its optimum given all others, within its interval."""
    size = (lines.J * lines.W).sum(-1) + lines.R

    def visit(k, carry):
        a, f = carry
        i = lines.order[k]
        residual = lines.J[i] @ a - lines.aref[i] + lines.R[i] * f[i]
        new = jnp.clip(f[i] - residual / size[i], lines.low[i], lines.high[i])
        return a + lines.W[i] * (new - f[i]), f.at[i].set(new)

    return visit


# ---- from rows to dual variables and back ------------------------------------------------------------------------


def _dual(kinds: RowKinds, problem: Problem, factor) -> tuple[Lines, cone_visits.Cones]:
    """The dual problem of a primal one."""
    rows, penalty, n = problem.rows, problem.rows.penalty, kinds.scalar
    J, aref, D = [rows.J[:n]], [rows.aref[:n]], [penalty.D]
    nv = rows.J.shape[1]
    frame = rows.J[n:].reshape(kinds.contacts, kinds.dim, nv)
    goal = rows.aref[n:].reshape(kinds.contacts, kinds.dim)
    if kinds.contacts and not _elliptic(kinds):
        J.append(lax.collapse(_edges(kinds, penalty, frame), 0, 2))
        aref.append(_edges(kinds, penalty, goal).reshape(-1))
        D.append(_edge_stiffness(kinds, penalty).reshape(-1))
    J, aref, D = (jnp.concatenate(part) for part in (J, aref, D))
    active = D > 0
    high = jnp.full_like(aref, jnp.inf).at[kinds.rubbing].set(penalty.bound)
    two_sided = np.arange(len(aref)) < kinds.pushing.start
    lines = Lines(
        J=J,
        W=jsl.cho_solve(factor, J.T).T,
        aref=aref,
        R=jnp.where(active, 1 / jnp.where(active, D, 1.0), 0.0),
        low=jnp.where(two_sided & active, -high, 0.0),
        high=jnp.where(active, high, 0.0),
        order=jnp.argsort(~active, stable=True),
        count=active.sum(),
    )
    keep = slice(kinds.contacts if _elliptic(kinds) else 0)
    frame = frame[keep]
    W = jsl.cho_solve(factor, frame.reshape(len(frame) * kinds.dim, nv).T).T.reshape(frame.shape)
    return lines, cone_visits.cones(frame, W, goal[keep], penalty.D_frame[keep], penalty.friction[keep])


def _elliptic(kinds: RowKinds) -> bool:
    return kinds.cone == "elliptic" and kinds.dim > 1


def _edges(kinds: RowKinds, penalty: Penalty, frame: Array) -> Array:
    """Frame rows (nc, dim, ...) along the edges (nc, ne, ...): n + μ_k t_k, then n − μ_k t_k, perhaps n alone."""
    normal = frame[:, :1]
    if kinds.dim == 1:
        return normal
    side = penalty.friction.reshape(penalty.friction.shape + (1,) * (frame.ndim - 2)) * frame[:, 1:]
    parts = [normal + side, normal - side]
    return jnp.concatenate([*parts, normal] if kinds.frictionless else parts, 1)


def _edge_stiffness(kinds: RowKinds, penalty: Penalty) -> Array:
    """D (nc, ne) of the edges; zero in directions that a contact does not have."""
    if kinds.dim == 1:
        return penalty.D_frame[:, :1]
    edge = jnp.where(penalty.friction == 0, 0.0, penalty.D_edge[:, None])
    parts = [edge, edge]
    return jnp.concatenate([*parts, penalty.D_frame[:, :1]] if kinds.frictionless else parts, 1)


def _to_rows(kinds: RowKinds, penalty: Penalty, f: Forces) -> Array:
    """Forces (total,) in the frames of the contacts."""
    n, m = kinds.scalar, kinds.dim - 1
    if not kinds.contacts:
        return f.lines
    if _elliptic(kinds):
        return jnp.concatenate([f.lines, f.cones.reshape(-1)])
    edges = f.lines[n:].reshape(kinds.contacts, -1)
    side = penalty.friction * (edges[:, :m] - edges[:, m : 2 * m])
    frame = jnp.concatenate([edges.sum(-1, keepdims=True), side], -1)
    return jnp.concatenate([f.lines[:n], frame.reshape(-1)])


def _warm(
    kinds: RowKinds, problem: Problem, lines: Lines, cones: cone_visits.Cones, free: Array, start: Array
) -> Forces:
    """Forces of the law at `start`, or none if that costs less."""
    x = lines.J @ start - lines.aref
    scale = jnp.where(lines.R > 0, 1 / jnp.where(lines.R > 0, lines.R, 1.0), 0.0)
    at_lines = jnp.clip(-scale * x, lines.low, lines.high)
    rows = problem.rows
    at_cones = jnp.zeros(cones.aref.shape, start.dtype)
    if len(cones.aref):
        force = penalty_force(kinds, rows.penalty, rows.J @ start - rows.aref)
        at_cones = force[kinds.scalar :].reshape(cones.aref.shape)
    pull = at_lines @ lines.J + jnp.einsum("ck,ckv->v", at_cones, cones.J)
    push = at_lines @ lines.W + jnp.einsum("ck,ckv->v", at_cones, cones.W)
    cost = 0.5 * pull @ push + (at_lines * (0.5 * lines.R * at_lines + lines.J @ free - lines.aref)).sum()
    cost = cost + (at_cones * (0.5 * cones.R * at_cones + cones.J @ free - cones.aref)).sum()
    keep = jnp.where(cost < 0, 1.0, 0.0)
    return Forces(keep * at_lines, keep * at_cones)
