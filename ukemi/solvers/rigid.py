"""The impulses of rigid contact: last step's sides first, then pivoting, then search."""

import jax
import jax.numpy as jnp
from jax import Array, lax

from ukemi.solvers.attempt import Attempt, attempt
from ukemi.solvers.boxed import Boxed, Roles, dense
from ukemi.solvers.dantzig import dantzig, search

ROUNDS = 6  # linear systems that a guess may take to come right; pivoting takes as many for a few rows


def solve(p: Boxed, own: Roles, guess: Array) -> Attempt:
    """Sides and impulses of a boxed problem, from guessed sides (n,)."""
    first = attempt(p, own, guess, ROUNDS, compact=True)

    def by_pivots(first: Attempt) -> Attempt:
        whole = dense(p)
        side, pivots = dantzig(whole, own, ~first.solved)
        second = attempt(whole, own, side, ROUNDS)
        third = search(whole, own, side, ~first.solved & ~second.solved)
        found = _choose(second.solved, second, third)
        found = found._replace(rounds=first.rounds + pivots + second.rounds + third.rounds)
        return _choose(first.solved, first, found)

    return lax.cond(first.solved, lambda first: first, by_pivots, first)


def _choose(yes: Array, a: Attempt, b: Attempt) -> Attempt:
    return jax.tree.map(lambda x, y: jnp.where(yes, x, y), a, b)
