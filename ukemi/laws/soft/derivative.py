"""The derivatives of the balance of forces: the implicit rule of the soft law.

Along state and controls they are closed forms: products with the Jacobians forward, and one pull, which costs about a
step, in reverse. Along anything else AD moves vectors through the residual, at the fixed solution.
"""

import dataclasses
from functools import partial
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array

from ukemi.collide.response import OnContact
from ukemi.collide.response import pull as pull_on_shapes
from ukemi.constraints.contact_slopes import Follow, still_groups
from ukemi.constraints.rows import RowKinds, constant_dofs
from ukemi.implicit.linear_maps import transposable
from ukemi.implicit.rule import filled, pushforward, unmoved
from ukemi.laws.active_contacts import in_chunks
from ukemi.laws.here import Here, applied_apart
from ukemi.laws.here_slopes import (
    applied_pull,
    applied_slopes,
    applies_plain_forces,
    columns_of,
    following,
    moving,
    posed,
)
from ukemi.laws.integrators import Integrator, implicit_matrix
from ukemi.laws.soft import constraint_slopes
from ukemi.laws.soft.balance import Scene, imbalance, lag, scene, slope, taken
from ukemi.laws.soft.rows import scalar_force
from ukemi.maths import spatial
from ukemi.maths.gathers import mix
from ukemi.maths.systems import eliminate, solve
from ukemi.mechanics.dynamics import (
    Smooth,
    body_inertias,
    inertial_slope,
    mass_matrix,
    motion_force,
    motion_pull,
    motion_slopes,
    smooth,
)
from ukemi.mechanics.force_slopes import ForceSlopes, damping_slopes, has_constant_damping, has_turning_forces
from ukemi.mechanics.kinematics import (
    shared_reference,
    tangent_vector,
    velocities,
)
from ukemi.xla.batches import one_by_one
from ukemi.xla.stages import compact


def rule(kinds: RowKinds, implicit: Integrator | None, z, here: Here, along: Here):
    """(da, de) along tangents of anything."""
    others = along.model, dataclasses.replace(along.inputs, ctrl=None)
    if unmoved(others):  # kinematics and contacts follow the state
        return _along_state(kinds, implicit, z, here, along)
    return _along_anything(kinds, implicit, z, here, along)


# ---- along anything, vector by vector -----------------------------------------------------------------------------


def _along_anything(kinds: RowKinds, implicit: Integrator | None, z, here: Here, along: Here):
    a, e = z
    dr = pushforward(partial(imbalance, kinds, a), here, along)
    if dr is None:
        return None
    dyn = smooth(here.model, here.kin, here.v)
    da = -solve(_curved(kinds, here, dyn, a).H, dr)
    if not implicit:
        return da, da
    lagging = pushforward(partial(lag, implicit, a, e), here, along)
    force = motion_force(here.model, here.kin, da) - lagging
    return da, implicit.solve(here.model, dyn.M, slope(implicit, here), force)


class _Curved(NamedTuple):
    """The residual's Jacobian in a, and what else the constraints' derivatives are made of."""

    H: Array  # (nv, nv) M + Jᵀ H[s] J
    rows: Array | None  # of rows that are not contacts, where they are constant: `constraint_slopes.diagonal_slopes`
    pushes: constraint_slopes.Pushes | None  # of contacts


def _curved(kinds: RowKinds, here: Here, dyn: Smooth, a: Array) -> _Curved:
    there, H, rows, pushes = scene(here, dyn, jnp.zeros_like(a))._replace(warm=a), dyn.M, None, None
    if kinds.scalar and constant_dofs(here.model) is not None:
        rows = constraint_slopes.diagonal_slopes(kinds, there.frame, a)
        H = H + jnp.diag(rows[2])
    elif kinds.scalar:
        H = H + constraint_slopes.row_slopes(kinds, there.frame, a).H
    if kinds.contacts:
        of_contacts = in_chunks(
            lambda own, scene: constraint_slopes.contact_curvature(own, scene.frame, scene.warm), kinds
        )
        more, pushes = of_contacts(there)
        H = H + more
    return _Curved(H, rows, pushes)


# ---- along state and controls ----------------------------------------------------------------------------------------


