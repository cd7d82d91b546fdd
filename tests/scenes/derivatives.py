"""Exact derivatives of one step, in both modes and by differences; one program for all models of a layout."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

import ukemi as uk
from ukemi.checking.report import extrapolate
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
    zero, every = jnp.zeros(2 * model.nv), jnp.eye(2 * model.nv)

    def after(x):
        return uk.step(model, place(model, at, x), ctrl, method)

    # the step is compiled once for all differences, and once more for both modes
    points = jnp.concatenate([zero[None], *(k * h * every for k in (1, -1, 2, -2))])
    states = jax.lax.map(after, points)
    base = states.q[0]
    along = jax.vmap(lambda state: outcome(model, state, base))(states)
    ahead, behind, far_ahead, far_behind = along[1:].reshape(4, *every.shape)
    expected = (8 * (ahead - behind) - (far_ahead - far_behind)) / (12 * h)
    push = jax.linearize(lambda x: outcome(model, after(x), base), zero)[1]
    (reverse,) = jax.vmap(jax.linear_transpose(push, zero))(every)
    return jax.vmap(push, out_axes=-1)(every), reverse, expected.T


def assert_exact(model, at, ctrl=None, method=None, tolerance=1e-6, h: float = 1e-5):
    """Both modes agree with each other and with differences; returns the derivative."""
    forward, reverse, expected = jacobians(model, at, ctrl, method, h)
    assert np.isfinite(forward).all() and np.isfinite(reverse).all()
    np.testing.assert_allclose(reverse, forward, atol=1e-11 * (1 + np.abs(forward).max()))
    np.testing.assert_allclose(forward, expected, atol=tolerance * np.abs(expected).max())
    return forward


RUNGS = 8e-4 * 0.5 ** np.arange(8)  # of differences of a step; the largest where hard rows jam what rounding moves
ROUGH = 2e-7  # differences that are doubted by more, relative to the largest, are no reference


def linearized(model: uk.Model, law, given: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """How far [A, B] of each state are from differences of a step, relative to the largest, and whether these tell.

    given: q, v, act and ctrl, (n, ...) each. Differences tell nothing where something takes off or closes within them,
    where rounding shows (a joint that hard rows jam), or the step is not solved.
    """
    found, D, status = map(np.asarray, _linearized(model, law, jax.tree.map(jnp.asarray, given)))
    assert np.isfinite(found).all()
    all_of_them = np.ones(len(RUNGS), bool)
    limits = [[extrapolate(column, all_of_them, RUNGS) for column in state] for state in D]
    expected = np.array([[value for value, _ in state] for state in limits]).swapaxes(1, 2)
    doubt = np.array([max(error for _, error in state) for state in limits])
    scale = 1 + np.abs(expected).max((1, 2))
    return np.abs(found - expected).max((1, 2)) / scale, (doubt < ROUGH * scale) & (status == 0)


@jax.jit
def _linearized(model: uk.Model, law, given):
    """[A, B] (n, outputs, columns), central differences (n, columns, rungs, outputs), and the steps' status."""

    def one(at):
        n, na = model.nv, model.na
        state = uk.initial_state(model, q=at["q"], v=at["v"], act=at["act"])
        lin = uk.linearize(model, state, at["ctrl"], law)

        def moved(x):
            there = uk.initial_state(
                model, q=integrate(model.tree, state.q, x[:n], 1.0), v=state.v + x[n : 2 * n],
                act=state.act + x[2 * n : 2 * n + na],
            )  # fmt: skip
            after = uk.step(model, there, at["ctrl"] + x[2 * n + na :], law)
            return jnp.concatenate([outcome(model, after, lin.next.q), after.act])

        ways = jnp.eye(2 * n + na + model.nu)[:, None] * RUNGS[:, None]
        both = jnp.stack([ways, -ways])  # in one loop, so that the step is compiled once
        ahead, behind = jax.lax.map(moved, both.reshape(-1, both.shape[-1])).reshape(*both.shape[:3], -1)
        return jnp.concatenate([lin.A, lin.B], 1), (ahead - behind) / (2 * RUNGS[:, None]), lin.next.status

    return jax.lax.map(one, given)
