"""Meshes as their hulls: distances against exhaustive search, contacts and steps against MuJoCo."""

import itertools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukemi as uk
from tests.scenes import hulls as scenes
from tests.scenes.exact import off_surface, solid
from ukemi.collide.hulls.search import search
from ukemi.collide.hulls.support import Body
from ukemi.files import hulls
from ukemi.mechanics.kinematics import geom_frames, kinematics

# ---- distances -------------------------------------------------------------------------------------------------------


def exact(A: np.ndarray, B: np.ndarray) -> float:
    """Signed distance of the hulls of two sets of points: that of the origin from the hull of their differences."""
    spatial = pytest.importorskip("scipy.spatial")
    D = (B[:, None] - A).reshape(-1, 3)
    scale = np.abs(D).max()
    hull = spatial.ConvexHull(D / scale, qhull_options="Qt")
    depth = hull.equations[:, 3].max()
    if depth <= 0:
        return depth * scale
    P = D[hull.simplices] / scale
    n = np.cross(P[:, 1] - P[:, 0], P[:, 2] - P[:, 0])
    area = np.maximum((n * n).sum(-1), 1e-300)
    share = [(np.cross(P[:, i], P[:, j]) * n).sum(-1) / area for i, j in ((1, 2), (2, 0), (0, 1))]
    inside = np.all(np.array(share) >= 0, 0) & (area > 1e-24)
    heights = np.abs((n * P[:, 0]).sum(-1)) / np.sqrt(area)
    edges = []
    for i, j in ((0, 1), (1, 2), (2, 0)):
        along = P[:, j] - P[:, i]
        t = np.clip(-(P[:, i] * along).sum(-1) / np.maximum((along * along).sum(-1), 1e-300), 0, 1)
        edges.append(np.linalg.norm(P[:, i] + t[:, None] * along, axis=1).min())
    return min([*edges, *heights[inside]]) * scale


RNG = np.random.default_rng(0)
SOLIDS = [hulls.box(), hulls.rod(), hulls.point()]
SOLIDS += [scenes.polytope(RNG, RNG.normal(size=(n, 3)) * RNG.uniform(0.2, 1, 3)) for n in (4, 5, 6, 8, 12, 20, 40)]
TABLE, FREE = hulls.joined(np.zeros(1), SOLIDS[:3], SOLIDS[3:])
CORNERS = np.concatenate([TABLE.fixed, FREE])


@jax.jit
def nearest(a: Body, b: Body, size):
    return search(TABLE, jnp.asarray(CORNERS), a, b, jnp.asarray(1e9), jnp.array([0.0, 0, 1]), size)


def rotation(rng) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(3, 3)))[0]


def placed(rng, which: int, scale: np.ndarray, place: np.ndarray, turn: np.ndarray) -> tuple[Body, np.ndarray]:
    body = Body(jnp.asarray(place), jnp.asarray(turn), jnp.asarray(scale), None, jnp.zeros(()), jnp.int32(which))
    return body, SOLIDS[which].corners * scale @ turn.T + place


KINDS = ("any", "small", "flat", "needle", "aligned", "touching")


@pytest.mark.parametrize("kind", KINDS)
def test_distances_are_exact(kind):
    check_distances(kind, 25)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_distances_are_exact_for_many(kind):
    check_distances(kind, 1700)


