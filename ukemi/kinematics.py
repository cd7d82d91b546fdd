"""Where everything is: poses of bodies, geoms and sites, motion subspaces, velocities, point Jacobians.

Passes over the tree are products with constant 0/1 matrices and ⌈log₂ depth⌉ rounds of pointer jumping; nothing
loops over bodies.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi import spatial
from ukemi.model import Input, Model, State
from ukemi.tree import BALL, FREE, HINGE, SLIDE, Tree


class Kinematics(NamedTuple):
    """Poses in the world and the motion subspace of every degree of freedom."""

    pos: Array  # (nb, 3) body frames [m]
    quat: Array  # (nb, 4)
    com: Array  # (nb, 3) centres of mass of the bodies [m]
    ref: Array  # (ntree, 3) reference point of each kinematic tree: its centre of mass [m]
    S: Array  # (nv, 6) motion subspace [angular; linear] about the tree's reference point


def kinematics(model: Model, q: Array, mocap_pos: Array | None = None, mocap_quat: Array | None = None) -> Kinematics:
    """Poses of all bodies and the motion subspace at q (nq,)."""
    tree = model.tree
    turn, shift = _joint_motion(model, q)
    p, r = _base_poses(model, q, mocap_pos, mocap_quat)
    anchors, axes, turned = [], [], []
    for k in range(tree.slots.shape[1]):  # the joints of one body in order, all bodies at once, in the parent's frame
        j = np.maximum(tree.slots[:, k], 0)
        used = (tree.slots[:, k] >= 0)[:, None]
        pos = jnp.where(used, model.joints.pos[j], 0.0) if tree.nj else jnp.zeros_like(p)
        axis = model.joints.axis[j] if tree.nj else jnp.zeros_like(p)
        anchor, axis = p + spatial.rotate(r, pos), spatial.rotate(r, axis)
        if tree.nj:
            r = spatial.quat_mul(r, jnp.where(used, turn[j], np.array([1.0, 0.0, 0.0, 0.0], r.dtype)))
            p = anchor - spatial.rotate(r, pos) + jnp.where(used, shift[j][:, None], 0.0) * axis
        anchors.append(anchor)
        axes.append(axis)
        turned.append(r)
    local = jnp.stack(anchors, 1), jnp.stack(axes, 1), jnp.stack(turned, 1)
    for up in tree.jumps:
        p, r = spatial.rotate(r[up], p) + p[up], spatial.quat_mul(r[up], r)
    com = p + spatial.rotate(r, model.bodies.ipos)
    ref = _tree_centers(model, com)
    return Kinematics(p, r, com, ref, _motion_subspace(tree, p, r, ref, local))


def of_state(model: Model, state: State, inputs: Input) -> Kinematics:
    """Kinematics of a state under the motion-capture poses of `inputs`."""
    return kinematics(model, state.q, inputs.mocap_pos, inputs.mocap_quat)


def _joint_motion(model: Model, q: Array) -> tuple[Array, Array]:
    """Rotation (nj, 4) and translation along the axis (nj,) of each joint at q."""
    tree = model.tree
    if not tree.nj:
        return jnp.zeros((0, 4), q.dtype), jnp.zeros(0, q.dtype)
    scalar = (tree.joint_type == HINGE) | (tree.joint_type == SLIDE)
    adr = np.where(scalar, tree.joint_qpos, 0)
    d = jnp.where(scalar, q[adr] - model.joints.qpos0[adr], 0.0)
    half = jnp.where(tree.joint_type == HINGE, d / 2, 0.0)[:, None]
    turn = jnp.concatenate([jnp.cos(half), jnp.sin(half) * model.joints.axis], -1)
    if (tree.joint_type == BALL).any():
        adr = np.where(tree.joint_type == BALL, tree.joint_qpos, 0)[:, None] + np.arange(4)
        ball = spatial.quat_normalize(q[np.minimum(adr, model.nq - 1)])
        turn = jnp.where((tree.joint_type == BALL)[:, None], ball, turn)
    return turn, jnp.where(tree.joint_type == SLIDE, d, 0.0)


def _base_poses(model: Model, q: Array, mocap_pos: Array | None, mocap_quat: Array | None) -> tuple[Array, Array]:
    """Pose of each body in its parent's frame before its hinges, slides and balls move."""
    tree = model.tree
    p, r = model.bodies.pos, model.bodies.quat
    p, r = p.astype(q.dtype), r.astype(q.dtype)
    first = np.maximum(tree.slots[:, 0], 0)
    free = (tree.slots[:, 0] >= 0) & (tree.joint_type[first] == FREE) if tree.nj else np.zeros(tree.nb, bool)
    if free.any():
        adr = np.where(free, tree.joint_qpos[first], 0)[:, None]
        pose = q[np.minimum(adr + np.arange(7), model.nq - 1)]
        p = jnp.where(free[:, None], pose[:, :3], p)
        r = jnp.where(free[:, None], spatial.quat_normalize(pose[:, 3:]), r)
    mocap, k = tree.body_mocap >= 0, np.maximum(tree.body_mocap, 0)
    if mocap_pos is not None and mocap.any():
        p = jnp.where(mocap[:, None], mocap_pos[k], p)
    if mocap_quat is not None and mocap.any():
        r = jnp.where(mocap[:, None], spatial.quat_normalize(mocap_quat[k]), r)
    return p, r


