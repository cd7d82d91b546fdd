"""Dense derivatives of the soft law's constraint force in closed form: what `linearize` is made of."""

from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi import penalty as p_
from ukemi import spatial
from ukemi.constraint import Frame, reference, row_softness, scalar_blocks
from ukemi.contact import contact_jacobian, contact_law, contact_parameters, contact_softness
from ukemi.forces import acts_on_joints, actuator_force, on_joints, saturated, transmission
from ukemi.kinematics import difference
from ukemi.model import Model
from ukemi.penalty import RowKinds
from ukemi.tree import BALL
from ukemi.turning import Change, Follow, Pull, Turning, ridden, times, turning_pull, wrench_slopes


class ConstraintSlopes(NamedTuple):
    """Derivatives of the constraint force Jᵀ f (nv,) at constant acceleration, and the curvature that it adds to M."""

    q: Array  # (nv, nv)
    v: Array  # (nv, nv)
    H: Array  # (nv, nv) Jᵀ H[s] J


def contact_slopes(kinds: RowKinds, frame: Frame, a: Array, follow: Follow) -> ConstraintSlopes:
    """Slopes of the contacts."""
    x = jnp.stack([a, frame.v], -1)
    turning = Turning.of(frame.model, frame.kin, frame.contacts, kinds.dim, x, follow)
    seen = turning.rates.relative
    law, dim, nv = _change(contact_pushes(kinds, frame, seen[:, 0].T, seen[:, 1].T)), kinds.dim, len(a)
    W = turning.W[:dim]
    J, (Z,), edges = wrench_slopes(turning, [law], [times(cast(Array, m), W) for m in law.by])
    q = ridden(frame.model.tree, turning, cast(Array, law.force), J, Z)
    stiff, damped = edges[:dim], edges[dim:]
    both = lax.collapse(jnp.concatenate([damped, stiff], -1), 0, 2)
    product = spatial.gram(lax.collapse(J[:dim], 0, 2), both)
    return ConstraintSlopes(q, product[:, :nv], -product[:, nv:])


class Pushes(NamedTuple):
    """Forces f of contacts, and how they follow acceleration, velocity and distance."""

    force: Array  # (n, dim)
    by: Array  # (n, dim, dim) ∂f/∂(J a); ∂f/∂(J v) is this times the damping
    damping: Array  # (n, dim)
    nearer: Array  # (n, dim) ∂f/∂distance


def contact_pushes(kinds: RowKinds, frame: Frame, a: Array, v: Array) -> Pushes:
    """Forces of contacts that move at acceleration a (n, ·) and velocity v (n, ·), each in its frame."""
    model, contacts, dim = frame.model, frame.contacts, kinds.dim
    prm = contact_parameters(model, contacts.pair)
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
    return Pushes(f, P, contact_softness(model, prm, kinds, contacts.distance).damping, nearer)


def _change(pushes: Pushes) -> Change:
    """With the contacts as the last axis."""
    f, P, damping, nearer = pushes
    full = jnp.pad(f, ((0, 0), (0, 6 - f.shape[1])))
    parts = spatial.materialize((full, P, P * damping[:, None], nearer))
    force, first, second, nearer = spatial.materialize(tuple(jnp.moveaxis(part, 0, -1) for part in parts))
    return Change(force, (first, second), nearer)


def contact_curvature(kinds: RowKinds, frame: Frame, a: Array) -> tuple[Array, Pushes]:
    """Jᵀ H[s] J (nv, nv) of the contacts, and their forces."""
    J = contact_jacobian(frame.model, frame.kin, frame.contacts, kinds.dim)
    moving = (J.reshape(-1, len(a)) @ jnp.stack([a, frame.v], -1)).reshape(*J.shape[:2], 2)
    pushes = spatial.materialize(contact_pushes(kinds, frame, moving[..., 0], moving[..., 1]))
    stiff = cast(Array, sum(pushes.by[:, :, k, None] * J[:, None, k] for k in range(kinds.dim)))
    return -spatial.gram(J.reshape(-1, len(a)), stiff.reshape(-1, len(a))), pushes


