"""Constraint rows: Jacobian, reference acceleration and softness of equalities, dry friction, limits, contacts.

Rows have a fixed order and number: equalities, friction loss, limits, then `dim` rows per contact slot in the
contact's frame. A row that is not active has D = 0 and so exerts nothing.
"""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi import spatial
from ukemi.collide.detect import Contacts, reach_of_pairs
from ukemi.equality import equality_rows
from ukemi.kinematics import Kinematics, Velocities, shared_reference, velocities
from ukemi.maps import mix, pick
from ukemi.model import Model
from ukemi.penalty import Penalty, RowKinds
from ukemi.penalty import force as force_of
from ukemi.tree import BALL

TINY = 1e-15  # MuJoCo's mjMINVAL
MIN_FRICTION = 1e-5
MIN_IMPEDANCE, MAX_IMPEDANCE = 1e-4, 0.9999


class Rows(NamedTuple):
    """Everything that the solvers need to know of the constraints."""

    J: Array  # (total, nv)
    aref: Array  # (total,) reference acceleration
    penalty: Penalty


class Block(NamedTuple):
    """Rows of one kind before their stiffness is known."""

    J: Array  # (n, nv)
    residual: Array  # (n,) position error, that of the row itself
    depth: Array  # (n,) position error that sets the impedance
    margin: Array  # (n,)
    weight: Array  # (n,) diagonal of Â
    solref: Array  # (n, 2)
    solimp: Array  # (n, 5)
    active: Array  # (n,) bool
    drift: Array  # (n,) J̇ v


# ---- reference acceleration and impedance (MuJoCo, "Parameters") -------------------------------------------------


def impedance(solimp: Array, depth: Array) -> Array:
    """Impedance d(r) between d₀ and d_width, a spline of power p with the given midpoint."""
    low, high = (jnp.clip(solimp[..., k], MIN_IMPEDANCE, MAX_IMPEDANCE) for k in (0, 1))
    width = jnp.maximum(solimp[..., 2], 0.0)
    middle = jnp.clip(solimp[..., 3], MIN_IMPEDANCE, MAX_IMPEDANCE)
    power = jnp.maximum(solimp[..., 4], 1.0)
    flat = width <= TINY
    x = jnp.abs(depth) / jnp.where(flat, 1.0, width)
    inside = (x > 0) & (x < 1)
    x = jnp.where(inside, x, 0.5)
    rising = x <= middle
    base = jnp.where(rising, x / middle, (1 - x) / (1 - middle))
    curve = jnp.where(rising, middle, 1 - middle) * base**power
    y = jnp.where(rising, curve, 1 - curve)
    y = jnp.where(inside, y, jnp.where(jnp.abs(depth) >= width, 1.0, 0.0))
    return jnp.where(flat, 0.5 * (low + high), low + y * (high - low))


def stiffness_damping(model: Model, solref: Array, solimp: Array) -> tuple[Array, Array]:
    """Virtual stiffness k and damping b of the reference spring, from either format of solref."""
    time, ratio = solref[..., 0], solref[..., 1]
    mixed = (time > 0) != (ratio > 0)
    time, ratio = jnp.where(mixed, 0.02, time), jnp.where(mixed, 1.0, ratio)
    standard = time > 0
    if "refsafe" not in model.options.layout.disabled:
        time = jnp.where(standard, jnp.maximum(time, 2 * model.options.timestep), time)
    top = jnp.clip(solimp[..., 1], MIN_IMPEDANCE, MAX_IMPEDANCE)
    k = jnp.where(standard, 1 / jnp.maximum(TINY, (top * time * ratio) ** 2), -time / top**2)
    b = jnp.where(standard, 2 / jnp.maximum(TINY, top * time), -ratio / top)
    return k, b


class Softness(NamedTuple):
    """Spring, damper and regulariser of rows as functions of their distance: a_ref = −damping · velocity − push."""

    push: Array  # (n,) [m/s²]
    damping: Array  # (n, dim) or (n,) [1/s]
    R: Array  # (n,)


def reference(model: Model, block: Block, v: Array) -> tuple[Array, Array, Array]:
    """a_ref, R and D of the rows of a block (design: softness)."""
    soft = row_softness(model, block, block.residual, block.depth)
    aref = -soft.damping * (block.J @ v) - soft.push - block.drift
    R = jnp.maximum(TINY, soft.R)
    return aref, R, jnp.where(block.active, 1 / R, 0.0)


