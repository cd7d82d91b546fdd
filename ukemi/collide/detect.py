"""Which contacts there are: bounding capsules, then the pair functions, then the nearest contact points."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide import response
from ukemi.collide.hulls import boxes, ground, touching
from ukemi.collide.hulls.features import FEATURES, Corners, Patch, all_corners
from ukemi.collide.kinds import KINDS
from ukemi.collide.primitives import POLYTOPES, chunk_of, pair_function, points_of
from ukemi.collide.shapes import EMPTY, Shape, own_arrays, shapes_at, sides
from ukemi.implicit.rule import keep, unmoved, zero_tangent
from ukemi.maths import spatial
from ukemi.maths.ranking import smallest
from ukemi.mechanics.kinematics import Kinematics, geom_frames
from ukemi.model.records import Model, PairGroup, PairLayout
from ukemi.status import Status
from ukemi.xla.batches import one_by_one
from ukemi.xla.stages import compact

FEW_GROUPS = 4
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
        return jnp.where(self.active, self.pair * NAMES + self.which % NAMES, -1).astype(jnp.int32)


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


class Posed(NamedTuple):
    """All geoms in the world, and how near each pair must be to matter."""

    shapes: Shape  # all geoms
    reach: Array  # (pairs,) margin + gap [m]
    near: Array  # (pairs,) distance between bounding capsules, less the reach [m]
    corners: Corners


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
    margin, gap = _reach(model, ahead)
    corners = all_corners(layout.hulls, _corners(model))
    near = _apart(model, shapes, margin + gap) - margin - gap
    posed = Posed(shapes, margin + gap, near, corners)
    parts = [_examine(layout, g, np.arange(len(layout.groups[g].geoms)), posed).found for g in _planes(layout)]
    overflow, failed, nowhere = jnp.zeros((3,), bool)
    if len(_planes(layout)) < len(layout.groups):
        others, overflow, failed = one_by_one(lambda posed: _near_pairs(layout, posed))(posed)
        parts.append(others)
        nowhere = ~jnp.isfinite(posed.near).all()
    found = jax.tree.map(lambda *x: jnp.concatenate(x), *parts)
    excess = (found.distance - margin[found.pair]).astype(jnp.float32)
    nearest = smallest(excess, min(layout.capacity, len(excess)))
    if layout.capacity < len(excess):
        overflow = overflow | ((excess < 0).sum() > layout.capacity)
    distance, hit, pair, which, features = spatial.materialize(tuple(x[nearest] for x in found))
    nowhere = nowhere | ~jnp.isfinite(excess).all()
    distance = jnp.where(nowhere, jnp.nan, distance)
    return Contacts(
        active=~(distance >= margin[pair]),
        distance=distance,
        point=hit[:, :3],
        frame=hit[:, 3:].reshape(-1, 3, 3),
        pair=pair,
        which=which,
        overflow=overflow,
        features=features,
        patch=None if layout.hulls.idle else touching.patches(layout.hulls, corners, features),
        failed=failed,
    )


def _differentiate_detect(primals, tangents):
    """Contacts follow their shapes by the derivative of the pair functions; which contacts there are is constant."""
    (model, shapes, ahead), (models, along, _) = primals, tangents
    contacts = keep(_detect(model, shapes, ahead))
    return contacts, _following(model, shapes, ahead, along, _corners(models), contacts)


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
    return contacts, _following(model, shapes, ahead, along, _corners(models), contacts)


def _following(model: Model, shapes: Shape, ahead: Array | None, along: Shape, bend, contacts: Contacts) -> Contacts:
    """How contacts move as their shapes, and the corners of hulls, move along tangents."""
    tangent = zero_tangent(contacts)
    if unmoved((along, bend)):
        return tangent
    margin, gap = _reach(model, ahead)
    moved = response.follow(model.pairs.layout, margin + gap, shapes, along, _corners(model), bend, contacts)
    return tangent._replace(distance=moved.distance, point=moved.point, frame=moved.frame)


_attached.defjvp(_differentiate_attached, symbolic_zeros=True)


def _corners(model: Model) -> Corners:
    """Those that are parameters."""
    return Corners(model.geoms.vertices, model.heights)


def reach_of_pairs(model: Model) -> tuple[Array, Array]:
    """Margin and gap (pairs,) [m]: forces act below the margin, contacts are known below margin + gap."""
    layout, geoms, pairs = model.pairs.layout, model.geoms, model.pairs
    a, b = layout.geoms.T
    margin, gap = geoms.margin[a] + geoms.margin[b], geoms.gap[a] + geoms.gap[b]
    if not len(pairs.margin):
        return margin, gap
    listed, k = layout.explicit >= 0, np.maximum(layout.explicit, 0)
    return jnp.where(listed, pairs.margin[k], margin), jnp.where(listed, pairs.gap[k], gap)


def _reach(model: Model, ahead: Array | None) -> tuple[Array, Array]:
    margin, gap = reach_of_pairs(model)
    return (margin, gap) if ahead is None else (margin + ahead, gap)


def bounding_capsules(model: Model) -> tuple[Array, Array]:
    """Half axis (ng, 3) in the geom's frame and radius (ng,) of a capsule that holds each geom [m]."""
    kinds, half = [KINDS[kind] for kind in model.geoms.layout.type], jnp.zeros_like(model.geoms.pos)
    radius = jnp.zeros_like(half[:, 0])
    for bounds in dict.fromkeys(kind.bounds for kind in kinds if kind.bounds):
        own, held = np.array([kind.bounds is bounds for kind in kinds]), bounds(*own_arrays(model.geoms))
        half, radius = jnp.where(own[:, None], held[0], half), jnp.where(own, held[1], radius)
    hulls = model.pairs.layout.hulls
    own = np.array([kind.bounds is None for kind in kinds]) & (hulls.of >= 0)
    if not own.any():
        return half, radius
    held, size = jnp.asarray(hulls.capsules, half.dtype)[hulls.of], model.geoms.size
    half = jnp.where(own[:, None], held[:, :3] * size, half)
    return half, jnp.where(own, held[:, 3] * jnp.abs(size).max(-1), radius)


