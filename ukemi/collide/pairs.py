"""Which geoms may touch, and which of them do: filters at load, broad phase and contact selection per step."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi import spatial
from ukemi.collide.primitives import PAIRS
from ukemi.collide.shapes import EMPTY, Hit, Shape
from ukemi.kinematics import Kinematics, geom_frames
from ukemi.model import Model, PairGroup, PairLayout

# Contact points that one moving geom typically makes at once: what the default capacity counts on.
TYPICAL = {"sphere": 1, "capsule": 2, "ellipsoid": 1, "cylinder": 3, "box": 6, "mesh": 0, "plane": 0}
# Pairs of a group that can be examined in detail at the least.
FEW = 12


class Contacts(NamedTuple):
    """Contact points, nearest first up to the model's capacity; rows where `active` is false mean nothing."""

    active: Array  # (nc,) bool: closer than the margin, so that forces may act
    distance: Array  # (nc,) signed [m]
    point: Array  # (nc, 3) midway between the surfaces [m]
    frame: Array  # (nc, 3, 3) rows: normal from the first geom to the second, two tangents
    pair: Array  # (nc,) which pair of geoms, a row of `PairLayout.geoms`
    overflow: Array  # () bool: more contacts than the model can hold


# ---- at load: which pairs -------------------------------------------------------------------------------------


def build(m, types: dict, capacity: int | None) -> PairLayout:
    """Pairs of geoms of a `mujoco.MjModel` that may collide, after MuJoCo's filters."""
    found: dict[tuple[str, str], list[tuple[int, int, int, int]]] = {}
    for a, b, explicit, condim in _allowed(m):
        if m.geom_type[a] > m.geom_type[b]:
            a, b = b, a
        key = types[int(m.geom_type[a])], types[int(m.geom_type[b])]
        if key in PAIRS:
            found.setdefault(key, []).append((a, b, explicit, condim))
    groups = tuple(_group(key, np.array(rows)) for key, rows in sorted(found.items()))
    points = sum(g.slots * PAIRS[g.types].points for g in groups)
    if capacity is None:
        touching = {int(g) for group in groups for g in group.geoms.ravel() if m.body_weldid[m.geom_bodyid[g]]}
        capacity = 8 + sum(TYPICAL[types[int(m.geom_type[g])]] for g in touching)
    dims = [int(d) for group in groups for d in group.condim]
    return PairLayout(groups=groups, capacity=min(points, capacity), dim=max(dims, default=1))


def _group(key: tuple[str, str], rows: np.ndarray) -> PairGroup:
    n, several = len(rows), len(np.unique(rows[:, :2]))
    touching = 3 if key == ("sphere", "sphere") else 1  # spheres pack closely
    slots = n if key[0] == "plane" else min(n, max(FEW, touching * several))
    return PairGroup(
        types=key,
        geoms=rows[:, :2].astype(np.int32),
        explicit=rows[:, 2].astype(np.int32),
        condim=rows[:, 3].astype(np.int32),
        slots=slots,
    )


def _allowed(m):
    """(geom, geom, explicit pair or -1, condim) of every pair that passes the filters."""
    if m.opt.disableflags & (_disable("CONTACT") | _disable("CONSTRAINT")):
        return
    weld = np.array(m.body_weldid)[m.geom_bodyid] if m.ngeom else np.zeros(0, int)
    listed = set()
    for k in range(m.npair):
        a, b = int(m.pair_geom1[k]), int(m.pair_geom2[k])
        listed.add((min(a, b), max(a, b)))
        if m.body_dofnum[weld[a]] or m.body_dofnum[weld[b]]:
            yield a, b, k, int(m.pair_dim[k])
    excluded = set(np.array(m.exclude_signature).tolist())
    parents = not m.opt.disableflags & _disable("FILTERPARENT")
    for a in range(m.ngeom):
        for b in range(a + 1, m.ngeom):
            if (a, b) in listed or not _masks_meet(m, a, b):
                continue
            wa, wb = weld[a], weld[b]
            if wa == wb or not (m.body_dofnum[wa] or m.body_dofnum[wb]):
                continue
            above = m.body_weldid[m.body_parentid[wa]], m.body_weldid[m.body_parentid[wb]]
            if parents and wa and wb and (wa == above[1] or wb == above[0]):
                continue
            bodies = sorted((int(m.geom_bodyid[a]), int(m.geom_bodyid[b])))
            if (bodies[0] << 16) + bodies[1] in excluded:
                continue
            yield a, b, -1, _condim(m, a, b)


def _disable(name: str) -> int:
    import mujoco

    return int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}"))


def _masks_meet(m, a: int, b: int) -> bool:
    return bool(m.geom_contype[a] & m.geom_conaffinity[b]) or bool(m.geom_contype[b] & m.geom_conaffinity[a])


def _condim(m, a: int, b: int) -> int:
    """Contact dimension: of the geom with the higher priority, else the larger."""
    dims, ranks = m.geom_condim[[a, b]], m.geom_priority[[a, b]]
    return int(dims.max() if ranks[0] == ranks[1] else dims[np.argmax(ranks)])


# ---- per step: which contacts ------------------------------------------------------------------------------------


