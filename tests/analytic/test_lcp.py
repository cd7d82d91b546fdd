"""Rigid contact by complementarity: its conditions hold to 1e-10 wherever things rest, slide, tip and collide."""

# ruff: noqa: E501  XML reads better unbroken

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.rigid import watch
from tests.scenes.slow import few
from ukemi.simulate.linearization import replace_leaves

EXACT = 1e-10  # of velocities and impulses


def scene(bodies: str, h: float = 0.01, g: float = 9.81, mu: float = 0.7, more: str = "", option: str = "") -> str:
    """A scene on a floor; all friction is mu."""
    return f"""<mujoco><option timestep="{h}" gravity="0 0 {-g}" {option}/><default><geom friction="{mu}"/></default>
    <worldbody><geom type="plane" size="20 20 1"/>{bodies}</worldbody>{more}</mujoco>"""


def cube(pos: str, half: float = 0.1, more: str = "", geom: str = "") -> str:
    return f'<body pos="{pos}" {more}><freejoint/><geom type="box" size="{half} {half} {half}" {geom}/></body>'


# ---- nothing to push ---------------------------------------------------------------------------------------------------

# Two levers that swing in one plane, one across the other: their normal points out of the plane, but for rounding.
CROSSED = """<mujoco><worldbody>
<body><joint axis="0 1 0"/><geom type="capsule" size=".05" fromto="-.5 0 0 .5 0 0" {own}/></body>
<body pos=".1 0 .1"><joint axis="0 1 0"/><geom type="capsule" size=".05" fromto="0 0 -.5 0 0 .5" {own}/></body>
</worldbody></mujoco>"""


@pytest.mark.parametrize("condim", few([1, 3], 3))
def test_normals_along_which_nothing_can_move_do_nothing(condim):
    touching, apart = (uk.load(CROSSED.format(own=own)) for own in (f'condim="{condim}"', 'contype="0"'))

    @jax.jit
    @partial(jax.vmap, in_axes=(None, 0, 0))
    def step(model, q, v):
        return uk.step(model, uk.initial_state(model, q=q, v=v), None, uk.LCP())

    rng = np.random.default_rng(0)
    q, v = jnp.asarray(rng.uniform(-0.3, 0.3, (40, 2))), jnp.asarray(rng.normal(size=(40, 2)))
    meets = jax.vmap(lambda q: uk.contacts(touching, uk.initial_state(touching, q=q)).active.any())
    assert meets(q).all()
    np.testing.assert_allclose(step(touching, q, v).v, step(apart, q, v).v, atol=1e-12)


# ---- rest ----------------------------------------------------------------------------------------------------------


def stack(n: int, x: float, bit: int) -> str:
    own = f'contype="{bit}" conaffinity="{bit}"'
    return "".join(cube(f"{x + 0.01 * (k % 2)} 0 {0.1 + k * 0.2005}", geom=own) for k in range(n))


@pytest.mark.parametrize("n", few([2, 3, 4, 5, 6], 3))
def test_stacks_come_to_rest(n):
    model = uk.load(scene(stack(n, 0, 1)), contacts=6 * n)
    out = watch(model, uk.initial_state(model), 60)
    assert out.residual.max() < EXACT
    assert out.contacts[-1] >= 3 * n and np.abs(out.states.v[-1]).max() < 1e-9


# Wedges of two plates each, on a half circle: every joint is a face, and the thrust stays inside of the faces.
def arch(n: int, radius: float = 0.5, depth: float = 0.15) -> str:
    """n voussoirs between two fixed ones; their faces meet exactly."""
    half, thick, out = np.pi / n / 2, 0.01, []
    for k in range(-1, n + 1):
        at = np.pi * (k + 0.5) / n
        plates = []
        for side in (-1, 1):
            turn = at + side * half
            away = np.array([np.cos(turn), np.sin(turn)])
            along = np.array([-np.sin(turn), np.cos(turn)])
            centre = radius * away - side * thick * along
            quat = f"{np.cos(-turn / 2)} 0 {np.sin(-turn / 2)} 0"
            geom = f'pos="{centre[0]} 0 {centre[1]}" quat="{quat}" type="box" size="{depth / 2} .05 {thick}"'
            own = "contype='1' conaffinity='2'" if side > 0 else "contype='2' conaffinity='1'"
            plates.append(f"<geom {geom} {own}/>")
        joint = "<freejoint/>" if 0 <= k < n else ""
        out.append(f"<body>{joint}{''.join(plates)}</body>")
    return "".join(out)


@pytest.mark.slow
def test_an_arch_of_wedges_stands():
    text = f"""<mujoco><option timestep="0.005"/><default><geom friction="0.9" density="2000"/></default>
    <worldbody>{arch(5)}</worldbody></mujoco>"""
    model = uk.load(text, contacts=40)
    out = watch(model, uk.initial_state(model), 60)
    assert out.residual.max() < EXACT and (out.contacts >= 12).all()
    assert np.abs(out.states.v).max() < 1e-9


@pytest.mark.parametrize("lean", [0.0, 0.05])
def test_a_box_on_its_edge(lean):
    """It balances; leaning, it tips over, hits the floor with a face and comes to rest."""
    half = 0.1
    angle = np.pi / 4 + lean
    model = uk.load(scene(cube("0 0 0", half)))
    height = half * (np.cos(angle) + np.sin(angle))
    state = uk.initial_state(model, q=[0, 0, height, np.cos(angle / 2), 0, np.sin(angle / 2), 0])
    out = watch(model, state, 150)
    assert out.residual.max() < EXACT
    assert np.abs(out.states.v[-1]).max() < 1e-9
    assert abs(out.states.q[-1, 2] - (height if lean == 0 else half)) < 1e-4
    if lean == 0:
        np.testing.assert_allclose(out.states.q[-1], state.q, atol=1e-9)


