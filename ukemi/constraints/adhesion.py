"""Bodies that actuators press onto what they touch (MuJoCo, "body transmission")."""

import jax.numpy as jnp
from jax import Array

from ukemi.collide.detect import Contacts, attached
from ukemi.collide.near import reach_of_pairs
from ukemi.constraints.contacts import contact_jacobian
from ukemi.mechanics.kinematics import Kinematics
from ukemi.mechanics.transmissions import gripping
from ukemi.model.records import Model


def grips(model: Model, kin: Kinematics, contacts: Contacts, ahead: Array | None = None) -> Array | None:
    """Moments (n, nv) of the actuators that grip: less the mean normal row of their body's contacts, those within the
    gap included. None where no actuator does; ahead: as contacts were detected with.
    """
    body = model.actuators.layout.target[gripping(model.actuators.layout), 0]
    if not len(body):
        return None
    if not model.pairs.layout.groups:
        return jnp.zeros((len(body), model.nv), contacts.distance.dtype)
    margin, gap = reach_of_pairs(model)
    near = contacts.distance < (margin + gap)[contacts.pair]
    contacts = attached(model, kin, contacts._replace(active=near), ahead)  # what is not active has no derivative
    bodies = model.geoms.layout.body[model.pairs.layout.geoms]
    own = jnp.asarray((bodies == body[:, None, None]).any(-1))[:, contacts.pair] & near
    normals = jnp.where(near[:, None], contact_jacobian(model, kin, contacts, 1)[:, 0], 0.0)
    count = own.sum(1, keepdims=True)
    return -(own / jnp.maximum(count, 1)).astype(normals.dtype) @ normals
