"""Derivatives of every pair function against central differences, and their finiteness."""

import functools
import itertools
import os
from functools import partial

os.environ["JAX_ENABLE_X64"] = "1"

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.pairs import frames
from tests.scenes.slow import few
from ukemi.collide import response
from ukemi.collide.detect import detect
from ukemi.collide.hulls import response as hull_response
from ukemi.collide.primitives import PAIRS
from ukemi.collide.shapes import EMPTY, Hit, Shape
from ukemi.laws.here_slopes import posed
from ukemi.maths import ranking, spatial
from ukemi.mechanics.kinematics import kinematics
from ukemi.xla import batches, programs

jax.config.update("jax_enable_x64", True)

MARGIN = 0.03
NAMES = list(PAIRS)
IDS = ["-".join(pair) for pair in NAMES]


def rotation(rng: np.random.Generator) -> np.ndarray:
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    q = q * np.sign(np.diag(r))
    return q * np.sign(np.linalg.det(q))


def moved(shape: Shape, x):
    """The shape moved by x (9,): translation, rotation about the world's axes, change of size."""
    w = x[3:6]
    skew = jnp.array([[0, -1, 0], [1, 0, 0], [0, 0, 0]], x.dtype) * w[2]
    skew += jnp.array([[0, 0, 1], [0, 0, 0], [-1, 0, 0]], x.dtype) * w[1]
    skew += jnp.array([[0, 0, 0], [0, 0, -1], [0, 1, 0]], x.dtype) * w[0]
    turn = jnp.eye(3, dtype=x.dtype) + skew + 0.5 * skew @ skew
    return Shape(shape.pos + x[:3], turn @ shape.mat, shape.size + x[6:])


# compiling is what takes time here, so leave the optimiser out
QUICK = {"xla_backend_optimization_level": 0}


def value(pair, a, b, x):
    """All numbers of a pair's contacts (points, 13) at a displacement."""
    hit = PAIRS[pair].function(moved(a, x[:9]), moved(b, x[9:]), jnp.asarray(MARGIN, x.dtype))
    return jnp.concatenate([hit.distance[:, None], hit.point, frames(hit).reshape(-1, 9)], axis=-1)


@functools.cache
def compiled(pair):
    """Value, jvp and vjp at a displacement, over a batch: one program, to compile once."""

    def derivative(a, b, x, direction, cotangent):
        out, linear = jax.linearize(lambda x: value(pair, a, b, x), x)
        return out, linear(direction), jax.linear_transpose(linear, x)(cotangent)[0]

    return jax.jit(jax.vmap(derivative), compiler_options=QUICK)


def stack(shapes, dtype=np.float64):
    return Shape(*(np.stack(x).astype(dtype) for x in zip(*shapes)))


def random_problem(pair, n, seed):
    rng = np.random.default_rng(seed)

    def draw():
        return stack(
            [Shape(rng.uniform(-0.2, 0.2, 3), rotation(rng), rng.uniform(0.1, 0.3, 3)) for _ in range(n)]
        )

    a, b = draw(), draw()
    k = PAIRS[pair].points
    return a, b, rng.normal(size=(n, 18)), rng.normal(size=(n, k, 13))


@pytest.fixture(params=NAMES, ids=IDS, scope="module")
def pair(request):
    """Of this scope, so that all tests of a pair run one after the other, while its program is held."""
    return request.param


def test_derivatives_match_central_differences(pair):
    n, h = 120, 1e-3 if not PAIRS[pair].exact else 3e-4
    a, b, direction, cotangent = random_problem(pair, n, seed=2)
    derivative = compiled(pair)

    def at(s):
        return jax.tree.map(np.asarray, derivative(a, b, s * h * direction, direction, cotangent))

    out, tangent, gradient = at(0)
    # reverse mode is the transpose of forward mode
    forward = np.sum(cotangent * tangent, axis=(1, 2))
    assert np.allclose(forward, np.sum(gradient * direction, axis=1), rtol=1e-8, atol=1e-8)

    v = {s: at(s)[0] for s in (-4, -3, -2, -1, 1, 2, 3, 4)}
    d = [v[s] - v[-s] for s in (1, 2, 3, 4)]
    sixth = (45 * d[0] - 9 * d[1] + d[2]) / (60 * h)
    eighth = (672 * d[0] - 168 * d[1] + 32 * d[2] - 3 * d[3]) / (840 * h)
    real = np.all([x[..., 0] < EMPTY / 2 for x in v.values()], axis=0) & (out[..., 0] < 0.2)
    # where two orders of differences disagree, a case switches or higher derivatives are large
    size = 1 + np.abs(eighth).max(axis=-1)
    smooth = real & (np.abs(sixth - eighth).max(axis=-1) < 3e-8 * size)
    assert smooth.sum() > 0.5 * real.sum() and smooth.sum() > 60
    error = (np.abs(tangent - eighth).max(axis=-1) / size)[smooth]
    assert error.max() < 1e-6
    # and distances to what differences tell: the smoothing of a convex pair's kinks leaves nothing in them
    apart = np.abs(sixth - eighth)[:, 0, 0]
    assert np.abs(tangent - eighth)[:, 0, 0][real[:, 0] & (apart < 1e-10)].max() < 1e-9


