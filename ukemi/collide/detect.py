"""Which contacts there are: bounding capsules, then the pair functions, then the nearest contact points."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide import response
from ukemi.collide.hulls import ground, touching
from ukemi.collide.hulls.features import FEATURES, Corners, Patch
from ukemi.collide.hulls.search import Nearest
from ukemi.collide.near import PART, Posed, free_corners, posed_at, reach_ahead
from ukemi.collide.primitives import (
    POLYTOPES,
    chunk_in,
    families,
    family_function,
    is_flat,
    is_ground,
    is_searched,
    kind_in,
    points_in,
)
from ukemi.collide.shapes import EMPTY, Shape, shapes_at, sides
from ukemi.implicit.rule import keep, unmoved, zero_tangent
from ukemi.maths import spatial
from ukemi.maths.gathers import put_rows, rows_at
from ukemi.maths.ranking import parts, places, smallest, wrapped
from ukemi.mechanics.kinematics import Kinematics, geom_frames
from ukemi.model.records import Model, PairLayout
from ukemi.status import Status
from ukemi.xla.batches import one_by_one, side_by_side
from ukemi.xla.stages import compact

FEW_GROUPS = 4
SHORT = 64  # candidates near enough to look at, of which all are ranked in much less time than of more
ROWS = 8  # contacts whose patches are looked up together
NAMES = 1021  # of contact points of a pair, a prime: prisms of a height field that share one are far apart


class Contacts(NamedTuple):
    """Contact points, nearest first up to the model's capacity; rows where `active` is false mean nothing.

    Where a shape is nowhere, all are active and at distance NaN: comparisons would drop them.
    """

    active: Array  # (nc,) bool: closer than the margin, so that forces may act
    distance: Array  # (nc,) signed [m]
    point: Array  # (nc, 3) midway between the surfaces [m]
    frame: Array  # (nc, 3, 3) rows: normal from the first geom to the second, two tangents
    pair: Array  # (nc,) which pair of geoms, a row of `PairLayout.geoms`
    which: Array  # (nc,) which of the pair's contact points, in MuJoCo's order
    overflow: Array  # () bool: more contacts than the model can hold
    features: Array  # (nc, 9) codes of `Features` where polytopes touch; (nc, 0) where a model has none
    patch: Patch | None  # (nc, 2, ...) what of both shapes touches; None where a model has no polytopes
    failed: Array  # () bool: a search for what touches did not end

    @property
    def names(self) -> Array:
        """A number (nc,) for each contact point, by which another step knows it; −1 where there is none."""
        return jnp.where(self.active, self.pair * NAMES + wrapped(self.which, NAMES), -1).astype(jnp.int32)

    def rowwise(self, change: Callable[[Array], Array]) -> "Contacts":
        """The same with all arrays that lead with contacts changed."""
        flags = {"overflow": self.overflow, "failed": self.failed}
        return jax.tree.map(change, self._replace(**dict.fromkeys(flags)))._replace(**flags)


def unsound(contacts: Contacts) -> dict[Status, Array]:
    """Why contacts should not be trusted, if they should not."""
    return {Status.CONTACT_OVERFLOW: contacts.overflow, Status.SEARCH_UNFINISHED: contacts.failed}


class Found(NamedTuple):
    """Candidate contact points; slots that hold none are at distance EMPTY."""

    distance: Array  # (n,)
    hit: Array  # (n, 12) point, then frame
    pair: Array  # (n,)
    which: Array  # (n,)
    features: Array  # (n, 9) or (n, 0)


def detect(model: Model, kin: Kinematics, ahead: Array | None = None) -> Contacts:
    """Contact points at the poses `kin`.

    ahead: distance, one or per pair (pairs,), beyond the margin from which on contacts count as active [m].
    """
    if not model.pairs.layout.groups:
        return _no_contacts(model)
    # a stage of its own: fused with what derivatives make of the same frames, they would be rounded otherwise
    pos, mat = compact(geom_frames)(model, kin)
    return _detect(model, shapes_at(model.geoms, pos, mat), ahead)


@jax.custom_jvp
def _detect(model: Model, shapes: Shape, ahead: Array | None) -> Contacts:
    return compact(_find)(model, shapes, ahead)


def _find(model: Model, shapes: Shape, ahead: Array | None) -> Contacts:
    layout = model.pairs.layout
    overflow, failed, nowhere = jnp.zeros((3,), bool)
    posed, unlisted = posed_at(model, shapes, ahead)
    parts = [_examine(layout, [g], _rows(layout, g), posed).found for g in _planes(layout)]
    if len(_planes(layout)) < len(layout.groups):
        others, overflow, failed = one_by_one(lambda posed: _near_pairs(layout, posed))(posed)
        parts.append(others)
        overflow = overflow | unlisted
        nowhere = ~(jnp.isfinite(posed.near).all() & jnp.isfinite(shapes.pos).all())
    found = jax.tree.map(lambda *x: jnp.concatenate(x), *parts)
    margin, gap = reach_ahead(model, ahead, found.pair)
    excess, known = spatial.materialize(((found.distance - margin).astype(jnp.float32), found.distance < margin + gap))
    nearest = _ranked(excess, known, min(layout.capacity, len(excess)))
    if layout.capacity < len(excess):
        overflow = overflow | ((excess < 0).sum() > layout.capacity)
    distance, hit, pair, which, features = spatial.materialize(tuple(x[nearest] for x in found))
    nowhere = nowhere | ~jnp.isfinite(excess).all()
    distance = jnp.where(nowhere, jnp.nan, distance)
    margin, gap = reach_ahead(model, ahead, pair)
    active, known = ~(distance >= margin), ~(distance >= margin + gap)
    return Contacts(
        active=active,
        distance=distance,
        point=hit[:, :3],
        frame=hit[:, 3:].reshape(-1, 3, 3),
        pair=pair,
        which=which,
        overflow=overflow,
        features=features,
        patch=None if layout.hulls.idle else _patches(layout, posed.corners, features, _count(known)),
        failed=failed,
    )


def _ranked(excess: Array, known: Array, k: int) -> Array:
    """Places (k,) of the smallest of (n,) in rising order, of those that are known, or of all."""
    if len(excess) < 2 * SHORT:
        return smallest(excess, k)

    def of_few(excess: Array, known: Array) -> Array:
        at, here = places(known, SHORT), np.arange(SHORT) < known.sum()
        order = smallest(jnp.where(here, excess[at], jnp.inf), SHORT)
        first = jnp.where(here, at[order], jnp.argmin(known).astype(at.dtype))  # then one that is not, over and over
        return jnp.pad(first, (0, max(0, k - SHORT)), mode="edge")[:k]

    def of_all(excess: Array, known: Array) -> Array:
        return smallest(excess, k)

    def ranked(excess: Array, known: Array) -> Array:
        return lax.cond(known.sum() < SHORT, of_few, of_all, excess, known)

    return one_by_one(ranked, in_lockstep=of_all)(excess, known)


def _count(mask: Array) -> Array:
    """How many () are true of a mask (n,), and those before the last of them."""
    return jnp.where(mask, np.arange(1, len(mask) + 1, dtype=np.int32), 0).max(initial=0)


def _patches(layout: PairLayout, corners: Corners, features: Array, count: Array) -> Patch:
    """What touches (nc, 2, ...) of the first `count` contacts."""

    def every(corners, features, count):
        return touching.patches(layout.hulls, corners, features)

    def by_rows(corners, features, count):
        padded = jnp.pad(features, ((0, -len(features) % ROWS), (0, 0)))

        def some(k, out):
            new = touching.patches(layout.hulls, corners, rows_at(padded, k * ROWS + np.arange(ROWS)))
            return jax.tree.map(lambda x, y: put_rows(x, y, k * ROWS), out, new)

        blank = jax.eval_shape(every, corners, padded, count)
        blank = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), blank)
        out = lax.fori_loop(0, parts(count, ROWS), some, blank)
        return jax.tree.map(lambda x: x[: len(features)], out)

    return one_by_one(by_rows, in_lockstep=every)(corners, features, count)


def _differentiate_detect(primals, tangents):
    """Contacts follow their shapes by the derivative of the pair functions; which contacts there are is constant."""
    (model, shapes, ahead), (models, along, _) = primals, tangents
    contacts = keep(_detect(model, shapes, ahead))
    return contacts, _following(model, shapes, ahead, along, free_corners(models), contacts)


_detect.defjvp(_differentiate_detect, symbolic_zeros=True)


def attached(model: Model, kin: Kinematics, contacts: Contacts, ahead: Array | None = None) -> Contacts:
    """Contacts that `detect` found at these poses, as functions of them, for derivatives of what they led to."""
    if not model.pairs.layout.groups:
        return contacts
    return _attached(model, shapes_at(model.geoms, *geom_frames(model, kin)), ahead, contacts)


@jax.custom_jvp
def _attached(model: Model, shapes: Shape, ahead: Array | None, contacts: Contacts) -> Contacts:
    return contacts


def _differentiate_attached(primals, tangents):
    (model, shapes, ahead, contacts), (models, along, _, _) = primals, tangents
    return contacts, _following(model, shapes, ahead, along, free_corners(models), contacts)


def _following(model: Model, shapes: Shape, ahead: Array | None, along: Shape, bend, contacts: Contacts) -> Contacts:
    """How contacts move as their shapes, and the corners of hulls, move along tangents."""
    tangent = zero_tangent(contacts)
    if unmoved((along, bend)):
        return tangent
    margin, gap = reach_ahead(model, ahead)
    moved = response.follow(model.pairs.layout, margin + gap, shapes, along, free_corners(model), bend, contacts)
    return tangent._replace(distance=moved.distance, point=moved.point, frame=moved.frame)


_attached.defjvp(_differentiate_attached, symbolic_zeros=True)


def _planes(layout: PairLayout) -> list[int]:
    """Groups to examine whole: planes with anything, unless there are so many groups or pairs that choosing pays."""
    if len(layout.groups) > FEW_GROUPS or layout.many:
        return []
    return [g for g, group in enumerate(layout.groups) if is_flat(group) and group.types not in POLYTOPES]


def _rows(layout: PairLayout, g: int) -> np.ndarray:
    """Pairs of a group."""
    return np.arange(layout.first[g], layout.first[g + 1], dtype=np.int32)


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
    one = kind_in(layout, family, pair), geoms, *sides(posed.shapes, geoms), rows_at(posed.reach, at)
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
        hit, features, which, taken, lost, failed = ground.contacts(group, layout.hulls, posed.corners, *one[2:])
    elif one:
        hit, features = touching.contacts(layout.hulls, posed.corners, one, nearest)
        taken = jnp.where((hit.distance < EMPTY).any(), points, 0)
    else:
        hit = side_by_side(family_function(layout, family)[0])(a, b, reach, kind_in(layout, family, pair))
        features = jnp.zeros((len(geoms) * points, 0 if layout.hulls.idle else FEATURES), jnp.int32)
    data = jnp.concatenate([hit.point.reshape(-1, 3), hit.frame.reshape(-1, 9)], -1)
    pair = jnp.repeat(pair, points)
    return Examined(Found(hit.distance.reshape(-1), data, pair, which, features), taken, lost, failed)


def _near_pairs(layout: PairLayout, posed: Posed) -> tuple[Found, Array, Array]:
    """Contact points of the pairs that are near, group by group into one list; whether some did not fit; failures."""
    others = [g for g in range(len(layout.groups)) if g not in _planes(layout)]
    every = families(layout, others)
    room = min(sum(_slots(layout, f) * points_in(layout, f) for f in every), 2 * layout.capacity + 16)
    spare = max(chunk_in(layout, f) * points_in(layout, f) for f in every)
    size, dtype, no = room + spare, posed.near.dtype, jnp.zeros((), bool)
    none = jnp.zeros(size, jnp.int32)
    features = jnp.zeros((size, 0 if layout.hulls.idle else FEATURES), jnp.int32)
    blank = Found(jnp.full(size, EMPTY, dtype), jnp.zeros((size, 12), dtype), none, none, features)
    carry = blank, jnp.zeros((), jnp.int32), no, no
    # one branch around all pairs of bodies, which are mostly apart, spares their groups' own branches
    planes = [f for f in every if is_flat(layout.groups[f[0]]) or f[0] < layout.always]
    # but searches are long: outside of it their loops are functions that compile side by side
    searched = [] if layout.many else [f for f in every if is_searched(layout.groups[f[0]])]
    for own in (planes, [f for f in every if f not in planes + searched]):
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
    for family in every:
        near, start = _near(layout, posed, family[0], family[-1])
        add = _adder(layout, family, posed, near, start, room)
        searched = is_searched(layout.groups[family[0]])  # by loops, which may take no turn
        carry = add(carry) if searched else lax.cond(near.any(), add, lambda carry: carry, carry)
    return carry


def _adder(layout: PairLayout, family: list[int], posed: Posed, near: Array, start: int, room: int):
    """Function that appends the contact points of a family's near pairs to (Found, length, lost, failed)."""
    count, slots = near.sum(), len(near) if layout.many else _slots(layout, family)
    chunk, points = chunk_in(layout, family), points_in(layout, family)
    searched, none = is_searched(layout.groups[family[0]]), jnp.zeros(slots, jnp.int32)

    def add(carry):
        index = lax.cond(near.any(), lambda: places(near, slots), lambda: none) if searched else places(near, slots)
        index, wanted, nearest = start + jnp.pad(index, (0, -slots % chunk)), jnp.minimum(count, slots), None
        if searched:
            index, wanted, nearest, failed = _within_reach(layout, family, posed, index, wanted)
            carry = (*carry[:3], carry[3] | failed)

        def some(i, carry):
            found, length, lost, failed = carry
            own = jax.tree.map(lambda x: rows_at(x, i), nearest)
            seen = _examine(layout, family, rows_at(index, i * chunk + np.arange(chunk)), posed, own)
            real = jnp.repeat(i * chunk + jnp.arange(chunk) < wanted, points)
            new = seen.found._replace(distance=jnp.where(real, seen.found.distance, EMPTY))
            found = jax.tree.map(lambda x, y: put_rows(x, y, length), found, new)
            after = length + jnp.minimum(points * (wanted - i * chunk), seen.taken)
            lost = lost | seen.lost | (after > room)
            return found, jnp.minimum(after, room).astype(jnp.int32), lost, failed | seen.failed

        found, length, lost, failed = lax.fori_loop(0, parts(wanted, chunk), some, carry)
        return found, length, lost | (count > slots), failed

    return add


def _no_contacts(model: Model) -> Contacts:
    dtype = model.options.timestep.dtype
    return Contacts(
        active=jnp.zeros(0, bool),
        distance=jnp.full(0, EMPTY, dtype),
        point=jnp.zeros((0, 3), dtype),
        frame=jnp.zeros((0, 3, 3), dtype),
        pair=jnp.zeros(0, jnp.int32),
        which=jnp.zeros(0, jnp.int32),
        overflow=jnp.zeros((), bool),
        features=jnp.zeros((0, 0), jnp.int32),
        patch=None,
        failed=jnp.zeros((), bool),
    )