def _apart(model: Model, shapes: Shape, reach: Array) -> Array:
    """Distance (pairs,) between the bounding capsules of each pair [m]: never more than that of the shapes."""
    (a, b), pos, mat = model.pairs.layout.geoms.T, shapes.pos, shapes.mat
    half, radius = bounding_capsules(model)
    end = spatial.materialize(spatial.apply(mat, half))
    u, w, r = end[a], end[b], pos[b] - pos[a]
    uu, ww, uw = (u * u).sum(-1), (w * w).sum(-1), (u * w).sum(-1)
    ur, wr = (u * r).sum(-1), (w * r).sum(-1)
    # closest points s u and r + t w of two segments, |s|, |t| ≤ 1, by three alternating exact minimisations: with
    # the first from the lines' common normal this is the exact pair, up to parallel segments where any will do
    cross = uu * ww - uw * uw
    s = jnp.clip((ur * ww - wr * uw) / jnp.where(cross > 1e-12, cross, 1.0), -1, 1)
    t = jnp.clip((s * uw - wr) / jnp.where(ww > 0, ww, 1.0), -1, 1)
    s = jnp.clip((t * uw + ur) / jnp.where(uu > 0, uu, 1.0), -1, 1)
    apart = spatial.safe_norm(r + t[:, None] * w - s[:, None] * u) - radius[a] - radius[b]
    apart = _boxes_apart(model, pos, mat, apart)
    apart = _over_ground(model, shapes, end, radius, reach, apart)
    flat = np.array([KINDS[kind].endless for kind in model.geoms.layout.type])[a]
    if not flat.any():
        return apart
    normal = mat[a][:, :, 2]
    above = (normal * r).sum(-1) - jnp.abs((normal * w).sum(-1)) - radius[b]
    return jnp.where(flat, above, apart)


def _over_ground(model: Model, shapes: Shape, end: Array, radius: Array, reach: Array, known: Array) -> Array:
    """Distance (pairs,) `known`, or of pairs with a height field that from what of it is beneath."""
    layout = model.pairs.layout
    for g, group in enumerate(layout.groups):
        if _is_ground(group):
            own = slice(layout.first[g], layout.first[g + 1])
            known = known.at[own].set(ground.apart(model.heights, group, shapes, end, radius, reach[own]))
    return known


def _boxes_apart(model: Model, pos: Array, mat: Array, known: Array) -> Array:
    """Distance (pairs,) `known` between bounding capsules, or of polytopes that between boxes if it is larger."""
    layout, kinds = model.pairs.layout, model.geoms.layout.type
    if layout.hulls.idle:
        return known
    center, half = boxes.boxes(kinds, layout.hulls, model.geoms.size)
    for g, group in enumerate(layout.groups):
        if group.types in POLYTOPES and not _is_flat(group) and not _is_ground(group):
            own = slice(layout.first[g], layout.first[g + 1])
            known = known.at[own].max(boxes.apart(center, half, pos, mat, group.geoms))
    return known


def _planes(layout: PairLayout) -> list[int]:
    """Groups to examine whole: planes with anything, unless there are so many groups that choosing pays."""
    if len(layout.groups) > FEW_GROUPS:
        return []
    return [g for g, group in enumerate(layout.groups) if _is_flat(group) and group.types not in POLYTOPES]


def _is_flat(group: PairGroup) -> bool:
    return KINDS[group.types[0]].endless


def _is_ground(group: PairGroup) -> bool:
    return KINDS[group.types[0]].ground


class Examined(NamedTuple):
    """What was found of some pairs of a group."""

    found: Found
    taken: Array | int  # () of its rows that may hold contacts: the first ones
    lost: Array  # () bool: not all was looked at
    failed: Array  # () bool: a search did not end


