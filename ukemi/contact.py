"""Contacts as constraints: how they move with the joints, and how soft they are."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi import spatial
from ukemi.collide.detect import Contacts, reach_of_pairs
from ukemi.kinematics import Kinematics, shared_reference
from ukemi.maps import mix, rows_where
from ukemi.model import Model
from ukemi.penalty import RowKinds
from ukemi.softness import (
    TINY,
    Softness,
    deflection_ahead,
    impedance,
    impedance_ahead,
    stiffness_damping,
)

MIN_FRICTION = 1e-5


class ContactParameters(NamedTuple):
    """Parameters of contacts, mixed from their two geoms or taken from an explicit pair."""

    friction: Array  # (n, 5)
    restitution: Array  # (n,)
    solref: Array  # (n, 2)
    solref_friction: Array  # (n, 2) zero: as solref
    solimp: Array  # (n, 5)
    margin: Array  # (n,) [m]
    weight: Array  # (n,) inverse weight of the two bodies against translation [1/kg]


def contact_parameters(model: Model, pair: Array) -> ContactParameters:
    """MuJoCo's rules for contacts of pairs (n,): the geom of higher priority decides; else friction is the larger, the
    others are mixed.
    """
    geoms, layout = model.geoms, model.pairs.layout
    weight = model.bodies.invweight[:, 0][geoms.layout.body]
    tables = geoms.friction, geoms.restitution, geoms.solref, geoms.solimp, geoms.solmix, weight
    both = _rows(tables, jnp.asarray(layout.geoms)[pair])
    friction, restitution, solref, solimp, solmix, weight = both
    total = solmix.sum(-1)
    none = total < TINY
    share = jnp.where(none, 0.5, solmix[:, 0] / jnp.where(none, 1.0, total))[:, None]
    blend = jnp.maximum(friction[:, 0], friction[:, 1])
    direct = (solref[..., 0] <= 0).any(-1)[:, None]
    rank = geoms.layout.priority[layout.geoms]
    if (rank[:, 0] != rank[:, 1]).any():
        ahead = jnp.asarray(np.sign(rank[:, 0] - rank[:, 1]))[pair][:, None]
        share = jnp.where(ahead > 0, 1.0, jnp.where(ahead < 0, 0.0, share))
        blend = jnp.where(ahead > 0, friction[:, 0], jnp.where(ahead < 0, friction[:, 1], blend))
        direct = direct & (ahead == 0)
    mixed = share * solref[:, 0] + (1 - share) * solref[:, 1]
    out = ContactParameters(
        friction=blend[:, np.array([0, 0, 1, 2, 2])],
        restitution=restitution.max(-1),
        solref=jnp.where(direct, solref.min(1), mixed),
        solref_friction=jnp.zeros_like(mixed),
        solimp=share * solimp[:, 0] + (1 - share) * solimp[:, 1],
        margin=reach_of_pairs(model)[0][pair],
        weight=weight.sum(-1),
    )
    out = _listed(model, pair, out)
    return out._replace(friction=jnp.maximum(out.friction, MIN_FRICTION))


def _listed(model: Model, pair: Array, mixed: ContactParameters) -> ContactParameters:
    """What explicit pairs say instead."""
    pairs = model.pairs
    if not len(pairs.margin):
        return mixed
    k = jnp.asarray(pairs.layout.explicit)[pair]
    names = "friction", "restitution", "solref", "solref_friction", "solimp"
    own = _rows([getattr(pairs, name) for name in names], jnp.maximum(k, 0))
    chosen = rows_where(k >= 0, own, [getattr(mixed, name) for name in names])
    return mixed._replace(**dict(zip(names, chosen, strict=True)))


def _rows(tables, index: Array) -> list[Array]:
    """Rows of tables at positions of any shape, in one gather."""
    widths = [table.shape[1] if table.ndim > 1 else 1 for table in tables]
    packed = jnp.concatenate([table.reshape(len(table), -1) for table in tables], -1)
    parts = jnp.split(spatial.materialize(packed[index]), np.cumsum(widths)[:-1], -1)
    return [part[..., 0] if table.ndim == 1 else part for part, table in zip(parts, tables, strict=True)]


class Lever(NamedTuple):
    """How contacts move with the joints: what J is for x ↦ J x and f ↦ Jᵀ f, without J."""

    mask: Array  # (n, nv) 1 where a dof moves the second body, −1 the first
    arm: Array  # (n, 3) contact point from the origin of S [m]
    frame: Array  # (n, 3, 3) rows: normal, tangents
    S: Array  # (nv, 6) motion subspace about one origin
    dim: int

    def motion(self, x: Array) -> Array:
        """J x (n, dim): relative motion of the second body in the contacts' frames for joint rates x (nv,)."""
        V = mix(self.mask, self.S * x[:, None])
        linear = V[:, 3:] + spatial.cross(V[:, :3], self.arm)
        out = spatial.apply(self.frame, linear)
        if self.dim > 3:
            out = jnp.concatenate([out, spatial.apply(self.frame, V[:, :3])], -1)
        return out[:, : self.dim]

    def pull(self, force: Array) -> Array:
        """Jᵀ f (nv,) of forces f (n, dim) in the contacts' frames."""
        full = jnp.pad(force, ((0, 0), (0, 6 - self.dim)))
        push, twist = (spatial.apply(self.frame.mT, part) for part in (full[:, :3], full[:, 3:]))
        wrench = jnp.concatenate([twist + spatial.cross(self.arm, push), push], -1)
        return (self.S * mix(self.mask.T, wrench)).sum(-1)


