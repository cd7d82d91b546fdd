"""Rigid derivatives where equalities are met exactly or say the same twice, and where overlaps do not approach."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.slow import few
from ukemi.mechanics.kinematics import integrate

STEP = 1e-5
QUIET = '<default><geom contype="0" conaffinity="0"/></default>'
HINGES = """
  <body><joint name="a" axis="0 1 0"/><geom size=".1" pos=".3 0 0"/></body>
  <body pos="1 0 0"><joint name="b" axis="0 1 0"/><geom size=".1" pos=".3 0 0"/></body>"""
FOUR_BAR = """
  <body pos="0 2 0"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 1" size=".05"/>
    <body pos="0 0 1"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 1 0 0" size=".05"/>
      <body name="end" pos="1 0 0"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -1" size=".05"/></body>
    </body>
  </body>"""
STILL = '<option gravity="0 0 0"/><worldbody>'
COUPLED, CLOSED = '<joint joint1="a" joint2="b"/>', '<connect body1="end" body2="world" anchor="0 0 -1"/>'


def scene(bodies: str, equalities: str) -> str:
    return f"<mujoco>{QUIET}<worldbody>{bodies}</worldbody><equality>{equalities}</equality></mujoco>"


def redundant(joints: int, name: str = "") -> str:
    """A body and its child, which none to two joints hold already."""
    axes = "".join(f'<joint axis="{axis}" pos=".05 0 .02"/>' for axis in ("0 1 0", ".6 0 .8")[:joints])
    return f"""
      <body name="p{name}"><joint axis="0 0 1"/><geom type="capsule" fromto="0 0 0 .5 0 0" size=".05"/>
        <body name="c{name}" pos=".5 0 0">{axes}<geom type="capsule" fromto="0 0 0 .5 0 .1" size=".05"/></body>
      </body>"""


@functools.partial(jax.jit, static_argnames="law")
def moved(model, state, x, law):
    """Next positions and velocities of states moved by x (points, 2nv)."""
    n, unit = model.nv, jnp.ones(())

    def after(x):
        q = integrate(model.tree, state.q, x[:n], unit)
        then = uk.step(model, eqx.tree_at(lambda s: (s.q, s.v), state, (q, state.v + x[n:])), None, law)
        return jnp.concatenate([then.q, then.v])

    return jax.vmap(after)(x)


def differences(model, state, law, step=STEP):
    """Central and one-sided differences (outputs, 2nv) of a step in position and velocity."""
    n = model.nv
    points = step * np.concatenate([np.eye(2 * n), -np.eye(2 * n), np.zeros((1, 2 * n))])
    out = np.asarray(moved(model, state, points, law))
    ahead, behind, here = out[: 2 * n], out[2 * n : -1], out[-1]
    return ((ahead - behind) / (2 * step)).T, ((ahead - here) / step).T, ((here - behind) / step).T


def bounds(*each):
    """Bounds (2nv, 2nv) of bodies side by side, of each its number of joints and its bound."""
    tight = np.concatenate([np.full(n, bound) for n, bound in each])
    return np.tile(np.minimum(tight[:, None], tight), (2, 2))


def assert_right(xml, law, q=None, v=None, atol=1e-7):
    """A of hinges and slides, whose tangent space is that of q, equals differences from either side."""
    model = uk.load(xml)
    state = uk.initial_state(model, q=q, v=v)
    found = uk.linearize(model, state, None, law)
    central, ahead, behind = differences(model, state, law)
    assert int(found.next.status) == 0
    np.testing.assert_allclose(ahead, behind, atol=3e-4)
    assert (abs(found.A - central) <= atol + 1e-7 * abs(central)).all(), np.argwhere(abs(found.A - central) > atol)


@pytest.mark.parametrize("law", [uk.LCP(), pytest.param(uk.Impact(), marks=pytest.mark.slow)], ids=["lcp", "impact"])
def test_coupled_joints_and_a_four_bar(law):
    """Joints where what couples them is met and is not, beside a four-bar at rest."""
    xml = scene(HINGES + FOUR_BAR, COUPLED + CLOSED)
    for hinges in ((0.0, 0.0), (0.1, 0.1), (0.1, 0.0)):
        assert_right(xml, law, [*hinges, 0, 0, 0], atol=bounds((2, 1e-7), (3, 1e-6)))


@pytest.mark.slow
def test_equalities_of_what_a_joint_holds_already():
    """Its drift must not become a lever by which the constraint resists the turning of both."""
    bodies, equalities = "", ""
    for joints in (1, 2):
        for kind, anchor in (("connect", 'anchor=".6 .1 .2"'), ("weld", "")):
            bodies += redundant(joints, f"{joints}{kind}")
            equalities += f'<{kind} body1="p{joints}{kind}" body2="c{joints}{kind}" {anchor}/>'
    for apart in (0.0, 1e-6, 1e-4):
        q, v = np.array([0.3, apart, -apart]), np.array([0.5, 0.4, -0.3])
        each = [slice(1 + joints) for joints in (1, 1, 2, 2)]
        together = [np.concatenate([x[part] for part in each]) for x in (q, v)]
        assert_right(scene(bodies, equalities), uk.LCP(), *together, atol=1e-6)


@pytest.mark.parametrize("law", few([uk.NCP(), uk.Maximal()], uk.NCP()), ids=lambda law: type(law).__name__)
def test_a_flat_loop_whose_axes_are_rounded(law):
    """Files have axes of five digits, so that what closes a flat loop all but repeats what its joints hold already:
    to the letter, it would stop velocities of rounding with impulses without bounds.
    """
    rounded = FOUR_BAR.replace('"0 1 0"', '"3e-6 1 -2e-6"', 2)
    for axes, state in ((FOUR_BAR, [0.1, -0.1, 0.1]), (rounded, [0.1, -0.1, 0.1]), (rounded, [0.101, -0.1, 0.099])):
        model = uk.load(scene(axes, CLOSED))
        at = uk.initial_state(model, q=state, v=[0.5, -0.5, 0.5])
        found = uk.linearize(model, at, None, law)
        assert int(found.next.status) == 0 and int(found.next.cache.iterations) < 10
        # what nearly repeats itself multiplies what searches leave: finer differences see that alone
        assert np.abs(found.A - differences(model, at, law, 1e-4)[0]).max() < 1e-6


@pytest.mark.parametrize("law", few([uk.LCP(), uk.NCP(), uk.Maximal()], uk.NCP()), ids=lambda law: type(law).__name__)
def test_what_drifted_apart_turns_as_one(law):
    """A weld of a body and its child, which are open by what a hinge of theirs has turned: nothing holds their turning
    together, and they go on as one body does, while their drift is taken back.
    """
    model = uk.load(scene(redundant(1), '<weld body1="p" body2="c"/>').replace("<worldbody>", STILL))
    state = uk.initial_state(model, q=[0.3, 0.2], v=[2.0, 0.0])
    states = uk.rollout(model, state, jnp.zeros((3, 0)), law)
    assert not states.status.any() and states.cache.iterations.max() < 12
    np.testing.assert_allclose(states.q[:, 1], 0.2 * 0.8 ** np.arange(1, 4), rtol=1e-2)
    assert abs(states.v[:, 1]).max() < 1e-6
    assert_right(scene(redundant(1), '<weld body1="p" body2="c"/>'), law, [0.3, 0.2], [2.0, 0.1], atol=1e-6)


def test_near_a_singular_configuration_the_step_says_so():
    """The connected point's two directions all but agree: what it holds is not known to any precision."""
    axes = 'pos=".5 0 0"><joint axis="0 1 0"/><joint axis="1 0 0"/>'
    xml = scene(redundant(0).replace('pos=".5 0 0">', axes), '<connect body1="p" body2="c" anchor=".6 .1 0"/>')
    model = uk.load(xml)
    step = jax.jit(lambda q: uk.step(model, uk.initial_state(model, q=q, v=[0.5, 0.4, -0.3]), None, uk.LCP()).status)
    status = [int(step(jnp.asarray([0.3, apart, 2 * apart]))) for apart in (0.0, 1e-5, 1e-4, 1e-3, 0.1)]
    assert status == [0, 1, 1, 1, 0]


