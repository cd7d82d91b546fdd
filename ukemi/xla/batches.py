"""How iterative parts of a step behave under vmap."""

import jax
from jax import lax
from jax.custom_batching import custom_vmap

from ukemi.xla.programs import replaced
from ukemi.xla.stages import compact


def one_by_one(function, in_lockstep=None):
    """`function` of pytrees whose batches run world after world on CPU, and in lockstep elsewhere.

    in_lockstep: an equal function without branches to use there, since a batched branch runs all its sides.

    In lockstep every world waits for the slowest, and masked iterations cost as much as real ones. A CPU gains
    nothing from lockstep where small factorisations dominate, so there each world stops when it has converged.
    """

    alone = compact(function)

    @custom_vmap
    def call(*args):
        return alone(*args)

    @call.def_vmap
    def batched(size, in_batched, *args):
        flat, tree = jax.tree.flatten(args)
        mapped = [k for k, is_batched in enumerate(jax.tree.leaves(in_batched)) if is_batched]
        if not mapped:  # as in second derivatives, of which only the tangents come in batches
            out = alone(*args)
            return out, jax.tree.map(lambda _: False, out)

        def in_turn(*flat):
            def world(own):
                return call(*jax.tree.unflatten(tree, replaced(flat, mapped, own)))

            return lax.map(world, [flat[k] for k in mapped])

        def in_step(*flat):
            axes = [0 if k in mapped else None for k in range(len(flat))]

            def world(*full):
                return (in_lockstep or function)(*jax.tree.unflatten(tree, full))

            return jax.vmap(world, axes, axis_size=size)(*flat)

        out = lax.platform_dependent(*flat, cpu=in_turn, default=in_step)
        return out, jax.tree.map(lambda _: True, out)

    return call
