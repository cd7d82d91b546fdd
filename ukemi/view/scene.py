"""What a replay shows: the shapes of a scene, and where they were and what touched at each moment.

Plain numpy values without any engine behind them, so that recordings of anything can be shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import mujoco
import numpy as np

from ukemi.collide.kinds import KINDS
from ukemi.collide.shapes import Convex
from ukemi.errors import InputError
from ukemi.files.heights import build as heights_of
from ukemi.files.heights import sizes
from ukemi.files.looks import looks
from ukemi.files.pairs import kinds_of
from ukemi.model.heights import Heights
from ukemi.model.looks import Looks


class Look(NamedTuple):
    """How one kind of shape is drawn."""

    mesh: str | None  # which unit mesh of `web/shapes.js`; None: the geom's own triangles
    scale: tuple[int, int, int] = (0, 1, 2)  # which entries of its size scale that along its axes
    cap: int | None = None  # which one moves its caps apart along z


# Of every kind of shape (`collide/kinds`).
LOOKS = {
    "plane": Look("plane"),
    "hfield": Look(None),
    "sphere": Look("sphere", (0, 0, 0)),
    "capsule": Look("capsule", (0, 0, 0), cap=1),
    "ellipsoid": Look("sphere"),
    "cylinder": Look("cylinder", (0, 0, 1)),
    "box": Look("box"),
    "mesh": Look(None),
    "other": Look(None),
}


@dataclass(frozen=True)
class Mesh:
    """Triangles in the geom's frame."""

    vertices: np.ndarray  # (n, 3) [m]
    faces: np.ndarray  # (m, 3) rows of `vertices`, anticlockwise from outside


@dataclass(frozen=True)
class Scene:
    """The shapes of a recording. `ng` is their number."""

    types: tuple[str, ...]  # each one of LOOKS
    sizes: np.ndarray  # (ng, 3) MuJoCo's meaning by type: radii and half-lengths [m]; a plane's zeros mean endless
    rgba: np.ndarray  # (ng, 4) in 0..1
    names: tuple[str, ...]
    title: str = "Ukemi"
    meshes: Mapping[int, Mesh] = field(default_factory=dict)  # triangles of meshes and height fields
    hidden: np.ndarray | None = None  # (ng,) bool: shown on request only, such as collision shapes under a mesh

    def __post_init__(self):
        ng = len(self.types)
        unknown = sorted(set(self.types) - set(LOOKS))
        if unknown:
            raise InputError(f"Scene has shapes that cannot be drawn: {', '.join(unknown)}; known: {', '.join(LOOKS)}.")
        if len(self.names) != ng:
            raise InputError(f"Scene has {ng} types and {len(self.names)} names.")
        _check("Scene.sizes", self.sizes, (ng, 3))
        _check("Scene.rgba", self.rgba, (ng, 4))
        if self.hidden is not None:
            _check("Scene.hidden", self.hidden, (ng,))


@dataclass(frozen=True)
class Frames:
    """Poses and contacts over time. `T` is the number of frames, `nc` the contact capacity.

    A contact without a partner in a frame has NaN rows. Its force is what the contact exerts on the second body.
    """

    time: np.ndarray  # (T,) increasing [s]
    geom_pos: np.ndarray  # (T, ng, 3) world [m]
    geom_quat: np.ndarray  # (T, ng, 4) w x y z, world
    contact_point: np.ndarray  # (T, nc, 3) world [m]
    contact_force: np.ndarray  # (T, nc, 3) world [N]

    def __post_init__(self):
        time = np.asarray(self.time)
        if time.ndim != 1 or len(time) == 0:
            raise InputError(f"Frames.time has shape {time.shape}; it needs (T,) with at least one frame.")
        ng = np.shape(self.geom_pos)[1] if np.ndim(self.geom_pos) == 3 else -1
        nc = np.shape(self.contact_point)[1] if np.ndim(self.contact_point) == 3 else -1
        _check("Frames.geom_pos", self.geom_pos, (len(time), ng, 3))
        _check("Frames.geom_quat", self.geom_quat, (len(time), ng, 4))
        _check("Frames.contact_point", self.contact_point, (len(time), nc, 3))
        _check("Frames.contact_force", self.contact_force, (len(time), nc, 3))
        if np.any(np.diff(time) <= 0):
            raise InputError("Frames.time must increase from frame to frame.")