def check_distances(kind: str, count: int):
    """Touching, deep, coplanar, edge on edge, flat, needles, sizes 1e3 apart: to 1e-9 of an exhaustive search."""
    rng = np.random.default_rng(sum(map(ord, kind)))
    for _ in range(count):
        which = rng.integers(len(SOLIDS)), rng.integers(3, len(SOLIDS))
        sizes = rng.uniform(0.3, 1.5, (2, 3))
        turns = [rotation(rng), rotation(rng)]
        place = rng.normal(size=3) * rng.choice([0.2, 1, 2.5])
        if kind == "small":
            sizes[0] *= 1e-3
        if kind == "flat":
            which, sizes[1, 2] = (rng.choice([0, 3, 8]), which[1]), 0.0
        if kind == "needle":
            sizes[0, :2] *= 1e-3
        if kind in ("aligned", "touching"):
            which, turns = (0, 0), [np.eye(3), rotation(rng) if kind == "touching" else np.eye(3)]
            sizes, place = np.round(sizes, 1) + 0.1, np.round(place, 1)
        a, A = placed(rng, int(which[0]), sizes[0], np.zeros(3), turns[0])
        b, B = placed(rng, int(which[1]), sizes[1], place, turns[1])
        if kind == "touching":  # corner on face
            lowest = B[:, 2].min()
            b, B = placed(rng, int(which[1]), sizes[1], place + [0, 0, sizes[0, 2] - lowest], turns[1])
        size = np.abs(A).max() + np.abs(B).max()
        found = nearest(a, b, jnp.asarray(size))
        n = np.array(found.normal)
        value = (B @ n).min() - (A @ n).max()
        assert not found.failed
        assert abs(value - exact(A, B)) < 1e-9 * max(1, size), (kind, which, value, exact(A, B))


def test_overlap_of_faces_ends_over_the_origin():
    """Of the faces in one plane, by which the depth is the same, the search ends with that which holds the nearest
    point: with another, weights are negative, and a contact that stands for it lies beside the shapes.
    """
    rng = np.random.default_rng(3)
    for _ in range(100):
        turn, angle, sizes = rotation(rng), rng.uniform(0, 2 * np.pi), rng.uniform(0.3, 1.5, (2, 3)) + [0, 0, 1]
        spin = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
        a, A = placed(rng, 0, sizes[0], np.zeros(3), turn)
        b, B = placed(rng, 0, sizes[1], turn @ [*rng.uniform(-1, 1, 2), sizes[:, 2].sum() - 0.05], turn @ spin)
        found = nearest(a, b, jnp.asarray(np.abs(A).max() + np.abs(B).max()))
        if found.inside:
            assert found.weight.min() >= 0


# ---- contacts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("corners", ["cube", "cloud"])
def test_contacts_agree_with_mujoco(corners):
    """Equal numbers of contacts nearly always, at the same places, and round shapes at the exact distance.

    Which faces, in what order they are cut, and which four corners of a larger overlap stay. Where areas tie, as among
    right angles, rounding decides which; sides of cylinders and capsules lie along faces elsewhere.
    """
    rng = np.random.default_rng(1)
    m = scenes.scene(rng, scenes.CUBE if corners == "cube" else scenes.cloud(rng, 60))
    d, model = mujoco.MjData(m), uk.load(m)
    counts = {kind: [0, 0, 0] for kind in scenes.SHAPES}
    for kind, _ in itertools.product(scenes.SHAPES, range(60)):
        q = scenes.meeting(rng, m, kind, rng.random() < 0.6)
        d.qpos[:] = q
        mujoco.mj_forward(m, d)
        mine = scenes.contacts(model, q)
        assert not mine.failed and not mine.overflow
        n = int(mine.active.sum())
        tally = counts[kind]
        if not d.ncon:  # MuJoCo's own search gives up on one in some hundreds
            continue
        tally[0] += 1
        tally[1] += n == d.ncon
        theirs = sorted((c.dist, *c.pos, *c.frame[:3]) for c in d.contact)
        if n == d.ncon:
            ours = sorted((x, *p, *f[0]) for x, p, f in zip(mine.distance[:n], mine.point[:n], mine.frame[:n]))
            close = np.abs(np.array(theirs) - np.array(ours))
            tally[2] += bool((close < np.repeat([1e-6, 1e-5, 1e-4], [1, 3, 3])).all())
        if kind in ("sphere", "ellipsoid"):  # of others one may be what is left of two faces
            true = scenes.distance(m, d)
            assert true.upper - true.lower < 1e-9 and abs(mine.distance[0] - true.lower) < 1e-8
        # the deepest point is never less deep than MuJoCo's by more than the angle between normals explains
        assert n and float(mine.distance[:n].min()) < theirs[0][0] * 0.95
    for kind, (all_of, same, equal) in counts.items():
        least = {"capsule": 0.85, "cylinder": 0.85}.get(kind, 1.0)
        assert all_of > 30 and same >= least * all_of, (kind, all_of, same)
        least = {"capsule": 0.75, "cylinder": 0.65, "box": 0.85}.get(kind, 1.0)
        assert equal >= least * same, (kind, same, equal)
    everything = np.sum([*counts.values()], 0)
    assert everything[1] >= 0.95 * everything[0]