def row_softness(model: Model, block: Block, residual: Array, depth: Array) -> Softness:
    """Softness of a block's rows at the given position errors (n,)."""
    d = impedance(block.solimp, depth - block.margin)
    k, b = stiffness_damping(model, block.solref, block.solimp)
    return Softness(k * d * (residual - block.margin), b, (1 - d) / d * block.weight)


# ---- joints ------------------------------------------------------------------------------------------------------


def _dry_rows(model: Model) -> Block:
    """One row per dof with friction loss: velocity is the residual, there is no position."""
    joints, dofs = model.joints, model.joints.layout.dry
    zero = jnp.zeros(len(dofs), joints.damping.dtype)
    return Block(
        J=jnp.eye(model.nv, dtype=zero.dtype)[dofs],
        residual=zero,
        depth=zero,
        margin=zero,
        weight=joints.invweight[dofs],
        solref=joints.solref_friction[dofs],
        solimp=joints.solimp_friction[dofs],
        active=joints.frictionloss[dofs] != 0,
        drift=zero,
    )


def _limit_rows(model: Model, q: Array) -> Block:
    """Limits of hinges and slides (the nearer side, or both where both can act) and of balls."""
    tree, joints = model.tree, model.joints
    joint, side = joints.layout.limit_rows.T
    ball = tree.joint_type[joint] == BALL
    value = pick(q, tree.joint_qpos[joint])
    below, above = value - joints.range[joint, 0], joints.range[joint, 1] - value
    lower = (side < 0) | ((side == 0) & (below < above))
    distance, sign = jnp.where(lower, below, above), jnp.where(lower, 1.0, -1.0)
    first = tree.joint_dof[joint][:, None]
    J = jnp.where(np.arange(model.nv) == first, sign[:, None], 0.0)
    if ball.any():
        adr = np.where(ball, tree.joint_qpos[joint], 0)[:, None] + np.arange(4)
        turn = spatial.quat_log(spatial.quat_normalize(q[np.minimum(adr, model.nq - 1)]))
        angle = spatial.safe_norm(turn)
        axis = turn / jnp.where(angle == 0, 1.0, angle)[:, None]
        J_ball = -sum(axis[:, k, None] * (np.arange(model.nv) == first + k) for k in range(3))
        distance = jnp.where(ball, joints.range[joint].max(-1) - angle, distance)
        J = jnp.where(ball[:, None], J_ball, J)
    return Block(
        J=J,
        residual=distance,
        depth=distance,
        margin=joints.margin[joint],
        weight=joints.invweight[tree.joint_dof[joint]],
        solref=joints.solref_limit[joint],
        solimp=joints.solimp_limit[joint],
        active=distance < joints.margin[joint],
        drift=jnp.zeros_like(distance),
    )


# ---- contacts ------------------------------------------------------------------------------------------------------


class ContactParameters(NamedTuple):
    """Parameters of pairs of geoms, mixed from the two or taken from an explicit pair."""

    friction: Array  # (n, 5)
    solref: Array  # (n, 2)
    solref_friction: Array  # (n, 2) zero: as solref
    solimp: Array  # (n, 5)
    margin: Array  # (n,) [m]
    weight: Array  # (n,) inverse weight of the two bodies against translation [1/kg]