def test_contacts_go_with_both_shapes_as_these_move_as_one(pair):
    """What `pairs/response.py` takes the first shape's motion from."""
    if not PAIRS[pair].exact and PAIRS[pair].points > 3:
        pytest.skip("contacts along tangents that the world's axes choose: both shapes move by AD")
    a, b, direction, cotangent = random_problem(pair, 120, seed=2)
    rng = np.random.default_rng(3)
    slide, turn, none = rng.normal(size=(120, 3)), rng.normal(size=(120, 3)), np.zeros((120, 3))
    as_one = [part for shape in (a, b) for part in (slide + np.cross(turn, shape.pos), turn, none)]
    out, along, _ = jax.tree.map(np.asarray, compiled(pair)(a, b, 0 * direction, np.concatenate(as_one, 1), cotangent))
    real = out[..., 0] < EMPTY / 2
    point, normal, turn = out[..., 1:4], out[..., 4:7], turn[:, None]
    expected = 0 * out[..., :1], slide[:, None] + np.cross(turn, point), np.cross(turn, normal)
    off = np.abs(along[..., :7] - np.concatenate(expected, -1)).max(-1)
    assert real.any()
    assert off[real].max() < 1e-8


RECALLED = {"-".join(pair): pair for pair in NAMES if PAIRS[pair].recall}


@pytest.mark.parametrize("name", few(RECALLED, "capsule-ellipsoid", "cylinder-box", "box-box"))
def test_contacts_that_are_known_move_as_those_that_are_searched_for(name):
    """What a step's derivative asks: it tells pairs that search or choose their first contact."""
    pair, own = RECALLED[name], PAIRS[RECALLED[name]]
    a, b, direction, _ = random_problem(pair, 120, seed=2)

    def both(a, b, along):
        first = own.function(a, b, jnp.asarray(MARGIN))
        known = own.recall(a, b, Hit(first.distance[0], first.point[0], first.normal[0]))

        def at(s, **known):
            hit = own.function(moved(a, s * along[:9]), moved(b, s * along[9:]), jnp.asarray(MARGIN), **known)
            return hit.distance, hit.point, frames(hit)

        one = jnp.ones(())
        return first, jax.jvp(at, (0 * one,), (one,))[1], jax.jvp(partial(at, known=known), (0 * one,), (one,))[1]

    first, searched, told = jax.jit(jax.vmap(both), compiler_options=QUICK)(a, b, direction)
    real = np.array(first.distance < 0.2)
    real[:, 1:] &= np.asarray(jnp.abs(first.distance[:, 1:]) < EMPTY / 2)
    for x, y in zip(searched, told, strict=True):
        x, y = np.asarray(x)[real], np.asarray(y)[real]
        size = 1 + np.abs(x).reshape(len(x), -1).max(1)
        error = np.abs(x - y).reshape(len(x), -1).max(1) / size
        assert len(x) > 60 and np.quantile(error, 0.99) < 1e-6 and error.max() < 1e-5, np.sort(error)[-5:]


