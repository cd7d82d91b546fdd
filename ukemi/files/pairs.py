"""Which geoms may touch: the pairs that pass the filters of the file, found once at load."""

import dataclasses

import mujoco
import numpy as np

from ukemi.collide import broad
from ukemi.collide.kinds import KINDS, OTHER
from ukemi.collide.primitives import POLYTOPES, TOUCHING, is_general, partners_of, points_of
from ukemi.files import heights, hulls
from ukemi.model.records import PairGroup, PairLayout

# The names in KINDS of MuJoCo's types of geoms.
MUJOCO_KINDS = {int(kind): name.removeprefix("mjGEOM_").lower() for name, kind in mujoco.mjtGeom.__members__.items()}
MUJOCO_KINDS = {kind: name for kind, name in MUJOCO_KINDS.items() if name in KINDS}
# Pairs of a group that can be examined in detail at the least.
FEW = 32


def kinds_of(m) -> tuple[str, ...]:
    """The kind of every geom of a `mujoco.MjModel`, a name in `KINDS`."""
    return tuple(MUJOCO_KINDS.get(kind, OTHER.name) for kind in m.geom_type.tolist())


def scaled(kinds: tuple[str, ...]) -> np.ndarray:
    """Geoms (ng,) bool whose size is a scale: it is 1 when loaded."""
    return np.array([KINDS[kind].sizes[:1] == ("scale along x",) for kind in kinds], bool)


def build(m, kinds: tuple[str, ...], capacity: int | None) -> tuple[PairLayout, np.ndarray]:
    """Pairs of geoms of a `mujoco.MjModel` that may collide, after MuJoCo's filters; and corners of hulls (n, 3)."""
    found: dict[tuple[str, str], list[tuple[int, int, int, int]]] = {}
    for a, b, explicit, condim in _allowed(m):
        if m.geom_type[a] > m.geom_type[b]:
            a, b = b, a
        key = kinds[a], kinds[b]
        if key in TOUCHING:
            found.setdefault(key, []).append((a, b, explicit, condim))
    alike = {key: (key in POLYTOPES, is_general(key)) for key in found}  # what one routine examines is put together
    order = sorted(found, key=lambda key: (not KINDS[key[0]].endless, not _always(key), alike[key], key))
    groups = tuple(_group(key, np.array(found[key])) for key in order)
    groups = tuple(_over_cells(m, group) for group in groups)
    if capacity is not None:  # who asks for many contacts has many pairs looked at
        groups = tuple(dataclasses.replace(g, slots=min(len(g.geoms), max(g.slots, capacity))) for g in groups)
    else:
        touching = {int(g) for group in groups for g in group.geoms.ravel() if m.body_weldid[m.geom_bodyid[g]]}
        capacity = 8 + sum(KINDS[kinds[g]].contacts for g in touching)
        # over a field each shape is in the middle of a cell as often as not, and few shapes of a robot touch at once
        capacity += sum(len(group.geoms) * ((sum(group.cells) - 2) // 2) for group in groups if any(group.cells))
    dims = [int(d) for group in groups for d in group.condim]
    own = [group.geoms.ravel() for group in groups if group.types in POLYTOPES]
    used = np.isin(np.arange(m.ngeom), np.concatenate([np.zeros(0), *own]))
    polytopes, corners = hulls.build(m, kinds, used)
    size = min(sum(g.slots * points_of(g) for g in groups), capacity)
    adheres = bool(m.geom_adhesion.any() or m.pair_adhesion.any())
    layout = PairLayout(groups, capacity=size, dim=max(dims, default=1), hulls=polytopes, adheres=adheres)
    always, owner = sum(_always(group.types) for group in groups), np.array(m.body_weldid[m.geom_bodyid], np.int32)
    rest = layout.geoms[layout.first[always] :]
    plain = len(np.unique(np.sort(rest, 1), axis=0)) == len(rest) and (owner[rest[:, 0]] != owner[rest[:, 1]]).all()
    if len(rest) >= broad.MANY and plain:
        layout = dataclasses.replace(layout, owner=owner, always=always)
    return layout, corners


def _always(types: tuple[str, str]) -> bool:
    """Whether pairs of such geoms are looked at wherever these are: of planes and terrain there are few."""
    return KINDS[types[0]].endless or KINDS[types[0]].ground


def _over_cells(m, group: PairGroup) -> PairGroup:
    """A group of pairs with height fields, with the cells that each shape is over at the most."""
    if not KINDS[group.types[0]].ground:
        return group
    reach = m.geom_margin + m.geom_gap
    most = max([0.0, *(m.pair_margin + m.pair_gap).tolist()])
    room = [
        heights.cells_beneath(m, a, m.geom_rbound[b] + max(reach[a] + reach[b], most)) for a, b in group.geoms.tolist()
    ]
    return dataclasses.replace(group, cells=tuple(np.max(room, 0).tolist()), slots=len(group.geoms))


def overridden(m, layout: PairLayout, listed: dict, restitution: np.ndarray) -> tuple[PairLayout, dict]:
    """Every pair as one that is listed, with the contact parameters that the file's options give to all.

    Gap, adhesion and restitution stay a pair's own, by what is `listed` so far and by the geoms' restitution (ng,).
    """
    (a, b), n = layout.geoms.T, len(layout.geoms)

    def own(of_listed, of_geoms):
        return np.where(layout.explicit >= 0, np.append(of_listed, 0.0)[layout.explicit], of_geoms)

    opt = m.opt
    given = {"friction": opt.o_friction, "solref": opt.o_solref, "solref_friction": opt.o_solref}
    given |= {"solimp": opt.o_solimp, "margin": opt.o_margin}
    rows = {name: np.repeat(np.asarray(value)[None], n, 0) for name, value in given.items()}
    rows["gap"] = own(listed["gap"], m.geom_gap[a] + m.geom_gap[b])
    rank, pull = m.geom_priority, m.geom_adhesion
    rows["adhesion"] = own(listed["adhesion"], (rank[a] >= rank[b]) * pull[a] + (rank[b] >= rank[a]) * pull[b])
    rows["restitution"] = own(listed["restitution"], np.maximum(restitution[a], restitution[b]))
    groups = tuple(
        dataclasses.replace(group, explicit=np.arange(first, first + len(group.geoms), dtype=np.int32))
        for group, first in zip(layout.groups, layout.first, strict=False)
    )
    return dataclasses.replace(layout, groups=groups), rows


def _group(key: tuple[str, str], rows: np.ndarray) -> PairGroup:
    n, several = len(rows), len(np.unique(rows[:, :2]))
    slots = n if KINDS[key[0]].endless else min(n, max(FEW, partners_of(key) * several))
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
    return int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}"))


def _masks_meet(m, a: int, b: int) -> bool:
    return bool(m.geom_contype[a] & m.geom_conaffinity[b]) or bool(m.geom_contype[b] & m.geom_conaffinity[a])


def _condim(m, a: int, b: int) -> int:
    """Contact dimension: of the geom with the higher priority, else the larger."""
    dims, ranks = m.geom_condim[[a, b]], m.geom_priority[[a, b]]
    return int(dims.max() if ranks[0] == ranks[1] else dims[np.argmax(ranks)])
