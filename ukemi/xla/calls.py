"""Calls that XLA's CPU backend compiles to one function each, and loops of them.

That backend runs a program as a list of hundreds of kernels, and at our sizes spends as much time between them as in
them. A call that is marked `xla_cpu_small_call` becomes one function instead, loops and branches included: XLA makes
such calls of small loops itself. Nothing in a call runs on several threads.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax, typeof
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir
from jax.interpreters.partial_eval import dce_jaxpr

from ukemi.xla.packing import Packing
from ukemi.xla.programs import depending, of_some, replaced
from ukemi.xla.walls import walled

ALONE = 256  # numbers in an array that a loop of calls does not pack


def called(closed: ClosedJaxpr, *args) -> list[Array]:
    """A program as one call."""
    return region_p.bind(*map(jnp.asarray, args), closed=closed)


region_p = Primitive("ukemi_region")
region_p.multiple_results = True


def _evaluate(*args, closed: ClosedJaxpr) -> list[Array]:
    return jaxpr_as_fun(closed)(*args)


def _marked(*args, closed: ClosedJaxpr) -> list[Array]:
    present = [k for k, x in enumerate(args) if x.size]
    if not present:
        return _evaluate(*args, closed=closed)

    def region(*values):
        full = replaced([jnp.zeros(x.shape, x.dtype) for x in args], present, values)
        # XLA aborts on an argument that nothing uses, as one may become when it simplifies: one number of each is used
        first = [lax.slice(x, (0,) * x.ndim, (1,) * x.ndim).reshape(1).astype(jnp.float32) for x in values]
        return *_inside_p.bind(*full, closed=walled(closed)), jnp.concatenate(first)

    # XLA moves constants in, and aborts on the unused argument of a large one: here it sees none
    out = jax.jit(region)(*lax.optimization_barrier([args[k] for k in present]))
    marked: Any = set_xla_metadata(out, xla_cpu_small_call="true", inlineable="false")
    return list(marked)[:-1]


def _lower_inside(ctx, *args, closed: ClosedJaxpr):
    # as it is: to trace it once more takes as long as the first time
    return mlir.core_call_lowering(ctx, *args, name="stage", call_jaxpr=closed)


_inside_p = Primitive("ukemi_inside")
_inside_p.multiple_results = True
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
    state, count = [v.aval for v in loop.outvars], len(loop.outvars)

    def read(atoms, given) -> list:
        names = program.jaxpr.debug_info.with_unknown_names()
        some = program.jaxpr.replace(eqns=recipes, outvars=atoms, debug_info=names)
        return jaxpr_as_fun(ClosedJaxpr(some, program.consts))(*given)

    def turn(*now) -> list[Array]:
        return body(*read(using, now[count:]), *now[:count])

    types = [typeof(x) for x in args]
    turning = jax.make_jaxpr(turn)(*state, *args)
    _, used = dce_jaxpr(turning.jaxpr, [True] * count)
    kept = [k for k in range(len(args)) if used[count + k]]
    carried, held = Packing(state, ALONE), Packing([types[k] for k in kept], ALONE)

    def packed_turn(*now) -> list[Array]:
        unused = [jnp.zeros(x.shape, x.dtype) for x in types]
        known = replaced(unused, kept, held.unpack(now[carried.count :]))
        return carried.pack(lax.optimization_barrier(turn(*carried.unpack(now[: carried.count]), *known)))

    def goes_on_packed(now) -> Array:
        return goes_on(*read(asking, args), *carried.unpack(now))[0]

    begun = [jnp.asarray(x, v.dtype) for x, v in zip(read(starting, args), state, strict=True)]
    start, rest = carried.pack(begun), held.pack([args[k] for k in kept])
    closed = jax.make_jaxpr(packed_turn)(*start, *rest)
    end = lax.while_loop(goes_on_packed, lambda now: called(closed, *now, *rest), start)
    left = dict(zip(loop.outvars, carried.unpack(end), strict=True))
    return [left[v] for v in program.jaxpr.outvars]
