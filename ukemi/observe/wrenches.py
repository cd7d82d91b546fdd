"""Torques and forces on bodies: what acts from outside, and by what each body is held by its parent."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.constraints.equalities import CONNECTS, WELDS, wrenches
from ukemi.constraints.rows import row_kinds
from ukemi.maths import spatial
from ukemi.maths.gathers import mix, pick_rows
from ukemi.mechanics.dynamics import body_inertias
from ukemi.mechanics.tendons.paths import string_pulls
from ukemi.observe.scene import Scene
from ukemi.observe.tension import tensions


def interaction(scene: Scene) -> Array:
    """Torque about the world's origin and force (nb, 6) by which each body is held by its parent."""
    model, V = scene.model, scene.velocity.body
    inertia = spatial.spatial_inertia(body_inertias(model, scene.kin))
    needed = spatial.apply(inertia, scene.body_acceleration) + spatial.cross_force(V, spatial.apply(inertia, V))
    arm = pick_rows(scene.kin.ref, model.tree.body_tree)
    needed = jnp.concatenate([needed[:, :3] + spatial.cross(arm, needed[:, 3:]), needed[:, 3:]], -1)
    missing = jnp.where((np.arange(model.tree.nb) > 0)[:, None], needed - _external(scene), 0.0)
    return mix(model.tree.within.T, missing)


def _external(scene: Scene) -> Array:
    """Torques about the world's origin and forces (nb, 6) that act on bodies from outside of their tree."""
    model, inputs, bodies = scene.model, scene.inputs, np.arange(scene.model.tree.nb)
    total = jnp.zeros((len(bodies), 6), scene.state.q.dtype)
    if inputs.xfrc is not None:
        total += _about_origin(scene.kin.com, inputs.xfrc[:, :3], inputs.xfrc[:, 3:])
    if row_kinds(model).contacts:
        contacts, force = scene.loads.contacts, scene.contact_force
        push, twist = (spatial.apply(contacts.frame.mT, part) for part in (force[:, :3], force[:, 3:]))
        each = _about_origin(contacts.point, push, twist)
        touched = jnp.asarray(model.geoms.layout.body[model.pairs.layout.geoms])[contacts.pair]
        side = (touched[..., None] == bodies).astype(each.dtype)
        total += (side[:, 1] - side[:, 0]).T @ each
    for kind in (CONNECTS, WELDS):
        for held in wrenches(model, scene.loads.kin, kind.name, scene.force_of(kind.name), scene.loads.together):
            total += mix(bodies[:, None] == held.body, _about_origin(held.point, held.force, held.torque))
    if not len(model.tendons.layout.spans):
        return total
    along = tensions(scene)
    for pull in string_pulls(model, scene.kin):
        force = along[pull.tendon][:, None] * pull.force.T
        total += mix(bodies[:, None] == pull.body, _about_origin(pull.point.T, force, jnp.zeros_like(force)))
    return total


def _about_origin(point: Array, force: Array, torque: Array) -> Array:
    """Torque about the world's origin, then force (n, 6), of forces and torques at points (n, 3)."""
    return jnp.concatenate([torque + spatial.cross(point, force), force], -1)
