"""Why contacts of robots are not MuJoCo's: each pair of shapes whose contacts differ, held against what is true of it.

References of no engine's search: the signed distance of the two shapes, between two bounds, and whether both ends of
each contact lie on a surface (`tests/scenes/exact`). What MuJoCo's search found, before it looked for several contacts,
is seen by leaving these out (`multiccd`).
"""

from typing import NamedTuple

import mujoco
import numpy as np
from scipy.spatial import QhullError

from tests.scenes.exact import Bounds, Solid, bounds, off_surface, solid

DISTANCE, NORMAL, PLACE = 1e-6, 1e-4, 1e-3  # [m], -, [m] from which on contacts differ, are of two normals, and are two
CLOSED = 1e-9  # how close bounds must be to say anything [m]
LINES = (mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtGeom.mjGEOM_CYLINDER)
CLASSES = {
    "open": "bounds of the distance did not close",
    "search": "MuJoCo's search is off the distance",
    "untrue": "ends of Ukemi's contacts are further off both surfaces than MuJoCo's",
    "round": "a cylinder on a shape that is no mesh: lines through the overlap in place of polygons, by design",
    "place": "one contact each, of the same normal and both at the distance: edges or faces are parallel",
    "line": "the side of a capsule or cylinder along a face: MuJoCo's line is that which its search found",
    "more": "Ukemi's contact is at the distance; MuJoCo has several on a face that leans from the normal there",
    "fewer": "the same, the other way round",
    "face": "several each, on other faces",
    "uneven": "a corner on a face that is not flat: distances differ by less than its corners do",
    "corner": "of the same normal and as much on the surfaces as MuJoCo's: others of one overlap",
}
FAULTS = ("open", "search", "untrue")


class Contact(NamedTuple):
    """One contact of either engine."""

    distance: float  # [m]
    point: np.ndarray  # (3,) [m]
    normal: np.ndarray  # (3,)


class Pair(NamedTuple):
    """Contacts of two geoms at a state."""

    m: mujoco.MjModel
    d: mujoco.MjData
    geoms: tuple[int, int]
    mine: list[Contact]
    theirs: list[Contact]
    searched: Contact | None  # MuJoCo's only one, if it has no several


class Finding(NamedTuple):
    """What is known of a pair whose contacts differ."""

    kind: str  # of `CLASSES`
    search: float  # how far MuJoCo's search is off the distance [m]
    mine: float  # how far the only contact of Ukemi is [m]; 0 where there are several
    surface: float  # how far ends of Ukemi's contacts are off surfaces [m]
    lean: float  # largest angle between MuJoCo's contacts and its search [rad]


def pairs_of(m: mujoco.MjModel, d: mujoco.MjData, mine: list[tuple[tuple, Contact]]) -> list[Pair]:
    """The pairs with contacts of which the first is no plane, where MuJoCo's data is after `mj_forward`."""
    theirs = _contacts(d, [c for c in d.contact if c.efc_address >= 0])
    one, flags = mujoco.MjData(m), m.opt.disableflags
    one.qpos[:], one.mocap_pos[:], one.mocap_quat[:] = d.qpos, d.mocap_pos, d.mocap_quat
    m.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_MULTICCD
    mujoco.mj_fwdPosition(m, one)
    m.opt.disableflags = flags
    searched = dict(_contacts(one, one.contact))
    flat = m.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
    found = {geoms: ([], []) for geoms, _ in mine + theirs if not flat[list(geoms)].any()}
    for side, contacts in enumerate((mine, theirs)):
        for geoms, contact in contacts:
            if geoms in found:
                found[geoms][side].append(contact)
    return [Pair(m, d, geoms, *both, searched.get(geoms)) for geoms, both in found.items()]


def _contacts(d: mujoco.MjData, some) -> list[tuple[tuple, Contact]]:
    return [(tuple(c.geom.tolist()), Contact(c.dist, np.array(c.pos), np.array(c.frame[:3]))) for c in some]


def partners(pair: Pair) -> tuple[list[tuple[Contact, Contact]], int]:
    """Contacts of both, each with the nearest one, and how many have none."""
    left, found = list(pair.mine), []
    for contact in pair.theirs:
        gaps = [np.abs(x.point - contact.point).max() for x in left]
        if min(gaps, default=np.inf) <= PLACE:
            found.append((left.pop(int(np.argmin(gaps))), contact))
    return found, len(left) + len(pair.theirs) - len(found)


