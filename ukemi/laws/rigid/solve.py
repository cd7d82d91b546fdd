"""The impulses of rigid contact: last step's sides first, then pivoting, then the central path, then search."""

from functools import partial

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.laws.rigid.attempt import Attempt, attempt, unsolved
from ukemi.laws.rigid.boxes import CLAMPED, LOW, Boxed, Roles, noise, sorted_out
from ukemi.laws.rigid.dantzig import dantzig
from ukemi.laws.rigid.interior import sides_from_inside
from ukemi.laws.rigid.last_resorts import gauss_seidel, variant, variants
from ukemi.laws.rigid.live_rows import for_pivoting, live_rows, on_rows

ROUNDS = 6  # linear systems that a guess may take to come right; pivoting takes as many for a few rows
SEARCH = 3  # the stage after the guess, pivoting and the central path


def solve(p: Boxed, own: Roles, guess: Array) -> Attempt:
    """Sides and impulses of a boxed problem, from guessed sides (n,)."""
    first = attempt(p, own, guess, ROUNDS, compact=True)
    return lax.cond(first.solved, lambda first: first, partial(_by_contacts, p, own, guess), first)


def _by_contacts(p: Boxed, own: Roles, guess: Array, first: Attempt) -> Attempt:
    """The same where a guess does not come right: of rows that are guessed to bear, and then of those, too, that are
    violated by what these lead to, until there are none. Many contacts are near, few bear, and a fold of the many is
    long to follow.
    """
    slack = noise(p, own)

    def go_on(carry):
        return carry[0]

    def again(carry):
        _, more, among, found = carry
        among, side = among | more, jnp.where(more & own.push, CLAMPED, found.side).astype(jnp.int8)
        new = on_rows(_harder, among, p._replace(on=among), own, side, sizes=for_pivoting)
        apart = jnp.where(own.push, LOW, CLAMPED).astype(jnp.int8)
        rest = sorted_out(p, own, apart, new.f, 0.0, slack)
        more = p.on & ~among & (rest != apart)[own.owner]
        new = new._replace(side=jnp.where(among, new.side, rest), rounds=found.rounds + new.rounds)
        return more.any(), more, among, new

    start = jnp.ones((), bool), live_rows(p, own, guess), jnp.zeros_like(p.on), first._replace(side=guess)
    return lax.while_loop(go_on, again, start)[-1]


def _harder(p: Boxed, own: Roles, guess: Array) -> Attempt:
    """The guess once more, then pivoting, then the central path, then search."""

    def candidate(stage: Array, base: Array, needed: Array):
        ways = (
            lambda: (guess, np.int32(0)),
            lambda: dantzig(p, own, needed),
            lambda: sides_from_inside(p, own, needed),
            lambda: (variant(p, own, base, stage - SEARCH), np.int32(1)),
        )
        return lax.switch(jnp.minimum(stage, SEARCH), ways)

    def go_on(carry):
        stage, _, found = carry
        return ~found.solved & (stage < SEARCH + variants(len(guess)))

    def again(carry):
        stage, base, found = carry
        side, systems = candidate(stage, base, ~found.solved)
        new = attempt(p, own, side, ROUNDS)
        new = new._replace(rounds=found.rounds + systems + new.rounds)
        return stage + 1, jnp.where(stage < SEARCH, new.side, base), new

    found = lax.while_loop(go_on, again, (jnp.zeros((), jnp.int32), guess, unsolved(p, guess)))[-1]
    return found._replace(side=jnp.where(found.solved, found.side, gauss_seidel(p, own, ~found.solved)))
