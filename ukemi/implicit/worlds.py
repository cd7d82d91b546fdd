"""A world's step as one operation, with one operation for its derivative.

JAX would take a step apart: `vmap` would run each of its hundreds of operations for all worlds before the next, and a
derivative would be spread over the program. Here batches run world after world on CPU, where small operations gain
nothing from more of the same, and a derivative is compiled like a step: in compact stages (`region`). It keeps what a
search found (`implicit.rule.KEPT`) and recomputes the rest.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax, typeof
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir
from jax.interpreters.partial_eval import dce_jaxpr

from ukemi.errors import GradientError
from ukemi.implicit.rule import apart, recomputing
from ukemi.xla.batches import in_turn, leading, of_worlds, together
from ukemi.xla.packing import Packing
from ukemi.xla.programs import (
    depending,
    holding,
    is_smooth,
    named,
    of_some,
    operations,
    replaced,
    trace,
    with_outputs,
    without_tracers,
)
from ukemi.xla.stages import compact

REFUSED = (
    "This derivative has no reverse mode: it is a derivative already, and takes loops of unknown length. For second "
    "derivatives take forward mode over reverse mode, jax.hessian or jax.jvp of jax.grad, or jax.jvp of uk.linearize."
)


def of_one_world(function: Callable) -> Callable:
    """`function` of pytrees of arrays that belong to one world, as one operation."""

    def call(*args):
        closed, flat, structure = trace(function, args)
        closed, captured = without_tracers(closed)
        out = _bind([*captured, *map(jnp.asarray, flat)], closed)
        return jax.tree.unflatten(structure, out)

    return call


# ---- the operation ---------------------------------------------------------------------------------------------------
#
# closed: the function of one world; size: how many worlds, or None for one alone; mapped: which arguments lead with the
# worlds (all results do, if there is a size); linear: in how many of the last arguments the function is linear.

_world_p = holding("ukemi_world")


def _bind(args, closed: ClosedJaxpr, size: int | None = None, mapped=None, linear: int = 0) -> list[Array]:
    mapped = (False,) * len(args) if mapped is None else tuple(mapped)
    return _world_p.bind(*args, closed=closed, size=size, mapped=mapped, linear=linear)


def _results(*args, closed: ClosedJaxpr, size, mapped, linear):
    return of_worlds(closed.out_avals, size)


def _together(*args, closed: ClosedJaxpr, size, mapped, linear) -> list[Array]:
    return together(jaxpr_as_fun(closed), args, size, mapped)


def _in_turn(*args, closed: ClosedJaxpr, size, mapped, linear) -> list[Array]:
    """World after world; but columns of one Jacobian together, since they share all but the linear arguments."""
    if size is not None and not any(mapped[: len(args) - linear]):
        return _together(*args, closed=closed, size=size, mapped=mapped, linear=linear)
    evaluate = jaxpr_as_fun(closed)
    if linear:
        evaluate, args = compact(evaluate), apart(args)
    return in_turn(evaluate, args, size, mapped)


def _batch(args, axes, *, closed: ClosedJaxpr, size, mapped, linear):
    args, batched, length = leading(args, axes)
    if size is not None and any(mapped[: len(args) - linear]):  # worlds of worlds are one batch
        either = [m or own for m, own in zip(mapped, batched, strict=True)]
        for k, x in enumerate(args):
            if either[k]:
                x = x if batched[k] else x[None]
                x = x if mapped[k] else x[:, None]
                args[k] = jnp.broadcast_to(x, (length, size, *x.shape[2:])).reshape(length * size, *x.shape[2:])
        out = _bind(args, closed, length * size, either, linear)
        return [x.reshape(length, size, *x.shape[1:]) for x in out], [0] * len(out)
    if size is not None:  # columns of a Jacobian, in each world
        together = partial(_together, closed=closed, size=size, mapped=mapped, linear=linear)
        closed = jax.make_jaxpr(together)(*[x[0] if own else x for x, own in zip(args, batched, strict=True)])
    out = _bind(args, closed, length, batched, linear)
    return out, [0] * len(out)


# ---- its derivative --------------------------------------------------------------------------------------------------


class _Slope(NamedTuple):
    """A function's derivative along some of its arguments."""

    known: ClosedJaxpr  # arguments -> results and residuals
    push: ClosedJaxpr  # what it needs of arguments and residuals, then of tangents -> changes of the results
    needs: list[int]  # which of (arguments, residuals, tangents) that is
    linear: int  # how many of those are tangents
    moved: list[bool]  # which results change


