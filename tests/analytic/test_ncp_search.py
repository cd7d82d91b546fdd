"""The search of the laws with cones: steps in which much turns are found, whatever room there is."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.derivatives import quick
from tests.scenes.leaning import SCENE, leaning
from ukemi.checking.modes import tightly
from ukemi.collide.detect import detect
from ukemi.constraints.rows import row_kinds, row_map
from ukemi.laws.conic import interior_point, law
from ukemi.laws.conic.bending import bending
from ukemi.laws.conic.end import blocks_of, frame_after
from ukemi.laws.conic.marks import marks, places
from ukemi.laws.conic.mechanics import without_contacts
from ukemi.mechanics.kinematics import difference, integrate, of_state
from ukemi.mechanics.turns import slopes_in_velocity
from ukemi.model.records import as_input

BOX = """<mujoco><option timestep="0.1"/><worldbody><geom type="plane" size="5 5 1" friction=".5"/>
<body pos="0 0 .25"><freejoint/><geom type="box" size=".25 .2 .15" mass="1" friction=".5"/></body>
</worldbody></mujoco>"""


def turned(rng, count: int) -> np.ndarray:
    """Random rotations (count, 4)."""
    q = rng.standard_normal((count, 4))
    return q / np.linalg.norm(q, axis=-1, keepdims=True)


def lowest(quat: np.ndarray, half) -> np.ndarray:
    """How far the lowest corner of boxes is below their centre."""
    w, x, y, z = quat.T
    return abs(np.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1)) @ half


@pytest.fixture(scope="module")
def tumbling():
    """Status and iterations of steps of 0.1 s of boxes near the floor that turn by 0.3 rad per step."""
    model, rng, n = uk.load(BOX), np.random.default_rng(0), 1000
    quat = turned(rng, n)
    height = lowest(quat, [0.25, 0.2, 0.15]) + rng.uniform(0, 0.1, n)
    q = jnp.asarray(np.concatenate([np.zeros((n, 2)), height[:, None], quat], -1))
    v = jnp.asarray(rng.standard_normal((n, 6)) * [1, 1, 1, 3, 3, 3])
    start = uk.initial_state(model)

    @jax.jit
    def steps(q, v):
        def one(at):
            after = uk.step(model, eqx.tree_at(lambda s: (s.q, s.v), start, at), None, uk.NCP())
            return after.status, after.cache.iterations, after.q

        return jax.lax.map(one, (q, v))

    status, iterations, ends = steps(q, v)
    return np.asarray(status), np.asarray(iterations), np.asarray(ends)


def test_boxes_that_tumble_are_stepped_at_ten_steps_a_second(tumbling):
    status, iterations, q = tumbling
    assert (status != 0).mean() < 0.01  # of 100 draws 7 were left when slots stood for corners
    assert iterations.mean() < 13
    clear = q[:, 2] - lowest(q[:, 3:], np.array([0.25, 0.2, 0.15]))
    assert clear[status == 0].min() > -1e-6


def test_boxes_that_land_across_each_others_edges_are_stepped():
    """A little turn decides between one point of two edges and a polygon of two faces: what the search goes back and
    forth between, faces alone bear.
    """
    model = uk.load(SCENE.format(h=0.005))
    states = leaning(model, 3.0, 60)
    after = quick(lambda states: jax.lax.map(lambda state: uk.step(model, state, None, uk.NCP()), states))(states)
    assert not after.status.any() and after.cache.iterations.max() > 50


@pytest.mark.slow
@pytest.mark.parametrize("law", [uk.NCP(), uk.Maximal()])
def test_boxes_that_touch_with_faces_alone_have_the_derivative_of_these(law):
    model, law, nv, h = uk.load(SCENE.format(h=0.005)), tightly(law), 6, 1e-7

    def nearby(state, x):
        q = integrate(model.tree, state.q, x[:nv], 1.0)
        return eqx.tree_at(lambda s: (s.q, s.v), state, (q, state.v + x[nv:]))

    @jax.jit
    def steady(states):
        searches = jax.lax.map(lambda state: law.search(model, state, turns=300), states)
        return (searches.start[:, -1] == interior_point.STEADY) & searches.solved[:, -1]

    @quick
    def slopes(state):
        found = uk.linearize(model, state, None, law)

        def end(x):
            after = uk.step(model, nearby(state, x), None, law)
            return jnp.concatenate([difference(model.tree, after.q, found.next.q), after.v])

        ends = jax.lax.map(end, jnp.concatenate([h * np.eye(2 * nv), -h * np.eye(2 * nv)]))
        return found.A, (ends[: 2 * nv] - ends[2 * nv :]).T / (2 * h), jax.jacfwd(end)(jnp.zeros(2 * nv))

    states, agree = leaning(model, 3.0, 120), []
    for k in np.flatnonzero(steady(states)):
        A, central, forward = slopes(jax.tree.map(lambda x: x[k], states))  # noqa: B023
        size = float(abs(A).max())
        np.testing.assert_allclose(forward, A, atol=1e-9 * size)
        agree.append(float(abs(A - central).max()) < 1e-6 * size)  # but where another start is on one side
    assert len(agree) > 2 and np.mean(agree) > 0.7, agree


DISC = """<mujoco><option timestep=".002" cone="elliptic" impratio="10"/><worldbody>
<geom type="box" size=".013 .0085 .005"/>
<body pos=".026 0 0"><joint axis="0 1 0" armature="2e-4" damping=".05"/>
<joint axis="0 0 1" armature="2e-4" damping=".05"/>
<geom type="cylinder" size=".009 .009" zaxis="1 0 0" mass=".014"/></body></worldbody></mujoco>"""


def test_contacts_that_are_far_do_not_decide_whether_a_step_is_solved():
    """A knuckle's end 4 mm from the palm: which points of it are contacts jumps as it turns by a rounding error."""
    model = uk.load(DISC)
    states = uk.rollout(model, uk.initial_state(model, v=[0.002, 0.001]), jnp.zeros((40, 0)), uk.NCP())
    assert not np.asarray(states.status).any() and np.asarray(states.cache.iterations).max() < 5


