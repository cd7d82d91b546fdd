"""How geoms move over a step of constant joint velocities, and how fast they can change that motion."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.collide.kinds import KINDS
from ukemi.collide.near import bounding_capsules
from ukemi.maths import spatial
from ukemi.mechanics.kinematics import Kinematics, geom_frames, integrate, kinematics, velocities
from ukemi.model.records import Model
from ukemi.model.tree import HINGE, SLIDE, Tree


class Moving(NamedTuple):
    """All geoms at one time of their motion."""

    pos: Array  # (ng, 3) [m]
    mat: Array  # (ng, 3, 3)
    velocity: Array  # (ng, 3) of the centres [m/s]
    spin: Array  # (ng, 3) [rad/s]


def moving(model: Model, q: Array, v: Array, time: Array, mocap_pos: Array | None, mocap_quat: Array | None) -> Moving:
    """The geoms after a time on their way."""
    tree, body = model.tree, model.geoms.layout.body
    kin = kinematics(model, integrate(tree, q, v, time), mocap_pos, mocap_quat)
    pos, mat = geom_frames(model, kin)
    twist = velocities(tree, kin.S, v).body[body]
    arm = pos - kin.ref[tree.body_tree[body]]
    return Moving(pos, mat, twist[:, 3:] + spatial.cross(twist[:, :3], arm), twist[:, :3])


def acceleration_bound(model: Model, q: Array, v: Array, duration: Array, extent: Array) -> Array:
    """Bound (ng,) of the acceleration of every point of a geom, its ball left out, at any time [m/s²].

    A point x moved by constant joint rates has ẍ = Σ_j v_j² ξ_j ξ_j x + 2 Σ_(i above j) v_i v_j ξ_i ξ_j x, with
    |ξ_j x| at most the distance of x from the joint, and 1 for a slide, and |ξ_i y| ≤ |y| for hinges, 0 for slides.
    That distance is at most the length of the chain of links between.
    """
    tree, body = model.tree, model.geoms.layout.body
    lever = _levers(model, q, v, duration)
    slides = (tree.joint_type == SLIDE)[tree.dof_joint] | ~_turns(tree)
    spin = _spin_rates(tree, v)
    above = tree.strict.astype(v.dtype) @ spin
    turning = tree.moves * (spin * (spin + 2 * above))
    sliding = tree.moves.astype(v.dtype) @ jnp.where(slides, 2 * jnp.abs(v) * above, 0.0)
    own = spatial.safe_norm(model.geoms.pos) + extent
    return sliding[body] + (turning * lever).sum(1)[body] + turning.sum(1)[body] * own


def _turns(tree: Tree) -> np.ndarray:
    """(nv,) bool: dofs that rotate."""
    turns = (tree.joint_type == HINGE)[tree.dof_joint]
    turns[tree.quat_dof.ravel()] = True
    return turns


def _spin_rates(tree: Tree, v: Array) -> Array:
    """Angular speed (nv,) of each rotational joint, at its first rotational dof; zero elsewhere."""
    hinge = (tree.joint_type == HINGE)[tree.dof_joint]
    rates = jnp.where(hinge, jnp.abs(v), 0.0)
    dofs = tree.quat_dof
    return rates.at[dofs[:, 0]].set(spatial.safe_norm(v[dofs])) if len(dofs) else rates


def _levers(model: Model, q: Array, v: Array, duration: Array) -> Array:
    """Bound (nb, nv) of the distance from each dof's joint to the origin of a body that it moves [m]."""
    tree, anchor = model.tree, spatial.safe_norm(model.joints.pos)
    slide, on = tree.joint_type == SLIDE, tree.joint_body[:, None] == np.arange(tree.nb)
    where = tree.joint_qpos
    travel = jnp.abs(q[where] - model.joints.qpos0[where]) + jnp.abs(v[tree.joint_dof]) * duration
    slack = jnp.where(slide, travel, 2 * anchor)  # how far a joint can move its own body's origin
    link = spatial.safe_norm(model.bodies.pos) + on.T.astype(v.dtype) @ slack
    is_above = np.eye(tree.nb, dtype=bool)
    for up in tree.jumps:  # bodies at or above each body, by twos
        is_above |= is_above[up]
    below = is_above & ~np.eye(tree.nb, dtype=bool)
    chain = is_above.astype(v.dtype) @ (link[:, None] * below.astype(v.dtype))
    joints = np.arange(tree.nj)
    later = (tree.joint_body[:, None] == tree.joint_body) & (joints[:, None] < joints)
    near = anchor + later.astype(v.dtype) @ slack
    return near[tree.dof_joint] + chain[:, tree.dof_body]


def covered(model: Model, kin: Kinematics, v: Array) -> Array:
    """Distance (pairs,) that the geoms of each pair can cover towards each other in a step at velocities v [m]."""
    _, linear, spin, extent = _motion(model, kin, v)
    speed = spatial.safe_norm(linear) + spatial.safe_norm(spin) * extent
    a, b = model.pairs.layout.geoms.T
    return model.options.timestep * (speed[a] + speed[b])


def approached(model: Model, kin: Kinematics, v: Array) -> Array:
    """The same (pairs,) of geoms that keep these velocities: what moves together does not come nearer [m]."""
    pos, linear, spin, extent = _motion(model, kin, v)
    a, b = model.pairs.layout.geoms.T
    apart, turns = pos[b] - pos[a], spatial.safe_norm(spin[b] - spin[a])

    def seen_from(own: np.ndarray, other: np.ndarray, apart: Array) -> Array:
        """Largest speed of points of the other geom, in axes that move with its partner."""
        moves = linear[other] - linear[own] - spatial.cross(spin[own], apart)
        return spatial.safe_norm(moves) + turns * extent[other]

    endless = np.array([KINDS[kind].endless for kind in model.geoms.layout.type])[a]
    speed = seen_from(a, b, apart)
    return model.options.timestep * jnp.where(endless, speed, jnp.minimum(speed, seen_from(b, a, -apart)))


def _motion(model: Model, kin: Kinematics, v: Array) -> tuple[Array, ...]:
    """Centres, their velocities and spins (ng, 3) of geoms, and how far each extends from its centre (ng,)."""
    V = velocities(model.tree, kin.S, v).body
    body = model.geoms.layout.body
    half, radius = bounding_capsules(model)
    pos = geom_frames(model, kin)[0]
    linear = V[body, 3:] + spatial.cross(V[body, :3], pos - kin.ref[model.tree.body_tree[body]])
    return pos, linear, V[body, :3], spatial.safe_norm(half) + radius
