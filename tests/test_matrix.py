"""Every method with every public function that takes one: it works, or a sentence says which methods do.

The table is what is promised; whoever changes it changes the documentation, too. uk.torch hands its calls on to these.
"""

import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.slow import few

# A ball on the floor that is driven along it and held by a spring.
SCENE = """<mujoco><option timestep=".01"/><worldbody><geom type="plane" size="1 1 1"/>
<body pos="0 0 .0998"><joint name="x" type="slide" axis="1 0 0" stiffness="1"/><joint type="slide" axis="0 0 1"/>
<geom size=".1" mass="1"/></body></worldbody><actuator><motor joint="x"/></actuator></mujoco>"""
MODEL = uk.load(SCENE)
STATE = uk.initial_state(MODEL, v=[0.3, -0.05])
N, T = 4, 2  # state; steps of a rollout

METHODS = {
    "Soft": uk.Soft(),
    "Soft CG": uk.Soft(solver="CG"),
    "Soft PGS": uk.Soft(solver="PGS"),
    "Soft RK4": uk.Soft(integrator="RK4"),
    "Soft elliptic": uk.Soft(cone="elliptic", integrator="implicitfast"),
    "Soft FromDistance": uk.Soft(gradient=uk.FromDistance()),
    "LCP": uk.LCP(),
    "LCP explicit": uk.LCP(explicit=True),
    "LCP Bounce": uk.LCP(gradient=uk.Bounce()),
    "LCP ComplementarityAware": uk.LCP(gradient=uk.ComplementarityAware()),
    "LCP CentralPath": uk.LCP(gradient=uk.CentralPath()),
    "NCP": uk.NCP(),
    "NCP CentralPath": uk.NCP(gradient=uk.CentralPath()),
    "Maximal": uk.Maximal(),
    "Impact": uk.Impact(),
    "Adaptive": uk.Adaptive(),
    "Adaptive backsolve": uk.Adaptive(adjoint="backsolve"),
    "Adaptive FromDistance": uk.Adaptive(gradient=uk.FromDistance()),
    "Adaptive saveat": uk.Adaptive(saveat=jnp.array([0.004, 0.02, 0.011])),
}


def stepped(model, state, method):
    """Position and velocity after a step, in the velocity before."""
    return lambda v: (lambda after: jnp.concatenate([after.q, after.v]))(
        uk.step(model, eqx.tree_at(lambda s: s.v, state, v), None, method)
    )


FUNCTIONS = {
    "step": lambda *a: uk.step(*a[:2], jnp.ones(1), a[2]),
    "rollout": lambda *a: uk.rollout(*a[:2], jnp.ones((T, 1)), a[2]),
    "linearize": lambda *a: uk.linearize(*a[:2], jnp.ones(1), a[2]),
    "linearize wrt": lambda *a: uk.linearize(*a[:2], None, a[2], wrt="bodies.mass").parameters["bodies.mass"],
    "inverse": lambda *a: uk.inverse(*a[:2], jnp.ones(2), a[2]),
    "vector_field": lambda *a: uk.vector_field(*a[:2], jnp.ones(1), a[2]),
    "contacts": lambda *a: uk.contacts(*a[:2], jnp.ones(1), a[2]),
    "energy": lambda *a: uk.energy(*a),
    "momentum": lambda *a: uk.momentum(*a),
    "forward mode": lambda *a: jax.jvp(stepped(*a), (a[1].v,), (jnp.ones(2),))[1],
    "reverse mode": lambda *a: jax.grad(lambda v: stepped(*a)(v).sum())(a[1].v),
}


def shapes(method) -> dict:
    """What each function returns: a shape, or shapes by field."""
    times = method.saveat.shape[0] if isinstance(method, uk.Adaptive) and method.saveat is not None else T
    return {
        "step": {"q": (2,), "v": (2,), "status": ()},
        "rollout": {"q": (times, 2), "v": (times, 2), "status": (times,)},
        "linearize": {"A": (N, N), "B": (N, 1)},
        "linearize wrt": (N, 2),
        "inverse": (2,),
        "vector_field": ((2,), (2,), (0,)),
        "contacts": {"active": (1,), "force": (1, 3), "torque": (1, 3)},
        "energy": {"kinetic": (), "potential": ()},
        "momentum": {"linear": (3,), "angular": (3,)},
        "forward mode": (N,),
        "reverse mode": (2,),
    }


