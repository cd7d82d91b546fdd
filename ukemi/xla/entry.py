"""How public functions are compiled: for the arrays among their arguments, whatever pytrees these are in.

`equinox.filter_jit` does the same, and takes its arguments apart and together several times on the way, which took
longer than a step of a humanoid: here it is once.
"""

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar, cast

import jax
import numpy as np

P = ParamSpec("P")
R = TypeVar("R")
SEVERAL = 50_000  # new objects after which Python looks for garbage while we trace
ARRAYS = jax.Array, np.ndarray, np.generic


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Python looks for garbage after some hundred new objects; tracing makes millions, and nearly all of them stay."""
    young, *older = gc.get_threshold()
    gc.set_threshold(max(young, SEVERAL) if young else 0, *older)
    try:
        yield
    finally:
        gc.set_threshold(young, *older)


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """`function` of pytrees, compiled once per shapes of their arrays and per value of all else, which is hashable."""

    def run(static, *arrays):
        structure, others = static
        given = iter(arrays)
        leaves = [next(given) if other is None else other[0] for other in others]
        with _rare_collections():
            return cast(Callable, function)(*jax.tree.unflatten(structure, leaves))

    run.__name__ = run.__qualname__ = function.__name__  # as profiles and caches have it
    program = jax.jit(run, static_argnums=0)

    @functools.wraps(function)
    def call(*args: P.args, **_: P.kwargs) -> R:  # which are none
        leaves, structure = jax.tree.flatten(args)
        others = tuple([None if isinstance(x, ARRAYS) else (x,) for x in leaves])
        return program((structure, others), *[x for x in leaves if isinstance(x, ARRAYS)])

    return call
