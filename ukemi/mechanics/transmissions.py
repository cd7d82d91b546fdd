"""Transmissions: how long what an actuator pulls on is, and its moment arms."""

from functools import partial
from typing import cast

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial
from ukemi.maths.gathers import pick, pick_rows
from ukemi.mechanics.kinematics import Kinematics, point_jacobian, site_frames
from ukemi.mechanics.tendons.paths import Lengths, tendon_lengths
from ukemi.model.actuators import ActuatorLayout
from ukemi.model.records import Model
from ukemi.model.tree import BALL, FREE


def transmission(
    model: Model, kin: Kinematics, q: Array, grips: Array | None = None, lengths: Lengths | None = None
) -> tuple[Array, Array]:
    """Length (nout,) and moment (nout, nv) of every output of an actuator; grips: moments of those that grip, else
    nothing touches; lengths: of tendons, where known.
    """
    layout, tree = model.actuators.layout, model.tree
    kinds = np.array(layout.transmission)
    of_joint = at_joints(layout)
    target = np.maximum(turned_joint(layout), 0)
    joint_type = tree.joint_type[target] if tree.nj else np.zeros(layout.count, int)
    classes = [
        (_scalar_transmission, of_joint & (joint_type != FREE) & (joint_type != BALL)),
        (_ball_transmission, of_joint & (joint_type == BALL)),
        (_free_transmission, of_joint & (joint_type == FREE)),
        (partial(_tendon_transmission, lengths), at_tendons(layout)),
        (_site_transmission, (kinds == "site") & (layout.target[:, 1] < 0)),
        (_relative_transmission, (kinds == "site") & (layout.target[:, 1] >= 0)),
        (_crank_transmission, kinds == "slidercrank"),
    ]
    parts, order = [], []
    index = np.nonzero(gripping(layout))[0]
    if len(index):
        rows = jnp.zeros((len(index), model.nv), q.dtype) if grips is None else grips
        parts.append((jnp.zeros(len(index), q.dtype), rows))
        order.append(layout.output[index])
    for function, mask in classes:
        index = np.nonzero(mask)[0]
        if len(index):
            parts.append(function(model, kin, q, index))
            order.append(layout.output[index])
    for function, mask in ((_ball_orientation, layout.target[:, 1] < 0), (_site_orientation, layout.target[:, 1] >= 0)):
        index = np.nonzero((kinds == "so3") & mask)[0]
        if len(index):
            length, moment = function(model, kin, q, index)
            parts.append((length.reshape(-1), moment.reshape(-1, model.nv)))
            order.append((layout.output[index][:, None] + np.arange(3)).ravel())
    back = np.argsort(np.concatenate(order))
    length, moment = (jnp.concatenate(part) for part in zip(*parts, strict=True))
    return (length, moment) if (back == np.arange(len(back))).all() else (pick(length, back), pick_rows(moment, back))


def at_joints(layout: ActuatorLayout) -> np.ndarray:
    """Which actuators (nu,) act on a joint."""
    return np.isin(np.array(layout.transmission, str), ("joint", "jointinparent"))


def gripping(layout: ActuatorLayout) -> np.ndarray:
    """Which actuators (nu,) press a body onto what it touches."""
    return np.array(layout.transmission, str) == "body"


def at_tendons(layout: ActuatorLayout) -> np.ndarray:
    """Which actuators (nu,) act on a tendon."""
    return np.array(layout.transmission, str) == "tendon"


def pulled_tendon(layout: ActuatorLayout) -> np.ndarray:
    """The tendon (nu,) that each actuator acts on, −1 for those of something else."""
    return np.where(at_tendons(layout), layout.target[:, 0], -1)


def turned_joint(layout: ActuatorLayout) -> np.ndarray:
    """The joint (nu,) that each actuator acts on, −1 for those of something else."""
    return np.where(at_joints(layout), layout.target[:, 0], -1)


def acts_on_joints(model: Model, which: np.ndarray | None = None) -> bool:
    """Whether all actuators, or those of `which` (nu,), drive hinges or slides, whose moments are constant."""
    layout = model.actuators.layout
    which = np.ones(layout.count, bool) if which is None else which
    if not at_joints(layout)[which].all():
        return False
    return not which.any() or not np.isin(model.tree.joint_type[layout.target[which, 0]], (FREE, BALL)).any()