FALLING = """<mujoco><option timestep=".002"/><default>
<joint axis="0 1 0" range="-160 160" armature=".01" frictionloss=".2"/><geom contype="0" conaffinity="0"/></default>
<worldbody><body><freejoint/><geom type="box" size=".15 .1 .05" mass="5"/>{legs}</body></worldbody></mujoco>"""
LEG = """<body pos="{x} 0 0"><joint/><geom type="capsule" fromto="0 0 0 0 0 -.2" size=".02" mass="1"/>
<body pos="0 0 -.2"><joint/><geom type="capsule" fromto="0 0 0 0 0 -.2" size=".02" mass=".2"/></body></body>"""


def test_limits_that_cease_to_count_are_not_learned_as_a_bend():
    """Nothing touches, legs rub in their joints alone: a search that learned it took up to 68 iterations."""
    model = uk.load(FALLING.format(legs=LEG.format(x=0.15) + LEG.format(x=-0.15)))
    speeds = jnp.asarray(5 * np.random.default_rng(0).standard_normal((400, model.nv)))

    def iterations(v):
        after = uk.step(model, uk.initial_state(model, v=v), None, uk.NCP())
        return jnp.where(after.status == 0, after.cache.iterations, 1000)

    assert quick(lambda speeds: jax.lax.map(iterations, speeds))(speeds).max() < 15


BRICKS = """<mujoco><asset><mesh name="brick" vertex="{corners}"/></asset><worldbody>
<geom type="mesh" mesh="brick" pos="0 0 -.04"/>
<body pos=".03 .02 .045" euler="8 5 50"><freejoint/><geom type="mesh" mesh="brick"/></body></worldbody></mujoco>"""