def detect(model: Model, kin: Kinematics) -> Contacts:
    """Contact points at the poses `kin`."""
    layout = model.pairs.layout
    if not layout.groups:
        return _no_contacts(model)
    pos, mat = geom_frames(model, kin)
    margin, gap = reach_of_pairs(model)
    near = _apart(model, pos, mat) - margin - gap
    distances, hits, pairs, overflow, first = [], [], [], jnp.zeros((), bool), 0
    for group in layout.groups:
        own = slice(first, first + len(group.geoms))
        index, count = _broad_phase(group, near[own])
        hit = _narrow_phase(model, group, index, count, (margin + gap)[own], pos, mat)
        distances.append(hit.distance.reshape(-1))
        hits.append(jnp.concatenate([hit.point.reshape(-1, 3), hit.frame.reshape(-1, 9)], -1))
        pairs.append(jnp.repeat(first + index, PAIRS[group.types].points))
        overflow, first = overflow | (count > group.slots), first + len(group.geoms)
    distance, hit, pair = (jnp.concatenate(part) for part in (distances, hits, pairs))
    excess = (distance - margin[pair]).astype(jnp.float32)
    _, keep = lax.top_k(-excess, layout.capacity)
    if layout.capacity < len(distance):
        overflow = overflow | ((excess < 0).sum() > layout.capacity)
    distance, hit, pair = spatial.materialize((distance[keep], hit[keep], pair[keep]))
    return Contacts(
        active=distance < margin[pair],
        distance=distance,
        point=hit[:, :3],
        frame=hit[:, 3:].reshape(-1, 3, 3),
        pair=pair,
        overflow=overflow,
    )


def reach_of_pairs(model: Model) -> tuple[Array, Array]:
    """Margin and gap (pairs,) [m]: forces act below the margin, contacts are known below margin + gap."""
    layout, geoms, pairs = model.pairs.layout, model.geoms, model.pairs
    a, b = layout.geoms.T
    margin, gap = geoms.margin[a] + geoms.margin[b], geoms.gap[a] + geoms.gap[b]
    if not len(pairs.margin):
        return margin, gap
    listed, k = layout.explicit >= 0, np.maximum(layout.explicit, 0)
    return jnp.where(listed, pairs.margin[k], margin), jnp.where(listed, pairs.gap[k], gap)


def bounding_capsules(model: Model) -> tuple[Array, Array]:
    """Half axis (ng, 3) in the geom's frame and radius (ng,) of a capsule that holds each geom [m]."""
    size, kinds = model.geoms.size, np.array(model.geoms.layout.type)[:, None]
    zero = jnp.zeros_like(size[:, 0])
    order = jnp.sort(size, -1)  # of boxes and ellipsoids; the capsule lies along the longest
    along = jnp.arange(3) == jnp.argmax(size, -1)[:, None]
    z = np.array([0.0, 0.0, 1.0], size.dtype)
    long = (kinds == "capsule") | (kinds == "cylinder")  # a cylinder's rim is one radius from its axis' end
    half = jnp.where(long, size[:, 1:2] * z, 0.0)
    half = jnp.where(kinds == "box", along * order[:, 2:], half)
    half = jnp.where(kinds == "ellipsoid", along * (order[:, 2:] - order[:, 1:2]), half)
    kinds = kinds[:, 0]
    radius = jnp.where(kinds == "box", spatial.safe_norm(order[:, :2]), size[:, 0])
    radius = jnp.where(kinds == "ellipsoid", order[:, 1], radius)
    return half, jnp.where((kinds == "plane") | (kinds == "mesh"), zero, radius)


def _apart(model: Model, pos: Array, mat: Array) -> Array:
    """Distance (pairs,) between the bounding capsules of each pair [m]: never more than that of the shapes."""
    a, b = model.pairs.layout.geoms.T
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
    gap = r + t[:, None] * w - s[:, None] * u
    return spatial.safe_norm(gap) - radius[a] - radius[b]


def _broad_phase(group: PairGroup, near: Array) -> tuple[Array, Array]:
    """Pairs of the group to examine (slots,), nearest first, and how many of the group are near at all."""
    if group.types[0] == "plane":
        return np.arange(len(group.geoms)), jnp.full((), len(group.geoms))
    _, index = lax.top_k(-near.astype(jnp.float32), group.slots)
    return index, (near < 0).sum()


def _narrow_phase(model: Model, group: PairGroup, index, count: Array, margin: Array, pos: Array, mat: Array) -> Hit:
    """Contact points (slots, points) of the chosen pairs: chunk by chunk, as far as pairs are near."""
    pair, size = PAIRS[group.types], model.geoms.size

    def examine(index):
        geoms = group.geoms[index] if isinstance(index, np.ndarray) else jnp.asarray(group.geoms)[index]
        a, b = (Shape(pos[g], mat[g], size[g]) for g in (geoms[:, 0], geoms[:, 1]))
        return jax.vmap(pair.function)(a, b, margin[index])

    if group.types[0] == "plane":
        return examine(index)
    n, k, chunk = group.slots, pair.points, min(8 if pair.exact else 2, group.slots)
    zero = jnp.zeros((n, k, 12), pos.dtype)
    blank = Hit(jnp.full((n, k), EMPTY, pos.dtype), zero[..., :3], zero[..., :9].reshape(n, k, 3, 3))

    def fill(i, hits):
        start = jnp.minimum(i * chunk, n - chunk)
        found = examine(lax.dynamic_slice_in_dim(index, start, chunk))
        return jax.tree.map(lambda out, x: lax.dynamic_update_slice_in_dim(out, x, start, 0), hits, found)

    return lax.fori_loop(0, -(-jnp.minimum(count, n) // chunk), fill, blank)


def _no_contacts(model: Model) -> Contacts:
    dtype = model.options.timestep.dtype
    return Contacts(
        active=jnp.zeros(0, bool),
        distance=jnp.full(0, EMPTY, dtype),
        point=jnp.zeros((0, 3), dtype),
        frame=jnp.zeros((0, 3, 3), dtype),
        pair=jnp.zeros(0, jnp.int32),
        overflow=jnp.zeros((), bool),
    )