def _tree_centers(model: Model, com: Array) -> Array:
    """Centre of mass of each kinematic tree (ntree, 3); a massless tree has its reference at the origin."""
    tree = model.tree
    member = (np.arange(tree.ntree)[:, None] == tree.body_tree) & tree.moves.any(1)
    weight = member.astype(com.dtype) * model.bodies.mass
    total = weight.sum(1, keepdims=True)
    return weight @ com / jnp.where(total == 0, 1.0, total)


def _motion_subspace(tree: Tree, p: Array, r: Array, ref: Array, local: tuple[Array, Array, Array]) -> Array:
    """Columns of the motion subspace, one row per dof, in world axes about the tree's reference point."""
    if not tree.nv:
        return jnp.zeros((0, 6), p.dtype)
    kind, b = tree.joint_type[tree.dof_joint], tree.dof_body
    slot = np.array([np.nonzero(tree.slots[i] == j)[0][0] for i, j in zip(b, tree.dof_joint, strict=True)])
    up = tree.body_parent[b]
    anchor = p[up] + spatial.rotate(r[up], local[0][b, slot])
    axis = spatial.rotate(r[up], local[1][b, slot])
    unit = np.eye(3, dtype=p.dtype)[tree.dof_axis % 3]
    spin = ((kind == FREE) & (tree.dof_axis >= 3)) | (kind == BALL)
    if spin.any():  # rotation velocities live in the frame that the joint itself turns
        turned = spatial.quat_mul(r[up], local[2][b, slot])
        turned = jnp.where((kind == FREE)[:, None], r[b], turned)
        axis = jnp.where(spin[:, None], spatial.rotate(turned, unit), axis)
        anchor = jnp.where((kind == FREE)[:, None], p[b], anchor)
    move = (kind == FREE) & (tree.dof_axis < 3)
    if move.any():
        axis = jnp.where(move[:, None], unit, axis)
    slides = (move | (kind == SLIDE))[:, None]
    arm = ref[tree.body_tree[b]] - anchor
    return jnp.concatenate([jnp.where(slides, 0.0, axis), jnp.where(slides, axis, spatial.cross(axis, arm))], -1)


# ---- frames fixed to bodies ---------------------------------------------------------------------------------


def frames(kin: Kinematics, body: np.ndarray, pos: Array, quat: Array) -> tuple[Array, Array]:
    """World positions (n, 3) and quaternions (n, 4) of frames fixed to bodies."""
    p, r = kin.pos[body], kin.quat[body]
    return p + spatial.rotate(r, pos), spatial.quat_mul(r, quat)