def test_meshes_that_lie_on_each_other_have_several_contacts_before_they_touch():
    """One that became several at the very touch a step ends at would leave nothing balanced."""
    places = [(x, y, z) for x in (-0.06, 0.06) for y in (-0.05, 0.05) for z in (-0.04, 0.04)]
    model = uk.load(BRICKS.format(corners=" ".join(f"{x} {y} {z}" for x, y, z in places)))

    @quick
    def found(q):
        kin = of_state(model, uk.initial_state(model, q=q), as_input(model, None))
        ahead = jnp.asarray(1e-3)
        return [detect(model, kin, ahead, early=early).active.sum() for early in (jnp.zeros(()), ahead)]

    for height, alone in ((1e-6, 1), (-1e-6, 4)):
        flat = jnp.array([0.03, 0.02, 0.04 + height, 1, 0, 0, 0])
        assert list(map(int, found(flat))) == [alone, 4]
    states = uk.rollout(model, uk.initial_state(model), jnp.zeros((300, 0)), uk.NCP())
    assert not np.asarray(states.status).any() and np.asarray(states.cache.iterations).mean() < 20
    rest = jax.tree.map(lambda x: np.asarray(x[-1]), states)
    assert abs(rest.v).max() < 1e-6 and abs(rest.q[2] - 0.04) < 1e-5 and abs(rest.q[4:6]).max() < 1e-4


def test_corners_of_a_box_that_turns_are_known_by_where_they_are():
    model, rng = uk.load(BOX), np.random.default_rng(1)
    found, start = [], uk.initial_state(model)

    @jax.jit
    def known_by(q):
        kin = of_state(model, eqx.tree_at(lambda s: s.q, start, q), as_input(model, None))
        return marks(model, kin, detect(model, kin, jnp.asarray(1.0)), 4)

    for quat in turned(rng, 20):
        for more in (np.zeros(3), 0.2 * rng.standard_normal(3)):
            w, xyz = quat[0], quat[1:] + 0.5 * more
            near = np.concatenate([[w], xyz]) / np.linalg.norm([w, *xyz])
            found.append(known_by(jnp.array([0, 0, lowest(near[None], [0.25, 0.2, 0.15])[0] - 0.01, *near])))
    renamed, found = 0, jax.tree.map(np.asarray, found)
    for before, now in zip(found[::2], found[1::2], strict=True):
        was = np.asarray(places(before, now))
        same = was >= 0
        np.testing.assert_allclose(now.place[same], before.place[was[same]], atol=1e-9)
        apart = np.linalg.norm(np.asarray(now.place)[:, None] - np.asarray(before.place), axis=-1)
        assert (same == (apart < 1e-9).any(1)).all()  # and none is missed
        renamed += (np.asarray(now.names)[same] != np.asarray(before.names)[was[same]]).sum()
    assert renamed > 0  # by slots they would have been others


CYLINDER = """<mujoco><option timestep="0.01"/><worldbody><geom type="plane" size="5 5 1"/>
<body><freejoint/><geom type="cylinder" size=".05 .1" mass="1"/></body></worldbody></mujoco>"""


def test_a_lying_cylinder_that_tips_over_the_level_keeps_its_contacts():
    """Its lower end comes first among contacts: after a step that may be the other one. Known by slots, one took 136
    iterations.
    """
    model, rng, n = uk.load(CYLINDER), np.random.default_rng(0), 200
    tilt = rng.uniform(-0.01, 0.01, n)
    height = 0.05 * np.cos(tilt) + 0.1 * abs(np.sin(tilt)) + rng.uniform(0, 1e-3, n)
    half, none = np.pi / 4 + tilt / 2, np.zeros(n)
    q = np.stack([none, none, height, np.cos(half), none, np.sin(half), none], -1)
    v = np.stack([none + 0.3, none + 0.2, -rng.uniform(0, 2, n), none, 2 * rng.standard_normal(n), none + 0.5], -1)
    start = uk.initial_state(model)

    def one(at):
        after = uk.step(model, eqx.tree_at(lambda s: (s.q, s.v), start, at), None, uk.NCP())
        return after.status, after.cache.iterations, after.q

    status, iterations, ends = jax.jit(lambda *at: jax.lax.map(one, at))(jnp.asarray(q), jnp.asarray(v))
    level = 2 * (ends[:, 3] ** 2 - ends[:, 5] ** 2) * np.sign(tilt)  # its axis' height, against that at the start
    assert (level < 0).sum() > 50 and (level > 0).sum() > 10
    assert not status.any() and iterations.max() <= 15