def _check(name: str, array, shape: tuple[int, ...]):
    if np.shape(array) != shape:
        raise InputError(f"{name} has shape {np.shape(array)}; it needs {shape}.")


def scene_of(m: mujoco.MjModel, title: str = "Ukemi") -> Scene:
    """The scene of a compiled MuJoCo model, with its colours, materials, meshes and height fields; one entry per geom.

    Signed distance fields are left out of the picture: there are no triangles of them.
    """
    names, kinds = tuple(m.geom(g).name or f"geom {g}" for g in range(m.ngeom)), kinds_of(m)
    heights = heights_of(m, kinds, tuple(m.hfield(k).name for k in range(m.nhfield)))
    return drawn(kinds, sizes(m, kinds), names, title, looks(m), heights)


def drawn(
    kinds: tuple[str, ...], size: np.ndarray, names: tuple[str, ...], title: str, look: Looks, heights: Heights
) -> Scene:
    """A scene of shapes that look like this."""
    meshes = {g: Mesh(*look.triangles(g)) for g in np.flatnonzero(look.mesh >= 0).tolist()}
    for g in np.flatnonzero(heights.layout.of >= 0).tolist():
        meshes[g] = _ground(heights, int(heights.layout.of[g]), size[g])
    return Scene(kinds, size, look.rgba, names, title, meshes, look.hidden)


def _ground(heights: Heights, field: int, size: np.ndarray) -> Mesh:
    """The triangles of a height field that touch what is above, and walls around it down to its base."""
    rows, columns = heights.layout.shape[field].tolist()
    data = np.asarray(heights.data)[heights.layout.first[field] : heights.layout.first[field + 1]]
    x, y = np.meshgrid(np.linspace(-size[0], size[0], columns), np.linspace(-size[1], size[1], rows))
    top = np.stack([x.ravel(), y.ravel(), size[2] * data], -1)
    number = np.arange(rows * columns).reshape(rows, columns)
    first, right, above, both = number[:-1, :-1], number[:-1, 1:], number[1:, :-1], number[1:, 1:]
    faces = np.concatenate([np.stack(x, -1).reshape(-1, 3) for x in ((first, both, above), (first, right, both))])
    rim = np.concatenate([number[0, :-1], number[:-1, -1], number[-1, :0:-1], number[:0:-1, 0]])
    bottom = top[rim] * [1, 1, 0] - [0, 0, float(heights.base[field])]
    a, b = rim, np.roll(rim, -1)
    low = len(top) + np.arange(len(rim))
    walls = np.concatenate([np.stack([a, low, b], -1), np.stack([b, low, np.roll(low, -1)], -1)])
    return Mesh(np.concatenate([top, bottom]), np.concatenate([faces, walls]))


def moving(frames: Frames) -> np.ndarray:
    """Indices of the geoms whose pose ever changes."""
    pos, quat = np.asarray(frames.geom_pos), np.asarray(frames.geom_quat)
    shifted = np.ptp(pos, axis=0).max(axis=-1, initial=0) > 1e-7
    turned = np.ptp(quat, axis=0).max(axis=-1, initial=0) > 1e-7
    return np.flatnonzero(shifted | turned)


def lone_balls(scene: Scene, frames: Frames) -> list[int]:
    """Spheres that turn by themselves, fixed to nothing else: without a mark nobody could see them roll."""
    index = moving(frames).tolist()
    some = np.unique(np.linspace(0, len(frames.time) - 1, 20).astype(int))
    quat = np.asarray(frames.geom_quat, float)[some]
    turning = [g for g in index if np.ptp(quat[:, g], axis=0).max() > 1e-3]
    balls = [g for g in turning if KINDS[scene.types[g]].convex == Convex((), ball=True)]
    return [g for g in balls if not any(_turn_together(quat[:, g], quat[:, h]) for h in index if h != g)]


