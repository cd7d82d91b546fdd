"""Convex hulls of the colliding meshes of a compiled model, as MuJoCo's compiler made them."""

from functools import cache
from typing import NamedTuple

import numpy as np

from ukemi.collide.pairs.plane import CORNERS
from ukemi.model.hulls import Hulls

SLACK = 0.002  # how far, relative to its size, corners may move before a cell may miss one
SIDES = 16  # of a cap
FIRST = (1, 1, -1, 1, 0, 2)  # turns of a box's faces to the corner where MuJoCo starts
BLOCK = 1 << 16  # pairs of cells and corners that are looked at together
FEW = 24  # corners of a hull so small that one cell a side will do


class Solid(NamedTuple):
    """One hull; corners and faces numbered from 0."""

    corners: np.ndarray  # (k, 3)
    faces: list[np.ndarray]  # corners of each, counterclockwise seen from outside
    fans: list[np.ndarray]  # faces at each corner
    normals: np.ndarray | None = None  # (m, 3) of the faces, where they are not those of the corners


def box() -> Solid:
    """Of half sizes one, with corners and faces in MuJoCo's order."""
    corners = np.array(CORNERS)
    faces = []
    for axis in range(3):
        for side in (1.0, -1.0):
            own = np.flatnonzero(corners[:, axis] == side)
            around = np.roll(corners[own], -1 - axis, 1)
            order = np.argsort(np.arctan2(around[:, 1], around[:, 0]) * side)
            faces.append(np.roll(own[order], FIRST[len(faces)]))
    return Solid(corners, faces, _fans(8, faces))


def _fans(n: int, faces: list[np.ndarray]) -> list[np.ndarray]:
    """Faces at each of n corners."""
    return [np.array([f for f, face in enumerate(faces) if k in face], int) for k in range(n)]


def rod() -> Solid:
    """The axis of a capsule of half length one."""
    return Solid(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]), [], _fans(2, []))


def point() -> Solid:
    """The centre of a sphere."""
    return Solid(np.zeros((1, 3)), [], _fans(1, []))


def drum() -> Solid:
    """A cylinder's caps as polygons, with corners where MuJoCo has them: what lies on flat faces."""
    turn = np.arange(SIDES) * 2 * np.pi / SIDES
    ring = np.stack([np.cos(turn), np.sin(turn), np.ones(SIDES)], 1)
    corners = np.concatenate([ring, ring * [1, 1, -1]])
    faces = [(1 + np.arange(SIDES)) % SIDES, SIDES + (SIDES - 1 - np.arange(SIDES)) % SIDES]
    return Solid(corners, faces, _fans(2 * SIDES, faces))


def of_mesh(m, k: int) -> Solid:
    """The hull of a mesh of a `mujoco.MjModel`, of which the compiler made one."""
    start = m.mesh_graphadr[k]
    count = m.mesh_graph[start]
    own = np.array(m.mesh_graph[start + 2 + count : start + 2 + 2 * count])
    first = m.mesh_vertadr[k]
    number = np.full(m.mesh_vertnum[k], -1)
    number[own] = np.arange(count)
    faces = []
    for p in range(m.mesh_polyadr[k], m.mesh_polyadr[k] + m.mesh_polynum[k]):
        at = m.mesh_polyvertadr[p]
        faces.append(number[m.mesh_polyvert[at : at + m.mesh_polyvertnum[p]]])
    at, many = m.mesh_polymapadr[first + own], m.mesh_polymapnum[first + own]
    fans = [np.array(m.mesh_polymap[i : i + n]) for i, n in zip(at, many, strict=True)]
    normals = m.mesh_polynormal[m.mesh_polyadr[k] :][: len(faces)]
    return Solid(m.mesh_vert[first + own].astype(np.float64), faces, fans, normals)


def joined(of: np.ndarray, fixed: list[Solid], others: list[Solid]) -> tuple[Hulls, np.ndarray]:
    """Hulls one after the other, and the corners of the `others` (n, 3)."""
    solids = [*fixed, *others]
    first, faces = _starts([len(s.corners) for s in solids]), _starts([len(s.faces) for s in solids])
    sides = [1 if len(s.corners) <= FEW else int(np.clip(np.sqrt(len(s.corners) / 6), 2, 16)) for s in solids]
    near = [cell + start for s, n, start in zip(solids, sides, first, strict=False) for cell in _cells(s.corners, n)]
    loops = [face + start for s, start in zip(solids, first, strict=False) for face in s.faces]
    fans = [fan + start for s, start in zip(solids, faces, strict=False) for fan in s.fans]
    plain = np.concatenate([_areas(s) for s in solids])
    given = _all([np.zeros((len(s.faces), 3)) if s.normals is None else s.normals for s in solids]).reshape(-1, 3)
    areas = np.where(given.any(1, keepdims=True), np.linalg.norm(plain, axis=1, keepdims=True) * given, plain)
    hulls = Hulls(
        of=_ints(of),
        bound=np.array([np.linalg.norm(s.corners, axis=1).max() for s in solids]),
        fixed=_all([s.corners for s in fixed]).reshape(-1, 3),
        first=_ints(first),
        capsules=np.stack([_capsule(s.corners) for s in solids]),
        boxes=np.stack([_box(s.corners) for s in solids]),
        grid=_ints(np.stack([_starts([6 * n * n for n in sides])[:-1], sides], 1)),
        cells=_ints(_starts([len(x) for x in near])),
        near=_ints(_all(near)),
        loops=_ints(_starts([len(x) for x in loops])),
        loop=_ints(_all(loops)),
        areas=areas,
        rounding=areas - plain,
        fans=_ints(_starts([len(x) for x in fans])),
        fan=_ints(_all(fans)),
    )
    return hulls, _all([s.corners for s in others]).reshape(-1, 3)


