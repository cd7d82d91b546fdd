"""The table of pairs: which routine finds the contacts of which two kinds of shapes."""

from collections.abc import Callable
from functools import partial
from itertools import combinations_with_replacement, groupby
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.collide.hulls.ground import most
from ukemi.collide.hulls.touching import SEVERAL
from ukemi.collide.kinds import KINDS
from ukemi.collide.pairs import balls, box, plane
from ukemi.collide.pairs.box_box import box_box, by_faces
from ukemi.collide.pairs.manifold import convex_contacts
from ukemi.collide.shapes import Hit, Shape
from ukemi.model.records import PairGroup, PairLayout
from ukemi.xla.batches import abreast


class PairFunction(NamedTuple):
    """How the contacts of one pair of kinds are found."""

    function: Callable[[Shape, Shape, Array], Hit]  # (a, b, margin [m]) -> Hit, unbatched
    points: int  # number of slots in the Hit, static
    smooth: Callable[..., Hit] | None = None  # (a, b, margin, width [m]), without changes of case
    exact: bool = True  # analytic, with the very contact set of MuJoCo
    partners: int = 1  # that one shape typically is near to at once
    wanders: bool = False  # whether its slots are not always the same places of the shapes
    axial: bool = False  # whether the first tangents of its contacts follow an axis of a shape
    recall: Callable[[Shape, Shape, Hit], Any] | None = None  # what `function` takes for `known`, of its first contact
    steadied: bool = False  # `known` says whether they touch with what does not jump as they turn


# Those with a routine of their own. The normal of a contact points from a to b.
_OWN: dict[tuple[str, str], PairFunction] = {
    ("plane", "sphere"): PairFunction(plane.plane_sphere, 1),
    ("plane", "capsule"): PairFunction(plane.plane_capsule, 2, axial=True),
    ("plane", "ellipsoid"): PairFunction(plane.plane_ellipsoid, 1),
    ("plane", "cylinder"): PairFunction(plane.plane_cylinder, 4, plane.smooth_plane_cylinder, wanders=True),
    ("plane", "box"): PairFunction(plane.plane_box, 4, plane.smooth_plane_box, wanders=True),
    ("sphere", "sphere"): PairFunction(balls.sphere_sphere, 1, partners=3),  # they pack closely
    ("sphere", "capsule"): PairFunction(balls.sphere_capsule, 1, balls.sphere_capsule),
    ("sphere", "cylinder"): PairFunction(balls.sphere_cylinder, 1),
    ("capsule", "capsule"): PairFunction(balls.capsule_capsule, 2, balls.smooth_capsule_capsule),
    ("sphere", "box"): PairFunction(box.sphere_box, 1),
    ("capsule", "box"): PairFunction(box.capsule_box, 2, wanders=True),
    ("box", "box"): PairFunction(box_box, 8, wanders=True, recall=by_faces, steadied=True),
}


def _pairs() -> dict[tuple[str, str], PairFunction]:
    """All pairs in the order of kinds; two convex ones without a routine of their own take that of any two."""
    found = {}
    for a, b in combinations_with_replacement(KINDS.values(), 2):
        key = a.name, b.name
        if key in _OWN:
            found[key] = _OWN[key]
        elif a.convex and b.convex:
            function, points, recall = convex_contacts((a, b))
            found[key] = PairFunction(function, points, exact=False, wanders=True, recall=recall)
    return found


def _polytopes() -> dict[tuple[str, str], int]:
    """How many contacts pairs with a mesh have at the most, in the order of kinds; with each prism of a field, one."""
    found = {("plane", "mesh"): SEVERAL}
    for kind in KINDS.values():
        if kind.ground:
            found |= {(kind.name, other.name): 1 for other in KINDS.values() if other.side and not other.ground}
        elif kind.side:
            found[kind.name, "mesh"] = SEVERAL if kind.side.flat or kind.side.line else 1
    return found


PAIRS = _pairs()
# Pairs whose contacts follow from the corners that touch (`hulls`).
POLYTOPES = _polytopes()
# What is in neither table cannot touch: loading refuses it by name.
TOUCHING = (*PAIRS, *POLYTOPES)
PRIMITIVE = frozenset(kind for pair in PAIRS for kind in pair)  # what sizes say all of
COLLIDING = frozenset(kind for pair in TOUCHING for kind in pair)


def points_of(group: PairGroup) -> int:
    """Slots for contacts of a pair of a group."""
    if KINDS[group.types[0]].ground:
        return most(group.cells)
    return POLYTOPES[group.types] if group.types in POLYTOPES else PAIRS[group.types].points


def partners_of(types: tuple[str, str]) -> int:
    """How many partners a shape is near to at once, typically."""
    return PAIRS[types].partners if types in PAIRS else 1


