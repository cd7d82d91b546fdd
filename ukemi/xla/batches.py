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


def takes_turns() -> bool:
    """Whether worlds run one after the other: on CPU."""
    return jax.default_backend() == "cpu"


def abreast(count: int) -> int:
    """How many rows of a batch within one world to work on together: `count`, but one where worlds run in turn.

    A CPU works on what belongs to one row together, and each loop around that is one more to compile.
    """
    return 1 if takes_turns() else count


def side_by_side(function: Callable) -> Callable:
    """`function` of pytrees for each row of theirs; of one alone without a batch: branches stay branches."""

    def call(*args):
        if len(jax.tree.leaves(args)[0]) > 1:
            return jax.vmap(function)(*args)
        return jax.tree.map(lambda x: x[None], function(*jax.tree.map(lambda x: x[0], args)))

    return call


def one_by_one(function: Callable, in_lockstep: Callable | None = None) -> Callable:
    """`function` of pytrees whose batches run world after world on CPU, and in lockstep elsewhere.

    in_lockstep: an equal function without branches to use there, since a batched branch runs all its sides.

    In lockstep every world waits for the slowest, and masked iterations cost as much as real ones. A CPU gains
    nothing from lockstep where small factorisations dominate, so there each world stops when it has converged.
    """
    alone = compact(function)
    other = in_lockstep if in_lockstep is not None and not takes_turns() else None

    def call(*args):
        flat, tree = jax.tree.flatten(args)
        trees = []

        def leaves(*flat):
            found = [f(*jax.tree.unflatten(tree, flat)) for f in (alone, other) if f]
            trees.append(jax.tree.structure(found[0]))
            return jax.tree.leaves(found)

        closed, captured = without_tracers(jax.make_jaxpr(leaves)(*flat))
        count = trees[-1].num_leaves
        one = with_outputs(closed, closed.jaxpr.outvars[:count])
        many = with_outputs(closed, closed.jaxpr.outvars[count:]) if other else one
        out = _bind([*captured, *map(jnp.asarray, flat)], one, many)
        return jax.tree.unflatten(trees[-1], out)

    return call


# ---- worlds along the first axis -------------------------------------------------------------------------------------
#
# size: how many worlds, or None for one alone; mapped: which arguments lead with them (all results do, if there is a
# size).


def together(function: Callable, args, size: int | None, mapped) -> list[Array]:
    """`function` of one world, of all in lockstep."""
    if size is None:
        return function(*args)
    return jax.vmap(function, [0 if m else None for m in mapped], axis_size=size)(*args)


def in_turn(function: Callable, args, size: int | None, mapped) -> list[Array]:
    """The same, world after world."""
    if size is None:
        return function(*args)
    places = [k for k, m in enumerate(mapped) if m]
    world = of_some(function, args, places)
    return lax.map(lambda own: world(*own), [args[k] for k in places])


def of_worlds(avals, size: int | None) -> list:
    """Types of results."""
    return [x if size is None else x.update(shape=(size, *x.shape)) for x in avals]


def leading(args, axes) -> tuple[list, list[bool], int]:
    """Arguments of a batch with its axis first, which ones have it, and its length."""
    args = [x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(args, axes, strict=True)]
    batched = [axis is not None for axis in axes]
    return args, batched, next(x.shape[0] for x, own in zip(args, batched, strict=True) if own)


# ---- the operation ---------------------------------------------------------------------------------------------------
#
# closed: the function of one world; lockstep: the one to use for many at once; size, mapped: as above.

_each_p = holding("ukemi_each")


def _bind(args, closed: ClosedJaxpr, lockstep: ClosedJaxpr, size: int | None = None, mapped=None) -> list[Array]:
    mapped = (False,) * len(args) if mapped is None else tuple(mapped)
    return _each_p.bind(*args, closed=closed, lockstep=lockstep, size=size, mapped=mapped)


def _results(*args, closed: ClosedJaxpr, lockstep, size, mapped):
    return of_worlds(closed.out_avals, size)


def _together(*args, closed: ClosedJaxpr, lockstep: ClosedJaxpr, size, mapped) -> list[Array]:
    return together(jaxpr_as_fun(closed if size is None else lockstep), args, size, mapped)


def _in_turn(*args, closed: ClosedJaxpr, lockstep, size, mapped) -> list[Array]:
    return in_turn(jaxpr_as_fun(closed), args, size, mapped)


def _batch(args, axes, *, closed: ClosedJaxpr, lockstep: ClosedJaxpr, size, mapped):
    args, batched, length = leading(args, axes)
    if size is not None:  # worlds of worlds
        rest = {"closed": closed, "lockstep": lockstep, "size": size, "mapped": mapped}
        own = [x[0] if b else x for x, b in zip(args, batched, strict=True)]
        closed, lockstep = (jax.make_jaxpr(partial(way, **rest))(*own) for way in (_each_p.bind, _together))
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
