"""Sensors that look at positions. Each function reads sensors of one type, `rows` (n,) of the file's: (n, dim)."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.constraints.block import RowKind
from ukemi.maths import spatial
from ukemi.mechanics.energy import potential_energy
from ukemi.observe.scene import Scene
from ukemi.observe.zones import inside

TINY = 1e-15  # MuJoCo's least mass in a division [kg]


def magnetometer(scene: Scene, rows: np.ndarray) -> Array:
    """The world's magnetic flux in the site's frame."""
    return spatial.apply(scene.objects(rows).mat.mT, scene.model.sensors.magnetic)


def joint_position(scene: Scene, rows: np.ndarray) -> Array:
    """Coordinate of a hinge or slide."""
    return scene.state.q[scene.model.tree.joint_qpos[scene.layout.index[rows]]][:, None]


def ball_quaternion(scene: Scene, rows: np.ndarray) -> Array:
    """Orientation of a ball joint."""
    start = scene.model.tree.joint_qpos[scene.layout.index[rows]]
    return spatial.quat_normalize(scene.state.q[start[:, None] + np.arange(4)])


def limit_position(kind: RowKind):
    """How far a joint or tendon is from where its limit awakes; zero where it sleeps."""
    return lambda scene, rows: scene.first_limit(kind, scene.layout.index[rows], lambda x: x.residual - x.margin)


def tendon_position(scene: Scene, rows: np.ndarray) -> Array:
    """Length of a tendon."""
    return scene.tendons.length[scene.layout.index[rows]][:, None]


def actuator_position(scene: Scene, rows: np.ndarray) -> list[Array]:
    """Length of an actuator's transmission."""
    return scene.of_outputs(rows, scene.actuation.length)


def frame_position(scene: Scene, rows: np.ndarray) -> Array:
    """Origin of a frame, seen from its reference."""
    at, (_, base) = scene.objects(rows), scene.references(rows)
    return spatial.apply(base.mat.mT, at.pos - base.pos)


def frame_quaternion(scene: Scene, rows: np.ndarray) -> Array:
    """Orientation of a frame, seen from its reference."""
    at, (_, base) = scene.objects(rows), scene.references(rows)
    return spatial.quat_mul(spatial.quat_conj(base.quat), at.quat)


def frame_axis(axis: int):
    """One axis of a frame, seen from its reference."""

    def read(scene: Scene, rows: np.ndarray) -> Array:
        at, (_, base) = scene.objects(rows), scene.references(rows)
        return spatial.apply(base.mat.mT, at.mat[:, :, axis])

    return read


def subtree_centers(scene: Scene) -> tuple[Array, Array]:
    """Masses (nb,) of all bodies with what hangs on them, and their centres of mass (nb, 3)."""
    within, mass = jnp.asarray(scene.model.tree.within.T, scene.state.q.dtype), scene.model.bodies.mass
    total = within @ mass
    light = total < TINY
    center = within @ (mass[:, None] * scene.kin.com) / jnp.where(light, 1.0, total)[:, None]
    return total, jnp.where(light[:, None], scene.kin.com, center)


def subtree_center(scene: Scene, rows: np.ndarray) -> Array:
    """Centre of mass of a body and what hangs on it."""
    return subtree_centers(scene)[1][scene.layout.index[rows]]


def inside_site(scene: Scene, rows: np.ndarray) -> list[Array]:
    """One where a frame's origin lies within the zone of a site, else zero."""
    at, (_, base), sites = scene.objects(rows), scene.references(rows), scene.model.sites
    total, centers = subtree_centers(scene)
    out = []
    for k, row in enumerate(rows):
        site, point, b = int(scene.layout.reference[row]), at.pos[k], int(at.body[k])
        if scene.layout.kind[row] == "body" and b:  # a massless body is where the masses are that hang on it
            hollow = (scene.model.bodies.mass[b] < TINY) & (total[b] >= TINY)
            point = jnp.where(hollow, centers[b], point)
        local = spatial.apply(base.mat[k].T, point - base.pos[k])
        out.append(inside(sites.layout.type[site], sites.size[site], local).astype(point.dtype)[None])
    return out


def energy_of_position(scene: Scene, rows: np.ndarray) -> Array:
    """Potential energy of gravity and joint springs."""
    one = potential_energy(scene.model, scene.kin, scene.state.q, scene.state.act)
    return jnp.broadcast_to(one, (len(rows), 1))


def clock(scene: Scene, rows: np.ndarray) -> Array:
    """The time."""
    return jnp.broadcast_to(scene.state.time, (len(rows), 1))