def test_boxes_are_told_by_the_normal_whether_they_touch_with_faces_alone():
    """Where edges cross at a small angle, in one point, and faces alone have more contacts as near."""
    own, rng, margin, n = PAIRS["box", "box"], np.random.default_rng(0), jnp.asarray(MARGIN), 200

    def draw(a: bool):
        turn = np.zeros(3) if a else np.array([*(0.03 * rng.normal(size=2)), rng.uniform(-0.5, 0.5)])
        place = [0.0, 0.0, 0.0] if a else [0.15 + 0.02 * rng.normal(), 0.03, 0.149]
        mat = spatial.quat_to_mat(spatial.quat_exp(jnp.asarray(turn)))
        return Shape(np.array(place), np.asarray(mat), np.array([0.2, 0.1, 0.1] if a else [0.2, 0.1, 0.05]))

    a, b = (stack([draw(first) for _ in range(n)]) for first in (True, False))

    def both(a, b):
        found = [own.function(a, b, margin, known=faces) for faces in (False, True)]
        firsts = [Hit(hit.distance[0], hit.point[0], hit.normal[0]) for hit in found]
        return found, [own.recall(a, b, first) for first in firsts]

    (usual, faces), told = jax.jit(jax.vmap(both), compiler_options=QUICK)(a, b)
    one, several = (np.sum(np.asarray(hit.distance) < MARGIN, axis=1) for hit in (usual, faces))
    edges = (one == 1) & (several > 2)
    assert edges.sum() > 20 and np.asarray(told[1])[several > 0].all() and not np.asarray(told[0])[edges].any()
    nearest = np.asarray(faces.distance).min(1) - np.asarray(usual.distance).min(1)
    assert np.abs(nearest[edges]).max() < 2e-4  # the cosine between the two normals


SECOND = [("sphere", "capsule"), ("box", "box"), ("capsule", "ellipsoid"), ("ellipsoid", "box"), ("cylinder", "box")]


@pytest.mark.parametrize("pair", SECOND, ids="-".join)
def test_second_derivatives_are_differences_of_first_ones(pair):
    """Of convex pairs, too, whose implicit rule is differentiated once more."""
    a, b, direction, _ = random_problem(pair, 120, seed=2)
    h = 3e-4

    def slope(a, b, s, direction):
        return jax.jvp(lambda s: value(pair, a, b, s * direction), (s,), (jnp.ones_like(s),))

    def slopes(a, b, s, direction):
        return jax.jvp(lambda s: slope(a, b, s, direction), (s,), (jnp.ones_like(s),))

    program = jax.jit(jax.vmap(slopes, (0, 0, None, 0)), compiler_options=QUICK)
    at = {s: jax.tree.map(np.asarray, program(a, b, jnp.asarray(s * h), direction)) for s in range(-3, 4)}
    d = [at[s][0][1] - at[-s][0][1] for s in (1, 2, 3)]
    fourth, sixth = (8 * d[0] - d[1]) / (12 * h), (45 * d[0] - 9 * d[1] + d[2]) / (60 * h)
    real = np.all([x[0][0][..., 0] < EMPTY / 2 for x in at.values()], axis=0) & (at[0][0][0][..., 0] < 0.2)
    size = 1 + np.abs(sixth).max(axis=-1)
    smooth = real & (np.abs(sixth - fourth).max(axis=-1) < 1e-5 * size)
    assert smooth.sum() > 0.8 * real.sum() and smooth.sum() > 60
    assert (np.abs(at[0][1][1] - sixth).max(axis=-1) / size)[smooth].max() < 3e-5


def degenerate_problem(pair, n, dtype):
    """Poses on a coarse grid: coincident centres, parallel axes, faces that lie on each other."""
    rng = np.random.default_rng(4)
    turns = []
    for axes in itertools.permutations(range(3)):
        turn = np.eye(3)[list(axes)]
        turns.append(turn * np.linalg.det(turn))

    def one(spread):
        return Shape(
            rng.integers(-spread, spread + 1, 3) / 8, turns[rng.integers(len(turns))], rng.choice([0.125, 0.25], 3)
        )

    def draw(spread):
        return stack([one(spread) for _ in range(n)], dtype)

    direction = rng.normal(size=(n, 18)).astype(dtype)
    cotangent = rng.normal(size=(n, PAIRS[pair].points, 13)).astype(dtype)
    return draw(1), draw(2), direction, cotangent


def test_derivatives_are_finite_at_degenerate_poses(pair):
    a, b, direction, cotangent = degenerate_problem(pair, 120, np.float64)
    results = compiled(pair)(a, b, 0 * direction, direction, cotangent)
    for name, result in zip(("value", "jvp", "vjp"), results):
        bad = np.argwhere(~np.isfinite(result))
        assert len(bad) == 0, f"{name} of pose {bad[0]}"
    assert np.abs(results[1]).max() < 1e9