def _differentiate(primals, tangents, *, closed: ClosedJaxpr, size, mapped, linear):
    live = [k for k, t in enumerate(tangents) if type(t) is not ad.Zero and _can_move(closed.in_avals[k])]
    slope = _slope(closed, tuple(live), linear > 0)
    count = len(closed.out_avals)
    out = _bind(primals, slope.known, size, mapped)
    out, residuals = out[:count], out[count:]
    sources = [*primals, *residuals, *(tangents[k] for k in live)]
    worlds = [*mapped, *(size is not None for _ in residuals), *(mapped[k] for k in live)]
    args, own = ([source[k] for k in slope.needs] for source in (sources, worlds))
    changes = iter(_bind(args, slope.push, size, own, slope.linear) if any(slope.moved) else [])
    still = [ad.Zero(typeof(x).to_tangent_aval()) for x in out]
    return out, [next(changes) if m else zero for m, zero in zip(slope.moved, still, strict=True)]


def _can_move(value) -> bool:
    """Whether an array can have a derivative, and has entries: a scan would ask again for those of an empty one."""
    return is_smooth(value) and value.size > 0


@lru_cache(16)  # a scan asks twice
def _slope(closed: ClosedJaxpr, live: tuple[int, ...], linear: bool) -> _Slope:
    if linear:  # a derivative: second ones need no reverse mode of it, and there is no search to keep
        return _along(closed, live)
    try:
        return _linearized(closed, live)
    except ValueError as error:
        if "reverse-mode" not in str(error):
            raise
        # loops of unknown length, as `linearize` has them
        return _along(closed, live)


def _linearized(closed: ClosedJaxpr, live: tuple[int, ...]) -> _Slope:
    trees, smooth, count = [], [_can_move(x) for x in closed.out_avals], len(closed.out_avals)

    def run(*args):
        evaluate = of_some(jaxpr_as_fun(closed), args, live)
        out, push = jax.linearize(recomputing(evaluate), *[args[k] for k in live])
        leaves, tree = jax.tree.flatten(push)
        trees.append(tree)
        return [*out, *leaves]

    known = jax.make_jaxpr(run)(*closed.in_avals)
    out, leaves = known.jaxpr.outvars[:count], known.jaxpr.outvars[count:]
    constants = dict(zip(known.jaxpr.constvars, known.consts, strict=True))
    varying = [v for v in leaves if not isinstance(v, Literal) and v not in constants]

    def push(*args):
        values = constants | dict(zip(varying, args, strict=False))
        given = [v.val if isinstance(v, Literal) else values[v] for v in leaves]
        changes = jax.tree.unflatten(trees[-1], given)(*args[len(varying) :])
        return [change for change, own in zip(changes, smooth, strict=True) if own]

    pushed = jax.make_jaxpr(push)(*[v.aval for v in varying], *[closed.in_avals[k] for k in live])
    moves = depending(pushed.jaxpr, pushed.jaxpr.invars[len(varying) :])
    pruned, used = dce_jaxpr(pushed.jaxpr, moves)
    needed = [v for v, own in zip(varying, used, strict=False) if own]
    along = [k for k, own in enumerate(used[len(varying) :]) if own]
    # what differs from step to step goes into one array per type, since loops store and load arrays one by one
    place = {v: k for k, v in enumerate(known.jaxpr.invars)}
    kept = [v for v in dict.fromkeys(needed) if v not in place or place[v] in live]
    given = [v for v in dict.fromkeys(needed) if v not in kept]
    packing = Packing([v.aval for v in kept])
    # JAX rounds what it keeps to the precision that it has, and XLA does so, array by array
    same = {e.outvars[0]: e.invars[0] for e in known.jaxpr.eqns if e.primitive is lax.reduce_precision_p}
    forward = with_outputs(known, [*out, *named(kept, same)])

    def packed(*args):
        found = jaxpr_as_fun(forward)(*args)
        return [*found[:count], *compact(packing.pack)(found[count:])]

    def unpacked(*args):
        values = [*packing.unpack(args[: packing.count]), *args[packing.count :]]
        found = dict(zip([*kept, *given], values, strict=False))
        tangents = values[len(kept) + len(given) :]
        return jaxpr_as_fun(ClosedJaxpr(pruned, pushed.consts))(*[found[v] for v in needed], *tangents)

    sources = [*packing.avals, *(v.aval for v in given), *(closed.in_avals[live[k]] for k in along)]
    first, each = len(place), iter(moves)
    tangents = [first + packing.count + k for k in along]
    return _Slope(
        known=jax.make_jaxpr(packed)(*closed.in_avals),
        push=jax.make_jaxpr(unpacked)(*sources),
        needs=[*range(first, first + packing.count), *(place[v] for v in given), *tangents],
        linear=len(along),
        moved=[own and next(each) for own in smooth],
    )


