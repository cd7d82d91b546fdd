"""Wrong calls are refused by name, with what to do; right ones stay right under JAX's transformations."""

import dataclasses
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.fuzz.calls import run
from tests.fuzz.wrong import stacked, world

MODEL, STATE, (APART, PENDULUM) = world()
LAWS = [uk.Soft(), uk.LCP(), uk.Impact(), uk.Adaptive(), uk.NCP(), uk.Maximal()]


def changed(state, **fields):
    return dataclasses.replace(state, **fields)


@pytest.mark.parametrize("seed", [0, 1])
def test_random_wrong_calls_end_in_a_sentence_or_in_the_promised_shapes(seed):
    assert run(seed, 300) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_random_wrong_calls(seed):
    assert run(seed, 1000) == []


CALLS = {
    "step": lambda m, s, law: uk.step(m, s, None, law),
    "rollout": lambda m, s, law: uk.rollout(m, s, jnp.zeros((3, 1)), law),
    "linearize": lambda m, s, law: uk.linearize(m, s, None, law),
    "vector_field": lambda m, s, law: uk.vector_field(m, s, None, law),
    "inverse": lambda m, s, law: uk.inverse(m, s, jnp.zeros(7), law),
    "contacts": lambda m, s, law: uk.contacts(m, s, None, law),
    "energy": lambda m, s, law: uk.energy(m, s),
}
STATES = {
    "q too long": (changed(STATE, q=jnp.zeros(9)), r"state\.q has shape \(9,\); .* needs \(8,\)"),
    "v too short": (changed(STATE, v=jnp.zeros(6)), r"state\.v has shape \(6,\); .* needs \(7,\)"),
    "act too long": (changed(STATE, act=jnp.zeros(2)), r"state\.act has shape \(2,\); .* needs \(1,\)"),
    "q a list": (changed(STATE, q=[0.0] * 8), r"state\.q is of type list; it must be an array \(8,\)"),
    "time a number": (changed(STATE, time=0.0), r"state\.time is of type float"),
    "float32": (changed(STATE, v=STATE.v.astype("float32")), r"state\.v is float32; .* needs float64, and nothing is"),
    "integers": (changed(STATE, q=STATE.q.astype(int)), r"state\.q is int64"),
    "batch": (stacked(STATE), r"state\.q has shape \(4, 8\).*jax\.vmap"),
    "other pairs": (APART, r"state\.cache\.laws\['conic'\]\.contacts has shape \(0,\).*another model's"),
    "other model": (PENDULUM, r"state\.q has shape \(1,\)"),
    "model": (MODEL, "state is of type Model; .* The model comes first"),
    "no cache": (changed(STATE, cache=None), r"state\.cache is None"),
}


@pytest.mark.parametrize("function", CALLS)
@pytest.mark.parametrize("kind", STATES)
def test_states_that_do_not_fit_are_refused(function, kind):
    state, match = STATES[kind]
    for law in LAWS:
        with pytest.raises(uk.InputError, match=match):
            CALLS[function](MODEL, state, law)


@pytest.mark.parametrize("function", CALLS)
def test_models_that_do_not_fit_their_topology_are_refused(function):
    def refused(model, match):
        with pytest.raises(uk.InputError, match=match):
            CALLS[function](model, STATE, uk.LCP())

    def put(where, value):
        return eqx.tree_at(where, MODEL, value)

    refused(put(lambda m: m.bodies.mass, jnp.ones(2)), r"model\.bodies\.mass has shape \(2,\); .* needs \(4,\)")
    refused(put(lambda m: m.bodies.mass, jnp.ones(4, "float32")), r"model\.bodies\.mass is float32")
    refused(put(lambda m: m.options.timestep, 0.01), r"model\.options\.timestep is 0\.01; it must be an array")
    refused(stacked(MODEL), r"model\.bodies\.pos has shape \(4, 4, 3\).*jax\.vmap")
    refused(STATE, "model is of type State; uk.load")
    refused("robot.xml", "model is of type str; uk.load")


