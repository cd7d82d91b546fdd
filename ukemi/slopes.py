"""Dense derivatives of the constraint force in closed form: what `linearize` is made of.

Everything is in tangent coordinates. A contact's force is a wrench φ (force, torque) in its frame; the frame moves
by the twist Γ δq, the relative motion of its two bodies is J δq, and with masks 1 (dof moves the body) or 0

    ∂(J x)/∂q = mask ∘ W ψ̇(x)ᵀ − [V₁(x) ×] J + [u(x) ×] (Γ − J₂),      u = J x, J₂ of the second body alone
    ∂(Jᵀφ)/∂q = anc ∘ (S ×* F^C) Sᵀ + Jᵀ (∂φ/∂q + [×* φ] Γ),           F^C = maskᵀ Wᵀφ

with W the wrench rows of the contact's frame, and V₁ the first body's velocity seen from it (design: contact rows).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi import penalty as p_
from ukemi import spatial
from ukemi.constraint import (
    contact_law,
    contact_lever,
    contact_softness,
    of_contacts,
    pair_parameters,
    reference,
    row_softness,
    scalar_blocks,
)
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


def contact_slopes(kinds: RowKinds, scene, a: Array, follow: "Follow") -> ConstraintSlopes:
    """Slopes of the contacts of a scene."""
    model, contacts = scene.model, scene.contacts
    lever = contact_lever(model, scene.kin, contacts, kinds.dim)
    body = jnp.asarray(model.geoms.layout.body[model.pairs.layout.geoms])[contacts.pair]
    moves = jnp.asarray(model.tree.moves.astype(a.dtype))
    sides = moves[body[:, 0]], moves[body[:, 1]]
    W = _wrench_rows(lever.arm, lever.frame)
    x = _Rates.of(model.tree, lever, sides[0], W, a), _Rates.of(model.tree, lever, sides[0], W, scene.v)
    law = _ContactForce.of(kinds, scene, x[0].relative, x[1].relative)
    parts = _blocks(W, _frame_motion(lever, follow), x, law)
    return _contract(model.tree, lever, sides, W, x, law, parts)


def still_groups(model: Model) -> np.ndarray:
    """Groups of pairs (n,) bool whose first geoms belong to bodies that no joint moves."""
    moved = model.tree.moves.any(1)[model.geoms.layout.body]
    return np.array([not moved[group.geoms[:, 0]].any() for group in model.pairs.layout.groups])


class Follow(NamedTuple):
    """How contacts follow the shapes that they are of."""

    G: Array  # (nc, 7, 12) of `collide.response`
    arm: Array  # (nc, 2, 3) from the origin that rows share to the shapes' own [m]


def _wrench_rows(arm: Array, frame: Array) -> Array:
    """W (n, 6, 6): rows that take a spatial velocity to the contact's frame, linear part first."""
    top = jnp.concatenate([spatial.cross(arm[:, None, :], frame), frame], -1)
    bottom = jnp.concatenate([frame, jnp.zeros_like(frame)], -1)
    return spatial.materialize(jnp.concatenate([top, bottom], 1))


def _frame_motion(lever, follow: Follow) -> tuple[Array, Array]:
    """Per side (n, 7, 6): change of distance, point and frame, in the frame's axes, per twist of the side's body."""
    G, frame = follow.G, lever.frame
    moved = spatial.materialize(
        jnp.concatenate([G[:, :1], spatial.compose(frame, G[:, 1:4]), spatial.compose(frame, G[:, 4:])], 1)
    )
    sides = []
    for side in range(2):
        linear, turn = moved[..., 6 * side : 6 * side + 3], moved[..., 6 * side + 3 : 6 * side + 6]
        arm = follow.arm[:, side, None]
        sides.append(jnp.concatenate([turn + spatial.cross(arm, linear), linear], -1))
    return sides[0], sides[1]


class _Rates(NamedTuple):
    """What joint rates x (acceleration or velocity) do to the contacts."""

    psi: Array  # (nv, 6) ψ̇(x)
    first: Array  # (n, 6) velocity of the first body in the frame
    relative: Array  # (n, 6) J x, all six directions

    @staticmethod
    def of(tree, lever, first: Array, W: Array, x: Array) -> "_Rates":
        S = lever.S
        moving = S * x[:, None]
        psi = spatial.cross_motion(accumulate_before(tree, moving), S)
        V = spatial.apply(W, first @ moving)
        return _Rates(*spatial.materialize((psi, V, spatial.apply(W, lever.mask @ moving))))


