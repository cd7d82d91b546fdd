"""A search with room for few contacts first, since a turn costs what there is room for; then with all of it.

Contacts come nearest first, and what is farther than the central path's width does not push: a search that had room
for all that are nearer at its end is the search with all room.
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.detect import Contacts
from ukemi.laws.active_contacts import fewer_slots
from ukemi.laws.conic.cones import Cones, Layout
from ukemi.laws.conic.marks import Marks
from ukemi.laws.conic.progress import Solution
from ukemi.laws.conic.unknowns import Known, Point
from ukemi.laws.here import Here
from ukemi.model.records import Model
from ukemi.xla.batches import one_by_one


def lacks(contacts: Contacts, ahead: Array | None, width: Array, every: Array | bool) -> Array:
    """Whether contacts that there was no room for may push: those nearer than `width`, or where `every` one may, any.

    ahead: distance, one per pair, beyond the margin from which on they were active [m].
    """
    if ahead is None:
        return contacts.overflow
    return jnp.where(every, contacts.overflow, contacts.dropped + ahead.min() < width)


def with_room(search: Callable[..., Solution], layout_of: Callable[[Model], Layout], model: Model, lost: Callable):
    """The same search from a start (`Here` of the model, ...), which looks for few contacts where these suffice.

    lost: function of contacts and what follows `Here`, whether the search needs more than these.
    """
    full = model.pairs.layout.capacity
    rooms = fewer_slots(full)
    if not rooms:
        return search

    def choose(here: Here, *more) -> Solution:
        blank = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(search, here, *more))

        def within(room: int):
            def few():
                small = _small(here, room)
                found = search(small, *more)
                wide = _widened(found, full - room, layout_of(small.model), layout_of(here.model))
                return wide, lost(found.known.contacts, *more)

            return few

        first = (here.contacts.active.sum() > np.array(rooms)).sum()
        found, again = lax.switch(first, [*map(within, rooms), lambda: (blank, jnp.ones((), bool))])
        return lax.cond(again, lambda: search(here, *more), lambda: found)

    return one_by_one(choose, in_lockstep=search)


def _small(here: Here, room: int) -> Here:
    """The same of a model with room for fewer contacts."""
    model = here.model
    layout = dataclasses.replace(model.pairs.layout, capacity=room)
    model = eqx.tree_at(lambda m: m.pairs, model, dataclasses.replace(model.pairs, layout=layout))
    return here._replace(model=model, contacts=here.contacts.rowwise(lambda x: x[:room]))


def _widened(found: Solution, more: int, small: Layout, full: Layout) -> Solution:
    """What was found, with empty room for more contacts behind."""

    def longer(count: int, value):
        return lambda x: jnp.concatenate([x, jnp.full((count, *x.shape[1:]), value, x.dtype)])

    (v, held, cones), known = found.point, found.known
    heads, rubs = len(full.heads) - len(small.heads), len(full.cones) - len(small.cones)
    gamma, s = (longer(heads, 1.0)(x) for x in cones[:2])
    y, psi, u = (longer(rubs, one)(x) for x, one in zip(cones[2:], (0.0, 1.0, 0.0), strict=True))
    no = longer(heads, False)
    known = Known(
        known.contacts.rowwise(longer(more, 0)),
        Marks(*(longer(more, value)(x) for value, x in zip((-1, 0.0, False), known.marks, strict=True))),
        longer(more, -1)(known.origin),
        (no(known.on[0]), longer(rubs, False)(known.on[1])),
        no(known.bounce),
        no(known.deep),
        known.pushed,
    )
    return found._replace(point=Point(v, held, Cones(gamma, s, y, psi, u)), known=known)