@pytest.mark.parametrize("law, match", [
    (uk.LCP, r"the class LCP; .* Call it: uk\.LCP\(\)"), ("lcp", "method is of type str; give a contact law such as"),
    (False, "of type bool"), (uk.Exact(), "of type Exact"),
])  # fmt: skip
def test_what_is_no_law_is_refused(law, match):
    for name in CALLS.keys() - {"energy"}:
        with pytest.raises(uk.InputError, match=match):
            CALLS[name](MODEL, STATE, law)


@pytest.mark.parametrize("function", ["vector_field", "inverse"])
def test_laws_say_what_they_do_not_offer(function):
    for law in LAWS[1:]:
        name = type(law).__name__
        if (function, name) == ("vector_field", "Adaptive"):
            continue  # it has its soft law's
        with pytest.raises(uk.InputError, match=rf"{name}\(\.\.\.\) does not offer uk\.{function}; uk\.Soft"):
            CALLS[function](MODEL, STATE, law)


@pytest.mark.parametrize("ctrl, match", [
    ("full", "ctrl is of type str, 'full'; it must be an array of real numbers"), ([1j], "ctrl holds complex128"),
    (np.array([None]), "ctrl holds object"), (jnp.zeros(2), r"ctrl has shape \(2,\); .* needs \(1,\)\."),
    (jnp.zeros((4, 1)), "jax.vmap"), ([np.nan], "ctrl holds NaN"), (uk.LCP(), "ctrl is of type LCP"),
    (uk.Input(qfrc="x"), "qfrc is of type str"), (uk.Input(xfrc=jnp.zeros((2, 6))), r"needs \(4, 6\)"),
    (uk.Input(mocap_quat=jnp.zeros((1, 4))), r"mocap_quat\[0\] is a zero quaternion"),
])  # fmt: skip
def test_wrong_controls_are_refused(ctrl, match):
    for function in (uk.step, uk.linearize, uk.contacts, uk.vector_field):
        with pytest.raises(uk.InputError, match=match):
            function(MODEL, STATE, ctrl)


@pytest.mark.parametrize("ctrls, match", [
    (None, "one leading time axis"), (jnp.zeros(1), r"ctrl has shape \(1,\); .* needs \(T, 1\)"),
    (jnp.zeros((2, 3, 1)), r"needs \(T, 1\).*jax\.vmap"),
    ("abc", "of type str"), (jnp.zeros((0, 2)), r"needs \(T, 1\)"),
    (uk.Input(ctrl=jnp.zeros((3, 1)), qfrc=jnp.zeros((2, 7))), "disagree on T"),
])  # fmt: skip
def test_wrong_controls_of_a_rollout_are_refused(ctrls, match):
    with pytest.raises(uk.InputError, match=match):
        uk.rollout(MODEL, STATE, ctrls)


OPTIONS = [
    (uk.Soft, "tolerance", ["a", np.nan, np.inf, 0, -1.0, True, np.ones(1)]), (uk.Soft, "cone", [3, "round", ["x"]]),
    (uk.Soft, "iterations", [1.5, 0, True, "5", 10**400]), (uk.Soft, "line_search_iterations", [2.0, np.nan]),
    (uk.Soft, "gradient", [uk.Exact, None, "exact", uk.Bounce()]), (uk.Soft, "integrator", ["euler", 1]),
    (uk.LCP, "correction", ["x", np.nan, 1.5, -0.1, None]), (uk.LCP, "ahead", ["x", np.nan, np.inf, -1]),
    (uk.LCP, "explicit", ["yes", 1, None]), (uk.LCP, "gradient", [0.2, uk.FromDistance()]),
    (uk.Impact, "impacts", [0, 1.5, "8", None, True, np.nan]), (uk.Impact, "gradient", [uk.Bounce()]),
    (uk.Adaptive, "rtol", ["a", 0, np.nan]), (uk.Adaptive, "atol", [-1, np.inf]),
    (uk.Adaptive, "max_steps", [1.5, "9"]),
    (uk.Adaptive, "solver", ["Tsit5", None]), (uk.Adaptive, "controller", ["PID", 1e-3]), (uk.Adaptive, "adjoint", [1]),
    (uk.Adaptive, "soft", [uk.Soft, uk.LCP(), None]), (uk.Adaptive, "saveat", ["soon", [1j], [np.nan], {}]),
    (uk.NCP, "kappa", ["a", 0, -1e-8, np.nan, np.inf, np.ones(2), np.array("b")]), (uk.NCP, "cone", ["round", None, 1]),
    (uk.NCP, "iterations", [0, 1.5, "60"]), (uk.NCP, "starts", [0, 13, 2.0, True]), (uk.NCP, "correction", [2, "x"]),
    (uk.Maximal, "ahead", [0, -1.0, np.nan, "x"]), (uk.Maximal, "gradient", [uk.FromDistance(), uk.Bounce, None]),
    (uk.CentralPath, "kappa", [0, "a", np.array(["b"])]), (uk.CentralPath, "width", [0, -1, np.inf, "x"]),
    (uk.FromDistance, "width", ["a", 0, np.nan, np.inf, None]), (uk.FromDistance, "d_c", [1, np.nan, "0"]),
    (uk.FromDistance, "d_0", [-0.1, "0"]), (uk.FromDistance, "midpoint", [0, 1, None]),
    (uk.FromDistance, "power", [0.5, np.nan]), (uk.FromDistance, "onset", [0, "x"]),
]  # fmt: skip


