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
    if isinstance(program, ClosedJaxpr):
        inner = walled(program.jaxpr)
        return program if inner is program.jaxpr else ClosedJaxpr(inner, program.consts)
    if BARRIER not in operations(program):
        return program
    return program.replace(eqns=[_of_eqn(eqn) for eqn in program.eqns])


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
