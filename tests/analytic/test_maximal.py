"""The variational integrator: what it keeps, its order, and Dojo's own equations of bodies and joints (Dojo, III)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from ukemi.laws.conic import mechanics
from ukemi.maths import spatial
from ukemi.mechanics.articulated import Articulated
from ukemi.mechanics.kinematics import difference, integrate, kinematics, point_jacobian
from ukemi.mechanics.variational import chord_impulse, chord_inertia, chord_moments, chord_slopes, chords

LAW = uk.Maximal()

# Joints of every type, two of one body, and a body that is welded on.
CHAIN = """<mujoco><option timestep="0.01"/><default><geom type="box" contype="0" conaffinity="0"/></default><worldbody>
<body pos="0 0 1"><freejoint/><geom size=".1 .2 .3" mass="1"/>
<body pos=".2 .1 0"><joint name="bend" axis="0 1 .3" pos=".05 0 0"/><geom size=".1 .05 .2" pos=".2 0 0" mass=".7"/>
<body pos=".3 0 .1"><joint type="ball"/><geom size=".1 .05 .07" pos="0 .1 0" mass=".5"/>
<body pos=".3 0 .1"><joint type="slide" axis="1 1 0"/><joint axis="0 0 1"/>
  <geom size=".1 .05 .07" pos="0 .1 0" mass=".5"/>
<body pos="0 0 .3" euler="20 0 30"><geom size=".02 .05 .07" mass=".2"/></body>
</body></body></body></body></worldbody></mujoco>"""


def chain(h: float = 0.01, gravity: float = 0.0) -> uk.Model:
    model = uk.load(CHAIN)
    return eqx.tree_at(
        lambda m: (m.options.timestep, m.options.gravity), model, (jnp.asarray(h), jnp.array([0, 0, -gravity]))
    )


def thrown(model: uk.Model) -> uk.State:
    rng = np.random.default_rng(0)
    return uk.initial_state(model, v=rng.standard_normal(model.nv))


@eqx.filter_jit
def roll(model: uk.Model, state: uk.State):
    """The states of 100 steps, with their energies and momenta."""
    states = uk.rollout(model, state, jnp.zeros((100, model.nu)), LAW)
    kept = jax.vmap(lambda state: (uk.energy(model, state, LAW).total, uk.momentum(model, state, LAW)))(states)
    return states, kept


def rolled(model: uk.Model, state: uk.State, seconds: float):
    """The same for longer, of one program."""
    parts = []
    for _ in range(round(seconds / float(model.options.timestep) / 100)):
        parts.append(roll(model, state))
        state = jax.tree.map(lambda x: x[-1], parts[-1][0])
    return jax.tree.map(lambda *x: jnp.concatenate(x), *parts)


def test_momentum_is_kept_and_energy_does_not_drift():
    """Over 10 s; energy is off by something of second order in h, and no more at the end than at the start."""
    off = []
    for h in (0.05, 0.01):
        states, (energy, momentum) = rolled(chain(h), thrown(chain()), 10.0)
        assert int(states.status[-1]) == 0
        for each in momentum:
            assert abs(each - each[0]).max() < 1e-8
        energy = np.asarray(energy) / energy[0] - 1
        off.append(abs(energy).max())
        assert abs(energy[-len(energy) // 5 :].mean() - energy.mean()) < 0.5 * off[-1]
    assert off[0] < 1e-3 and 15 < off[0] / off[1] < 35


def test_steps_solve_the_equations_of_bodies_and_joints():
    """Dojo, eqs. 16–18 with the joints' impulses, of which a solution needs to exist: F = Kᵀ j."""
    model = chain(0.01, 9.81)
    state = thrown(model)
    states, _ = roll(model, state)
    for k in (0, 50):
        arrived = jax.tree.map(lambda x: x[k], states)  # noqa: B023
        before = jax.tree.map(lambda x: x[k - 1], states) if k else state  # noqa: B023
        F, J = bodies_impulses(model, before, arrived)
        # what joints can exert is all that does no work along them: F has no part along J
        assert abs(J.T @ F).max() < 1e-11 and abs(F).max() > 1e-3


