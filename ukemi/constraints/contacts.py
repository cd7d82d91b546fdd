"""Contacts as constraints: their parameters, mixed from two geoms', and how they move with the joints."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.collide.detect import Contacts
from ukemi.collide.near import reach_of_pairs, restitution_of_pairs
from ukemi.constraints.softness import (
    TINY,
)
from ukemi.maths import spatial
from ukemi.maths.codes import pack
from ukemi.maths.gathers import mix, rows_where
from ukemi.mechanics.kinematics import Kinematics, geom_frames, shared_reference
from ukemi.model.records import Model

MIN_FRICTION = 1e-5
SLIPS = np.array([0.0, 1.0, 1.0, 1.0, 0.0, 0.0])  # what is seen of surfaces that run: along the tangents, and spin


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
    tables = geoms.friction, geoms.solref, geoms.solimp, geoms.solmix, weight
    both = _rows(tables, jnp.asarray(layout.geoms)[pair])
    friction, solref, solimp, solmix, weight = both
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
        restitution=restitution_of_pairs(model, pair),
        solref=jnp.where(direct, solref.min(1), mixed),
        solref_friction=jnp.zeros_like(mixed),
        solimp=share * solimp[:, 0] + (1 - share) * solimp[:, 1],
        margin=reach_of_pairs(model, pair)[0],
        weight=weight.sum(-1),
    )
    out = _listed(model, pair, out)
    return spatial.materialize(out._replace(friction=jnp.maximum(out.friction, MIN_FRICTION)))


def _listed(model: Model, pair: Array, mixed: ContactParameters) -> ContactParameters:
    """What explicit pairs say instead."""
    pairs = model.pairs
    if not len(pairs.margin):
        return mixed
    k = jnp.asarray(pairs.layout.explicit)[pair]
    names = "friction", "solref", "solref_friction", "solimp"
    own = _rows([getattr(pairs, name) for name in names], jnp.maximum(k, 0))
    chosen = rows_where(k >= 0, own, [getattr(mixed, name) for name in names])
    return mixed._replace(**dict(zip(names, chosen, strict=True)))


def _rows(tables, index: Array) -> list[Array]:
    """Rows of tables at positions of any shape, in one gather."""
    widths = [table.shape[1] if table.ndim > 1 else 1 for table in tables]
    packed = jnp.concatenate([table.reshape(len(table), -1) for table in tables], -1)
    parts = jnp.split(spatial.materialize(packed[index]), np.cumsum(widths)[:-1], -1)
    return [part[..., 0] if table.ndim == 1 else part for part, table in zip(parts, tables, strict=True)]


def mixing_code(model: Model) -> Array:
    """Which of two geoms decides on each parameter of a pair (n,)."""
    geoms, (a, b) = model.geoms, model.pairs.layout.geoms.T
    larger = [jnp.sign(geoms.friction[a, k] - geoms.friction[b, k]) for k in range(3)]
    floor = [(jnp.maximum(geoms.friction[a, k], geoms.friction[b, k]) < MIN_FRICTION) + 0 for k in range(3)]
    smaller = [jnp.sign(geoms.solref[a, k] - geoms.solref[b, k]) for k in range(2)]
    direct = (geoms.solref[a, 0] <= 0) + 2 * (geoms.solref[b, 0] <= 0)
    smaller = [jnp.where(direct > 0, sign, 0) for sign in smaller]
    return pack(*larger, *floor, *smaller, direct, (geoms.solmix[a] + geoms.solmix[b] < TINY) + 0)


def surface_velocities(model: Model, kin: Kinematics, contacts: Contacts) -> tuple[Array, Array]:
    """Velocities (n, 6) at which the surfaces of both shapes run past their bodies, linear part first, in the frames
    of the contacts.
    """
    pos, mat = geom_frames(model, kin)
    along, about = (spatial.apply(mat, part) for part in jnp.split(model.geoms.surface_velocity, 2, -1))
    geoms = jnp.asarray(model.pairs.layout.geoms)[contacts.pair]

    def of_side(side: int) -> Array:
        at = geoms[:, side]
        linear = along[at] + spatial.cross(about[at], contacts.point - pos[at])
        return jnp.concatenate([spatial.apply(contacts.frame, linear), spatial.apply(contacts.frame, about[at])], -1)

    return of_side(0), of_side(1)


def surface_slip(model: Model, kin: Kinematics, contacts: Contacts, dim: int) -> Array | float:
    """What surfaces that run add to the motion (n, dim) that friction sees."""
    if not model.geoms.layout.conveys:
        return 0.0
    first, second = surface_velocities(model, kin, contacts)
    return ((second - first) * SLIPS)[:, :dim]


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
        return (self.S * self.wrenches(force)).sum(-1)

    def wrenches(self, force: Array) -> Array:
        """Sums (nv, 6) of forces f (n, dim) on what each dof moves."""
        full = jnp.pad(force, ((0, 0), (0, 6 - self.dim)))
        push, twist = (spatial.apply(self.frame.mT, part) for part in (full[:, :3], full[:, 3:]))
        wrench = jnp.concatenate([twist + spatial.cross(self.arm, push), push], -1)
        return mix(self.mask.T, wrench)


def contact_lever(model: Model, kin: Kinematics, contacts: Contacts, dim: int) -> Lever:
    """Levers of the contacts."""
    tree = model.tree
    origin, S = shared_reference(tree, kin)
    body = model.geoms.layout.body[model.pairs.layout.geoms]
    moves = tree.moves.astype(np.int8)
    if model.pairs.layout.many:  # a table of all pairs and dofs would be far larger than the model
        first, second = (jnp.asarray(moves)[side[contacts.pair]] for side in jnp.asarray(body.T))
        mask = (second - first).astype(S.dtype)
    else:
        mask = jnp.asarray(moves[body[:, 1]] - moves[body[:, 0]])[contacts.pair].astype(S.dtype)
    return Lever(spatial.materialize(mask), contacts.point - origin, contacts.frame, S, dim)


def contact_jacobian(model: Model, kin: Kinematics, contacts: Contacts, dim: int) -> Array:
    """Jacobian (nc, dim, nv) of the relative motion of the second body in each contact's frame."""
    lever = contact_lever(model, kin, contacts, dim)
    wrench = jnp.concatenate([spatial.cross(lever.arm[:, None, :], lever.frame), lever.frame], -1)
    if dim > 3:
        turning = jnp.concatenate([lever.frame, jnp.zeros_like(lever.frame)], -1)
        wrench = jnp.concatenate([wrench, turning], 1)
    wrench = spatial.materialize(wrench[:, :dim])
    return spatial.materialize((wrench.reshape(-1, 6) @ lever.S.T).reshape(-1, dim, model.nv) * lever.mask[:, None, :])
