"""One HTML file that replays a simulation in any browser, without a network.

The page's parts lie in `web/`; this module packs the recording beside them. The recording is a JSON header that lists
arrays (type, shape, byte offset) and one blob with their bytes, little-endian, deflated and in base64. Long recordings
store positions and quaternions as 16-bit marks on a line of their own per geom and coordinate; corners of meshes are
stored so, too, and their faces as differences.
"""

import base64
import html
import json
import zlib
from importlib import resources
from pathlib import Path

import numpy as np

from ukemi.errors import InputError
from ukemi.view.scene import LOOKS, Frames, Look, Scene, frame_subject, lone_balls, moving

FRAME_RATE = 60.0  # frames kept per second of simulated time

_SCRIPTS = ("math.js", "shapes.js", "data.js", "shaders.js", "renderer.js", "layers.js", "camera.js", "player.js")
_EXACT_BYTES = 3_000_000  # poses beyond this are stored in 16 bits
_AZIMUTH, _ELEVATION = -0.96, 0.26  # default direction from the subject to the eye [rad]


def write_replay(path, scene: Scene, frames: Frames, *, subtitle: str = "") -> Path:
    """Write a self-contained page that replays `frames` of `scene`, and return its path.

    Args:
        path: file to write; its folder is made if needed.
        scene: shapes and colours, ng geoms.
        frames: poses (T, ng, ...) and contacts (T, nc, ...); thinned to 60 frames per simulated second.
        subtitle: a line under the title, such as the method that made the motion.
    """
    if np.shape(frames.geom_pos)[1] != len(scene.types):
        raise InputError(f"Frames hold {np.shape(frames.geom_pos)[1]} geoms and the scene {len(scene.types)}.")
    poses = np.concatenate([np.ravel(frames.geom_pos), np.ravel(frames.geom_quat)])
    if not np.isfinite(poses).all():
        raise InputError("The recording holds poses that are not finite; nothing was written. Check the states first.")
    header, blob = pack(scene, frames, subtitle)
    text = _page(header, blob)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def pack(scene: Scene, frames: Frames, subtitle: str = "") -> tuple[dict, bytes]:
    """The JSON header and the bytes that the page reads."""
    kept = thin(np.asarray(frames.time, float))
    load = _peak_load(frames, kept)
    frames = Frames(*(np.asarray(getattr(frames, name))[kept] for name in Frames.__dataclass_fields__))
    framing = frame_subject(scene, frames)
    start, point, force = _contacts(frames)
    store = _Store()
    store.put("time", np.asarray(frames.time, np.float32))
    store.put("focus", framing.focus.astype(np.float32))
    store.put("load", load.astype(np.float32))
    store.put("contact_start", start)
    store.put("contact_point", point)
    store.put("contact_force", force)
    _put_poses(store, frames)
    mesh_of = _put_meshes(store, scene)
    hidden = np.zeros(len(scene.types), bool) if scene.hidden is None else scene.hidden
    striped = lone_balls(scene, frames)
    geoms = [
        {"name": name, **_drawn(LOOKS[kind], size), "rgba": _short(np.clip(rgba, 0, 1)),
         "mesh": mesh_of.get(g), "striped": g in striped, "hidden": bool(hide or rgba[3] <= 0)}
        for g, (name, kind, size, rgba, hide) in enumerate(
            zip(scene.names, scene.types, scene.sizes, scene.rgba, hidden, strict=True))
    ]  # fmt: skip
    view = {
        "center": _short(framing.center), "reach": framing.reach, "follow": framing.follow,
        "azimuth": _AZIMUTH, "elevation": _ELEVATION, "mark": framing.mark, **_force_view(force, load, framing.mark),
    }  # fmt: skip
    header = {"title": scene.title, "subtitle": subtitle, "geoms": geoms, "view": view, "arrays": store.entries,
              "meshes": len(set(mesh_of.values())), "has_contacts": bool(len(point))}  # fmt: skip
    return header, b"".join(store.chunks)


def _drawn(look: Look, size: np.ndarray) -> dict:
    """Which unit mesh a geom is, how it is scaled along its axes, and how far its caps are moved along z."""
    scale = _short(np.asarray(size)[list(look.scale)]) if look.mesh else [1, 1, 1]
    return {"shape": look.mesh, "scale": scale, "cap": 0 if look.cap is None else _short(size)[look.cap]}


def thin(time: np.ndarray, rate: float = FRAME_RATE) -> np.ndarray:
    """Indices of at most `rate` frames per second, nearest to an even grid, with the first and the last."""
    grid = np.arange(time[0], time[-1], 1 / rate)
    after = np.searchsorted(time, grid).clip(0, len(time) - 1)
    before = (after - 1).clip(0)
    nearest = np.where(grid - time[before] < time[after] - grid, before, after)
    return np.unique(np.concatenate([[0], nearest, [len(time) - 1]]))


