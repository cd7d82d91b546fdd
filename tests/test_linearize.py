"""`uk.linearize` and reverse mode against AD of the residual and differences, which share no code with them."""

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from ukemi.laws.integrators import IMPLICITFAST
from ukemi.laws.method import columns, rows
from ukemi.mechanics.force_slopes import has_plain_forces
from ukemi.mechanics.kinematics import integrate
from ukemi.model.records import as_input
from ukemi.model.tree import FREE
from ukemi.simulate.linearization import leaf, replace_leaves

TIGHT = uk.Soft(solver="Newton", iterations=100, tolerance=1e-14)

EVERYTHING = """
<mujoco>
  <option timestep="0.004"><flag energy="enable"/></option>
  <default><geom condim="{condim}" friction="0.7 0.02 0.01" conaffinity="0"/></default>
  <worldbody>
    <geom type="plane" size="5 5 .1" conaffinity="1"/>
    <body name="base" pos="0 0 .19"><freejoint/>
      <geom type="box" size=".2 .15 .05"/><site name="jet" pos=".1 0 0" euler="20 0 30"/>
      <body name="leg" pos=".2 0 0"><joint name="hip" axis="0 1 0" range="-20 5" limited="true" damping=".3"
            stiffness="2" frictionloss=".05" armature=".01"/>
        <geom type="capsule" fromto="0 0 0 .15 0 -.16" size=".03"/>
        <body name="foot" pos=".15 0 -.16"><joint name="ankle" type="ball" damping=".02" stiffness=".4"
              range="0 40" limited="true"/><geom type="sphere" size=".035"/></body>
      </body>
    </body>
    <body name="rail" pos="-.6 0 .3"><joint name="slide" type="slide" axis="1 0 .2" range="-.1 .1" limited="true"/>
      <geom type="cylinder" size=".05 .1"/>
      <body name="flap" pos="0 0 -.15"><joint name="hinge" axis="0 1 0"/>
        <geom type="ellipsoid" size=".04 .05 .16"/></body>
    </body>
  </worldbody>
  <equality><joint joint1="hinge" joint2="slide" polycoef="0 1.5 .2 0 0"/>
    <connect body1="rail" body2="world" anchor=".02 0 0" solref=".05 1"/></equality>
  <actuator>
    <position joint="hip" kp="5" kv=".4" ctrlrange="-1 1"/><motor joint="ankle" gear=".1 .2 .05"/>
    <general site="jet" gear="0 0 1 0 .1 0"/><velocity joint="slide" kv=".7"/>
    <general joint="hinge" dyntype="filter" dynprm=".05" gainprm="2" biastype="affine" biasprm="0 -1 -.1"/>
  </actuator>
</mujoco>"""


BALL = """
<mujoco><worldbody>
  <geom type="plane" size="1 1 1"/>
  <body pos="0 0 .1"><freejoint/><geom size=".1"/></body>
</worldbody></mujoco>"""


def contact_state(model, method=None, seed=0, shift=2e-3, steps=25):
    """A state in contact, away from the settled one."""
    rng = np.random.default_rng(seed)
    state, ctrl = uk.initial_state(model), jnp.asarray(0.2 * rng.normal(size=model.nu))
    for _ in range(steps):
        state = uk.step(model, state, ctrl, method)
    q = integrate(model.tree, state.q, jnp.asarray(shift * rng.normal(size=model.nv)), 1.0)
    if model.tree.joint_type[0] == FREE:
        q = q.at[2].add(-2 * shift)
    return uk.initial_state(model, q=q, v=state.v, act=state.act), ctrl


def open_step(method):
    """`method.step` of a model that moves along, by nothing: its derivative is AD's of the residual at the solution."""

    def step(model, state, inputs):
        timestep = model.options.timestep + 0.0 * (state.v.sum() + state.q.sum() + inputs.ctrl.sum() + state.act.sum())
        return method.step(eqx.tree_at(lambda m: m.options.timestep, model, timestep), state, inputs)

    return step


@partial(jax.jit, static_argnums=0)
def forward(method, model, state, inputs):
    return columns(open_step(method), model, state, inputs)[1]


@partial(jax.jit, static_argnums=0)
def reverse(method, model, state, inputs):
    return rows(method.step, model, state, inputs)[1]


def assert_agrees(model, method, state, ctrl):
    """Closed forms, forward and in reverse, are what AD finds; and leave the step alone."""
    lin, inputs = uk.linearize(model, state, ctrl, method), as_input(model, ctrl)
    J, K = forward(method, model, state, inputs), reverse(method, model, state, inputs)
    n = 2 * model.nv + model.na
    assert lin.A.shape == (n, n) and lin.B.shape == (n, model.nu)
    for closed in (jnp.concatenate([lin.A, lin.B], 1), K):
        np.testing.assert_allclose(closed, J, rtol=0, atol=1e-10 * max(1, float(jnp.abs(J).max())))
    step = uk.step(model, state, ctrl, method)
    for name in ("q", "v", "act", "time", "status"):  # bitwise with XLA as users have it: tests marked `optimized`
        np.testing.assert_allclose(getattr(lin.next, name), getattr(step, name), rtol=0, atol=1e-15, err_msg=name)


