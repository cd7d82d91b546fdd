"""What is true of two convex shapes, by no engine's search: bounds of their signed distance, and their surfaces.

With D = {y − x : x in a, y in b}, the signed distance is the largest of min n·d over unit vectors n and d in D, so that
any n gives a lower bound, which is a maximum over corners away. The hull of some points of D lies within D, so that its
own distance, exhaustively over its faces, is an upper bound. Points are added where the faces nearest to the origin
look until both meet. Nothing that is returned has to be believed: the bounds hold however they were found.
"""

from typing import NamedTuple

import mujoco
import numpy as np
from scipy.spatial import ConvexHull

GEOM = mujoco.mjtGeom
BOX = np.array([(x, y, z) for x in (-1.0, 1) for y in (-1.0, 1) for z in (-1.0, 1)])
ROD = np.array([(0.0, 0, -1), (0, 0, 1)])
ROUNDS = 60
MOST = 40  # faces beyond which points are looked for at a time


class Solid(NamedTuple):
    """The hull of corners, grown by an ellipsoid and by a ball, in the world."""

    corners: np.ndarray  # (k, 3) [m]
    core: np.ndarray  # (3, 3) that makes the ellipsoid of the unit ball; zero: there is none [m]
    radius: float  # of the ball [m]


class Bounds(NamedTuple):
    """The signed distance of two shapes is between these."""

    lower: float  # [m]
    upper: float  # [m]
    normal: np.ndarray  # (3,) from the first to the second shape, of the lower bound


def solid(m: mujoco.MjModel, g: int, pos: np.ndarray, mat: np.ndarray) -> Solid:
    """A geom that has an end, posed."""
    kind, size, core, radius = GEOM(int(m.geom_type[g])), m.geom_size[g], np.zeros(3), 0.0
    if kind == GEOM.mjGEOM_MESH:
        mesh = m.geom_dataid[g]
        corners = m.mesh_vert[m.mesh_vertadr[mesh] :][: m.mesh_vertnum[mesh]].astype(float)
    elif kind == GEOM.mjGEOM_BOX:
        corners = BOX * size
    elif kind == GEOM.mjGEOM_CAPSULE:
        corners, radius = ROD * size[1], size[0]
    elif kind == GEOM.mjGEOM_CYLINDER:
        corners, core = ROD * size[1], size[0] * np.array([1.0, 1, 0])
    else:
        corners, ball = np.zeros((1, 3)), kind == GEOM.mjGEOM_SPHERE
        core, radius = (core, size[0]) if ball else (size.copy(), 0.0)
    mat = mat.reshape(3, 3)
    return Solid(pos + corners @ mat.T, mat * core, float(radius))


# ---- signed distance -------------------------------------------------------------------------------------------------


def furthest(shape: Solid, n: np.ndarray) -> np.ndarray:
    """Points (k, 3) of a shape without its ball that are furthest along n (k, 3)."""
    along = n @ shape.core
    length = np.linalg.norm(along, axis=1, keepdims=True)
    grown = along / np.where(length > 0, length, 1.0) @ shape.core.T
    return shape.corners[(n @ shape.corners.T).argmax(1)] + grown


def apart(a: Solid, b: Solid, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far b is from a along unit vectors n (k, 3), lower bounds (k,) of the distance; and points (k, 3) of D."""
    d = furthest(b, -n) - furthest(a, n)
    return (n * d).sum(1) - a.radius - b.radius, d


def bounds(a: Solid, b: Solid, gap: float = 1e-11) -> Bounds:
    """The signed distance, to `gap` unless rounding forbids [m]."""
    k = np.arange(64) + 0.5
    turn, z = np.pi * (1 + 5**0.5) * k, 1 - k / 32
    n = np.stack([np.cos(turn) * np.sqrt(1 - z * z), np.sin(turn) * np.sqrt(1 - z * z), z], 1)
    radius, points = a.radius + b.radius, np.zeros((0, 3))
    lower, upper, normal = -np.inf, np.inf, n[0]
    for _ in range(ROUNDS):
        values, d = apart(a, b, n)
        best = values.argmax()
        if values[best] > lower:
            lower, normal = float(values[best]), n[best]
        known = len(points)
        points = np.unique(np.concatenate([points, d]), axis=0)
        if upper - lower <= gap or len(points) == known:
            break
        heights, n = _faces(points)
        upper = min(upper, float(heights[0]) - radius)
        n = n[heights > lower + radius][:MOST]
        if not len(n):
            break
    return Bounds(lower, upper, normal)


def _faces(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Signed distances (k,) of the origin from the hull of points, largest first, and unit normals (k, 3) towards it.

    From outside one: that of the nearest point. From inside those of all faces, of which the first is the true one.
    """
    scale = np.abs(points).max()
    hull = ConvexHull(points / scale, qhull_options="Qt")
    heights = hull.equations[:, 3] * scale
    if heights.max() <= 0:
        order = np.argsort(-heights)
        return heights[order], -hull.equations[order, :3]
    nearest = min((_nearest(points[face]) for face in hull.simplices), key=np.linalg.norm)
    distance = float(np.linalg.norm(nearest))
    return np.array([distance]), nearest[None] / distance


def _nearest(P: np.ndarray) -> np.ndarray:
    """The point (3,) of a triangle (3, 3) that is nearest to the origin."""
    n = np.cross(P[1] - P[0], P[2] - P[0])
    square = n @ n
    share = np.array([np.cross(P[i], P[j]) @ n for i, j in ((1, 2), (2, 0), (0, 1))])
    if square > 0 and (share >= 0).all():
        return n * (n @ P[0]) / square
    found = []
    for i, j in ((0, 1), (1, 2), (2, 0)):
        along = P[j] - P[i]
        t = np.clip(-(P[i] @ along) / max(along @ along, 1e-300), 0, 1)
        found.append(P[i] + t * along)
    return min(found, key=np.linalg.norm)


# ---- surfaces --------------------------------------------------------------------------------------------------------


def off_surface(shape: Solid, x: np.ndarray) -> float:
    """How far a point is from the nearest plane, wall or cap of a shape that is no ellipsoid [m]."""
    if len(shape.corners) > 2:
        hull = ConvexHull(shape.corners)
        return float(abs((hull.equations[:, :3] @ x + hull.equations[:, 3]).max()))
    middle, half = shape.corners.mean(0), (shape.corners[-1] - shape.corners[0]) / 2
    reach = np.linalg.norm(half)
    axis = half / max(reach, 1e-300)
    along = axis @ (x - middle)
    if shape.core.any():
        around = np.linalg.norm(x - middle - along * axis)
        return float(abs(max(around - np.linalg.norm(shape.core, axis=0).max(), abs(along) - reach)))
    foot = middle + np.clip(along, -reach, reach) * axis
    return float(abs(np.linalg.norm(x - foot) - shape.radius))