def bodies_impulses(model: uk.Model, before: uk.State, arrived: uk.State):
    """Impulse and torque (6 nb,) that each body needs over a step, by quaternions; how joints move these (6 nb, nv)."""
    h = float(model.options.timestep)
    q2, q3 = before.q, arrived.q
    poses = [kinematics(model, q) for q in (integrate(model.tree, q2, before.v, -h), q2, q3)]
    (x1, x2, x3), turns = (np.asarray(jnp.stack([kin.com for kin in poses]))), []
    for a, b in (poses[:2], poses[1:]):
        turns.append(between(np.asarray(a.mat), np.asarray(b.mat)))
    force = np.asarray(model.bodies.mass)[:, None] * ((x3 - 2 * x2 + x1) / h - h * np.asarray(model.options.gravity))
    torque = []
    for b in range(model.tree.nb):
        axes = np.asarray(spatial.quat_to_mat(model.bodies.iquat[b]))
        inertia = axes @ np.diag(model.bodies.inertia[b]) @ axes.T
        (c1, p1), (c2, p2) = (turn[b] for turn in turns)
        body = 2 / h * (c2 * inertia @ p2 + np.cross(p2, inertia @ p2) - c1 * inertia @ p1 + np.cross(p1, inertia @ p1))
        torque.append(np.asarray(poses[1].mat)[b] @ body)
    J = np.asarray(point_jacobian(model.tree, poses[1], np.arange(model.tree.nb), poses[1].com))
    return np.concatenate([np.array(torque), force], -1).reshape(-1), J.reshape(-1, model.nv)


def between(a: np.ndarray, b: np.ndarray) -> list[tuple[float, np.ndarray]]:
    """Quaternions (c, ψ) of turns from one set of axes to another."""
    out = []
    for A, B in zip(a, b, strict=True):
        R = A.T @ B
        c = np.sqrt(1 + np.trace(R)) / 2
        out.append((c, np.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]]) / (4 * c)))
    return out


def test_the_order_is_two_with_velocities_half_a_step_before():
    """From v(−h/2); halving the step quarters the error of where all is after half a second."""
    ends = []
    for h in (0.01, 0.005, 0.0025):
        model = chain(h, 9.81)
        fine = chain(1e-6, 9.81)
        start = thrown(model)
        acceleration = uk.vector_field(fine, start)[1]
        state = uk.initial_state(model, v=start.v - h / 2 * acceleration)
        ends.append(rolled_to(model, state, round(0.5 / h)).q)
    far = [np.linalg.norm(difference(model.tree, a, b)) for a, b in zip(ends[:-1], ends[1:], strict=True)]
    assert 3.5 < far[0] / far[1] < 4.5


def rolled_to(model: uk.Model, state: uk.State, steps: int) -> uk.State:
    """The last state."""
    for done in range(0, steps, 100):
        last = min(steps - done, 100) - 1
        state = jax.tree.map(lambda x: x[last], roll(model, state)[0])  # noqa: B023
    return state


def test_slopes_of_what_bodies_do_are_those_of_the_formula():
    """Along poses at three times a radian apart, against differentiation of kinematics and impulse."""
    model, rng = chain(0.1, 9.81), np.random.default_rng(5)
    tree, h = model.tree, model.options.timestep
    at = [uk.initial_state(model).q]
    for _ in range(3):
        at.append(integrate(tree, at[-1], jnp.asarray(rng.standard_normal(model.nv)), 1.0))

    def impulse(*shifts):
        past, now, future = (
            kinematics(model, integrate(tree, q, shift, 1.0)) for q, shift in zip(at[1:], shifts, strict=True)
        )
        return chord_impulse(model, now, chords(model, now, past, h), future, h)

    def closed(past, now, future):
        return chord_slopes(model, now, chords(model, now, past, h), past, future, h)

    zero = jnp.zeros(model.nv)
    found = jax.jit(closed)(*(kinematics(model, q) for q in at[1:]))
    wanted = jax.jit(jax.jacfwd(impulse, argnums=(0, 1, 2)))(zero, zero, zero)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12 * float(abs(b).max()))


def test_a_matrix_along_a_tree_is_solved_like_a_dense_one():
    """Joints of every type, a turn of a radian within the step, and a diagonal."""
    model, rng = chain(), np.random.default_rng(6)
    tree, one = model.tree, jnp.ones(())
    q = integrate(tree, uk.initial_state(model).q, jnp.asarray(rng.standard_normal(model.nv)), 1.0)
    v, b, added = jnp.asarray(rng.standard_normal((3, model.nv))) * np.array([[0.3], [1], [0]])
    added = added + 0.1

    @jax.jit
    def both(v):
        past, now, future = (kinematics(model, integrate(tree, q, x, 1.0)) for x in (-v, jnp.zeros_like(v), v))
        start = chords(model, now, past, one)
        dense = chord_inertia(model, now, start, future) + jnp.diag(added)
        along = Articulated.of(tree, now.S, future.S, chord_moments(model, start, future), added)
        return dense, along.dense(), along.factored()(b)

    dense, again, x = both(v)
    np.testing.assert_allclose(again, dense, atol=1e-14)
    np.testing.assert_allclose(x, np.linalg.solve(dense, b), atol=1e-12)


