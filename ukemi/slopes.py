"""Dense derivatives of the constraint force in closed form: what `linearize` is made of.

Everything is in tangent coordinates. A contact's force is a wrench φ (force, torque) in its frame; the frame moves
by the twist Γ δq, the relative motion of its two bodies is J δq, and with masks 1 (dof moves the body) or 0

    ∂(J x)/∂q = mask ∘ W ψ̇(x)ᵀ − [V₁(x) ×] J + [u(x) ×] (Γ − J₂),      u = J x, J₂ of the second body alone
    ∂(Jᵀφ)/∂q = anc ∘ (S ×* F^C) Sᵀ + Jᵀ (∂φ/∂q + [×* φ] Γ),           F^C = maskᵀ Wᵀφ

with W the wrench rows of the contact's frame, and V₁ the first body's velocity seen from it (design: contact rows).
"""

from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi import penalty as p_
from ukemi import spatial
from ukemi.constraint import reference, row_softness, scalar_blocks
from ukemi.contact import contact_law, contact_lever, contact_softness, of_contacts, pair_parameters
from ukemi.forces import acts_on_joints, actuator_force, saturated, transmission
from ukemi.kinematics import accumulate_before
from ukemi.model import Model
from ukemi.penalty import RowKinds
from ukemi.tree import BALL, FREE


class ConstraintSlopes(NamedTuple):
    """Derivatives of the constraint force Jᵀ f (nv,) at constant acceleration, and the curvature that it adds to M."""

    q: Array  # (nv, nv)
    v: Array  # (nv, nv)
    H: Array  # (nv, nv) Jᵀ H[s] J


# Small matrices of all contacts have the contacts as their last axis: XLA's CPU loops vectorise over that.


def contact_slopes(kinds: RowKinds, scene, a: Array, follow: "Follow") -> ConstraintSlopes:
    """Slopes of the contacts of a scene."""
    model, contacts = scene.model, scene.contacts
    lever = contact_lever(model, scene.kin, contacts, kinds.dim)
    body = jnp.asarray(model.geoms.layout.body[model.pairs.layout.geoms])[contacts.pair]
    moves = jnp.asarray(model.tree.moves.astype(a.dtype))
    sides = spatial.materialize((moves[body[:, 0]], moves[body[:, 1]]))
    frame, arm = spatial.materialize((jnp.moveaxis(lever.frame, 0, -1), lever.arm.T))
    W = _wrench_rows(frame, arm)
    x = _Rates.of(model.tree, lever, sides[0], W, jnp.stack([a, scene.v], -1))
    law = _ContactForce.of(kinds, scene, x.relative[:, 0].T, x.relative[:, 1].T)
    parts = _blocks(W, _frame_motion(frame, follow), x, law)
    return _contract(model.tree, lever, sides, W, x, law, parts)


def still_groups(model: Model) -> np.ndarray:
    """Groups of pairs (n,) bool whose first geoms belong to bodies that no joint moves."""
    moved = np.asarray(model.tree.moves.any(1))[model.geoms.layout.body]
    return np.array([not moved[group.geoms[:, 0]].any() for group in model.pairs.layout.groups])


class Follow(NamedTuple):
    """How contacts follow the shapes that they are of."""

    G: Array  # (nc, 7, 12) of `collide.response`
    arm: Array  # (nc, 2, 3) from the origin that rows share to the shapes' own [m]


def _times(a: Array, b: Array) -> Array:
    """Products (i, j, n) of matrices (i, k, n) and (k, j, n)."""
    return cast(Array, sum(a[:, k, None] * b[None, k] for k in range(a.shape[1])))


def _skew(v: Array) -> Array:
    """[v ×] (3, 3, n) of vectors (3, n)."""
    o = jnp.zeros_like(v[0])
    return jnp.stack([jnp.stack([o, -v[2], v[1]]), jnp.stack([v[2], o, -v[0]]), jnp.stack([-v[1], v[0], o])])


def _square(rows) -> Array:
    """Matrix (6, 6, n) of 2 × 2 blocks (3, 3, n)."""
    return jnp.concatenate([jnp.concatenate(row, 1) for row in rows])


def _wrench_rows(frame: Array, arm: Array) -> Array:
    """W (6, 6, n): rows that take a spatial velocity to the contact's frame, linear part first."""
    turned = -_times(frame, _skew(arm))  # e · (ω × r) = (r × e) · ω = −(e [r ×]) ω
    return spatial.materialize(_square([[turned, frame], [frame, jnp.zeros_like(frame)]]))


