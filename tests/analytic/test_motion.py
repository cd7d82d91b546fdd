"""Motions with closed forms, conserved quantities, and the order of every integrator."""

# ruff: noqa: E501  XML reads better unbroken

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from ukemi.maths import spatial

FREE = """<mujoco><option gravity="0 0 {g}" timestep="{h}" integrator="{i}"/><worldbody><body pos="0 0 2"><freejoint/>
<inertial pos="0 0 0" mass="{mass}" diaginertia="{inertia}"/></body></worldbody></mujoco>"""
INTEGRATORS = ["Euler", "implicitfast", "implicit", "RK4"]


CHUNK = 50  # steps of one call: all runs of one structure then share one program


def roll(model, steps, state):
    """The states that follow, any number of them."""
    parts = []
    for _ in range(-(-steps // CHUNK)):
        parts.append(uk.rollout(model, state, jnp.zeros((CHUNK, model.nu))))
        state = jax.tree.map(lambda x: x[-1], parts[-1])
    states = jax.tree.map(lambda *x: jnp.concatenate(x)[:steps], *parts)
    uk.raise_if_failed(states)
    return states


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_free_fall(integrator):
    g, h, n = -9.81, 0.01, 100
    model = uk.load(FREE.format(g=g, h=h, i=integrator, mass=3, inertia="1 1 1"))
    v0 = np.array([1.0, 2.0, 5.0, 0, 0, 0])
    states = roll(model, n, uk.initial_state(model, v=v0))
    t = h * np.arange(1, n + 1)
    np.testing.assert_allclose(states.v[:, 2], v0[2] + g * t, atol=1e-12)
    np.testing.assert_allclose(states.q[:, :2], t[:, None] * v0[:2], atol=1e-12)
    # RK4 follows the parabola, semi-implicit steps lag behind it by ½ g h t
    late = 0.0 if integrator == "RK4" else 0.5 * g * h * t
    np.testing.assert_allclose(states.q[:, 2], 2 + v0[2] * t + 0.5 * g * t**2 + late, atol=1e-12)


def test_symmetric_top_precesses_about_its_axis():
    """Without torque the angular velocity in the body turns about the axis at (I₃ − I₁)/I₁ ω₃."""
    I1, I3, w = 0.3, 0.5, np.array([0.7, 0.0, 6.0])
    model = uk.load(FREE.format(g=0, h=0.002, i="RK4", mass=1, inertia=f"{I1} {I1} {I3}"))
    states = roll(model, 1000, uk.initial_state(model, v=np.concatenate([np.zeros(3), w])))
    angle = (I3 - I1) / I1 * w[2] * np.asarray(states.time)
    expected = np.stack([w[0] * np.cos(angle), w[0] * np.sin(angle), np.full_like(angle, w[2])], 1)
    np.testing.assert_allclose(states.v[:, 3:], expected, atol=1e-8)
    # in space the axis turns about the constant angular momentum L at |L| / I₁
    L = np.array([I1, I1, I3]) * w
    R = np.asarray(spatial.quat_to_mat(states.q[:, 3:]))
    axis, unit = R[:, :, 2], L / np.linalg.norm(L)
    np.testing.assert_allclose(axis @ unit, unit[2], atol=1e-8)
    start = np.array([0.0, 0, 1]) - unit[2] * unit
    turn = np.linalg.norm(L) / I1 * np.asarray(states.time)[:, None]
    across = np.cos(turn) * start + np.sin(turn) * np.cross(unit, start)
    np.testing.assert_allclose(axis, unit[2] * unit + across, atol=1e-7)


def invariants(model, states, inertia):
    """Angular momentum in space (n, 3) and kinetic energy (n,) of a free body."""
    R = np.asarray(spatial.quat_to_mat(spatial.quat_normalize(states.q[:, 3:])))
    w = np.asarray(states.v[:, 3:])
    return np.einsum("nij,nj->ni", R, w * inertia), 0.5 * (inertia * w * w).sum(1)


@pytest.mark.parametrize("integrator, order", [("Euler", 1), ("implicit", 1), ("implicitfast", 1), ("RK4", 4)])
def test_tumbling_body_keeps_its_momentum_and_energy(integrator, order):
    """An asymmetric body turning about its unstable axis: the drift falls with the order of the integrator."""
    inertia, drift = np.array([0.2, 0.4, 0.5]), []
    for h in (0.004, 0.002):
        model = uk.load(FREE.format(g=0, h=h, i=integrator, mass=1, inertia="0.2 0.4 0.5"))
        states = roll(model, round(3 / h), uk.initial_state(model, v=np.array([0, 0, 0, 0.1, 5.0, 0.2])))
        L, energy = invariants(model, states, inertia)
        drift.append([np.abs(L - L[0]).max() / np.linalg.norm(L[0]), np.abs(energy / energy[0] - 1).max()])
        assert np.asarray(states.v[:, 4]).min() < -4  # it did flip
    drift = np.array(drift)
    assert (drift[0] < (1e-6 if order == 4 else 0.2)).all(), drift
    assert (np.log2(drift[0] / drift[1]) > order - 0.35).all(), drift


PENDULUM = """<mujoco><option timestep="{h}" integrator="{i}"/><worldbody><body pos="0 0 0">
<joint axis="0 1 0"/><inertial pos="0 0 -.7" mass="2" diaginertia=".1 .05 .1"/></body></worldbody></mujoco>"""


def arithmetic_geometric_mean(a, b):
    for _ in range(30):
        a, b = (a + b) / 2, np.sqrt(a * b)
    return a


@pytest.mark.parametrize("amplitude", [0.01, 1.0, 3.0])
def test_period_of_a_pendulum(amplitude):
    small = 2 * np.pi * np.sqrt((0.05 + 2 * 0.7**2) / (2 * 9.81 * 0.7))
    period = small / arithmetic_geometric_mean(1.0, np.cos(amplitude / 2))
    h = period / 1000
    model = uk.load(PENDULUM.format(h=h, i="RK4"))
    states = roll(model, 1000, uk.initial_state(model, q=np.array([amplitude])))
    assert abs(float(states.q[-1, 0]) - amplitude) < 1e-8
    assert abs(float(states.v[-1, 0])) < 1e-6  # back at rest exactly now
    assert abs(float(states.q[499, 0]) + amplitude) < 1e-8


CHAIN = """<mujoco><option timestep="{h}" integrator="{i}"/><default><geom contype="0" conaffinity="0"/></default><worldbody>
<body pos="0 0 1"><freejoint/><geom type="box" size=".1 .2 .15" pos=".05 0 .1"/>
  <body pos=".2 .1 0"><joint type="ball" damping="{d}"/><geom type="box" size=".1 .05 .2" pos=".1 0 .1"/>
    <body pos=".2 0 .1"><joint axis="0 1 0" damping="{d}" stiffness="3"/><geom type="capsule" size=".04 .1" pos="0 0 .1"/></body></body></body>
<body pos="3 0 1"><freejoint/><geom type="box" size=".1 .2 .3" pos=".1 0 .05"/></body>
</worldbody></mujoco>"""


def end(integrator: str, h: float, span: float, damping: float):
    model = uk.load(CHAIN.format(h=h, i=integrator, d=damping))
    v = np.random.default_rng(1).normal(size=model.nv) * 2
    states = roll(model, round(span / h), uk.initial_state(model, v=v))
    return model, np.concatenate([states.q[-1], states.v[-1]])


@pytest.mark.parametrize("integrator, order", [("Euler", 1), ("implicitfast", 1), ("implicit", 1), ("RK4", 4)])
def test_order_of_convergence(integrator, order):
    """Free and ball joints, springs and dampers: the error after a fixed time falls by 2^order when the step halves."""
    _, truth = end("RK4", 3.2e-4, 0.32, 0.02)
    steps = (0.005, 0.0025, 0.00125) if order == 4 else (0.002, 0.001, 0.0005)
    errors = np.array([np.abs(end(integrator, h, 0.32, 0.02)[1] - truth).max() for h in steps])
    measured = np.log2(errors[:-1] / errors[1:])
    assert (np.abs(measured - order) < 0.25).all(), (errors, measured)


@pytest.mark.parametrize("integrator, order", [("Euler", 1), ("implicitfast", 1), ("implicit", 1), ("RK4", 4)])
def test_energy_drift(integrator, order):
    """Conservative system: the energy error over two seconds falls with the order of the integrator."""
    text = """<mujoco><option timestep="{h}" integrator="{i}"/><default><geom contype="0" conaffinity="0"/></default><worldbody>
    <body><joint axis="0 1 0"/><geom type="capsule" size=".03" fromto="0 0 0 0 0 -.5"/><body pos="0 0 -.5"><joint axis="0 1 0"/>
    <geom type="capsule" size=".03" fromto="0 0 0 0 0 -.4"/></body></body></worldbody></mujoco>"""
    drift = []
    for h in (0.004, 0.002):
        model = uk.load(text.format(h=h, i=integrator))
        states = roll(model, round(2 / h), uk.initial_state(model, q=np.array([1.0, 0.5])))
        energy = jax.vmap(uk.energy, (None, 0))(model, states).total
        drift.append(np.abs(energy - energy[0]).max())
    assert drift[0] < (1e-6 if order == 4 else 0.5), drift
    assert np.log2(drift[0] / drift[1]) > order - 0.3, drift
