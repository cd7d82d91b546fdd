"""Adaptive integration: orders, gradients against differences, failures, batches."""

import dataclasses
import functools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from ukemi.model.records import as_input
from ukemi.simulate.linearization import leaf, replace_leaves

FIXED = diffrax.ConstantStepSize()  # the whole time step at once, so that differences see a smooth program
SLIDING = uk.load("""<mujoco><option gravity="0 0 -9" timestep=".002"/>
  <default><geom friction=".4" solref=".02 .8"/></default>
  <worldbody><geom type="plane" size="5 5 1"/>
  <body pos="0 0 .09"><freejoint/><geom size=".1" density="300"/></body></worldbody></mujoco>""")
DRIVEN = uk.load("""<mujoco><option timestep=".05"/><worldbody><body><joint name="j" axis="0 1 0" damping=".1"/>
  <geom type="capsule" fromto="0 0 0 0 0 -.5" size=".03" contype="0" conaffinity="0"/></body></worldbody>
  <actuator><general joint="j" dyntype="filter" dynprm=".1" gainprm="2"/>
  <general joint="j" dyntype="integrator" actlimited="true" actrange="-.1 .02"/></actuator></mujoco>""")
quick = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
START = uk.initial_state(SLIDING, q=[0, 0, 0.0985, 0.9, 0.3, -0.2, 0.1], v=[0.8, 0.3, -0.3, 0.5, -0.4, 0.2])
WHOLE = uk.Adaptive(controller=FIXED)


def with_timestep(model, h):
    return dataclasses.replace(model, options=dataclasses.replace(model.options, timestep=jnp.asarray(h)))


# ---- accuracy -------------------------------------------------------------------------------------------------------


ORDERS = [
    (diffrax.Heun, 2, 256), (diffrax.Midpoint, 2, 256), (diffrax.Ralston, 2, 256), (diffrax.Bosh3, 3, 128),
    (diffrax.Tsit5, 5, 64), (diffrax.Dopri5, 5, 192), (diffrax.Dopri8, 8, 32),
]  # fmt: skip


@pytest.mark.parametrize("solver, order, steps", ORDERS)
def test_order_is_nominal(solver, order, steps):
    """The error at the end of a double pendulum's swing falls with the time step as the method's order says."""
    assert solver().order(None) == order
    model = uk.load("double_pendulum")
    start = uk.initial_state(model, q=[1.2, -0.7], v=[0.5, 1.0])
    method = uk.Adaptive(solver=solver(), controller=FIXED)

    @jax.jit
    def end(h, steps):
        moving = with_timestep(model, h)
        after = jax.lax.fori_loop(0, steps, lambda _, s: method.step(moving, s, as_input(moving, None)), start)
        return jnp.concatenate([after.q, after.v])

    exact = end(0.8 / 4000, 4000) if order > 2 else end(0.8 / 20000, 20000)
    errors = [float(jnp.linalg.norm(end(0.8 / n, n) - exact)) for n in (steps, 2 * steps)]
    assert abs(np.log2(errors[0] / errors[1]) - order) < 0.3, errors


def test_tumbling_keeps_its_order_and_its_quaternion():
    """A free asymmetric body: quaternions integrate in R⁴ to the order of the method and come back unit."""
    body = '<body><freejoint/><geom type="box" size=".1 .2 .3"/></body>'
    model = uk.load(f'<mujoco><option gravity="0 0 0"/><worldbody>{body}</worldbody></mujoco>')
    start = uk.initial_state(model, v=[0, 0, 0, 3.0, 0.2, 1.0])
    method = uk.Adaptive(controller=FIXED)

    @jax.jit
    def end(h, steps):
        moving = with_timestep(model, h)
        return jax.lax.fori_loop(0, steps, lambda _, s: method.step(moving, s, as_input(moving, None)), start).q

    exact = end(1 / 400, 400)
    errors = [float(jnp.abs(end(1 / n, n) - exact).max()) for n in (10, 20)]
    assert 4.5 < np.log2(errors[0] / errors[1]) < 6.5
    assert abs(float(jnp.linalg.norm(end(0.1, 10)[3:])) - 1) < 1e-15


