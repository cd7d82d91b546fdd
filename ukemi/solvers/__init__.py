"""Solvers of the soft-constraint problem; they own no derivatives."""

import jax.numpy as jnp
from jax import Array, lax

from ukemi import penalty as p_
from ukemi.batching import one_by_one
from ukemi.constraint import Rows
from ukemi.penalty import RowKinds
from ukemi.solvers.cg import cg
from ukemi.solvers.newton import newton
from ukemi.solvers.pgs import pgs
from ukemi.solvers.problem import Problem, Solution

SOLVERS = {"Newton": newton, "CG": cg, "PGS": pgs}

SLOTS = (16, 64, 256, 1024)  # numbers of contact slots for which a solver is compiled, up to the model's own


def solve_active(solver, kinds: RowKinds, problem: Problem, start: Array) -> Solution:
    """Solve with as few contact slots as hold the active contacts, so that a step costs what its contacts cost."""
    sizes = [n for n in SLOTS if 3 * n <= kinds.contacts] + [kinds.contacts]

    def with_slots(slots: int):
        def solve(problem: Problem, start: Array) -> Solution:
            own, penalty = p_.leading(kinds, problem.rows.penalty, slots)
            rows = Rows(problem.rows.J[: own.total], problem.rows.aref[: own.total], penalty)
            solution = solver(own, problem._replace(rows=rows), start)
            return solution._replace(force=jnp.pad(solution.force, (0, kinds.total - own.total)))

        return solve

    def solve(problem: Problem, start: Array) -> Solution:
        active = p_.active_contacts(problem.rows.penalty)
        return lax.switch((active > jnp.array(sizes[:-1])).sum(), [with_slots(n) for n in sizes], problem, start)

    full = with_slots(kinds.contacts)
    return one_by_one(full if len(sizes) == 1 else solve, in_lockstep=full)(problem, start)