def pair_parameters(model: Model) -> ContactParameters:
    """MuJoCo's rules: the geom of higher priority decides; else friction is the larger, the others are mixed."""
    geoms, layout = model.geoms, model.pairs.layout
    a, b = layout.geoms.T
    rank = geoms.layout.priority
    first, second = (rank[a] > rank[b])[:, None], (rank[a] < rank[b])[:, None]
    total = geoms.solmix[a] + geoms.solmix[b]
    none = total < TINY
    share = jnp.where(none, 0.5, geoms.solmix[a] / jnp.where(none, 1.0, total))[:, None]
    share = jnp.where(first, 1.0, jnp.where(second, 0.0, share))
    friction = jnp.maximum(geoms.friction[a], geoms.friction[b])
    friction = jnp.where(first, geoms.friction[a], jnp.where(second, geoms.friction[b], friction))
    friction = friction[:, np.array([0, 0, 1, 2, 2])]
    direct = ((geoms.solref[a][:, :1] <= 0) | (geoms.solref[b][:, :1] <= 0)) & ~(first | second)
    solref = share * geoms.solref[a] + (1 - share) * geoms.solref[b]
    solref = jnp.where(direct, jnp.minimum(geoms.solref[a], geoms.solref[b]), solref)
    solimp = share * geoms.solimp[a] + (1 - share) * geoms.solimp[b]
    slip = jnp.zeros_like(solref)
    pairs = model.pairs
    if len(pairs.margin):
        listed, k = (layout.explicit >= 0)[:, None], np.maximum(layout.explicit, 0)
        friction = jnp.where(listed, pairs.friction[k], friction)
        solref = jnp.where(listed, pairs.solref[k], solref)
        solimp = jnp.where(listed, pairs.solimp[k], solimp)
        slip = jnp.where(listed, pairs.solref_friction[k], slip)
    body = geoms.layout.body[layout.geoms]
    weight = model.bodies.invweight[:, 0][body].sum(-1)
    return ContactParameters(
        jnp.maximum(friction, MIN_FRICTION), solref, slip, solimp, reach_of_pairs(model)[0], weight
    )


def of_contacts(table: ContactParameters, pair: Array) -> ContactParameters:
    """Rows of the table for each contact, in one gather."""
    widths = [leaf.shape[1] if leaf.ndim > 1 else 1 for leaf in table]
    packed = jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in table], -1)
    parts = jnp.split(spatial.materialize(packed[pair]), np.cumsum(widths)[:-1], -1)
    return ContactParameters(*(p[:, 0] if leaf.ndim == 1 else p for p, leaf in zip(parts, table, strict=True)))


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
        return (
            jnp.concatenate([out, spatial.apply(self.frame, V[:, :3])], -1)[:, : self.dim]
            if self.dim > 3
            else (out[:, : self.dim])
        )

    def pull(self, force: Array) -> Array:
        """Jᵀ f (nv,) of forces f (n, dim) in the contacts' frames."""
        full = jnp.pad(force, ((0, 0), (0, 6 - self.dim)))
        push, twist = (spatial.apply(self.frame.mT, part) for part in (full[:, :3], full[:, 3:]))
        wrench = jnp.concatenate([twist + spatial.cross(self.arm, push), push], -1)
        return (self.S * (mix(self.mask.T, wrench))).sum(-1)


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
    prm = of_contacts(pair_parameters(model), contacts.pair)
    friction = jnp.where(jnp.asarray(own)[contacts.pair], prm.friction[:, : dim - 1], 0.0)
    soft = contact_softness(model, prm, kinds, contacts.distance)
    aref = -soft.damping * velocity - jnp.where(np.arange(dim) == 0, soft.push[:, None], 0.0)
    smooth = jnp.asarray(model.pairs.layout.condim == 1)[contacts.pair]
    return ContactLaw(aref, *_contact_penalty(model, contacts, kinds, soft.R, prm.friction[:, 0], friction, smooth))


def contact_softness(model: Model, prm: ContactParameters, kinds: RowKinds, distance: Array) -> Softness:
    """Softness of contacts at distances (n,); the push is along the normal."""
    d = impedance(prm.solimp, distance - prm.margin)
    k, b = stiffness_damping(model, prm.solref, prm.solimp)
    slip = b
    if kinds.cone == "elliptic" and len(model.pairs.margin):
        given = (prm.solref_friction != 0).any(-1)
        slip = jnp.where(given, stiffness_damping(model, prm.solref_friction, prm.solimp)[1], b)
    damping = jnp.where(np.arange(kinds.dim) == 0, b[:, None], slip[:, None])
    return Softness(k * d * (distance - prm.margin), damping, (1 - d) / d * prm.weight)


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


# ---- all together --------------------------------------------------------------------------------------------------


def row_kinds(model: Model, cone: str) -> RowKinds:
    """Number and kinds of the rows of a model."""
    disabled = model.options.layout.disabled
    if "constraint" in disabled:
        return RowKinds(0, 0, 0, 0, 1, cone, False)
    sizes = {"connect": 3, "weld": 6, "joint": 1}
    layout = model.pairs.layout
    dims = {int(d) for group in layout.groups for d in group.condim}
    return RowKinds(
        equality=0 if "equality" in disabled else sum(sizes[t] for t in model.equalities.layout.type),
        dry=0 if "frictionloss" in disabled else len(model.joints.layout.dry),
        limit=0 if "limit" in disabled else len(model.joints.layout.limit_rows),
        contacts=layout.capacity,
        dim=layout.dim,
        cone=cone,
        frictionless=1 in dims and layout.dim > 1,
    )