@pytest.mark.parametrize("name, least", [("humanoid", 8), pytest.param("quadruped", 4, marks=pytest.mark.slow)])
def test_stance(name, least):
    model = uk.load(name)
    state = uk.initial_state(model, "home")
    ctrl = jnp.asarray(model.keyframes.ctrl[0])
    out = watch(model, state, 100, ctrls=jnp.tile(ctrl, (100, 1)))
    assert out.residual.max() < EXACT
    assert (out.contacts >= least).any(), out.contacts


# ---- sliding ---------------------------------------------------------------------------------------------------------


def prism(n: int, y: float) -> str:
    """A prism of n sides that stands on n small spheres, with a vertex ahead."""
    turns = 2 * np.pi * np.arange(n) / n
    spheres = "".join(
        f'<geom size=".01" pos="{0.1 * np.cos(t)} {0.1 * np.sin(t)} {z}" mass="{0.3 / n}"/>'
        for t in turns
        for z in ((-0.05,) if n > 3 else (-0.05, 0.05))
    )
    return f'<body pos="0 {y} .06"><freejoint/>{spheres}<geom type="cylinder" size=".08 .04" mass="1" contype="0" conaffinity="0"/></body>'


def test_prisms_slide_to_rest_under_coulomb_friction():
    """Jade, V-C: 3 to 8 sides, v = 2, g = 9, μ = 0.16; velocities fall by μ g h = 0.0144 per step."""
    sides, mu, h, g = range(3, 9), 0.16, 0.01, 9.0
    bodies = "".join(prism(n, 0.5 * k) for k, n in enumerate(sides))
    text = scene(bodies, h, g, mu).replace(
        '<geom friction="0.16"/>', '<geom friction="0.16" contype="1" conaffinity="0"/>'
    )
    text = text.replace('size="20 20 1"', 'size="20 20 1" contype="0" conaffinity="1"')
    model = uk.load(text, contacts=40)
    v = np.zeros((len(sides), 6))
    v[:, 0] = 2.0
    out = watch(model, uk.initial_state(model, v=v.ravel()), 150)
    assert out.residual.max() < EXACT
    velocity = np.asarray(out.states.v).reshape(150, len(sides), 6)
    expected = np.maximum(2.0 - mu * g * h * np.arange(1, 151), 0.0)
    np.testing.assert_allclose(velocity[:, :, 0], np.broadcast_to(expected[:, None], (150, len(sides))), atol=1e-9)
    assert np.abs(velocity[:, :, 1:]).max() < 1e-9
    assert (velocity[-5:] == velocity[-1]).all() or np.abs(velocity[-5:]).max() < 1e-9


def test_a_cube_slides_into_another():
    """Jade, V-C: both have one mass, and what is left after the inelastic impact carries them on together."""
    mu, h, g, half = 0.16, 0.01, 9.0, 0.1
    cubes = cube("0 0 .1", half) + cube("0.5 0 .1", half)
    model = uk.load(scene(cubes, h, g, mu), contacts=16)
    v0 = 1.5
    out = watch(model, uk.initial_state(model, v=[v0, *[0] * 11]), 150)
    assert out.residual.max() < EXACT
    x, v = np.asarray(out.states.q)[:, [0, 7]], np.asarray(out.states.v)[:, [0, 6]]
    assert np.abs(out.states.v[-1]).max() < EXACT
    assert (x[:, 1] - x[:, 0]).min() > 2 * half - 1e-9
    np.testing.assert_allclose(x[-1, 1] - x[-1, 0], 2 * half, atol=1e-9)
    hit = int(np.argmax(v[:, 1] > 1e-3))
    # one step closes the gap, the next finds them at one speed; friction of the floor takes μ g h per cube and step
    np.testing.assert_allclose(v[hit + 1, 0], v[hit + 1, 1], atol=1e-9)
    lost = v[hit - 1].sum() - v[hit + 1].sum()
    assert 1.999 * mu * g * h < lost < 4.001 * mu * g * h


@pytest.fixture(scope="module")
def block():
    return uk.load(scene(cube("0 0 .1"), mu=0.5))


@pytest.mark.parametrize("excess", [-0.01, 0.01, 0.3])
def test_a_block_on_a_slope_sticks_or_slides(block, excess):
    """Below atan μ it stays for good, above it accelerates by g (sin − μ cos) in every step."""
    mu, g, h = 0.5, 9.81, 0.01
    angle = np.arctan(mu) + excess
    tilted = jnp.array([g * np.sin(angle), 0, -g * np.cos(angle)])
    model = replace_leaves(block, {"options.gravity": tilted})
    out = watch(model, uk.initial_state(model), 100)
    assert out.residual.max() < EXACT
    expected = max(0.0, g * (np.sin(angle) - mu * np.cos(angle))) * h * np.arange(1, 101)
    np.testing.assert_allclose(out.states.v[:, 0], expected, atol=1e-9)
    assert np.abs(np.asarray(out.states.v)[:, 1:]).max() < 1e-9
