"""Contact points of the pairs that are near: the routine of its kinds looks at each, what is found goes into a list."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.frames import row_of, width
from ukemi.collide.hulls import ground, touching
from ukemi.collide.hulls.features import FEATURES
from ukemi.collide.hulls.search import Nearest
from ukemi.collide.near import PART, Posed
from ukemi.collide.primitives import (
    POLYTOPES,
    bundles,
    chunk_in,
    families,
    family_function,
    is_axial,
    is_flat,
    is_ground,
    is_searched,
    is_steadied,
    kind_in,
    place_in_bundle,
    points_in,
)
from ukemi.collide.shapes import EMPTY, sides
from ukemi.maths import spatial
from ukemi.maths.gathers import put_rows, rows_at
from ukemi.maths.ranking import parts, places
from ukemi.model.records import PairLayout
from ukemi.xla.batches import side_by_side

FEW_GROUPS = 4


class Found(NamedTuple):
    """Candidate contact points; slots that hold none are at distance EMPTY."""

    distance: Array  # (n,)
    hit: Array  # (n, ...) where it is: see `frames.row_of`
    pair: Array  # (n,)
    which: Array  # (n,)
    features: Array  # (n, 9) or (n, 0)


def planes(layout: PairLayout) -> list[int]:
    """Groups to examine whole: planes with anything, unless there are so many groups or pairs that choosing pays."""
    if len(layout.groups) > FEW_GROUPS or layout.many:
        return []
    return [g for g, group in enumerate(layout.groups) if is_flat(group) and group.types not in POLYTOPES]


def examine_whole(layout: PairLayout, g: int, posed: Posed) -> Found:
    """Contact points of all pairs of a group."""
    return _examine(layout, [g], np.arange(layout.first[g], layout.first[g + 1], dtype=np.int32), posed).found


def _slots(layout: PairLayout, family: list[int]) -> int:
    return sum(layout.groups[g].slots for g in family)


class Examined(NamedTuple):
    """What was found of some pairs of a family."""

    found: Found
    taken: Array | int  # () of its rows that may hold contacts: the first ones
    lost: Array  # () bool: not all was looked at
    failed: Array  # () bool: a search did not end


def _pair(layout: PairLayout, family: list[int], at, posed: Posed) -> touching.Pair:
    """The one pair of polytopes at a place (1,) of the list: without a batch (`chunk_in`), branches stay branches."""
    pair = rows_at(posed.pair, at)
    geoms = rows_at(layout.geoms, pair)
    reach, early = jax.tree.map(lambda x: rows_at(x, at), (posed.reach, posed.early))
    one = kind_in(layout, family, pair), geoms, *sides(posed.shapes, geoms), reach, early
    one = spatial.materialize(jax.tree.map(lambda x: x[0], one))
    return touching.Pair([layout.groups[g].types for g in family], *one)


def _within_reach(layout: PairLayout, family: list[int], posed: Posed, index: Array, wanted: Array):
    """Of the `wanted` first places (n,) those whose polytopes are within reach, how many, where, and what failed.

    A loop of its own: two loops compile in less time than one that is twice as long.
    """

    def search(i) -> tuple[Nearest, Array]:
        return touching.look(layout.hulls, posed.corners, _pair(layout, family, rows_at(index, i[None]), posed))

    def some(i, carry):
        kept, count, failed = carry
        found, near = search(i)
        kept = jax.tree.map(lambda x, y: put_rows(x, y[None], count), kept, (rows_at(index, i), found))
        return kept, count + near, failed | found.failed

    blank = Nearest.blank(len(index), posed.reach.dtype)
    none = (jnp.zeros_like(index), blank), jnp.int32(0), jnp.zeros((), bool)
    (index, found), count, failed = lax.fori_loop(0, wanted, some, none)
    return index, count, found, failed


def _examine(layout: PairLayout, family: list[int], at, posed: Posed, nearest: Nearest | None = None) -> Examined:
    """Contact points of pairs of a family, those at some places of the list."""
    group, pair = layout.groups[family[0]], rows_at(posed.pair, at)
    geoms = rows_at(layout.geoms, pair)
    (a, b), reach, points = sides(posed.shapes, geoms), rows_at(posed.reach, at), points_in(layout, family)
    taken, (lost, failed) = len(geoms) * points, jnp.zeros((2,), bool)
    which = jnp.asarray(np.tile(np.arange(points, dtype=np.int32), len(geoms)))
    one = _pair(layout, family, at, posed) if group.types in POLYTOPES else None
    if one and is_ground(group):
        hit, features, which, taken, lost, failed = ground.contacts(group, layout.hulls, posed.corners, *one[2:-1])
    elif one:
        hit, features = touching.contacts(layout.hulls, posed.corners, one, nearest)
        taken = jnp.where((hit.distance < EMPTY).any(), points, 0)
    else:
        told = posed.steady is not None and is_steadied(group.types)
        find = partial(family_function(layout, family)[0], **{"known": posed.steady} if told else {})
        hit = side_by_side(find)(a, b, reach, kind_in(layout, family, pair))
        features = jnp.zeros((len(geoms) * points, 0 if layout.hulls.idle else FEATURES), jnp.int32)
    data = row_of(hit, is_axial(layout)).reshape(-1, width(is_axial(layout)))
    pair = jnp.repeat(pair, points)
    return Examined(Found(hit.distance.reshape(-1), data, pair, which, features), taken, lost, failed)


def _examine_any(layout: PairLayout, bundle: list[list[int]], at, posed: Posed, nearest: Nearest | None) -> Examined:
    """The same of pairs of several families, which are looked at one by one."""
    if len(bundle) == 1:
        return _examine(layout, bundle[0], at, posed, nearest)
    most = max(points_in(layout, family) for family in bundle)

    def routine(family: list[int]):
        def run(at) -> Examined:
            seen, more = _examine(layout, family, at, posed), most - points_in(layout, family)
            pad = lambda x, none: jnp.pad(x, ((0, more), (0, 0))[: x.ndim], constant_values=none)  # noqa: E731
            found = Found(*map(pad, seen.found, (EMPTY, 0, 0, 0, 0)))
            return seen._replace(found=found, taken=jnp.asarray(seen.taken, jnp.int32))

        return run

    which = place_in_bundle(layout, bundle, rows_at(posed.pair, at)[0])
    return lax.switch(which, [routine(family) for family in bundle], at)


def near_pairs(layout: PairLayout, posed: Posed) -> tuple[Found, Array, Array]:
    """Contact points of the pairs that are near, group by group into one list; whether some did not fit; failures."""
    others = [g for g in range(len(layout.groups)) if g not in planes(layout)]
    every = families(layout, others)
    room = min(sum(_slots(layout, f) * points_in(layout, f) for f in every), 2 * layout.capacity + 16)
    spare = max(chunk_in(layout, f) * points_in(layout, f) for f in every)
    size, dtype, no = room + spare, posed.near.dtype, jnp.zeros((), bool)
    none = jnp.zeros(size, jnp.int32)
    features = jnp.zeros((size, 0 if layout.hulls.idle else FEATURES), jnp.int32)
    blank = Found(jnp.full(size, EMPTY, dtype), jnp.zeros((size, width(is_axial(layout))), dtype), none, none, features)
    carry = blank, jnp.zeros((), jnp.int32), no, no
    # one branch around all pairs of bodies, which are mostly apart, spares their groups' own branches
    flat = [f for f in every if is_flat(layout.groups[f[0]]) or f[0] < layout.always]
    # but searches are long: outside of it their loops are functions that compile side by side
    searched = [] if layout.many else [f for f in every if is_searched(layout.groups[f[0]])]
    for own in (flat, [f for f in every if f not in flat + searched]):
        if own:
            carry = _append_in_parts(layout, own, posed, room, carry)
    found, _, lost, failed = _append(layout, searched, posed, room, carry)
    return jax.tree.map(lambda x: x[:room], found), lost, failed


def _append_in_parts(layout: PairLayout, every: list[list[int]], posed: Posed, room: int, carry):
    """The same as `_append`, where any is near; of a list of candidates a part at a time, since few are any."""

    def add(posed: Posed, carry):
        near, _ = _near(layout, posed, every[0][0], every[-1][-1])
        return lax.cond(near.any(), partial(_append, layout, every, posed, room), lambda carry: carry, carry)

    if not layout.many:
        return add(posed, carry)
    always = layout.first[layout.always]
    if every[0][0] < layout.always:
        return add(posed.part(0, always), carry)
    return lax.fori_loop(0, parts(posed.count, PART), lambda k, at: add(posed.part(always + k * PART, PART), at), carry)


def _near(layout: PairLayout, posed: Posed, g: int, h: int) -> tuple[Array, int]:
    """Which of the pairs of groups g to h are near, of a part of the list (n,), and where that part begins."""
    first, last = layout.first[g], layout.first[h + 1]
    if not layout.many:
        return posed.near[first:last] < 0, first
    return (posed.near < 0) & (posed.pair >= first) & (posed.pair < last), 0


def _append(layout: PairLayout, every: list[list[int]], posed: Posed, room: int, carry):
    """Append the contact points of the near pairs of several families to (Found, length, lost, failed)."""
    own = bundles(layout, every)
    for bundle in own:
        near, start = _near(layout, posed, bundle[0][0], bundle[-1][-1])
        add = _adder(layout, bundle, posed, near, start, room)
        searched = is_searched(layout.groups[bundle[0][0]])  # by loops, which may take no turn
        known = searched or len(own) == 1
        carry = add(carry) if known else lax.cond(near.any(), add, lambda carry: carry, carry)
    return carry


def _adder(layout: PairLayout, bundle: list[list[int]], posed: Posed, near: Array, start: int, room: int):
    """Function that appends the contact points of the near pairs of a bundle to (Found, length, lost, failed)."""
    count, slots = near.sum(), len(near) if layout.many else sum(_slots(layout, family) for family in bundle)
    chunk, points = (max(f(layout, family) for family in bundle) for f in (chunk_in, points_in))
    searched, none = is_searched(layout.groups[bundle[0][0]]), jnp.zeros(slots, jnp.int32)

    def add(carry):
        index = lax.cond(near.any(), lambda: places(near, slots), lambda: none) if searched else places(near, slots)
        index, wanted, nearest = start + jnp.pad(index, (0, -slots % chunk)), jnp.minimum(count, slots), None
        if searched:
            index, wanted, nearest, failed = _within_reach(layout, bundle[0], posed, index, wanted)
            carry = (*carry[:3], carry[3] | failed)

        def some(i, carry):
            found, length, lost, failed = carry
            own = jax.tree.map(lambda x: rows_at(x, i), nearest)
            seen = _examine_any(layout, bundle, rows_at(index, i * chunk + np.arange(chunk)), posed, own)
            real = jnp.repeat(i * chunk + jnp.arange(chunk) < wanted, points)
            new = seen.found._replace(distance=jnp.where(real, seen.found.distance, EMPTY))
            found = jax.tree.map(lambda x, y: put_rows(x, y, length), found, new)
            after = length + jnp.minimum(points * (wanted - i * chunk), seen.taken)
            lost = lost | seen.lost | (after > room)
            return found, jnp.minimum(after, room).astype(jnp.int32), lost, failed | seen.failed

        found, length, lost, failed = lax.fori_loop(0, parts(wanted, chunk), some, carry)
        return found, length, lost | (count > slots), failed

    return add
