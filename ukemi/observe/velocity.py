"""Sensors that look at velocities. Each function reads sensors of one type, `rows` (n,) of the file's: (n, dim)."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.constraints.block import RowKind
from ukemi.maths import spatial
from ukemi.maths.gathers import mix, pick_rows
from ukemi.mechanics.dynamics import body_inertias, smooth
from ukemi.observe.position import TINY, subtree_centers
from ukemi.observe.scene import Scene


def velocimeter(scene: Scene, rows: np.ndarray) -> Array:
    """Linear velocity of a site, in its frame."""
    at = scene.objects(rows)
    return spatial.apply(at.mat.mT, scene.motion(at)[1])


def gyro(scene: Scene, rows: np.ndarray) -> Array:
    """Angular velocity of a site, in its frame."""
    at = scene.objects(rows)
    return spatial.apply(at.mat.mT, scene.motion(at)[0])


def joint_velocity(scene: Scene, rows: np.ndarray) -> Array:
    """Rate of a hinge or slide."""
    return scene.state.v[scene.model.tree.joint_dof[scene.layout.index[rows]]][:, None]


def ball_velocity(scene: Scene, rows: np.ndarray) -> Array:
    """Angular velocity of a ball joint, in the body's frame."""
    return scene.state.v[scene.model.tree.joint_dof[scene.layout.index[rows]][:, None] + np.arange(3)]


def limit_velocity(kind: RowKind):
    """How fast a joint or tendon leaves its limit; zero where that sleeps."""
    return lambda scene, rows: scene.first_limit(kind, scene.layout.index[rows], lambda x: x.J @ scene.state.v)


def tendon_velocity(scene: Scene, rows: np.ndarray) -> Array:
    """Rate of a tendon's length."""
    return (scene.tendons.moment @ scene.state.v)[scene.layout.index[rows]][:, None]


def actuator_velocity(scene: Scene, rows: np.ndarray) -> list[Array]:
    """Rate of the length of an actuator's transmission."""
    return scene.of_outputs(rows, scene.actuation.velocity)


def frame_linear(scene: Scene, rows: np.ndarray) -> Array:
    """Linear velocity of a frame's origin, as seen by one who rides on its reference."""
    at, (_, base) = scene.objects(rows), scene.references(rows)
    (_, linear), (turn, carried) = scene.motion(at), scene.motion(base)
    return spatial.apply(base.mat.mT, linear - carried - spatial.cross(turn, at.pos - base.pos))


def frame_angular(scene: Scene, rows: np.ndarray) -> Array:
    """Angular velocity of a frame, as seen from its reference."""
    at, (_, base) = scene.objects(rows), scene.references(rows)
    return spatial.apply(base.mat.mT, scene.motion(at)[0] - scene.motion(base)[0])


def _momenta(scene: Scene) -> tuple[Array, Array]:
    """Linear and angular momentum (nb, 3), about the world's origin, of all bodies with what hangs on them."""
    tree, inertia = scene.model.tree, spatial.spatial_inertia(body_inertias(scene.model, scene.kin))
    each = spatial.apply(inertia, scene.velocity.body)
    turning = each[:, :3] + spatial.cross(pick_rows(scene.kin.ref, tree.body_tree), each[:, 3:])
    both = mix(tree.within.T, jnp.concatenate([each[:, 3:], turning], -1))
    return both[:, :3], both[:, 3:]


def subtree_linear(scene: Scene, rows: np.ndarray) -> Array:
    """Velocity of the centre of mass of a body and what hangs on it."""
    mass = jnp.maximum(subtree_centers(scene)[0], TINY)
    return (_momenta(scene)[0] / mass[:, None])[scene.layout.index[rows]]


def subtree_angular(scene: Scene, rows: np.ndarray) -> Array:
    """Angular momentum of a body and what hangs on it about their centre of mass."""
    (linear, angular), center = _momenta(scene), subtree_centers(scene)[1]
    return (angular - spatial.cross(center, linear))[scene.layout.index[rows]]


def energy_of_motion(scene: Scene, rows: np.ndarray) -> Array:
    """Kinetic energy."""
    v = scene.state.v
    return jnp.broadcast_to(0.5 * v @ smooth(scene.model, scene.kin, v).M @ v, (len(rows), 1))