class _Store:
    """Arrays laid end to end, each starting at a multiple of 4 bytes."""

    def __init__(self):
        self.entries, self.chunks, self.size = {}, [], 0

    def put(self, name: str, array: np.ndarray, **extra):
        kind = {"float32": "f4", "int32": "i4", "uint16": "u2"}[array.dtype.name]
        data = array.astype(f"<{kind}").tobytes()
        data += b"\0" * (-len(data) % 4)
        self.entries[name] = {"dtype": kind, "shape": list(array.shape), "offset": self.size, **extra}
        self.chunks.append(data)
        self.size += len(data)

    def put_marks(self, name: str, values: np.ndarray):
        """Numbers (T, ...) as 16-bit marks on a line for each column."""
        low, high = values.min(axis=0), values.max(axis=0)
        scale = np.where(high > low, (high - low) / 65535, 1.0)
        marks = np.rint((values - low) / scale).astype(np.uint16)
        self.put(name, marks, low=low.ravel().tolist(), scale=scale.ravel().tolist())


def _put_poses(store: _Store, frames: Frames):
    """Poses of the moving geoms over time, and one pose of all of them for those at rest."""
    pos, quat = np.asarray(frames.geom_pos), np.asarray(frames.geom_quat)
    index = moving(frames)
    store.put("moving", index.astype(np.int32))
    store.put("rest_pos", pos[0].astype(np.float32))
    store.put("rest_quat", quat[0].astype(np.float32))
    exact = 28 * len(pos) * len(index) <= _EXACT_BYTES
    for name, values in {"pos": pos[:, index], "quat": quat[:, index]}.items():
        if exact:
            store.put(name, values.astype(np.float32))
            continue
        store.put_marks(name, values)


def _put_meshes(store: _Store, scene: Scene) -> dict[int, int]:
    """Store each different mesh once; the mesh number of each geom that has one."""
    numbers, mesh_of = {}, {}
    for g, mesh in scene.meshes.items():
        points, faces = np.asarray(mesh.vertices, np.float32), np.asarray(mesh.faces, np.int32)
        if len(faces) == 0:
            continue
        key = (points.tobytes(), faces.tobytes())
        if key not in numbers:
            numbers[key] = len(numbers)
            store.put_marks(f"mesh{numbers[key]}_points", points)
            steps = np.diff(faces.ravel(), prepend=0).astype(np.int32).reshape(faces.shape)
            store.put(f"mesh{numbers[key]}_faces", steps, steps=True)
        mesh_of[g] = numbers[key]
    return mesh_of


def _active(frames: Frames) -> np.ndarray:
    """(T, nc) bool: the contact's rows are finite."""
    both = np.concatenate([frames.contact_point, frames.contact_force], axis=-1)
    return np.asarray(np.isfinite(both).all(axis=-1))


def _contacts(frames: Frames) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Active contacts end to end: row range of frame t is start[t]:start[t+1]."""
    active = _active(frames)
    start = np.concatenate([[0], np.cumsum(active.sum(axis=1))]).astype(np.int32)
    return start, frames.contact_point[active].astype(np.float32), frames.contact_force[active].astype(np.float32)


def _peak_load(frames: Frames, kept: np.ndarray) -> np.ndarray:
    """Greatest sum of contact forces [N] from each kept frame up to the next, so that no impact is lost by thinning."""
    size = np.linalg.norm(np.nan_to_num(frames.contact_force), axis=-1) * _active(frames)
    return np.maximum.reduceat(size.sum(axis=1), kept)


def _force_view(force: np.ndarray, load: np.ndarray, mark: float) -> dict:
    """Scales of arrows [m/N] and of the chart [N], set by usual large values and not by rare peaks."""
    size = np.linalg.norm(force, axis=1)
    size, busy = size[size > 0], load[load > 0]
    usual = float(np.quantile(size, 0.9)) if len(size) else 1.0
    top = float(np.quantile(busy, 0.98)) if len(busy) else 1.0
    return {"force_scale": 0.55 * mark / usual, "load_top": top}


def _short(values) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _page(header: dict, blob: bytes) -> str:
    folder = resources.files("ukemi.view").joinpath("web")
    part = {name: folder.joinpath(name).read_text(encoding="utf-8") for name in ("page.html", "style.css", *_SCRIPTS)}
    # A "<" in a name could end the script element that holds the header.
    listing = json.dumps(header, separators=(",", ":")).replace("<", "\\u003c")
    fill = {
        "@@TITLE@@": html.escape(header["title"]),
        "@@STYLE@@": part["style.css"],
        "@@HEADER@@": listing,
        "@@SCRIPT@@": "\n".join(part[name] for name in _SCRIPTS),
        "@@BLOB@@": base64.b64encode(zlib.compress(blob, 9)).decode("ascii"),
    }
    # One pass over the template, so that text in a title can never act as a mark.
    pieces = part["page.html"].split("@@")
    return "".join(fill[f"@@{piece}@@"] if k % 2 else piece for k, piece in enumerate(pieces))