class _ContactForce(NamedTuple):
    """Forces of contacts in their frames and how they change."""

    force: Array  # (n, 6)
    P: Array  # (n, dim, dim) −H[s]: ∂f/∂x
    damping: Array  # (n, dim)
    nearer: Array  # (n, dim) ∂f/∂distance: the reference acceleration's and the regulariser's part

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
        return _ContactForce(*spatial.materialize((full, P, damping, nearer)))


def _blocks(W: Array, follow, x, law: _ContactForce) -> tuple[Array, Array, Array]:
    """∂φ/∂q + [×* φ] Γ as (n, 6, 18) on (S, ψ̇(a), ψ̇(v)) of what moves relatively, and (n, 6, 6) on S per side."""
    dim = law.P.shape[-1]
    pad = ((0, 0), (0, 6 - dim), (0, 0))
    damped = law.P * law.damping[:, None, :]

    def through(matrix: Array, rows: Array) -> Array:
        return jnp.pad(spatial.compose(matrix, rows[:, :dim]), pad)

    first = [_cross_rows(r.first) for r in x]
    relative = [_cross_rows(r.relative) for r in x]
    K = through(law.P, relative[0]) + through(damped, relative[1])
    shift = spatial.materialize(K + _cross_force_rows(law.force))
    ride = -(through(law.P, spatial.compose(first[0], W)) + through(damped, spatial.compose(first[1], W)))
    nearer = jnp.pad(law.nearer, ((0, 0), (0, 6 - dim)))[:, :, None]
    sides = [spatial.compose(shift, f[:, 1:]) + nearer * f[:, :1] for f in follow]
    together = jnp.concatenate([ride, through(law.P, W), through(damped, W)], -1)
    return spatial.materialize((together, sides[0], sides[1] - spatial.compose(K, W)))


def _cross_rows(m: Array) -> Array:
    """Matrix [m ×] (n, 6, 6) of motion vectors ordered linear, angular."""
    linear, turn = spatial.skew(m[:, :3]), spatial.skew(m[:, 3:])
    zero = jnp.zeros_like(turn)
    return jnp.concatenate([jnp.concatenate([turn, linear], -1), jnp.concatenate([zero, turn], -1)], -2)


def _cross_force_rows(f: Array) -> Array:
    """Matrix (n, 6, 6) of Γ ↦ Γ ×* f for motions Γ and forces f, both ordered linear, angular."""
    push, twist = spatial.skew(f[:, :3]), spatial.skew(f[:, 3:])
    zero = jnp.zeros_like(push)
    return -jnp.concatenate([jnp.concatenate([zero, push], -1), jnp.concatenate([push, twist], -1)], -2)


def _contract(tree, lever, sides, W: Array, x, law: _ContactForce, parts) -> ConstraintSlopes:
    """Sums over the contacts."""
    S, mask, dim = lever.S, lever.mask, law.P.shape[-1]
    n, nv = len(W), tree.nv
    together, first, second = parts

    def rows(matrix: Array, right: Array) -> Array:
        return (matrix.reshape(-1, matrix.shape[-1]) @ right.T).reshape(n, -1, nv)

    J = rows(W, S) * mask[:, None]
    relative = rows(together, jnp.concatenate([S, x[0].psi, x[1].psi], -1))
    Z = mask[:, None] * relative + sides[0][:, None] * rows(first, S) + sides[1][:, None] * rows(second, S)
    flat = spatial.materialize(J).reshape(-1, nv)
    force = mask.T @ spatial.apply(W.mT, law.force)
    q = spatial.gram(flat, Z.reshape(-1, nv)) + tree.anc * (spatial.cross_force(S, force) @ S.T)
    own = J[:, :dim]
    stiff = (law.P[:, :, :, None] * own[:, None]).sum(2)
    damped = ((law.P * law.damping[:, None, :])[:, :, :, None] * own[:, None]).sum(2)
    both = jnp.concatenate([stiff, damped], -1).reshape(-1, 2 * nv)
    product = spatial.gram(own.reshape(-1, nv), both)
    return ConstraintSlopes(q, product[:, nv:], -product[:, :nv])


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
    J, stiff, damped, nearer = (jnp.concatenate(part) for part in (J, stiff, damped, nearer))
    nearer = jnp.where(np.arange(len(nearer)) < kinds.dry, 0.0, nearer)  # dry friction has no position
    weights = jnp.concatenate([w[:, None] * J for w in (nearer, damped, -stiff)], -1)
    product = spatial.gram(J, weights)
    q, v, H = product[:, :nv], product[:, nv : 2 * nv], product[:, 2 * nv :]
    if has_constant_rows(model, kinds):
        return ConstraintSlopes(q, v, H)
    return ConstraintSlopes(jnp.zeros_like(q), jnp.zeros_like(v), H)


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