def test_a_long_chain_moves_as_if_its_system_were_dense(monkeypatch):
    """Under gravity, with damping, limits and dry friction."""
    ends = []
    for name, long in (("dense", 99), ("along", 1)):
        monkeypatch.setattr(mechanics, "LONG", long)
        model = uk.load(HANGING.format(name=name))
        state = uk.initial_state(model, v=[3.0, -2, 1, 2, -4])
        ends.append(uk.rollout(model, state, jnp.zeros((60, 0)), LAW))
        assert int(ends[-1].status[-1]) == 0
    assert abs(ends[0].v).max() > 1 and abs(ends[0].q[:, 0]).max() > 0.29  # it came to its limit
    # searches that end within 1e-9 of a solution, which adds up
    np.testing.assert_allclose(ends[0].v[:6], ends[1].v[:6], atol=1e-9)
    np.testing.assert_allclose(ends[0].v, ends[1].v, atol=1e-7)


HANGING = """<mujoco model="{name}"><option timestep="0.01"/><compiler angle="radian"/>
<default><geom type="capsule" contype="0" conaffinity="0"/></default><worldbody><body name="{name}">
<joint axis="0 1 0" limited="true" range="-.3 .3"/><geom fromto="0 0 0 0 0 -.2" size=".02"/><body pos="0 0 -.2">
<joint axis="1 0 0" frictionloss=".02" armature=".001"/><geom fromto="0 0 0 0 0 -.2" size=".02"/>
<body pos="0 0 -.2"><joint type="ball" damping=".002"/><geom fromto="0 0 0 0 0 -.2" size=".02"/>
</body></body></body></worldbody></mujoco>"""


@pytest.mark.slow
def test_bodies_and_joints_say_the_same():
    """State to bodies and back; Jacobians of both maps, at the step that led there (Dojo's test: 1e-8)."""
    model = chain()
    rng = np.random.default_rng(3)
    start = uk.initial_state(model)
    q = integrate(model.tree, start.q, jnp.asarray(rng.standard_normal(model.nv)), 1.0)
    bend = model.tree.joint_qpos[model.tree.joint_names.index("bend")]
    q = q.at[bend].add(2 * np.pi)  # once round
    state = uk.initial_state(model, q=q, v=rng.standard_normal(model.nv))
    nv = model.nv

    def bodies_of(x):
        moved = eqx.tree_at(lambda s: (s.q, s.v), state, (integrate(model.tree, q, x[:nv], 1.0), state.v + x[nv:]))
        return uk.maximal_state(model, moved)

    def state_of(bodies):
        found = uk.minimal_state(model, bodies, near=state)
        return jnp.concatenate([difference(model.tree, found.q, q), found.v]), found.status

    @jax.jit
    def both(x):
        bodies, push = jax.linearize(bodies_of, x)
        found, back, status = jax.linearize(state_of, bodies, has_aux=True)
        return found, status, jax.vmap(lambda t: back(push(t)))(jnp.eye(2 * nv))

    found, status, product = both(jnp.zeros(2 * nv))
    assert int(status) == 0
    np.testing.assert_allclose(found, np.concatenate([np.zeros(nv), state.v]), atol=1e-10)
    np.testing.assert_allclose(product, np.eye(2 * nv), atol=1e-8)
    torn = uk.maximal_state(model, state)
    torn = eqx.tree_at(lambda b: b.pos, torn, torn.pos.at[2, 1].add(0.1))
    assert int(uk.minimal_state(model, torn, near=state).status) == uk.Status.NOT_CONVERGED


@pytest.mark.slow
def test_bodies_that_meet_keep_their_momentum():
    """In free flight a ball with a handle hits a box off its centre, with friction."""
    model = uk.load("""<mujoco><option timestep="0.01" gravity="0 0 0"/><worldbody>
    <body pos="-.3 0 0"><freejoint/><geom type="capsule" size=".1 .1" mass="1" friction=".6"/></body>
    <body pos=".3 .05 .03"><freejoint/><geom type="box" size=".1 .1 .1" mass="2" friction=".6"/></body>
    </worldbody></mujoco>""")
    state = uk.initial_state(model, v=[2, 0, 0, 0.4, 1, -1, -1, 0, 0, 0.2, 0, 3.0])
    states, (_, momentum) = roll(model, state)
    assert int(states.status[-1]) == 0 and states.v[-1, 0] < 1  # they met
    for each in momentum:
        assert abs(each - each[0]).max() < 1e-8


@pytest.mark.parametrize(
    "wrong, words",
    [({"kappa": -1.0}, r"Maximal\(kappa=-1.0\): must be a positive number"), ({"gradient": uk.Bounce()}, "Maximal")],
)
def test_wrong_arguments_are_refused_by_name(wrong, words):
    with pytest.raises(uk.InputError, match=words):
        uk.Maximal(**wrong)


def test_bodies_of_another_model_are_refused():
    model = chain()
    bodies = uk.maximal_state(model, thrown(model))
    with pytest.raises(uk.InputError, match=r"bodies.pos has shape"):
        uk.minimal_state(uk.load("hopper"), bodies)
    with pytest.raises(uk.InputError, match="must be what uk.maximal_state returns"):
        uk.minimal_state(model, thrown(model))
