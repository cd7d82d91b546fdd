"""What pulls at contacts: shapes that adhere, and actuators that press bodies onto what they touch (MuJoCo, "body
transmission").

Contacts that adhere push as if they were pressed together by a force, and that force pulls on both bodies besides. So
they pull by up to that much before they let go, and friction is bounded by what they push by.
"""

import dataclasses

import jax.numpy as jnp
from jax import Array

from ukemi.collide.detect import Contacts, attached
from ukemi.collide.near import adhesion_of_pairs, reach_of_pairs
from ukemi.constraints.contacts import contact_jacobian, contact_lever
from ukemi.mechanics.kinematics import Kinematics
from ukemi.mechanics.transmissions import gripping
from ukemi.model.records import Model

HAIR = 1e-4  # distance at which hard contacts adhere, too [m]: they may end a step that far apart


def with_hair(model: Model) -> Model:
    """A model for laws that let nothing overlap: what adheres does so from a hair's breadth farther."""
    if not model.pairs.layout.adheres:
        return model
    geoms = dataclasses.replace(model.geoms, gap=model.geoms.gap + HAIR / 2)
    pairs = dataclasses.replace(model.pairs, gap=model.pairs.gap + HAIR)
    return dataclasses.replace(model, geoms=geoms, pairs=pairs)


def adhesion_at(model: Model, contacts: Contacts) -> Array:
    """Force (n,) by which contacts pull, those within their gap included [N]."""
    if not model.pairs.layout.adheres:
        return jnp.zeros_like(contacts.distance)
    acting = contacts.active & _near(model, contacts)
    return jnp.where(acting, adhesion_of_pairs(model, contacts.pair), 0.0)


def pull_of_contacts(model: Model, kin: Kinematics, contacts: Contacts, ahead: Array | None = None) -> Array:
    """Force (nv,) of contacts that adhere; ahead: as contacts were detected with."""
    contacts = _followed(model, kin, contacts, ahead)
    return contact_lever(model, kin, contacts, 1).pull(-adhesion_at(model, contacts)[:, None])


def _near(model: Model, contacts: Contacts) -> Array:
    """Which contacts (n,) are within margin and gap, of which nothing need press."""
    margin, gap = reach_of_pairs(model, contacts.pair)
    return ~(contacts.distance >= margin + gap)


def _followed(model: Model, kin: Kinematics, contacts: Contacts, ahead: Array | None) -> Contacts:
    """These as functions of poses: what is not active has no derivative."""
    return attached(model, kin, contacts._replace(active=_near(model, contacts)), ahead)


def grips(model: Model, kin: Kinematics, contacts: Contacts, ahead: Array | None = None) -> Array | None:
    """Moments (n, nv) of the actuators that grip: less the mean normal row of their body's contacts, those within the
    gap included. None where no actuator does; ahead: as contacts were detected with.
    """
    body = model.actuators.layout.target[gripping(model.actuators.layout), 0]
    if not len(body):
        return None
    if not model.pairs.layout.groups:
        return jnp.zeros((len(body), model.nv), contacts.distance.dtype)
    near, contacts = _near(model, contacts), _followed(model, kin, contacts, ahead)
    bodies = model.geoms.layout.body[model.pairs.layout.geoms]
    own = jnp.asarray((bodies == body[:, None, None]).any(-1))[:, contacts.pair] & near
    normals = jnp.where(near[:, None], contact_jacobian(model, kin, contacts, 1)[:, 0], 0.0)
    count = own.sum(1, keepdims=True)
    return -(own / jnp.maximum(count, 1)).astype(normals.dtype) @ normals