def _capsule(corners: np.ndarray) -> np.ndarray:
    """Half axis and radius (4,) of a slim capsule about the origin that holds corners (k, 3)."""
    axis = np.linalg.svd(corners, full_matrices=False)[2][0]
    along = np.abs(corners @ axis)
    across = np.linalg.norm(corners - (corners @ axis)[:, None] * axis, axis=1)
    half = along.max() * np.linspace(0, 1, 33)[:, None]
    radius = np.hypot(across, np.maximum(along - half, 0.0)).max(1)
    best = np.argmin(radius**2 * (half[:, 0] + 2 / 3 * radius))
    return np.append(half[best] * axis, (1 + SLACK) * radius[best])


def _box(corners: np.ndarray) -> np.ndarray:
    """Centre and half size (6,) of a box along the axes that holds corners (k, 3), with some slack."""
    low, high = corners.min(0), corners.max(0)
    return np.concatenate([(low + high) / 2, (high - low) / 2 + SLACK * (high - low).max()])


def _areas(solid: Solid) -> np.ndarray:
    """Of its faces (m, 3), which need not be quite flat."""
    if not solid.faces:
        return np.zeros((0, 3))
    lengths = [len(face) for face in solid.faces]
    first = _starts(lengths)[:-1]
    corners = solid.corners[np.concatenate(solid.faces)]
    arms = corners - np.repeat(corners[first], lengths, 0)  # the last one and the next face's first, zero, make nothing
    return 0.5 * np.add.reduceat(np.cross(arms, np.roll(arms, -1, 0)), first, axis=0)


def _starts(lengths: list[int]) -> np.ndarray:
    return np.cumsum([0, *lengths])


def _all(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0), *(np.ravel(x) for x in parts)])


def _ints(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, np.int32)


def _cells(corners: np.ndarray, n: int):
    """For each cell of a cube around the hull, n to a side, which corners may be furthest along its directions.

    A corner v is none of them if some other v* is higher along all four directions at the cell's ends: then it is along
    every direction between. Good choices for v* are the highest along these and along the cell's middle.
    """
    if n == 1:
        return [np.arange(len(corners))] * 6
    square = _directions(n)
    middle, far = square.mean(1), (corners**2).sum(1)
    spread = np.linalg.norm(square - middle[:, None], axis=2).max(1)
    slack = SLACK * spread * np.sqrt(far.max())
    top, every, rough = np.zeros(len(square), int), np.arange(len(square)), []
    for few in np.array_split(every, min(len(every), -(-len(every) * len(corners) // BLOCK))):  # a first, rough choice
        height = middle[few] @ corners.T
        best = top[few] = height.argmax(1)
        away = far[best][:, None] + far - 2 * corners[best] @ corners.T
        lower = height[np.arange(len(few)), best][:, None] - height
        reach = 2 * spread[few][:, None] * np.sqrt(np.maximum(away, 0.0)) + slack[few][:, None]
        rough.append(np.nonzero(lower <= reach) + np.array([few[0], 0])[:, None])
    cell, own = np.concatenate(rough, 1)
    heights = (corners[own][:, None] * square[cell]).sum(2)
    highest = np.maximum.reduceat(heights, np.searchsorted(cell, every))
    beaten = np.zeros(len(cell), bool)
    for best in (*(heights == highest[cell]).T, own == top[cell]):
        best = np.flatnonzero(best)
        one = best[np.searchsorted(cell[best], every)]
        beaten |= (heights[one][cell] - heights >= slack[cell, None]).all(1)
    return np.split(own[~beaten], np.cumsum(np.bincount(cell[~beaten], minlength=len(every)))[:-1])


@cache
def _directions(n: int) -> np.ndarray:
    """Directions (6 n², 4, 3) at the ends of each of the cells of a cube, in the order of `support.cell`."""
    ends = (np.arange(n + 1) / n) * 2 - 1
    side, i, j, u, w = np.indices((2, n, n, 2, 2))
    square = np.stack([1.0 - 2 * side, ends[i + u], ends[j + w]], -1).reshape(-1, 4, 3)
    square = square / np.linalg.norm(square, axis=2, keepdims=True)
    return np.concatenate([np.roll(square, axis, 2) for axis in range(3)])


def build(m, kinds: tuple[str, ...], used: np.ndarray) -> tuple[Hulls, np.ndarray]:
    """Hulls of the geoms of a `mujoco.MjModel` that are `used` (ng,), and the corners (n, 3) that are parameters."""
    fixed = {"box": box(), "capsule": rod(), "sphere": point(), "drum": drum()}
    like = {"cylinder": "capsule", "ellipsoid": "sphere"}
    meshes = sorted({int(m.geom_dataid[g]) for g in np.flatnonzero(used) if kinds[g] == "mesh"})
    own = {name: k for k, name in enumerate(fixed)} | {mesh: len(fixed) + k for k, mesh in enumerate(meshes)}
    named = (int(m.geom_dataid[g]) if kind == "mesh" else like.get(kind, kind) for g, kind in enumerate(kinds))
    of = np.array([own.get(key, -1) if use else -1 for key, use in zip(named, used, strict=True)], np.int32)
    return joined(of, list(fixed.values()), [of_mesh(m, k) for k in meshes])
