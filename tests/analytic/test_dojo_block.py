"""Dojo's block in a plane (Fig. 4) against its own equations, from which cones are eliminated: on the central path a
corner at a distance φ pushes with γ = κ/φ and rubs with b = −μγ u/(a + √(a² + u²)), a = κ/(2μγ).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk

HALF, MASS = 0.25, 1.0
CORNERS = np.array([[x, -HALF] for x in (-HALF, -HALF, HALF, HALF)])  # two of each, as of a cube


class Scene(NamedTuple):
    """Time step, gravity, friction."""

    h: float
    g: float
    mu: float

    def model(self) -> uk.Model:
        return uk.load(f"""<mujoco><option timestep="{self.h}" gravity="0 0 {-self.g}"/><worldbody>
        <geom type="plane" size="5 5 1" friction="{self.mu}"/>
        <body pos="0 0 .25"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint axis="0 1 0"/>
        <geom type="box" size=".25 .25 .25" mass="1" friction="{self.mu}"/></body></worldbody></mujoco>""")


PUSHED, BLOCK = Scene(0.1, 1.0, 1.0), Scene(0.01, 9.81, 0.8)
# Where forces act on: at the corner, or midway between the surfaces, where contacts are; and on bodies at the end of
# the step, or at its start, where the variational integrator has them.
ARMS = {"paper": (0.0, 0.0), "ncp": (0.5, 0.0), "maximal": (0.5, 1.0)}


def moved(scene: Scene, push, kappa: float, arms: str) -> np.ndarray:
    """Displacement x, z and turn of the block that rests on the floor, after a step with an impulse (x, z)."""
    h, g, mu = scene
    between, back = ARMS[arms]
    variational = arms != "ncp"

    def balance(v, kappa):
        c, s = np.cos(h * v[2]), np.sin(h * v[2])
        r = CORNERS @ [[c, -s], [s, c]]
        phi = HALF + h * v[1] + r[:, 1]
        r[:, 1] -= between * phi
        u, gamma = v[0] + v[2] * r[:, 1], kappa / phi
        a = kappa / (2 * mu * gamma)
        b = -mu * gamma * u / (a + np.sqrt(a * a + u * u))
        arm = r + back * h * v[:2]
        turn = MASS * (2 * HALF) ** 2 / 6 * (np.sin(h * v[2]) / h if variational else v[2])
        off = [MASS * v[0] - push[0] - b.sum(), MASS * (v[1] + g * h) - push[1] - gamma.sum()]
        return np.array([*off, turn - (arm[:, 1] * b - arm[:, 0] * gamma).sum()]), phi.min() > 0

    v, near, eye = np.array([0.0, 0.2 / h, 0.0]), 1.0, 1e-8 * np.eye(3)
    while True:  # Newton's method along the path, with steps that stay above the floor and gain something
        for _ in range(60):
            off = balance(v, near)[0]
            slope = np.array([balance(v + e, near)[0] - balance(v - e, near)[0] for e in eye]).T / 2e-8
            step = np.linalg.solve(slope, -off)
            tried = [0.5**k for k in range(40)]
            ways = (v + share * step for share in tried)
            better = [way for way in ways if (new := balance(way, near))[1] and abs(new[0]).max() < abs(off).max()]
            if not better or abs(off).max() < 1e-14:
                break
            v = better[0]
        if near <= kappa:
            return h * v
        near = max(kappa, 0.3 * near)


@pytest.fixture(scope="module", params=["ncp", "maximal"])
def reach(request):
    """A law's displacement and its slope in the push, of a scene, of one program for all scenes and κ."""
    law = {"ncp": uk.NCP, "maximal": uk.Maximal}[request.param]

    def one(model, push, kappa):
        inputs = uk.Input(qfrc=push / model.options.timestep)
        return uk.step(model, uk.initial_state(model), inputs, law(kappa=kappa, ahead=1.0)).q

    run = jax.jit(lambda model, push, kappa: jax.jvp(lambda push: one(model, push, kappa), (push,), (jnp.eye(3)[0],)))
    return request.param, lambda scene, push, kappa: run(scene.model(), jnp.array([*push, 0.0]), jnp.asarray(kappa))


def test_pushes_and_their_gradients_are_those_of_the_equations(reach):
    """At κ = 1e-4; contacts give by 1e-7 of their impulse, which the equations do not have."""
    name, run = reach
    for push in (0.049, 0.101, 0.2):
        place, slope = run(PUSHED, [push, 0.0], 1e-4)
        true, away = (moved(PUSHED, [push + step, 0.0], 1e-4, name) for step in (0.0, 1e-6))
        np.testing.assert_allclose(place, true, atol=1e-7)
        np.testing.assert_allclose(slope[0], (away - true)[0] / 1e-6, rtol=1e-4)


def test_the_notes_have_the_same_equations_with_arms_to_the_corners():
    """Slopes at κ = 1e-4 of Dojo's equations 16 to 26; where forces act makes 1% of them, and 11% at the end."""
    for push, slope in ((0.049, 0.02035), (0.101, 0.02597), (0.2, 0.05074)):
        places = [moved(PUSHED, [push + step, 0.0], 1e-4, "paper")[0] for step in (-1e-5, 1e-5)]
        np.testing.assert_allclose((places[1] - places[0]) / 2e-5, slope, atol=1e-5)


def test_a_larger_kappa_moves_a_block_by_millimetres(reach):
    """Dojo, Fig. 4: between κ = 1e-4 and 1e-8, forces of 0 to 20 N along the floor, and up."""
    _, run = reach
    for way, axis, bound in (([1, 0], 0, 1.52e-3), ([0, 1], 1, 2.56e-3)):
        pushes = [BLOCK.h * np.array(way) * force for force in np.linspace(0, 20, 11)]
        soft, hard = (np.array([run(BLOCK, push, kappa)[0][axis] for push in pushes]) for kappa in (1e-4, 1e-8))
        assert 0.1 * bound < abs(soft - hard).max() < bound
