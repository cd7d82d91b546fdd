"""Sensors that look at accelerations and forces. Each function reads sensors of one type, `rows` (n,): (n, dim)."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.constraints.block import RowKind
from ukemi.maths import spatial
from ukemi.maths.gathers import pick_rows
from ukemi.mechanics.transmissions import pulled_tendon
from ukemi.observe.scene import Scene
from ukemi.observe.wrenches import interaction


def accelerometer(scene: Scene, rows: np.ndarray) -> Array:
    """Linear acceleration of a site less gravity, in its frame."""
    at = scene.objects(rows)
    return spatial.apply(at.mat.mT, scene.felt(at)[1])


def frame_linear(scene: Scene, rows: np.ndarray) -> Array:
    """Linear acceleration of a frame's origin less gravity, in world axes."""
    return scene.felt(scene.objects(rows))[1]


def frame_angular(scene: Scene, rows: np.ndarray) -> Array:
    """Angular acceleration of a frame, in world axes."""
    return scene.felt(scene.objects(rows))[0]


def force(scene: Scene, rows: np.ndarray) -> Array:
    """Force by which a site's body is held by its parent, in the site's frame."""
    at = scene.objects(rows)
    return spatial.apply(at.mat.mT, pick_rows(interaction(scene), at.body)[:, 3:])


def torque(scene: Scene, rows: np.ndarray) -> Array:
    """Torque about a site by which its body is held by its parent, in the site's frame."""
    at = scene.objects(rows)
    held = pick_rows(interaction(scene), at.body)
    return spatial.apply(at.mat.mT, held[:, :3] - spatial.cross(at.pos, held[:, 3:]))


def actuator_force(scene: Scene, rows: np.ndarray) -> list[Array]:
    """Force of an actuator."""
    return scene.of_outputs(rows, scene.actuation.force)


def joint_actuator_force(scene: Scene, rows: np.ndarray) -> Array:
    """Force of all actuators on a hinge or slide."""
    return scene.actuation.qfrc[scene.model.tree.joint_dof[scene.layout.index[rows]]][:, None]


def limit_force(kind: RowKind):
    """Force of a joint's or tendon's limit; zero where that sleeps."""
    return lambda scene, rows: scene.first_limit(kind, scene.layout.index[rows], lambda _: scene.force_of(kind.name))


def tendon_actuator_force(scene: Scene, rows: np.ndarray) -> Array:
    """Force of all actuators on a tendon."""
    layout = scene.model.actuators.layout
    own = pulled_tendon(layout) == scene.layout.index[rows][:, None]
    return jnp.where(own, scene.actuation.force[layout.output], 0.0).sum(1, keepdims=True)
