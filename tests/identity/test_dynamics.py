"""Relations that must hold whatever the numbers: inverse and forward dynamics, batches, compilation, energy."""

# ruff: noqa: E501  XML reads better unbroken

import copy

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.agreement import CONVERGED, QUICK
from tests.scenes.models import CASES
from tests.scenes.slow import few
from tests.scenes.states import converged, load_sample, random_states, stack
from ukemi.laws.soft.law import Soft
from ukemi.maths import spatial
from ukemi.mechanics import dynamics, kinematics
from ukemi.mechanics.energy import mechanical_energy
from ukemi.mechanics.forces import applied
from ukemi.model.records import Input, as_input
from ukemi.simulate import stepping as simulate

NAMES = ["ukemi/humanoid", "ukemi/billiards", "ukemi/quadruped", "ukemi/arm", "shared/cassie"]


def states(name: str, n: int = 20):
    """MuJoCo's model, ours, and n states with their inputs."""
    m = converged(copy.copy(CASES[name]()))
    samples = random_states(m, n, seed=7)
    model = uk.load(m)
    return m, model, samples, *stack(model, samples)


def mapped(function, *batch):
    """The function over a batch, one element after the other."""
    run = jax.jit(lambda batch: jax.lax.map(lambda x: function(*x), batch), compiler_options=QUICK)
    return jax.tree.map(np.asarray, run(batch))


@pytest.mark.parametrize("name", few(NAMES, "ukemi/billiards"))
def test_inverse_of_forward_is_the_applied_force(name):
    _, model, _, batch, inputs = states(name)

    def both(state, inputs):
        now = CONVERGED.forward(model, state, inputs)
        return now, CONVERGED.inverse(model, state, now.solution.acceleration, inputs)

    now, tau = mapped(both, batch, inputs)
    given = mapped(lambda s, u: applied(model, kinematics.of_state(model, s, u), u, s.v), batch, inputs)
    expected = now.actuation.qfrc - now.passive.held + given
    scale = np.abs(now.smooth.bias).max() + np.abs(expected).max() + np.abs(now.smooth.M).max() * np.abs(now.solution.acceleration).max()
    assert np.abs(tau - expected).max() < 1e-10 * scale


