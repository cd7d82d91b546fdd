"""Which geoms may touch, and which of them do: filters at load, broad phase and contact selection per step."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi import spatial
from ukemi.collide.primitives import PAIRS
from ukemi.collide.shapes import EMPTY, Hit, Shape
from ukemi.kinematics import Kinematics, geom_frames
from ukemi.model import Model, PairGroup, PairLayout

# Contact points that one moving geom typically makes at once: what the default capacity counts on.
TYPICAL = {"sphere": 1, "capsule": 2, "ellipsoid": 1, "cylinder": 4, "box": 8, "mesh": 0, "plane": 0}
# Pairs of a group that are examined in detail without a broad phase.
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
    slots = n if key[0] == "plane" or n <= FEW else min(n, max(FEW, several))
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
    reach, margin, reaction = bounding_radius(model), *reach_of_pairs(model)
    distances, hits, pairs, overflow, first = [], [], [], jnp.zeros((), bool), 0
    for group in layout.groups:
        own = slice(first, first + len(group.geoms))
        index, lost = _broad_phase(group, margin[own], pos, reach)
        hit = _narrow_phase(model, group, index, margin[own] + reaction[own], pos, mat)
        distances.append(hit.distance.reshape(-1))
        hits.append(jnp.concatenate([hit.point.reshape(-1, 3), hit.frame.reshape(-1, 9)], -1))
        pairs.append(jnp.repeat(first + index, PAIRS[group.types].points))
        overflow, first = overflow | lost, first + len(group.geoms)
    distance, hit, pair = (jnp.concatenate(part) for part in (distances, hits, pairs))
    near = (distance - margin[pair]).astype(jnp.float32)
    _, keep = jax.lax.top_k(-near, layout.capacity)
    if layout.capacity < len(distance):
        overflow = overflow | ((near < 0).sum() > layout.capacity)
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


def bounding_radius(model: Model) -> Array:
    """Radius (ng,) of the sphere about each geom's origin that holds it [m]; 0 for planes."""
    size, kinds = model.geoms.size, np.array(model.geoms.layout.type)
    radius = {
        "sphere": size[:, 0],
        "capsule": size[:, 0] + size[:, 1],
        "cylinder": spatial.safe_norm(size[:, :2]),
        "ellipsoid": size.max(-1),
        "box": spatial.safe_norm(size),
    }
    return sum((jnp.where(kinds == kind, r, 0.0) for kind, r in radius.items()), jnp.zeros(len(kinds), size.dtype))


def _broad_phase(group: PairGroup, margin: Array, pos: Array, reach: Array) -> tuple[Array, Array]:
    """Pairs of the group to examine (slots,), those whose bounding spheres are nearest, and whether any is lost."""
    n = len(group.geoms)
    if group.slots == n:
        return np.arange(n), jnp.zeros((), bool)
    a, b = group.geoms.T
    apart = spatial.safe_norm(pos[b] - pos[a]) - reach[a] - reach[b]
    near = (apart - margin).astype(jnp.float32)
    _, index = jax.lax.top_k(-near, group.slots)
    return index, (near < 0).sum() > group.slots


def _narrow_phase(model: Model, group: PairGroup, index, margin: Array, pos: Array, mat: Array) -> Hit:
    """Contact points (slots, points) of the chosen pairs."""
    geoms = group.geoms if isinstance(index, np.ndarray) else jnp.asarray(group.geoms)[index]
    a, b = (Shape(pos[g], mat[g], model.geoms.size[g]) for g in (geoms[:, 0], geoms[:, 1]))
    return jax.vmap(PAIRS[group.types].function)(a, b, margin[index])


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
