"""Stages of a step: operations that are gathered into calls, which XLA's CPU backend compiles to one function each.

Gathered is what lies between operations that cannot be part of a call (`xla/calls.py`). Side by side calls may run on
several threads; large arrays and batches stay outside.
"""

from collections.abc import Callable
from functools import partial

import jax
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive, jaxpr_as_fun

from ukemi.xla.calls import by_turns, called, region_p
from ukemi.xla.flags import compiles_calls
from ukemi.xla.once import once
from ukemi.xla.programs import inner, named, operations, renamed, trace, with_inner
from ukemi.xla.walls import BARRIER

# Operations of `jax.lax` that XLA's emitter refuses or makes from calls of a library; linear algebra is in
# `jax.lax.linalg`. What is not NATIVE stays outside: XLA could not compile a call with it.
FOREIGN = (
    "sort", "scatter", "top_k", "fft", "conv_", "all_", "psum", "pmax", "pmin", "permute",
    "axis_index", "token", "dce_sink", "device_put", "sharding", "stage", "rng", "window", "select_and",
    "beta", "gamma", "zeta",
)  # fmt: skip
OURS = ("ukemi_pick", "ukemi_pick_rows", "ukemi_mix", BARRIER)
OTHERS = ("jit", "closed_call", "custom_jvp_call", "custom_vjp_call", "ukemi_each", "add_any", "platform_index")
LOOPS = ("while", "scan")
LAX = {p.name for p in vars(jax.lax).values() if isinstance(p, Primitive)}
NATIVE = {name for name in LAX if not any(part in name for part in FOREIGN)} | {*OURS, *OTHERS}
LARGE = 1 << 20  # bytes of an array that had better be worked on by several threads
PRODUCTS = 1 << 15  # multiplications of a matrix product that a library does better
TILED = 128, 32  # sizes of a matrix product that XLA's emitter makes of tiles, as fast as a library does
MOST = 2000  # operations in a call, or in a loop within one: the time to compile it grows faster than its size
LEAST = 3  # operations worth a call


def compact(function: Callable) -> Callable:
    """`function` of pytrees of arrays, as a few compiled functions on CPU; derivatives and batches are as without."""

    def call(*args):
        if not compiles_calls():
            return function(*args)
        closed, flat, structure = trace(function, args)
        return jax.tree.unflatten(structure, _run(closed, *flat))

    return call


def _run(closed: ClosedJaxpr, *args) -> list:
    """Evaluate, operation by operation or call by call."""
    jaxpr = closed.jaxpr
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *args], strict=True))
    constants = {v: c for v, c in zip(jaxpr.constvars, closed.consts, strict=True) if not isinstance(c, Tracer)}

    def value(atom):
        if isinstance(atom, Literal):
            return atom.val
        return values[atom] if atom in values else jaxpr_as_fun(part([], [atom])[0])()[0]

    def part(run, made) -> tuple[ClosedJaxpr, list]:
        """A program of its own, which makes what is the same each time itself, and what it reads."""
        run = [*_recipes(fixed, _reads(run) | _variables(made)), *run]
        every = {v for eqn in run for v in eqn.outvars}
        inputs = [v for v in _reads(run) | _variables(made) if v not in every]
        own, given = [v for v in inputs if v in constants], [v for v in inputs if v not in constants]
        names = jaxpr.debug_info.with_unknown_names()
        program = jaxpr.replace(constvars=own, invars=given, outvars=made, eqns=run, debug_info=names)
        return ClosedJaxpr(program, [constants[v] for v in own]), given

    def by_calls(eqn) -> list:
        """A loop, and what it needs, with a call for each turn."""
        made = [v for v in eqn.outvars if v in read]
        program, given = part([eqn], made)
        loop = jax.make_jaxpr(partial(by_turns, program))(*[v.aval for v in given])
        own = dict(zip(loop.jaxpr.constvars, loop.consts, strict=True))
        constants.update(own)
        values.update(own)
        return renamed(loop.jaxpr, given, made)

    eqns, outvars = _without_barriers(jaxpr)
    fixed, eqns = _fixed(eqns, constants)
    read = _reads(eqns) | _variables(outvars)
    runs = _runs([e for eqn in eqns for e in (by_calls(eqn) if _is_large_loop(eqn) else [eqn])])
    wanted = [_reads(run) for run in runs] + [_variables(outvars)]
    last = {v: k for k, reads in enumerate(wanted) for v in reads}
    for k, run in enumerate(runs):
        made = [v for eqn in run for v in eqn.outvars if last.get(v, k) > k]
        if _is_inlined(run[0]):
            made, out = run[0].outvars, _run(_closed(run[0].params["jaxpr"]), *map(value, run[0].invars))
        else:
            apart = _is_apart(run[0])
            program, given = part([_looked_into(run[0], constants)] if apart else run, made)
            args = [values[v] for v in given]
            alone = apart or _weight(program.jaxpr) < LEAST
            out = jaxpr_as_fun(program)(*args) if alone else called(program, *args)
        values.update(zip(made, out, strict=True))
    return [value(v) for v in outvars]


