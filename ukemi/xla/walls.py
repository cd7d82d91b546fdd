"""Barriers that hold within a stage.

XLA's CPU backend puts what is cheap into each of its consumers, and again into theirs: within a stage a mask may be
computed in dozens of places, in the innermost loops. Its barriers are gone before that. A call stays, even of the
identity: what goes through one is written down first.
"""

from typing import Any

import jax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr, Jaxpr, Primitive
from jax.interpreters import mlir


def walled(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same program with calls for barriers, also within its loops and branches."""
    return ClosedJaxpr(_of_jaxpr(closed.jaxpr), closed.consts)


def _of_jaxpr(jaxpr: Jaxpr) -> Jaxpr:
    return jaxpr.replace(eqns=[_of_eqn(eqn) for eqn in jaxpr.eqns])


def _of_eqn(eqn):
    if eqn.primitive.name == "optimization_barrier":
        return eqn.replace(primitive=_wall_p)
    return eqn.replace(params={k: jax.tree.map(_of_value, v, is_leaf=_is_program) for k, v in eqn.params.items()})


def _of_value(value):
    if isinstance(value, ClosedJaxpr):
        return walled(value)
    return _of_jaxpr(value) if isinstance(value, Jaxpr) else value


def _is_program(value) -> bool:
    return isinstance(value, ClosedJaxpr | Jaxpr)


@jax.jit
def _same(*args) -> Any:
    return args


def _call(*args) -> Any:
    return set_xla_metadata(_same(*args), inlineable="false")


_wall_p = Primitive("ukemi_wall")
_wall_p.multiple_results = True
_wall_p.def_abstract_eval(lambda *args: args)
mlir.register_lowering(_wall_p, mlir.lower_fun(_call, multiple_results=True))
