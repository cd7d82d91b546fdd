"""Exact derivatives of one step, in both modes and by differences; one program for all models of a layout."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

import ukemi as uk
from ukemi.mechanics.kinematics import difference, integrate

# compiling is what takes time here, so leave the optimiser out
quick = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
PRECISE = {"iterations": 300, "line_search_iterations": 200, "tolerance": 1e-14}
# Things are let 0.4 mm into each other: half a millimetre is where the impedance has a kink in its slope.
FLOOR = '<geom name="floor" type="plane" size="5 5 .1" friction="{}" condim="6"/>'
SLIDER = (
    FLOOR.format(".5 .01 .01")
    + """
<body pos="0 0 .0996"><freejoint/>
  <geom type="box" size=".1 .1 .1" condim="{}" friction=".5 .01 .01" mass="1"/></body>"""
)
ARMS = """
<body name="a" pos="0 0 1"><joint name="a0" axis="0 1 0"/><geom size=".05" pos=".1 0 0"/>
  <body name="b" pos=".3 0 0" quat=".9 .1 0 .2"><joint axis="1 0 .3"/><geom size=".05" pos=".1 .1 0"/></body></body>
<body name="c" pos=".32 .01 1.01"><freejoint/><geom type="box" size=".1 .05 .07"/></body>"""
BALLS = """
<body pos="0 0 1"><joint name="b" type="ball" limited="true" range="0 {}" stiffness="2" damping=".1"/>
  <geom type="capsule" fromto="0 0 0 .3 .1 0" size=".04"/>
  <body pos=".3 .1 0"><joint type="ball" stiffness="1"/><geom size=".05" pos=".1 0 .1"/></body></body>"""


def scene(body: str, option: str = "", more: str = "") -> str:
    return f"<mujoco><option {option}/><worldbody>{body}</worldbody>{more}</mujoco>"


def place(model: uk.Model, at: uk.State, x) -> uk.State:
    """The state moved by x (2 nv,): positions in the tangent space, then velocities."""
    return uk.initial_state(model, q=integrate(model.tree, at.q, x[: model.nv], 1.0), v=at.v + x[model.nv :])


def outcome(model: uk.Model, state: uk.State, base) -> jax.Array:
    return jnp.concatenate([difference(model.tree, state.q, base), state.v])


def jacobians(model: uk.Model, at: uk.State, ctrl=None, method: uk.Soft | None = None, h: float = 1e-5):
    """Derivative of a step in positions and velocities: forward mode, reverse mode, central differences."""
    method = method or uk.Soft()
    method = dataclasses.replace(method, **{name: x for name, x in PRECISE.items() if hasattr(method, name)})
    return jax.tree.map(np.asarray, _jacobians(model, at, ctrl, h, method))


@functools.partial(quick, static_argnames="method")
def _jacobians(model: uk.Model, at: uk.State, ctrl, h, method: uk.Soft):
    base = uk.step(model, at, ctrl, method).q

    def after(x):
        return outcome(model, uk.step(model, place(model, at, x), ctrl, method), base)

    def central(d):
        ahead, behind, far_ahead, far_behind = jax.lax.map(lambda t: after(t * d), jnp.array([1.0, -1.0, 2.0, -2.0]))
        return (8 * (ahead - behind) - (far_ahead - far_behind)) / (12 * h)

    zero = jnp.zeros(2 * model.nv)
    return jax.jacfwd(after)(zero), jax.jacrev(after)(zero), jax.lax.map(central, h * jnp.eye(len(zero))).T


def assert_exact(model, at, ctrl=None, method=None, tolerance=1e-6, h: float = 1e-5):
    """Both modes agree with each other and with differences; returns the derivative."""
    forward, reverse, expected = jacobians(model, at, ctrl, method, h)
    assert np.isfinite(forward).all() and np.isfinite(reverse).all()
    np.testing.assert_allclose(reverse, forward, atol=1e-11 * (1 + np.abs(forward).max()))
    np.testing.assert_allclose(forward, expected, atol=tolerance * np.abs(expected).max())
    return forward
