"""How a robot looks: for pictures only, and of no effect on its motion."""

import dataclasses

import numpy as np

from ukemi.model.tree import Static


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Looks(Static):
    """Triangles of meshes, one mesh after the other, and what geoms have of them."""

    vertices: np.ndarray  # (n, 3) [m]
    faces: np.ndarray  # (m, 3) vertices of the mesh, anticlockwise seen from outside
    parts: np.ndarray  # (k, 4) of each mesh: first vertex and their number, first face and their number
    mesh: np.ndarray  # (ng,) mesh of each geom, -1 for those without
    rgba: np.ndarray  # (ng, 4) in 0 to 1
    hidden: np.ndarray  # (ng,) bool: shown on request only, such as collision shapes under a mesh

    def triangles(self, geom: int) -> tuple[np.ndarray, np.ndarray]:
        """Vertices (n, 3) and faces (m, 3) of a geom that has a mesh."""
        v, many_v, f, many_f = self.parts[self.mesh[geom]].tolist()
        return self.vertices[v : v + many_v], self.faces[f : f + many_f]
