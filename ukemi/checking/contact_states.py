"""Random states of a robot in which it touches what it can touch."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.detect import detect
from ukemi.collide.kinds import KINDS
from ukemi.collide.shapes import shapes_at, sides
from ukemi.errors import StepError
from ukemi.laws.method import Method
from ukemi.laws.soft.law import SOFT
from ukemi.mechanics.kinematics import geom_frames, integrate, kinematics, of_state
from ukemi.model.records import Input, Model, State
from ukemi.model.tree import BALL, FREE, HINGE, SLIDE
from ukemi.simulate.stepping import initial_state

LONGEST = 100  # steps that a state is simulated before it is used
FASTEST = 100.0  # rad/s or m/s: what is faster is taken to be unstable
TRIES = 30  # per state that is wanted

# Compiling is most of the time here, and half of it is optimisation that a few hundred steps do not pay back.
QUICK = {"xla_backend_optimization_level": 0}


class _Settled(NamedTuple):
    state: State
    touches: Array  # () bool: some contact is active
    fine: Array  # () bool


class _Programs(NamedTuple):
    settle: Callable  # (state, inputs, steps) -> _Settled
    shift: Callable  # (q, tangent vector) -> q
    lowest: Callable  # q -> heights over the ground


def random_states(model: Model, n: int, seed: int = 0, method: Method | None = None) -> list[tuple[State, Input]]:
    """n states, and what acts on them, most of them in contact if the model can be.

    Joints are random within their limits, some of them on a limit; what floats or slides over a ground plane is let
    down to it; two of five states are then simulated for a while. States without a contact are drawn again, every
    other one, a few times.

    Raises:
        StepError: the simulation is unstable from nearly all of the states.
    """
    rng, found, idle = np.random.default_rng(seed), [], 0
    programs = _compiled(model, method or SOFT)
    for _ in range(TRIES * n):
        if len(found) == n:
            break
        state, inputs = _draw(model, rng, programs)
        steps = rng.integers(1, LONGEST) if rng.random() < 0.4 else 0
        state, touches, fine = programs.settle(state, inputs, steps)
        if not fine:
            continue
        idle = idle + 1 if not touches and len(found) % 2 and model.pairs.layout.groups else 0
        if 0 < idle < 10:
            continue
        found.append((state, _draw_controls(model, rng, inputs)))
        idle = 0
    if len(found) < n:
        raise StepError(f"Only {len(found)} of {n} random states of {model!r} could be simulated without failing.")
    return found


def _compiled(model: Model, method: Method) -> _Programs:

    def settle(model, state, inputs, steps):
        state = lax.fori_loop(0, steps, lambda _, state: method.step(model, state, inputs), state)
        touches = detect(model, of_state(model, state, inputs)).active.any()
        fast = jnp.abs(state.v).max(initial=0.0) > FASTEST
        finite = jnp.isfinite(state.q).all() & jnp.isfinite(state.v).all()
        return _Settled(state, touches, finite & ~fast)

    def shifted(q, shift):
        return integrate(model.tree, q, shift, 1.0)

    settle, shifted, lowest = (jax.jit(f, compiler_options=QUICK) for f in (settle, shifted, _lowest))
    return _Programs(
        partial(settle, model),
        lambda q, shift: np.array(shifted(q, shift)),
        lambda q: jax.tree.map(np.asarray, lowest(model, q)),
    )


# ---- drawing ------------------------------------------------------------------------------------------------------


def _draw(model: Model, rng: np.random.Generator, programs: _Programs) -> tuple[State, Input]:
    """A state and what acts on it, before any simulation."""
    tree, keys = model.tree, model.keyframes
    state = initial_state(model, int(rng.integers(len(keys.names))) if keys.names and rng.random() < 0.5 else None)
    shift = rng.choice([0.02, 0.1, 0.5]) * rng.normal(size=model.nv)
    for j in np.flatnonzero(tree.joint_type == FREE):
        shift[tree.joint_dof[j] : tree.joint_dof[j] + 3] *= 0.3
    q = programs.shift(state.q, shift)
    _place_joints(model, q, rng)
    _let_down(model, q, programs.lowest, rng)
    rate = rng.choice([0.1, 1.0, 3.0])
    state = initial_state(model, q=q, v=rate * rng.normal(size=model.nv), act=0.3 * rng.normal(size=model.na))
    return state, _draw_controls(model, rng, _draw_inputs(model, rng))


def _draw_inputs(model: Model, rng: np.random.Generator) -> Input:
    """Applied forces, in a third of the draws not zero, and poses of motion-capture bodies near those of the file."""
    size = float(rng.random() < 0.3)
    mocap = np.flatnonzero(model.tree.body_mocap >= 0)
    mocap = mocap[np.argsort(model.tree.body_mocap[mocap])]
    pos, quat = np.asarray(model.bodies.pos)[mocap], np.asarray(model.bodies.quat)[mocap]
    quat = quat + 0.1 * rng.normal(size=quat.shape)
    xfrc = size * rng.normal(size=(model.tree.nb, 6))
    xfrc[0] = 0
    return Input(
        qfrc=jnp.asarray(size * rng.normal(size=model.nv)),
        xfrc=jnp.asarray(xfrc),
        mocap_pos=jnp.asarray(pos + 0.05 * rng.normal(size=pos.shape)),
        mocap_quat=jnp.asarray(quat / np.linalg.norm(quat, axis=-1, keepdims=True)),
    )


def _draw_controls(model: Model, rng: np.random.Generator, inputs: Input) -> Input:
    """The inputs with random controls, in half of the draws some of them beyond their range."""
    limited = model.actuators.layout.ctrl_limited
    low, high = np.asarray(model.actuators.ctrl_range).T
    low, high = np.where(limited, low, -1.0), np.where(limited, high, 1.0)
    ctrl = rng.uniform(low, high) * rng.choice([1.0, 1.3])
    return Input(jnp.asarray(ctrl), inputs.qfrc, inputs.xfrc, inputs.mocap_pos, inputs.mocap_quat)


def _place_joints(model: Model, q: np.ndarray, rng: np.random.Generator) -> None:
    """Keep limited hinges and slides within their limits, spread some over the range, set some near a limit."""
    tree, limits = model.tree, np.asarray(model.joints.range)
    limited = np.unique(model.joints.layout.limit_rows[:, 0]).astype(int)
    for j in limited[tree.joint_type[limited] != BALL]:
        k, (low, high), draw = tree.joint_qpos[j], limits[j], rng.random()
        near = max(0.25, 1.2 / len(limited))
        if draw < near:
            beyond = (0.005 + 0.01 * rng.normal()) * (high - low)
            q[k] = high + beyond if rng.random() < 0.5 else low - beyond
        elif draw < near + 0.2:
            q[k] = rng.uniform(low, high)
        else:
            q[k] = np.clip(q[k], low, high)


def _let_down(model: Model, q: np.ndarray, lowest: Callable, rng: np.random.Generator) -> None:
    """Move what floats up or down until its lowest point is near the ground, in four of five states."""
    tree, layout = model.tree, model.pairs.layout
    if not layout.groups:
        return
    margin = np.asarray(model.geoms.margin)
    plane, own = layout.geoms.T
    body = model.geoms.layout.body
    endless = np.array([KINDS[kind].endless for kind in model.geoms.layout.type])
    ground = endless[plane] & (tree.body_dof[body[plane]] < 0) & (tree.body_mocap[body[plane]] < 0)
    if not ground.any():
        return
    heights, normals = lowest(q)
    for j in range(tree.nj):
        if tree.body_parent[tree.joint_body[j]] != 0 or tree.joint_type[j] in (HINGE, BALL) or rng.random() < 0.2:
            continue
        mine = np.flatnonzero(ground & tree.moves[body[own], tree.joint_dof[j]])
        if not len(mine):
            continue
        pair = mine[np.argmin(heights[mine])]
        normal, k = normals[pair], tree.joint_qpos[j]
        size = float(np.asarray(model.geoms.size)[own[pair]].max())
        target = min(0.02, 0.2 * size) * rng.uniform(-1.0, 0.25) + margin[plane[pair]] + margin[own[pair]]
        rise = target - heights[pair]
        if tree.joint_type[j] == FREE:
            q[k : k + 3] += rise * normal
        elif tree.joint_type[j] == SLIDE:
            # of a body whose joints are slides and hinges in its own frame at rest
            along = float(np.asarray(model.joints.axis)[j] @ normal)
            if abs(along) > 0.9:
                q[k] += rise / along


def _lowest(model: Model, q: Array) -> tuple[Array, Array]:
    """Height (n,) of each pair's second geom over the plane that is its first, and the plane's normal (n, 3)."""
    geoms = model.pairs.layout.geoms
    plane, own = sides(shapes_at(model.geoms, *geom_frames(model, kinematics(model, q))), geoms)
    normal = plane.mat[:, :, 2]
    z = jnp.einsum("nij,ni->nj", own.mat, normal)  # the plane's normal in the geom's axes
    kinds, below = np.array(model.geoms.layout.type)[geoms[:, 1]], jnp.zeros_like(z[:, 0])
    for name in sorted(set(kinds)):
        body = KINDS[name].convex
        below = jnp.where(kinds == name, body.reach(z, *own[2:]), below) if body else below
    return ((own.pos - plane.pos) * normal).sum(-1) - below, normal