def _along_state(kinds: RowKinds, implicit: Integrator | None, z, here: Here, along: Here):
    parts = [along.q, along.v, along.act, along.inputs.ctrl]
    values = [here.q, here.v, here.act, here.inputs.ctrl]
    parts = [filled(t, like) for t, like in zip(parts, values, strict=True)]
    parts[0] = tangent_vector(here.model.tree, here.q, parts[0])
    move = transposable(partial(_push, kinds, implicit), compact(partial(_pull, kinds, implicit)))
    return move((z, here), tuple(parts), z)


def _push(kinds: RowKinds, implicit: Integrator | None, known, along):
    """(da, de) along changes of position (tangent space), velocity, activation and control."""
    A, E = compact(partial(jacobians, kinds, implicit))(*known)
    along = jnp.concatenate(along)
    return A @ along, E @ along


def _pull(kinds: RowKinds, implicit: Integrator | None, known, cotangents):
    """The transpose of `_push`: −wᵀ ∂R with H w = the cotangents of a, and the same of M̂ᵀ u = those of e."""
    z, here = known
    (a, e), (w, u), model, h = z, cotangents, here.model, here.model.options.timestep
    pseudo = spatial.materialize(body_inertias(model, here.kin))
    velocity = velocities(model.tree, here.kin.S, here.v)
    dyn = Smooth(spatial.materialize(mass_matrix(model, here.kin, pseudo)), jnp.zeros_like(a), velocity)
    curved, pulls = _curved(kinds, here, dyn, a), []
    if implicit:
        u = implicit.solve_transposed(model, dyn.M, slope(implicit, here), u)
        pulls.append((-motion_pull(model, here.kin, pseudo, e - a, u)[0], jnp.zeros_like(a)))
        if implicit.follows_state(model):
            pulls.append(_pulled(partial(taken, implicit, e), here, h * u))
        u = dyn.M @ u
    w = solve(curved.H, w + u)
    moving = motion_pull(model, here.kin, pseudo, a, w, velocity)
    pulls += [jax.tree.map(jnp.negative, moving), *_open_pulls(kinds, a, here, w)]
    if curved.rows is not None:
        pulls.append((w * curved.rows[0], w * curved.rows[1]))
    if curved.pushes is not None:
        pulls.append(_contact_pull(kinds, scene(here, dyn, w)._replace(warm=a), curved.pushes))
    q, v = (sum(pull[k] for pull in pulls) for k in (0, 1))
    act, ctrl = (sum(pull[k] for pull in pulls if len(pull) > 2) for k in (2, 3))
    return q, v, act, ctrl


def _contact_pull(kinds: RowKinds, there: Scene, pushes: constraint_slopes.Pushes) -> tuple[Array, Array]:
    """wᵀ ∂(Jᵀ f)/∂q and wᵀ ∂(Jᵀ f)/∂v (nv,) of the contacts of a scene, whose `tau` is w and whose `warm` is a."""

    def of_contacts(own: RowKinds, scene: Scene, pushes: constraint_slopes.Pushes):
        pull, distance = constraint_slopes.contact_pull(own, scene.frame, scene.warm, scene.tau, pushes)
        return (pull.q, pull.rates[2]), OnContact(distance, pull.frame[:, :3], pull.frame[:, 3:])

    (q, v), on = in_chunks(of_contacts, kinds)(there, pushes)
    model, kin, contacts = there.frame.model, there.frame.kin, there.frame.contacts
    layout, (reach, shapes) = model.pairs.layout, posed(model, kin, _ahead(kinds, q.dtype))
    on_shapes = one_by_one(partial(pull_on_shapes, layout, False, still_groups(model)))(reach, shapes, contacts, on)
    origin, S = shared_reference(model.tree, kin)
    push, twist = on_shapes[:, :3], on_shapes[:, 3:]
    wrench = jnp.concatenate([twist + spatial.cross(shapes.pos - origin, push), push], -1)
    return q + (S * mix(model.tree.moves[model.geoms.layout.body].T, wrench)).sum(-1), v


def _open_force(kinds: RowKinds, a: Array, here: Here) -> Array:
    """τ but adhesion, and the constraint forces that have no closed form."""
    force = applied_apart(here)
    return force if constant_dofs(here.model) is not None else force + scalar_force(kinds, a, here)


