"""Times of impact: closed forms, and dense sampling of MuJoCo's own distances along the motion."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.rigid import toppling_cube
from ukemi.collide.detect import detect
from ukemi.collide.primitives import PAIRS
from ukemi.collide.sweep.impacts import distance, first_impact
from ukemi.mechanics.kinematics import integrate, kinematics

SLOP = 1e-10
TYPES = ("sphere", "capsule", "ellipsoid", "cylinder", "box")
SIZE = dict.fromkeys(TYPES, ".1 .15 .2")


def zoo_xml() -> str:
    """A plane and two free bodies of every type, which all may touch each other."""
    bodies = [
        f'<body name="{t}{k}" pos="{5 * i} {5 * k} 30"><freejoint/><geom type="{t}" size="{SIZE[t]}" mass="1"/></body>'
        for k in (0, 1)
        for i, t in enumerate(TYPES)
    ]
    plane = '<geom type="plane" size="9 9 1"/>'
    option = '<option ccd_tolerance="1e-12" ccd_iterations="200"/>'
    return f"<mujoco>{option}<worldbody>{plane}{''.join(bodies)}</worldbody></mujoco>"


ZOO = uk.load(zoo_xml())
NAMES = [ZOO.tree.body_names[b] for b in ZOO.geoms.layout.body]


# compiling is what takes time here, so leave the optimiser out
quick = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def _impact(model, q, v, duration, ignore, steps=64):
    return first_impact(model, q, v, duration, ignore=ignore, steps=steps)


impact = quick(_impact)


@quick
def distances(model, q, v, time):
    return distance(model, kinematics(model, integrate(model.tree, q, v, time)))


def scene(a: str, b: str, poses, twists, sizes=(None, None)):
    """Model, q, v, ignore and pair of the zoo with two of its bodies at poses (n, 7), moving with twists (n, 6)."""
    geoms = [NAMES.index("world") if t == "plane" else NAMES.index(t + k) for t, k in zip((a, b), "01")]
    model, q, v = ZOO, np.array(ZOO.joints.qpos0), np.zeros(ZOO.nv)
    for g, pose, twist, size in zip(geoms, poses, twists, sizes):
        if size is not None:
            model = eqx.tree_at(lambda m: m.geoms.size, model, model.geoms.size.at[g].set(jnp.array(size)))
        if g:
            q[7 * (g - 1) : 7 * g], v[6 * (g - 1) : 6 * g] = pose, twist
    pair = [set(p) == set(geoms) for p in ZOO.pairs.layout.geoms.tolist()].index(True)
    ignore = np.arange(len(ZOO.pairs.layout.geoms)) != pair
    return model, q, v, ignore, pair


def pose(x=0.0, y=0.0, z=0.0, quat=(1.0, 0.0, 0.0, 0.0)):
    return [x, y, z, *np.array(quat) / np.linalg.norm(quat)]


def check(found, pair, expected, tolerance=1e-15):
    assert bool(found.found) and not bool(found.exhausted) and int(found.pair) == pair
    assert abs(float(found.time) - expected) <= tolerance


STILL = [0.0] * 6


def test_ball_and_plane():
    model, q, v, ignore, pair = scene("plane", "sphere", [None, pose(z=0.9)], [None, [3, 0, -40, 50, 60, 70]])
    check(impact(model, q, v, 0.05, ignore), pair, (0.8 - SLOP) / 40)
    none = impact(model, q, v, 0.0199, ignore)
    assert not none.found and not none.exhausted and none.time == 0.0199 and none.pair == -1


def test_two_spinning_balls_of_oblique_paths():
    poses, twists = [pose(), pose(1.0, 0.1)], [[10, 0, 0, 1, 2, 3], [-100, 0, 0, 4, 5, 6]]
    model, q, v, ignore, pair = scene("sphere", "sphere", poses, twists)
    check(impact(model, q, v, 0.01, ignore), pair, (1 - np.sqrt((0.2 + SLOP) ** 2 - 0.01)) / 110)


@pytest.mark.parametrize("thickness", [1e-3, 1e-5])
def test_a_sheet_stops_a_fast_ball(thickness):
    poses, twists = [pose(0.1, -0.2, 0.3), pose()], [[0, 0, -50, 0, 0, 0], STILL]
    sizes = (0.05, 0, 0), (0.5, 0.5, thickness / 2)
    model, q, v, ignore, pair = scene("sphere", "box", poses, twists, sizes)
    check(impact(model, q, v, 0.01, ignore), pair, (0.25 - thickness / 2 - SLOP) / 50)


def test_corner_of_a_spinning_box_meets_a_plane():
    """The corner's height is z + w t − r cos(ω t − π/4), for a box that spins about its own y axis."""
    spin, fall, z, r = 80.0, -10.0, 0.25, 0.1 * np.sqrt(2)
    model, q, v, ignore, pair = scene(
        "plane", "box", [None, pose(z=z)], [None, [0, 0, fall, 0, spin, 0]], (None, (0.1,) * 3)
    )
    low, high = 0.0, 0.02
    for _ in range(60):
        t = (low + high) / 2
        height = z + fall * t - max(r * np.cos(spin * t + k * np.pi / 2 - np.pi / 4) for k in range(4))
        low, high = (t, high) if height > SLOP else (low, t)
    check(impact(model, q, v, 0.05, ignore), pair, low)