@pytest.mark.parametrize(
    ("integrator", "cone", "condim"),
    [
        ("Euler", "pyramidal", 3),
        pytest.param("implicitfast", "elliptic", 6, marks=pytest.mark.slow),
        pytest.param("implicit", "pyramidal", 6, marks=pytest.mark.slow),
        pytest.param("RK4", "elliptic", 4, marks=pytest.mark.slow),
    ],
)
def test_everything_at_once(integrator, cone, condim):
    model = uk.load(EVERYTHING.format(condim=condim))
    method = uk.Soft(integrator=integrator, cone=cone)
    state, ctrl = contact_state(model, method, steps=70)
    assert uk.contacts(model, state).active.sum() >= 2
    assert_agrees(model, method, state, ctrl)


JOINTS = """
<mujoco><option timestep=".01" integrator="implicitfast" gravity="0 0 -2"/><worldbody>
  <body pos="0 0 1"><joint type="free" stiffness="3" damping=".1"/><geom type="box" size=".2 .15 .05"/>
    <body pos=".2 0 0"><joint name="ball" type="ball" stiffness=".4" springdamper="0 0" damping=".02"/>
      <geom type="capsule" fromto="0 0 0 .2 0 .1" size=".03"/>
      <body pos=".2 0 .1"><joint name="weak" axis="0 1 .3" damping=".01" actuatorfrcrange="-.1 .1"/>
        <geom type="capsule" fromto="0 0 0 .2 0 0" size=".02"/></body></body>
    <body pos="-.2 0 0"><joint name="firm" axis="0 1 0" stiffness="1" springref="20"/>
      <geom type="capsule" fromto="0 0 0 -.3 0 0" size=".03"/></body></body></worldbody>
  <actuator><position joint="weak" kp="{gain}" kv=".05"/>
    <general joint="firm" gainprm="2 .3 -.2" gaintype="affine" biastype="affine" biasprm=".1 -1 -.1" gear="1.5"/>
    <general joint="firm" dyntype="filter" dynprm=".05" gainprm="1 0 .4" gaintype="affine"/></actuator></mujoco>"""


@pytest.mark.slow  # everything at once above has most of them
@pytest.mark.parametrize("gain", [0.02, 20])
def test_forces_of_joints_have_closed_forms(gain):
    """Springs of rotations, and slopes in velocity that are taken implicitly, of actuators at a limit or not."""
    model, rng = uk.load(JOINTS.format(gain=gain)), np.random.default_rng(3)
    assert has_plain_forces(model) and IMPLICITFAST.takes_forces_of_joints(model)
    q = integrate(model.tree, model.joints.qpos0, jnp.asarray(rng.normal(size=model.nv)), 1.0)
    state = uk.initial_state(model, q=q, v=jnp.asarray(2 * rng.normal(size=model.nv)), act=jnp.asarray([0.4]))
    ctrl = jnp.asarray([0.5, -0.7, 0.3])
    assert_agrees(model, uk.Soft(), state, ctrl)
    force = uk.Soft().forward(model, state, as_input(model, ctrl)).actuation.qfrc
    assert (jnp.abs(force[9]) == 0.1) == (gain == 20)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["half_cheetah", "quadrotor", "humanoid", "ant", "arm"])
def test_built_in_models(name):
    model = uk.load(name)
    state, ctrl = contact_state(model, uk.Soft())
    assert_agrees(model, uk.Soft(), state, ctrl)


@pytest.mark.slow
@pytest.mark.parametrize("method", [uk.Soft(), uk.LCP()], ids=["Soft", "LCP"])
def test_more_contacts_than_are_worked_on_at_a_time(method):
    """A plate on 36 feet, of 37 slots: chunks of 8, of which the last one overlaps."""
    feet = "".join(f'<geom size=".02" pos="{.1 * i} {.1 * j} -.05" condim="3"/>' for i in range(6) for j in range(6))
    plate = f'<body pos="0 0 .0697"><freejoint/><geom type="box" size=".3 .3 .02" pos=".25 .25 0"/>{feet}</body>'
    ground = '<geom type="plane" size="9 9 1" friction=".6" contype="1"/>'
    quiet = '<default><geom contype="0" conaffinity="1"/></default>'
    model = uk.load(f"<mujoco>{quiet}<worldbody>{ground}{plate}</worldbody></mujoco>", contacts=37)
    state = uk.initial_state(model, v=jnp.asarray([0.3, -0.1, -0.02, 0.01, -0.02, 0.05]))
    assert uk.contacts(model, state).active.sum() == 36
    assert_agrees(model, method, state, None)