def on_joints(model: Model, moment: Array, slope: Array) -> Array:
    """momentᵀ diag(slope) moment (nv, nv); on hinges and slides, of which each is one dof, a diagonal."""
    if acts_on_joints(model):
        return jnp.diag((moment**2 * slope[:, None]).sum(0))
    return (moment.T * slope) @ moment


def _select(model: Model, index: np.ndarray, offset: int = 0) -> np.ndarray:
    """One-hot rows (n, nv) of the first dof of each actuator's joint, plus an offset."""
    dof = model.tree.joint_dof[model.actuators.layout.target[index, 0]] + offset
    return np.arange(model.nv) == dof[:, None]


def _scalar_transmission(model: Model, kin, q: Array, index: np.ndarray) -> tuple[Array, Array]:
    gear = model.actuators.gear[index, 0]
    adr = model.tree.joint_qpos[model.actuators.layout.target[index, 0]]
    return pick(q, adr) * gear, gear[:, None] * _select(model, index)


def _in_parent(model: Model, index: np.ndarray) -> np.ndarray:
    return np.array([model.actuators.layout.transmission[k] == "jointinparent" for k in index])[:, None]


def _ball_transmission(model: Model, kin, q: Array, index: np.ndarray) -> tuple[Array, Array]:
    adr = model.tree.joint_qpos[model.actuators.layout.target[index, 0]]
    quat = spatial.quat_normalize(q[adr[:, None] + np.arange(4)])
    gear = model.actuators.gear[index, :3]
    axis = jnp.where(_in_parent(model, index), spatial.rotate(spatial.quat_conj(quat), gear), gear)
    moment = cast(Array, sum(axis[:, k, None] * _select(model, index, k) for k in range(3)))
    return (spatial.quat_log(quat) * axis).sum(-1), moment


def _free_transmission(model: Model, kin, q: Array, index: np.ndarray) -> tuple[Array, Array]:
    adr = model.tree.joint_qpos[model.actuators.layout.target[index, 0]] + 3
    quat = spatial.quat_normalize(q[adr[:, None] + np.arange(4)])
    gear = model.actuators.gear[index]
    turn = jnp.where(_in_parent(model, index), spatial.rotate(spatial.quat_conj(quat), gear[:, 3:]), gear[:, 3:])
    axis = jnp.concatenate([gear[:, :3], turn], -1)
    moment = cast(Array, sum(axis[:, k, None] * _select(model, index, k) for k in range(6)))
    return jnp.zeros(len(index), q.dtype), moment  # a free joint has no meaningful length


def _site_transmission(model: Model, kin: Kinematics, q: Array, index: np.ndarray) -> tuple[Array, Array]:
    """Wrench fixed to a site, as of jets and propellers."""
    site = model.actuators.layout.target[index, 0]
    pos, quat = site_frames(model, kin)
    gear = model.actuators.gear[index]
    force, torque = spatial.rotate(quat[site], gear[:, :3]), spatial.rotate(quat[site], gear[:, 3:])
    J = point_jacobian(model.tree, kin, model.sites.layout.body[site], pos[site])
    return jnp.zeros(len(index), q.dtype), jnp.einsum("nkv,nk->nv", J, jnp.concatenate([torque, force], -1))


def _relative_transmission(model: Model, kin: Kinematics, q: Array, index: np.ndarray) -> tuple[Array, Array]:
    """Pose of a site in the frame of a reference site, projected on the gear."""
    site, base = model.actuators.layout.target[index].T
    pos, quat = site_frames(model, kin)
    body = model.sites.layout.body
    gear = model.actuators.gear[index]
    apart = spatial.rotate(spatial.quat_conj(quat[base]), pos[site] - pos[base])
    angle = spatial.quat_sub(quat[site], quat[base])
    wrench = jnp.concatenate([spatial.rotate(quat[base], gear[:, 3:]), spatial.rotate(quat[base], gear[:, :3])], -1)
    shared = (model.tree.moves[body[site]] & model.tree.moves[body[base]])[:, None]
    J = point_jacobian(model.tree, kin, body[site], pos[site]) - point_jacobian(model.tree, kin, body[base], pos[base])
    moment = jnp.einsum("nkv,nk->nv", jnp.where(shared, 0.0, J), wrench)
    return (apart * gear[:, :3]).sum(-1) + (angle * gear[:, 3:]).sum(-1), moment