def test_activations_follow_their_closed_forms():
    """A filter approaches its control exponentially; an integrator stops at its range."""
    method = uk.Adaptive(rtol=1e-10, atol=1e-12)
    states = uk.rollout(DRIVEN, uk.initial_state(DRIVEN), jnp.tile(jnp.array([0.7, 0.1]), (8, 1)), method)
    uk.raise_if_failed(states)
    t = 0.05 * np.arange(1, 9)
    np.testing.assert_allclose(states.act[:, 0], 0.7 * (1 - np.exp(-t / 0.1)), rtol=1e-9)
    np.testing.assert_allclose(states.act[:, 1], np.minimum(0.1 * t, 0.02), atol=1e-5)


@pytest.mark.slow
def test_tighter_tolerance_is_nearer():
    """The end of a bounce converges with the tolerance, by steps that grow in number."""
    falling = dataclasses.replace(START, q=START.q.at[2].set(0.102))
    ends, counts = [], []
    for tolerance in (1e-3, 1e-6, 1e-10):
        method = uk.Adaptive(rtol=tolerance, atol=1e-2 * tolerance, max_steps=1000)
        ends.append(uk.rollout(SLIDING, falling, jnp.zeros((20, 0)), method))
        counts.append(int(method.path(SLIDING, START, as_input(SLIDING, None))[1].accepted))
        uk.raise_if_failed(ends[-1])
    coarse, fine = (float(jnp.abs(end.q - ends[2].q).max()) for end in ends[:2])
    assert fine < 1e-6 < 1e-2 and fine < 0.1 * coarse
    assert counts[0] < counts[2]


# ---- gradients ------------------------------------------------------------------------------------------------------


def outcome(model, q, v, method=WHOLE):
    after = uk.step(model, uk.initial_state(model, q=q, v=v), None, method)
    return jnp.concatenate([after.q, after.v])


NAMES = ("geoms.size", "geoms.friction", "geoms.solref", "geoms.solimp", "geoms.pos", "bodies.mass", "bodies.inertia",
         "bodies.invweight", "options.timestep", "options.gravity")  # fmt: skip


@pytest.mark.slow
def test_every_parameter_agrees_with_differences():
    """One step of given size: all derivatives, by the transition matrix and by the steps' own reverse pass."""
    values = {name: leaf(SLIDING, name) for name in NAMES} | {"q": START.q, "v": START.v}

    def end(values):
        model = replace_leaves(SLIDING, {name: values[name] for name in NAMES})
        return outcome(model, values["q"], values["v"])

    rows, end = quick(jax.jacrev(end))(values), quick(end)
    rng = np.random.default_rng(0)
    for name, value in values.items():
        along = jnp.asarray(rng.normal(size=value.shape)) * (
            jnp.abs(value) + (0.01 if name in ("q", "v", "geoms.pos") else 0)
        )
        push = jnp.tensordot(rows[name], along, along.ndim)
        h = 1e-6
        differences = (end(values | {name: value + h * along}) - end(values | {name: value - h * along})) / (2 * h)
        assert jnp.abs(differences).max() > 1e-6, name
        scale = float(jnp.abs(differences).max())
        np.testing.assert_allclose(push, differences, rtol=1e-5, atol=1e-7 * scale, err_msg=name)
    method = WHOLE
    lin = uk.linearize(SLIDING, START, None, method)
    np.testing.assert_allclose(lin.A[6:, 6:], rows["v"][7:], atol=1e-9)
    np.testing.assert_allclose(lin.A[6:, :3], rows["q"][7:, :3], atol=1e-9)
    for mine, plain in zip(jax.tree.leaves(lin.next), jax.tree.leaves(uk.step(SLIDING, START, None, method))):
        np.testing.assert_array_equal(mine, plain)


