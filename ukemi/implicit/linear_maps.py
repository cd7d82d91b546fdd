"""Linear maps that bring their own transposes: derivatives whose reverse mode has a closed form of its own."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import typeof
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ukemi.xla.programs import is_smooth


def transposable(push: Callable, pull: Callable) -> Callable:
    """`push(known, along)`, linear in `along` (a pytree of floats), whose transpose in it is `pull(known, cotangents)`.

    A function of (known, along, like), where `like` has the shapes of the results. Both functions are pure and capture
    no traced values, and JAX traces only the one that is asked for.
    """

    def call(known, along, like) -> Any:
        given, known_tree = jax.tree.flatten(known)
        moving, along_tree = jax.tree.flatten(along)
        out, out_tree = jax.tree.flatten(like)

        def flat(function: Callable, tree) -> Callable:
            def of_leaves(*leaves):
                first, second = leaves[: len(given)], leaves[len(given) :]
                return jax.tree.leaves(
                    function(jax.tree.unflatten(known_tree, first), jax.tree.unflatten(tree, second))
                )

            return of_leaves

        functions, shapes = (flat(push, along_tree), flat(pull, out_tree)), tuple(map(typeof, out))
        out = _transposable_p.bind(*given, *moving, functions=functions, shapes=shapes, known=len(given))
        return jax.tree.unflatten(out_tree, out)

    return call


# functions: the map and its transpose, of flat arguments; shapes: types of the results; known: how many arguments lead
# in which the map need not be linear.
_transposable_p = Primitive("ukemi_transposable")
_transposable_p.multiple_results = True


def _evaluate(*args, functions, shapes, known):
    return functions[0](*args)


def _differentiate(primals, tangents, *, functions, shapes, known):
    out = _transposable_p.bind(*primals, functions=functions, shapes=shapes, known=known)
    total = [ad.Zero(x.to_tangent_aval()) for x in shapes]
    if any(type(t) is not ad.Zero for t in tangents[known:]):
        along = map(ad.instantiate_zeros, tangents[known:])
        total = _transposable_p.bind(*primals[:known], *along, functions=functions, shapes=shapes, known=known)
    live = [k for k, t in enumerate(tangents[:known]) if type(t) is not ad.Zero and is_smooth(primals[k])]
    if live:

        def of_live(*values):
            given = list(primals)
            for k, value in zip(live, values, strict=True):
                given[k] = value
            return functions[0](*given)

        change = jax.jvp(of_live, [primals[k] for k in live], [tangents[k] for k in live])[1]
        total = list(map(ad.add_tangents, total, change))
    return out, total


def _transpose(cotangents, *args, functions, shapes, known):
    given, moving = args[:known], args[known:]
    cotangents = map(ad.instantiate_zeros, cotangents)
    types = tuple(x.aval if ad.is_undefined_primal(x) else typeof(x) for x in moving)
    turned = functions[::-1]
    out = _transposable_p.bind(*given, *cotangents, functions=turned, shapes=types, known=known)
    wanted = [x if ad.is_undefined_primal(m) else None for m, x in zip(moving, out, strict=True)]
    return [None] * known + wanted


def _batch(args, axes, *, functions, shapes, known):
    size = next(x.shape[axis] for x, axis in zip(args, axes, strict=True) if axis is not None)
    args = [x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(args, axes, strict=True)]
    # all that moves comes in batches, so that the transpose does, too
    moving = [
        jnp.broadcast_to(x, (size, *x.shape)) if axis is None else x
        for x, axis in zip(args[known:], axes[known:], strict=True)
    ]
    given = [None if axis is None else 0 for axis in axes[:known]]

    def batched(function: Callable) -> Callable:
        def of_batches(*leaves):
            return jax.vmap(function, (*given, *[0] * (len(leaves) - known)), axis_size=size)(*leaves)

        return of_batches

    many = tuple(x.update(shape=(size, *x.shape)) for x in shapes)
    functions = batched(functions[0]), batched(functions[1])
    out = _transposable_p.bind(*args[:known], *moving, functions=functions, shapes=many, known=known)
    return out, [0] * len(out)


_transposable_p.def_impl(_evaluate)
_transposable_p.def_abstract_eval(lambda *args, functions, shapes, known: list(shapes))
ad.primitive_jvps[_transposable_p] = _differentiate
ad.primitive_transposes[_transposable_p] = _transpose
batching.primitive_batchers[_transposable_p] = _batch
mlir.register_lowering(_transposable_p, mlir.lower_fun(_evaluate, multiple_results=True))
