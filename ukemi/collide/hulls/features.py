"""Contacts as functions of the few corners that touch.

Whatever found them, a contact of two polytopes is one of the cases below, each a closed form in at most three corners
of either side. All that detection has to find is the case and the corners; distances, points and normals come from
here, with and without derivatives alike.
"""

from typing import NamedTuple

from jax import Array

# Cases. "Point" and "edge" are the first one and two corners given; a face goes through all three, counterclockwise
# seen from outside, and where an edge of a face counts it is that of its first two corners.
NONE = 0
NEAREST = 1  # the nearest points of points or edges that do not cross (see `spans`)
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


FEATURES = 7  # numbers that say what touches


class Features(NamedTuple):
    """What touches; leading axes for several."""

    case: Array  # () int32
    a: Array  # (3,) corners of a; what is not needed repeats the first
    b: Array  # (3,)