def _open_pulls(kinds: RowKinds, a: Array, here: Here, w: Array) -> list[ForceSlopes]:
    """wᵀ ∂ of the same: of tendons' forces, of which AD keeps much, in closed form."""
    if not (applies_plain_forces(here) and has_turning_forces(here.model)):
        return [_pulled(partial(_open_force, kinds, a), here, w)]
    pulls = [applied_pull(here, w)]
    if constant_dofs(here.model) is None:
        pulls.append(_pulled(partial(scalar_force, kinds, a), here, w))
    return pulls


def _pulled(function, here: Here, w: Array) -> ForceSlopes:
    """wᵀ ∂function by AD in position, velocity, activation and control."""
    moved, start = moving(function, here)
    return ForceSlopes(*jax.vjp(moved, *start)[1](w))


# ---- Jacobians ----------------------------------------------------------------------------------------------------


def jacobians(kinds: RowKinds, implicit: Integrator | None, z, here: Here) -> tuple[Array, Array]:
    """∂a and ∂e (nv, nv + nv + na + nu) in position (tangent space), velocity, activation and control."""
    model, (a, e) = here.model, z
    dyn = smooth(model, here.kin, here.v)
    inertial = motion_slopes(model, here.kin, a, dyn.velocity)
    pull = _constraint_slopes(kinds, here, dyn, a)
    push = _open_slopes(kinds, here, a)
    R = jnp.concatenate([inertial.q - pull.q - push.q, inertial.v - pull.v - push.v, -push.act, -push.ctrl], -1)
    A = -eliminate(dyn.M + pull.H, R)
    if not implicit:
        return A, A
    force = dyn.M @ A
    force = force - jnp.pad(inertial_slope(model, here.kin, e - a), ((0, 0), (0, force.shape[1] - model.nv)))
    if implicit.follows_state(model):
        force = force + model.options.timestep * jnp.concatenate(_taken_slopes(implicit, e, here), -1)
    return A, eliminate(implicit_matrix(model, dyn.M, slope(implicit, here)), force)


def _constraint_slopes(kinds: RowKinds, here: Here, dyn: Smooth, a: Array) -> constraint_slopes.ConstraintSlopes:
    """Slopes of the constraint forces that have a closed form, and the curvature of all."""
    nothing = jnp.zeros((here.model.nv, here.model.nv), a.dtype)
    total = constraint_slopes.ConstraintSlopes(nothing, nothing, nothing)
    there = scene(here, dyn, jnp.zeros_like(a))
    if kinds.scalar:
        total = constraint_slopes.row_slopes(kinds, there.frame, a)
    if not kinds.contacts:
        return total

    def of_contacts(own: RowKinds, scene: Scene, follow: Follow) -> tuple[constraint_slopes.ConstraintSlopes, tuple]:
        return constraint_slopes.contact_slopes(own, scene.frame, scene.warm, follow), ()

    contacts, _ = in_chunks(of_contacts, kinds)(there._replace(warm=a), following(here, _ahead(kinds, a.dtype)))
    return jax.tree.map(jnp.add, total, contacts)


def _ahead(kinds: RowKinds, dtype) -> Array | None:
    return jnp.asarray(kinds.ahead.width, dtype) if kinds.ahead else None


def _taken_slopes(integrator: Integrator, e: Array, here: Here) -> ForceSlopes:
    """Slopes of `taken`."""
    model, kin, _, q, v, act, _, inputs, *_ = here
    if integrator.takes_forces_of_joints(model) and has_constant_damping(model):
        return damping_slopes(model, kin, q, v, act, cast(Array, inputs.ctrl), e)
    return columns_of(partial(taken, integrator, e), here)


def _open_slopes(kinds: RowKinds, here: Here, a: Array) -> ForceSlopes:
    """Slopes of `_open_force`."""
    if constant_dofs(here.model) is not None:
        return applied_slopes(here)
    if applies_plain_forces(here):
        return jax.tree.map(jnp.add, applied_slopes(here), columns_of(partial(scalar_force, kinds, a), here))
    return columns_of(partial(_open_force, kinds, a), here)
