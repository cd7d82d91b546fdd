"""Linear maps whose transposes are as fast as they are: gathers at constant positions, products with masks.

JAX transposes a gather into a scatter-add, which XLA's CPU backend runs as a loop of single updates: a few of them
cost more than a whole step. At constant positions the transpose is known beforehand. And it transposes a product with
a matrix into a contraction over leading axes, which that backend hands to a thread pool; here the transpose is given.
"""

from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax, typeof
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

_pick_p = Primitive("ukemi_pick")
FEW = 4  # uses of one entry up to which its cotangents are gathered one by one


class _Index:
    """A constant index array, hashable by content."""

    def __init__(self, array: np.ndarray):
        self.array = np.ascontiguousarray(array, np.int32)
        self.key = self.array.shape, self.array.tobytes()

    def __hash__(self):
        return hash(self.key)

    def __eq__(self, other):
        return isinstance(other, _Index) and self.key == other.key


def pick(a: Array, index: np.ndarray) -> Array:
    """Entries of the last axis at constant positions (of any shape); fuses into its consumers, unlike slices."""
    _check(index, a.shape[-1])
    return _pick_p.bind(jnp.asarray(a), index=_Index(index))


def pick_rows(a: Array, index: np.ndarray) -> Array:
    """Rows (n, ...) of the first axis at constant positions (n,)."""
    if a.ndim == 1:
        return pick(a, index)
    _check(index, len(a))
    flat = a.reshape(len(a), int(np.prod(a.shape[1:])))
    return _pick_rows_p.bind(flat, index=_Index(index)).reshape(len(index), *a.shape[1:])


def _check(index: np.ndarray, length: int) -> None:
    """XLA would take another entry for one that is not there: one before the first, too."""
    if index.size and not 0 <= index.min() <= index.max() < length:
        raise IndexError(f"positions from {index.min()} to {index.max()} of {length} entries")


def rows_at(table: Array | np.ndarray, k: Array) -> Array:
    """Rows (..., r) of a table (n, r) at positions (...) that are within it; indexing would compile tests of that."""
    table, k = jnp.asarray(table), jnp.asarray(k)
    rest = tuple(range(k.ndim, k.ndim + table.ndim - 1))
    where = lax.GatherDimensionNumbers(rest, (0,), (0,))
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return lax.gather(table, lax.expand_dims(k, [k.ndim]), where, (1, *table.shape[1:]), mode=mode)


def put_rows(table: Array, rows: Array, start: Array) -> Array:
    """The table (n, ...) with rows (m, ...) from a `start` on that is not negative."""
    return lax.dynamic_update_slice_in_dim(table, rows, start, 0, allow_negative_indices=False)


def rows_where(chosen: Array | np.ndarray, x, y=None):
    """Leaves of x, which lead with rows, where these are chosen (n,) bool; elsewhere those of y, or zero."""

    def of_leaf(a, b):
        return jnp.where(chosen.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(lambda a: of_leaf(a, 0), x) if y is None else jax.tree.map(of_leaf, x, y)


def _gather(a: Array, *, index: _Index) -> Array:
    *_, last = range(a.ndim)
    where = lax.GatherDimensionNumbers(tuple(range(last)), (last,), (last,))
    return _gathered(a, index, where, (*a.shape[:-1], 1))


def _gathered(a: Array, index: _Index, where: lax.GatherDimensionNumbers, size: tuple[int, ...]) -> Array:
    """One operation; indexing would compile tests for negative positions with it."""
    return lax.gather(a, index.array[..., None], where, size, mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)


def _abstract(a, *, index: _Index):
    return a.update(shape=(*a.shape[:-1], *index.array.shape))


def _transpose(cotangent, a, *, index: _Index):
    if type(cotangent) is ad.Zero:
        return [ad.Zero(a.aval)]
    width, flat = a.aval.shape[-1], index.array.ravel()
    cotangent = cotangent.reshape(*a.aval.shape[:-1], index.array.size)
    uses = [np.nonzero(flat == i)[0] for i in range(width)]
    most = max(map(len, uses), default=0)
    if most > FEW:
        return [cotangent @ (flat[:, None] == np.arange(width)).astype(cotangent.dtype)]
    total = jnp.zeros(a.aval.shape, cotangent.dtype)
    for k in range(most):
        has = np.array([len(use) > k for use in uses])
        total = total + jnp.where(has, pick(cotangent, np.array([use[k] if len(use) > k else 0 for use in uses])), 0.0)
    return [total]


def _batch(args, axes, *, index: _Index):
    return pick(jnp.moveaxis(args[0], axes[0], 0), index.array), 0


_pick_p.def_abstract_eval(_abstract)
_pick_p.def_impl(_gather)
ad.deflinear2(_pick_p, _transpose)
batching.primitive_batchers[_pick_p] = _batch
mlir.register_lowering(_pick_p, mlir.lower_fun(_gather, multiple_results=False))


_pick_rows_p = Primitive("ukemi_pick_rows")


def _gather_rows(a: Array, *, index: _Index) -> Array:
    return _gathered(a, index, lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, a.shape[1]))