PLATE = """<mujoco><option timestep="0.05"/><worldbody><geom type="plane" size="5 5 1"/>
<body pos="0 0 .11"><freejoint/>{feet}</body></worldbody></mujoco>""".format(
    feet="".join(f'<geom size=".05" pos="{0.1 * x} {0.1 * y} 0" mass=".1"/>' for x in range(8) for y in range(7))
)


def test_room_for_few_contacts_finds_what_all_room_finds(monkeypatch):
    """In a loop of its own, and in one that compiles geometry once for all rooms, as with meshes."""
    model = uk.load(PLATE)
    assert law.fewer_slots(model.pairs.layout.capacity)
    tilted = [0, 0, 0.4, 0.96, 0.28, 0, 0]
    starts = [uk.initial_state(model, q=tilted, v=[0, 0, -3, 0.5, 0.2, 0]), uk.initial_state(model)]
    every = []
    for rooms, shared in (([16], False), ([16], True), ([], False)):
        monkeypatch.setattr(law, "fewer_slots", lambda full, rooms=rooms: rooms)
        monkeypatch.setattr(interior_point, "together", lambda model, shared=shared: shared)
        bound = uk.NCP(iterations=60 + len(every))  # others, so that it is traced again
        run = eqx.filter_jit(lambda start, law=bound: uk.rollout(model, start, jnp.zeros((12, 0)), law))
        every.append([run(start) for start in starts])
    for small, together, whole in zip(*every, strict=True):
        assert int(whole.status[-1]) == 0 and int(whole.cache.iterations.max()) <= 20
        for states in (small, together):
            assert int(states.status[-1]) == 0 and int(states.cache.iterations.max()) <= 20
            np.testing.assert_allclose(states.q, whole.q, atol=1e-8)
            np.testing.assert_allclose(states.v, whole.v, atol=1e-6)


@pytest.mark.slow
def test_the_system_of_all_unknowns_is_well_conditioned():
    """Dojo, Fig. 10: elimination puts γ²/κ beside masses, the system before that has neither γ/s nor its inverse."""
    model = uk.load(BOX.replace('type="box" size=".25 .2 .15"', 'size=".25"').replace('"0.1"', '"0.01"'))
    state = uk.initial_state(model, q=[0, 0, 0.249, 1, 0, 0, 0], v=[1, 0, -1, 0, 0, 0])
    whole, eliminated = (uk.NCP().search(model, state, turns=12, whole=all_of_it) for all_of_it in (True, False))
    assert whole.solved[-1] and whole.iterations[-1] <= 8
    np.testing.assert_array_equal(whole.iterations, eliminated.iterations)
    assert whole.residual[-1] < 1e-8 and whole.products[-1] < 1e-4
    assert whole.condition.max() < 100 and eliminated.condition[-1] > 1e6


HINGED = """<mujoco><option timestep="0.05"/><worldbody><geom type="plane" size="5 5 1" friction=".5"/>
<body pos="0 0 .3"><freejoint/><geom type="box" size=".25 .2 .15" mass="1" friction=".5"/>
<body pos=".3 0 0"><joint type="ball" range="0 .4" damping=".1"/><geom type="capsule" fromto="0 0 0 .3 0 0" size=".05"/>
</body></body></worldbody></mujoco>"""