def _frame_motion(frame: Array, follow: Follow) -> tuple[Array, Array]:
    """Per side (7, 6, n): change of distance, point and frame, in the frame's axes, per twist of the side's body."""
    G, arm = spatial.materialize((jnp.moveaxis(follow.G, 0, -1), jnp.moveaxis(follow.arm, 0, -1)))
    moved = spatial.materialize(jnp.concatenate([G[:1], _times(frame, G[1:4]), _times(frame, G[4:])]))
    sides = []
    for side in range(2):
        linear, turn = moved[:, 6 * side : 6 * side + 3], moved[:, 6 * side + 3 : 6 * side + 6]
        # g · (ω × r) = −(g [r ×]) ω
        sides.append(jnp.concatenate([turn - _times(linear, _skew(arm[side])), linear], 1))
    return sides[0], sides[1]


class _Rates(NamedTuple):
    """What joint rates x (acceleration and velocity) do to the contacts."""

    psi: Array  # (nv, 12) ψ̇ of both
    first: Array  # (6, 2, n) velocity of the first body in the frame
    relative: Array  # (6, 2, n) J x, all six directions

    @staticmethod
    def of(tree, lever, first: Array, W: Array, x: Array) -> "_Rates":
        S, nv = lever.S, tree.nv
        moving = spatial.materialize((S[:, None] * x[:, :, None]).reshape(nv, 12))
        above = accumulate_before(tree, moving).reshape(nv, 2, 6)
        psi = spatial.cross_motion(above, S[:, None]).reshape(nv, 12)
        n = len(first)
        V = jnp.concatenate([first, lever.mask]) @ moving
        V = V.reshape(2, n, 2, 6).transpose(3, 0, 2, 1).reshape(6, 4, n)
        seen = _times(W, V)
        return _Rates(*spatial.materialize((psi, seen[:, :2], seen[:, 2:])))


class _ContactForce(NamedTuple):
    """Forces of contacts in their frames and how they change."""

    force: Array  # (6, n)
    P: Array  # (dim, dim, n) −H[s]: ∂f/∂x
    damped: Array  # (dim, dim, n) −H[s] times the damping of each direction
    nearer: Array  # (dim, n) ∂f/∂distance: the reference acceleration's and the regulariser's part

    @staticmethod
    def of(kinds: RowKinds, scene, a: Array, v: Array) -> "_ContactForce":
        model, contacts, dim = scene.model, scene.contacts, kinds.dim
        prm = of_contacts(pair_parameters(model), contacts.pair)
        law = contact_law(model, contacts, kinds, v[:, :dim])
        only = RowKinds(0, 0, 0, kinds.contacts, dim, kinds.cone, kinds.frictionless)
        empty = jnp.zeros(0, a.dtype)
        penalty = p_.Penalty(empty, empty, *law[1:])
        x = (a[:, :dim] - law.aref).reshape(-1)
        f = p_.force(only, penalty, x).reshape(-1, dim)
        P = -p_.hessian(only, penalty, x)[1]

        def of_distance(distance):
            soft = contact_softness(model, prm, kinds, distance)
            return soft.push, soft.R

        one = jnp.ones_like(contacts.distance)
        (_, R), (push, R_dot) = jax.jvp(of_distance, (contacts.distance,), (one,))
        # forces are in proportion to 1/R at given x
        nearer = P[:, :, 0] * push[:, None] - f * (R_dot / R)[:, None]
        nearer = jnp.where(contacts.active[:, None], nearer, 0.0)
        damping = contact_softness(model, prm, kinds, contacts.distance).damping
        full = jnp.pad(f, ((0, 0), (0, 6 - dim)))
        parts = spatial.materialize((full, P, P * damping[:, None], nearer))
        return _ContactForce(*spatial.materialize(tuple(jnp.moveaxis(part, 0, -1) for part in parts)))


def _blocks(W: Array, follow, x: _Rates, law: _ContactForce) -> tuple[Array, Array, Array]:
    """∂φ/∂q + [×* φ] Γ as (6, 18, n) on (S, ψ̇(a), ψ̇(v)) of what moves relatively, and (6, 6, n) on S per side."""
    dim = len(law.P)

    def through(matrix: Array, rows: Array) -> Array:
        return jnp.pad(_times(matrix, rows[:dim]), ((0, 6 - dim), (0, 0), (0, 0)))

    first = [spatial.materialize(_cross_rows(x.first[:, k])) for k in range(2)]
    relative = [spatial.materialize(_cross_rows(x.relative[:, k])) for k in range(2)]
    K = through(law.P, relative[0]) + through(law.damped, relative[1])
    ride = through(law.P, first[0]) + through(law.damped, first[1])
    K, ride, follow = spatial.materialize((K, ride, follow))
    shift = spatial.materialize(K + _cross_force_rows(law.force))
    nearer = jnp.pad(law.nearer, ((0, 6 - dim), (0, 0)))[:, None]
    sides = [_times(shift, f[1:]) + nearer * f[:1] for f in follow]
    together = jnp.concatenate([-_times(ride, W), through(law.P, W), through(law.damped, W)], 1)
    return spatial.materialize((together, sides[0], sides[1] - _times(K, W)))


