"""Contact with closed forms: rest, rebound, sliding, rolling, and what contact must conserve."""

# ruff: noqa: E501  XML reads better unbroken

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.slow import few
from ukemi.maths import spatial

G = 9.81


def roll(model, steps, state, method=None):
    states = uk.rollout(model, state, jnp.zeros((steps, model.nu)), method)
    uk.raise_if_failed(states)
    return states


BALL = """<mujoco><option timestep="{h}" gravity="0 0 -9.81" integrator="RK4"/><worldbody>
<geom type="plane" size="5 5 1" condim="1" solimp="{d} {d} .001" solref="{t} {z}"/>
<body pos="0 0 .1"><joint type="slide" axis="0 0 1"/><geom size=".1" condim="1" mass="2" solimp="{d} {d} .001" solref="{t} {z}"/></body>
</worldbody></mujoco>"""


@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.5])
def test_soft_contact_is_the_spring_and_damper_that_it_says(ratio):
    """One contact of constant impedance d: z̈ = −(1 − d) g − (2/t) ż − z/(t ζ)² while it touches."""
    d, t = 0.9, 0.05
    model = uk.load(BALL.format(h=0.0005, d=d, t=t, z=ratio))
    rest = -(1 - d) * G * (t * ratio) ** 2
    start, speed = -0.02, 0.0
    states = roll(model, 400, uk.initial_state(model, q=np.array([start]), v=np.array([speed])))
    matrix = np.array([[0, 1], [-1 / (t * ratio) ** 2, -2 / t]])
    values, vectors = np.linalg.eig(
        matrix.astype(complex) if abs(ratio - 1) > 1e-9 else (matrix + 1e-7 * np.eye(2)).astype(complex)
    )
    if abs(ratio - 1) < 1e-9:  # a double root: r(t) = (r₀ + (v₀ + r₀/t) s) e^(−s/t)
        s = np.asarray(states.time)
        expected = rest + ((start - rest) + (speed + (start - rest) / t) * s) * np.exp(-s / t)
    else:
        weight = np.linalg.solve(vectors, np.array([start - rest, speed]))
        expected = rest + np.real(np.exp(np.outer(states.time, values)) * weight @ vectors.T)[:, 0]
    touching = np.cumprod(expected < 0).astype(bool)  # until it first lifts off
    assert touching.sum() > 50
    np.testing.assert_allclose(np.asarray(states.q)[touching, 0], expected[touching], atol=1e-8)


def test_rest_depth():
    d, t = 0.9, 0.02
    model = uk.load(BALL.format(h=0.001, d=d, t=t, z=1))
    states = roll(model, 1000, uk.initial_state(model, q=np.array([0.0])))
    assert abs(float(states.q[-1, 0]) + (1 - d) * G * t**2) < 1e-12
    state = jax.tree.map(lambda x: x[-1], states)
    np.testing.assert_allclose(uk.contacts(model, state).force[0], [0, 0, 2 * G], atol=1e-6)


# A point mass: a block would tip under friction, and chatter.
BLOCK = """<mujoco><option timestep="0.001" cone="elliptic" gravity="{g}" impratio="{r}"/><worldbody>
<geom type="plane" size="50 50 1" friction="{mu}" solref=".02 2"/><body pos="0 0 .0999"><joint type="slide" axis="1 0 0"/>
<joint type="slide" axis="0 1 0"/><joint type="slide" axis="0 0 1"/><geom size=".1" mass="3" friction="{mu}" solref=".02 2"/></body>
</worldbody></mujoco>"""


@pytest.mark.parametrize("impratio", [1, 5])
def test_sliding_block_slows_down_by_friction(impratio):
    mu, v0 = 0.4, np.array([1.8, -1.2, 0.0])
    model = uk.load(BLOCK.format(g=f"0 0 {-G}", mu=mu, r=impratio))
    states = roll(model, 700, uk.initial_state(model, v=v0))
    v, t = np.asarray(states.v), np.asarray(states.time)
    speed = np.linalg.norm(v[:, :2], axis=1)
    # Coulomb at every instant: what friction takes is μ times what the floor gave, whatever the floor does
    lost, given = speed - np.linalg.norm(v0), v[:, 2] + G * t
    sliding = speed > 0.1
    assert sliding.sum() > 300
    np.testing.assert_allclose(lost[sliding], -mu * given[sliding], atol=1e-9)
    np.testing.assert_allclose(v[sliding, 1] / v[sliding, 0], v0[1] / v0[0], atol=1e-9)
    # and on the whole the floor carries the weight
    assert abs(given[sliding][-1] / (G * t[sliding][-1]) - 1) < 0.03
    assert speed[-1] < 0.02


