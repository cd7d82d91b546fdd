"""Calls that XLA's CPU backend compiles to one function each, and loops of them.

That backend runs a program as a list of hundreds of kernels, and at our sizes spends as much time between them as in
them. A call that is marked `xla_cpu_small_call` becomes one function instead, loops and branches included: XLA makes
such calls of small loops itself. Nothing in a call runs on several threads.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax, typeof
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir
from jax.interpreters.partial_eval import dce_jaxpr

from ukemi.xla.packing import Packing
from ukemi.xla.programs import depending, holding, of_some, replaced
from ukemi.xla.walls import walled

ALONE = 256  # numbers in an array that a loop of calls does not pack


def called(closed: ClosedJaxpr, *args) -> list[Array]:
    """A program as one call."""
    return region_p.bind(*map(jnp.asarray, args), closed=closed)


region_p = holding("ukemi_region")


def _evaluate(*args, closed: ClosedJaxpr) -> list[Array]:
    return jaxpr_as_fun(closed)(*args)


def _marked(*args, closed: ClosedJaxpr) -> list[Array]:
    present = [k for k, x in enumerate(args) if x.size]
    if not present:
        return _evaluate(*args, closed=closed)

    def region(*values):
        full = replaced([jnp.zeros(x.shape, x.dtype) for x in args], present, values)
        # XLA aborts on an argument that nothing uses, as one may become when it simplifies: one number of each is used
        first = [lax.reshape(lax.slice(x, (0,) * x.ndim, (1,) * x.ndim), (1,)) for x in values]
        first = lax.concatenate([lax.convert_element_type(x, jnp.float32) for x in first], 0)
        return *_inside_p.bind(*full, closed=walled(closed)), first

    # XLA moves constants in, and aborts on the unused argument of a large one: here it sees none
    out = jax.jit(region)(*lax.optimization_barrier([args[k] for k in present]))
    marked: Any = set_xla_metadata(out, xla_cpu_small_call="true", inlineable="false")
    return list(marked)[:-1]


def _lower_inside(ctx, *args, closed: ClosedJaxpr):
    # as it is: to trace it once more takes as long as the first time
    return mlir.core_call_lowering(ctx, *args, name="stage", call_jaxpr=closed)


_inside_p = holding("ukemi_inside")
_inside_p.def_abstract_eval(lambda *args, closed: closed.out_avals)
mlir.register_lowering(_inside_p, _lower_inside)


def _differentiate(primals, tangents, *, closed: ClosedJaxpr):
    live = [k for k, t in enumerate(tangents) if type(t) is not ad.Zero]
    evaluate = of_some(jaxpr_as_fun(closed), primals, live)
    along = jax.jvp(evaluate, [primals[k] for k in live], [tangents[k] for k in live])[1]
    out = region_p.bind(*primals, closed=closed)
    moved = depending(closed.jaxpr, [closed.jaxpr.invars[k] for k in live])
    still = [ad.Zero(typeof(x).to_tangent_aval()) for x in out]
    return out, [t if own else zero for own, t, zero in zip(moved, along, still, strict=True)]


def _batch(args, axes, *, closed: ClosedJaxpr):
    out = jax.vmap(partial(_evaluate, closed=closed), axes)(*args)
    return out, [0] * len(out)


region_p.def_impl(_evaluate)
region_p.def_abstract_eval(lambda *args, closed: closed.out_avals)
ad.primitive_jvps[region_p] = _differentiate
batching.primitive_batchers[region_p] = _batch
mlir.register_lowering(region_p, mlir.lower_fun(_evaluate, multiple_results=True))
mlir.register_lowering(region_p, mlir.lower_fun(_marked, multiple_results=True), platform="cpu")


# ---- a loop of calls -------------------------------------------------------------------------------------------------


def by_turns(program: ClosedJaxpr, *args) -> list[Array]:
    """A loop, the last operation of a program, with a call for each turn: what it leaves for the program's results.

    LLVM's loop passes forget what they know of all loops within the outermost one each time, so a large loop that is
    part of a call takes several times as long to compile. What a turn reads and leaves is packed, since XLA's executor
    copies each array by itself, hands lists of more than eight kernels to threads, and counts arguments in each call.
    """
    *recipes, loop = program.eqns
    own, more = loop.params["cond_nconsts"], loop.params["body_nconsts"]
    asking, using, starting = loop.invars[:own], loop.invars[own : own + more], loop.invars[own + more :]
    goes_on, body = jaxpr_as_fun(loop.params["cond_jaxpr"]), jaxpr_as_fun(loop.params["body_jaxpr"])
    carried = Packing([v.aval for v in loop.outvars], ALONE)

    def reading(atoms) -> tuple[Callable, list]:
        """A function that gives these, and those of the arguments that it needs."""
        names = program.jaxpr.debug_info.with_unknown_names()
        some = program.jaxpr.replace(eqns=recipes, outvars=atoms, debug_info=names)
        needed, used = dce_jaxpr(some, [True] * len(atoms))
        return jaxpr_as_fun(ClosedJaxpr(needed, program.consts)), [x for x, own in zip(args, used, strict=True) if own]

    (ask, asked), (use, used), (begin, begun) = map(reading, (asking, using, starting))
    held = Packing([typeof(x) for x in used], ALONE)

    def turn(*now) -> list[Array]:
        known, state = use(*held.unpack(now[carried.count :])), carried.unpack(now[: carried.count])
        return carried.pack(lax.optimization_barrier(body(*known, *state)))

    start = [jnp.asarray(x, v.aval.dtype) for x, v in zip(begin(*begun), loop.outvars, strict=True)]
    start, rest = carried.pack(start), held.pack(used)
    closed = jax.make_jaxpr(turn)(*start, *rest)
    end = lax.while_loop(
        lambda now: goes_on(*ask(*asked), *carried.unpack(now))[0], lambda now: called(closed, *now, *rest), start
    )
    left = dict(zip(loop.outvars, carried.unpack(end), strict=True))
    return [left[v] for v in program.jaxpr.outvars]