def test_edge_meets_edge():
    """Two sheets on edge, crossed: their edges meet where their planes do."""
    upright, flat = (np.cos(np.pi / 8), np.sin(np.pi / 8), 0, 0), (np.cos(np.pi / 8), 0, np.sin(np.pi / 8), 0)
    poses = [pose(quat=upright), pose(z=0.5, quat=flat)]
    model, q, v, ignore, pair = scene("box", "box", poses, [STILL, [0, 0, -20, 0, 0, 0]], [(0.1,) * 3] * 2)
    check(impact(model, q, v, 0.05, ignore), pair, (0.5 - 0.2 * np.sqrt(2) - SLOP) / 20)


@pytest.mark.parametrize("floor", ["plane", "box"])
def test_a_box_topples_from_its_edge_onto_its_face(floor):
    """The edge in touch is the contact law's; the other corners of the same pair are waited for."""
    half = 0.1
    height, quat, twist, time = toppling_cube(half, SLOP)
    if floor == "plane":
        model, q, v, ignore, pair = scene(
            "plane", "box", [None, pose(z=height, quat=quat)], [None, twist], (None, (half,) * 3)
        )
    else:
        poses = [pose(z=-0.2), pose(0.05, 0.02, height, quat)]
        model, q, v, ignore, pair = scene("box", "box", poses, [STILL, twist], ((0.4, 0.4, 0.2), (half,) * 3))
    check(impact(model, q, v, 0.01, ignore), pair, time, 1e-14)


def test_bodies_at_rest_or_sliding_on_each_other_do_not_meet():
    for kind in ("plane", "box"):
        poses = [None if kind == "plane" else pose(z=-0.2), pose(z=0.2)]
        for twist in (STILL, [3.0, 1.0, 0, 0, 0, 2.0]):
            model, q, v, ignore, _ = scene(kind, "box", poses, [STILL, twist])
            found = impact(model, q, v, 0.01, ignore)
            assert not found.found and not found.exhausted and found.time == 0.01


def test_bound_on_steps_is_reported_and_safe():
    poses, twists = [pose(), pose(1.0, 0.1)], [[10, 0, 0, 1, 2, 3], [-100, 0, 0, 4, 5, 6]]
    model, q, v, ignore, pair = scene("box", "box", poses, twists)
    full = impact(model, q, v, 0.01, ignore)
    cut = impact(model, q, v, 0.01, ignore, 2)
    assert full.found and not full.exhausted
    assert cut.exhausted and not cut.found and 0 < cut.time < full.time


class Oracle:
    """MuJoCo's distance of two geoms of the zoo."""

    def __init__(self):
        self.model = mujoco.MjModel.from_xml_string(zoo_xml())
        self.data = mujoco.MjData(self.model)

    def __call__(self, qs, a: int, b: int):
        out = []
        for q in np.asarray(qs):
            self.data.qpos[:] = q
            mujoco.mj_kinematics(self.model, self.data)
            out.append(mujoco.mj_geomDistance(self.model, self.data, a, b, 100.0, None))
        return np.array(out)