def test_uneven_faces_are_where_mujoco_has_them():
    """A cube's, flat to some 1e-5 only, on a prism: of more than four corners the same four, to rounding of corners.

    Planes go through the last corner of a face, and normals are from before corners were rounded.
    """
    rng = np.random.default_rng(4)
    ring = np.array([(np.cos(t), np.sin(t), z) for z in (-0.5, 0.5) for t in (0, 1.1, 2.3, 3.4, 4.9)])
    body = '<body pos="0 0 {}"><freejoint/><geom type="mesh" mesh="{}" mass="1"/></body>'
    m = mujoco.MjModel.from_xml_string(
        f"""<mujoco><option ccd_tolerance="1e-12" ccd_iterations="200"/><asset>
        {scenes.asset("cube", scenes.CUBE + 1e-5 * rng.normal(size=(8, 3)))}{scenes.asset("prism", 0.07 * ring)}</asset>
        <worldbody>{body.format(0, "cube")}{body.format(1, "prism")}</worldbody></mujoco>"""
    )
    assert m.mesh_polynum.tolist() == [6, 7]
    d, model, many = mujoco.MjData(m), uk.load(m), 0
    for _ in range(60):
        turn = rng.normal()
        d.qpos[7:10] = *(0.06 * rng.normal(size=2)), rng.uniform(0.105, 0.113)
        d.qpos[10:] = np.array([np.cos(turn), 0, 0, np.sin(turn)]) + 0.005 * rng.normal(size=4)
        mujoco.mj_forward(m, d)
        mine = scenes.contacts(model, d.qpos.copy())
        ours = sorted((x, *p, *f[0]) for a, x, p, f in zip(mine.active, mine.distance, mine.point, mine.frame) if a)
        theirs = sorted((c.dist, *c.pos, *c.frame[:3]) for c in d.contact)
        np.testing.assert_allclose(np.array(ours), np.array(theirs), atol=1e-8)
        many += len(ours) == 4
    assert many > 20


def test_caps_of_cylinders_on_faces_are_where_mujoco_has_them():
    """Up to 5° from each other: all contacts, at either cap, also where the search's normal is further from both."""
    rng = np.random.default_rng(6)
    m = scenes.scene(rng, scenes.cloud(rng, 12), kinds=("cylinder",))
    d, model, seen = mujoco.MjData(m), uk.load(m), 0
    while seen < 30:
        d.qpos[:] = q = scenes.meeting(rng, m, "cylinder", rng.random() < 0.5)
        mujoco.mj_forward(m, d)
        axis = d.xmat[m.body("cylinder").id].reshape(3, 3)[:, 2]
        if d.ncon < 3 or abs(axis @ d.contact[0].frame[:3]) < 0.9:
            continue
        seen += 1
        mine = scenes.contacts(model, q)
        ours = np.column_stack([mine.distance, mine.point])[np.array(mine.active)]
        theirs = np.array([(c.dist, *c.pos) for c in d.contact])
        gaps = np.abs(ours[:, None] - theirs).max(-1)  # which of them is there twice, rounding decides
        assert len(ours) == len(theirs) and max(gaps.min(0).max(), gaps.min(1).max()) < 1e-8


def test_frames_that_are_one_to_mujoco_are_one():
    """A shape that is turned and offset by some 1e-7 against its body's inertia is where that is."""
    m = mujoco.MjModel.from_xml_string("""<mujoco><worldbody><body pos=".1 .2 .3"><freejoint/>
        <inertial pos=".1 -.2 .3" quat=".9 .3 -.1 .2" mass="1" diaginertia=".1 .2 .25"/>
        <geom type="box" size=".1 .2 .3" pos=".10000002 -.2 .3" quat=".9000003 .2999998 -.1 .2"/>
        <site pos="2e-8 0 0" quat="1 2e-7 0 0"/></body></worldbody></mujoco>""")
    assert m.geom_sameframe[0] and m.site_sameframe[0]
    d, model = mujoco.MjData(m), uk.load(m)
    mujoco.mj_kinematics(m, d)
    pos, mat = geom_frames(model, kinematics(model, d.qpos.copy()))
    np.testing.assert_allclose(pos, d.geom_xpos, atol=1e-15)
    np.testing.assert_allclose(mat.reshape(-1, 9), d.geom_xmat, atol=1e-15)
    assert (np.array(model.sites.pos) == 0).all() and (np.array(model.sites.quat[0, 1:]) == 0).all()


