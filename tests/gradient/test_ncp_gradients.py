"""Derivatives of hard contact, in state, controls, κ and parameters, against differences; and of its softer rule."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.cones import SCENES, count, moved, outcome, settled
from tests.scenes.derivatives import quick
from tests.scenes.reports import check
from tests.scenes.slow import few
from ukemi.checking.modes import tightly
from ukemi.laws.conic.relaxed import Relaxed
from ukemi.laws.method import columns
from ukemi.model.records import as_input

KAPPA, WIDTH = 1e-4, 0.01
STEP = 3e-7  # of differences: the law bends over distances of κ/γ
DIRECTIONS = 12


@functools.cache
def scene(rows: str, condim: int, cone: str):
    model, ctrl = uk.load(SCENES[rows].format(condim=condim)), jnp.array([0.6])
    law = uk.NCP(kappa=jnp.asarray(KAPPA), ahead=WIDTH, cone=cone)
    return model, settled(model, 20, ctrl, law), ctrl


def hard(cone: str, kind=uk.NCP):
    """The law at a relative change of κ."""
    return lambda change: kind(kappa=KAPPA * (1 + change), ahead=WIDTH, cone=cone)


def relaxed(cone: str, kind=uk.NCP):
    """A harder law whose derivative is that of `hard`."""
    return lambda change: kind(gradient=uk.CentralPath(kappa=KAPPA * (1 + change), width=WIDTH), cone=cone)


def after(rows: str, condim: int, cone: str, law_of):
    """Function of a change of everything: where a step leads."""
    model, at, ctrl = scene(rows, condim, cone)

    def function(x):
        there, state, control, change = moved(model, at, ctrl, x, law_of)
        return outcome(model, uk.step(there, state, control, law_of(change)), at)

    return function


@functools.cache
def along(rows: str, condim: int) -> np.ndarray:
    """Directions (k, n) along all of state, controls, κ and parameters together."""
    return np.random.default_rng(1).standard_normal((DIRECTIONS, count(scene(rows, condim, "elliptic")[0])))


@functools.cache
def differences(rows: str, condim: int, cone: str, kind=uk.NCP) -> np.ndarray:
    """Derivative (k, 2 nv) of the hard law along the directions."""
    function, steps = after(rows, condim, cone, hard(cone, kind)), STEP * jnp.asarray(along(rows, condim))
    ends = jax.jit(lambda steps: jax.lax.map(function, steps))
    return (np.asarray(ends(steps)) - np.asarray(ends(-steps))) / (2 * STEP)


def derivatives(rows: str, condim: int, cone: str, law_of):
    """Where a step leads, pushes (k, 2 nv) along the directions, and a pull (n,) by weights, of one program."""
    model = scene(rows, condim, cone)[0]
    weights = np.random.default_rng(2).standard_normal(2 * model.nv)
    function, zero = after(rows, condim, cone, law_of), jnp.zeros(count(model))

    @jax.jit
    def both(directions):
        end, push = jax.linearize(function, zero)
        pull = jax.linear_transpose(push, zero)
        return end, jax.vmap(push)(directions), pull(jnp.asarray(weights))[0]

    end, pushed, pulled = map(np.asarray, both(jnp.asarray(along(rows, condim))))
    np.testing.assert_allclose(along(rows, condim) @ pulled, pushed @ weights, rtol=1e-9, atol=1e-9)
    return end, pushed


def agree(found, wanted, tolerance: float) -> None:
    assert abs(found - wanted).max() < tolerance * max(1.0, abs(wanted).max())


@pytest.mark.parametrize("kind", few([uk.NCP, uk.Maximal], uk.Maximal))
@pytest.mark.parametrize("rows", few(["some", "every"], "some"))
def test_exact_in_everything(kind, rows):
    """Forward and reverse mode."""
    assert_exact(kind, rows, 6, "elliptic")


@pytest.mark.slow
def test_exact_with_pyramids():
    assert_exact(uk.NCP, "every", 4, "pyramidal")


def assert_exact(kind, rows: str, condim: int, cone: str) -> None:
    assert int(scene(rows, condim, cone)[1].status) == 0
    found = derivatives(rows, condim, cone, hard(cone, kind))[1]
    agree(found, differences(rows, condim, cone, kind), 1e-6)


@pytest.mark.slow  # of a ball and of a chain in flight below
@pytest.mark.parametrize("kind", [uk.NCP, uk.Maximal])
@pytest.mark.parametrize("rows", ["some", "every"])
def test_linearize_is_the_vector_rule_column_by_column(kind, rows):
    """The two share no derivative code; of a state whose bodies are inside each other, too."""
    model, at, ctrl = scene(rows, 6, "elliptic")
    sunk = eqx.tree_at(lambda s: s.q, at, at.q.at[2].add(-3e-3))
    for law in (hard("elliptic", kind)(0.0), relaxed("elliptic", kind)(0.0)):
        both = jax.jit(
            lambda state: (
                uk.linearize(model, state, ctrl, law),  # noqa: B023
                columns(law.step, model, state, as_input(model, ctrl))[1],  # noqa: B023
            )
        )
        for state in (at, sunk):
            found, J = both(state)
            closed = jnp.concatenate([found.A, found.B], -1)
            np.testing.assert_allclose(closed, J, rtol=1e-8, atol=1e-10 * float(abs(J).max()))


SLIDING = {  # a leaning can, of whose rim MuJoCo takes two points besides the lowest; a box across another one's edge
    "can": """<geom type="plane" size="2 2 .1"/>
      <body pos="0 0 .12" euler="8 5 0"><freejoint/><geom type="cylinder" size=".1 .1"/></body>""",
    "box": """<geom type="box" size=".2 .1 .1" pos="-.15 -.03 -.14"/>
      <body euler="3 4 20"><freejoint/><geom type="box" size=".2 .1 .05"/></body>""",
}


@pytest.mark.parametrize("kind", few([uk.NCP, uk.Maximal], uk.NCP))
@pytest.mark.parametrize("name", few(["can", "box"], "can"))
def test_points_that_slide_along_edges(kind, name):
    """How near they come is not how fast bodies approach there."""
    text = f"<mujoco><option timestep='.005'/><worldbody>{SLIDING[name]}</worldbody></mujoco>"
    model, law = uk.load(text), kind(kappa=KAPPA, ahead=WIDTH)
    state, nothing = uk.initial_state(model, v=[0.3, 0, -1, 0.1, 0.2, 0.5]), jnp.zeros((8, 0))
    both = quick(
        lambda state: (
            uk.linearize(model, state, None, law),
            columns(law.step, model, state, as_input(model, None))[1],
            uk.contacts(model, state, None, law).force,
        )
    )
    pressed = jax.tree.map(lambda x: x[-1], uk.rollout(model, state, nothing, law))
    for at in (pressed, eqx.tree_at(lambda s: s.q, pressed, pressed.q.at[2].add(-3e-3))):
        found, J, force = both(at)
        assert int(found.next.status) == 0 and (jnp.linalg.norm(force, axis=1) > 0.1).sum() > 2
        np.testing.assert_allclose(found.A, J, rtol=1e-8, atol=1e-10 * float(abs(J).max()))


@pytest.mark.slow  # docs/hard_contact.md has it for a box
def test_central_path_is_the_softer_law_and_moves_nothing():
    """Its derivative is that of the law at its κ; the motion is bitwise that without it."""
    model, at, ctrl = scene("every", 6, "elliptic")
    pushed = derivatives("every", 6, "elliptic", relaxed("elliptic"))[1][:, model.nv :]
    agree(
        pushed, differences("every", 6, "elliptic")[:, model.nv :], 1e-6
    )  # positions move by another v⁺
    laws = uk.NCP(), relaxed("elliptic")(0.0)
    plain, ruled = (uk.step(model, at, ctrl, law) for law in laws)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(ruled), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [uk.NCP, uk.Maximal])
def test_the_motion_is_the_same_where_it_is_differentiated(kind):
    """Bitwise; `linearize` gives the same derivatives."""
    model = uk.load(BALL)
    at, law = uk.initial_state(model, v=[1.0, -0.3]), kind()
    plain, found = uk.step(model, at, None, law), uk.linearize(model, at, None, law)
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(found.next), strict=True):
        assert np.array_equal(a, b)
    pulled = jax.jit(jax.jacrev(lambda v: uk.step(model, uk.initial_state(model, v=v), None, law).v))(at.v)
    np.testing.assert_allclose(found.A[2:, 2:], pulled, rtol=1e-10, atol=1e-10)


BALL = """<mujoco><worldbody><geom type="plane" size="5 5 1" friction=".5"/><body pos="0 0 .1">
<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><geom size=".1" mass="1" friction=".5"/></body>
</worldbody></mujoco>"""


DROP = """<mujoco><option timestep="0.01"/><worldbody><geom type="plane" size="5 5 1"/><body pos="0 0 .11">
<joint type="slide" axis="0 0 1"/><geom size=".1" mass="2"/></body></worldbody></mujoco>"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", [uk.LCP, uk.NCP])
def test_a_force_from_a_distance(kind):
    """m (v⁺ − v + h g) = κ/s with s = φ + h v⁺, so that dv⁺/dv = 1/(1 + h κ/(m s²)), touched or not."""
    model, h, m, kappa = uk.load(DROP), 0.01, 2.0, 1e-3
    law = kind(gradient=uk.CentralPath(kappa=jnp.asarray(kappa), width=1.0))
    program = jax.jit(
        jax.value_and_grad(lambda v: uk.step(model, uk.initial_state(model, v=v[None]), None, law).v[0])
    )
    for v in (-2.0, -0.5, 0.3):
        free = v - h * 9.81
        soft = np.roots([h * m, m * (0.01 - h * free), -(m * 0.01 * free + kappa)]).max()
        s = 0.01 + h * soft
        after, slope = program(jnp.asarray(v))
        np.testing.assert_allclose(slope, 1 / (1 + h * kappa / (m * s * s)), rtol=1e-3)  # contacts give by δ
        np.testing.assert_allclose(after, max(free, -0.01 / h), atol=1e-4)  # hard: stops at the floor


