"""What a pair function takes, and what it returns."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths.gathers import rows_at
from ukemi.model.geoms import Geoms

# The distance of a slot that holds no contact [m]. Finite, so that masked arithmetic and its
# derivatives stay finite; larger than any margin.
EMPTY = 1e4


class Shape(NamedTuple):
    """One posed shape: where it is, then the arrays that say what it is; leading axes for several.

    Of which kind it is, the caller of a pair function knows statically. Each array after `mat` is a field of `Geoms`
    of the same name and of any shape: what gathers shapes, moves them and differentiates along their parameters
    takes all of them alike.
    """

    pos: Array  # (3,) origin of the shape's frame in the world [m]
    mat: Array  # (3, 3) rotation, columns are the shape's axes in the world
    size: Array  # (3,) of what `ShapeKind.sizes` says [m]


class Hit(NamedTuple):
    """Up to k contact points between shape a and shape b."""

    distance: Array  # (k,) signed, negative in penetration, EMPTY where there is no contact [m]
    point: Array  # (k, 3) midway between the two surfaces, in the world [m]
    normal: Array  # (k, 3) from a to b; (1, 3) where all have one in common
    along: Array | None = None  # the same of what the first tangent follows, where that is an axis of a shape


class Convex(NamedTuple):
    """A convex body in closed form: the sum of a ball and of segments, discs and ellipsoids along the shape's axes.

    Its functions take all arrays that say what a shape is (`own_arrays`), and need the first.
    Along n it reaches r |n| + Σ_m |A_m n|, with one small matrix A_m for each summand but the ball: a segment has one
    row, its half length times its direction; a disc has two, an ellipsoid three.
    """

    rows: tuple[tuple[int, int, int], ...]  # of all A_m: which axis, times which entry of `size`; and m
    ball: bool  # whether r = size[0], not zero
    corners: tuple[tuple[float, float, float], ...] = ((0.0, 0.0, 0.0),)  # signs of those of all segments together

    def summands(self) -> list[np.ndarray]:
        """Axis and entry of `size` (k, 2) of each summand's rows."""
        numbers = sorted({row[2] for row in self.rows})
        return [np.array([row[:2] for row in self.rows if row[2] == m]) for m in numbers]

    def reach(self, n, size, *_):
        """How far (...) the body reaches along n (..., 3), in its own axes, from its origin [m]; NumPy's or JAX's."""
        total = size[..., 0] * (n * n).sum(-1) ** 0.5 if self.ball else 0.0 * size[..., 0]
        for rows in self.summands():
            axes, entries = rows.T
            total = total + ((n[..., axes] * size[..., entries]) ** 2).sum(-1) ** 0.5
        return total

    def radius(self, size: np.ndarray) -> float:
        """Of the least ball about the origin that holds the body, of one size (3,) [m].

        Each summand reaches furthest along one of its axes, and these are all perpendicular.
        """
        return self.ball * float(size[0]) + math.hypot(*(size[rows[:, 1]].max() for rows in self.summands()))

    def grains(self, size: Array, *_: Array) -> tuple[Array, Array, Array]:
        """Of bodies of sizes (n, 3): corners (n, k, 3), grown by ellipsoids of half axes (n, 3) and balls (n,) [m]."""
        half, axes, curved = np.zeros(3, int), np.zeros(3, int), np.zeros(3, bool)
        for rows in self.summands():
            along, entries = rows.T
            (half if len(rows) == 1 else axes)[along] = entries
            curved[along] = len(rows) > 1
        corners = size[:, None, half] * np.array(self.corners, size.dtype)
        return corners, jnp.where(curved, size[:, axes], 0.0), size[:, 0] if self.ball else jnp.zeros_like(size[:, 0])


class Side(NamedTuple):
    """How a kind of shape is a polytope, grown: what meets a mesh (`hulls`)."""

    grown: Callable[[Array], tuple[Array, Array]]  # of size (3,): scale (3,) of its corners, radius () of a ball [m]
    flat: bool = False  # whether it has faces
    line: bool = False  # whether its side is round about its z axis, with the first size for a radius
    core: Callable[[Array], Array] | None = None  # of size: half axes (3,) of an ellipsoid that grows it [m]


class ShapeKind(NamedTuple):
    """All that collision has to know of one kind of shapes, but how pairs of them touch."""

    name: str  # MuJoCo's
    sizes: tuple[str, ...]  # what the entries of `size` mean that count
    contacts: int  # at which one moving shape typically touches at once: what the default capacity counts on
    bounds: Callable[..., tuple[Array, Array]] | None = None  # of `own_arrays`: a capsule around it (see `bounds`)
    convex: Convex | None = None  # what the routine for any two convex shapes needs, if it is one for it
    facing: Callable[[Shape, Array], Any] | None = None  # its flat or straight part towards a direction (3,)
    ends: int = 0  # contacts that this part may add: 2 of a line, 4 of a face
    side: Side | None = None  # how it meets a mesh
    endless: bool = False  # all that is below the plane through its origin, z pointing out
    ground: bool = False  # a height field, of which only what lies beneath another shape is looked at


def own_arrays(geoms: Geoms) -> tuple[Array, ...]:
    """The arrays (ng, ...) that say what all geoms are."""
    return tuple(getattr(geoms, name) for name in Shape._fields[2:])


def shapes_at(geoms: Geoms, pos: Array, mat: Array) -> Shape:
    """All geoms (ng, ...) at poses in the world."""
    return Shape(pos, mat, *own_arrays(geoms))


def sides(shapes: Any, geoms) -> tuple[Any, Any]:
    """First and second shapes (n, ...) of pairs of geoms (n, 2)."""
    return tuple(jax.tree.map(lambda x, k=k: rows_at(x, k), shapes) for k in (geoms[:, 0], geoms[:, 1]))


def parameters(shapes: Shape) -> Array:
    """What says what shapes are, end to end (n, w)."""
    return jnp.concatenate([x.reshape(len(x), -1) for x in shapes[2:]], -1)


def parameter_count(shapes: Shape) -> int:
    """w, of shapes with a leading axis."""
    return sum(int(np.prod(x.shape[1:])) for x in shapes[2:])


def cut(shape: Shape, vector: Array, start: int) -> list[Array]:
    """Arrays like those that say what one shape is, from a vector that holds its parameters from `start` on."""
    ends = np.cumsum([start, *(x.size for x in shape[2:])]).tolist()
    return [vector[i:j].reshape(x.shape) for x, (i, j) in zip(shape[2:], pairwise(ends), strict=True)]