def _along(closed: ClosedJaxpr, live: tuple[int, ...]) -> _Slope:
    """The derivative by forward mode alone, from the arguments alone."""
    count = len(closed.in_avals)

    def push(*args):
        primals, along = args[:count], list(args[count:])
        return jax.jvp(of_some(jaxpr_as_fun(closed), primals, live), [primals[k] for k in live], along)[1]

    pushed = jax.make_jaxpr(push)(*closed.in_avals, *[closed.in_avals[k] for k in live])
    return _Slope(closed, pushed, list(range(count + len(live))), len(live), [True] * len(closed.out_avals))


def _transpose(cotangents, *args, closed: ClosedJaxpr, size, mapped, linear):
    """Pull cotangents back to the linear arguments that are unknown; those of a shared argument add up."""
    wanted = [k for k, x in enumerate(args) if ad.is_undefined_primal(x)]
    given = range(len(args) - linear)
    live = [k for k, c in enumerate(cotangents) if type(c) is not ad.Zero]

    def pull(*values):
        still = [jnp.zeros(x.shape, x.dtype) for x in closed.in_avals[len(given) :]]
        evaluate = of_some(jaxpr_as_fun(closed), [*values[: len(given)], *still], wanted)

        def of_wanted(*tangents):
            out = evaluate(*tangents)
            return [out[k] for k in live]

        return jax.linear_transpose(of_wanted, *[closed.in_avals[k] for k in wanted])(list(values[len(given) :]))

    try:
        pulled = jax.make_jaxpr(pull)(*[closed.in_avals[k] for k in given], *[closed.out_avals[k] for k in live])
    except AssertionError as error:  # JAX's, of products of what a loop carries: it takes all that for linear
        if "while" in operations(closed.jaxpr):
            raise GradientError(REFUSED) from error
        raise
    own = [*mapped[: len(given)], *(size is not None for _ in live)]
    out = _bind([*args[: len(given)], *(cotangents[k] for k in live)], pulled, size, own, len(live))
    found = [x.sum(0) if size is not None and not mapped[k] else x for k, x in zip(wanted, out, strict=True)]
    return replaced([None] * len(args), wanted, found)


_world_p.def_impl(_together)
_world_p.def_abstract_eval(_results)
ad.primitive_jvps[_world_p] = _differentiate
ad.primitive_transposes[_world_p] = _transpose
batching.primitive_batchers[_world_p] = _batch
mlir.register_lowering(_world_p, mlir.lower_fun(_together, multiple_results=True))
mlir.register_lowering(_world_p, mlir.lower_fun(_in_turn, multiple_results=True), platform="cpu")