@pytest.mark.parametrize("law", [uk.NCP(), uk.Maximal()], ids=["NCP", "Maximal"])
def test_slopes_that_are_measured_are_those_of_what_is_left(law):
    """A small part of Newton's step takes that part of what is left of force and slips away. The system of others,
    to which rows do not bend, does not know that as well.
    """
    model = uk.load(HINGED)
    state = uk.initial_state(model)
    v = jnp.array([0.5, 0.2, -3.0, 2.0, -3.0, 1.0, 1.0, 4.0, 3.0])
    q = state.q.at[7:].set(jnp.array([np.cos(0.19), 0.0, np.sin(0.19), 0.0]))
    state = eqx.tree_at(lambda s: (s.q, s.v), state, (q, v))

    @jax.jit
    def left(start):
        here, guide = law.start(model, state, as_input(model, None))
        task, settings = law._task(here, model.options.timestep, law.path(v.dtype), guide), law._settings(here)
        carry = interior_point.blank(task)
        carry = carry._replace(progress=carry.progress._replace(start=start))

        def goes_on(carry):
            return (carry.progress.rounds <= interior_point.AGAIN) | (carry.progress.probe > 0)

        carry = jax.lax.while_loop(goes_on, lambda carry: interior_point.turn(settings, task, carry), carry)

        def off(alpha):
            tried = jax.tree.map(lambda x, d: x + alpha * d, carry.point, carry.change)
            found, _ = interior_point.look(task, carry, tried, interior_point.land(task, carry, tried.v))
            return jnp.concatenate([found.off.force, found.off.slip.reshape(-1)])

        alpha = 1e-5
        before, after = off(0.0), off(alpha)
        wrong = (after - (1 - alpha) * before) / alpha
        return jnp.abs(wrong).max() / jnp.abs(before).max(), carry.progress.ease, carry.progress.start

    wrong, ease, start = left(jnp.int32(interior_point.MEASURED))
    assert ease == 0 and start == interior_point.MEASURED
    assert wrong < 1e-4
    assert left(jnp.int32(1))[0] > 1e-3


@pytest.mark.slow
def test_few_starts_give_up_early():
    model, ok = uk.load(BOX), int(uk.Status.OK)
    state = uk.initial_state(model, q=[0, 0, 0.16, 1, 0, 0, 0], v=[1, 0, -3, 3, 3, 3])
    for starts, tried in ((1, 1), (5, 4)):  # nothing is known yet that the first could start from
        after = uk.step(model, state, None, uk.NCP(iterations=2, starts=starts))
        assert int(after.status) != ok and int(after.cache.iterations) == 2 * tried


# Loops, a limit and dry friction of a string that goes round a shape, a coupling of strings, and a limit of a ball.
BENT = """<mujoco><default><geom contype="0" conaffinity="0"/></default><worldbody>
<body name="a" pos="0 0 1"><freejoint/><geom type="box" size=".2 .1 .05"/><site name="a" pos=".1 .1 0"/>
  <body name="b" pos=".3 0 0"><joint type="ball" range="0 40" limited="true"/><geom size=".1" pos=".2 0 .1"/>
    <site name="b" pos=".3 0 .1"/></body></body>
<body name="c" pos=".8 0 1"><joint axis="0 1 0"/><geom size=".1" pos="0 0 .3"/>
  <geom name="round" size=".06" pos=".2 .3 0"/>
  <body name="d" pos="0 0 .4"><joint axis="1 .2 0"/><geom size=".05" pos="0 .1 .2"/>
    <site name="d" pos="0 .1 .2"/></body></body>
</worldbody><tendon>
  <spatial name="s" limited="true" range="0 .5" frictionloss=".2">
    <site site="a"/><geom geom="round"/><site site="d"/></spatial>
  <spatial name="t"><site site="b"/><site site="d"/></spatial></tendon>
<equality><connect body1="b" body2="d" anchor=".3 .1 0"/><connect body1="d" body2="world" anchor="0 .1 .3"/>
  <weld body1="a" body2="c"/><tendon tendon1="s" tendon2="t" polycoef="0 1"/></equality></mujoco>"""


def test_how_rows_bend_is_the_slope_of_what_they_pull():
    model, rng, law = uk.load(BENT), np.random.default_rng(0), uk.NCP()
    kinds = row_kinds(model)
    v, f, shift = (jnp.asarray(rng.normal(size=n)) for n in (model.nv, kinds.scalar, model.nv))

    @jax.jit
    def both(model, h):
        q = integrate(model.tree, model.joints.qpos0, 0.4 * shift, 1.0)
        here, _ = law.start(model, uk.initial_state(model, q=q), as_input(model, None))

        def pulled(v):
            end = frame_after(here, v, h, lambda kin: here.contacts)
            g = row_map(end, without_contacts(kinds), blocks_of(end)).pull(f)
            return slopes_in_velocity(model.tree, v, h).rows(g)

        return bending(here, v, h, f), jax.jacfwd(pulled)(v)

    found, expected = both(model, 0.1)
    assert np.linalg.matrix_rank(expected) == model.nv
    np.testing.assert_allclose(found, expected, atol=1e-12 * np.abs(expected).max())
