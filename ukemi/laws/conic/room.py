"""Turns of the search with room for few contacts where there are few, since a turn costs what there is room for."""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.collide.detect import Contacts, count
from ukemi.constraints.contacts import contact_parameters
from ukemi.laws.conic.cones import Cones, layout
from ukemi.laws.conic.marks import Marks
from ukemi.laws.conic.mechanics import Mechanics
from ukemi.laws.conic.progress import Carry, Progress, Task
from ukemi.laws.conic.unknowns import Point
from ukemi.model.records import Model


def lacks(contacts: Contacts, ahead: Array | None, width: Array, every: Array | bool) -> Array:
    """Whether contacts that there was no room for may push: those nearer than `width`, or where `every` one may, any.

    ahead: distance, one per pair, beyond the margin from which on they were active [m].
    """
    if ahead is None:
        return contacts.overflow
    return jnp.where(every, contacts.overflow, contacts.dropped + ahead.min() < width)


def acts_near(mechanics: Mechanics, model: Model) -> bool:
    """Whether only contacts within the path's width act, but for those that bounce: not those that adhere, nor those
    of the start, which come nearer within the step.
    """
    return mechanics.looks_again and not model.pairs.layout.adheres


def together(model: Model) -> bool:
    """Whether rooms share a loop: where meshes are, to which a search owes half its time to compile."""
    return not model.pairs.layout.hulls.idle


def chosen(task: Task, now: Progress, contacts: Contacts, rooms: tuple[int, ...]) -> Array:
    """Which room holds the contacts at a point that may push, and those of the start that ask for something: all, where
    these adhere, bounce or are not looked for again.

    None is smaller than that of the last point: what is left out of a search that goes on should not change.
    """
    model, limits = task.here.model, task.layout.limits
    bounces, inside = task.bounce[limits:], ~(task.start.inside[limits:] <= 0)
    push = contacts.active
    if acts_near(task.mechanics, model):
        margin = contact_parameters(model, contacts.pair).margin
        push = push & (~(contacts.distance - margin >= task.path.width) | bounces.any())
    room = (jnp.maximum(count(push), count(bounces | inside)) > np.array(rooms)).sum(dtype=jnp.int32)
    return jnp.where(now.fresh, room, jnp.maximum(room, now.room))


def fewer(task: Task, room: int) -> Task:
    """The same with room for the first contacts alone, at the start and at the end."""
    kinds, start = dataclasses.replace(task.kinds, contacts=room), task.start
    small = layout(task.here.model, kinds)
    inside, leaving, rebound, bounce = (
        x[: len(small.heads)] for x in (start.inside, start.leaving, start.rebound, task.bounce)
    )
    start = start._replace(inside=inside, leaving=leaving, rebound=rebound)
    marks = Marks(*(x[:room] for x in task.marks))
    return task._replace(kinds=kinds, layout=small, start=start, marks=marks, bounce=bounce)


def narrowed(carry: Carry, few: Task) -> Carry:
    """A search's carry with room for as many contacts as a task has."""
    return _resized(carry, few, lambda x, count, _: x[:count])


def widened(carry: Carry, task: Task) -> Carry:
    """The same with empty room behind for as many."""

    def longer(x: Array, count: int, value: float) -> Array:
        return jnp.concatenate([x, jnp.full((count - len(x), *x.shape[1:]), value, x.dtype)])

    return _resized(carry, task, longer)


def _resized(carry: Carry, task: Task, change: Callable[[Array, int, float], Array]) -> Carry:
    """All of a carry but the contacts themselves; change: function of an array, of how many it should have, and of what
    says that there is nothing.
    """
    own, nc, known = task.layout, task.kinds.contacts, carry.known

    def heads(x: Array, nothing: float = 0) -> Array:
        return change(x, len(own.heads), nothing)

    def rubs(x: Array, nothing: float = 0) -> Array:
        return change(x, len(own.cones), nothing)

    def point(x: Point, one: float) -> Point:
        gamma, s, y, psi, u = x.cones
        return x._replace(cones=Cones(heads(gamma, one), heads(s, one), rubs(y), rubs(psi, one), rubs(u)))

    known = known._replace(
        marks=Marks(*(change(x, nc, nothing) for x, nothing in zip(known.marks, (-1, 0, 0), strict=True))),
        origin=change(known.origin, nc, -1),
        on=(heads(known.on[0]), rubs(known.on[1])),
        bounce=heads(known.bounce),
        deep=heads(known.deep),
    )
    bent = carry.bent._replace(slip=rubs(carry.bent.slip), slip_left=rubs(carry.bent.slip_left))
    return Carry(point(carry.point, 1), known, point(carry.change, 0), carry.progress, bent)
