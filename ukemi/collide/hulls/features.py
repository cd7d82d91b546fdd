"""Contacts as functions of the few corners that touch.

Whatever found them, a contact of two polytopes is one of the cases below, each a closed form in at most three corners
of either side. All that detection has to find is the case and the corners; distances, points and normals come from
here, with and without derivatives alike.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ukemi.collide.geometry import cross
from ukemi.collide.hulls.faces import corners_of
from ukemi.collide.hulls.support import Joined
from ukemi.model.heights import Heights
from ukemi.model.hulls import Hulls

# Cases. "Point" and "edge" are the first one and two corners given. A face is one of the hull's, and its edge that
# counts goes through the first two corners; or else the triangle of all three, counterclockwise seen from outside.
NONE = 0
NEAREST = 1  # the nearest points of points or edges that do not cross
EDGES = 2  # two edges that cross
POINT_ON_B = 3  # a point of a on a face of b
POINT_ON_A = 4  # a point of b on a face of a
# One edge lies along the other side's face: where it leaves the face.
EDGE_OFF_B = 5  # an edge of a crosses an edge of a face of b
EDGE_OFF_A = 6  # an edge of b crosses an edge of a face of a
# Two faces lie on each other; their overlap, seen along a's normal, is a polygon in a's plane with such corners, whose
# heights over b's face are the distances:
FACES_AT_B = 7  # a corner of b's face
FACES_AT_EDGES = 8  # edges of both cross
FACES_AT_A = 9  # a corner of a's face
CURVED = 10  # a curved shape, and the flat through corners of b
# The side of a capsule or cylinder a lies along b's face: the line of its surface that is nearest to that
LINE_ON_B = 11  # ends
LINE_OFF_B = 12  # leaves the face

FEATURES = 9  # numbers that say what touches


class Features(NamedTuple):
    """What touches; leading axes for several."""

    case: Array  # () int32
    a: Array  # (3,) corners of a; what is not needed repeats the first
    b: Array  # (3,)
    faces: Array  # (2,) faces of a and b that count; -1: none, or the triangle of the three corners

    def codes(self) -> Array:
        """All of it (..., FEATURES)."""
        return jnp.concatenate([self.case[..., None], self.a, self.b, self.faces], -1).astype(jnp.int32)


class Corners(NamedTuple):
    """All that corners come from: hulls, then height fields, of each elevation the corner there and that below it."""

    hulls: Joined | Array  # (nv, 3) in units of shapes' sizes; those that are parameters alone (nvert, 3)
    heights: Heights


def all_corners(hulls: Hulls, corners: Corners) -> Corners:
    """Those of all hulls, of `corners` that are parameters."""
    free = jnp.asarray(corners.hulls)
    return corners._replace(hulls=Joined(jnp.asarray(hulls.fixed, free.dtype), free))


class Patch(NamedTuple):
    """The part of a polytope that touches, in its own axes and units of the shape's size."""

    corners: Array  # (3, 3)
    area: Array  # (3,) of the face, along its outward normal; zero where there is none
    base: Array  # (3,) corner of the face
    below: Array | None  # (3,) how far corners of a height field are below its elevation zero [m]


class Numbers(NamedTuple):
    """Which corners a patch is a function of."""

    corners: Array  # (3,)
    loop: Array  # (k,) of the face


class Faces(NamedTuple):
    """The faces of both sides (..., 2)."""

    real: Array  # which there are
    rounding: Array  # (..., 2, 3) what their areas are besides those of their corners


class Around(NamedTuple):
    """All corners that a patch is a function of."""

    corners: Array  # (3, 3)
    loop: Array  # (k, 3) of the face
    below: Array | None


def around(hulls: Hulls, codes: Array) -> tuple[Numbers, Faces]:
    """Numbers of the corners of both sides (..., 2, ...) for codes (..., FEATURES), and their faces."""
    ids, faces = codes[..., 1:7].reshape(*codes.shape[:-1], 2, 3), codes[..., 7:9]
    face = jnp.maximum(faces, 0)
    return Numbers(ids, corners_of(hulls, face)[0]), Faces(faces >= 0, jnp.asarray(hulls.rounding)[face])


def corners_at(corners: Corners, numbers: Numbers) -> Around:
    """The corners of these numbers (...)."""
    place, below = places_at(corners, numbers.corners)
    return Around(place, corners.hulls[numbers.loop], below)


def places_at(corners: Corners, ids: Array) -> tuple[Array, Array | None]:
    """Where corners (...) are (..., 3), and how far below elevation zero (...); None where there are no fields."""
    layout, n = corners.heights.layout, len(corners.hulls)
    if not len(layout.names):
        return corners.hulls[ids], None
    at = jnp.maximum(ids - n, 0)
    vertex, under, ground = at // 2, at % 2 == 1, ids >= n
    k = jnp.searchsorted(jnp.asarray(layout.first), vertex, side="right") - 1
    columns = jnp.asarray(layout.shape)[k, 1]
    row, column = jnp.divmod(vertex - jnp.asarray(layout.first)[k], columns)
    z = jnp.where(under, 0.0, corners.heights.data[vertex])
    cell = jnp.stack([column, row], -1).astype(z.dtype)
    place = jnp.concatenate([2 * cell / (jnp.asarray(layout.shape)[k, ::-1] - 1) - 1, z[..., None]], -1)
    of_hull = corners.hulls[jnp.minimum(ids, n - 1)]
    below = jnp.where(ground & under, corners.heights.base[k], 0.0)
    return jnp.where(ground[..., None], place, of_hull), below


def patch(at: Around, face: Faces) -> Patch:
    """The patch of one side. Loops repeat their last corner, which adds no area."""
    first, last = at.loop, jnp.roll(at.loop, -1, 0)
    area = 0.5 * cross(first - at.loop[0], last - at.loop[0]).sum(0) + face.rounding.astype(at.loop.dtype)
    base = jnp.where(face.real, at.loop[-1], at.corners[0])
    return Patch(at.corners, jnp.where(face.real, area, 0.0), base, at.below)
