"""Whether sides of a boxed problem are right, and which ones are instead."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ukemi.laws.rigid.boxes import Boxed, Constants, Roles, forces, is_settled, may_hold, noise, sorted_out
from ukemi.laws.rigid.live_rows import live_rows, on_rows


class Attempt(NamedTuple):
    """Sides, what they lead to, and whether that is a solution."""

    side: Array  # (n,) int8
    f: Array  # (n,) of least norm
    solved: Array  # () bool
    settled: Array  # () bool: the forces are known
    rounds: Array  # () linear systems solved


def unsolved(p: Boxed, side: Array) -> Attempt:
    """No attempt yet."""
    return Attempt(side, jnp.zeros_like(p.b), jnp.zeros((), bool), jnp.ones((), bool), jnp.zeros((), jnp.int32))


def attempt(p: Boxed, own: Roles, guess: Array, rounds: int, *, compact: bool = False) -> Attempt:
    """Solve with the guessed sides and sort out violated rows, all at once, for a few rounds.

    A right guess takes one round. This is Newton's method on `residual`; it need not converge.
    compact: with systems of live rows, faster to run and longer to compile.
    """
    delta, slack = Constants.of(p.b.dtype).delta, noise(p, own)

    def go_on(carry):
        found, _ = carry
        return ~found.solved & (found.rounds < rounds)

    def again(carry):
        found, side = carry
        if compact:
            made = on_rows(forces, live_rows(p, own, side), p, own, side)
        else:
            made = forces(p, own, side)
        new = sorted_out(p, own, side, made.regular, delta, slack)
        settled = is_settled(made) if may_hold(own) else found.settled
        return Attempt(side, made.least, (new == side).all(), settled, found.rounds + 1), new

    found, new = lax.while_loop(go_on, again, (unsolved(p, guess), guess))
    return found._replace(side=jnp.where(found.solved, found.side, new))
