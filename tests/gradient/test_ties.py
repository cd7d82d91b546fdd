"""Where two pieces meet derivatives are one piece's, no mixture: controls, forces and activations at their bounds,
muscles at rest, and parameters of contacts at theirs.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.agreement import QUICK
from tests.scenes.slow import few

SIZE = 1e-6

ARMS = """<mujoco><option timestep="0.002"/><worldbody>
  <body><joint name="a" axis="0 1 0" damping=".1" actuatorfrcrange="-2 2"/><geom size=".1" pos=".3 0 0"/></body>
  <body pos="0 1 0"><joint name="b" axis="0 1 0" damping=".1"/><geom size=".1" pos=".3 0 0"/></body>
  <body name="c" pos="0 2 0"><joint name="c" axis="0 1 0" damping=".1"/><geom size=".1" pos=".3 0 0"/></body>
  </worldbody><actuator>
    <motor joint="a" gear="2"/>
    <motor joint="b" ctrlrange="-1 1"/>
    <motor joint="b" forcerange="-.5 .5"/>
    <intvelocity joint="b" kp="2" actrange="-.3 .3"/>
    <muscle joint="c" force="3" lengthrange="-1.5 1.2"/>
    <muscle joint="c" force="3" lengthrange="-1.5 1.2" ctrlrange="0 1" tausmooth=".2"/>
    <dcmotor joint="c" motorconst=".1" resistance="2"/>
    <adhesion body="c" ctrlrange="0 1" gain="2"/>
  </actuator></mujoco>"""
# each of which is at a bound, on one side or the other
CONTROLS = {"upper": [1, 1, 0.5, 0, 0, 0, 0.2, 1], "lower": [-1, -1, -0.5, 0, 1, 1, 0.2, 0]}
HELD = {"upper": [0.3, 0, 0], "lower": [-0.3, 1, 1]}


def one_sided(f, x):
    """Differences (2, outputs, inputs) of each number of x, to either side."""
    base = f(x)
    moved = jax.vmap(lambda way: jnp.stack([s * (f(x + s * SIZE * way) - base) for s in (1, -1)]))(jnp.eye(len(x)))
    return jnp.moveaxis(moved / SIZE, 0, -1)


@functools.cache
def arms():
    """The model, and of velocities, activations and controls: a step's differences to either side, and its slopes."""
    model = uk.load(ARMS)
    ends = model.nv, model.nv + model.na

    def step(x):
        v, act, ctrl = jnp.split(x, ends)
        after = uk.step(model, uk.initial_state(model, v=v, act=act), ctrl)
        return jnp.concatenate([after.q, after.v, after.act])

    def closed(x):
        v, act, ctrl = jnp.split(x, ends)
        found = uk.linearize(model, uk.initial_state(model, v=v, act=act), ctrl)
        return jnp.concatenate([found.A[:, model.nv :], found.B], 1)

    modes = {"linearize": closed, "forward mode": jax.jacfwd(step), "reverse mode": jax.jacrev(step)}
    modes = {name: jax.jit(mode, compiler_options=QUICK) for name, mode in modes.items()}
    return model, jax.jit(functools.partial(one_sided, step), compiler_options=QUICK), modes


@pytest.mark.parametrize("end", few(["upper", "lower"], "lower"))
def test_actuators_at_their_bounds(end):
    model, sides, modes = arms()
    x = jnp.concatenate([jnp.zeros(model.nv), jnp.array(HELD[end]), jnp.array(CONTROLS[end])])
    right, left = np.asarray(sides(x))
    found = {name: np.asarray(mode(x)) for name, mode in modes.items()}
    for name, slopes in found.items():
        off = np.minimum(np.abs(slopes - right), np.abs(slopes - left))
        assert off.max() < 1e-6, (name, np.argwhere(off > 1e-6))
    closed = found["linearize"]
    np.testing.assert_allclose(found["reverse mode"], closed, atol=1e-12)
    kinks = np.abs(right - left).max(0) > 1e-4
    assert kinks[model.nv + model.na :].sum() >= 6, "the scene is at the bounds that it is about"
    # from within, where there is a way out: no optimiser is stuck at a bound
    assert (np.abs(closed[:, model.nv + model.na :]).max(0)[kinks[model.nv + model.na :]] > 1e-5).all()


def test_a_muscle_at_rest_has_the_whole_slope_in_velocity():
    """The curve of forces over velocities is smooth at zero, where the two halves of it meet."""
    model, sides, modes = arms()
    x = jnp.concatenate([jnp.zeros(model.nv), jnp.array([0.0, 0.7, 0.4]), jnp.full(model.nu, 0.2)])
    expected = np.asarray(sides(x)).mean(0)[:, model.nv - 1]
    idle = np.asarray(sides(x.at[model.nv + 1 : model.nv + 3].set(0.0))).mean(0)[:, model.nv - 1]
    assert np.abs(expected - idle).max() > 1e-3, "muscles brake"
    for mode in modes.values():
        np.testing.assert_allclose(mode(x)[:, model.nv - 1], expected, atol=1e-8)


def test_parameters_of_contacts_at_their_bounds():
    """A time constant of two time steps, a power of one, and an impedance as great as it gets."""
    model = uk.load("""<mujoco><option timestep="0.002"/><worldbody><geom type="plane" size="1 1 1"/>
      <body pos="0 0 .0995"><freejoint/>
      <geom size=".1" solref="0.004 1" solimp=".5 .9999 .002 .5 1" priority="1"/></body></worldbody></mujoco>""")
    where = [lambda m: m.geoms.solref, lambda m: m.geoms.solimp]
    ball = [jnp.array(leaf(model)[1]) for leaf in where]
    sizes = [len(values) for values in ball]

    def speed(x):
        parts = jnp.split(x, np.cumsum(sizes)[:-1])
        moved = eqx.tree_at(
            lambda m: [leaf(m) for leaf in where],
            model,
            [leaf(model).at[1].set(part) for leaf, part in zip(where, parts, strict=True)],
        )
        return uk.step(moved, uk.initial_state(moved), None).v

    x = jnp.concatenate(ball)
    right, left = np.asarray(jax.jit(functools.partial(one_sided, speed), compiler_options=QUICK)(x))
    for mode in (jax.jacfwd, jax.jacrev):
        slopes = np.asarray(jax.jit(mode(speed), compiler_options=QUICK)(x))
        off = np.minimum(np.abs(slopes - right), np.abs(slopes - left))
        assert (off <= 1e-3 * np.abs(slopes)).all(), off
    assert (np.abs(right - left).max(0)[[0, 3, 6]] > 1e-4).sum() >= 2
