"""Systems of the rows that matter alone, so that a step costs what its contacts cost: most limits are far off."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.batching import one_by_one
from ukemi.solvers.boxed import LOW, Boxed, Roles

SIZES = (12, 36, 108)  # numbers of rows for which systems are compiled, up to two thirds of all


def live_rows(p: Boxed, own: Roles, side: Array) -> Array:
    """Rows (n,) that may have a force: a push at its side has none, nor have the frictions that it bounds."""
    apart = own.push & (side == LOW)
    return p.on & ~apart[own.owner]


def on_rows(function, live: Array, p: Boxed, own: Roles, *rows):
    """`function(p, own, *rows)` of the live rows (n,), in as small a system as holds them.

    rows, and all that the function returns, are arrays that lead with the rows; what is not live becomes zero.
    """
    n = len(live)
    sizes = [size for size in SIZES if 3 * size <= 2 * n]

    def full(live, *args):
        return _masked(live, function(*args))

    def choose(live, *args):
        count = live.sum()
        branches = [_of_size(function, size) for size in sizes]
        return lax.switch((count > np.array(sizes)).sum(), [*branches, full], live, *args)

    return one_by_one(choose if sizes else full, in_lockstep=full)(live, p, own, *rows)


def _of_size(function, size: int):
    def run(live, p: Boxed, own: Roles, *rows):
        n = len(live)
        place = (np.tri(n, dtype=bool) & live).sum(-1) - 1  # among the live
        mine = (place == np.arange(size)[:, None]) & live
        used, rows_of = mine.any(-1), jnp.argmax(mine, -1)
        take = lambda x: x[rows_of]  # noqa: E731
        few = Boxed(take(p.A)[:, rows_of], *jax.tree.map(take, p[1:]))._replace(on=take(p.on) & used)
        roles = Roles(take(own.push), take(own.hold), jnp.where(used, place[take(own.owner)], np.arange(size)))
        out = function(few, roles, *jax.tree.map(take, rows))
        return _masked(live, jax.tree.map(lambda x: x[jnp.maximum(place, 0)], out))

    return run


def _masked(live: Array, out):
    return jax.tree.map(lambda x: jnp.where(live.reshape(-1, *(1,) * (x.ndim - 1)), x, 0), out)
