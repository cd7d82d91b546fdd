"""Every pair function against MuJoCo's own contacts, over random and degenerate poses."""

import itertools
import os

os.environ["JAX_ENABLE_X64"] = "1"

import jax
import mujoco
import numpy as np
import pytest

from tests.scenes.pairs import BATCH, MARGIN, Oracle, compare, evaluate, random_poses, random_shape, rotation, turn_x
from ukemi.collide.primitives import PAIRS
from ukemi.collide.shapes import Shape

jax.config.update("jax_enable_x64", True)


EXACT = [pair for pair, routine in PAIRS.items() if routine.exact]
CONVEX = [pair for pair, routine in PAIRS.items() if not routine.exact]


def ids(pairs):
    return ["-".join(pair) for pair in pairs]


@pytest.mark.parametrize("a, b", EXACT, ids=ids(EXACT))
@pytest.mark.parametrize("spread", [0.05, 0.25])
def test_same_contacts_as_mujoco(a, b, spread):
    assert compare(a, b, *random_poses(BATCH, spread, seed=1)) > 200


def grid_poses(n: int, seed: int) -> tuple[list[Shape], list[Shape]]:
    """Aligned poses whose coordinates are exact in binary, so that ties are exact too."""
    rng = np.random.default_rng(seed)
    turns = []
    for axes, signs in itertools.product(itertools.permutations(range(3)), np.ndindex(2, 2, 2)):
        turn = np.eye(3)[list(axes)] * (1 - 2 * np.array(signs))
        if np.linalg.det(turn) > 0:
            turns.append(turn)

    def draw():
        return Shape(rng.integers(-4, 5, 3) / 16, turns[rng.integers(24)], rng.choice([2, 3, 4], 3) / 16)

    return tuple([draw() for _ in range(n)] for _ in range(2))