def test_meshes_on_a_plane_step_as_mujoco():
    """Lowest corner and three more of the face that is most level, below the middle: next velocity to 1e-9.

    A tetrahedron deep in a floor has a corner above its middle on its most level face.
    """
    rng = np.random.default_rng(0)
    body = '<body><freejoint/><geom type="mesh" mesh="{}" mass="1" contype="2"/></body>'
    m = mujoco.MjModel.from_xml_string(
        f"""<mujoco><asset>{scenes.asset("m", scenes.cloud(rng, 40))}{scenes.asset("t", scenes.cloud(rng, 4))}</asset>
        <worldbody><geom type="plane" size="1 1 1" conaffinity="2"/>{body.format("m")}{body.format("t")}</worldbody>
        </mujoco>"""
    )
    d, model, step, seen, few = mujoco.MjData(m), uk.load(m), jax.jit(uk.step), 0, 0
    for _ in range(60):
        mujoco.mj_resetData(m, d)
        for k, low in enumerate((0.06, -0.1)):
            turn = rng.normal(size=4)
            d.qpos[7 * k : 7 * k + 7] = [0, 0, rng.uniform(low, 0.1), *(turn / np.linalg.norm(turn))]
        d.qvel[:] = rng.normal(size=12)
        after = step(model, uk.initial_state(model, q=d.qpos.copy(), v=d.qvel.copy()))
        mujoco.mj_step(m, d)
        seen, few = seen + d.ncon, few + (sum(c.geom[1] == 2 for c in d.contact) < 3)
        np.testing.assert_allclose(after.v, d.qvel, atol=1e-9 * np.abs(d.qvel).max())
    assert seen > 120 and few > 10


def test_single_contacts_of_parallel_edges_are_beside_both():
    """An edge beside a shorter one or over a small face, whose ends are beyond it: where there is one contact, as at a
    distance, it is where they are beside each other, and both its ends are on the surfaces.
    """
    wedge = np.array([(x, y, z) for x in (-0.5, 0.5) for y, z in ((0, 0), (-0.1, 0.2), (0.1, 0.2))])
    assets = {"wedge": wedge, "ridge": wedge * [0.2, 1, -1], "block": scenes.CUBE - [0, 0, 0.08]}
    geom = '<geom type="mesh" mesh="{}" margin="0.02" gap="0.02" pos="{} 0 0"/>'
    m = mujoco.MjModel.from_xml_string(
        f"""<mujoco><asset>{"".join(scenes.asset(*x) for x in assets.items())}</asset><worldbody>
        {geom.format("ridge", 0)}{geom.format("block", 5)}
        <body><freejoint/>{geom.format("wedge", 0)}</body></worldbody></mujoco>"""
    )
    d, model, rng = mujoco.MjData(m), uk.load(m), np.random.default_rng(0)
    for k in range(60):
        below, yaw = k % 2, (k % 2) * rng.uniform(-0.5, 0.5)
        x, y, z = rng.uniform(-0.35, 0.35), rng.uniform(-0.004, 0.004), rng.uniform(0.002, 0.015)
        d.qpos[:] = 5 * below + x, y, z, np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)
        mujoco.mj_kinematics(m, d)
        mine = scenes.contacts(model, d.qpos.copy())
        assert mine.active.sum() == 1
        ends = mine.point[0] + 0.5 * mine.distance[0] * np.array([[-1], [1]]) * mine.frame[0, 0]
        for g, end in zip((below, 2), ends):
            assert off_surface(solid(m, g, d.geom_xpos[g], d.geom_xmat[g]), end) < 1e-9