def geom_frames(model: Model, kin: Kinematics) -> tuple[Array, Array]:
    """World positions (ng, 3) and quaternions (ng, 4) of the geoms."""
    return frames(kin, model.geoms.layout.body, model.geoms.pos, model.geoms.quat)


def site_frames(model: Model, kin: Kinematics) -> tuple[Array, Array]:
    """World positions (ns, 3) and quaternions (ns, 4) of the sites."""
    return frames(kin, model.sites.layout.body, model.sites.pos, model.sites.quat)


# ---- velocities -------------------------------------------------------------------------------------------------


class Velocities(NamedTuple):
    """Spatial velocities about each tree's reference point."""

    before: Array  # (nv, 6) of the frame that each dof's joint is attached to: V_λ
    S_dot: Array  # (nv, 6) rate of the motion subspace: V_j × S
    body: Array  # (nb, 6)


def velocities(tree: Tree, S: Array, v: Array) -> Velocities:
    """Velocities of joints and bodies for joint velocities v (nv,)."""
    nv = tree.nv
    masks = np.concatenate([tree.strict, tree.anc, tree.moves]).astype(S.dtype)
    V = masks @ (S * v[:, None])
    return Velocities(V[:nv], spatial.cross_motion(V[nv : 2 * nv], S), V[2 * nv :])


# ---- point Jacobians --------------------------------------------------------------------------------------------


def shared_reference(tree: Tree, kin: Kinematics) -> tuple[Array, Array]:
    """One reference point (3,) for rows that join several trees, and the motion subspace (nv, 6) about it."""
    origin = kin.ref[0]
    if tree.ntree == 1:
        return origin, kin.S
    arm = origin - kin.ref[tree.body_tree[tree.dof_body]]
    moved = kin.S[:, 3:] + spatial.cross(kin.S[:, :3], arm)
    return origin, jnp.concatenate([kin.S[:, :3], moved], -1)


def point_jacobian(tree: Tree, kin: Kinematics, body, point: Array) -> Array:
    """Jacobian (n, 6, nv) of angular and linear velocity at world points (n, 3) moving with bodies (n,)."""
    origin, S = shared_reference(tree, kin)
    mask = jnp.asarray(tree.moves.astype(S.dtype))[body]
    linear = S[:, 3:] + spatial.cross(S[:, :3], (point - origin)[:, None, :])
    both = jnp.concatenate([jnp.broadcast_to(S[:, :3], linear.shape), linear], -1) * mask[..., None]
    return jnp.swapaxes(both, -1, -2)


# ---- configurations ------------------------------------------------------------------------------------------------


def integrate(tree: Tree, q: Array, v: Array, h) -> Array:
    """Move q (nq,) by the tangent vector h·v (nv,): rotations turn on the right, in the body frame."""
    if not len(tree.quat_joints):
        return q + h * v
    moved = q[tree.linear_qpos] + h * v[tree.linear_dof]
    turned = spatial.quat_integrate(q[tree.quat_qpos], h * v[tree.quat_dof])
    order = np.argsort(np.concatenate([tree.linear_qpos, tree.quat_qpos.ravel()]))
    return jnp.concatenate([moved, turned.ravel()])[order]


def difference(tree: Tree, q1: Array, q0: Array) -> Array:
    """Tangent vector (nv,) that `integrate` needs to go from q0 to q1."""
    if not len(tree.quat_joints):
        return q1 - q0
    moved = q1[tree.linear_qpos] - q0[tree.linear_qpos]
    a, b = spatial.quat_normalize(q1[tree.quat_qpos]), spatial.quat_normalize(q0[tree.quat_qpos])
    order = np.argsort(np.concatenate([tree.linear_dof, tree.quat_dof.ravel()]))
    return jnp.concatenate([moved, spatial.quat_sub(a, b).ravel()])[order]
