"""The impulses of rigid contact: last step's sides first, then pivoting, then the central path, then search."""

import jax
import jax.numpy as jnp
from jax import Array, lax

from ukemi.laws.rigid.attempt import Attempt, attempt
from ukemi.laws.rigid.boxes import Boxed, Roles, dense
from ukemi.laws.rigid.dantzig import dantzig, search
from ukemi.laws.rigid.interior import sides_from_inside

ROUNDS = 6  # linear systems that a guess may take to come right; pivoting takes as many for a few rows


def solve(p: Boxed, own: Roles, guess: Array) -> Attempt:
    """Sides and impulses of a boxed problem, from guessed sides (n,)."""
    first = attempt(p, own, guess, ROUNDS, compact=True)

    def harder(first: Attempt) -> Attempt:
        whole, ways = dense(p), (dantzig, sides_from_inside)

        def from_sides(carry):
            stage, found = carry
            side, systems = lax.switch(stage, [lambda way=way: way(whole, own, ~found.solved) for way in ways])
            new = attempt(whole, own, side, ROUNDS)
            return stage + 1, new._replace(rounds=found.rounds + systems + new.rounds)

        def go_on(carry):
            return ~carry[1].solved & (carry[0] < len(ways))

        found = lax.while_loop(go_on, from_sides, (jnp.zeros((), jnp.int32), first))[1]
        last = search(whole, own, found.side, ~found.solved)
        last = last._replace(rounds=found.rounds + last.rounds)
        return jax.tree.map(lambda x, y: jnp.where(found.solved, x, y), found, last)

    return lax.cond(first.solved, lambda first: first, harder, first)