def random_case(rng, a, b):
    """Two bodies on their way to each other, both spinning."""
    way = rng.normal(size=3)
    way = np.array([0.0, 0.0, 1.0]) if a == "plane" else way / np.linalg.norm(way)
    poses = [pose(quat=rng.normal(size=4)), pose(*(0.7 * way), rng.normal(size=4))]
    twists = [
        [*rng.normal(size=3) * 3, *rng.normal(size=3) * 20],
        [*(-way * rng.uniform(10, 40) + rng.normal(size=3) * 2), *rng.normal(size=3) * 20],
    ]
    return scene(a, b, poses, twists)


T, SAMPLES = 0.05, 400


@pytest.mark.parametrize("a, b", PAIRS)
def test_no_impact_is_missed_or_made_up(a, b):
    """Against distances at 400 times: before `time` nothing touches, at `time` the distance is the slop."""
    rng = np.random.default_rng(sum(map(ord, a + b)))
    oracle, times, hits = Oracle(), np.linspace(0, T, SAMPLES), 0
    for _ in range(8):
        model, q, v, ignore, pair = random_case(rng, a, b)
        found = impact(model, q, v, T, ignore)
        assert not found.exhausted and int(found.iterations) <= 24
        until = times[times < float(found.time)]
        if a == "plane":
            sampled = np.array(_sampled_heights(model, q, v, until)[:, pair])
        else:
            sampled = oracle(_configurations(q, v, times)[: len(until)], *ZOO.pairs.layout.geoms[pair].tolist())
        assert (sampled > -1e-8).all()
        if found.found:
            hits += 1
            here = float(distances(model, q, v, found.time)[pair])
            assert -1e-11 < here - SLOP < 1e-11
    assert hits >= 3


@quick
def _configurations(q, v, times):
    return jax.vmap(lambda t: integrate(ZOO.tree, q, v, t))(times)


def _sampled_heights(model, q, v, times):
    return np.array([distances(model, q, v, t) for t in times[::8]]).reshape(-1, len(model.pairs.layout.geoms))


def test_detection_knows_the_contact_at_the_impact():
    """Where the law looks for contacts a little ahead it finds the one whose distance has come to the slop."""
    body = '<body pos="{}"><freejoint/><geom type="box" size=".1 .1 .1" mass="1"/></body>'
    model = uk.load(f"<mujoco><worldbody>{body.format('0 0 0')}{body.format('0 0 .5')}</worldbody></mujoco>")
    run = quick(lambda q, v: first_impact(model, q, v, T))
    contacts = quick(
        lambda q, v, t: detect(model, kinematics(model, integrate(model.tree, q, v, t)), jnp.asarray(1e-8))
    )
    rng, hits = np.random.default_rng(2), 0
    for _ in range(8):
        q = np.array(pose(quat=rng.normal(size=4)) + pose(*rng.normal(size=2) * 0.05, 0.5, quat=rng.normal(size=4)))
        v = np.concatenate([rng.normal(size=6) * 5, [0, 0, -20], rng.normal(size=3) * 20])
        found = run(q, v)
        here = contacts(q, v, found.time)
        if found.found:
            hits += 1
            assert abs(float(here.distance[here.active].min()) - SLOP) < 1e-12
    assert hits >= 4


def test_earliest_of_all_pairs_and_the_same_in_a_batch():
    """With all bodies on their way the answer is the least of those for each pair alone; vmap equals a loop."""
    rng = np.random.default_rng(5)
    nothing = np.zeros(len(ZOO.pairs.layout.geoms), bool)
    qs, vs = [], []
    for _ in range(4):
        place = rng.permutation(np.array([(x, y) for x in range(-2, 2) for y in range(3)]))[:10] * 0.8
        qs.append(np.concatenate([pose(*p, rng.uniform(0.5, 1.5), rng.normal(size=4)) for p in place]))
        vs.append((rng.normal(size=(10, 6)) * ([25.0] * 3 + [15.0] * 3)).ravel())
    loop = [impact(ZOO, q, v, T, nothing) for q, v in zip(qs, vs)]
    batch = quick(jax.vmap(_impact, (None, 0, 0, None, None)))(ZOO, np.array(qs), np.array(vs), T, nothing)
    for k, one in enumerate(loop):
        assert one.found and not one.exhausted
        assert bool(batch.found[k]) and batch.pair[k] == one.pair and abs(batch.time[k] - one.time) < 1e-14
        geoms = [n for n in range(len(nothing)) if n != int(one.pair)]
        alone = impact(ZOO, qs[k], vs[k], T, np.isin(np.arange(len(nothing)), geoms))
        assert abs(alone.time - one.time) < 1e-13
        apart = np.array([distances(ZOO, qs[k], vs[k], t) for t in np.linspace(0, float(one.time), 40)])
        assert apart.min() > SLOP - 1e-11


