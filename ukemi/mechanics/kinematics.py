"""Where everything is: poses of bodies, geoms and sites, motion subspaces, velocities, point Jacobians.

Passes over the tree are products with constant 0/1 matrices and ⌈log₂ depth⌉ rounds of pointer jumping; nothing
loops over bodies.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.implicit.rule import add_tangents, apart, is_zero, isolated, keep, pushforward
from ukemi.maths import spatial
from ukemi.maths.gathers import mix, pick, pick_rows
from ukemi.model.records import Input, Model, State
from ukemi.model.tree import BALL, FREE, HINGE, SLIDE, Tree
from ukemi.xla.stages import compact


class Kinematics(NamedTuple):
    """Poses in the world and the motion subspace of every degree of freedom."""

    X: Array  # (nb, 4, 4) homogeneous matrices X_WB of the body frames
    com: Array  # (nb, 3) centres of mass of the bodies [m]
    ref: Array  # (ntree, 3) reference point of each kinematic tree: its centre of mass [m]
    S: Array  # (nv, 6) motion subspace [angular; linear] about the tree's reference point

    @property
    def pos(self) -> Array:
        """(nb, 3) positions of the body frames [m]."""
        return self.X[:, :3, 3]

    @property
    def mat(self) -> Array:
        """(nb, 3, 3) rotations of the body frames."""
        return self.X[:, :3, :3]

    @property
    def quat(self) -> Array:
        """(nb, 4) orientations of the body frames, up to sign."""
        return spatial.mat_to_quat(self.mat)


def kinematics(model: Model, q: Array, mocap_pos: Array | None = None, mocap_quat: Array | None = None) -> Kinematics:
    """Poses of all bodies and the motion subspace at q (nq,)."""
    return _kinematics((model, mocap_pos, mocap_quat), q)


def _evaluate(fixed: tuple[Model, Array | None, Array | None], q: Array) -> Kinematics:
    model, mocap_pos, mocap_quat = fixed
    after = relative_poses(model, q, mocap_pos, mocap_quat)
    X = after[-1]
    for up in model.tree.jumps:
        X = spatial.materialize(spatial.compose(X[up], X))
    com = X[:, :3, 3] + spatial.apply(X[:, :3, :3], model.bodies.ipos)
    ref = _tree_centers(model, com)
    return spatial.materialize(Kinematics(X, com, ref, _motion_subspace(model, X, ref, after[1:])))


@jax.custom_jvp
def _kinematics(fixed, q):
    return compact(_evaluate)(fixed, q)


def _differentiate_kinematics(primals, tangents):
    """Along q in closed form (`carry`); along model and mocap poses by AD."""
    (fixed, q), (along_fixed, dq) = primals, tangents
    kin = keep(_kinematics(fixed, q))
    held, there = apart((fixed, q))
    tangent = pushforward(lambda fixed: _evaluate(fixed, there), held, along_fixed)
    if not is_zero(dq):
        tangent = add_tangents(tangent, carry(fixed[0], kin, tangent_vector(fixed[0].tree, q, dq)))
    return kin, tangent


_kinematics.defjvp(_differentiate_kinematics, symbolic_zeros=True)


def carry(model: Model, kin: Kinematics, shift: Array) -> Kinematics:
    """Derivative of the kinematics along the tangent vector `shift` (nv,): each body moves by its twist.

    With V = anc (S δ) about the reference point, δX_b = [V_b×] X_b and δS_j = V_j × S_j (tree algebra,
    docs/architecture.md).
    """
    tree = model.tree
    after = mix(tree.anc, kin.S * shift[:, None])
    twist = _at(after, tree.body_dof)
    turn, ref = twist[:, :3], pick_rows(kin.ref, tree.body_tree)

    def moved(point):
        return twist[:, 3:] + spatial.cross(turn, point - ref)

    mat, com = spatial.compose(spatial.skew(turn), kin.mat), moved(kin.com)
    X = jnp.concatenate([jnp.concatenate([mat, moved(kin.pos)[..., None]], -1), jnp.zeros_like(kin.X[:, 3:])], 1)
    dref = _tree_centers(model, com)
    # the reference point moves, too: linear parts are those of the point that is there now
    S = spatial.cross_motion(after, kin.S)
    arm = pick_rows(dref, tree.body_tree[tree.dof_body])
    shifted = spatial.cross(kin.S[:, :3], arm)
    return Kinematics(X, com, dref, S + jnp.concatenate([jnp.zeros_like(shifted), shifted], -1))


def of_state(model: Model, state: State, inputs: Input) -> Kinematics:
    """Kinematics of a state under the motion-capture poses of `inputs`."""
    return kinematics(model, state.q, inputs.mocap_pos, inputs.mocap_quat)


def relative_poses(model: Model, q: Array, mocap_pos: Array | None, mocap_quat: Array | None) -> list[Array]:
    """Poses (nb, 4, 4) of all bodies in their parents' frames, before their joints move and after each of these."""
    tree, X = model.tree, [_base_poses(model, q, mocap_pos, mocap_quat)]
    if tree.nj:
        eye = np.eye(4, dtype=q.dtype)[None]
        moves = jnp.concatenate([_joint_poses(model, q), eye])
        for k in range(tree.slots.shape[1]):  # the joints of each body in order, all bodies at once
            X.append(spatial.materialize(spatial.compose(X[-1], moves[tree.slots[:, k]])))
    return X