@pytest.mark.parametrize("a, b", EXACT, ids=ids(EXACT))
def test_same_contacts_at_aligned_poses(a, b):
    shapes_a, shapes_b = grid_poses(BATCH, seed=2)
    if (a, b) == ("plane", "capsule"):
        # an upright capsule on a wall: MuJoCo's friction frame is singular there, ours is not
        keep = [
            abs(s.mat[:, 2] @ t.mat[:, 2]) < 0.5 or abs(s.mat[0, 2]) < 0.5
            for s, t in zip(shapes_a, shapes_b)
        ]
        shapes_a, shapes_b = (list(itertools.compress(x, keep)) for x in (shapes_a, shapes_b))
    if (a, b) == ("capsule", "box"):
        # an end exactly above an edge may give a second contact here, where MuJoCo gives one
        ends = [t.mat.T @ (s.pos - t.pos + k * s.size[1] * s.mat[:, 2])
                for s, t in zip(shapes_a, shapes_b) for k in (-1, 1)]
        at_rim = [np.any(abs(e) == shapes_b[i // 2].size) for i, e in enumerate(ends)]
        keep = [not (at_rim[2 * i] or at_rim[2 * i + 1]) for i in range(len(shapes_a))]
        shapes_a, shapes_b = (list(itertools.compress(x, keep)) for x in (shapes_a, shapes_b))
    assert compare(a, b, shapes_a, shapes_b) > 100


@pytest.mark.parametrize("angle", [0.0, 1e-12, 1e-8, 1e-5, 9e-5, 2e-4, 1e-2])
def test_same_contacts_of_nearly_parallel_capsules(angle):
    rng = np.random.default_rng(3)
    shapes_a, shapes_b = [], []
    for _ in range(100):
        axis, quat, tilt = rng.normal(size=3), np.zeros(4), np.zeros(9)
        mujoco.mju_axisAngle2Quat(quat, axis / np.linalg.norm(axis), angle)
        mujoco.mju_quat2Mat(tilt, quat)
        a, b = random_shape(rng, 0.0), random_shape(rng, 0.0)
        beside = np.array([a.size[0] + b.size[0], 0, rng.uniform(-0.4, 0.4)])
        shapes_a.append(a)
        shapes_b.append(Shape(a.mat @ beside, tilt.reshape(3, 3) @ a.mat, b.size))
    assert compare("capsule", "capsule", shapes_a, shapes_b) > 50


def support(kind: str, shape: Shape, direction: np.ndarray) -> float:
    """Support function about the shape's centre, written anew for the test."""
    x, y, z = shape.mat.T @ direction
    r = shape.size
    return {
        "sphere": lambda: r[0],
        "capsule": lambda: r[0] + r[1] * abs(z),
        "ellipsoid": lambda: np.linalg.norm(r * (x, y, z)),
        "cylinder": lambda: r[0] * np.hypot(x, y) + r[1] * abs(z),
        "box": lambda: r @ np.abs((x, y, z)),
    }[kind]()


@pytest.mark.parametrize("a, b", CONVEX, ids=ids(CONVEX))
def test_convex_depth_is_mujocos_or_better(a, b):
    shapes_a, shapes_b = random_poses(BATCH, 0.25, seed=5)
    hits = evaluate(a, b, shapes_a, shapes_b)
    oracle = Oracle(a, b)
    agree, shallow = 0, 0
    for i, (s, t) in enumerate(zip(shapes_a, shapes_b)):

        def separation(n, s=s, t=t):
            return n @ (t.pos - s.pos) - support(a, s, n) - support(b, t, n)

        ours, normal = hits.distance[i, 0], hits.frame[i, 0, 0]
        # the distance is what separates the shapes along the normal
        assert abs(ours - separation(normal)) < 1e-7
        # the other contacts are nowhere deeper than the first
        # (nearly parallel round walls: but for their curvature)
        assert np.all(hits.distance[i, 1:] > ours - 1e-4 * (a != "box" and b != "box") - 1e-7)
        distance, point, frame = oracle(s, t)
        if len(distance) == 0:
            assert ours > MARGIN - 1e-6
            continue
        deepest = np.argmin(distance)
        if distance[deepest] < -0.05:
            continue
        # no direction separates more: not MuJoCo's either
        theirs = separation(frame[deepest, 0])
        assert ours > theirs - 1e-6
        # MuJoCo's several contacts of cylinders do not always include the deepest point
        if abs(theirs - distance[deepest]) > 1e-6:
            continue
        shallow += 1
        agree += abs(ours - distance[deepest]) < 1e-6 and np.all(
            abs(normal - frame[deepest, 0]) < 1e-3
        )
    assert shallow > 50 and agree >= 0.98 * shallow


@pytest.mark.parametrize("a, b", [("capsule", "cylinder"), ("cylinder", "cylinder")])
def test_distance_where_lines_cross(a, b):
    """Of rods that lie across each other it is known, and is found to rounding although the search rounds edges."""
    rng, shapes_a, shapes_b, true = np.random.default_rng(7), [], [], []
    for _ in range(50):
        mat, angle, apart = rotation(rng), rng.uniform(0.3, np.pi - 0.3), rng.uniform(0.15, 0.25)
        size_a, size_b = (np.array([rng.uniform(0.08, 0.1), rng.uniform(0.2, 0.3), 0]) for _ in "ab")
        first, second = mat[:, 2], mat @ turn_x(angle)[:, 2]
        along = rng.uniform(-0.5, 0.5, 2) * (size_a[1], size_b[1])
        shapes_a.append(Shape(-along[0] * first, mat, size_a))
        shapes_b.append(Shape(apart * mat[:, 0] - along[1] * second, mat @ turn_x(angle), size_b))
        true.append(apart - size_a[0] - size_b[0])
    hits = evaluate(a, b, shapes_a, shapes_b)
    assert np.abs(hits.distance[:, 0] - true).max() < 1e-14


NOT_PLANE = [pair for pair in PAIRS if pair[0] != "plane" and pair != ("box", "box")]


@pytest.mark.parametrize("a, b", NOT_PLANE, ids=ids(NOT_PLANE))
def test_distance_of_separated_shapes(a, b):
    """The least distance is right also far beyond the margin."""
    shapes_a, shapes_b = random_poses(300, 0.5, seed=6)
    hits = evaluate(a, b, shapes_a, shapes_b)
    oracle, fromto, checked = Oracle(a, b), np.zeros(6), 0
    for i, (s, t) in enumerate(zip(shapes_a, shapes_b)):
        oracle(s, t)
        distance = mujoco.mj_geomDistance(oracle.model, oracle.data, 0, 1, 2.0, fromto)
        if distance > 1e-3:
            checked += 1
            assert abs(hits.distance[i].min() - distance) < 1e-6
    assert checked > 100


UP, LYING = np.eye(3), turn_x(np.pi / 2)


@pytest.mark.parametrize(
    "a, b, height, mat, points",
    [
        ("cylinder", "box", 0.2, UP, 3),
        ("cylinder", "box", 0.2, turn_x(1e-4), 3),
        ("cylinder", "box", 0.1, LYING, 2),
        ("cylinder", "cylinder", 0.2, UP, 3),
        ("cylinder", "cylinder", 0.1, LYING, 2),
        ("capsule", "cylinder", 0.1, LYING, 2),
    ],
)
def test_flat_contact_supports_the_weight(a, b, height, mat, points):
    """A shape that stands or lies on another one has contacts around its centre of mass."""
    depth, centre = 1e-3, np.array([0.02, 0.01])
    upper = Shape(np.array([*centre, 0.3 + height - depth]), mat, np.array([0.1, 0.2, 0.0]))
    lower = Shape(np.zeros(3), UP, np.array([0.25, 0.3, 0.3]))
    hit = jax.tree.map(lambda x: x[0], evaluate(a, b, [upper], [lower]))
    real = hit.distance < 0.0
    assert np.allclose(hit.distance[real], -depth, atol=2e-5)
    assert np.allclose(hit.frame[0, 0], [0, 0, -1], atol=1e-6)
    around = hit.point[real, :2] - centre
    if points == 3:  # the centre is well inside: from every side some contact is far out
        for angle in np.linspace(0, 2 * np.pi, 12):
            assert (around @ [np.cos(angle), np.sin(angle)]).max() > 0.05
    else:
        assert around[:, 1].max() > 0.15 and around[:, 1].min() < -0.15


@pytest.mark.parametrize("dtype, least, rounding", [(np.float64, -16.5, 1e-14), (np.float32, -7.5, 1e-6)])
def test_cylinder_stands_on_a_slope_with_any_tilt(dtype, least, rounding):
    """However small its tilt, and as deep as it says to rounding; MuJoCo finds none or far too deep contacts at tilts
    like rounding.
    """
    rng, shapes_a, shapes_b, lowest = np.random.default_rng(8), [], [], []
    for _ in range(BATCH):
        slope, quat, tilt = random_shape(rng, 1.0), np.zeros(4), np.zeros(9)
        axis, size = rng.normal(size=3), rng.choice([0.05, 0.1, 0.2], 3)
        mujoco.mju_axisAngle2Quat(quat, axis / np.linalg.norm(axis), 10.0 ** rng.uniform(least, -5))
        mujoco.mju_quat2Mat(tilt, quat)
        off = np.hypot(*tilt[[2, 5]])  # sine between the cylinder's axis and the normal
        lowest.append(-1e-3 + size[1] * off**2 / 2 - size[0] * off)
        shapes_a.append(slope)
        shapes_b.append(Shape(slope.pos + slope.mat[:, 2] * (size[1] - 1e-3), slope.mat @ tilt.reshape(3, 3), size))
    hits = evaluate("plane", "cylinder", shapes_a, shapes_b, dtype)
    nearest = np.sort(hits.distance, axis=1)[:, :3]
    assert np.allclose(nearest, -1e-3, atol=5e-6)
    assert np.abs(nearest[:, 0] - lowest).max() < rounding


@pytest.mark.parametrize(
    "a, b", [("plane", "box"), ("sphere", "capsule"), ("box", "box"), ("cylinder", "box")]
)
def test_float32_agrees(a, b):
    shapes_a, shapes_b = random_poses(300, 0.2, seed=7)
    double = evaluate(a, b, shapes_a, shapes_b)
    single = evaluate(a, b, shapes_a, shapes_b, np.float32)
    assert all(x.dtype == np.float32 and np.isfinite(x).all() for x in single)
    error = np.abs(np.sort(double.distance) - np.sort(single.distance)).max(axis=1)
    assert np.quantile(error, 0.97) < 2e-5