@pytest.mark.parametrize("law, name, bad", OPTIONS, ids=[f"{law.__name__}-{name}" for law, name, _ in OPTIONS])
def test_wrong_options_are_refused_by_name(law, name, bad):
    for value in bad:
        with pytest.raises(uk.InputError, match=rf"{law.__name__}.*{name}"):
            law(**{name: value})


def test_numbers_of_numpy_become_plain_options():
    """NumPy's have a dtype, which would turn the states of a float32 model into float64."""
    law = uk.LCP(correction=np.float64(0.5), ahead=np.float32(0.25))
    assert (type(law.correction), type(law.ahead)) == (float, float)
    assert type(uk.Soft(iterations=np.int64(3)).iterations) is int
    assert law == uk.LCP(correction=0.5, ahead=0.25)


@pytest.mark.parametrize("call, match", [
    (lambda: uk.linearize(MODEL, STATE, wrt=3), r"linearize\(wrt=3\)"),
    (lambda: uk.linearize(MODEL, STATE, wrt=(3,)), "3 is not a parameter"),
    (lambda: uk.linearize(MODEL, STATE, wrt="nonsense"), "'nonsense' is not a parameter"),
    (lambda: uk.linearize(MODEL, STATE, None, uk.Adaptive(adjoint="backsolve"), wrt="bodies.mass"), "reverse mode"),
    (lambda: uk.rollout(MODEL, STATE, jnp.zeros((3, 1)), checkpoint=2.5), r"rollout\(checkpoint=2\.5\)"),
    (lambda: uk.rollout(MODEL, STATE, jnp.zeros((3, 1)), checkpoint=True), r"rollout\(checkpoint=True\)"),
    (lambda: uk.inverse(MODEL, STATE, "x"), "qacc is of type str"),
    (lambda: uk.inverse(MODEL, STATE, jnp.zeros(8)), r"qacc has shape \(8,\)"),
    (lambda: uk.load("ball", contacts=1.5), r"load\(contacts=1\.5\)"),
    (lambda: uk.load("ball", contacts=-1), r"load\(contacts=-1\)"),
    (lambda: uk.load("ball", contacts="x"), r"load\(contacts='x'\)"),
    (lambda: uk.smooth_collisions(MODEL, "thin"), r"smooth_collisions\(width='thin'\)"),
    (lambda: uk.smooth_collisions(STATE, 0.1), "model is of type State"),
    (lambda: uk.smooth_onset("ball"), "model is of type str"),
    (lambda: uk.refresh(None), "model is None"),
    (lambda: uk.refresh(MODEL, inertias="all"), r"refresh\(inertias='all'\)"),
    (lambda: uk.check_gradients(MODEL, samples=0), r"check_gradients\(samples=0\)"),
    (lambda: uk.check_gradients(MODEL, samples=1.5), r"check_gradients\(samples=1\.5\)"),
    (lambda: uk.check_gradients(MODEL, seed=-1), r"check_gradients\(seed=-1\)"),
    (lambda: uk.check_gradients(MODEL, progress=3), r"check_gradients\(progress=3\)"),
    (lambda: uk.check_gradients(MODEL, "soft"), "method is of type str"),
    (lambda: uk.raise_if_failed(MODEL), "raise_if_failed needs states"),
    (lambda: jax.jit(uk.raise_if_failed)(STATE), "outside jax.jit"),
])  # fmt: skip
def test_other_wrong_arguments_are_refused(call, match):
    with pytest.raises(uk.UkemiError, match=match):
        call()


