"""Which pairs of geoms are near: by how far capsules and boxes around them are apart at the least."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide import broad
from ukemi.collide.hulls import boxes, ground
from ukemi.collide.hulls.features import Corners, all_corners
from ukemi.collide.kinds import KINDS
from ukemi.collide.primitives import is_ground
from ukemi.collide.shapes import EMPTY, Shape, own_arrays
from ukemi.maths import spatial
from ukemi.maths.ranking import parts
from ukemi.model.records import Model, PairLayout

CHUNK = 64  # candidates whose bounds are found together
Pairs = Array | np.ndarray
PART = 256  # candidates of which those that are near are looked for together


class Posed(NamedTuple):
    """All geoms in the world, which pairs may be near, and how near each must be to matter."""

    shapes: Shape  # all geoms
    pair: Pairs  # (n,) rows of `PairLayout.geoms`: all of them unless there are many
    reach: Array  # (n,) margin + gap [m]
    near: Array  # (n,) distance between bounding capsules, less the reach [m]
    corners: Corners
    count: Array  # () candidates in the list, behind those that are looked at always; 0 unless there are many
    early: Array | None = None  # (n,) how far above a face another's corners are contacts [m]; None: not above
    steady: Array | None = None  # () bool: pairs that can be told to are to touch with what does not jump

    def part(self, start, size: int) -> "Posed":
        """The same with a part of the list."""
        own = self.pair, self.reach, self.near, self.early
        pair, reach, near, early = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(jnp.asarray(x), start, size), own)
        return self._replace(pair=pair, reach=reach, near=near, early=early)


def _of(table: np.ndarray, pair: Pairs | None) -> Pairs:
    """A table's rows (n, ...) of all pairs or some."""
    return table if pair is None else jnp.asarray(table)[pair]


def at_pairs(values: Array, pair: Pairs | None) -> Array:
    """A value () as it is, or those (pairs,) of all pairs or some."""
    return values if pair is None or not values.ndim else values[pair]


def _or_own(layout: PairLayout, pair: Pairs | None, mixed: Array, own: Array) -> Array:
    """What is mixed (n,) of two geoms, or what explicit pairs have of their `own`."""
    if not len(own):
        return mixed
    explicit = _of(layout.explicit, pair)
    return jnp.where(explicit >= 0, own[explicit * (explicit >= 0)], mixed)


def reach_of_pairs(model: Model, pair: Pairs | None = None) -> tuple[Array, Array]:
    """Margin and gap (n,) [m] of all pairs or some: forces act below margin, contacts are known below margin + gap."""
    layout, geoms, pairs = model.pairs.layout, model.geoms, model.pairs
    a, b = _of(layout.geoms, pair).T
    margin, gap = geoms.margin[a] + geoms.margin[b], geoms.gap[a] + geoms.gap[b]
    return _or_own(layout, pair, margin, pairs.margin), _or_own(layout, pair, gap, pairs.gap)


def adhesion_of_pairs(model: Model, pair: Pairs | None = None) -> Array:
    """Force (n,) by which contacts of all pairs or some may pull [N]: of the geom of higher priority, else of both."""
    layout, geoms, pairs = model.pairs.layout, model.geoms, model.pairs
    a, b = _of(layout.geoms, pair).T
    rank = jnp.asarray(geoms.layout.priority)
    pull = jnp.where(rank[a] < rank[b], 0.0, geoms.adhesion[a]) + jnp.where(rank[b] < rank[a], 0.0, geoms.adhesion[b])
    return _or_own(layout, pair, pull, pairs.adhesion)


def restitution_of_pairs(model: Model, pair: Pairs | None = None) -> Array:
    """That (n,) of all pairs or some: the larger of two geoms', or a listed pair's own."""
    layout, pairs = model.pairs.layout, model.pairs
    larger = model.geoms.restitution[_of(layout.geoms, pair)].max(-1)
    return _or_own(layout, pair, larger, pairs.restitution)


