"""What a pair function takes, and what it returns."""

from typing import NamedTuple

from jax import Array

# The distance of a slot that holds no contact [m]. Finite, so that masked arithmetic and its
# derivatives stay finite; larger than any margin.
EMPTY = 1e4


class Shape(NamedTuple):
    """One posed primitive shape.

    Which primitive it is, the caller of a pair function knows statically. `size` has MuJoCo's
    meaning: sphere (radius, -, -); capsule and cylinder (radius, half length, -); ellipsoid the
    three radii; box the three half sizes; plane unused.
    """

    pos: Array  # (3,) origin of the shape's frame in the world [m]
    mat: Array  # (3, 3) rotation, columns are the shape's axes in the world
    size: Array  # (3,) [m]


class Hit(NamedTuple):
    """Up to k contact points between shape a and shape b."""

    distance: Array  # (k,) signed, negative in penetration, EMPTY where there is no contact [m]
    point: Array  # (k, 3) midway between the two surfaces, in the world [m]
    frame: Array  # (k, 3, 3) rows: normal from a to b, tangent 1, tangent 2
