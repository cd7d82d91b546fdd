"""Colliding meshes that are not convex, split into convex parts by CoACD (Wei et al., 2022), an extra."""

import hashlib
import logging
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import cast
from zipfile import BadZipFile

import mujoco
import numpy as np

from ukemi.errors import InputError, ModelFileError
from ukemi.files.support import collision_candidates
from ukemi.xla.cache import cache_folder

CONCAVITY = 0.05  # how far parts may be from convex, as a share of the mesh's size: CoACD's own default
CONVEX = 0.01  # by how much a hull may be larger than its mesh, which then stays whole
_LOG = logging.getLogger("ukemi")
_MESH, _GEOM = int(mujoco.mjtGeom.mjGEOM_MESH), int(mujoco.mjtObj.mjOBJ_GEOM)
_COPIED = (
    *("contype", "conaffinity", "condim", "priority", "friction", "solmix", "solref", "solimp", "margin", "gap"),
    *("adhesion", "pos", "quat", "rgba"),
)


def decomposed(m: mujoco.MjModel, spec: mujoco.MjSpec | None, concavity: float, where: str):
    """The model and its description with parts in place of colliding meshes; those stay, for their look and mass.

    Raises:
        InputError: the package that splits is not installed.
        ModelFileError: there is no description to change, or something else refers to a geom that would be split.
    """
    if spec is None:
        raise ModelFileError(f"{where} is compiled: decompose=... changes its description, so pass a file or an MjSpec")
    split = [g for g in np.flatnonzero(collision_candidates(m).any(1)).tolist() if _is_hollow(m, g)]
    if not split:
        return m, spec
    _check_references(m, split, where)
    own = cast(mujoco.MjSpec, spec.copy())
    own.compile()  # which numbers its elements
    geoms, bodies = {g.id: g for g in own.geoms}, {b.id: b for b in own.bodies}
    for g in split:
        _replace(m, g, own, geoms[g], bodies[int(m.geom_bodyid[g])], concavity)
    return own.compile(), own


def hull_excess(m: mujoco.MjModel, k: int) -> float | None:
    """By how much a mesh's hull is larger than the mesh, relative to it; None where the mesh is not closed."""
    points, faces = _mesh(m, k)
    polygons = range(m.mesh_polyadr[k], m.mesh_polyadr[k] + m.mesh_polynum[k])
    loops = [m.mesh_polyvert[m.mesh_polyvertadr[p] :][: m.mesh_polyvertnum[p]] for p in polygons]
    fans = np.concatenate([[(loop[0], *pair) for pair in pairwise(loop[1:])] for loop in loops])
    own, hull = (float(np.linalg.det(points[triangles]).sum() / 6) for triangles in (faces, fans))
    return max(0.0, hull / own - 1) if 0 < own <= hull * 1.001 else None


def _mesh(m: mujoco.MjModel, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Corners (n, 3) and triangles of a mesh."""
    points = m.mesh_vert[m.mesh_vertadr[k] : m.mesh_vertadr[k] + m.mesh_vertnum[k]].astype(float)
    return points, np.array(m.mesh_face[m.mesh_faceadr[k] : m.mesh_faceadr[k] + m.mesh_facenum[k]])


def _is_hollow(m: mujoco.MjModel, g: int) -> bool:
    """Whether a geom is a mesh that its hull is not."""
    k = int(m.geom_dataid[g])
    if m.geom_type[g] != _MESH or k < 0 or m.mesh_graphadr[k] < 0:
        return False
    excess = hull_excess(m, k)
    return excess is None or excess > CONVEX


def _check_references(m: mujoco.MjModel, split: list[int], where: str) -> None:
    """Refuse pairs and sensors of geoms that would be split: they would go on to mean the hull."""
    named = {
        "pair": [*m.pair_geom1.tolist(), *m.pair_geom2.tolist()],
        "sensor": [
            *m.sensor_objid[m.sensor_objtype == _GEOM].tolist(),
            *m.sensor_refid[m.sensor_reftype == _GEOM].tolist(),
        ],
    }
    for g in split:
        if m.geom_surfacevel[g].any():  # in axes that parts do not have
            name = m.geom(g).name or g
            raise ModelFileError(f"{where}: geom '{name}' has a surfacevel, and decompose would split it")
    for kind, geoms in named.items():
        for g in sorted(set(geoms) & set(split)):
            name = m.geom(g).name or g
            raise ModelFileError(f"{where}: a {kind} refers to geom '{name}', which decompose would split")


def _replace(m: mujoco.MjModel, g: int, spec: mujoco.MjSpec, geom, body, concavity: float) -> None:
    """Parts of a mesh beside its geom, which no longer collides."""
    mesh = m.mesh(int(m.geom_dataid[g])).name
    given = {name: np.array(getattr(m, f"geom_{name}")[g]) for name in _COPIED}
    for number, part in enumerate(_parts(*_mesh(m, int(m.geom_dataid[g])), concavity, mesh)):
        name = f"{m.geom(g).name or f'geom {g}'} part {number}"
        asset = spec.add_mesh(name=f"{mesh} of {name}")
        asset.uservert = part.reshape(-1).tolist()
        own = body.add_geom(name=name, type=mujoco.mjtGeom.mjGEOM_MESH, meshname=asset.name, mass=0.0, group=3)
        for field, value in given.items():
            setattr(own, field, value.tolist() if value.ndim else value.item())
    geom.contype = geom.conaffinity = 0


def _parts(points: np.ndarray, faces: np.ndarray, concavity: float, name: str) -> list[np.ndarray]:
    """Corners of convex parts, from the folder of the cache if these have been found before."""
    try:
        import coacd
    except ImportError:
        raise InputError("decompose=... needs CoACD, which is an extra: pip install 'ukemi[decompose]'") from None
    said = f"{metadata.version('coacd')} {concavity!r} {len(points)}"
    digest = hashlib.sha256(said.encode() + points.tobytes() + faces.astype(np.int32).tobytes()).hexdigest()
    folder = cache_folder()
    file = folder / "convex-parts" / f"{digest[:32]}.npz" if folder else None
    known = file and _recalled(file)
    if known:
        return known
    _LOG.info("splitting mesh '%s' of %d triangles into convex parts", name, len(faces))
    coacd.set_log_level("error")
    found = coacd.run_coacd(coacd.Mesh(points, faces), threshold=concavity, seed=0)
    parts = [np.asarray(corners, np.float64) for corners, _ in found]
    if file:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(file, *parts)
        except OSError as error:
            _LOG.info("%s cannot be written (%s): parts are found anew next time", file, error.strerror)
    return parts


def _recalled(file: Path) -> list[np.ndarray] | None:
    try:
        with np.load(file) as stored:
            return [stored[f"arr_{k}"] for k in range(len(stored.files))]
    except (OSError, ValueError, KeyError, BadZipFile):  # none, or not a whole one
        return None