def contact_pull(kinds: RowKinds, frame: Frame, a: Array, w: Array, pushes: Pushes) -> tuple[Pull, Array]:
    """wᵀ ∂(Jᵀ f) of the contacts, along q, along the rates w, a and v, and along their distances (n,).

    `contact_slopes`, added up over its rows.
    """
    x, dim = jnp.stack([w, a, frame.v], -1), kinds.dim
    turning = Turning.of(frame.model, frame.kin, frame.contacts, dim, x)
    f, P, damping, nearer = spatial.materialize(tuple(jnp.moveaxis(part, 0, -1) for part in pushes))
    along = turning.rates.relative[:dim, 0]  # J w
    stiff = times(P.transpose(1, 0, 2), along[:, None])[:, 0]
    by = jnp.pad(jnp.stack([f, stiff, stiff * damping], 1), ((0, 6 - dim), (0, 0), (0, 0)))
    return turning_pull(turning, spatial.materialize(by)), (along * nearer).sum(0)


# ---- rows that are not contacts ------------------------------------------------------------------------------------


def row_slopes(kinds: RowKinds, frame: Frame, a: Array) -> ConstraintSlopes:
    """Slopes of dry friction and of limits of hinges and slides, whose Jacobians are constant; the curvature of all.

    Where other rows are among them (`has_constant_rows`), only the curvature: their slopes are left to AD.
    """
    if has_constant_rows(frame.model, kinds):
        diagonals = diagonal_slopes(kinds, frame, a)
        return ConstraintSlopes(*(jnp.diag(diagonals[k]) for k in range(3)))
    nothing = jnp.zeros((len(a), len(a)), a.dtype)
    J, stiff = (jnp.concatenate(part) for part in _row_changes(kinds, frame, a)[:2])
    return ConstraintSlopes(nothing, nothing, -spatial.gram(J, stiff[:, None] * J))


def diagonal_slopes(kinds: RowKinds, frame: Frame, a: Array) -> Array:
    """Diagonals (3, nv) of the slopes of constant rows in q and v and of their curvature, which are nothing else: each
    row moves one dof, by plus or minus one.
    """
    model = frame.model
    _, stiff, damped, nearer = (jnp.concatenate(part) for part in _row_changes(kinds, frame, a))
    nearer = jnp.where(np.arange(len(nearer)) < kinds.dry, 0.0, nearer)  # dry friction has no position
    joint = model.joints.layout.limit_rows[:, 0] if kinds.limit else np.zeros(0, int)
    dofs = np.concatenate([model.joints.layout.dry if kinds.dry else joint[:0], model.tree.joint_dof[joint]])
    own = (dofs[:, None] == np.arange(model.nv)).astype(a.dtype)
    return jnp.stack([nearer, damped, -stiff]) @ own


def _row_changes(kinds: RowKinds, frame: Frame, a: Array) -> tuple[list, list, list, list]:
    """J of rows that are not contacts, and how their forces follow J a, J v and the position error, kind by kind."""
    J, stiff, damped, nearer = [], [], [], []
    blocks = scalar_blocks(frame, kinds)
    laws = [reference(frame.model, block, frame.v) for block in blocks]
    D = jnp.concatenate([law[2] for law in laws])
    x = jnp.concatenate([block.J @ a - law[0] for block, law in zip(blocks, laws, strict=True)])
    limit = frame.model.joints.frictionloss[frame.model.joints.layout.dry]
    empty = p_.Penalty(D, limit, *(jnp.zeros((0, 1), a.dtype),) * 4)
    only = RowKinds(kinds.equality, kinds.dry, kinds.limit, 0, 1, kinds.cone, False)
    force, P = p_.force(only, empty, x), -p_.hessian(only, empty, x)[0]
    start = 0
    for block, (_, R, _) in zip(blocks, laws, strict=True):
        rows = slice(start, start + len(block.residual))
        start = rows.stop
        soft, change = _softness_slope(frame.model, block)
        J.append(block.J)
        stiff.append(P[rows])
        damped.append(P[rows] * soft.damping)
        nearer.append(P[rows] * change.push - force[rows] * change.R / R)
    return J, stiff, damped, nearer


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