def test_equalities_that_rule_each_other_out_say_so():
    """Two joints through a point hold a distance that a connect opens: taking its drift back is a compromise."""
    model = uk.load(scene(redundant(2), '<connect body1="p" body2="c" anchor=".5 .3 .4"/>'))
    for q, known in ((0.0, True), (0.2, False)):
        assert (uk.step(model, uk.initial_state(model, q=[0, q, q]), None, uk.Impact()).status == 0) == known


SPHERES = """<mujoco><option gravity="0 0 0"/><worldbody>
  <body><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><geom size=".1"/></body>
  <body pos=".15 0 0"><joint type="slide" axis="1 0 0"/><joint axis="0 1 0"/><geom size=".1"/></body>
</worldbody></mujoco>"""


def test_overlaps_that_do_not_approach_are_taken_back():
    model = uk.load(SPHERES)
    gap = lambda states: 0.15 + states.q[:, 2] - states.q[:, 0] - 0.2  # noqa: E731
    still = uk.rollout(model, uk.initial_state(model), jnp.zeros((40, 0)), uk.LCP())
    share = 1 - uk.LCP().correction
    np.testing.assert_allclose(gap(still), -0.05 * share ** np.arange(1, 41), rtol=1e-3)
    assert not still.v.any() and not still.status.any()
    # what opens on its own is not helped along: the overlap falls by the larger of both
    parting = uk.rollout(model, uk.initial_state(model, v=[0, 0, 1, 0]), jnp.zeros((40, 0)), uk.LCP())
    expected, overlap = [], 0.05
    for _ in range(40):
        overlap -= max(0.002, 0.2 * max(overlap, 0.0))
        expected.append(-overlap)
    np.testing.assert_allclose(gap(parting), expected, rtol=1e-3, atol=1e-6)


@functools.partial(jax.jit, static_argnames="law")
def positions_in_both_modes(model, state, law):
    """Derivatives (nq, 2nv) of the next positions in positions and velocities: forward mode, reverse mode."""
    n = model.nv
    after = lambda x: uk.step(model, eqx.tree_at(lambda s: (s.q, s.v), state, (x[:n], x[n:])), None, law).q  # noqa: E731
    x = jnp.concatenate([state.q, state.v])
    push = jax.linearize(after, x)[1]
    pull = jax.linear_transpose(push, x)
    return jax.vmap(push, out_axes=1)(jnp.eye(2 * n)), jax.vmap(lambda row: pull(row)[0])(jnp.eye(n))


@pytest.mark.slow
@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("speed", [0.5, 2.0, 20.0])
def test_derivatives_of_overlaps_that_open(explicit, speed):
    rule = uk.LCP(explicit=explicit)
    assert_right(SPHERES, rule, v=[0.1, 0.2, 0.1 + speed, 0.7])
    model = uk.load(SPHERES)
    state = uk.initial_state(model, v=[0.1, 0.2, 0.1 + speed, 0.7])
    closed = uk.linearize(model, state, None, rule).A[: model.nv]
    for found in positions_in_both_modes(model, state, rule):
        np.testing.assert_allclose(found, closed, atol=1e-12)