def _joint_poses(model: Model, q: Array) -> Array:
    """Pose (nj, 4, 4) of the body frame after each joint in the frame before it; free joints act on the base."""
    tree, axis, anchor = model.tree, model.joints.axis, model.joints.pos
    scalar = (tree.joint_type == HINGE) | (tree.joint_type == SLIDE)
    adr = np.where(scalar, tree.joint_qpos, 0)
    d = jnp.where(scalar, q[adr] - model.joints.qpos0[adr], 0.0)
    angle = jnp.where(tree.joint_type == HINGE, d, 0.0)[:, None, None]
    # Rodrigues: R − 1 = sin θ [a×] + (1 − cos θ) [a×]², with [a×]² = a aᵀ − 1
    square = axis[:, :, None] * axis[:, None, :] - np.eye(3, dtype=q.dtype)
    turn = jnp.sin(angle) * spatial.skew(axis) + 2 * jnp.sin(angle / 2) ** 2 * square
    if (tree.joint_type == BALL).any():
        adr = np.where(tree.joint_type == BALL, tree.joint_qpos, 0)[:, None] + np.arange(4)
        ball = spatial.quat_to_mat(spatial.quat_normalize(q[np.minimum(adr, model.nq - 1)]))
        turn = jnp.where((tree.joint_type == BALL)[:, None, None], ball - np.eye(3), turn)
    shift = jnp.where(tree.joint_type == SLIDE, d, 0.0)[:, None] * axis
    return spatial.pose(turn + np.eye(3, dtype=q.dtype), shift - spatial.apply(turn, anchor))


def _base_poses(model: Model, q: Array, mocap_pos: Array | None, mocap_quat: Array | None) -> Array:
    """Pose (nb, 4, 4) of each body in its parent's frame before its hinges, slides and balls move."""
    tree = model.tree
    p, r = model.bodies.pos.astype(q.dtype), model.bodies.quat.astype(q.dtype)
    first = np.maximum(tree.slots[:, 0], 0)
    free = (tree.slots[:, 0] >= 0) & (tree.joint_type[first] == FREE) if tree.nj else np.zeros(tree.nb, bool)
    if free.any():
        adr = np.where(free, tree.joint_qpos[first], 0)[:, None]
        moved = q[np.minimum(adr + np.arange(7), model.nq - 1)]
        p = jnp.where(free[:, None], moved[:, :3], p)
        r = jnp.where(free[:, None], spatial.quat_normalize(moved[:, 3:]), r)
    mocap, k = tree.body_mocap >= 0, np.maximum(tree.body_mocap, 0)
    if mocap_pos is not None and mocap.any():
        p = jnp.where(mocap[:, None], mocap_pos[k], p)
    if mocap_quat is not None and mocap.any():
        r = jnp.where(mocap[:, None], spatial.quat_normalize(mocap_quat[k]), r)
    return spatial.pose(spatial.quat_to_mat(r), p)


def _tree_centers(model: Model, com: Array) -> Array:
    """Centre of mass of each kinematic tree (ntree, 3); a massless tree has its reference at the origin."""
    tree = model.tree
    weight = tree.members.astype(com.dtype) * model.bodies.mass
    total = weight.sum(1, keepdims=True)
    return ((weight / jnp.where(total == 0, 1.0, total))[..., None] * com).sum(1)