def contact_lever(model: Model, kin: Kinematics, contacts: Contacts, dim: int) -> Lever:
    """Levers of the contacts."""
    tree = model.tree
    origin, S = shared_reference(tree, kin)
    body = model.geoms.layout.body[model.pairs.layout.geoms]
    moves = tree.moves.astype(np.int8)
    mask = jnp.asarray(moves[body[:, 1]] - moves[body[:, 0]])[contacts.pair].astype(S.dtype)
    return Lever(mask, contacts.point - origin, contacts.frame, S, dim)


def contact_jacobian(model: Model, kin: Kinematics, contacts: Contacts, dim: int) -> Array:
    """Jacobian (nc, dim, nv) of the relative motion of the second body in each contact's frame."""
    lever = contact_lever(model, kin, contacts, dim)
    wrench = jnp.concatenate([spatial.cross(lever.arm[:, None, :], lever.frame), lever.frame], -1)
    if dim > 3:
        turning = jnp.concatenate([lever.frame, jnp.zeros_like(lever.frame)], -1)
        wrench = jnp.concatenate([wrench, turning], 1)
    wrench = spatial.materialize(wrench[:, :dim])
    return spatial.materialize((wrench.reshape(-1, 6) @ lever.S.T).reshape(-1, dim, model.nv) * lever.mask[:, None, :])


class ContactLaw(NamedTuple):
    """Reference acceleration of n contacts and their part of the penalty."""

    aref: Array  # (n, dim)
    D_edge: Array  # (n,)
    D_frame: Array  # (n, dim)
    friction: Array  # (n, dim - 1)
    mu: Array  # (n,)


def contact_law(model: Model, contacts: Contacts, kinds: RowKinds, velocity: Array) -> ContactLaw:
    """Softness of contacts whose rows move at `velocity` (n, dim)."""
    dim = kinds.dim
    own = np.arange(1, dim) < model.pairs.layout.condim[:, None]  # directions that the pair's own dimension has
    prm = contact_parameters(model, contacts.pair)
    friction = jnp.where(jnp.asarray(own)[contacts.pair], prm.friction[:, : dim - 1], 0.0)
    soft = contact_softness(model, prm, kinds, contacts.distance)
    aref = -soft.damping * velocity - jnp.where(np.arange(dim) == 0, soft.push[:, None], 0.0)
    smooth = jnp.asarray(model.pairs.layout.condim == 1)[contacts.pair]
    return ContactLaw(aref, *_contact_penalty(model, contacts, kinds, soft.R, prm.friction[:, 0], friction, smooth))


def contact_softness(model: Model, prm: ContactParameters, kinds: RowKinds, distance: Array) -> Softness:
    """Softness of contacts at distances (n,); the push is along the normal."""
    depth, ahead = distance - prm.margin, kinds.ahead
    d = impedance(prm.solimp, depth) if ahead is None else impedance_ahead(ahead, prm.solimp, depth)
    k, b = stiffness_damping(model, prm.solref, prm.solimp)
    slip = b
    if kinds.cone == "elliptic" and len(model.pairs.margin):
        given = (prm.solref_friction != 0).any(-1)
        slip = jnp.where(given, stiffness_damping(model, prm.solref_friction, prm.solimp)[1], b)
    damping = jnp.where(np.arange(kinds.dim) == 0, b[:, None], slip[:, None])
    if ahead is not None:
        depth = deflection_ahead(ahead, depth)
    return Softness(k * d * depth, damping, (1 - d) / d * prm.weight)


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
        # common R of the edges that matches the friction impedance of the elliptic cone
        R_edge = 2 * main**2 / impratio * jnp.maximum(TINY, R * (1 + main**2))
        edge = jnp.where(contacts.active & ~smooth, 1 / R_edge, 0.0)
        D = jnp.where(smooth, 1 / jnp.maximum(TINY, R), 0.0)[:, None] * (np.arange(kinds.dim) == 0)
    D = jnp.where(contacts.active[:, None], D, 0.0)
    return edge, D, friction, main / jnp.sqrt(impratio)
