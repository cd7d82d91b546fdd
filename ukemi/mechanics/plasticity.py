"""Springs that yield, as MuJoCo has them: stretched beyond what they bear they stay longer.

Where each rests is part of the state: `State.act` is the activations, behind them the past of late controls, and behind
that coordinates of joints and both lengths of tendons, in MuJoCo's order. Forces are those of springs that bear all;
at the end of a step what went too far comes to rest at the distance that it bears.
"""

import dataclasses

import jax.numpy as jnp
from jax import Array

from ukemi.maths import spatial
from ukemi.maths.gathers import taken
from ukemi.mechanics.kinematics import Kinematics, difference
from ukemi.mechanics.tendons.paths import tendon_lengths
from ukemi.model.records import Model


def yields(model: Model) -> bool:
    """Whether some spring does."""
    return model.nplastic > 0


def rests(model: Model, act: Array) -> Array:
    """Where springs that yield rest (nplastic,), behind all else in `act` (na,)."""
    return act[model.na - model.nplastic :] if yields(model) else jnp.zeros(0, act.dtype)


def first_rests(model: Model) -> Array:
    """Where they rest at first: as the model says."""
    joints, tendons = model.joints.layout.plastic, model.tendons.layout.plastic
    out = jnp.zeros(model.nplastic, model.options.timestep.dtype)
    if not yields(model):
        return out
    out = out.at[joints[joints >= 0]].set(model.joints.qpos_spring[joints >= 0])
    return out.at[tendons[tendons >= 0]].set(model.tendons.spring[tendons >= 0])


def at_rest(model: Model, act: Array) -> Model:
    """The model with the springs that yield at rest where they are by now."""
    return resting(model, rests(model, act)) if yields(model) else model


def resting(model: Model, rest: Array) -> Model:
    """The same with the places of rest given (nplastic,)."""
    joints, tendons = model.joints, model.tendons
    spring = jnp.where(joints.layout.plastic >= 0, taken(rest, joints.layout.plastic), joints.qpos_spring)
    lengths = jnp.where(tendons.layout.plastic >= 0, taken(rest, tendons.layout.plastic), tendons.spring)
    joints, tendons = dataclasses.replace(joints, qpos_spring=spring), dataclasses.replace(tendons, spring=lengths)
    return dataclasses.replace(model, joints=joints, tendons=tendons)


def settled(model: Model, rest: Array, kin: Kinematics, q: Array, after: Array) -> Array:
    """Where they rest (nplastic,) once positions are `after`; lengths of tendons by their moments at q, as MuJoCo."""
    if not yields(model) or "spring" in model.options.layout.disabled:
        return rest
    there = resting(model, rest)
    out = rest
    places = model.joints.layout.plastic
    if (places >= 0).any():
        moved = _moved_joints(there, after)
        out = out.at[places[places >= 0]].set(moved[places >= 0])
    places = model.tendons.layout.plastic
    if (places >= 0).any():
        length, moment = tendon_lengths(model, kin, q)
        moved = _moved_tendons(there, length + moment @ difference(model.tree, after, q))
        out = out.at[places[places >= 0]].set(moved[places >= 0])
    return out


def _moved_joints(model: Model, q: Array) -> Array:
    """Rests of joints' springs as coordinates (nq,), no further from q than they bear."""
    tree, joints = model.tree, model.joints
    stretch = difference(tree, q, joints.qpos_spring)
    most = joints.springyield[tree.dof_joint]
    excess = jnp.where(jnp.abs(stretch) <= most, 0.0, stretch - jnp.sign(stretch) * most)
    out = joints.qpos_spring
    linear = tree.linear_qpos
    out = out.at[linear].add(excess[tree.linear_dof])
    if len(tree.quat_joints):
        turn = stretch[tree.quat_dof]
        angle, bears = spatial.safe_norm(turn)[:, None], joints.springyield[tree.quat_joints][:, None]
        over = ~(angle <= bears)
        slip = turn * (1 - bears / jnp.where(over, angle, 1.0))
        at = out[tree.quat_qpos]
        moved = jnp.where(over, spatial.quat_integrate(at, jnp.where(over, slip, 0.0)), at)
        out = out.at[tree.quat_qpos].set(moved)
    return out


def _moved_tendons(model: Model, length: Array) -> Array:
    """Bands of rest (nt, 2) no further from lengths than springs bear. A string that begins to pull at a length, and
    never pushes, keeps its lower end at zero as it stretches.
    """
    low, high = model.tendons.spring.T
    most = model.tendons.springyield
    out = jnp.where(length > high, length - high, jnp.where(length < low, length - low, 0.0))
    slip = jnp.where(jnp.abs(out) <= most, 0.0, out - jnp.sign(out) * most)
    kept = (low == 0) & (high > 0) & (slip > 0)
    return jnp.stack([jnp.where(kept, low, low + slip), high + slip], -1)