@pytest.mark.slow
def test_contacts_that_adhere_pull_once_where_chunks_overlap():
    """A plate on 9 feet, of 10 slots: what the second chunk of 8 has seen before pulled again in derivatives."""
    feet = "".join(f'<geom size=".02" pos="{i / 10} {j / 10} -.05"/>' for i in range(3) for j in range(3))
    plate = f'<body pos="0 0 .0705"><freejoint/><geom type="box" size=".2 .2 .02" pos=".1 .1 0"/>{feet}</body>'
    ground = '<geom type="plane" size="9 9 1" contype="1"/>'
    sticky = '<default><geom contype="0" conaffinity="1" adhesion="2" gap=".01"/></default>'
    model = uk.load(f"<mujoco>{sticky}<worldbody>{ground}{plate}</worldbody></mujoco>", contacts=10)
    start = uk.initial_state(model, q=[0, 0, 0.0705, 1, 0.003, 0.002, 0])
    assert uk.contacts(model, start).active.sum() == 9
    run = jax.jit(lambda v: uk.step(model, dataclasses.replace(start, v=v), None, TIGHT).v)
    slope = uk.linearize(model, start, None, TIGHT).A[model.nv :]
    h, ways = 1e-5, np.eye(model.nv)
    found = np.stack([(run(h * e) - run(-h * e)) / (2 * h) for e in ways], 1)
    np.testing.assert_allclose(slope[:, model.nv :], found, atol=1e-7)
    np.testing.assert_allclose(slope[:, :2], 0, atol=1e-9)  # nothing knows where on the plane it stands


@pytest.mark.slow
def test_parameters_by_name():
    model = uk.load("hopper")
    state, ctrl = contact_state(model, steps=60)
    names = ("bodies.mass", "geoms.friction", "geoms.size", "options.timestep", "joints.damping")
    lin = uk.linearize(model, state, ctrl, wrt=names)
    assert set(lin.parameters) == set(names)
    for name in names:
        value = leaf(model, name)
        assert lin.parameters[name].shape == (2 * model.nv + model.na, *value.shape)
        direction = jnp.asarray(np.random.default_rng(1).normal(size=value.shape))

        def velocity(t, name=name, value=value, direction=direction):
            moved = replace_leaves(model, {name: value + t * direction})
            return uk.step(moved, state, ctrl).v

        h = 1e-6
        slope = (velocity(h) - velocity(-h)) / (2 * h)
        mine = lin.parameters[name][model.nv : 2 * model.nv].reshape(model.nv, -1) @ direction.ravel()
        np.testing.assert_allclose(mine, slope, rtol=1e-5, atol=1e-6 * max(1.0, float(jnp.abs(slope).max())))


@pytest.mark.slow
def test_batch_equals_loop():
    model = uk.load("half_cheetah")
    states = [contact_state(model, seed=seed)[0] for seed in range(3)]
    ctrl = jnp.zeros(model.nu)
    batch = jax.tree.map(lambda *x: jnp.stack(x), *states)
    together = jax.jit(jax.vmap(lambda s: uk.linearize(model, s, ctrl)))(batch)
    for k, state in enumerate(states):
        alone = uk.linearize(model, state, ctrl)
        np.testing.assert_allclose(together.A[k], alone.A, rtol=0, atol=1e-10 * float(jnp.abs(alone.A).max()))


def test_unknown_parameter_is_refused():
    model = uk.load("pendulum")
    for name in ("bodies.weight", "mass", "tree", "bodies.layout"):
        with pytest.raises(uk.InputError, match="not a parameter"):
            uk.linearize(model, uk.initial_state(model), wrt=name)


@pytest.mark.slow
def test_rollout_gradient_does_not_depend_on_checkpoint():
    model = uk.load(BALL)
    state = uk.initial_state(model, v=[0.3, 0, -0.5, 0, 1.0, 0])
    pushes = uk.Input(qfrc=jnp.asarray(np.random.default_rng(0).normal(size=(11, 6))))

    def loss(pushes, checkpoint):
        states = uk.rollout(model, state, pushes, checkpoint=checkpoint)
        return (states.q**2).sum() + (states.v**2).sum(), states

    values, slopes = {}, {}
    for k in (None, 4, 20):
        slopes[k], values[k] = jax.grad(loss, has_aux=True)(pushes, k)
        np.testing.assert_array_equal(values[k].q, values[None].q)
        np.testing.assert_allclose(slopes[k].qfrc, slopes[None].qfrc, rtol=1e-9, atol=1e-12)
    assert jnp.abs(slopes[None].qfrc).min() > 0
    with pytest.raises(uk.InputError, match="checkpoint"):
        uk.rollout(model, state, pushes, checkpoint=0)


def test_smooth_onset_lets_forces_set_in_from_zero():
    model = uk.load(BALL)

    def jump(model):
        """Force just inside less force just outside, at a downward speed of 1 m/s."""
        force = []
        for z in (0.1 - 1e-9, 0.1 + 1e-9):
            state = uk.initial_state(model, q=[0, 0, z, 1, 0, 0, 0], v=[0, 0, -1.0, 0, 0, 0])
            force.append(uk.contacts(model, state).force[0, 2])
        return abs(float(force[0] - force[1]))

    assert jump(model) > 1e3 * jump(uk.smooth_onset(model))
