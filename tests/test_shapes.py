"""The tables of shapes and of pairs: complete, in one place each, and open to shapes that sizes do not describe."""

import ast
from functools import partial
from itertools import combinations_with_replacement
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.pairs import frames
from ukemi.collide import primitives, response, shapes
from ukemi.collide.detect import Contacts
from ukemi.collide.hulls.features import Corners
from ukemi.collide.kinds import KINDS, OTHER
from ukemi.collide.near import bounding_capsules
from ukemi.collide.primitives import PAIRS, POLYTOPES, PairFunction
from ukemi.collide.shapes import Hit
from ukemi.collide.sweep import hull
from ukemi.files import support
from ukemi.files.solids import SOLIDS
from ukemi.model.records import PairGroup, PairLayout
from ukemi.view.scene import LOOKS

ROOT = Path(uk.__file__).parent
COLLIDING = [kind for kind in KINDS if kind not in ("hfield", "mesh", OTHER.name)]  # what sizes say all of
# Where kinds are named: the tables, two of them of what sensors ask of shapes, one of the ellipsoids that fluids feel.
TABLES = {"collide/kinds.py", "collide/primitives.py", "files/solids.py", "files/hulls.py", "view/scene.py"}
TABLES |= {"observe/ranges.py", "observe/zones.py", "mechanics/ellipsoids.py"}
# What else the word means: triangles, of which MuJoCo has tables, and recordings have some; what strings wrap around.
WORDS = {("mechanics/tendons/paths.py", "sphere"), ("view/inspect.py", "mesh"), ("view/replay.py", "mesh")}
WORDS |= {("files/looks.py", "mesh"), ("files/decomposing.py", "mesh")}
WORDS |= {(path, "hfield") for path in ("files/loading.py", "files/ranges.py", "view/inspect.py")}


def test_every_kind_has_an_inertia_and_a_picture():
    assert list(SOLIDS) == list(LOOKS) == list(KINDS)


def test_every_two_kinds_touch_or_are_none_that_may():
    for a, b in combinations_with_replacement(KINDS, 2):
        touch = a in COLLIDING and b in COLLIDING and not (KINDS[a].endless and KINDS[b].endless)
        assert ((a, b) in PAIRS) == touch, (a, b)
    assert len(PAIRS) == 20
    convex = [kind for kind in KINDS if kind not in ("plane", "hfield", OTHER.name)]
    assert {*POLYTOPES} == {(kind, "mesh") for kind in ("plane", *convex)} | {("hfield", kind) for kind in convex}


def words(path: Path) -> set[str]:
    """Strings of a module, and names of MuJoCo's types of geoms, as kinds are called here."""
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    strings = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    types = {node.attr for node in nodes if isinstance(node, ast.Attribute) and node.attr.startswith("mjGEOM_")}
    return strings | {name.removeprefix("mjGEOM_").lower() for name in types}


def test_no_other_module_names_a_kind():
    files = {path.relative_to(ROOT).as_posix(): words(path) for path in ROOT.rglob("*.py")}
    named = {(path, word) for path, found in files.items() for word in found & KINDS.keys()}
    assert {path for path, _ in named} >= TABLES
    assert not {(path, word) for path, word in named if path not in TABLES} - WORDS


@pytest.mark.parametrize("name", COLLIDING)
def test_bounds_and_corners_hold_the_convex_body(name):
    """A record agrees with itself: its body, the capsule around it and its corners reach as far as they should."""
    sizes = ".1 .2 .15"
    model = uk.load(f"<mujoco><worldbody><geom type='{name}' size='{sizes}'/></worldbody></mujoco>")
    n = np.random.default_rng(0).normal(size=(200, 3))
    body, (half, radius) = KINDS[name].convex, bounding_capsules(model)
    if body is None:
        assert KINDS[name].endless and not radius[0]
        return
    size = np.asarray(model.geoms.size[0], float)
    reach = body.reach(n, size)
    length = np.linalg.norm(n, axis=1)
    assert (reach <= np.abs(n @ half[0]) + radius[0] * length + 1e-12).all()
    assert (reach <= body.radius(size) * length + 1e-12).all() and reach.max() > 0.5 * body.radius(size)
    local = jax.tree.map(lambda x: x[0], hull.local_hulls(model)[0])
    np.testing.assert_allclose(jax.vmap(partial(hull.reach, None, local))(n) + local.radius * length, reach, rtol=1e-6)