def _cross_rows(m: Array) -> Array:
    """Matrix [m ×] (6, 6, n) of motion vectors (6, n) ordered linear, angular."""
    linear, turn = _skew(m[:3]), _skew(m[3:])
    return _square([[turn, linear], [jnp.zeros_like(turn), turn]])


def _cross_force_rows(f: Array) -> Array:
    """Matrix (6, 6, n) of Γ ↦ Γ ×* f for motions Γ and forces f (6, n), both ordered linear, angular."""
    push, twist = _skew(f[:3]), _skew(f[3:])
    return -_square([[jnp.zeros_like(push), push], [push, twist]])


def _contract(tree, lever, sides, W: Array, x: _Rates, law: _ContactForce, parts) -> ConstraintSlopes:
    """Sums over the contacts; rows are ordered by direction, then contact."""
    S, mask, dim, nv = lever.S, lever.mask, len(law.P), tree.nv
    n = len(mask)
    together, first, second = parts
    right = spatial.materialize(jnp.concatenate([S, x.psi], -1)).T

    def rows(matrices: list[Array], right: Array) -> Array:
        tall = spatial.materialize(jnp.concatenate([m.transpose(0, 2, 1) for m in matrices]))
        return (tall.reshape(-1, tall.shape[-1]) @ right).reshape(len(tall), n, nv)

    own = rows([W, first, second, _times(law.P, W[:dim]), _times(law.damped, W[:dim])], right[:6])
    J = own[:6] * mask
    Z = mask * rows([together], right) + sides[0] * own[6:12] + sides[1] * own[12:18]
    J, Z = spatial.materialize((J, Z))
    force = mask.T @ _times(W.transpose(1, 0, 2), law.force[:, None])[:, 0].T
    q = spatial.gram(J.reshape(-1, nv), Z.reshape(-1, nv)) + tree.anc * (spatial.cross_force(S, force) @ S.T)
    stiff, damped = own[18 : 18 + dim] * mask, own[18 + dim :] * mask
    both = jnp.concatenate([damped, stiff], -1).reshape(-1, 2 * nv)
    product = spatial.gram(J[:dim].reshape(-1, nv), both)
    return ConstraintSlopes(q, product[:, :nv], -product[:, nv:])


# ---- rows that are not contacts ------------------------------------------------------------------------------------


def row_slopes(kinds: RowKinds, scene, a: Array) -> ConstraintSlopes:
    """Slopes of dry friction and of limits of hinges and slides, whose Jacobians are constant; the curvature of all.

    Where other rows are among them (`has_constant_rows`), only the curvature: their slopes are left to AD.
    """
    model, nv = scene.model, scene.model.nv
    J, stiff, damped, nearer = [], [], [], []
    blocks = scalar_blocks(model, scene.kin, scene.velocity, scene.q, scene.v, kinds)
    laws = [reference(model, block, scene.v) for block in blocks]
    D = jnp.concatenate([law[2] for law in laws])
    x = jnp.concatenate([block.J @ a - law[0] for block, law in zip(blocks, laws, strict=True)])
    empty = p_.Penalty(D, model.joints.frictionloss[model.joints.layout.dry], *(jnp.zeros((0, 1), a.dtype),) * 4)
    only = RowKinds(kinds.equality, kinds.dry, kinds.limit, 0, 1, kinds.cone, False)
    force, P = p_.force(only, empty, x), -p_.hessian(only, empty, x)[0]
    start = 0
    for block, (_, R, _) in zip(blocks, laws, strict=True):
        rows = slice(start, start + len(block.residual))
        start = rows.stop
        soft, change = _softness_slope(model, block)
        J.append(block.J)
        stiff.append(P[rows])
        damped.append(P[rows] * soft.damping)
        nearer.append(P[rows] * change.push - force[rows] * change.R / R)
    stiff, damped, nearer = (jnp.concatenate(part) for part in (stiff, damped, nearer))
    if not has_constant_rows(model, kinds):
        J = jnp.concatenate(J)
        nothing = jnp.zeros((nv, nv), a.dtype)
        return ConstraintSlopes(nothing, nothing, -spatial.gram(J, stiff[:, None] * J))
    nearer = jnp.where(np.arange(len(nearer)) < kinds.dry, 0.0, nearer)  # dry friction has no position
    # each row moves one dof, by plus or minus one
    joint = model.joints.layout.limit_rows[:, 0] if kinds.limit else np.zeros(0, int)
    dofs = np.concatenate([model.joints.layout.dry if kinds.dry else joint[:0], model.tree.joint_dof[joint]])
    own = (dofs[:, None] == np.arange(nv)).astype(a.dtype)
    sums = jnp.stack([nearer, damped, -stiff]) @ own
    return ConstraintSlopes(*(jnp.diag(sums[k]) for k in range(3)))