def _abstract_rows(a, *, index: _Index):
    return a.update(shape=(len(index.array), a.shape[1]))


def _transpose_rows(cotangent, a, *, index: _Index):
    if type(cotangent) is ad.Zero:
        return [ad.Zero(a.aval)]
    own = np.arange(a.aval.shape[0])[:, None] == index.array
    return [jnp.asarray(own.astype(cotangent.dtype)) @ cotangent]


def _batch_rows(args, axes, *, index: _Index):
    a = jnp.moveaxis(args[0], axes[0], 1)  # (rows, batch, columns)
    rows = _pick_rows_p.bind(a.reshape(a.shape[0], a.shape[1] * a.shape[2]), index=index)
    return rows.reshape(len(index.array), *a.shape[1:]), 1


_pick_rows_p.def_abstract_eval(_abstract_rows)
_pick_rows_p.def_impl(_gather_rows)
ad.deflinear2(_pick_rows_p, _transpose_rows)
batching.primitive_batchers[_pick_rows_p] = _batch_rows
mlir.register_lowering(_pick_rows_p, mlir.lower_fun(_gather_rows, multiple_results=False))


# ---- products with matrices that have no derivative ------------------------------------------------------------------

_mix_p = Primitive("ukemi_mix")


def mix(matrix, x: Array) -> Array:
    """matrix @ x for a matrix (m, n) without derivative, constant or not, and x (n, ...)."""
    matrix = jnp.asarray(matrix, x.dtype)
    flat = x.reshape(len(x), int(np.prod(x.shape[1:])))  # not −1, which is unknown where nothing moves
    return _mix_p.bind(matrix, matrix.T, flat).reshape(len(matrix), *x.shape[1:])


def _product(matrix, transposed, x):
    return matrix @ x


def _mix_jvp(primals, tangents):
    matrix, transposed, x = primals
    if not all(type(t) is ad.Zero for t in tangents[:2]):
        raise TypeError("mix has no derivative in its matrix.")
    out = _mix_p.bind(*primals)
    along = tangents[2]
    return out, ad.Zero(typeof(out)) if type(along) is ad.Zero else _mix_p.bind(matrix, transposed, along)


def _mix_transpose(cotangent, matrix, transposed, x):
    if type(cotangent) is ad.Zero:
        return None, None, ad.Zero(x.aval)
    return None, None, _mix_p.bind(transposed, matrix, cotangent)


def _mix_batch(args, axes):
    matrix, transposed, x = args
    if axes[0] is None and axes[1] is None:  # the batch becomes columns
        x = jnp.moveaxis(x, axes[2], 1)
        flat = x.reshape(x.shape[0], x.shape[1] * x.shape[2])
        return _mix_p.bind(matrix, transposed, flat).reshape(len(matrix), *x.shape[1:]), 1
    moved = [a if axis is None else jnp.moveaxis(a, axis, 0) for a, axis in zip(args, axes, strict=True)]
    return jnp.matmul(moved[0], moved[2]), 0


def _mix_abstract(matrix, transposed, x):
    return x.update(shape=(matrix.shape[0], x.shape[1]))


_mix_p.def_abstract_eval(_mix_abstract)
_mix_p.def_impl(_product)
ad.primitive_jvps[_mix_p] = _mix_jvp
ad.primitive_transposes[_mix_p] = _mix_transpose
batching.primitive_batchers[_mix_p] = _mix_batch
mlir.register_lowering(_mix_p, mlir.lower_fun(_product, multiple_results=False))


def taken(x: Array, index: np.ndarray) -> Array:
    """Elements of x (k,) at an index of any shape, zero where that is −1."""
    if index.shape == x.shape and (index == np.arange(len(x))).all():
        return x
    return jnp.where(index >= 0, pick(x, np.maximum(index, 0)), 0.0) if x.size else jnp.zeros(index.shape, x.dtype)


def placed(x: Array, places: np.ndarray, values: Array) -> Array:
    """x (..., n) with values (..., *places.shape) at constant places, all different; no scatter, as above."""
    n, lead = x.shape[-1], x.shape[:-1]
    index = np.arange(n)
    index[places.ravel()] = n + np.arange(places.size)
    values = jnp.broadcast_to(values, (*lead, *places.shape)).reshape(*lead, places.size)
    return pick(jnp.concatenate([x, values.astype(x.dtype)], -1), index)


def placed_sums(values: Array, places: np.ndarray, size: int) -> Array:
    """(size,) sums of values (n,) by constant places, of which most may have none: no scatter, as above."""
    if not values.size:
        return jnp.zeros(size, values.dtype)
    used, owner, count = np.unique(places, return_inverse=True, return_counts=True)
    if count.max() > FEW:
        sums = mix(owner == np.arange(len(used))[:, None], values)
    else:
        order, start = np.argsort(owner, kind="stable"), np.cumsum(count) - count
        turns = (np.where(count > k, order[np.minimum(start + k, len(order) - 1)], -1) for k in range(count.max()))
        sums = cast(Array, sum(taken(values, turn) for turn in turns))
    where = np.full(size, -1)
    where[used] = np.arange(len(used))
    return taken(sums, where)
