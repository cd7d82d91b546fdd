"""Barriers, which hold within a stage too.

XLA's CPU backend puts what is cheap into each of its consumers, and again into theirs: within a stage a mask may be
computed in dozens of places, in the innermost loops. Its barriers are gone before that. A call stays, even of the
identity: what goes through one is written down first.
"""

from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr, Jaxpr, Primitive
from jax.interpreters import ad, batching, mlir

from ukemi.xla.programs import operations, replaced, with_inner

Program = TypeVar("Program", Jaxpr, ClosedJaxpr)

BARRIER = "ukemi_barrier"


def barrier(values):
    """The same pytree of arrays, each computed once, and apart from what uses it.

    JAX's own barrier has no transpose, from 0.11 on, where some of the values are constants of a linear program.
    """
    leaves, structure = jax.tree.flatten(values)
    return jax.tree.unflatten(structure, _barrier_p.bind(*map(jnp.asarray, leaves)))


_barrier_p = Primitive(BARRIER)
_barrier_p.multiple_results = True


def _written(*args) -> list[Array]:
    return lax.optimization_barrier(list(args))


def _differentiate(primals, tangents):
    live = [k for k, t in enumerate(tangents) if type(t) is not ad.Zero]
    along = _barrier_p.bind(*(tangents[k] for k in live)) if live else []
    return _barrier_p.bind(*primals), replaced(tangents, live, along)


def _transpose(cotangents, *args):
    live = [k for k, c in enumerate(cotangents) if ad.is_undefined_primal(args[k]) and type(c) is not ad.Zero]
    back = _barrier_p.bind(*(cotangents[k] for k in live)) if live else []
    none = [c if ad.is_undefined_primal(x) else None for c, x in zip(cotangents, args, strict=True)]
    return replaced(none, live, back)


_barrier_p.def_impl(_written)
_barrier_p.def_abstract_eval(lambda *args: args)
ad.primitive_jvps[_barrier_p] = _differentiate
ad.primitive_transposes[_barrier_p] = _transpose
batching.primitive_batchers[_barrier_p] = lambda args, axes: (_barrier_p.bind(*args), axes)
mlir.register_lowering(_barrier_p, mlir.lower_fun(_written, multiple_results=True))


# ---- within a call ---------------------------------------------------------------------------------------------------


def walled(program: Program) -> Program:
    """The same program with calls for barriers, also within its loops and branches; itself where it has none, so that
    JAX, which knows programs by identity, lowers those that are used often once.
    """
    jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program  # from JAX 0.11 on these are one
    if BARRIER not in operations(jaxpr):
        return program
    changed = jaxpr.replace(eqns=[_of_eqn(eqn) for eqn in jaxpr.eqns])
    if isinstance(program, ClosedJaxpr) and jaxpr is not program:
        changed = ClosedJaxpr(changed, program.consts)
    return cast(Program, changed)


def _of_eqn(eqn):
    return eqn.replace(primitive=_wall_p) if eqn.primitive.name == BARRIER else with_inner(eqn, walled)


@jax.jit
def _same(*args) -> Any:
    return args


def _call(*args) -> Any:
    return set_xla_metadata(_same(*args), inlineable="false")


_wall_p = Primitive("ukemi_wall")
_wall_p.multiple_results = True
_wall_p.def_abstract_eval(lambda *args: args)
mlir.register_lowering(_wall_p, mlir.lower_fun(_call, multiple_results=True))
