"""Values that are computed once, whatever they go into.

XLA's CPU backend puts what is cheap into each of its consumers, and again into theirs: within a stage a mask may be
computed in dozens of places, in the innermost loops. Its barriers are gone before that. A call stays, even of the
identity: what goes through one is written down first.
"""

from typing import Any

import jax
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

_once_p = Primitive("ukemi_once")
_once_p.multiple_results = True


def once(x):
    """x, written down before anything is made of it."""
    leaves, structure = jax.tree.flatten(x)
    return jax.tree.unflatten(structure, _once_p.bind(*leaves))


def _walled(*args) -> Any:
    return set_xla_metadata(jax.jit(lambda *x: x)(*args), inlineable="false")


def _barred(*args) -> Any:
    return lax.optimization_barrier(args)


def _differentiate(primals, tangents):
    live = [k for k, t in enumerate(tangents) if type(t) is not ad.Zero]
    moved = iter(_once_p.bind(*(tangents[k] for k in live)) if live else ())
    return _once_p.bind(*primals), [next(moved) if k in live else t for k, t in enumerate(tangents)]


def _transpose(cotangents, *args):
    live = [k for k, c in enumerate(cotangents) if type(c) is not ad.Zero]
    back = iter(_once_p.bind(*(cotangents[k] for k in live)) if live else ())
    return [next(back) if k in live else c for k, c in enumerate(cotangents)]


_once_p.def_impl(_barred)
_once_p.def_abstract_eval(lambda *args: args)
ad.primitive_jvps[_once_p] = _differentiate
ad.primitive_transposes[_once_p] = _transpose
batching.primitive_batchers[_once_p] = lambda args, axes: (_once_p.bind(*args), axes)
mlir.register_lowering(_once_p, mlir.lower_fun(_barred, multiple_results=True))
mlir.register_lowering(_once_p, mlir.lower_fun(_walled, multiple_results=True), platform="cpu")