@pytest.mark.slow
def test_rigid_contact_takes_the_derivative_of_its_own_central_path():
    """In everything at once; the motion is bitwise that without."""
    model, at, ctrl = scene("some", 3, "pyramidal")
    law_of = lambda change: uk.LCP(gradient=uk.CentralPath(kappa=KAPPA * (1 + change), width=WIDTH))  # noqa: E731
    softer = lambda change: tightly(Relaxed(kappa=KAPPA * (1 + change), cone="pyramidal", ahead=WIDTH))  # noqa: E731
    pushed = derivatives("some", 3, "pyramidal", law_of)[1][:, model.nv :]
    function, steps = after("some", 3, "pyramidal", softer), STEP * jnp.asarray(along("some", 3))
    ends = jax.jit(lambda steps: jax.lax.map(function, steps))
    wanted = (np.asarray(ends(steps)) - np.asarray(ends(-steps))) / (2 * STEP)
    agree(pushed, wanted[:, model.nv :], 1e-6)
    plain, ruled = (uk.step(model, at, ctrl, law) for law in (uk.LCP(), law_of(0.0)))
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(ruled), strict=True))


@pytest.mark.slow  # every parameter, on a smaller scene: test_exact_in_everything
@pytest.mark.parametrize("kind", [uk.NCP, uk.Maximal])
@pytest.mark.parametrize("name", ["hopper", "box", "quadruped"])
def test_the_report_covers_them(kind, name):
    """At the default κ, of states that press with thousands of times the weight, too."""
    check(name, "joints.damping" if name != "box" else "bodies.mass", "geoms.size", method=kind(), share=0.4)