@pytest.mark.slow
def test_backsolve_gives_the_same_gradient():
    """The continuous adjoint agrees with the derivative of the steps to the tolerance, for state and parameters."""
    model = uk.load("""<mujoco><option timestep=".002"/><worldbody><geom type="plane" size="1 1 1"/>
      <body pos="0 0 .099"><joint type="slide" axis="0 0 1" damping=".3"/><geom size=".1" condim="1"/></body>
      </worldbody></mujoco>""")
    names = ("geoms.size", "joints.damping", "options.timestep")
    values = {name: leaf(model, name) for name in names} | {"v": jnp.array([-0.4])}

    def loss(values, method):
        moved = replace_leaves(model, {name: values[name] for name in names})
        after = uk.step(moved, uk.initial_state(moved, v=values["v"]), None, method)
        return after.q[0] + 0.1 * after.v[0]

    methods = [uk.Adaptive(rtol=1e-9, atol=1e-11, adjoint=adjoint) for adjoint in ("checkpointed", "backsolve")]
    steps, back = (quick(jax.value_and_grad(lambda x, m=method: loss(x, m)))(values) for method in methods)
    assert steps[0] == back[0]
    for name in values:
        assert bool((steps[1][name] != 0).any()), name
        np.testing.assert_allclose(back[1][name], steps[1][name], rtol=1e-6, atol=1e-8, err_msg=name)
    start = uk.initial_state(model, v=values["v"])
    ours, theirs = (uk.linearize(model, start, None, method).A for method in methods)
    np.testing.assert_allclose(theirs, ours, atol=1e-6 * float(jnp.abs(ours).max()))
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda v: loss(values | {"v": v}, methods[1]), (values["v"],), (values["v"],))


def test_controls_and_activations_have_gradients():
    ctrls = jnp.array([[0.4, 0.05], [0.1, -0.2], [0.3, 0.1]])

    def end(ctrls):
        start = uk.initial_state(DRIVEN, act=jnp.array([0.1, 0.0]))
        states = uk.rollout(DRIVEN, start, ctrls, uk.Adaptive(rtol=1e-10, atol=1e-12))
        return states.q[-1, 0] + 0.3 * states.v[1, 0]

    slope, h = quick(jax.grad(end))(ctrls), 1e-4
    along = jnp.asarray(np.random.default_rng(1).normal(size=ctrls.shape))
    differences = (end(ctrls + h * along) - end(ctrls - h * along)) / (2 * h)
    np.testing.assert_allclose((slope * along).sum(), differences, rtol=1e-5)


@pytest.mark.slow
def test_saved_times_lie_on_the_motion():
    """States within time steps: those of a model with a shorter time step, with their gradients; ends are the ends."""
    times, ctrls = [0.13, 0.0, 0.15, 0.02], jnp.array([[0.4, 0.05], [0.1, -0.2], [0.3, 0.1]])
    tight = {"rtol": 1e-10, "atol": 1e-12}

    def saved(speed, times=times, **changed):
        start = uk.initial_state(DRIVEN, v=speed, act=jnp.array([0.1, 0.0]))
        return uk.rollout(DRIVEN, start, ctrls, uk.Adaptive(**(tight | {"saveat": times} | changed)))

    run, speed = quick(saved), jnp.array([0.3])
    states = run(speed, jnp.array(times))
    np.testing.assert_allclose(states.time, times, atol=1e-15)
    fine = uk.rollout(with_timestep(DRIVEN, 0.01), uk.initial_state(DRIVEN, v=speed, act=jnp.array([0.1, 0.0])),
                      jnp.repeat(ctrls, 5, axis=0), uk.Adaptive(**tight))  # fmt: skip
    for name in ("q", "v", "act"):
        mine, theirs = getattr(states, name), getattr(fine, name)
        np.testing.assert_allclose(mine[jnp.array([0, 2, 3])], theirs[jnp.array([12, 14, 1])], atol=1e-9)
    assert float(states.q[1, 0]) == 0.0 and states.v[1] == speed
    ahead, behind = (run(speed + h, jnp.array(times)).q[:, 0] for h in (1e-4, -1e-4))
    differences = (ahead - behind) / 2e-4
    for adjoint in ("checkpointed", "backsolve"):
        slope = quick(jax.jacrev(lambda v, a=adjoint: saved(v, adjoint=a).q[:, 0]))(speed)[:, 0]
        np.testing.assert_allclose(slope, differences, rtol=1e-6, atol=1e-9)
    with pytest.raises(uk.InputError, match="between 0 and the rollout's end at 0.15 s"):
        saved(speed, [0.1, 0.16])
    lost = run(speed, jnp.array([0.1, 0.1, 0.1, 0.16])).status
    assert lost[0] == 0 and int(lost[3]) & uk.Status.NOT_FINITE
    with pytest.raises(uk.GradientError, match="saveat"):
        jax.grad(lambda times: saved(speed, times).q[0, 0])(jnp.array([0.1]))