def differs(pair: Pair) -> bool:
    """Whether a distance, a normal or the number of contacts does."""
    same, alone = partners(pair)
    off = [abs(x.distance - y.distance) > DISTANCE or _angle(x, y) > NORMAL for x, y in same]
    return bool(alone) or any(off)


def _angle(x: Contact, y: Contact) -> float:
    return float(np.linalg.norm(x.normal - y.normal))


def trace(pair: Pair) -> Finding:
    """Why the contacts of a pair differ."""
    a, b = (solid(pair.m, g, pair.d.geom_xpos[g], pair.d.geom_xmat[g]) for g in pair.geoms)
    try:
        true = bounds(a, b)
    except QhullError:
        return Finding("open", np.nan, np.nan, np.nan, np.nan)
    search = abs(pair.searched.distance - true.lower) if pair.searched else np.inf
    alone = abs(pair.mine[0].distance - true.lower) if len(pair.mine) == 1 else 0.0
    surface, usual = (max((_off(a, b, x) for x in some), default=np.inf) for some in (pair.mine, pair.theirs))
    lean = max((_angle(x, pair.searched) for x in pair.theirs), default=0.0) if pair.searched else np.inf
    return Finding(_kind(pair, a, true, search, alone, surface - usual), search, alone, surface, lean)


def _off(a: Solid, b: Solid, x: Contact) -> float:
    half = 0.5 * x.distance * x.normal
    return max(off_surface(a, x.point - half), off_surface(b, x.point + half))


def _kind(pair: Pair, a: Solid, true: Bounds, search: float, alone: float, excess: float) -> str:
    """The first class that holds; excess: by how much Ukemi's contacts are further off surfaces than MuJoCo's [m].

    Those of faces that lean towards each other are, in both, as the foot of a corner leaves the other face.
    """
    mine, theirs = pair.mine, pair.theirs
    types = [int(pair.m.geom_type[g]) for g in pair.geoms]
    if true.upper - true.lower > CLOSED:
        return "open"
    if search > DISTANCE or not theirs:
        return "search"
    level = uneven(pair, mine + theirs)
    if not mine or excess > DISTANCE + level:
        return "untrue"
    if mujoco.mjtGeom.mjGEOM_CYLINDER in types and mujoco.mjtGeom.mjGEOM_MESH not in types:
        return "round"
    same, left = partners(pair)
    one_normal = max(_angle(x, theirs[0]) for x in mine) < NORMAL
    if len(mine) == len(theirs) == 1 and one_normal and alone < DISTANCE:
        return "place"
    if types[0] in LINES and _along_line(pair, a):
        return "line"
    if not one_normal:
        if len(mine) == 1 and len(theirs) > 1 and alone < DISTANCE:
            return "more"
        if len(theirs) == 1 and len(mine) > 1:
            return "fewer"
        return "face"
    return "uneven" if not left and all(abs(x.distance - y.distance) <= level for x, y in same) else "corner"


def uneven(pair: Pair, contacts: list[Contact]) -> float:
    """By how much corners of faces across the normals of contacts are off their planes [m]."""
    m, worst = pair.m, 0.0
    for g in pair.geoms:
        k = m.geom_dataid[g]
        if m.geom_type[g] != mujoco.mjtGeom.mjGEOM_MESH:
            continue
        turn, polys = pair.d.geom_xmat[g].reshape(3, 3), slice(m.mesh_polyadr[k], m.mesh_polyadr[k] + m.mesh_polynum[k])
        across = [np.abs(m.mesh_polynormal[polys] @ (turn.T @ x.normal)) > 0.99 for x in contacts]
        for p in np.flatnonzero(np.any(across, 0)) + polys.start:
            corners = m.mesh_polyvert[m.mesh_polyvertadr[p] :][: m.mesh_polyvertnum[p]] + m.mesh_vertadr[k]
            worst = max(worst, float(np.ptp(m.mesh_vert[corners].astype(float) @ m.mesh_polynormal[p])))
    return worst


def _along_line(pair: Pair, a: Solid) -> bool:
    """Whether MuJoCo has two contacts on that line of a capsule's or cylinder's side which its search found."""
    if len(pair.theirs) != 2 or not pair.searched:
        return False
    middle, axis = a.corners.mean(0), a.corners[1] - a.corners[0]
    axis = axis / np.linalg.norm(axis)

    def across(x: np.ndarray) -> np.ndarray:
        x = x - axis * (axis @ x)
        return x / np.linalg.norm(x)

    ends = [x.point - 0.5 * x.distance * x.normal - middle for x in pair.theirs]
    return all(np.linalg.norm(across(x) - across(pair.searched.normal)) < 1e-3 for x in ends)
