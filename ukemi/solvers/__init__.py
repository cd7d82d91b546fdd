"""Solvers of the soft-constraint problem; they own no derivatives."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax

from ukemi.batching import one_by_one
from ukemi.errors import GradientError
from ukemi.penalty import RowKinds
from ukemi.solvers.cg import cg
from ukemi.solvers.newton import newton
from ukemi.solvers.pgs import pgs
from ukemi.solvers.problem import Problem, Solution

SOLVERS = {"Newton": newton, "CG": cg, "PGS": pgs}

SLOTS = (16, 64, 256, 1024)  # numbers of contact slots for which a solver is compiled, up to half the model's own


def solve_active(solver, rows, kinds: RowKinds, scene) -> Solution:
    """Solve with as few contact slots as hold the active contacts, so that a step costs what its contacts cost.

    rows: function (scene, kinds) -> Rows; scene: a pytree with M, tau, warm (the warm start) and contacts, nearest
    first. The rows are made here, for those slots alone.
    """

    def with_slots(slots: int):
        def solve(scene) -> Solution:
            own = dataclasses.replace(kinds, contacts=slots)
            near = scene.contacts._replace(overflow=jnp.zeros_like(scene.contacts.active))
            near = jax.tree.map(lambda x: x[:slots], near)
            problem = Problem(scene.M, scene.tau, rows(scene._replace(contacts=near), own))
            solution = solver(own, problem, scene.warm)
            return solution._replace(force=jnp.pad(solution.force, (0, kinds.total - own.total)))

        return solve

    sizes = [n for n in SLOTS if 2 * n <= kinds.contacts] + [kinds.contacts]
    full = with_slots(kinds.contacts)

    def solve(scene) -> Solution:
        active = scene.contacts.active.sum()
        return lax.switch((active > jnp.array(sizes[:-1])).sum(), [with_slots(n) for n in sizes], scene)

    return _without_derivative(one_by_one(full if len(sizes) == 1 else solve, in_lockstep=full))(scene)


def _without_derivative(solve):
    """`solve`, which raises when it is differentiated: a solver's iterations have no meaningful derivative."""
    guarded = jax.custom_jvp(solve)

    @guarded.defjvp
    def refuse(primals, tangents):
        raise GradientError(
            "Derivatives of the soft law are not there yet: the implicit rule that gives them comes with the next "
            "release. Nothing is returned, because differentiating the solver's iterations would be silently wrong."
        )

    return guarded