def has_constant_rows(model: Model, kinds: RowKinds) -> bool:
    """Whether `row_slopes` covers all rows that are not contacts: no equalities, no limits of balls."""
    joint = model.joints.layout.limit_rows[:, 0]
    return not kinds.equality and not (kinds.limit and (model.tree.joint_type[joint] == BALL).any())


def _softness_slope(model: Model, block):
    """Softness of rows whose two position errors are one, and its derivative in it."""

    def of_distance(distance):
        return row_softness(model, block, distance, distance)

    return jax.jvp(of_distance, (block.residual,), (jnp.ones_like(block.residual),))


# ---- forces that are not constraints -------------------------------------------------------------------------------


class ForceSlopes(NamedTuple):
    """Derivatives of generalised forces (nv,)."""

    q: Array  # (nv, nv) tangent space
    v: Array  # (nv, nv)
    act: Array  # (nv, na)
    ctrl: Array  # (nv, nu)


def has_plain_forces(model: Model, inputs) -> bool:
    """Whether `force_slopes` covers all forces: besides actuators of joints only their springs and dampers."""
    joints, kinds = model.joints, model.tree.joint_type
    springs = joints.layout.springs and np.isin(kinds, (FREE, BALL)).any()
    return not (
        springs or model.options.layout.fluid or model.bodies.layout.compensated or inputs.xfrc is not None
    ) and acts_on_joints(model)


def force_slopes(model: Model, kin, q: Array, v: Array, act: Array, ctrl: Array) -> ForceSlopes:
    """Slopes of actuators of hinges and slides, and of joint springs and dampers."""
    joints, disabled, nv = model.joints, model.options.layout.disabled, model.nv
    spring, damper = jnp.zeros(nv, v.dtype), jnp.zeros(nv, v.dtype)
    if joints.layout.springs and "spring" not in disabled:
        spring = -joints.stiffness[model.tree.dof_joint]
    if joints.layout.damped and "damper" not in disabled:
        damper = -joints.damping
    nothing = jnp.zeros((nv, model.na + model.nu), v.dtype)
    total = jnp.concatenate([jnp.diag(spring), jnp.diag(damper), nothing], -1)
    if model.nu and "actuation" not in disabled:
        total = total + _drive_slopes(model, kin, q, v, act, ctrl)
    return ForceSlopes(*jnp.split(total, np.cumsum([nv, nv, model.na]), -1))


def _drive_slopes(model: Model, kin, q: Array, v: Array, act: Array, ctrl: Array) -> Array:
    """Slopes (nv, ·) of actuators, each a function of its own length, velocity, activation and control."""
    length, moment = transmission(model, kin, q)
    values = length, moment @ v, act, ctrl
    partials = []
    for k, value in enumerate(values):
        along = tuple(jnp.ones_like(x) if i == k else jnp.zeros_like(x) for i, x in enumerate(values))
        if value.size:
            partials.append(jax.jvp(lambda *x: actuator_force(model, *x)[0], values, along)[1])
        else:
            partials.append(jnp.zeros(model.nu, v.dtype))
    own = (model.actuators.layout.act[:, None] == np.arange(model.na)).astype(v.dtype)
    per_length, per_velocity, per_act, per_ctrl = (p[:, None] for p in partials)
    parts = [per_length * moment, per_velocity * moment, per_act * own, per_ctrl * np.eye(model.nu, dtype=v.dtype)]
    slopes = moment.T @ jnp.concatenate(parts, -1)
    if not model.joints.layout.force_limited.any():
        return slopes
    held = saturated(model, actuator_force(model, *values)[0] @ moment)
    return jnp.where(held[:, None], 0.0, slopes)
