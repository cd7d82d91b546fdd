"""How a compiled model looks: its triangles and colours."""

import mujoco
import numpy as np

from ukemi.model.looks import Looks

# Geoms of these MuJoCo groups are drawn by default; the others are, by custom, collision shapes under a visual mesh.
_SHOWN_GROUPS = (0, 1, 2)
_DEFAULT_RGBA = np.array([0.5, 0.5, 0.5, 1.0])


def looks(m: mujoco.MjModel) -> Looks:
    """Triangles, colours and what is hidden by default, of all geoms.

    Signed distance fields have no triangles, and those of height fields follow from their elevations.
    """
    hidden = ~np.isin(m.geom_group, _SHOWN_GROUPS)
    if hidden[m.geom_bodyid > 0].all():
        hidden[:] = False
    meshes = m.geom_type == int(mujoco.mjtGeom.mjGEOM_MESH)
    parts = np.stack([m.mesh_vertadr, m.mesh_vertnum, m.mesh_faceadr, m.mesh_facenum], -1)
    return Looks(
        vertices=np.array(m.mesh_vert, np.float32),
        faces=np.array(m.mesh_face, np.int32),
        parts=np.array(parts, np.int32).reshape(-1, 4),
        mesh=np.where(meshes, m.geom_dataid, -1).astype(np.int32),
        rgba=_rgba(m).astype(np.float32),
        hidden=hidden,
    )


def _rgba(m: mujoco.MjModel) -> np.ndarray:
    """Colour of each geom: its own unless that is the default, then its material's (MuJoCo's rule)."""
    rgba = m.geom_rgba.astype(float)
    for g in np.flatnonzero(m.geom_matid >= 0):
        if np.allclose(rgba[g], _DEFAULT_RGBA):
            rgba[g] = m.mat_rgba[m.geom_matid[g]]
    return rgba