def has_plain_forces(model: Model) -> bool:
    """Whether `force_slopes` covers all forces but applied wrenches: springs, dampers and actuators of joints."""
    return not (model.options.layout.fluid or model.bodies.layout.compensated) and acts_on_joints(model)


def force_slopes(model: Model, kin, q: Array, v: Array, act: Array, ctrl: Array) -> ForceSlopes:
    """Slopes of actuators of hinges and slides, and of joint springs and dampers."""
    joints, disabled, nv = model.joints, model.options.layout.disabled, model.nv
    spring = damper = jnp.zeros((nv, nv), v.dtype)
    if joints.layout.springs and "spring" not in disabled:
        spring = _spring_slope(model, q)
    if joints.layout.damped and "damper" not in disabled:
        damper = -jnp.diag(joints.damping)
    per_act, per_ctrl = (jnp.zeros((nv, n), v.dtype) for n in (model.na, model.nu))
    if model.nu and "actuation" not in disabled:
        moment, force, (per_length, per_velocity, *signal) = _actuator_slopes(model, kin, q, v, act, ctrl, 0)
        moment = jnp.where(saturated(model, force @ moment), 0.0, moment)  # joints at their limit feel nothing of them
        spring = spring + on_joints(model, moment, per_length)
        damper = damper + on_joints(model, moment, per_velocity)
        per_act, per_ctrl = _of_signal(model, moment, *signal)
    return ForceSlopes(spring, damper, per_act, per_ctrl)


def damping_slopes(model: Model, kin, q: Array, v: Array, act: Array, ctrl: Array, e: Array) -> ForceSlopes:
    """Slopes of D e (nv,), with D the forces' own slope in velocity: that of actuators depends on what their gain
    multiplies alone, that of joints' dampers is constant.

    `forces.actuation` has D: nothing of actuators of joints at their limit.
    """
    still, per_act, per_ctrl = (jnp.zeros((model.nv, n), e.dtype) for n in (model.nv, model.na, model.nu))
    if model.nu and "actuation" not in model.options.layout.disabled:
        moment, force, (_, _, *signal) = _actuator_slopes(model, kin, q, v, act, ctrl, 1)
        moment = jnp.where(saturated(model, force @ moment), 0.0, moment)
        per_act, per_ctrl = _of_signal(model, moment**2 * e, *signal)
    return ForceSlopes(still, still, per_act, per_ctrl)


def _spring_slope(model: Model, q: Array) -> Array:
    """∂(spring forces)/∂q (nv, nv): of a rotation, stretched by u, with ∂u = J_r(u)⁻¹ δ."""
    tree, stretch = model.tree, np.eye(model.nv, dtype=q.dtype)
    if model.joints.layout.turning_springs:
        u = spatial.pick(difference(tree, q, model.joints.qpos_spring), tree.quat_dof)
        stretch = spatial.with_blocks(stretch, tree.quat_dof, spatial.right_jacobian_inverse(u))
    return -model.joints.stiffness[tree.dof_joint][:, None] * stretch


def _actuator_slopes(model: Model, kin, q: Array, v: Array, act: Array, ctrl: Array, which: int):
    """Moment (nu, nv) and force (nu,) of actuators of joints, and slopes of the force (which = 0), or of its own slope
    in velocity (1), in each actuator's length, velocity, activation and control (nu,).
    """
    length, moment = transmission(model, kin, q)
    values = length, moment @ v, act, ctrl
    partials = []
    for k, value in enumerate(values):
        along = tuple(jnp.ones_like(x) if i == k else jnp.zeros_like(x) for i, x in enumerate(values))
        if value.size:
            partials.append(jax.jvp(lambda *x: actuator_force(model, *x)[which], values, along)[1])
        else:
            partials.append(jnp.zeros(model.nu, v.dtype))
    return moment, actuator_force(model, *values)[0], partials


def _of_signal(model: Model, moment: Array, per_act: Array, per_ctrl: Array) -> tuple[Array, Array]:
    """Slopes of momentᵀ force in activation (nv, na) and control (nv, nu)."""
    own = model.actuators.layout.act[:, None] == np.arange(model.na)
    return (moment.T * per_act) @ own.astype(moment.dtype), moment.T * per_ctrl