def _fixed(eqns, constants) -> tuple[list, list]:
    """Operations of which nothing varies, and the others."""
    same, fixed, others = {*constants}, [], []
    for eqn in eqns:
        still = same.issuperset(_variables(eqn.invars)) and eqn.primitive.name in LAX
        still = still and not inner(eqn) and not _is_apart(eqn)
        (fixed if still else others).append(eqn)
        same.update(eqn.outvars if still else ())
    return fixed, others


def _recipes(fixed: list, wanted: dict) -> list:
    """Those among them that make what is wanted."""
    found, todo = [], {*wanted}
    for eqn in reversed(fixed):
        if not todo.isdisjoint(eqn.outvars):
            found.append(eqn)
            todo.update(_variables(eqn.invars))
    return found[::-1]


def _without_barriers(jaxpr: Jaxpr) -> tuple[list, list]:
    """Operations and results without barriers on the function's own arguments: to a call they are copies, no more."""
    given, same, eqns = {*jaxpr.invars, *jaxpr.constvars}, {}, []
    for eqn in jaxpr.eqns:
        pairs = list(zip(named(eqn.invars, same), eqn.outvars, strict=False))
        if eqn.primitive.name != BARRIER:
            eqns.append(eqn.replace(invars=named(eqn.invars, same)))
            continue
        same.update({out: v for v, out in pairs if not isinstance(v, Literal) and v in given})
        pairs = [(v, out) for v, out in pairs if out not in same]
        if pairs:
            eqns.append(eqn.replace(invars=[v for v, _ in pairs], outvars=[out for _, out in pairs]))
    return eqns, named(jaxpr.outvars, same)


def _variables(atoms) -> dict:
    """Variables among them, in order."""
    return {v: None for v in atoms if not isinstance(v, Literal)}


def _reads(run) -> dict:
    return _variables(v for eqn in run for v in eqn.invars)


def _runs(eqns) -> list[list]:
    """Operations in an order that respects their dependences, in as few runs as the foreign ones between them allow."""
    level, runs = {}, {}
    for eqn in eqns:
        apart = _is_apart(eqn)
        after = [level[v] for v in _variables(eqn.invars) if v in level]
        # level: calls made before; a foreign operation comes after the calls of its level
        own = max((k if apart else k + foreign for k, foreign in after), default=0)
        level.update({v: (own, int(apart)) for v in eqn.outvars})
        runs.setdefault((own, int(apart)), []).append(eqn)
    out = []
    for (_, apart), run in sorted(runs.items(), key=lambda item: item[0]):
        out += [[eqn] for eqn in run] if apart else _cut(run)
    return out