def _ball_orientation(model: Model, kin, q: Array, index: np.ndarray) -> tuple[Array, Array]:
    """Rotation vectors (n, 3) of ball joints, and their turning (n, 3, nv) in axes that turn with them."""
    tree, joint = model.tree, model.actuators.layout.target[index, 0]
    quat = spatial.quat_normalize(q[tree.joint_qpos[joint][:, None] + np.arange(4)])
    dof = tree.joint_dof[joint][:, None] + np.arange(3)
    return spatial.quat_log(quat), jnp.asarray(np.arange(model.nv) == dof[..., None], q.dtype)


def _site_orientation(model: Model, kin: Kinematics, q: Array, index: np.ndarray) -> tuple[Array, Array]:
    """The same of sites seen from reference sites, in the axes of the former."""
    site, base = model.actuators.layout.target[index].T
    _, quat = site_frames(model, kin)
    moves = model.tree.moves[model.sites.layout.body]
    alone = moves[site].astype(int) - moves[base]  # what moves both turns nothing
    turning = kin.S[:, :3] * alone[:, :, None]
    return spatial.quat_sub(quat[site], quat[base]), _seen(quat[site], turning)


def _seen(quat: Array, vectors: Array) -> Array:
    """Vectors (n, k, 3) in the axes of unit quaternions (n, 4), as columns (n, 3, k)."""
    return jnp.swapaxes(spatial.rotate(spatial.quat_conj(quat)[:, None], vectors), 1, 2)


def _crank_transmission(model: Model, kin: Kinematics, q: Array, index: np.ndarray) -> tuple[Array, Array]:
    """Where along its axis a slider is that a rod holds at a crank: l = a·d − √((a·d)² + r² − d·d), and a·d where the
    rod does not reach.
    """
    crank, slider = model.actuators.layout.target[index].T
    pos, quat = site_frames(model, kin)
    body, rod, gear = model.sites.layout.body, model.actuators.crank_length[index], model.actuators.gear[index, :1]
    axis, apart = spatial.rotate(quat[slider], jnp.array([0.0, 0.0, 1.0], q.dtype)), pos[crank] - pos[slider]
    along = (axis * apart).sum(-1)
    square = along**2 + rod**2 - (apart * apart).sum(-1)
    reached = ~(square <= 0)  # NaN stays
    root = jnp.sqrt(jnp.where(reached, square, 1.0))
    length = jnp.where(reached, along - root, along)
    lean, per_apart = jnp.where(reached, 1 - along / root, 1.0), jnp.where(reached, 1 / root, 0.0)
    force = axis * lean[:, None] + apart * per_apart[:, None]  # ∂l/∂d; and ∂l/∂a = d lean turns with the slider
    torque = spatial.cross(axis, apart * lean[:, None])
    at_crank = point_jacobian(model.tree, kin, body[crank], pos[crank])
    at_slider = point_jacobian(model.tree, kin, body[slider], pos[slider])
    moment = jnp.einsum("nkv,nk->nv", at_crank[:, 3:] - at_slider[:, 3:], force)
    moment = moment + jnp.einsum("nkv,nk->nv", at_slider[:, :3], torque)
    return length * gear[:, 0], moment * gear


def _tendon_transmission(lengths: Lengths | None, model: Model, kin, q: Array, index: np.ndarray):
    tendon, gear = model.actuators.layout.target[index, 0], model.actuators.gear[index, 0]
    length, moment = lengths or tendon_lengths(model, kin, q)
    if np.array_equal(tendon, np.arange(len(length))):
        return length * gear, moment * gear[:, None]
    return length[tendon] * gear, moment[tendon] * gear[:, None]
