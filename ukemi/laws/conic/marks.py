"""Which contact is which from one pose to another, so that variables stay with the place that they belong to."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.collide.detect import NAMES, Contacts
from ukemi.collide.primitives import wanders
from ukemi.laws.memory import same_names
from ukemi.maths import spatial
from ukemi.maths.ranking import place_in
from ukemi.mechanics.kinematics import Kinematics, geom_frames
from ukemi.model.records import Model


class Marks(NamedTuple):
    """What contacts are known by."""

    names: Array  # (nc,) −1: there is none
    place: Array  # (nc, 3) on the second shape, in its axes [m]; (nc, 0) where names say all
    wanders: Array  # (nc,) bool: whether the place says more than the name


def marks(model: Model, kin: Kinematics, contacts: Contacts, count: int) -> Marks:
    """What the first contacts are known by, at the poses where they were found."""
    names, pair, layout = contacts.names[:count], contacts.pair[:count], model.pairs.layout
    wander = np.array([wanders(group.types) for group in layout.groups for _ in group.geoms], bool)
    if not count or not wander.any():
        return Marks(names, jnp.zeros((count, 0), contacts.distance.dtype), jnp.zeros(count, bool))
    second = jnp.asarray(layout.geoms[:, 1])[pair]
    pos, mat = geom_frames(model, kin)
    surface = contacts.point[:count] + 0.5 * contacts.distance[:count, None] * contacts.frame[:count, 0]
    return Marks(names, spatial.apply(mat[second].mT, surface - pos[second]), jnp.asarray(wander)[pair])


def places(before: Marks, now: Marks) -> Array:
    """Where contacts (nc,) of `now` were before; −1: they are new.

    Two whose slots say which corner they are have the same name. Others are the same where each is what is nearest to
    the other: a box that turns has its corners in other slots.
    """
    if not len(now.names):
        return now.names
    named = same_names(now.names, before.names)
    if not now.place.shape[1]:
        return place_in(named)
    known = (now.names[:, None] >= 0) & (before.names >= 0)
    same = jnp.where(now.wanders[:, None], known & (now.names[:, None] // NAMES == before.names // NAMES), named)
    off = now.place[:, None] - before.place
    apart = jnp.where(same, jnp.where(now.wanders[:, None], (off * off).sum(-1), 0.0), jnp.inf)
    nearest, back = jnp.argmin(apart, 1), jnp.argmin(apart, 0)
    mutual = same.any(1) & (back[nearest] == jnp.arange(len(nearest)))
    return jnp.where(mutual, nearest, -1).astype(jnp.int32)
