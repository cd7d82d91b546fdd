"""Barriers that hold within a stage.

XLA's CPU backend puts what is cheap into each of its consumers, and again into theirs: within a stage a mask may be
computed in dozens of places, in the innermost loops. Its barriers are gone before that. A call stays, even of the
identity: what goes through one is written down first.
"""

from typing import Any, TypeVar

import jax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr, Jaxpr, Primitive
from jax.interpreters import mlir

from ukemi.xla.programs import operations, with_inner

Program = TypeVar("Program", Jaxpr, ClosedJaxpr)

BARRIER = "optimization_barrier"


def walled(program: Program) -> Program:
    """The same program with calls for barriers, also within its loops and branches; itself where it has none, so that
    JAX, which knows programs by identity, lowers those that are used often once.
    """
    jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program  # from JAX 0.11 on these are one
    if BARRIER not in operations(jaxpr):
        return program
    changed = jaxpr.replace(eqns=[_of_eqn(eqn) for eqn in jaxpr.eqns])
    return changed if jaxpr is program else ClosedJaxpr(changed, program.consts)


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