ARM = """<mujoco><worldbody>
<geom type="box" size=".001 .3 .3" pos=".3 0 -.5"/>
<body><joint axis="0 -1 0"/><geom type="capsule" fromto="0 0 0 0 0 -.5" size=".005" mass="1"/>
 <body pos="0 0 -.5"><joint axis="0 -1 0"/><geom type="capsule" fromto="0 0 0 0 0 -.4" size=".005" mass="1"/>
 <body pos="0 0 -.4"><joint type="slide" axis="0 0 -1"/><geom type="sphere" pos="0 0 -.05" size=".02" mass="1"/></body>
</body></body></worldbody></mujoco>"""


def test_links_of_a_chain_against_a_thin_plate():
    """Closed form for one swinging link, dense sampling of MuJoCo's distances for the whole chain."""
    model = uk.load(ARM)
    oracle = mujoco.MjModel.from_xml_string(ARM)
    data, pairs = mujoco.MjData(oracle), model.pairs.layout.geoms
    run = quick(lambda q, v, ignore: first_impact(model, q, v, 0.1, ignore=ignore))
    spin, q = 20.0, np.zeros(3)
    upper = np.array([{0, 1} == set(p) for p in pairs.tolist()])
    # the end of the link swings into the plate's face
    found = run(q, np.array([spin, 0.0, 0.0]), ~upper)
    expected = np.arcsin((0.299 - 0.005 - SLOP) / 0.5) / spin
    check(found, int(np.argmax(upper)), expected, 1e-14)
    rng = np.random.default_rng(0)
    for _ in range(6):
        v = rng.normal(size=3) * [20, 40, 2]
        found = run(q, v, np.zeros(len(pairs), bool))
        assert not found.exhausted
        for t in np.linspace(0, float(found.time), 200):
            data.qpos[:] = q + v * t
            mujoco.mj_kinematics(oracle, data)
            assert all(mujoco.mj_geomDistance(oracle, data, int(a), int(b), 1.0, None) > -1e-9 for a, b in pairs)
        if found.found:
            here = distance(model, kinematics(model, q + v * found.time))
            assert abs(float(here.min()) - SLOP) < 1e-12


def test_distances_are_those_of_mujoco_for_shapes_apart():
    rng, oracle = np.random.default_rng(1), Oracle()
    q = np.concatenate([pose(*rng.uniform(-1, 1, 3), rng.normal(size=4)) for _ in range(10)])
    ours = np.asarray(distances(ZOO, q, np.zeros(ZOO.nv), 0.0))
    for (a, b), d in zip(ZOO.pairs.layout.geoms.tolist(), ours):
        if a and (theirs := oracle(q[None], a, b)[0]) > 1e-6:
            assert theirs * (1 - 2e-4) - 1e-9 < d < theirs + 1e-7


def test_float32_keeps_its_own_tolerance():
    poses, twists = [pose(), pose(1.0, 0.1)], [[10, 0, 0, 1, 2, 3], [-100, 0, 0, 4, 5, 6]]
    model, q, v, ignore, pair = scene("sphere", "sphere", poses, twists)
    model, q, v = jax.tree.map(
        lambda x: jnp.asarray(x, jnp.float32) if eqx.is_inexact_array_like(x) else x, (model, q, v)
    )
    found = impact(model, q, v, jnp.float32(0.01), ignore)
    assert found.found and found.time.dtype == jnp.float32
    assert abs(float(found.time) - (1 - np.sqrt(0.03)) / 110) < 1e-6
