"""Fluid forces on ellipsoids against MuJoCo: the forces, their slopes, and next states under every integrator."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.agreement import assert_agrees, compare
from tests.scenes.fluids import swimmer
from tests.scenes.slow import few
from ukemi.mechanics.fluid import fluid_force, fluid_slope
from ukemi.mechanics.kinematics import kinematics


@pytest.mark.parametrize("integrator", few(["Euler", "implicit", "implicitfast", "RK4"], "implicit", "implicitfast"))
def test_a_swimmer_moves_as_in_mujoco(integrator):
    """Euler and RK4 take no slope of the fluid: there, other tests see the forces."""
    assert_agrees(compare(swimmer(integrator), n=60))


@jax.jit
def _pressed(model, q, v):
    def one(x):
        kin = kinematics(model, x[0])
        slope = fluid_slope(model, kin, x[1])
        return fluid_force(model, kin, x[1]), slope, jax.jacfwd(lambda v: fluid_force(model, kin, v))(x[1])

    return jax.lax.map(one, (q, v))


@pytest.mark.parametrize(("size", "speed"), [(1, 1), (1e-2, 1), (1, 1e-6), (1, 0)])
def test_forces_at_any_scale_and_their_slopes(size, speed):
    """Of things of a millimetre and of what hardly moves, too; at rest nothing is NaN."""
    m, rng = swimmer("Euler", ""), np.random.default_rng(0)
    m.geom_size *= size
    m.geom_fluid[:, 6:9] *= size**3
    m.geom_fluid[:, 9:] *= size**5
    m.opt.viscosity *= speed  # else it hides what is quadratic
    d, q, v, forces = mujoco.MjData(m), [], [], []
    for _ in range(50):
        mujoco.mj_resetData(m, d)
        mujoco.mj_integratePos(m, d.qpos, rng.normal(size=m.nv), 1.0)
        d.qvel = speed * rng.normal(size=m.nv)
        mujoco.mj_forward(m, d)
        q.append(d.qpos.copy()), v.append(d.qvel.copy()), forces.append(d.qfrc_fluid.copy())
    found, slope, expected = map(np.asarray, _pressed(uk.load(m), jnp.asarray(q), jnp.asarray(v)))
    np.testing.assert_allclose(found, forces, rtol=0, atol=1e-10 * np.abs(forces).max())
    assert (np.abs(forces).max() > 0) == (speed > 0)
    np.testing.assert_allclose(slope, expected, rtol=0, atol=1e-10 * np.abs(expected).max())