def _local_screws(model: Model) -> tuple[Array, Array]:
    """Each dof's motion in the frame that its joint moves: angular part, and velocity of that frame's origin."""
    tree = model.tree
    kind, joint = tree.joint_type[tree.dof_joint], tree.dof_joint
    unit = np.eye(3, dtype=model.joints.axis.dtype)[tree.dof_axis % 3]
    axis = jnp.where(((kind == HINGE) | (kind == SLIDE))[:, None], model.joints.axis[joint], unit)
    slides = (kind == SLIDE) | ((kind == FREE) & (tree.dof_axis < 3))
    anchor = jnp.where((kind == FREE)[:, None], 0.0, model.joints.pos[joint])
    return jnp.where(slides[:, None], 0.0, axis), jnp.where(slides[:, None], axis, spatial.cross(anchor, axis))


def _motion_subspace(model: Model, X: Array, ref: Array, after: list[Array]) -> Array:
    """Columns of the motion subspace, one row per dof, in world axes about the tree's reference point."""
    tree = model.tree
    if not tree.nv:
        return jnp.zeros((0, 6), X.dtype)
    body = tree.dof_body
    slot = np.array([np.nonzero(tree.slots[b] == j)[0][0] for b, j in zip(body, tree.dof_joint, strict=True)])
    last = slot == (tree.slots >= 0).sum(1)[body] - 1
    frame = X[body]
    if not last.all():  # joints that another joint of the same body follows
        before = jnp.stack(after)[slot, body]
        frame = jnp.where(last[:, None, None], frame, spatial.compose(X[tree.body_parent[body]], before))
    angular, linear = _local_screws(model)
    fixed = (tree.joint_type[tree.dof_joint] == FREE) & (tree.dof_axis < 3)  # translates along world axes
    R = jnp.where(fixed[:, None, None], np.eye(3, dtype=X.dtype), frame[:, :3, :3])
    turn, arm = spatial.materialize((spatial.apply(R, angular), ref[tree.body_tree[body]] - frame[:, :3, 3]))
    return jnp.concatenate([turn, spatial.apply(R, linear) + spatial.cross(turn, arm)], -1)


# ---- frames fixed to bodies ---------------------------------------------------------------------------------


def geom_frames(model: Model, kin: Kinematics) -> tuple[Array, Array]:
    """World positions (ng, 3) and rotations (ng, 3, 3) of the geoms."""
    X = spatial.materialize(geom_poses(model, kin))
    return X[:, :3, 3], X[:, :3, :3]


def geom_poses(model: Model, kin: Kinematics, geoms: np.ndarray | slice = slice(None)) -> Array:
    """Poses (n, 4, 4) of some of the geoms."""
    local = spatial.materialize(spatial.pose(spatial.quat_to_mat(model.geoms.quat[geoms]), model.geoms.pos[geoms]))
    return spatial.compose(pick_rows(kin.X, model.geoms.layout.body[geoms]), local)


def frames(kin: Kinematics, body: np.ndarray, pos: Array, quat: Array) -> tuple[Array, Array]:
    """World positions (n, 3) and quaternions (n, 4) of frames fixed to bodies."""
    p, r = pick_rows(kin.pos, body), pick_rows(kin.quat, body)
    return p + spatial.rotate(r, pos), spatial.quat_mul(r, quat)


def site_frames(model: Model, kin: Kinematics) -> tuple[Array, Array]:
    """World positions (ns, 3) and quaternions (ns, 4) of the sites."""
    return frames(kin, model.sites.layout.body, model.sites.pos, model.sites.quat)


def site_points(model: Model, kin: Kinematics, sites: np.ndarray) -> Array:
    """World positions (n, 3) of some of the sites."""
    body = model.sites.layout.body[sites]
    return pick_rows(kin.pos, body) + spatial.apply(pick_rows(kin.mat, body), model.sites.pos[sites])


# ---- velocities -------------------------------------------------------------------------------------------------


class Velocities(NamedTuple):
    """Joint velocities, and the spatial ones about each tree's reference point that they amount to."""

    v: Array  # (nv,)
    before: Array  # (nv, 6) of the frame that each dof's joint is attached to: V_λ
    S_dot: Array  # (nv, 6) rate of the motion subspace: V_j × S
    body: Array  # (nb, 6)