def _turn_together(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two orientations (T, 4) keep their relation: conjugate(a) b is constant up to sign."""
    w, u = a[:, :1], -a[:, 1:]
    x, v = b[:, :1], b[:, 1:]
    between = np.concatenate([w * x - (u * v).sum(1, keepdims=True), w * v + x * u + np.cross(u, v)], axis=1)
    return bool((np.abs(between @ between[0]) > 1 - 1e-6).all())


def radii(scene: Scene) -> np.ndarray:
    """Bounding radius of each geom about its own origin [m], (ng,); planes count as 0."""
    out = np.zeros(len(scene.types))
    for g, kind in enumerate(scene.types):
        body = KINDS[kind].convex
        if g in scene.meshes and len(scene.meshes[g].vertices):
            out[g] = np.linalg.norm(scene.meshes[g].vertices, axis=1).max()
        elif body:
            out[g] = body.radius(np.asarray(scene.sizes[g]))
    return out


@dataclass(frozen=True)
class Framing:
    """Where a camera should look."""

    focus: np.ndarray  # (T, 3) centre of the subject, smoothed [m]
    center: np.ndarray  # (3,) where a camera that stands still looks [m]
    reach: float  # radius of what should fill the picture [m]
    follow: bool  # whether the subject travels so far that the camera had better follow
    mark: float  # scale of contact marks: small beside small things, however wide the scene [m]


def frame_subject(scene: Scene, frames: Frames) -> Framing:
    """Find the subject, which is what moves, and how to frame it."""
    size = radii(scene)
    time, pos = np.asarray(frames.time), np.asarray(frames.geom_pos, float)
    subject = moving(frames)
    subject = subject[size[subject] > 0]
    if len(subject) == 0:
        subject = np.flatnonzero(size > 0)
    if len(subject) == 0:
        return Framing(np.zeros((len(time), 3)), np.zeros(3), 1.0, False, 1.0)
    low, high = pos[:, subject] - size[subject, None], pos[:, subject] + size[subject, None]
    bottom, top = low.min(axis=1), high.max(axis=1)
    focus = _smooth(time, 0.5 * (bottom + top), width=0.4)
    own = 0.6 * float(np.quantile((top - bottom).max(axis=-1), 0.9))
    # Quantiles: one thing that flies off must not make everything else small.
    bottom, top = np.quantile(low, 0.02, axis=(0, 1)), np.quantile(high, 0.98, axis=(0, 1))
    whole = 0.6 * float((top - bottom).max())
    mark = 5 * float(np.median(size[subject]))
    # Follow what goes away over the ground; something small that bounces to and fro is better seen from one place.
    away = float(np.linalg.norm(focus[-1, :2] - focus[0, :2]))
    if whole > 15 * own or (whole > 2.2 * own and away > 0.6 * whole):
        return Framing(focus, focus[0], 1.25 * own, True, min(own, mark))
    bottom, top = _with_surroundings(scene, frames, bottom, top)
    whole = 0.6 * float((top - bottom).max())
    return Framing(focus, 0.5 * (bottom + top), whole, False, min(whole, mark))


def _with_surroundings(scene: Scene, frames: Frames, bottom: np.ndarray, top: np.ndarray):
    """The box from `bottom` to `top` (3,), widened by things at rest beside it: a table's rails, a robot's stand."""
    center, half = 0.5 * (bottom + top), 0.5 * float((top - bottom).max())
    for g in np.flatnonzero(radii(scene) > 0).tolist():
        middle, extent = frames.geom_pos[0, g], _extent(scene, g, frames.geom_quat[0, g])
        if extent.max() < 2 * half and np.all(np.abs(middle - center) < 2 * half):
            bottom, top = np.minimum(bottom, middle - extent), np.maximum(top, middle + extent)
    return bottom, top


def _extent(scene: Scene, g: int, quat: np.ndarray) -> np.ndarray:
    """Half-sizes (3,) along the world's axes of a box around geom g with orientation `quat`."""
    body = KINDS[scene.types[g]].convex
    if g in scene.meshes:
        half = np.abs(scene.meshes[g].vertices).max(axis=0)
    else:
        half = body.reach(np.eye(3), np.asarray(scene.sizes[g])) if body else np.zeros(3)
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, np.asarray(quat, float))
    return np.abs(turn.reshape(3, 3)) @ half


def _smooth(time: np.ndarray, path: np.ndarray, width: float) -> np.ndarray:
    """Moving average of `path` (T, 3) over a window of `width` seconds."""
    total = np.concatenate([np.zeros((1, 3)), np.cumsum(path, axis=0)])
    first = np.searchsorted(time, time - width / 2, side="left")
    last = np.searchsorted(time, time + width / 2, side="right")
    return (total[last] - total[first]) / (last - first)[:, None]