def reach_ahead(model: Model, ahead: Array | None, pair: Pairs | None = None) -> tuple[Array, Array]:
    """The same with what contacts are known ahead of the margin, one or per pair (pairs,) [m]. Those that adhere act
    within the gap, too, where they pull.
    """
    margin, gap = reach_of_pairs(model, pair)
    if model.pairs.layout.adheres:
        acting = jnp.where(adhesion_of_pairs(model, pair) > 0, gap, 0.0)
        margin, gap = margin + acting, gap - acting
    if ahead is None:
        return margin, gap
    return margin + at_pairs(ahead, pair), gap


def posed_at(model: Model, shapes: Shape, ahead: Array | None) -> tuple[Posed, Array]:
    """Where geoms are and which pairs may be near, and whether there is no room for some of these."""
    layout = model.pairs.layout
    corners = all_corners(layout.hulls, free_corners(model))
    if layout.many:
        return _of_many(model, shapes, corners, ahead)
    (margin, gap), every = reach_ahead(model, ahead), np.arange(len(layout.geoms), dtype=np.int32)
    reach = margin + gap
    near = _apart(model, shapes, reach) - reach
    return Posed(shapes, every, reach, near, corners, jnp.int32(0)), jnp.zeros((), bool)


def _of_many(model: Model, shapes: Shape, corners: Corners, ahead: Array | None) -> tuple[Posed, Array]:
    """The same where there are many pairs, of those that may be near."""
    layout, (half, radius) = model.pairs.layout, bounding_capsules(model)
    end = spatial.apply(shapes.mat, half)
    geoms, pairs = model.geoms, model.pairs
    most = (pairs.margin + pairs.gap).max(initial=0.0) + (0.0 if ahead is None else jnp.max(ahead))
    grown = jnp.abs(end) + (radius + geoms.margin + geoms.gap + most)[:, None]
    found = broad.candidates(layout, layout.owner, shapes.pos - grown, shapes.pos + grown)

    def rows(pair) -> tuple[Array, Array]:
        margin, gap = reach_ahead(model, ahead, pair)
        reach = margin + gap
        return reach, _apart(model, shapes, reach, pair) - reach

    def some(k, out):
        new = rows(lax.dynamic_slice_in_dim(padded, k * CHUNK, CHUNK))
        return jax.tree.map(lambda x, y: lax.dynamic_update_slice_in_dim(x, y, k * CHUNK, 0), out, new)

    padded = jnp.pad(found.pair, (0, -len(found.pair) % PART))
    blank = jnp.zeros(len(padded), end.dtype), jnp.full(len(padded), EMPTY, end.dtype)
    listed = lax.fori_loop(0, parts(found.count, CHUNK), some, blank)
    real = np.arange(len(padded)) < found.count
    always = np.arange(layout.first[layout.always], dtype=np.int32)
    reach, near = (jnp.concatenate(x) for x in zip(rows(always), listed, strict=True))
    near = near.at[len(always) :].set(jnp.where(real, near[len(always) :], EMPTY))
    return Posed(shapes, jnp.concatenate([always, padded]), reach, near, corners, found.count), found.lost


def are_meshes(model: Model) -> np.ndarray:
    """(ng,) bool: which geoms are meshes that may touch."""
    no_other = [KINDS[kind].bounds is None for kind in model.geoms.layout.type]
    return np.array(no_other, bool) & (model.pairs.layout.hulls.of >= 0)


def bounding_capsules(model: Model) -> tuple[Array, Array]:
    """Half axis (ng, 3) in the geom's frame and radius (ng,) of a capsule that holds each geom [m]."""
    kinds, half = [KINDS[kind] for kind in model.geoms.layout.type], jnp.zeros_like(model.geoms.pos)
    radius = jnp.zeros_like(half[:, 0])
    for bounds in dict.fromkeys(kind.bounds for kind in kinds if kind.bounds):
        own, held = np.array([kind.bounds is bounds for kind in kinds]), bounds(*own_arrays(model.geoms))
        half, radius = jnp.where(own[:, None], held[0], half), jnp.where(own, held[1], radius)
    hulls, own = model.pairs.layout.hulls, are_meshes(model)
    if not own.any():
        return half, radius
    held, size = jnp.asarray(hulls.capsules, half.dtype)[hulls.of], model.geoms.size
    half = jnp.where(own[:, None], held[:, :3] * size, half)
    return half, jnp.where(own, held[:, 3] * jnp.abs(size).max(-1), radius)


