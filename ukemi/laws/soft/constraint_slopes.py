"""Dense derivatives of the soft law's constraint force in closed form: what `linearize` is made of."""

import dataclasses
from functools import partial
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.constraints.adhesion import adhesion_at
from ukemi.constraints.block import Frame
from ukemi.constraints.contact_slopes import (
    Change,
    Follow,
    Pull,
    Turning,
    of_slip,
    ridden,
    times,
    turning_pull,
    wrench_slopes,
)
from ukemi.constraints.contacts import contact_jacobian, contact_parameters, surface_slip
from ukemi.constraints.rows import RowKinds, constant_dofs, squares
from ukemi.laws.soft.contacts import contact_softness, law_of_softness, pressed
from ukemi.laws.soft.penalty import Penalty, penalty_force, penalty_hessian
from ukemi.laws.soft.rows import all_scalar, row_softness, rows_of_softness
from ukemi.maths import spatial
from ukemi.model.records import Model


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
    law, dim, nv = _change(frame.model, contact_pushes(kinds, frame, seen[:, 0].T, seen[:, 1].T)), kinds.dim, len(a)
    W = turning.W[:dim]
    J, (Z,), edges = wrench_slopes(turning, [law], [times(cast(Array, m), W) for m in law.by[:2]])
    q = ridden(frame.model.tree, turning, cast(Array, law.force), J, Z)
    stiff, damped = edges[:dim], edges[dim:]
    both = lax.collapse(jnp.concatenate([damped, stiff], -1), 0, 2)
    product = spatial.gram(lax.collapse(J[:dim], 0, 2), both)
    return ConstraintSlopes(q, product[:, :nv], -product[:, nv:])


class Pushes(NamedTuple):
    """Net forces f of contacts, and how they follow acceleration, velocity and distance."""

    force: Array  # (n, dim)
    by: Array  # (n, dim, dim) ∂f/∂(J a); ∂f/∂(J v) is this times the damping
    damping: Array  # (n, dim)
    nearer: Array  # (n, dim) ∂f/∂distance


def contact_pushes(kinds: RowKinds, frame: Frame, a: Array, v: Array) -> Pushes:
    """Forces of contacts that move at acceleration a (n, ·) and velocity v (n, ·), each in its frame; v without the
    running of their surfaces.
    """
    model, contacts, dim = frame.model, frame.contacts, kinds.dim
    prm = contact_parameters(model, contacts.pair)
    press = pressed(model, prm, kinds, contacts)

    def of_distance(distance):
        return contact_softness(model, prm, kinds, distance, press)

    one = jnp.ones_like(contacts.distance)
    soft, (push, _, R_dot) = jax.jvp(of_distance, (contacts.distance,), (one,))
    velocity = v[:, :dim] + surface_slip(model, frame.kin, contacts, dim)
    law = law_of_softness(model, prm, contacts, kinds, velocity, soft)
    only = dataclasses.replace(kinds, hold=0, rub=0, push=0)
    empty = jnp.zeros(0, a.dtype)
    penalty = Penalty(empty, empty, *law[1:])
    x = (a[:, :dim] - law.aref).reshape(-1)
    f = penalty_force(only, penalty, x).reshape(-1, dim)
    P = -penalty_hessian(only, penalty, x)[1]
    # forces are in proportion to 1/R at given x
    nearer = P[:, :, 0] * push[:, None] - f * (R_dot / soft.R)[:, None]
    nearer = jnp.where(contacts.active[:, None], nearer, 0.0)
    net = f.at[:, 0].add(-adhesion_at(model, contacts)) if model.pairs.layout.adheres else f
    return Pushes(net, P, soft.damping, nearer)


def _change(model: Model, pushes: Pushes) -> Change:
    """With the contacts as the last axis."""
    f, P, damping, nearer = pushes
    full = jnp.pad(f, ((0, 0), (0, 6 - f.shape[1])))
    parts = spatial.materialize((full, P, P * damping[:, None], nearer))
    force, first, second, nearer = spatial.materialize(tuple(jnp.moveaxis(part, 0, -1) for part in parts))
    return Change(force, (first, second, *of_slip(model, second)), nearer)


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
    slip = of_slip(frame.model, (stiff * damping)[None])
    by = jnp.stack([f, stiff, stiff * damping, *(part[0] for part in slip)], 1)
    by = jnp.pad(by, ((0, 6 - dim), (0, 0), (0, 0)))
    return turning_pull(turning, spatial.materialize(by)), (along * nearer).sum(0)


# ---- rows that are not contacts ------------------------------------------------------------------------------------


def row_slopes(kinds: RowKinds, frame: Frame, a: Array) -> ConstraintSlopes:
    """Slopes of dry friction and of limits of hinges and slides, whose Jacobians are constant; the curvature of all.

    Where other rows are among them (`constant_dofs`), only the curvature: their slopes are left to AD.
    """
    if constant_dofs(frame.model) is not None:
        diagonals = diagonal_slopes(kinds, frame, a)
        return ConstraintSlopes(*(jnp.diag(diagonals[k]) for k in range(3)))
    nothing = jnp.zeros((len(a), len(a)), a.dtype)
    J, stiff, *_ = _row_changes(kinds, frame, a)
    return ConstraintSlopes(nothing, nothing, -squares(kinds, J, stiff))


def diagonal_slopes(kinds: RowKinds, frame: Frame, a: Array) -> Array:
    """Diagonals (3, nv) of the slopes of constant rows in q and v and of their curvature, which are nothing else: each
    row moves one dof, by plus or minus one.
    """
    stiff, damped, nearer = spatial.materialize(_row_changes(kinds, frame, a)[1:])
    nearer = jnp.where(np.arange(len(nearer)) < kinds.rub, 0.0, nearer)  # what rubs has no position
    dofs = cast(np.ndarray, constant_dofs(frame.model))
    own = (dofs[:, None] == np.arange(len(a))).astype(a.dtype)
    return jnp.stack([nearer, damped, -stiff]) @ own


def _row_changes(kinds: RowKinds, frame: Frame, a: Array) -> tuple[Array, Array, Array, Array]:
    """J of rows that are not contacts, and how their forces follow J a, J v and the position error."""
    rows, bound = all_scalar(frame)
    one = jnp.ones_like(rows.residual)
    # of rows whose two position errors are one, the derivative in it
    soft, change = jax.jvp(partial(row_softness, frame.model, rows), (rows.residual, rows.depth), (one, one))
    law = rows_of_softness(frame, rows, bound, soft)
    x = rows.J @ a - law.aref
    penalty = Penalty(law.D, law.bound, *(jnp.zeros((0, 1), a.dtype),) * 4)
    only = dataclasses.replace(kinds, contacts=0)
    force, P = penalty_force(only, penalty, x), -penalty_hessian(only, penalty, x)[0]
    return rows.J, P, P * soft.damping, P * change.push - force * change.R / law.R