def _examine(layout: PairLayout, g: int, index, posed: Posed) -> Examined:
    """Contact points of some pairs of a group."""
    group, first = layout.groups[g], layout.first[g]
    geoms = jnp.asarray(group.geoms[index] if isinstance(index, np.ndarray) else jnp.asarray(group.geoms)[index])
    (a, b), reach, points = sides(posed.shapes, geoms), posed.reach[first + index], points_of(group)
    taken, (lost, failed) = len(geoms) * points, jnp.zeros((2,), bool)
    which = jnp.asarray(np.tile(np.arange(points, dtype=np.int32), len(geoms)))
    one = jax.tree.map(lambda x: x[0], (geoms, a, b, reach))  # `chunk_of`: without a batch, branches stay branches
    if _is_ground(group):
        hit, features, which, taken, lost, failed = ground.contacts(group, layout.hulls, posed.corners, *one)
    elif group.types in POLYTOPES:
        hit, features, failed = touching.contacts(group.types, layout.hulls, posed.corners, *one)
    else:
        hit = jax.vmap(pair_function(layout, group))(a, b, reach)
        features = jnp.zeros((len(geoms) * points, 0 if layout.hulls.idle else FEATURES), jnp.int32)
    data = jnp.concatenate([hit.point.reshape(-1, 3), hit.frame.reshape(-1, 9)], -1)
    pair = jnp.repeat(jnp.asarray(first + index), points)
    return Examined(Found(hit.distance.reshape(-1), data, pair, which, features), taken, lost, failed)


def _near_pairs(layout: PairLayout, posed: Posed) -> tuple[Found, Array, Array]:
    """Contact points of the pairs that are near, group by group into one list; whether some did not fit; failures."""
    others = [g for g in range(len(layout.groups)) if g not in _planes(layout)]
    room = sum(layout.groups[g].slots * points_of(layout.groups[g]) for g in others)
    room = min(room, 2 * layout.capacity + 16)
    spare = max(chunk_of(layout.groups[g]) * points_of(layout.groups[g]) for g in others)
    size, dtype, no = room + spare, posed.near.dtype, jnp.zeros((), bool)
    none = jnp.zeros(size, jnp.int32)
    features = jnp.zeros((size, 0 if layout.hulls.idle else FEATURES), jnp.int32)
    blank = Found(jnp.full(size, EMPTY, dtype), jnp.zeros((size, 12), dtype), none, none, features)
    carry = blank, jnp.zeros((), jnp.int32), no, no
    # one branch around all pairs of bodies, which are mostly apart, spares their groups' own branches
    planes = [g for g in others if _is_flat(layout.groups[g])]
    for groups in (planes, [g for g in others if g not in planes]):
        if groups:
            own = slice(layout.first[groups[0]], layout.first[groups[-1] + 1])
            add = partial(_append, layout, groups, posed, room)
            carry = lax.cond((posed.near[own] < 0).any(), add, lambda carry: carry, carry)
    found, _, lost, failed = carry
    return jax.tree.map(lambda x: x[:room], found), lost, failed


def _append(layout: PairLayout, groups: list[int], posed: Posed, room: int, carry):
    """Append the contact points of the near pairs of several groups to (Found, length, lost, failed)."""
    for g in groups:
        near = posed.near[layout.first[g] : layout.first[g + 1]]
        count = (near < 0).sum()
        carry = lax.cond(count > 0, _adder(layout, g, posed, near, count, room), lambda carry: carry, carry)
    return carry


def _adder(layout: PairLayout, g: int, posed: Posed, near: Array, count: Array, room: int):
    """Function that appends the contact points of a group's near pairs to (Found, length, lost, failed)."""
    group, chunk, points = layout.groups[g], chunk_of(layout.groups[g]), points_of(layout.groups[g])
    wanted = jnp.minimum(count, group.slots)

    def add(carry):
        index = smallest(near.astype(jnp.float32), group.slots)
        index = jnp.pad(index, (0, -group.slots % chunk))

        def some(i, carry):
            found, length, lost, failed = carry
            seen = _examine(layout, g, lax.dynamic_slice_in_dim(index, i * chunk, chunk), posed)
            new = seen.found
            real = jnp.repeat(i * chunk + jnp.arange(chunk) < wanted, points)
            new = new._replace(distance=jnp.where(real, new.distance, EMPTY))
            found = jax.tree.map(lambda out, x: lax.dynamic_update_slice_in_dim(out, x, length, 0), found, new)
            after = length + jnp.minimum(points * (wanted - i * chunk), seen.taken)
            lost = lost | seen.lost | (after > room)
            return found, jnp.minimum(after, room).astype(jnp.int32), lost, failed | seen.failed

        found, length, lost, failed = lax.fori_loop(0, -(-wanted // chunk), some, carry)
        return found, length, lost | (count > group.slots), failed

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