def _apart(model: Model, shapes: Shape, reach: Array, pair: Pairs | None = None) -> Array:
    """Distance (n,) between the bounding capsules of all pairs or some [m]: never more than that of the shapes."""
    layout = model.pairs.layout
    geoms = _of(layout.geoms, pair)
    (a, b), pos, mat = geoms.T, shapes.pos, shapes.mat
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
    apart = _boxes_apart(model, pos, mat, apart, None if pair is None else geoms)
    if not isinstance(pair, Array):
        apart = _over_ground(model, shapes, end, radius, reach, apart)
    flat = np.array([KINDS[kind].endless for kind in model.geoms.layout.type])
    if not flat[layout.geoms[:, 0]].any():
        return apart
    flat = flat[a] if pair is None else jnp.asarray(flat)[a]
    normal = mat[a][:, :, 2]
    above = (normal * r).sum(-1) - jnp.abs((normal * w).sum(-1)) - radius[b]
    return jnp.where(flat, above, apart)


def _boxes_apart(model: Model, pos: Array, mat: Array, known: Array, geoms: Pairs | None) -> Array:
    """Distance (n,) `known` between bounding capsules, or that between boxes where it is larger."""
    layout, kinds = model.pairs.layout, model.geoms.layout.type
    held = [_fills_boxes(*group.types) for group in layout.groups]
    if not any(held):
        return known
    center, half = boxes.boxes(kinds, layout.hulls, model.geoms.size)
    if geoms is not None:
        held = np.array([[_fills_boxes(a, b) for b in KINDS] for a in KINDS])
        kind = jnp.asarray([list(KINDS).index(kind) for kind in kinds])[geoms]
        among = jnp.asarray(held)[kind[:, 0], kind[:, 1]]
        return jnp.where(among, jnp.maximum(known, boxes.apart(center, half, pos, mat, geoms)), known)
    # pieces put together, since what is written into an array takes a kernel of its own; XLA would find all gaps anew
    # for each piece
    filling = [group.geoms for group, own in zip(layout.groups, held, strict=True) if own]
    among, sizes = np.concatenate(filling), [len(geoms) for geoms in filling]
    gaps = jnp.split(spatial.materialize(boxes.apart(center, half, pos, mat, among)), np.cumsum(sizes)[:-1])
    gaps, parts = iter(gaps), jnp.split(known, layout.first[1:-1])
    return jnp.concatenate([jnp.maximum(x, next(gaps)) if own else x for x, own in zip(parts, held, strict=True)])


def _fills_boxes(*types: str) -> bool:
    """Whether boxes around two shapes may tell apart what capsules do not: of rods and balls capsules are all."""
    kinds = [KINDS[kind] for kind in types]
    rods = all(kind.convex is not None and kind.convex.ball for kind in kinds)
    return not rods and all(kind.side is not None and not kind.ground for kind in kinds)


def _over_ground(model: Model, shapes: Shape, end: Array, radius: Array, reach: Array, known: Array) -> Array:
    """Distance (n,) `known`, or of pairs with a height field that from what of it is beneath."""
    layout = model.pairs.layout
    for g, group in enumerate(layout.groups):
        if is_ground(group):
            own = slice(layout.first[g], layout.first[g + 1])
            known = known.at[own].set(ground.apart(model.heights, group, shapes, end, radius, reach[own]))
    return known


def free_corners(model: Model) -> Corners:
    """Corners that are parameters."""
    return Corners(model.geoms.vertices, model.heights)
