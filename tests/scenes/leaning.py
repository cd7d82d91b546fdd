"""A box that lands across another one's edge, leaning a little."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ukemi as uk
from ukemi.maths import spatial

SCENE = """<mujoco><option timestep="{h}"/><worldbody><geom type="box" size=".2 .1 .1" pos="-.15 -.03 -.15"/>
  <body><freejoint/><geom type="box" size=".2 .1 .05"/></body></worldbody></mujoco>"""


def leaning(model: uk.Model, lean: float, draws: int) -> uk.State:
    """Random poses (draws,) across the edge of the lower box, leaning by about so many degrees, and velocities."""
    rng, start, found = np.random.default_rng(0), uk.initial_state(model), []
    for _ in range(draws):
        turn = jnp.asarray([*np.deg2rad(lean) * rng.normal(size=2), rng.uniform(-0.6, 0.6)])
        place = [*0.02 * rng.normal(size=2), rng.uniform(-0.002, 0.008)]
        q = jnp.concatenate([jnp.asarray(place), spatial.quat_exp(turn)])
        found.append(eqx.tree_at(lambda s: (s.q, s.v), start, (q, jnp.asarray(0.5 * rng.normal(size=6)))))
    return jax.tree.map(lambda *x: jnp.stack(x), *found)