def wanders(types: tuple[str, str]) -> bool:
    """Whether slots of a pair of kinds are not always the same places of the shapes."""
    return types in POLYTOPES and not KINDS[types[0]].ground or types in PAIRS and PAIRS[types].wanders


def pair_function(layout: PairLayout, group: PairGroup) -> Callable[[Shape, Shape, Array], Hit]:
    """The function of a group's pairs, smoothed where the model asks for it."""
    pair = PAIRS[group.types]
    return partial(pair.smooth, width=layout.smoothing) if layout.smoothing and pair.smooth else pair.function


# ---- groups of pairs that one program examines -----------------------------------------------------------------------


def is_ground(group: PairGroup) -> bool:
    """Whether its first shapes are height fields."""
    return KINDS[group.types[0]].ground


def is_flat(group: PairGroup) -> bool:
    """Whether its first shapes are planes."""
    return KINDS[group.types[0]].endless


def is_axial(layout: PairLayout) -> bool:
    """Whether the first tangents of some contacts follow an axis of a shape."""
    return any(group.types in PAIRS and PAIRS[group.types].axial for group in layout.groups)


def is_searched(group: PairGroup) -> bool:
    """Whether its shapes are two polytopes, for which what is nearest is searched for."""
    return group.types in POLYTOPES and not is_flat(group) and not is_ground(group)


def is_steadied(types: tuple[str, str]) -> bool:
    """Whether two kinds can be told to touch with what does not jump as they turn."""
    return types in PAIRS and PAIRS[types].steadied


def is_general(types: tuple[str, str]) -> bool:
    """Whether the routine for any two convex kinds is theirs."""
    return types in PAIRS and not PAIRS[types].exact


def families(layout: PairLayout, groups: list[int]) -> list[list[int]]:
    """Groups that are examined by one routine: all of convex shapes for which there is the general one alone, and all
    of polytopes that are searched for what is nearest. They come one after another.

    Both are long, and so is the time to compile them, which one copy takes instead of one for each kind.
    """

    def routine(g: int):
        group = layout.groups[g]
        return "general" if is_general(group.types) else "searched" if is_searched(group) else g

    return [list(own) for _, own in groupby(groups, routine)]


def bundles(layout: PairLayout, every: list[list[int]]) -> list[list[list[int]]]:
    """Families that one loop goes over: where pairs are looked at one by one, all that are not searches or grounds.

    Each loop has a list of its own, and what writes into it: as much to compile as a simple pair's routine.
    """
    if abreast(2) > 1:
        return [[family] for family in every]

    def alone(family: list[int]) -> int:
        group = layout.groups[family[0]]
        return family[0] if is_searched(group) or is_ground(group) else -1

    return [list(own) for _, own in groupby(every, alone)]


def place_in_bundle(layout: PairLayout, bundle: list[list[int]], pair: Array) -> Array:
    """Which family of a bundle pairs (...) belong to."""
    return kind_in(layout, [family[0] for family in bundle], pair)


def kind_in(layout: PairLayout, family: list[int], pair: Array) -> Array:
    """Which group of a family pairs (...) belong to."""
    firsts = np.array([layout.first[g] for g in family[1:]], np.int32)
    return (jnp.asarray(pair)[..., None] >= firsts).sum(-1)


def family_function(layout: PairLayout, family: list[int]) -> tuple[Callable[..., Hit], Callable[..., Any] | None]:
    """The function of a family's pairs, of (a, b, margin, kind); and, if it searches or chooses, one of (a, b, hit,
    kind) for what it takes for `known`, so that it need not, of the first contact that it found.
    """
    groups = [layout.groups[g] for g in family]
    if is_general(groups[0].types):
        kinds = [(KINDS[a], KINDS[b]) for a, b in (group.types for group in groups)]
        function, _, recall = convex_contacts(*kinds)
        return function, recall
    own, recall = pair_function(layout, groups[0]), PAIRS[groups[0].types].recall
    of_own = recall and (lambda a, b, hit, kind: recall(a, b, hit))
    return lambda a, b, margin, kind, **known: own(a, b, margin, **known), of_own


def go_with_both(layout: PairLayout, family: list[int]) -> bool:
    """Whether contacts of a family's pairs go with both shapes where these move as one: not those along two tangents,
    which the world's axes choose (`manifold._lines`).
    """
    return not is_general(layout.groups[family[0]].types) or points_in(layout, family) <= 3


def points_in(layout: PairLayout, family: list[int]) -> int:
    """Slots for contacts of a pair of a family."""
    return max(points_of(layout.groups[g]) for g in family)


def chunk_in(layout: PairLayout, family: list[int]) -> int:
    """Pairs of a family examined together: few where each is costly."""
    groups = [layout.groups[g] for g in family]
    if groups[0].types in POLYTOPES:
        return 1
    return min(abreast(8 if PAIRS[groups[0].types].exact else 2), sum(group.slots for group in groups))
