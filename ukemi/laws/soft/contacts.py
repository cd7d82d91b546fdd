"""How soft contacts are: reference accelerations and regularisers of their rows, as MuJoCo has them."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.collide.detect import Contacts
from ukemi.constraints.adhesion import adhesion_at
from ukemi.constraints.contacts import ContactParameters, contact_parameters
from ukemi.constraints.rows import RowKinds
from ukemi.constraints.softness import (
    TINY,
    Softness,
    deflection_ahead,
    impedance,
    impedance_ahead,
    stiffness_damping,
)
from ukemi.maths import spatial
from ukemi.model.records import Model


class ContactLaw(NamedTuple):
    """Reference acceleration of n contacts and their part of the penalty."""

    aref: Array  # (n, dim)
    D_edge: Array  # (n,)
    D_frame: Array  # (n, dim)
    friction: Array  # (n, dim - 1)
    mu: Array  # (n,)


def contact_law(model: Model, contacts: Contacts, kinds: RowKinds, velocity: Array) -> ContactLaw:
    """Softness of contacts whose rows move at `velocity` (n, dim), the running of their surfaces included."""
    prm = contact_parameters(model, contacts.pair)
    soft = contact_softness(model, prm, kinds, contacts.distance, pressed(model, prm, kinds, contacts))
    return law_of_softness(model, prm, contacts, kinds, velocity, soft)


def law_of_softness(
    model: Model, prm: ContactParameters, contacts: Contacts, kinds: RowKinds, velocity: Array, soft: Softness
) -> ContactLaw:
    """The same, of contacts whose parameters and softness are known."""
    dim = kinds.dim
    own = np.arange(1, dim) < model.pairs.layout.condim[:, None]  # directions that the pair's own dimension has
    friction = jnp.where(jnp.asarray(own)[contacts.pair], prm.friction[:, : dim - 1], 0.0)
    smooth = _is_smooth(model, prm, contacts)
    if model.pairs.layout.adheres:  # pulled from afar, but not rubbed
        friction = jnp.where(smooth[:, None], 0.0, friction)
    aref = -soft.damping * velocity - jnp.where(np.arange(dim) == 0, soft.push[:, None], 0.0)
    return ContactLaw(aref, *_contact_penalty(model, contacts, kinds, soft.R, prm.friction[:, 0], friction, smooth))


def _is_smooth(model: Model, prm: ContactParameters, contacts: Contacts) -> Array:
    """Contacts (n,) without friction: those of dimension 1, and those that pull from beyond their margin."""
    smooth = jnp.asarray(model.pairs.layout.condim == 1)[contacts.pair]
    if not model.pairs.layout.adheres:
        return smooth
    return smooth | ((adhesion_at(model, contacts) > 0) & (contacts.distance >= prm.margin))


def pressed(model: Model, prm: ContactParameters, kinds: RowKinds, contacts: Contacts) -> Array:
    """What presses contacts (n,) together by adhesion, as a row feels it: each edge of a pyramid has its share."""
    pull = adhesion_at(model, contacts)
    if not model.pairs.layout.adheres or kinds.cone == "elliptic" or kinds.dim == 1:
        return pull
    edges = 2 * (jnp.asarray(model.pairs.layout.condim)[contacts.pair] - 1)
    softer = edge_softness(model, prm.friction[:, 0], 1.0)
    return pull * jnp.where(_is_smooth(model, prm, contacts), 1.0, softer / jnp.maximum(edges, 1))


def edge_softness(model: Model, main: Array, R) -> Array:
    """R (n,) of the edges of pyramids that matches the friction impedance of the elliptic cone; main: μ₁."""
    impratio = jnp.maximum(model.options.impratio, TINY)
    return 2 * main**2 / impratio * jnp.maximum(TINY, R * (1 + main**2))


def contact_softness(model: Model, prm: ContactParameters, kinds: RowKinds, distance: Array, press: Array) -> Softness:
    """Softness of contacts at distances (n,); the push is along the normal. What presses contacts together by adhesion
    (n,), as `pressed`, does not press them in: a_ref has R times that.
    """
    depth, ahead = distance - prm.margin, kinds.ahead
    d = impedance(prm.solimp, depth) if ahead is None else impedance_ahead(ahead, prm.solimp, depth)
    k, b = stiffness_damping(model, prm.solref, prm.solimp)
    d, k, b = spatial.materialize((d, k, b))
    slip = b
    if kinds.cone == "elliptic" and len(model.pairs.margin):
        given = (prm.solref_friction != 0).any(-1)
        slip = jnp.where(given, stiffness_damping(model, prm.solref_friction, prm.solimp)[1], b)
    damping = jnp.where(np.arange(kinds.dim) == 0, b[:, None], slip[:, None])
    if ahead is not None:
        depth = deflection_ahead(ahead, depth)
    R = (1 - d) / d * prm.weight
    return Softness(k * d * depth - R * press, damping, R)


def _contact_penalty(model: Model, contacts: Contacts, kinds: RowKinds, R, main, friction, smooth) -> tuple:
    """D_edge, D_frame, friction and mu of the contacts.

    R (nc,) regularises the normal, main (nc,) is μ₁, friction (nc, dim - 1), smooth (nc,) marks condim 1.
    """
    impratio = jnp.maximum(model.options.impratio, TINY)
    if kinds.cone == "elliptic" or kinds.dim == 1:
        R = jnp.maximum(TINY, R)[:, None]
        # friction rows such that R_j μ_j² is the same for all j: the cone stays circular after scaling
        ratio = jnp.where(friction == 0, 0.0, (friction / main[:, None]) ** 2) * impratio
        D = jnp.concatenate([1 / R, ratio / R], -1)
        edge = jnp.zeros_like(main)
    else:
        edge = jnp.where(contacts.active & ~smooth, 1 / edge_softness(model, main, R), 0.0)
        D = jnp.where(smooth, 1 / jnp.maximum(TINY, R), 0.0)[:, None] * (np.arange(kinds.dim) == 0)
    D = jnp.where(contacts.active[:, None], D, 0.0)
    return edge, D, friction, main / jnp.sqrt(impratio)
