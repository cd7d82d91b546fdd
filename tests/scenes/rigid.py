"""What a step of rigid contact must satisfy, from rows and masses alone; shared by the tests of the rigid laws."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import ukemi as uk
from ukemi.constraints.rows import RowKinds, row_kinds
from ukemi.laws.rigid import impulses
from ukemi.model.records import as_input


class Watched(NamedTuple):
    """What a rollout leaves, step by step."""

    states: uk.State
    residual: Array  # (T,) violation of complementarity, of boxes and of the balance of momentum
    shift: Array  # (T, nv) displacement against penetration and drift
    contacts: Array  # (T,) number of contacts that push


def watch(model, state, steps: int, method=None, ctrls=None, ok: bool = True) -> Watched:
    """A rollout with its residuals; it must not fail."""
    inputs = jnp.zeros((steps, model.nu)) if ctrls is None else ctrls
    out = _watch(model, state, inputs, method or uk.LCP())
    if ok:
        uk.raise_if_failed(out.states)
    return out


@partial(jax.jit, static_argnames="method")
def _watch(model, state, ctrls, method) -> Watched:
    def step(state, ctrl):
        inputs = as_input(model, ctrl)
        here = method.here(model, state, inputs)
        z, facts = method.impulses(here, state)
        after = method._after(state, inputs, here, z, facts)  # as method.step does, which would solve a second time
        residual, pushing = violation(model, state, here, z, method)
        return after, Watched(after, residual, z.shift, pushing)

    return jax.lax.scan(step, state, ctrls)[1]


def violation(model, state, here, z, method) -> tuple[Array, Array]:
    """Largest violation [m/s, N s] of the conditions of one step, and how many contacts push."""
    kinds = row_kinds(model)
    if not kinds.total:
        return jnp.zeros(()), jnp.zeros((), int)
    s = impulses.scene(here, model.options.timestep, state.cache.laws["rigid"])
    given = impulses.problem(s, kinds, method._stepping)
    law, J = given.law, given.J
    moving = J @ state.v
    target = jnp.where(z.bounce, -law.restitution * jnp.minimum(moving, 0), law.reach)
    wrong = complementarity(roles(kinds), z.f, J @ z.v - target, law.fixed, law.mu)
    wrong = jnp.where(law.on, wrong, jnp.abs(z.f))
    momentum = s.M @ (z.v - s.free) - J.T @ z.f
    pushing = (z.f[kinds.scalar :: kinds.dim] > 0).sum()
    return jnp.maximum(wrong.max(), jnp.abs(momentum).max()), pushing


def roles(kinds: RowKinds):
    """(push, hold, owner) of the rows."""
    row = np.arange(kinds.total)
    contact = np.maximum(row - kinds.scalar, 0) % kinds.dim
    hold = row < kinds.hold
    push = np.where(row < kinds.scalar, row >= kinds.pushing.start, contact == 0)
    return push, hold, row - contact * (row >= kinds.scalar)


def complementarity(roles, f, w, fixed, mu):
    """How far (n,) impulses f and velocities w are from complementarity in their boxes: w itself where held."""
    push, hold, owner = roles
    high = fixed + mu * jnp.maximum(f[owner], 0.0)
    low = jnp.where(push, 0.0, -high)
    nearest = jnp.where(push, jnp.maximum(f - w, 0.0), jnp.clip(f - w, low, high))
    return jnp.where(hold, jnp.abs(w), jnp.abs(f - nearest))


@jax.jit
def energies(model, states):
    """Energies of states with a leading axis."""
    return jax.vmap(uk.energy, (None, 0))(model, states)


def last(states):
    """The last state."""
    return jax.tree.map(lambda x: x[-1], states)


def preceded(state, states):
    """The states with the one that they start from before them."""
    return jax.tree.map(lambda a, b: jnp.concatenate([jnp.asarray(a)[None], b]), state, states)


class Toppling(NamedTuple):
    """A cube on its edge on the floor, about to fall on its face."""

    height: float
    quat: np.ndarray
    twist: list[float]
    time: float  # when it does


def toppling_cube(half: float, slop: float, angle: float = 0.1, spin: float = -30.0) -> Toppling:
    """Its centre moves straight while it turns, so the edge lifts off a little."""
    height = half * (np.cos(angle) + np.sin(angle))
    arm = half * np.array([np.cos(angle) - np.sin(angle), 0, -np.cos(angle) - np.sin(angle)])
    twist = [*-np.cross([0, spin, 0], arm), 0, spin, 0]
    low, high = 0.0, -angle / spin * 1.5
    for _ in range(60):
        t = (low + high) / 2
        now = angle + spin * t
        corner = height + twist[2] * t - half * (np.cos(now) - np.sin(now))
        low, high = (t, high) if corner > slop else (low, t)
    return Toppling(height, np.array([np.cos(angle / 2), 0, np.sin(angle / 2), 0]), twist, low)
