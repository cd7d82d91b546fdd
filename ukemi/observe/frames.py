"""Where everything is, by name: frames of bodies, geoms and sites, and how points on them move with the joints."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ukemi import values
from ukemi.errors import InputError
from ukemi.implicit.worlds import of_one_world
from ukemi.laws.checks import check
from ukemi.maths import spatial
from ukemi.maths.gathers import pick_rows
from ukemi.mechanics.kinematics import Kinematics, geom_frames, of_state, point_jacobian, site_points
from ukemi.model.records import Input, Model, State, as_input
from ukemi.model.tree import BALL, FREE, HINGE, Tree
from ukemi.xla.entry import compiled


class Pose(NamedTuple):
    """One frame in the world."""

    pos: Array  # (3,) [m]
    mat: Array  # (3, 3) rotation, columns are the frame's axes
    quat: Array  # (4,) the same as a quaternion


class Poses(eqx.Module):
    """Frames of one kind in the world; `poses["tip"]` or `poses[3]` is one of them."""

    pos: Float[Array, "n 3"]  # [m]
    mat: Float[Array, "n 3 3"]  # rotations, columns are the frames' axes
    quat: Float[Array, "n 4"]  # the same as quaternions w x y z, of MuJoCo's sign
    kind: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    owners: tuple[int, ...] = eqx.field(static=True)  # body that each frame is fixed to

    def index(self, which: str | int) -> int:
        """Place of a frame given by name or by place."""
        if isinstance(which, str):
            if which in self.names:
                return self.names.index(which)
        elif values.is_count(which, 0) and which < len(self.names):
            return int(which)
        listing = values.shown(list(self.names)) if self.names else "there is none"
        raise InputError(f"No {self.kind} {values.shown(which)}; names: {listing}.")

    def __getitem__(self, which: str | int) -> Pose:
        k = self.index(which)
        return Pose(self.pos[..., k, :], self.mat[..., k, :, :], self.quat[..., k, :])


class Jacobian(NamedTuple):
    """How a point and its frame move with the joints, in world axes: velocities are these times v."""

    linear: Array  # (3, nv) of the point [m/s per unit of v]
    angular: Array  # (3, nv) of the frame


class Frames(eqx.Module):
    """Where everything is, in the world."""

    bodies: Poses  # their frames, as the file has them
    centers: Poses  # the bodies' centres of mass, with the axes of their inertia
    geoms: Poses
    sites: Poses
    com: Float[Array, " 3"]  # centre of mass of the whole model [m]
    kin: Kinematics  # what Jacobians are made from
    tree: Tree = eqx.field(static=True)

    def jacobian(self, *, body=None, center=None, geom=None, site=None, point=None) -> Jacobian:
        """The Jacobian of one frame, in closed form.

        Args:
            body: name or place of a body; or else
            center: of a body whose centre of mass is meant,
            geom: of a geom,
            site: of a site.
            point: a point (3,) in the world that moves with the frame's body, instead of the frame's origin [m].
        """
        given = {"bodies": body, "centers": center, "geoms": geom, "sites": site}
        chosen = [(kind, which) for kind, which in given.items() if which is not None]
        if len(chosen) != 1:
            raise InputError("jacobian needs one of body=, center=, geom= and site=.")
        poses: Poses = getattr(self, chosen[0][0])
        k = poses.index(chosen[0][1])
        point = poses.pos[k] if point is None else values.array("point", point, poses.pos.dtype)
        values.check_shape("point", point.shape, (3,), "jacobian")
        J = point_jacobian(self.tree, self.kin, np.array([poses.owners[k]]), point[None])[0]
        return Jacobian(J[3:], J[:3])


def frames(model: Model, state: State, ctrl=None) -> Frames:
    """Positions and rotations of all bodies, centres of mass, geoms and sites, by name or index, and Jacobians.

    Args:
        model: the robot.
        state: where it is.
        ctrl: `Input` where motion-capture bodies are not as in the file; controls change nothing.
    """
    check(model, state)
    return _frames(model, state, as_input(model, ctrl))


@compiled
def _frames(model: Model, state: State, inputs: Input) -> Frames:
    return of_one_world(lambda model, state, inputs: frames_at(model, state, inputs, of_state(model, state, inputs)))(
        model, state, inputs
    )


def frames_at(model: Model, state: State, inputs: Input, kin: Kinematics) -> Frames:
    """The frames where the kinematics are known."""
    tree, bodies, turns = model.tree, model.bodies, orientations(model, state.q, inputs.mocap_quat)

    def fixed(kind: str, names, owners, local: Array, pos: Array, mat: Array) -> Poses:
        quat = spatial.quat_mul(pick_rows(turns, owners), local)
        return Poses(pos, mat, quat, kind, names, tuple(owners.tolist()))

    every, sites = np.arange(tree.nb), model.sites
    axes = spatial.compose(kin.mat, spatial.quat_to_mat(bodies.iquat))
    owner = sites.layout.body
    tips = site_points(model, kin, np.arange(len(owner)))
    zones = spatial.compose(pick_rows(kin.mat, owner), spatial.quat_to_mat(sites.quat))
    total = bodies.mass.sum()
    com = (bodies.mass[:, None] * kin.com).sum(0) / jnp.where(total == 0, 1.0, total)
    return Frames(
        Poses(kin.pos, kin.mat, turns, "body", tree.body_names, tuple(range(tree.nb))),
        fixed("body", tree.body_names, every, bodies.iquat, kin.com, axes),
        fixed("geom", model.geoms.layout.names, model.geoms.layout.body, model.geoms.quat, *geom_frames(model, kin)),
        fixed("site", sites.layout.names, owner, sites.quat, tips, zones),
        com,
        kin,
        tree,
    )


def orientations(model: Model, q: Array, mocap_quat: Array | None) -> Array:
    """Quaternions (nb, 4) of the body frames as products of those of the joints, which keeps their sign as they move.

    The rotation matrices of the kinematics know no sign.
    """
    tree, identity = model.tree, np.array([1.0, 0.0, 0.0, 0.0], q.dtype)
    turn = jnp.asarray(model.bodies.quat, q.dtype)
    if mocap_quat is not None and model.nmocap:
        turn = jnp.where((tree.body_mocap >= 0)[:, None], mocap_quat[np.maximum(tree.body_mocap, 0)], turn)
    if tree.nj:
        kind = tree.joint_type
        starts = tree.joint_qpos + 3 * (kind == FREE)
        stored = q[np.minimum(starts[:, None] + np.arange(4), model.nq - 1)]
        hinge = np.where(kind == HINGE, tree.joint_qpos, 0)
        angle = jnp.where(kind == HINGE, q[hinge] - model.joints.qpos0[hinge], 0.0)
        moved = spatial.quat_exp(angle[:, None] * model.joints.axis)
        moved = jnp.where((kind == BALL)[:, None], spatial.quat_normalize(stored), moved)
        moved = jnp.where((kind == FREE)[:, None], identity, moved)
        first = np.maximum(tree.slots[:, 0], 0)
        floats = (tree.slots[:, 0] >= 0) & (kind[first] == FREE)
        turn = jnp.where(floats[:, None], stored[first], turn)
        moved = jnp.concatenate([moved, identity[None]])
        turn = spatial.quat_normalize(turn)
        for k in range(tree.slots.shape[1]):
            turn = spatial.quat_mul(turn, moved[tree.slots[:, k]])
    turn = spatial.quat_normalize(turn)
    for up in tree.jumps:
        turn = spatial.quat_mul(turn[up], turn)
    return spatial.quat_normalize(turn)
