"""Which pairs of geoms are near, of many geoms that are mostly far apart: found without a look at every pair.

Boxes along the world's axes around all geoms are sorted along the axis on which they are spread most: what overlaps a
box there are some of those that follow. So all boxes are compared at once with those k places further on, for k = 1, 2,
... until none of these begins before the other's end: in as many turns as boxes overlap along that axis.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.model.records import PairLayout
from ukemi.xla.batches import one_by_one

MANY = 4096  # pairs from which on this is faster than a bound for each pair
ROOM = 16  # pairs of boxes that overlap, per geom, for which there is room: balls packed closely have fewer
LEAST = 64  # and at the least


class Candidates(NamedTuple):
    """Pairs whose boxes overlap, the first `count` of the list."""

    pair: Array  # (n,) rows of `PairLayout.geoms`
    count: Array  # ()
    lost: Array  # () bool: there are more


class _Sorted(NamedTuple):
    """Boxes in the order in which they begin, with as many behind them that meet nothing."""

    low: Array  # (3, 2 n) the axis of the order first
    high: Array  # (3, 2 n)
    owner: Array  # (2 n,)
    geom: Array  # (2 n,)


def room(geoms: int) -> int:
    """Length of the list of candidates."""
    return ROOM * geoms + LEAST


def candidates(layout: PairLayout, owner: np.ndarray, low: Array, high: Array) -> Candidates:
    """Pairs of geoms whose boxes from low to high (ng, 3) overlap; geoms of one owner (ng,) never touch."""
    key, blur = _keys(low, high)
    boxes = _arranged(owner, lax.sort(key, is_stable=False), blur, low, high)
    return one_by_one(lambda boxes: _swept(layout, boxes))(boxes)


def _axis(low: Array, high: Array) -> Array:
    """The axis () on which boxes are spread most."""
    return jnp.argmax(jnp.var(low + high, axis=0))


def _keys(low: Array, high: Array) -> tuple[Array, Array]:
    """Numbers (ng,) in the order in which boxes begin, whose last bits say which geom each is; and their blur (3,).

    To sort numbers alone takes a tenth of the time of sorting them and what belongs to them.
    """
    start, bits = low[:, _axis(low, high)], _bits(len(low))
    levels = 2 ** (31 - bits) - 1
    step = jnp.maximum((start.max() - start.min()) / levels, jnp.finfo(start.dtype).tiny)
    level = jnp.clip((start - start.min()) / step, 0, levels - 1).astype(jnp.int32)
    return level * 2**bits + np.arange(len(low), dtype=np.int32), 2 * step * np.array([1, 0, 0])


def _bits(n: int) -> int:
    return max(n - 1, 1).bit_length()


def _arranged(owner: np.ndarray, key: Array, blur: Array, low: Array, high: Array) -> _Sorted:
    n, axes, order = len(owner), (_axis(low, high) + np.arange(3)) % 3, key % 2 ** _bits(len(owner))

    def behind(x: Array, fill) -> Array:
        return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, n)], constant_values=fill)

    low, high = (x[order].T[axes] for x in (low, high))
    high = high + blur[:, None].astype(high.dtype)
    owners = behind(jnp.asarray(owner)[order], -1)
    return _Sorted(behind(low, jnp.inf), behind(high, -jnp.inf), owners, behind(order, 0))


def _swept(layout: PairLayout, boxes: _Sorted) -> Candidates:
    n = boxes.low.shape[-1] // 2
    low, high, owner, geom = (x[..., :n] for x in boxes)

    def compare(at):
        k, _, found = at
        other = _Sorted(*(lax.dynamic_slice_in_dim(x, k, n, axis=-1) for x in boxes))
        along = other.low[0] <= high[0]
        beside = [(other.low[i] <= high[i]) & (low[i] <= other.high[i]) for i in (1, 2)]
        hit = along & beside[0] & beside[1] & (other.owner != owner)
        found = lax.cond(hit.any(), lambda: _added(layout, hit, geom, other.geom, found), lambda: found)
        return k + 1, along.any(), found

    none = Candidates(jnp.zeros(room(n), jnp.int32), jnp.int32(0), jnp.array(False))
    start = jnp.int32(1), jnp.array(True), none
    return lax.while_loop(lambda at: at[1] & (at[0] < n), compare, start)[2]


def _added(layout: PairLayout, hit: Array, geom: Array, other: Array, found: Candidates) -> Candidates:
    """Candidates and those of the geoms that `hit` (n,) each other and may touch."""
    size = len(found.pair)

    def add(at):
        hit, found = at
        k = jnp.argmax(hit)
        pair = jnp.asarray(layout.table)[geom[k], other[k]]
        real, full = pair >= 0, found.count >= size
        place = jnp.minimum(found.count, size - 1)
        kept = jnp.where(real & ~full, pair, found.pair[place])
        count = found.count + (real & ~full)
        pairs = lax.dynamic_update_index_in_dim(found.pair, kept, place, 0)
        return hit & (np.arange(len(hit)) != k), Candidates(pairs, count, found.lost | (real & full))

    return lax.while_loop(lambda at: at[0].any(), add, (hit, found))[1]
