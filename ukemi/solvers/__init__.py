"""Solvers of the soft-constraint problem; they own no derivatives."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array, lax

from ukemi.batching import one_by_one
from ukemi.gradient import without_derivative
from ukemi.penalty import RowKinds, active_contacts
from ukemi.solvers.cg import cg
from ukemi.solvers.newton import hessian, newton
from ukemi.solvers.pgs import pgs
from ukemi.solvers.problem import Problem, Solution

SOLVERS = {"Newton": newton, "CG": cg, "PGS": pgs}

REFUSED = (
    "A solver's iterations are not differentiated: that would be silently wrong. Derivatives of the soft law "
    "come from uk.step, uk.rollout, uk.linearize, uk.vector_field, uk.contacts and uk.inverse, which use the "
    "implicit rule; Soft.forward has none."
)
SLOTS = (16, 64, 256, 1024)  # numbers of contact slots for which a solver is compiled, up to half the model's own


def solve_active(solver, rows, kinds: RowKinds, scene) -> Solution:
    """Solve with as few contact slots as hold the active contacts, so that a step costs what its contacts cost.

    rows: function (scene, kinds) -> Rows; scene: a pytree with M, tau, warm (the warm start) and a frame, whose
    contacts come nearest first. The rows are made here, for those slots alone.
    """

    def solve(own: RowKinds, scene) -> Solution:
        problem = Problem(scene.M, scene.tau, rows(scene, own))
        solution = solver(own, problem, scene.warm)
        return solution._replace(force=jnp.pad(solution.force, (0, kinds.total - own.total)))

    return without_derivative(with_slots(solve, kinds), REFUSED)(scene)


def hessian_active(rows, kinds: RowKinds, scene, a: Array) -> Array:
    """H = M + Jᵀ H[s] J (nv, nv) at the acceleration a (nv,), from the active contacts alone."""

    def assemble(own: RowKinds, scene) -> Array:
        problem = Problem(scene.M, scene.tau, rows(scene, own))
        x = problem.rows.J @ scene.warm - problem.rows.aref
        return hessian(own, problem, x, active_contacts(problem.rows.penalty))

    return with_slots(assemble, kinds)(scene._replace(warm=a))


def with_slots(function, kinds: RowKinds):
    """`function(kinds, scene, *more)` for as many contact slots as needed, as a function of (scene, *more).

    more: arrays that lead with the contacts.
    """

    def of(slots: int):
        def run(scene, *more):
            contacts = scene.frame.contacts
            near = contacts._replace(overflow=jnp.zeros_like(contacts.active))
            near, *more = jax.tree.map(lambda x: x[:slots], (near, *more))
            scene = scene._replace(frame=scene.frame._replace(contacts=near))
            return function(dataclasses.replace(kinds, contacts=slots), scene, *more)

        return run

    sizes = [n for n in SLOTS if 2 * n <= kinds.contacts] + [kinds.contacts]
    full = of(kinds.contacts)

    def choose(scene, *more):
        active = scene.frame.contacts.active.sum()
        return lax.switch((active > jnp.array(sizes[:-1])).sum(), [of(n) for n in sizes], scene, *more)

    return one_by_one(full if len(sizes) == 1 else choose, in_lockstep=full)