# What does not work, by method: the error, and the words that say what does. All else works.
ONLY_SOFT = {"inverse": (uk.InputError, r"does not offer uk\.inverse; uk\.Soft\(\.\.\.\) does")}
RIGID = ONLY_SOFT | {"vector_field": (uk.InputError, r"uk\.Soft\(\.\.\.\) and uk\.Adaptive\(\.\.\.\) do")}
REFUSED = {
    "Soft": {},
    "Soft CG": {},
    "Soft PGS": {},
    "Soft RK4": {},
    "Soft elliptic": {},
    "Soft FromDistance": {},
    "LCP": RIGID,
    "LCP explicit": RIGID,
    "LCP Bounce": RIGID,
    "LCP ComplementarityAware": RIGID
    | {
        "linearize": (uk.GradientError, r"Use jax\.grad or jax\.vjp, or another rule"),
        "linearize wrt": (uk.GradientError, r"Use jax\.grad or jax\.vjp, or another rule"),
        "forward mode": (TypeError, "custom_vjp"),  # JAX's own words: it does not ask the law
    },
    "LCP CentralPath": RIGID,
    "NCP": RIGID,
    "NCP CentralPath": RIGID,
    "Maximal": RIGID,
    "Impact": RIGID,
    "Adaptive": ONLY_SOFT,
    "Adaptive backsolve": ONLY_SOFT
    | {
        "linearize wrt": (uk.GradientError, r"adjoint='checkpointed', or jax\.grad or jax\.vjp"),
        "forward mode": (TypeError, "custom_vjp"),
    },
    "Adaptive FromDistance": ONLY_SOFT,
    "Adaptive saveat": ONLY_SOFT,
}
# uk.check_gradients takes a method, too, and compiles for long: what it covers is checked where it is tested.
UNCHECKED = {"Impact": "does not cover uk.Impact yet", "Adaptive": "does not cover uk.Adaptive yet"}


@eqx.filter_jit
def together(names, model, state, method):
    return {name: FUNCTIONS[name](model, state, method) for name in names}


def working(name) -> tuple:
    return tuple(sorted(FUNCTIONS.keys() - REFUSED[name].keys()))


@pytest.mark.parametrize(
    "name", few(METHODS, "Soft", "LCP", "LCP ComplementarityAware", "Adaptive backsolve")
)
def test_what_works_has_its_shape(name):
    """Traced, which compiles nothing; the slow run has the numbers, of which other tests have most."""
    method = METHODS[name]
    found = eqx.filter_eval_shape(together, working(name), MODEL, STATE, method)
    for function, promised in shapes(method).items():
        if function in found:
            result = found[function]
            if isinstance(promised, dict):
                result = {field: getattr(result, field) for field in promised}
            assert jax.tree.map(jnp.shape, result) == promised, function


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_what_works_is_finite(name):
    found = together(working(name), MODEL, STATE, METHODS[name])
    for function, result in found.items():
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result)), function
    assert not found["step"].status and found["step"].v[0] > 0.05  # slides on
    assert found["contacts"].active.all() and found["contacts"].force[0, 2] > 0


def test_states_have_every_memory_before_any_law_is_named():
    """Public names are imported when they are first used; a state may be older than the law that steps it."""
    code = "import ukemi as uk; s = uk.initial_state(uk.load('pendulum')); print(sorted(s.cache.laws))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(sorted(STATE.cache.laws)) == "['conic', 'rigid']"


@pytest.mark.parametrize("name", METHODS)
def test_what_does_not_work_says_what_does(name):
    for function, (error, words) in REFUSED[name].items():
        with pytest.raises(error, match=words):
            FUNCTIONS[function](MODEL, STATE, METHODS[name])


@pytest.mark.parametrize("name", UNCHECKED)
def test_gradients_that_cannot_be_checked_are_refused(name):
    with pytest.raises(uk.InputError, match=UNCHECKED[name]):
        uk.check_gradients(MODEL, METHODS[name])


def test_the_table_is_whole():
    """Every law, every option that has a rule or a mode of its own, and every public function that takes a method."""
    import inspect

    public = {name: getattr(uk, name) for name in uk.__all__ if inspect.isfunction(getattr(uk, name))}
    taking = {name for name, function in public.items() if "method" in inspect.signature(function).parameters}
    # sensors under every law are those of tests/test_sensors.py; save_replay asks for what uk.contacts gives
    assert taking - {"check_gradients", "sensors", "save_replay"} == {name for name in FUNCTIONS if " " not in name}
    assert REFUSED.keys() == METHODS.keys()
    laws = {value for name in uk.__all__ if inspect.isclass(value := getattr(uk, name)) and hasattr(value, "step")}
    assert {type(method) for method in METHODS.values()} == laws
