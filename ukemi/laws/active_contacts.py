"""Work on as few contact slots as hold the active contacts, which come first: a step costs what its contacts cost."""

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import jaxpr_as_fun

from ukemi.constraints.block import Frame
from ukemi.constraints.rows import RowKinds
from ukemi.maths.gathers import rows_where
from ukemi.maths.ranking import parts
from ukemi.xla.batches import one_by_one
from ukemi.xla.programs import trace

SLOTS = (16, 64, 256, 1024)  # numbers of slots for which a solver is compiled, up to a third of the model's own


def fewer_slots(full: int) -> list[int]:
    """Those for which it is worth it beside all of a model's own."""
    return [n for n in SLOTS if 3 * n <= full]


def with_slots(function, kinds: RowKinds, ready=lambda scene: scene):
    """`function(kinds, scene, *more)` for as many contact slots as needed, as a function of (scene, *more).

    more: arrays that lead with the contacts; ready: function of the scene for what is found before slots are chosen.
    """

    def of(slots: int):
        def run(scene, *more):
            near = scene.frame.contacts.rowwise(lambda x: x[:slots])
            scene = scene._replace(frame=scene.frame._replace(contacts=near))
            return function(dataclasses.replace(kinds, contacts=slots), scene, *jax.tree.map(lambda x: x[:slots], more))

        return run

    sizes = [*fewer_slots(kinds.contacts), kinds.contacts]
    full = of(kinds.contacts)

    def choose(scene, *more):
        active = scene.frame.contacts.active.sum()
        return lax.switch((active > jnp.array(sizes[:-1])).sum(), [of(n) for n in sizes], ready(scene), *more)

    def every(scene, *more):
        return full(ready(scene), *more)

    return one_by_one(every if len(sizes) == 1 else choose, in_lockstep=every)


class AtFrame(NamedTuple):
    """A scene for `in_chunks` that is nothing but a frame."""

    frame: Frame


def in_chunks(function, kinds: RowKinds):
    """`function(kinds, scene, *more) -> (sums, rows)` for a few slots at a time, as a function of (scene, *more).

    sums: arrays that are added up; rows, and more: arrays that lead with the contacts, zero where none is active.
    Unlike `with_slots` this is compiled once, however many slots there are.
    """
    n = kinds.contacts

    def whole(scene, *more):
        return function(kinds, scene, *more)

    def by_chunks(scene, *more):
        few = dataclasses.replace(kinds, contacts=CHUNK)
        contacts = scene.frame.contacts

        def part(k):
            # the last chunk starts early enough to fit; what the one before it has seen is not active, and zero
            start = jnp.minimum(k * CHUNK, n - CHUNK)
            fresh = start + np.arange(CHUNK) >= k * CHUNK
            cut = partial(lax.dynamic_slice_in_dim, start_index=start, slice_size=CHUNK)
            own, rest = contacts.rowwise(cut), jax.tree.map(cut, more)
            own = own._replace(active=own.active & fresh)
            scene_of = scene._replace(frame=scene.frame._replace(contacts=own))
            return start, fresh, function(few, scene_of, *rows_where(fresh, rest))

        closed, _, structure = trace(part, (0,))  # once, for its shapes and for the loop
        evaluate = jaxpr_as_fun(closed)

        def add(k, total):
            start, fresh, (sums, rows) = jax.tree.unflatten(structure, evaluate(k))
            old = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, CHUNK), total[1])
            put = lambda x, y: lax.dynamic_update_slice_in_dim(x, y, start, 0)  # noqa: E731
            return jax.tree.map(jnp.add, total[0], sums), jax.tree.map(put, total[1], rows_where(fresh, rows, old))

        _, _, (sums, rows) = jax.tree.unflatten(structure, closed.out_avals)
        sums = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), sums)
        rows = jax.tree.map(lambda x: jnp.zeros((n, *x.shape[1:]), x.dtype), rows)
        return lax.fori_loop(0, parts(contacts.active.sum(), CHUNK), add, (sums, rows))

    return one_by_one(whole if n <= CHUNK else by_chunks, in_lockstep=whole)


# Contacts come nearest first; work on them goes by chunks of this many and stops after the last active one.
CHUNK = 8
