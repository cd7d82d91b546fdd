"""Boxes that rest on one another: contacts where faces and edges nearly coincide, and the next states of stacks."""

import mujoco
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.agreement import BOUNDS, compare_states
from tests.scenes.pairs import BATCH, compare, random_shape, rotation, turn_x
from tests.scenes.states import Sample, converged
from ukemi.collide.shapes import Shape

SIZES = (0.05, 0.1, 0.2)


def turned(axis, angle: float) -> np.ndarray:
    quat, mat = np.zeros(4), np.zeros(9)
    mujoco.mju_axisAngle2Quat(quat, np.asarray(axis, float) / np.linalg.norm(axis), angle)
    mujoco.mju_quat2Mat(mat, quat)
    return mat.reshape(3, 3)


def on_top(rng, size, size_b, turn, shift, height, along: bool = False) -> tuple[Shape, Shape]:
    """A box and another one above it, anywhere in the world; `along` its axes or not."""
    world = np.eye(3) if along else rotation(rng)
    below = Shape(rng.uniform(-1, 1, 3), world, size)
    return below, Shape(below.pos + world @ (*shift, height), world @ turn, size_b)


@pytest.mark.parametrize("angle", [1e-12, 1e-10, 1e-8, 1e-5, 1e-2])
def test_same_contacts_of_boxes_that_nearly_coincide(angle):
    """Edges that coincide but for a small turn cross somewhere: a contact there, however small the turn."""
    rng, pairs = np.random.default_rng(11), []
    for k in range(BATCH):
        size = rng.choice(SIZES, 3)
        turn = turned([0, 0, 1], rng.choice([-1, 1]) * rng.uniform(0.5, 1) * angle)
        shift = [(0, 0), (0.01, 0), (0, 0.02), (0.01, 0.03)][k % 4]
        pairs.append(on_top(rng, size, size, turn, shift, 2 * size[2] - 1e-4, along=k % 8 < 4))
    # where they cross is known only to rounding by angle, in MuJoCo as here
    assert compare("box", "box", *map(list, zip(*pairs)), tol=1e-9 + 1e-14 / angle) > 5 * BATCH


def touching(rng, case: str, tilt: float) -> tuple[Shape, Shape]:
    """Two boxes that overlap a little, in one of the ways that settle, but for a random tilt."""
    a, b = rng.choice(SIZES, 3), rng.choice(SIZES, 3)
    wobble = turned(rng.normal(size=3), tilt)
    shift, upright, edge = rng.uniform(-0.04, 0.04, 2), turn_x(np.pi / 4), (b[1] + b[2]) * 0.5**0.5
    if case == "face":
        return on_top(rng, a, b, wobble, shift, a[2] + b[2] - 1e-4)
    if case == "deep face":
        return on_top(rng, a, b, wobble, shift, a[2] + b[2] - 0.04)
    if case == "face within":
        b = a * rng.uniform(0.2, 0.9)
        return on_top(rng, a, b, wobble, (0, 0), a[2] + b[2] - 1e-4)
    if case == "face, an eighth turn":
        return on_top(rng, a, a, turned([0, 0, 1], np.pi / 4) @ wobble, (0, 0), 2 * a[2] - 1e-4)
    if case == "edge on face":
        return on_top(rng, a, b, upright @ wobble, shift, a[2] + edge - 1e-3)
    if case == "corner on face":
        down = np.zeros(4), np.zeros(9)
        mujoco.mju_quatZ2Vec(down[0], b / np.linalg.norm(b))
        mujoco.mju_quat2Mat(down[1], down[0])
        return on_top(rng, a, b, down[1].reshape(3, 3).T @ wobble, shift, a[2] + np.linalg.norm(b) - 1e-3)
    below = random_shape(rng, 0.5)._replace(size=a)  # edge on edge, crossing
    other = turned([0, 0, 1], np.pi / 2) @ upright @ wobble
    above = below.pos + below.mat @ (*shift, (a[1] + a[2]) * 0.5**0.5 + edge - 1e-3)
    return below._replace(mat=below.mat @ upright), Shape(above, below.mat @ other, b)


CASES = ["face", "deep face", "face within", "face, an eighth turn", "edge on face", "corner on face", "edges crossing"]


@pytest.mark.parametrize("tilt", [0.0, 1e-15, 1e-12, 1e-9, 1e-6, 1e-3])
def test_same_contacts_of_boxes_at_rest(tilt):
    rng = np.random.default_rng(12)
    pairs = [touching(rng, CASES[k % len(CASES)], tilt) for k in range(BATCH)]
    assert compare("box", "box", *map(list, zip(*pairs))) > 2 * BATCH


def stack_of(n: int, offset: float, tilt: float) -> mujoco.MjModel:
    """Boxes on a floor, every other one moved aside by `offset` and all turned by multiples of `tilt`."""
    bodies = "".join(
        f'<body pos="{offset * (k % 2)} 0 {0.1 + 0.1999 * k}" euler="{tilt * (k % 2)} {tilt * (k // 2)} {3 * tilt * k}"'
        '><freejoint/><geom type="box" size=".1 .1 .1"/></body>'
        for k in range(n)
    )
    return mujoco.MjModel.from_xml_string(
        '<mujoco><compiler angle="radian"/><option integrator="implicitfast"/><worldbody>'
        f'<geom type="plane" size="0 0 1"/>{bodies}</worldbody></mujoco>'
    )


@pytest.mark.parametrize("offset, tilt", [(0.01, 0.0), (0.03, 1e-3)])
def test_next_states_of_a_stack_that_settles(offset, tilt):
    """From each state of MuJoCo's run: trajectories of stacks part by themselves, next states must not."""
    m, samples = stack_of(3, offset, tilt), []
    d = mujoco.MjData(m)
    nothing = (np.zeros(m.nv), np.zeros((m.nbody, 6)), np.zeros((0, 3)), np.zeros((0, 4)))
    for _ in range(200):
        mujoco.mj_step(m, d)
        now = (d.qpos, d.qvel, d.act, d.ctrl, d.qacc_warmstart)
        samples.append(Sample(*(np.array(x) for x in now), *nothing))
    report = compare_states(converged(m), uk.load(m), samples)
    assert report.lost == report.overflow == report.unsolved == 0 and report.contacts > 2000
    assert all(error < BOUNDS[stage] for stage, error in report.errors.items()), report


def test_same_contact_of_nearly_parallel_edges():
    """Where the two lines cross is rounding: as in MuJoCo, the contact is near the middle of the first edge."""
    rng, sit = np.random.default_rng(9), turn_x(np.pi / 4)
    shapes_a, shapes_b = [], []
    for _ in range(BATCH):
        a, b = (np.array([length, width, width]) for length, width in rng.uniform(0.05, 0.3, (2, 2)))
        up = np.array([rng.uniform(-0.1, 0.1), 0.0, (a[1] + b[1]) * 2**0.5 + rng.choice([1e-4, 1e-2])])
        shapes_a.append(Shape(np.zeros(3), sit, a))
        shapes_b.append(Shape(up, turned(np.array([0.0, 0.0, 1.0]), rng.uniform(1.2e-8, 2.4e-8)) @ sit, b))
    assert compare("box", "box", shapes_a, shapes_b, tol=1e-6) > 200
