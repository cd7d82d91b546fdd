"""Systems of the rows that matter alone, so that a step costs what its contacts cost: most limits are far off."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.laws.rigid.boxes import LOW, Boxed, Product, Roles, dense
from ukemi.maths.gathers import rows_where
from ukemi.maths.ranking import place_in

SIZES = (12, 36, 108, 324)  # numbers of rows for which systems are compiled
BEARING = 108  # rows at a time have a force at most, as a rule, however many may


def for_systems(n: int) -> list[int]:
    """Sizes of systems worth it beside one of n rows: from a sixth to two thirds."""
    return [size for size in SIZES if 6 * size <= 4 * n and (n <= 6 * size or size == BEARING)]


def for_pivoting(n: int) -> list[int]:
    """The same of pivoting and what follows it, which takes long to compile."""
    return [BEARING] if 3 * BEARING <= n else []


def live_rows(p: Boxed, own: Roles, side: Array) -> Array:
    """Rows (n,) that may have a force: a push at its side has none, nor have the frictions that it bounds."""
    apart = own.push & (side <= LOW)
    return p.on & ~apart[own.owner]


def on_rows(function, live: Array, p: Boxed, own: Roles, *rows, sizes=for_systems):
    """`function(p, own, *rows)` of the live rows (n,), in as small a system of those `sizes` as holds them.

    rows are arrays that lead with the rows; what the function returns are such arrays, of which what is not live
    becomes zero, and numbers. Worlds in lockstep (`xla.batches.one_by_one`) take all sizes; on CPU they run one by one.
    """
    sizes = sizes(len(live))

    def full(live, p, *args):
        return _spread(live, function(dense(p), *args))

    branches = [*(_of_size(function, size) for size in sizes), full]
    return lax.switch((live.sum() > np.array(sizes, int)).sum(), branches, live, p, own, *rows)


def _of_size(function, size: int):
    def run(live, p: Boxed, own: Roles, *rows):
        n = len(live)
        place = (np.tri(n, dtype=bool) & live).sum(-1) - 1  # among the live
        mine = (place == np.arange(size)[:, None]) & live
        used, rows_of = mine.any(-1), place_in(mine, none=0)
        take = lambda x: x[rows_of]  # noqa: E731
        A = p.A.of_rows(rows_of) if isinstance(p.A, Product) else take(p.A)[:, rows_of]
        few = Boxed(A, *jax.tree.map(take, p[1:]))
        # rows that stay empty have no force, whatever row they were copied from
        few = few._replace(on=few.on & used, fixed=jnp.where(used, few.fixed, 0), mu=jnp.where(used, few.mu, 0))
        roles = Roles(take(own.push), take(own.hold), jnp.where(used, place[take(own.owner)], np.arange(size)))
        return _spread(live, function(few, roles, *jax.tree.map(take, rows)), jnp.maximum(place, 0))

    return run


def _spread(live: Array, out, place: Array | slice = slice(None)):
    """What a function of rows returned, with rows from their places, or zero where they are not live."""
    return jax.tree.map(lambda x: rows_where(live, x[place]) if x.ndim else x, out)