def test_kinds_that_cannot_touch_are_refused_by_name(monkeypatch):
    m = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><geom name='slab' type='box' size='1 1 1'/><body><freejoint/>"
        "<geom name='can' type='cylinder' size='.1 .1'/></body></worldbody></mujoco>"
    )
    assert not support.unsupported(m)
    monkeypatch.setattr(support, "TOUCHING", set(support.TOUCHING) - {("cylinder", "box")})
    assert support.unsupported(m) == ["geom 'can': cylinder that may collide with box of geom 'slab'"]


# ---- a shape that sizes do not describe ------------------------------------------------------------------------------


NOTHING = uk.load("<mujoco/>")
NO_HULLS = NOTHING.pairs.layout.hulls


class Cloud(NamedTuple):
    """A shape with an array of its own after its size: points in its axes, as many as it likes."""

    pos: jax.Array
    mat: jax.Array
    size: jax.Array
    points: jax.Array  # (k, 3)


def plane_cloud(a: Cloud, b: Cloud, margin) -> Hit:
    """The lowest point of the second over the first, which is a plane."""
    corners = b.pos + b.points @ b.mat.T
    height = (corners - a.pos) @ a.mat[:, 2]
    lowest = jnp.argmin(height)
    distance, normal = height[lowest], a.mat[:, 2]
    return Hit(distance[None], (corners[lowest] - 0.5 * distance * normal)[None], normal[None])


def test_a_shape_may_carry_arrays_of_its_own(monkeypatch):
    """Derivatives of contacts reach arrays that no present kind has, forwards and backwards, as AD of the pair does."""
    monkeypatch.setitem(PAIRS, ("plane", "cloud"), PairFunction(plane_cloud, 1))
    assert primitives.PAIRS is PAIRS
    geoms, none = np.array([[0, 1]], np.int32), np.array([-1], np.int32)
    group = PairGroup(("plane", "cloud"), geoms, none, np.array([3]), 1)
    layout = PairLayout((group,), capacity=1, dim=3, hulls=NO_HULLS, adheres=False)
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    pos = jnp.array([[0, 0, 0], [0.1, 0.2, 0.3]])
    mat, size = jnp.stack([jnp.eye(3), jnp.asarray(turn)]), jnp.zeros((2, 3))
    every = Cloud(pos, mat, size, jnp.asarray(rng.normal(size=(2, 11, 3))))

    def touch(points):
        first, second = shapes.sides(every._replace(points=points), geoms)
        return jax.tree.map(lambda x: x[0], jax.vmap(partial(plane_cloud, margin=1.0))(first, second))

    hit = touch(every.points)
    no = jnp.array(False)
    where = hit.distance, hit.point, frames(hit)
    contacts = Contacts(jnp.array([True]), *where, *jnp.zeros((2, 1), jnp.int32), jnp.inf, jnp.zeros((1, 0)), None, no)
    still = Cloud(*(jnp.zeros_like(x) for x in every[:3]), every.points)

    def follow(points):
        none = Corners(jnp.zeros((0, 3)), NOTHING.heights)
        found = response.follow(layout, jnp.ones(1), every, still._replace(points=points), none, none, contacts)
        return found.distance, found.point

    way = jnp.asarray(rng.normal(size=every.points.shape))
    expected = jax.jvp(lambda p: tuple(touch(p)[:2]), (every.points,), (way,))[1]
    for mine, theirs in zip(follow(way), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-12)
    (pulled,) = jax.vjp(follow, way)[1]((jnp.ones(1), jnp.ones((1, 3))))
    (wanted,) = jax.vjp(lambda p: tuple(touch(p)[:2]), every.points)[1]((jnp.ones(1), jnp.ones((1, 3))))
    np.testing.assert_allclose(pulled, wanted, atol=1e-12)
    assert np.count_nonzero(wanted) == 3
