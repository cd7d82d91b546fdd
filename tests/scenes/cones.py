"""One scene with every kind of row for the laws with cones, and what they promise of it as functions of one vector."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ukemi as uk
from ukemi.mechanics.kinematics import difference, integrate

# Side by side: a box that slides, spins and rolls; a ball that bounces and one on top of it; a servo arm at its limit
# with dry friction; a ball joint at its limit; two links that end where they began.
EVERY_ROW = """<mujoco><compiler angle="radian"/><option timestep=".01" integrator="implicitfast"/><worldbody>
<geom name="floor" type="plane" size="5 5 1" friction=".4 .02 .01" condim="{condim}"/>
<body pos="0 0 .1"><freejoint/>
  <geom type="box" size=".1 .1 .1" mass="1" condim="{condim}" friction=".5 .01 .01"/></body>
<body pos="2 0 .11"><joint type="slide" axis="0 0 1"/><geom size=".1" mass="1" solref="-10000 -10" condim="1"/></body>
<body pos="2 0 .32"><joint type="slide" axis="0 0 1"/><geom size=".1" mass="2" condim="3"/></body>
<body pos="3 0 1">
  <joint name="arm" axis="0 1 0" range="-.5 .3" limited="true" frictionloss=".2" damping=".1" armature=".01"/>
  <geom type="capsule" fromto="0 0 0 .3 0 0" size=".03" mass=".4" contype="0" conaffinity="0"/></body>
<body pos="4 0 1"><joint type="ball" limited="true" range="0 .4" damping=".05"/>
  <geom type="capsule" fromto="0 0 0 .2 0 .1" size=".03" mass=".3" contype="0" conaffinity="0"/></body>
<body pos="5 0 1"><joint axis="0 1 0"/><geom size=".05" pos=".3 0 0" mass=".3" contype="0" conaffinity="0"/>
  <body name="end" pos=".3 0 0"><joint axis="0 1 0"/>
    <geom size=".05" pos="0 0 -.2" mass=".2" contype="0" conaffinity="0"/></body></body>
</worldbody><equality><connect name="loop" body1="end" anchor="0 0 -.3" body2="world"/></equality>
<actuator><position joint="arm" kp="20" kv="1"/></actuator></mujoco>"""


# The parts of it that move most, for what compiles for long.
SOME_ROWS = """<mujoco><compiler angle="radian"/><option timestep=".01"/><worldbody>
<geom name="floor" type="plane" size="5 5 1" friction=".4 .02 .01" condim="{condim}"/>
<body pos="0 0 .1"><freejoint/>
  <geom type="capsule" size=".1 .1" euler="0 1.57 0" mass="1" condim="{condim}" friction=".5 .01 .01"/>
  <body pos=".1 0 .1"><joint name="arm" axis="0 1 0" range="-.5 .3" limited="true" frictionloss=".02" damping=".1"/>
  <geom type="capsule" fromto="0 0 0 .3 0 0" size=".03" mass=".4" contype="0" conaffinity="0"/></body></body>
</worldbody><actuator><motor joint="arm"/></actuator></mujoco>"""
SCENES = {"every": EVERY_ROW, "some": SOME_ROWS}


def settled(model: uk.Model, steps: int, ctrl, method) -> uk.State:
    """Where a model is after some steps from a push."""
    rng = np.random.default_rng(0)
    start = uk.initial_state(model, v=0.3 * rng.standard_normal(model.nv))
    states = uk.rollout(model, start, jnp.tile(ctrl, (steps, 1)), method)
    return jax.tree.map(lambda x: x[-1], states)


GROUPS = ("bodies.mass", "geoms.friction", "geoms.size", "joints.damping", "joints.frictionloss", "options.timestep")


def moved(model: uk.Model, at: uk.State, ctrl, x, method):
    """Model, state and controls after a change x (2 nv + nu + 1 + ...) of positions, velocities, controls, κ and of
    all parameters in `GROUPS`, these relative.
    """
    nv, nu = model.nv, model.nu
    q = integrate(model.tree, at.q, x[:nv], 1.0)
    state = eqx.tree_at(lambda s: (s.q, s.v), at, (q, at.v + x[nv : 2 * nv]))
    start = 2 * nv + nu + 1
    for name in GROUPS:
        room, leaf = name.split(".")
        value = getattr(getattr(model, room), leaf)
        change = x[start : start + value.size].reshape(value.shape)
        model = eqx.tree_at(lambda m: getattr(getattr(m, room), leaf), model, value * (1 + change))  # noqa: B023
        start += value.size
    return model, state, ctrl + x[2 * nv : 2 * nv + nu], x[2 * nv + nu]


def count(model: uk.Model) -> int:
    """Length of x."""
    sizes = [np.size(getattr(getattr(model, name.split(".")[0]), name.split(".")[1])) for name in GROUPS]
    return 2 * model.nv + model.nu + 1 + sum(sizes)


def outcome(model: uk.Model, state: uk.State, base: uk.State) -> jax.Array:
    """Where a state is, as a vector."""
    return jnp.concatenate([difference(model.tree, state.q, base.q), state.v])