def test_states_are_bitwise_those_without_gradient():
    method, ctrls = uk.Adaptive(), jnp.zeros((15, 0))

    def run(v):
        states = uk.rollout(SLIDING, dataclasses.replace(START, v=v), ctrls, method)
        return (states.q[-1] ** 2).sum(), states

    plain = jax.jit(run)(START.v)[1]
    (_, states), slope = jax.jit(jax.value_and_grad(run, has_aux=True))(START.v)
    assert bool((slope != 0).any())
    for mine, theirs in zip(jax.tree.leaves(states), jax.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(mine, theirs)


# ---- batches and failures -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_worlds_choose_their_own_steps():
    """256 worlds, each near the floor by another distance: like one by one, with unlike step sizes."""
    heights = jnp.linspace(0.098, 0.104, 256)
    method = uk.Adaptive()

    def one(z):
        state = dataclasses.replace(START, q=START.q.at[2].set(z))
        path, effort = method.path(SLIDING, state, as_input(SLIDING, None))
        return method.step(SLIDING, state, as_input(SLIDING, None)), path.shares, effort.accepted

    many, shares, accepted = quick(jax.vmap(one))(heights)
    assert len(np.unique(accepted)) > 2 and len(np.unique(shares[:, 0])) > 5
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-12)
    single = quick(one)
    for k in (0, 3, 100, 255):
        alone, own, _ = single(heights[k])
        np.testing.assert_allclose(many.q[k], alone.q, atol=1e-14)
        np.testing.assert_allclose(shares[k], own, rtol=1e-9)


def test_exhausted_steps_are_reported():
    method = uk.Adaptive(rtol=1e-10, atol=1e-12, max_steps=4)
    after = uk.step(SLIDING, START, None, method)
    assert int(after.status) == uk.Status.STEPS_EXHAUSTED
    with pytest.raises(uk.StepError, match="max_steps"):
        uk.raise_if_failed(after)
    stuck = uk.Adaptive(controller=diffrax.PIDController(1e-10, 1e-12, dtmin=1e-3, force_dtmin=False))
    assert int(uk.step(SLIDING, START, None, stuck).status) & uk.Status.STEPS_EXHAUSTED
    bad = dataclasses.replace(START, v=START.v.at[0].set(jnp.nan))
    assert int(uk.step(SLIDING, bad, None, method).status) & uk.Status.NOT_FINITE


@pytest.mark.parametrize(
    "options, match",
    [({"solver": diffrax.Kvaerno5()}, "explicit"), ({"adjoint": "direct"}, "backsolve"), ({"rtol": 0.0}, "positive"),
     ({"max_steps": -1}, "positive"), ({"gradient": 3}, "uk.Exact"),
     ({"rtol": 1e-3, "controller": FIXED}, "controller"), ({"saveat": 0.1}, "times"), ({"saveat": []}, "times")],
)  # fmt: skip
def test_bad_options_are_refused(options, match):
    with pytest.raises(uk.InputError, match=match):
        uk.Adaptive(**options)


def test_checkpoints_need_no_controls():
    """A model without actuators has controls (T, 0), which segments of a rollout must cut all the same."""
    shapes = jax.eval_shape(lambda: uk.rollout(SLIDING, START, jnp.zeros((5, 0)), uk.Adaptive(), checkpoint=2))
    assert shapes.q.shape == (5, 7)
