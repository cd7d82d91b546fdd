"""The impulses of rigid contact: last step's sides first, then pivoting, then search."""

import jax
import jax.numpy as jnp
from jax import Array, lax

from ukemi.laws.rigid.attempt import Attempt, attempt
from ukemi.laws.rigid.boxes import Boxed, Roles, dense
from ukemi.laws.rigid.dantzig import dantzig, search

ROUNDS = 6  # linear systems that a guess may take to come right; pivoting takes as many for a few rows


def solve(p: Boxed, own: Roles, guess: Array) -> Attempt:
    """Sides and impulses of a boxed problem, from guessed sides (n,)."""
    first = attempt(p, own, guess, ROUNDS, compact=True)

    def by_pivots(first: Attempt) -> Attempt:
        whole = dense(p)
        side, pivots = dantzig(whole, own, ~first.solved)
        found = search(whole, own, side, ~first.solved)  # from the pivots' sides first
        found = found._replace(rounds=first.rounds + pivots + found.rounds)
        return jax.tree.map(lambda x, y: jnp.where(first.solved, x, y), first, found)

    return lax.cond(first.solved, lambda first: first, by_pivots, first)