def velocities(tree: Tree, S: Array, v: Array) -> Velocities:
    """Velocities of joints and bodies for joint velocities v (nv,)."""
    after = spatial.materialize(mix(tree.anc, S * v[:, None]))  # V_j of every dof's joint
    before = _at(after, tree.dof_above)
    return Velocities(v, *spatial.materialize((before, spatial.cross_motion(after, S), _at(after, tree.body_dof))))


def accumulate(tree: Tree, rates: Array) -> Array:
    """Sum (nb, 6) over the dofs that move each body of their contributions (nv, 6)."""
    return _at(mix(tree.anc, rates), tree.body_dof)


def accumulate_before(tree: Tree, rates: Array) -> Array:
    """Sum (nv, 6) over the dofs above each dof's own block of their contributions (nv, 6)."""
    return _at(mix(tree.anc, rates), tree.dof_above)


def _at(values: Array, dof: np.ndarray) -> Array:
    """Rows of the given dofs, zero where there is none (-1)."""
    if not len(values):
        return jnp.zeros((len(dof), 6), values.dtype)
    return jnp.where((dof >= 0)[:, None], pick_rows(values, np.maximum(dof, 0)), 0.0)


# ---- point Jacobians --------------------------------------------------------------------------------------------


def shared_reference(tree: Tree, kin: Kinematics) -> tuple[Array, Array]:
    """One reference point (3,) for rows that join several trees, and the motion subspace (nv, 6) about it."""
    origin = kin.ref[0]
    if tree.ntree == 1:
        return origin, kin.S
    arm = origin - pick_rows(kin.ref, tree.body_tree[tree.dof_body])
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
    return isolated(partial(_integrate, tree))(q, v, jnp.asarray(h, v.dtype))


def _integrate(tree: Tree, q: Array, v: Array, h: Array) -> Array:
    moved = pick(q, tree.linear_qpos) + h * pick(v, tree.linear_dof)
    turned = spatial.quat_integrate(pick(q, tree.quat_qpos), h * pick(v, tree.quat_dof))
    order = np.argsort(np.concatenate([tree.linear_qpos, tree.quat_qpos.ravel()]))
    return pick(jnp.concatenate([moved, turned.ravel()]), order)


def tangent_vector(tree: Tree, q: Array, dq: Array) -> Array:
    """Tangent vector (nv,) of a rate dq (nq,) of the coordinates; rotations turn on the right."""
    if not len(tree.quat_joints):
        return dq
    quat = pick(q, tree.quat_qpos)
    square = (quat * quat).sum(-1, keepdims=True)
    zero = square == 0
    turn = 2 * spatial.quat_mul(spatial.quat_conj(quat), pick(dq, tree.quat_qpos))[:, 1:]
    turn = jnp.where(zero, 0.0, turn / jnp.where(zero, 1.0, square))
    order = np.argsort(np.concatenate([tree.linear_dof, tree.quat_dof.ravel()]))
    return pick(jnp.concatenate([pick(dq, tree.linear_qpos), turn.ravel()]), order)


def coordinate_rate(tree: Tree, q: Array, v: Array) -> Array:
    """q̇ (nq,): velocities, and ½ q ∘ ω for quaternions."""
    if not len(tree.quat_joints):
        return v
    w = pick(v, tree.quat_dof)
    turn = spatial.quat_mul(pick(q, tree.quat_qpos), jnp.concatenate([jnp.zeros_like(w[:, :1]), w], -1)) / 2
    order = np.argsort(np.concatenate([tree.linear_qpos, tree.quat_qpos.ravel()]))
    return pick(jnp.concatenate([pick(v, tree.linear_dof), turn.ravel()]), order)


def difference(tree: Tree, q1: Array, q0: Array, *, turned: bool = True) -> Array:
    """Tangent vector (nv,) that `integrate` needs to go from q0 to q1; zero for rotations if not `turned`."""
    if not len(tree.quat_joints):
        return q1 - q0
    moved = pick(q1, tree.linear_qpos) - pick(q0, tree.linear_qpos)
    turn = jnp.zeros(tree.quat_dof.size, moved.dtype)
    if turned:
        a, b = (spatial.quat_normalize(pick(x, tree.quat_qpos)) for x in (q1, q0))
        turn = spatial.quat_sub(a, b).ravel()
    order = np.argsort(np.concatenate([tree.linear_dof, tree.quat_dof.ravel()]))
    return pick(jnp.concatenate([moved, turn]), order)
