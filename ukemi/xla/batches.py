"""How iterative parts of a step behave under vmap."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax, typeof
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from ukemi.xla.programs import depending, holding, of_some, with_outputs, without_tracers
from ukemi.xla.stages import compact


def one_by_one(function: Callable, in_lockstep: Callable | None = None) -> Callable:
    """`function` of pytrees whose batches run world after world on CPU, and in lockstep elsewhere.

    in_lockstep: an equal function without branches to use there, since a batched branch runs all its sides.

    In lockstep every world waits for the slowest, and masked iterations cost as much as real ones. A CPU gains
    nothing from lockstep where small factorisations dominate, so there each world stops when it has converged.
    """
    alone = compact(function)
    other = in_lockstep if in_lockstep is not None and jax.default_backend() != "cpu" else None

    def call(*args):
        flat, tree = jax.tree.flatten(args)
        trees = []

        def leaves(*flat):
            found = [f(*jax.tree.unflatten(tree, flat)) for f in (alone, other) if f]
            trees.append(jax.tree.structure(found[0]))
            return jax.tree.leaves(found)

        closed, captured = without_tracers(jax.make_jaxpr(leaves)(*flat))
        count = trees[-1].num_leaves
        both = [with_outputs(closed, slice(start, start + count)) for start in range(0, len(closed.out_avals), count)]
        out = _bind([*captured, *map(jnp.asarray, flat)], both[0], both[-1])
        return jax.tree.unflatten(trees[-1], out)

    return call


# closed: the function of one world; lockstep: the one to use for many at once; size: how many worlds, or None for one
# alone; mapped: which arguments lead with the worlds (all results do, if there is a size).

_each_p = holding("ukemi_each")


def _bind(args, closed: ClosedJaxpr, lockstep: ClosedJaxpr, size: int | None = None, mapped=None) -> list[Array]:
    mapped = (False,) * len(args) if mapped is None else tuple(mapped)
    return _each_p.bind(*args, closed=closed, lockstep=lockstep, size=size, mapped=mapped)


def _results(*args, closed: ClosedJaxpr, lockstep, size, mapped):
    return [x if size is None else x.update(shape=(size, *x.shape)) for x in closed.out_avals]


def _together(*args, closed: ClosedJaxpr, lockstep: ClosedJaxpr, size, mapped) -> list[Array]:
    if size is None:
        return jaxpr_as_fun(closed)(*args)
    return jax.vmap(jaxpr_as_fun(lockstep), [0 if m else None for m in mapped], axis_size=size)(*args)


def _in_turn(*args, closed: ClosedJaxpr, lockstep, size, mapped) -> list[Array]:
    if size is None:
        return jaxpr_as_fun(closed)(*args)
    places = [k for k, m in enumerate(mapped) if m]
    world = of_some(jaxpr_as_fun(closed), args, places)
    return lax.map(lambda own: world(*own), [args[k] for k in places])


def _batch(args, axes, *, closed: ClosedJaxpr, lockstep: ClosedJaxpr, size, mapped):
    args = [x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(args, axes, strict=True)]
    batched = [axis is not None for axis in axes]
    if size is not None:  # worlds of worlds
        rest = {"closed": closed, "lockstep": lockstep, "size": size, "mapped": mapped}
        own = [x[0] if b else x for x, b in zip(args, batched, strict=True)]
        closed, lockstep = (jax.make_jaxpr(partial(way, **rest))(*own) for way in (_each_p.bind, _together))
    length = next(len(x) for x, own in zip(args, batched, strict=True) if own)
    out = _bind(args, closed, lockstep, length, batched)
    varying = [v for v, own in zip(closed.jaxpr.invars, batched, strict=True) if own]
    differ = depending(closed.jaxpr, varying, lambda aval: True)  # values do not where derivatives come in batches
    return [x if own else x[0] for own, x in zip(differ, out, strict=True)], [0 if own else None for own in differ]


def _differentiate(primals, tangents, *, closed: ClosedJaxpr, lockstep: ClosedJaxpr, size, mapped):
    live = [k for k, t in enumerate(tangents) if type(t) is not ad.Zero]
    moved = depending(closed.jaxpr, [closed.jaxpr.invars[k] for k in live])
    along = [closed.in_avals[k] for k in live]

    def pushed(program: ClosedJaxpr) -> ClosedJaxpr:
        def run(*args):
            values, changes = args[: len(primals)], args[len(primals) :]
            evaluate = of_some(jaxpr_as_fun(program), values, live)
            out, slopes = jax.jvp(evaluate, [values[k] for k in live], list(changes))
            return [*out, *(t for own, t in zip(moved, slopes, strict=True) if own)]

        return jax.make_jaxpr(run)(*closed.in_avals, *along)

    of_one = pushed(closed)
    together = of_one if lockstep is closed else pushed(lockstep)
    args, own = [*primals, *(tangents[k] for k in live)], [*mapped, *(mapped[k] for k in live)]
    out = _bind(args, of_one, together, size, own)
    slopes = iter(out[len(moved) :])
    out = out[: len(moved)]
    still = [ad.Zero(typeof(x).to_tangent_aval()) for x in out]
    return out, [next(slopes) if m else zero for m, zero in zip(moved, still, strict=True)]


_each_p.def_impl(_together)
_each_p.def_abstract_eval(_results)
ad.primitive_jvps[_each_p] = _differentiate
batching.primitive_batchers[_each_p] = _batch
mlir.register_lowering(_each_p, mlir.lower_fun(_together, multiple_results=True))
mlir.register_lowering(_each_p, mlir.lower_fun(_in_turn, multiple_results=True), platform="cpu")