@pytest.mark.parametrize(
    "pair", [("plane", "cylinder"), ("sphere", "box"), ("capsule", "capsule"), ("cylinder", "box")],
    ids="-".join,
)
def test_float32_derivatives_are_finite_and_close(pair):
    for problem in (degenerate_problem(pair, 120, np.float64), random_problem(pair, 120, seed=2)):
        a, b, direction, cotangent = problem
        double = compiled(pair)(a, b, 0 * direction, direction, cotangent)
        single = jax.tree.map(lambda x: np.asarray(x, np.float32), (a, b, direction, cotangent))
        results = compiled(pair)(*single[:2], 0 * single[2], *single[2:])
        assert all(x.dtype == jnp.float32 and np.isfinite(x).all() for x in results)
    # at random poses the bulk agrees; a few lie at case switches or are ill-conditioned
    error = np.abs(results[1] - double[1]).max(axis=-1) / (1 + np.abs(double[1]).max(axis=-1))
    assert np.quantile(error, 0.9) < 2e-3


CROWD = """<mujoco>
<default><geom contype="0" conaffinity="0"/>
    <default class="balls"><geom contype="1" conaffinity="1"/></default>
    <default class="rods"><geom contype="2" conaffinity="2"/></default>
    <default class="wedges"><geom contype="4" conaffinity="4"/></default>
</default>
<asset><mesh name="wedge" vertex="0 0 0 .3 0 0 0 .3 0 0 0 .3 .2 .2 .2"/></asset>
<worldbody>
    <geom class="balls" type="plane" size="2 2 .1"/>
    <body pos="0 0 .05"><freejoint/><geom class="balls" type="sphere" size=".1"/></body>
    <body pos=".17 .02 .07"><freejoint/><geom class="balls" type="sphere" size=".08"/></body>
    <body pos="1 0 .09" euler="80 5 0"><freejoint/><geom class="rods" type="cylinder" size=".1 .2"/></body>
    <body pos="1.05 0 .27" euler="0 80 20"><freejoint/><geom class="rods" type="capsule" size=".09 .2"/></body>
    <body pos="-1 0 -.01"><freejoint/><geom class="wedges" type="mesh" mesh="wedge"/></body>
    <body pos="-.97 .02 .38" euler="10 20 0"><freejoint/><geom class="wedges" type="box" size=".1 .12 .1"/></body>
    <body pos="-.85 .3 .08" euler="10 60 0"><freejoint/><geom class="wedges" type="ellipsoid" size=".1 .2 .15"/></body>
</worldbody></mujoco>"""


def test_pairs_side_by_side_are_as_those_one_by_one(monkeypatch):
    """A CPU takes pair after pair, other processors several at once."""
    model = uk.load(CROWD)
    state, rng = uk.initial_state(model), np.random.default_rng(0)
    kin, layout = kinematics(model, state.q), model.pairs.layout

    def found() -> tuple:
        """Compiled anew."""
        reach, shapes = posed(model, kin, None)
        contacts = jax.jit(lambda kin: detect(model, kin), compiler_options=QUICK)(kin)
        on = response.OnContact(*(jnp.asarray(x) for x in (weight[:, 0], weight[:, 1:4], weight[:, 4:])))

        def both(reach, shapes, contacts, on):
            still = np.zeros(len(layout.groups), bool)
            G = response.responses(layout, False, still, reach, shapes, contacts)
            return G, response.pull(layout, False, still, reach, shapes, contacts, on)

        return contacts, *jax.jit(both, compiler_options=QUICK)(reach, shapes, contacts, on)

    weight = rng.normal(size=(layout.capacity, 7))
    alone = found()
    for module in (batches, hull_response, ranking):
        monkeypatch.setattr(module, "takes_turns", lambda: False)
    monkeypatch.setattr(programs, "_recent", {})  # what was traced for one by one
    beside = found()
    pairs = np.asarray(alone[0].pair)[np.asarray(alone[0].active)]
    kinds = {layout.groups[np.searchsorted(layout.first, pair, "right") - 1].types for pair in pairs}
    assert {("sphere", "sphere"), ("capsule", "cylinder"), ("box", "mesh"), ("ellipsoid", "mesh")} <= kinds
    for x, y in zip(jax.tree.leaves(alone), jax.tree.leaves(beside), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)
