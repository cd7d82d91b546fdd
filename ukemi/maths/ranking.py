"""Order among a few numbers, without a sort, and where they are in a table."""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.maths.gathers import put_rows, rows_at
from ukemi.xla.batches import takes_turns

FEW = 512  # numbers up to which comparing all pairs is faster than sorting


def smallest(x: Array, k: int) -> Array:
    """Places (k,) of the k smallest of x (n,), in rising order; of equal ones the first comes first.

    Each number's rank is how many come before it. Unlike a sort it can be part of a compact stage (`region`): of 35
    numbers it takes a fifth of the time.
    """
    n = len(x)
    if n > FEW:
        return lax.top_k(-x, k)[1]
    first = np.tri(n, k=-1, dtype=bool)  # [i, j]: j comes before i among equals
    rank = ((x < x[:, None]) | ((x == x[:, None]) & first)).sum(-1)
    return place_in(rank == np.arange(k)[:, None], none=0)


def places(mask: Array, k: int) -> Array:
    """Places (k,) of the first k true entries of a mask (n,); the last place for each that there is not."""
    last = len(mask) - 1
    if not takes_turns():
        return jnp.minimum(jnp.searchsorted(jnp.cumsum(mask), np.arange(1, k + 1)), last).astype(jnp.int32)

    def one(i: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        # whatever is not true is overwritten by the next one
        place, count = found
        return put_rows(place, i.astype(jnp.int32)[None], count), count + rows_at(mask, i)

    start = jnp.full(k + 1, last, jnp.int32), jnp.int32(0)
    return lax.fori_loop(jnp.int32(0), jnp.int32(len(mask)), one, start)[0][:k]


def place_in(rows: Array, none: int = -1) -> Array:
    """Where the one True of each row is, or the last of several (..., n) -> (...); `none` where there is none.

    Compilers make one pass over whole words of it; of `argmax` they make comparisons, one after the other.
    """
    return jnp.where(rows, np.arange(rows.shape[-1], dtype=np.int32), none).max(-1, initial=none)


def wrapped(k: Array, n: Array | int) -> Array:
    """k % n of whole numbers that are not negative: `%` compiles what others need with it."""
    dtype, shape = jnp.result_type(k, n), jnp.broadcast_shapes(jnp.shape(k), jnp.shape(n))
    return lax.rem(*(jnp.broadcast_to(jnp.asarray(x, dtype), shape) for x in (k, n)))


def parts(count: Array, size: int) -> Array:
    """How many parts of a size hold a count (), the last one in part: `//` compiles what negative ones need with it."""
    return count if size == 1 else lax.div(count + (size - 1), jnp.asarray(size, count.dtype))


def row_and_column(k: Array, columns: int) -> Array:
    """Where (2,) the k-th entry of a table is."""
    column = wrapped(k, columns)
    return jnp.stack([lax.div(k - column, jnp.asarray(columns, k.dtype)), column])


def ascending(x: Array) -> Array:
    """The three numbers along the last axis in rising order."""
    a, b, c = x[..., 0], x[..., 1], x[..., 2]
    middle = jnp.maximum(jnp.minimum(a, b), jnp.minimum(jnp.maximum(a, b), c))
    return jnp.stack([x.min(-1), middle, x.max(-1)], -1)
