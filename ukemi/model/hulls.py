"""Polytopes that shapes are: which corners they have and how these hang together."""

import dataclasses

import numpy as np

from ukemi.model.tree import Static


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Hulls(Static):
    """Convex hulls, one after the other; several geoms may share one, which is grown by a geom's `size`.

    Corners and faces are numbered through all of them. Where corners are is `Hulls.fixed` for boxes, capsules and
    spheres, and `Geoms.vertices` for the rest, in this order. How corners hang together does not change with `size`,
    nor where they move so little that the hull keeps its faces.
    """

    of: np.ndarray  # (ng,) hull of each geom, -1 for shapes that are none
    fixed: np.ndarray  # (nf, 3) corners that are no parameters, in units of `size`
    first: np.ndarray  # (nh + 1,) first corner of each hull
    bound: np.ndarray  # (nh,) distance of the furthest corner from the origin
    capsules: np.ndarray  # (nh, 4) half axis and radius of a capsule that holds the hull, of size one
    boxes: np.ndarray  # (nh, 6) centre and half size of a box along the axes that holds the hull, of size one
    grid: np.ndarray  # (nh, 2) first cell of each hull, and how many a side of the cube around it has
    cells: np.ndarray  # (nc + 1,) first entry of each cell in `near`
    near: np.ndarray  # corners that may be furthest along a direction of the cell
    loops: np.ndarray  # (np + 1,) first entry of each face in `loop`
    loop: np.ndarray  # corners of faces, counterclockwise seen from outside
    areas: np.ndarray  # (np, 3) of faces, along their outward normals, as loaded: to choose among them
    rounding: np.ndarray  # (np, 3) which part of these is not that of the corners, which MuJoCo rounds after normals
    fans: np.ndarray  # (nv + 1,) first entry of each corner in `fan`
    fan: np.ndarray  # faces that meet at corners, in MuJoCo's order

    @property
    def idle(self) -> bool:
        """Whether no geom touches as a polytope does."""
        return not (self.of >= 0).any()

    @property
    def most_near(self) -> int:
        """Corners of a cell at the most."""
        return int(np.diff(self.cells).max(initial=1))

    @property
    def longest(self) -> int:
        """Corners of a face at the most."""
        return int(np.diff(self.loops).max(initial=3))

    @property
    def widest(self) -> int:
        """Faces that meet at a corner at the most."""
        return int(np.diff(self.fans).max(initial=1))