def test_inverse_through_the_public_function():
    model = uk.load("humanoid")
    state = uk.initial_state(model, "home", v=0.1 * np.ones(model.nv))
    ctrl = np.linspace(-0.3, 0.3, model.nu)
    _, acceleration, _ = uk.vector_field(model, state, ctrl, CONVERGED)
    drive = jax.jit(lambda: CONVERGED.forward(model, state, as_input(model, ctrl)).actuation.qfrc)()
    np.testing.assert_allclose(uk.inverse(model, state, acceleration), drive, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_mass_matrix_is_symmetric_and_positive(name):
    _, model, _, batch, inputs = states(name)
    M = mapped(lambda s, u: dynamics.smooth(model, kinematics.of_state(model, s, u), s.v).M, batch, inputs)
    assert np.abs(M - np.swapaxes(M, 1, 2)).max() <= 1e-15 * np.abs(M).max()
    least = np.linalg.eigvalsh(M)[:, 0]
    assert (least > 0).all()


def test_flows_are_what_inertias_make_of_motions():
    """Σ m ẋ xᵀ has the momentum that the spatial inertia makes of a motion, and what turns it is V ×* I V."""
    rng = np.random.default_rng(0)
    points, V, W = rng.normal(size=(5, 4, 7)), rng.normal(size=(6, 7)), rng.normal(size=(6, 7))
    points[:, 3] = 1
    pseudo = np.einsum("p,pin,pjn->ijn", rng.uniform(1, 2, 5), points, points)
    flow, inertia = spatial.flow(V, pseudo), spatial.spatial_inertia(pseudo.reshape(16, 7).T)
    carried = spatial.apply(inertia, V.T)
    np.testing.assert_allclose(spatial.momentum(flow), carried.T, atol=1e-12)
    np.testing.assert_allclose(spatial.turning(V, flow), spatial.cross_force(V.T, carried).T, atol=1e-12)
    there, back = (W * spatial.turning(V, flow)).sum(0), (V[:3] * spatial.turning_back(W, flow)).sum(0)
    np.testing.assert_allclose(there, back, atol=1e-12)


@pytest.mark.parametrize("name", ["ukemi/humanoid", "ukemi/arm", "ukemi/billiards"])
def test_inverse_dynamics_is_mass_times_acceleration_plus_bias(name):
    _, model, _, batch, inputs = states(name, 5)
    a = np.random.default_rng(0).normal(size=(5, model.nv))

    def one(state, inputs, a):
        now = dynamics.smooth(model, kinematics.of_state(model, state, inputs), state.v)
        return dynamics.inverse_dynamics(model, state.q, state.v, a), now.M @ a + now.bias

    mine, other = mapped(one, batch, inputs, jnp.asarray(a))
    np.testing.assert_allclose(mine, other, rtol=1e-11, atol=1e-11 * np.abs(other).max())


def test_acceleration_falls_with_force_by_the_inverse_mass():
    """Without constraints a is affine in τ with slope M⁻¹."""
    m = CASES["ukemi/humanoid"]()
    m.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
    model = uk.load(m)
    state = uk.initial_state(model, "home", v=0.3 * np.ones(model.nv))
    forces = 10.0 * np.concatenate([np.zeros((1, model.nv)), np.eye(model.nv)])
    run = jax.vmap(lambda f: Soft().forward(model, state, Input(jnp.zeros(model.nu), f)))
    now = jax.jit(run)(jnp.asarray(forces))
    slope = np.asarray(now.solution.acceleration[1:] - now.solution.acceleration[0]) / 10.0
    inverse = np.linalg.inv(now.smooth.M[0])
    np.testing.assert_allclose(slope, inverse, atol=1e-10 * np.abs(inverse).max())


@pytest.mark.parametrize("name", few(["ukemi/humanoid", "ukemi/billiards", "ukemi/quadrotor", "shared/cassie"], "ukemi/billiards"))
def test_a_batch_is_a_loop(name):
    _, model, _, batch, inputs = states(name, 16)
    step = jax.jit(lambda s, u: Soft().step(model, s, u))
    each = [jax.tree.map(lambda x, k=k: x[k], (batch, inputs)) for k in range(16)]
    one_by_one = [step(*x) for x in each]
    loop = jax.tree.map(lambda *x: np.stack(x), *one_by_one)
    together = jax.jit(jax.vmap(lambda s, u: Soft().step(model, s, u)))(batch, inputs)
    for a, b in ((together.q, loop.q), (together.v, loop.v), (together.act, loop.act)):
        assert np.abs(a - b).max(initial=0) <= 1e-12 * max(1, np.abs(b).max(initial=0))
    assert (np.asarray(together.status) == loop.status).all()


@pytest.mark.slow  # of LCP in test_lcp_motion.py
def test_compiled_is_eager():
    model = uk.load("box")
    state = uk.initial_state(model, "home", v=0.1 * np.ones(model.nv))
    inputs = Input(jnp.zeros(0), qfrc=jnp.linspace(-1, 1, model.nv), xfrc=jnp.ones((model.tree.nb, 6)))
    eager = Soft().step(model, state, inputs)
    compiled = jax.jit(lambda s, u: Soft().step(model, s, u))(state, inputs)
    public = uk.step(model, state, inputs)
    for other in (compiled, public):
        np.testing.assert_allclose(eager.q, other.q, rtol=0, atol=1e-13)
        np.testing.assert_allclose(eager.v, other.v, rtol=0, atol=1e-12)


def test_a_traced_model_is_a_closed_over_one():
    """Parameters may be arguments of a compiled function: nothing at load depends on their values."""
    model = uk.load("quadruped")
    state = uk.initial_state(model, "home", v=0.1 * np.ones(model.nv))
    run = eqx.filter_jit(lambda model, s: Soft().step(model, s, as_input(model, None)))
    closed = jax.jit(lambda s: Soft().step(model, s, as_input(model, None)))(state)
    given = run(model, state)
    np.testing.assert_allclose(closed.v, given.v, rtol=0, atol=1e-12)


def test_rollout_is_repeated_steps():
    model = uk.load("hopper")
    state = uk.initial_state(model, "home")
    ctrls = np.random.default_rng(0).uniform(-1, 1, (20, model.nu))
    states = uk.rollout(model, state, ctrls)
    for k in range(20):
        state = uk.step(model, state, ctrls[k])
        np.testing.assert_allclose(states.q[k], state.q, rtol=0, atol=1e-11)
        np.testing.assert_allclose(states.v[k], state.v, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["ukemi/humanoid", "ukemi/quadruped", "shared/cassie"])
def test_the_warm_start_does_not_change_the_step(name):
    _, model, _, batch, inputs = states(name, 10)
    cold = eqx.tree_at(lambda s: s.cache.acceleration, batch, jnp.zeros_like(batch.cache.acceleration))
    wild = eqx.tree_at(lambda s: s.cache.acceleration, batch, 100 * jnp.ones_like(batch.cache.acceleration))
    step = jax.jit(lambda x: jax.lax.map(lambda x: CONVERGED.step(model, *x), x))
    results = [step((x, inputs)) for x in (batch, cold, wild)]
    for other in results[1:]:
        scale = 1 + np.abs(results[0].v).max()
        assert np.abs(results[0].v - other.v).max() < 1e-9 * scale
        assert np.abs(results[0].q - other.q).max() < 1e-10 * scale
    assert not np.any(results[0].status)


def test_numpy_goes_in():
    model = uk.load("hopper")
    state = uk.initial_state(model, q=np.asarray(model.joints.qpos0), v=np.zeros(model.nv))
    state = jax.tree.map(np.asarray, state)
    for ctrl in (np.zeros(model.nu), [0.0] * model.nu, np.zeros(model.nu, np.float32), np.zeros(model.nu, int)):
        after = uk.step(model, state, ctrl)
        assert np.isfinite(after.q).all()
    assert np.isfinite(uk.inverse(model, state, np.zeros(model.nv))).all()
    assert np.isfinite(uk.energy(model, state).total)
    assert uk.rollout(model, state, np.zeros((3, model.nu))).q.shape == (3, model.nq)


@pytest.mark.parametrize("name", few(["ukemi/humanoid", "ukemi/billiards", "shared/a1"], "ukemi/humanoid"))
@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_contact_forces_sum_to_the_constraint_force(name, cone):
    """The reported world-frame forces and torques, applied to the bodies, are the generalised contact force."""
    m, model, samples, batch, inputs = states(name, 12)
    method = Soft(cone=cone, iterations=300, tolerance=1e-13)

    def one(state, inputs):
        return simulate._contacts(model, state, inputs, method), method.forward(model, state, inputs)

    found, now = mapped(one, batch, inputs)
    kinds, d, seen = method.kinds(model), mujoco.MjData(m), 0
    for k, sample in enumerate(samples):
        load_sample(d, sample)
        mujoco.mj_fwdPosition(m, d)
        total = np.zeros(m.nv)
        for c in np.flatnonzero(found.active[k]):
            seen += 1
            for geom, sign in zip(found.geoms[k, c], (-1.0, 1.0), strict=True):
                wrench = sign * found.force[k, c], sign * found.torque[k, c]
                mujoco.mj_applyFT(m, d, *wrench, found.point[k, c], m.geom_bodyid[geom], total)
        expected = now.solution.force[k, kinds.scalar :] @ now.rows.J[k, kinds.scalar :]
        np.testing.assert_allclose(total, expected, atol=1e-9 * (1 + np.abs(expected).max()))
    assert seen > 10


@pytest.mark.parametrize("name", ["ukemi/humanoid", "ukemi/billiards", "shared/cassie", "gymnasium/hopper", "dm_control/humanoid"])
def test_energy_is_that_of_mujoco(name):
    m, model, samples, batch, _ = states(name)
    m.opt.enableflags |= int(mujoco.mjtEnableBit.mjENBL_ENERGY)
    energy = mapped(lambda s: mechanical_energy(model, s), batch)
    d = mujoco.MjData(m)
    for k, sample in enumerate(samples):
        load_sample(d, sample)
        mujoco.mj_forward(m, d)
        np.testing.assert_allclose([energy.potential[k], energy.kinetic[k]], d.energy, rtol=1e-11, atol=1e-10)


def test_energy_of_springs_of_every_joint():
    m = mujoco.MjModel.from_xml_string(
        "<mujoco><option><flag energy='enable'/></option><worldbody>"
        "<body><joint type='free' stiffness='7'/><geom size='.1'/></body>"
        "<body pos='1 0 0'><joint type='ball' stiffness='3'/><geom size='.1' pos='.2 0 0'/>"
        "<body pos='.2 0 0'><joint axis='0 1 0' stiffness='2' springref='40'/><joint type='slide' stiffness='9' ref='.2' springref='.1'/>"
        "<geom size='.1'/></body></body></worldbody></mujoco>"
    )
    model, d = uk.load(m), mujoco.MjData(m)
    for sample in random_states(m, 10):
        load_sample(d, sample)
        mujoco.mj_forward(m, d)
        energy = uk.energy(model, uk.initial_state(model, q=d.qpos, v=d.qvel))
        np.testing.assert_allclose([energy.potential, energy.kinetic], d.energy, rtol=1e-12, atol=1e-12)


def test_the_vector_field_holds_activations_at_their_limits():
    """As the adaptive law does, whose field it is: a rate that leads out of the range is none."""
    text = """<mujoco><worldbody><body><joint name="j"/><geom size=".1"/></body></worldbody><actuator>
      <general joint="j" dyntype="integrator" actlimited="true" actrange="-1 1"/></actuator></mujoco>"""
    model = uk.load(text)
    for act, ctrl, rate in ((1.0, 0.5, 0.0), (1.0, -0.5, -0.5), (-1.0, -0.5, 0.0), (0.9, 0.5, 0.5)):
        state = uk.initial_state(model, act=[act])
        fields = [uk.vector_field(model, state, [ctrl], method) for method in (None, uk.Adaptive())]
        assert fields[0][2] == rate
        assert jax.tree.all(jax.tree.map(np.array_equal, *fields))


def test_vector_field_is_the_limit_of_a_step():
    """(x(t+h) − x(t))/h tends to the vector field, with an error that halves with h."""
    text = """<mujoco><option timestep="{h}"/><worldbody><geom type="plane" size="5 5 .1"/>
      <body pos="0 0 .09"><freejoint/><geom type="box" size=".1 .15 .1"/><body pos=".2 0 0"><joint type="ball"/>
      <geom size=".05" pos=".1 0 0"/><body pos=".2 0 .1"><joint name="j" axis="0 1 0"/><geom size=".05"/></body></body></body>
      </worldbody><actuator><position joint="j" kp="3"/><general joint="j" dyntype="filter" dynprm=".1"/></actuator></mujoco>"""
    errors = []
    for h in (2e-5, 1e-5):
        model = uk.load(text.format(h=h))
        v = np.random.default_rng(0).normal(size=model.nv)
        state = uk.initial_state(model, v=v, act=np.ones(1))
        ctrl = np.array([0.3, 0.5])
        rate = uk.vector_field(model, state, ctrl, Soft(tolerance=1e-13))
        after = uk.step(model, state, ctrl, Soft(tolerance=1e-13))
        moved = [(b - a) / h for a, b in ((state.q, after.q), (state.v, after.v), (state.act, after.act))]
        errors.append([np.abs(a - b).max() / (1 + np.abs(b).max()) for a, b in zip(moved, rate, strict=True)])
    errors = np.array(errors)
    assert (errors < 0.1).all() and np.allclose(errors[1], errors[0] / 2, rtol=0.01, atol=1e-9), errors
