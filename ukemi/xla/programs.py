"""Functions as JAX's operations see them: of flat arguments, of some of these alone, without what nobody uses."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import typeof
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive
from jax.interpreters.partial_eval import dce_jaxpr

from ukemi.xla.once import once

RECENT = 64  # traced functions that are remembered
PROGRAM = Jaxpr, ClosedJaxpr
ALIKE = ("jit", "ukemi_each")  # operations that do what the first program they hold does
DECIDING = "jax_enable_x64", "jax_default_matmul_precision"  # settings that tracing depends on
_recent: dict[Any, tuple[ClosedJaxpr, Any, Callable]] = {}


def holding(name: str) -> Primitive:
    """An operation of several results that holds programs.

    From 0.11 on JAX asks which operations hold others that it has yet to replace by plainer ones, to do that first. Of
    ours it is done where they are lowered, since their programs are traced again there.
    """
    operation = Primitive(name)
    operation.multiple_results = True
    operation.is_high = lambda *_, **__: False
    return operation


def trace(function: Callable, args) -> tuple[ClosedJaxpr, list, Any]:
    """The operations that `function` of the leaves of `args` needs, these leaves, and the structure of its result.

    JAX asks for the same function again where it makes derivatives, and often from within another, so that the
    innermost would be traced many times: what was traced lately is known.
    """
    flat, tree = jax.tree.flatten(args)
    settings = tuple(getattr(jax.config, name) for name in DECIDING)
    key = id(function), tree, tuple(map(typeof, flat)), settings  # the function is kept: its number stays its own
    closed, structure, _ = known = _recent.pop(key, None) or (*_traced(function, tree, flat), function)
    if not any(isinstance(x, Tracer) for x in closed.consts):  # these are gone by the next time
        _recent[key] = known
    while len(_recent) > RECENT:
        _recent.pop(next(iter(_recent)), None)
    return closed, flat, structure


def _traced(function: Callable, tree, flat: list) -> tuple[ClosedJaxpr, Any]:
    def of_leaves(*flat):
        return function(*jax.tree.unflatten(tree, flat))

    closed, shape = jax.make_jaxpr(of_leaves, return_shape=True)(*flat)
    return with_outputs(closed, closed.jaxpr.outvars), jax.tree.structure(shape)


def without_tracers(closed: ClosedJaxpr) -> tuple[ClosedJaxpr, list]:
    """A program with what it captured of outer transformations as its first arguments, and that."""
    jaxpr = closed.jaxpr
    pairs = list(zip(jaxpr.constvars, closed.consts, strict=True))
    given = [(v, c) for v, c in pairs if isinstance(c, Tracer)]
    own = [(v, c) for v, c in pairs if not isinstance(c, Tracer)]
    names = jaxpr.debug_info.with_unknown_names()
    jaxpr = jaxpr.replace(constvars=[v for v, _ in own], invars=[v for v, _ in given] + jaxpr.invars, debug_info=names)
    return ClosedJaxpr(jaxpr, [c for _, c in own]), [c for _, c in given]


def with_outputs(closed: ClosedJaxpr, outvars: list) -> ClosedJaxpr:
    """A program of the same arguments that makes these variables of it, and nothing that they don't need."""
    jaxpr = closed.jaxpr.replace(outvars=outvars, debug_info=closed.jaxpr.debug_info.with_unknown_names())
    needed, _ = dce_jaxpr(jaxpr, [True] * len(outvars), instantiate=True)
    return ClosedJaxpr(needed, closed.consts)


@once
def operations(jaxpr: Jaxpr) -> frozenset[str]:
    """Names of all operations in a program, those inside of others too."""
    within = (program for eqn in jaxpr.eqns for program in inner(eqn))
    return frozenset(eqn.primitive.name for eqn in jaxpr.eqns).union(*map(operations, within))


def inner(eqn) -> list[Jaxpr]:
    """Programs among an operation's parameters."""
    return [x.jaxpr if isinstance(x, ClosedJaxpr) else x for x in _programs(eqn.params.values())]


def _programs(values) -> Iterator[Jaxpr | ClosedJaxpr]:
    for value in values:
        if isinstance(value, PROGRAM):
            yield value
        elif isinstance(value, tuple | list):
            yield from _programs(value)


def with_inner(eqn, change: Callable):
    """An operation with the programs among its parameters changed."""

    def changed(value):
        return change(value) if _is_program(value) else value

    if not inner(eqn):
        return eqn
    return eqn.replace(params={k: jax.tree.map(changed, v, is_leaf=_is_program) for k, v in eqn.params.items()})


def renamed(jaxpr: Jaxpr, inputs, outputs) -> list:
    """Its operations with other variables for what it is given and what it makes."""
    other = dict(zip(jaxpr.invars, inputs, strict=True)) | dict(zip(jaxpr.outvars, outputs, strict=True))
    return [eqn.replace(invars=named(eqn.invars, other), outvars=named(eqn.outvars, other)) for eqn in jaxpr.eqns]


def named(atoms, other: dict) -> list:
    """Variables and numbers, those that have another name by it."""
    return [v if isinstance(v, Literal) else other.get(v, v) for v in atoms]


def _is_program(value) -> bool:
    return isinstance(value, PROGRAM)


def replaced(values, places, new) -> list:
    """The values with `new` ones at `places`."""
    full = list(values)
    for k, value in zip(places, new, strict=True):
        full[k] = value
    return full


def of_some(function: Callable, args, places) -> Callable:
    """`function(*args)` as a function of the arguments at `places`."""
    return lambda *some: function(*replaced(args, places, some))


def is_smooth(value) -> bool:
    """Whether an array, or the type of one, can have a derivative."""
    return jnp.issubdtype(jnp.result_type(value), jnp.inexact)


def depending(jaxpr: Jaxpr, variables, passes: Callable = is_smooth) -> list[bool]:
    """Which results move with the variables: through floats alone, since nothing else has a derivative.

    passes: through which types, if not these.
    """
    moved = set(variables)
    for eqn in jaxpr.eqns:
        own = [not isinstance(v, Literal) and v in moved for v in eqn.invars]
        if any(own):
            moved.update(v for v, of_it in zip(eqn.outvars, _following(eqn, own, passes), strict=True) if of_it)
    return [not isinstance(v, Literal) and v in moved for v in jaxpr.outvars]


def _following(eqn, moved: list[bool], passes: Callable) -> list[bool]:
    """Which results of an operation move if these arguments do: all, but for one that is no more than its program."""
    if eqn.primitive.name in ALIKE:
        (program,) = inner(eqn)[:1]
        return depending(program, [v for v, own in zip(program.invars, moved, strict=True) if own], passes)
    return [passes(v.aval) for v in eqn.outvars]