def test_a_weight_on_a_slope_slides_or_stays():
    mu = 0.5
    for angle, slides in ((0.3, False), (0.7, True)):  # atan 0.5 = 0.46
        g = f"{G * np.sin(angle)} 0 {-G * np.cos(angle)}"
        model = uk.load(BLOCK.format(g=g, mu=mu, r=100))
        states = roll(model, 400, uk.initial_state(model))
        v, t = np.asarray(states.v), np.asarray(states.time)
        if slides:
            given = v[:, 2] + G * np.cos(angle) * t
            np.testing.assert_allclose(v[:, 0], G * np.sin(angle) * t - mu * given, atol=1e-3)
            assert v[-1, 0] > 0.9 * G * (np.sin(angle) - mu * np.cos(angle)) * t[-1]
        else:
            assert np.abs(v[-100:]).max() < 1e-3  # soft friction creeps


def test_a_sliding_ball_ends_up_rolling_at_five_sevenths_of_its_speed():
    model = uk.load(
        '<mujoco><option timestep="0.002" cone="elliptic"/><worldbody><geom type="plane" size="50 50 1" friction=".3"/>'
        '<body pos="0 0 .4999"><freejoint/><geom size=".5" friction=".3"/></body></worldbody></mujoco>'
    )
    states = roll(model, 1000, uk.initial_state(model, v=np.array([2.0, 0, 0, 0, 0, 0])))
    v = np.asarray(states.v[-1])
    R = np.asarray(spatial.quat_to_mat(states.q[-1, 3:]))
    spin = R @ v[3:]
    assert abs(v[0] - 2 * 5 / 7) < 2e-3 and abs(spin[1] * 0.5 - v[0]) < 1e-3
    assert np.abs([v[1], v[2], spin[0], spin[2]]).max() < 1e-6


BODIES = """<mujoco><option timestep="0.002" gravity="0 0 0" cone="{cone}"/><worldbody>
<body pos="-.3 0 0"><freejoint/><geom type="{t}" size=".15 .12 .1" condim="6" friction=".8 .05 .02" density="700"/></body>
<body pos=".1 .08 .05"><freejoint/><geom type="{t}" size=".2 .15 .1" condim="4"/></body>
<body pos=".5 -.05 0"><freejoint/><geom type="{t}" size=".1 .2 .15" condim="6"/></body></worldbody></mujoco>"""


def momenta(model, states):
    """Linear and angular momentum about the origin (n, 3) of free bodies with their centre at the joint."""
    n = len(states.time)
    q, v = np.asarray(states.q).reshape(n, -1, 7), np.asarray(states.v).reshape(n, -1, 6)
    mass, inertia = np.asarray(model.bodies.mass[1:]), np.asarray(model.bodies.inertia[1:])
    frame = spatial.quat_mul(spatial.quat_normalize(jnp.asarray(q[..., 3:])), model.bodies.iquat[1:])
    R0 = np.asarray(spatial.quat_to_mat(spatial.quat_normalize(jnp.asarray(q[..., 3:]))))
    R = np.asarray(spatial.quat_to_mat(frame))
    world = np.einsum("nbij,nbj->nbi", R0, v[..., 3:])
    spin = np.einsum("nbij,bj,nbkj,nbk->nbi", R, inertia, R, world)
    P = mass[:, None] * v[..., :3]
    return P.sum(1), (np.cross(q[..., :3], P) + spin).sum(1)


@pytest.mark.parametrize("cone", few(["pyramidal", "elliptic"], "elliptic"))
@pytest.mark.parametrize("shape", few(["sphere", "box", "capsule"], "box", "capsule"))
def test_contact_between_free_bodies_conserves_momentum(shape, cone):
    model = uk.load(BODIES.format(t=shape, cone=cone))
    v = np.zeros((3, 6))
    v[0], v[2] = [2, 0.3, 0.1, 1, -2, 3], [-2, 0.1, -0.2, -3, 1, 2]
    state = uk.initial_state(model, v=v.ravel())
    states = roll(model, 200, state)
    everything = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), state, states)
    P, L = momenta(model, everything)
    assert np.abs(np.asarray(states.v)[-1] - v.ravel()).max() > 0.5  # they did collide
    assert np.abs(P - P[0]).max() < 1e-10
    # a ball's inertia is the same in every direction, so no error of the integrator mixes in
    assert np.abs(L - L[0]).max() < (1e-10 if shape == "sphere" else 0.05 * np.abs(L).max())