@pytest.mark.parametrize("given, match", [
    ({"q": [np.nan] + [0.0] * 7}, "q holds NaN"), ({"v": np.full(7, np.inf)}, "v holds NaN or infinity"),
    ({"q": np.zeros(8)}, r"q\[3:7\] of joint 'root' is a zero quaternion"), ({"q": "home"}, "q is of type str"),
    ({"act": np.zeros(2)}, r"act has shape \(2,\)"), ({"v": 1j * np.zeros(7)}, "v holds complex128"),
    ({"keyframe": 1.5}, "No keyframe 1.5 .* keyframes: 'up'"), ({"keyframe": True}, "No keyframe True"),
    ({"keyframe": "down"}, "No keyframe 'down'"), ({"keyframe": []}, "No keyframe"),
])  # fmt: skip
def test_wrong_initial_states_are_refused(given, match):
    with pytest.raises(uk.InputError, match=match):
        uk.initial_state(MODEL, **given)


def test_failures_of_odd_states_are_still_reported():
    odd = SimpleNamespace(status=np.array([0, 4], np.int32), time=np.array([0.1, 0.2]))
    with pytest.raises(uk.StepError, match="t = 0.2 s"):
        uk.raise_if_failed(odd)


def test_right_calls_stay_right_under_transformations():
    """Inside vmap, jit and grad shapes are those of one world; NumPy arrays, lists and integers are numbers, too."""
    many = stacked(STATE)
    assert jax.eval_shape(jax.vmap(uk.step, (None, 0, 0)), MODEL, many, jnp.zeros((4, 1))).q.shape == (4, 8)
    assert jax.eval_shape(jax.vmap(uk.step), stacked(MODEL), many).q.shape == (4, 8)
    assert jax.eval_shape(jax.grad(lambda q: uk.step(MODEL, changed(STATE, q=q)).v.sum()), STATE.q).shape == (8,)
    assert jax.eval_shape(jax.vmap(lambda q: uk.initial_state(MODEL, q=q)), many.q).v.shape == (4, 7)
    for ctrl in ([0], np.zeros(1, "float32"), [jnp.float64(1)], (True,)):
        assert jax.eval_shape(lambda ctrl=ctrl: uk.step(MODEL, STATE, ctrl)).q.shape == (8,)
    as_numpy = jax.tree.map(np.asarray, (MODEL, STATE))
    assert jax.eval_shape(lambda: uk.step(*as_numpy)).q.shape == (8,)
    assert jax.eval_shape(lambda: uk.smooth_onset(as_numpy[0])).geoms.solimp.shape == (3, 5)
    assert jax.eval_shape(lambda: uk.linearize(*as_numpy, wrt="bodies.mass")).parameters["bodies.mass"].shape == (15, 4)
    steps = [[0.1]] * 3
    assert jax.eval_shape(lambda: uk.rollout(MODEL, STATE, steps, checkpoint=np.int64(2))).q.shape == (3, 8)


def test_a_broken_state_is_flagged_and_not_refused():
    model = uk.load("pendulum")
    broken = changed(uk.initial_state(model), q=jnp.full(1, jnp.nan))
    assert int(uk.step(model, broken).status) & uk.Status.NOT_FINITE


def test_what_numpy_shares_is_copied():
    """JAX takes aligned memory of NumPy's as it is; a simulator's own buffers are written to by its next step."""
    memory = np.zeros(64 + 8 * MODEL.nv, np.uint8)
    start = -memory.ctypes.data % 64
    v = memory[start : start + 8 * MODEL.nv].view(np.float64)
    state = uk.initial_state(MODEL, v=v)
    v[:] = 1.0
    assert not state.v.any()