def constraint_rows(
    model: Model, kin: Kinematics, velocity: Velocities, q: Array, v: Array, contacts: Contacts, kinds: RowKinds
) -> Rows:
    """All rows at a state."""
    J, aref, D = _scalar_rows(model, kin, velocity, q, v, kinds)
    law = _no_law(kinds, q.dtype)
    if kinds.contacts:
        J_contact = contact_jacobian(model, kin, contacts, kinds.dim)
        moving = (J_contact.reshape(-1, model.nv) @ v).reshape(-1, kinds.dim)
        law = contact_law(model, contacts, kinds, moving)
        J = jnp.concatenate([J, J_contact.reshape(-1, model.nv)])
    return spatial.materialize(Rows(J, jnp.concatenate([aref, law.aref.reshape(-1)]), _penalty(model, D, law)))


def constraint_force(
    model: Model,
    kin: Kinematics,
    velocity: Velocities,
    q: Array,
    v: Array,
    a: Array,
    contacts: Contacts,
    kinds: RowKinds,
) -> tuple[Array, Array]:
    """Constraint forces f (total,) = −∇s(J a − a_ref) at acceleration a (nv,), and Jᵀ f (nv,).

    Contacts take part without their Jacobian, so that derivatives of this function pass vectors around, not matrices.
    """
    J, aref, D = _scalar_rows(model, kin, velocity, q, v, kinds)
    x, law = [J @ a - aref], _no_law(kinds, q.dtype)
    if kinds.contacts:
        lever = contact_lever(model, kin, contacts, kinds.dim)
        law = contact_law(model, contacts, kinds, lever.motion(v))
        x.append((lever.motion(a) - law.aref).reshape(-1))
    force = force_of(kinds, _penalty(model, D, law), jnp.concatenate(x))
    pull = force[: kinds.scalar] @ J
    if kinds.contacts:
        pull = pull + lever.pull(force[kinds.scalar :].reshape(-1, kinds.dim))
    return force, pull


def scalar_force(kinds: RowKinds, here, a: Array) -> Array:
    """Jᵀ f (nv,) of the rows that are not contacts, at acceleration a (nv,)."""
    velocity = velocities(here.model.tree, here.kin.S, here.v)
    J, aref, D = _scalar_rows(here.model, here.kin, velocity, here.q, here.v, kinds)
    only = dataclasses.replace(kinds, contacts=0)
    return force_of(only, _penalty(here.model, D, _no_law(kinds, a.dtype)), J @ a - aref) @ J


def scalar_blocks(model: Model, kin, velocity: Velocities, q: Array, v: Array, kinds: RowKinds) -> list[Block]:
    """The rows that are not contacts, kind by kind."""
    blocks = []
    if kinds.equality:
        blocks.append(Block(*equality_rows(model, kin, velocity, q, v)))
    if kinds.dry:
        blocks.append(_dry_rows(model))
    if kinds.limit:
        blocks.append(_limit_rows(model, q))
    return blocks


def _scalar_rows(model: Model, kin, velocity: Velocities, q: Array, v: Array, kinds: RowKinds):
    """J, a_ref and D of the rows that are not contacts."""
    J, aref, D = [jnp.zeros((0, model.nv), q.dtype)], [jnp.zeros(0, q.dtype)], [jnp.zeros(0, q.dtype)]
    for block in scalar_blocks(model, kin, velocity, q, v, kinds):
        a, _, stiff = reference(model, block, v)
        J.append(block.J)
        aref.append(a)
        D.append(stiff)
    return jnp.concatenate(J), jnp.concatenate(aref), jnp.concatenate(D)


def _no_law(kinds: RowKinds, dtype) -> ContactLaw:
    empty = jnp.zeros(0, dtype)
    frame = jnp.zeros((0, kinds.dim), dtype)
    return ContactLaw(frame, empty, frame, frame[:, 1:], empty)


def _penalty(model: Model, D: Array, law: ContactLaw) -> Penalty:
    return Penalty(D, model.joints.frictionloss[model.joints.layout.dry], *law[1:])