def _cut(run: list) -> list[list]:
    """In pieces of at most MOST operations."""
    sizes = np.cumsum([1 + sum(map(_weight, inner(eqn))) for eqn in run])
    pieces = -(-int(sizes[-1]) // MOST)
    piece = (sizes - 1) * pieces // sizes[-1]
    return [[eqn for eqn, k in zip(run, piece, strict=True) if k == own] for own in dict.fromkeys(piece)]


def _is_apart(eqn, inside: bool = False) -> bool:
    """Whether an operation cannot be part of a call, or had better not; inside: of a loop, which runs in one piece,
    where side by side calls may run on several threads.
    """
    name = eqn.primitive.name
    looped = inside or name in LOOPS
    return (
        name not in NATIVE
        and not (inside and name == region_p.name)
        or any(v.aval.size * v.aval.dtype.itemsize > LARGE for v in eqn.outvars)
        or _is_for_a_library(eqn)
        or (not inside and (_turns_are_calls(eqn) or _is_large_loop(eqn)))
        or any(map(_holds_apart_inside if looped else _holds_apart, inner(eqn)))
    )


@once
def _holds_apart(jaxpr: Jaxpr) -> bool:
    """Whether a program holds an operation that cannot be part of a call."""
    return any(map(_is_apart, jaxpr.eqns))


@once
def _holds_apart_inside(jaxpr: Jaxpr) -> bool:
    """The same of a program that is a loop's."""
    return any(_is_apart(eqn, inside=True) for eqn in jaxpr.eqns)


def _is_large_loop(eqn) -> bool:
    """Whether it is a loop that could be part of a call, but holds so much that each of its turns had better be one."""
    programs = inner(eqn)
    if eqn.primitive.name != "while" or _turns_are_calls(eqn):
        return False
    if any(map(_holds_apart_inside, programs)):
        return False
    return any(region_p.name in operations(p) for p in programs) or sum(map(_weight, programs)) > MOST


def _turns_are_calls(eqn) -> bool:
    """Whether it is a loop of which each turn is a call."""
    return eqn.primitive.name == "while" and [e.primitive for e in eqn.params["body_jaxpr"].eqns] == [region_p]


def _is_for_a_library(eqn) -> bool:
    """Whether it is a matrix product that in a call would be a plain loop, and a long one."""
    if eqn.primitive.name != "dot_general":
        return False
    (summed, other), batch = eqn.params["dimension_numbers"]
    size, (left, right) = eqn.outvars[0].aval.shape, (v.aval.shape for v in eqn.invars)
    length, (most, least) = int(np.prod([left[k] for k in summed])), TILED
    plain = len(left) == len(right) == 2 and tuple(summed) == (1,) and tuple(other) == (0,) and not any(batch)
    if plain and max(*size, length) <= most and min(size) <= least:
        return False
    return int(np.prod(size)) * length > PRODUCTS


@once
def _weight(jaxpr: Jaxpr) -> int:
    return sum(1 + sum(map(_weight, inner(eqn))) for eqn in jaxpr.eqns)


def _is_inlined(eqn) -> bool:
    """Whether calls are made within it: what `jax.checkpoint` recomputes is told apart by barriers of its own."""
    return eqn.primitive.name in ("jit", "remat2", "checkpoint") and _is_apart(eqn)


def _closed(jaxpr) -> ClosedJaxpr:
    return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, ())


def _looked_into(eqn, constants: dict):
    """A loop or branch that cannot be part of a call, with calls in its bodies.

    What branches are given of constants they hold themselves: a loop within would unpack it at each turn.
    """
    if eqn.primitive.name == "cond":
        index, *given = eqn.invars
        held = {k: constants[v] for k, v in enumerate(given) if not isinstance(v, Literal) and v in constants}
        eqn = with_inner(eqn, partial(_holding, constants=held))
        eqn = eqn.replace(invars=[index, *(v for k, v in enumerate(given) if k not in held)])
    return with_inner(eqn, _compacted) if eqn.primitive.name in (*LOOPS, "cond") else eqn


def _holding(closed: ClosedJaxpr, constants: dict) -> ClosedJaxpr:
    """A program with constants in the places of some of its arguments."""
    jaxpr, consts = closed.jaxpr, [*closed.consts, *constants.values()]
    constvars = [*jaxpr.constvars, *(jaxpr.invars[k] for k in constants)]
    names, others = jaxpr.debug_info.with_unknown_names(), [k not in constants for k in range(len(jaxpr.invars))]
    invars = [v for v, own in zip(jaxpr.invars, others, strict=True) if own]
    return ClosedJaxpr(jaxpr.replace(constvars=constvars, invars=invars, debug_info=names), consts)


def _compacted(closed: ClosedJaxpr) -> ClosedJaxpr:
    return jax.make_jaxpr(partial(_run, closed))(*closed.in_avals)
