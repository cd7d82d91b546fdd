"""Solvers of the soft-constraint problem; they own no derivatives."""

import jax.numpy as jnp

from ukemi.constraints.rows import RowKinds
from ukemi.implicit.rule import without_derivative
from ukemi.laws.active_contacts import with_slots
from ukemi.laws.soft.cg import cg
from ukemi.laws.soft.newton import newton
from ukemi.laws.soft.pgs import pgs
from ukemi.laws.soft.problem import Problem, Solution
from ukemi.laws.soft.rows import first_rows, row_parts

SOLVERS = {"Newton": newton, "CG": cg, "PGS": pgs}

REFUSED = (
    "A solver's iterations are not differentiated: that would be silently wrong. Derivatives of the soft law "
    "come from uk.step, uk.rollout, uk.linearize, uk.vector_field, uk.contacts and uk.inverse, which use the "
    "implicit rule; Soft.forward has none."
)


def solve_active(solver, kinds: RowKinds, scene) -> Solution:
    """Solve with as few contact slots as hold the active contacts, so that a step costs what its contacts cost.

    scene: `balance.Scene`, whose contacts come nearest first.
    """

    def with_rows(scene):
        return scene._replace(parts=row_parts(scene.frame, kinds))

    def solve(own: RowKinds, scene) -> Solution:
        problem = Problem(scene.M, scene.tau, first_rows(scene.parts, own))
        solution = solver(own, problem, scene.warm)
        return solution._replace(force=jnp.pad(solution.force, (0, kinds.total - own.total)))

    return without_derivative(with_slots(solve, kinds, with_rows), REFUSED)(scene)
