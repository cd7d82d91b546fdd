"""Times of impact of meshes: corners by brute force, closed forms, and MuJoCo's distances along the motion."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.derivatives import quick
from tests.scenes.rigid import toppling_cube
from ukemi.collide.sweep import meshes as sweep
from ukemi.collide.sweep.impacts import first_impact
from ukemi.mechanics.kinematics import integrate

SLOP = 1e-10
FREE = '<body pos="{}"><freejoint/><geom {}/></body>'


def cloud(seed: int, count: int, size=(0.1, 0.15, 0.2)) -> str:
    """Corners on an ellipsoid, all of which their hull has."""
    x = np.random.default_rng(seed).normal(size=(count, 3))
    return " ".join(map(str, (x / np.linalg.norm(x, axis=1)[:, None] * size).ravel()))


MESHES = {"few": cloud(0, 12), "some": cloud(1, 60), "many": cloud(2, 400)}
ASSETS = "".join(f'<mesh name="{name}" vertex="{given}"/>' for name, given in MESHES.items())
CUBE = " ".join(f"{x} {y} {z}" for x in (-0.125, 0.125) for y in (-0.125, 0.125) for z in (-0.125, 0.125))
PLANE = '<geom type="plane" size="9 9 1"/>'


def scene(*bodies: str, floor: str = "") -> str:
    option = '<option ccd_tolerance="1e-12" ccd_iterations="200"/>'
    return f"<mujoco>{option}<asset>{ASSETS}</asset><worldbody>{floor}{''.join(bodies)}</worldbody></mujoco>"


def mesh(name: str, place: str = "0 0 0") -> str:
    return FREE.format(place, f'type="mesh" mesh="{name}"')


def test_corners_are_those_of_brute_force():
    model = uk.load(scene(*(mesh(name, f"{k} 0 0") for k, name in enumerate(MESHES))))
    model = eqx.tree_at(lambda m: m.geoms.size, model, model.geoms.size * np.array([[1, 1, 1], [2, 1, 0.5], [1, 1, 1]]))
    hulls, rng = model.pairs.layout.hulls, np.random.default_rng(3)
    known, whole = sweep.meshes_of(model)
    assert known is not None and whole is not None

    @quick
    def found(mesh, n, but):
        return sweep.furthest(known, mesh, n, but)

    for geom, hull in enumerate(hulls.of):
        first, last = np.asarray(hulls.first)[hull : hull + 2] - len(hulls.fixed)
        own, scale = np.asarray(model.geoms.vertices)[first:last], np.asarray(model.geoms.size[geom])
        one = jax.tree.map(lambda x, g=geom: x[g], whole)
        assert one.bound >= np.linalg.norm(own * scale, axis=1).max() - 1e-12
        for n, way in zip(rng.normal(size=(20, 3)), rng.normal(size=(20, 3))):
            heights, along = own * scale @ n, own * scale @ way
            limit = np.quantile(along, rng.uniform(0.2, 0.9))
            best = heights.argmax()
            for cut, but, left in (
                (one, -1, heights),
                (one, first + best, np.delete(heights, best)),
                (one._replace(cut=jnp.asarray(scale * way), limit=limit), -1, heights[along < limit]),
            ):
                k, place, height = found(cut, n, but)
                assert abs(height - left.max()) < 1e-14 and abs(place @ n - height) < 1e-14 and k != but
                np.testing.assert_allclose(place, (own * scale)[k - first], atol=1e-15)
        nothing = one._replace(cut=jnp.asarray(scale * [0, 0, 1]), limit=jnp.asarray(-9.0))
        assert found(nothing, np.ones(3), -1)[2] == -np.inf


BOX = FREE.format("9 9 9", 'type="box" size=".1 .1 .1"')
ZOO = scene(*(mesh(name, f"{9 * k} 9 9") for k, name in enumerate(MESHES)), BOX, floor=PLANE)
SHAPES = ["plane", *MESHES, "box"]


@functools.cache
def zoo():
    """The model, its oracle, and times of impact of given pairs."""
    model = uk.load(ZOO)

    @quick
    def run(q, v, ignore):
        return first_impact(model, q, v, 0.05, ignore=ignore)

    @quick
    def poses(q, v, times):
        return jax.vmap(lambda t: integrate(model.tree, q, v, t))(times)

    return model, mujoco.MjModel.from_xml_string(ZOO), run, poses


@pytest.mark.parametrize("a, b", [("many", "some"), ("few", "some"), ("many", "box"), ("plane", "some")])
def test_no_impact_of_meshes_is_missed_or_made_up(a, b):
    """Against distances at 300 times: before `time` nothing touches, at `time` the distance is the slop."""
    (model, oracle, run, poses), geoms = zoo(), sorted(SHAPES.index(k) for k in (a, b))
    data, rng, hits = mujoco.MjData(oracle), np.random.default_rng(len(a + b)), 0
    ignore = (np.sort(model.pairs.layout.geoms) != geoms).any(1)

    def apart(q) -> float:
        data.qpos[:] = q
        mujoco.mj_kinematics(oracle, data)
        return mujoco.mj_geomDistance(oracle, data, *geoms, 100.0, None)

    for _ in range(8):
        q, v = np.array(model.joints.qpos0).reshape(-1, 7), np.zeros((model.nv // 6, 6))
        way = np.array([0, 0, 1.0]) if a == "plane" else rng.normal(size=3)
        way = way / np.linalg.norm(way)
        for geom, place in zip(geoms, (0 * way, 0.7 * way)):
            if geom:
                turn = rng.normal(size=4)
                q[geom - 1] = [*place, *(turn / np.linalg.norm(turn))]
                v[geom - 1] = rng.normal(size=6) * [3, 3, 3, 20, 20, 20]
        v[geoms[1] - 1, :3] -= rng.uniform(10, 40) * way
        q, v = q.ravel(), v.ravel()
        found = run(q, v, ignore)
        assert not found.exhausted and int(found.iterations) <= 24
        times = np.linspace(0, 0.05, 300)
        assert min(map(apart, np.asarray(poses(q, v, times))[times < float(found.time)])) > -1e-8
        if found.found:
            hits += 1
            assert abs(apart(np.asarray(poses(q, v, np.asarray(found.time)[None]))[0]) - SLOP) < 1e-9
    assert hits >= 3


def test_corners_are_not_copied_for_each_pair():
    """A search holds less than what the corners of the largest mesh would take as often as there are rows to watch."""
    model, _, run, _ = zoo()
    pairs = len(model.pairs.layout.geoms)
    program = run.lower(model.joints.qpos0, jnp.zeros(model.nv), jnp.zeros(pairs, bool)).compile()
    assert program.memory_analysis().temp_size_in_bytes < 2 * pairs * 400 * 3 * 8


def test_a_cube_topples_from_its_edge_onto_its_face():
    """The edge in touch is the contact law's: the corners that are left out are those at the edge."""
    asset = f'<asset><mesh name="cube" vertex="{CUBE}"/></asset>'
    model = uk.load(f"<mujoco>{asset}<worldbody>{PLANE}{mesh('cube')}</worldbody></mujoco>")
    height, quat, twist, time = toppling_cube(0.125, SLOP)
    found = quick(lambda q, v: first_impact(model, q, v, 0.01))(jnp.array([0, 0, height, *quat]), jnp.array(twist))
    assert found.found and not found.exhausted and abs(found.time - time) < 1e-13
