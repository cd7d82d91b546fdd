"""The table of pair functions: which routine finds the contacts of which two primitives."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from jax import Array

from ukemi.collide.pairs import balls, box, plane
from ukemi.collide.pairs.box_box import box_box
from ukemi.collide.pairs.manifold import several_contacts, single_contact
from ukemi.collide.shapes import Hit, Shape
from ukemi.model.records import PairGroup, PairLayout


class PairFunction(NamedTuple):
    """How the contacts of one pair of primitive types are found."""

    function: Callable[[Shape, Shape, Array], Hit]  # (a, b, margin [m]) -> Hit, unbatched
    points: int  # number of slots in the Hit, static
    exact: bool  # analytic, with the very contact set of MuJoCo


# Keys are (type of a, type of b) in MuJoCo's order of types: plane, sphere, capsule, ellipsoid,
# cylinder, box. The normal of a contact points from a to b.
PAIRS: dict[tuple[str, str], PairFunction] = {
    ("plane", "sphere"): PairFunction(plane.plane_sphere, 1, True),
    ("plane", "capsule"): PairFunction(plane.plane_capsule, 2, True),
    ("plane", "ellipsoid"): PairFunction(plane.plane_ellipsoid, 1, True),
    ("plane", "cylinder"): PairFunction(plane.plane_cylinder, 4, True),
    ("plane", "box"): PairFunction(plane.plane_box, 4, True),
    ("sphere", "sphere"): PairFunction(balls.sphere_sphere, 1, True),
    ("sphere", "capsule"): PairFunction(balls.sphere_capsule, 1, True),
    ("sphere", "cylinder"): PairFunction(balls.sphere_cylinder, 1, True),
    ("capsule", "capsule"): PairFunction(balls.capsule_capsule, 2, True),
    ("sphere", "box"): PairFunction(box.sphere_box, 1, True),
    ("capsule", "box"): PairFunction(box.capsule_box, 2, True),
    ("box", "box"): PairFunction(box_box, 8, True),
    **{
        pair: PairFunction(single_contact(*pair), 1, False)
        for pair in (
            ("sphere", "ellipsoid"),
            ("capsule", "ellipsoid"),
            ("ellipsoid", "ellipsoid"),
            ("ellipsoid", "cylinder"),
            ("ellipsoid", "box"),
        )
    },
    ("capsule", "cylinder"): PairFunction(several_contacts("capsule", "cylinder", 2), 3, False),
    ("cylinder", "cylinder"): PairFunction(several_contacts("cylinder", "cylinder", 4), 5, False),
    ("cylinder", "box"): PairFunction(several_contacts("cylinder", "box", 4), 5, False),
}


# Without changes of case within a width [m], for `uk.smooth_collisions`: (a, b, margin, width) -> Hit.
SMOOTH: dict[tuple[str, str], Callable[..., Hit]] = {
    ("plane", "cylinder"): plane.smooth_plane_cylinder,
    ("plane", "box"): plane.smooth_plane_box,
    ("sphere", "capsule"): balls.sphere_capsule,
    ("capsule", "capsule"): balls.smooth_capsule_capsule,
}


def pair_function(layout: PairLayout, group: PairGroup) -> Callable[[Shape, Shape, Array], Hit]:
    """The function of a group's pairs, smoothed where the model asks for it."""
    if layout.smoothing and group.types in SMOOTH:
        return partial(SMOOTH[group.types], width=layout.smoothing)
    return PAIRS[group.types].function


def chunk_of(group: PairGroup) -> int:
    """Pairs of a group examined together: few where each is costly."""
    return min(8 if PAIRS[group.types].exact else 2, group.slots)
