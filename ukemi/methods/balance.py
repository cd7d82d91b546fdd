"""The balance of forces of the soft law: the residual that its solver brings to zero, and the residual's derivatives.

R(a) = M a + c − τ − Jᵀ f(J a − a_ref), with Jacobian H = M + Jᵀ H[s] J; and, for integrators that take a slope D
implicitly, M̂ e − M a with M̂ = M − h D. The implicit rule comes in two forms that agree: `vector_rule` moves vectors
through the residual, for gradients and for any parameter; `dense_rule` has the Jacobians in state and controls.
"""

import dataclasses
from functools import partial
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import Array, lax

from ukemi import forces as f_
from ukemi import slopes as s_
from ukemi.batching import one_by_one
from ukemi.collide.detect import Contacts, detect, reach_of_pairs
from ukemi.collide.response import responses
from ukemi.collide.shapes import Shape
from ukemi.constraint import Frame, Rows, constraint_force, constraint_rows, frame_of, scalar_force
from ukemi.dynamics import Smooth, inertial_force, inertial_slope, motion_force, motion_slopes, smooth
from ukemi.errors import GradientError
from ukemi.gradient import filled, pushforward, unmoved
from ukemi.kinematics import (
    Kinematics,
    carry,
    coordinate_rate,
    geom_frames,
    of_state,
    tangent_vector,
    velocities,
)
from ukemi.methods import integrators as i_
from ukemi.model import Input, Model, State
from ukemi.penalty import RowKinds
from ukemi.region import compact
from ukemi.solvers import hessian_active
from ukemi.solvers.linear import eliminate
from ukemi.solvers.slots import in_chunks
from ukemi.turning import Follow, still_groups


class Here(NamedTuple):
    """Everything that the acceleration depends on."""

    model: Model
    kin: Kinematics
    contacts: Contacts
    q: Array
    v: Array
    act: Array
    warm: Array  # (nv,) where the solver starts; it does not change what the solver finds
    inputs: Input


class Scene(NamedTuple):
    """What the solver of the constraints is given."""

    frame: Frame
    M: Array
    tau: Array
    warm: Array  # (nv,) where the solver starts


def here(model: Model, state: State, inputs: Input, ahead: Array | None = None) -> Here:
    """Kinematics and contacts of a state, of those up to `ahead` beyond their margin too."""
    kin = of_state(model, state, inputs)
    return here_at(model, state, inputs, kin, detect(model, kin, ahead))


def here_at(model: Model, state: State, inputs: Input, kin: Kinematics, contacts: Contacts) -> Here:
    """The same where kinematics and contacts are known."""
    warm = state.cache.acceleration
    if "warmstart" in model.options.layout.disabled:
        warm = jnp.zeros_like(warm)
    return Here(model, kin, contacts, state.q, state.v, state.act, lax.stop_gradient(warm), inputs)


def scene(here: Here, dyn: Smooth, tau: Array) -> Scene:
    """The solver's problem at `here`, with the sum τ (nv,) of all forces but constraints."""
    frame = Frame(here.model, here.kin, dyn.velocity, here.q, here.v, here.contacts)
    return Scene(frame, dyn.M, tau, here.warm)


def scene_rows(scene: Scene, kinds: RowKinds) -> Rows:
    """Constraint rows of a scene."""
    return constraint_rows(scene.frame, kinds)


def forces(here: Here) -> tuple[f_.Passive, f_.Actuation]:
    """Passive and actuator forces."""
    model, kin, _, q, v, act, _, inputs = here
    rest = f_.passive(model, kin, q, v)
    return rest, f_.actuation(model, kin, q, v, act, cast(Array, inputs.ctrl), rest.held)  # `as_input` fills ctrl


def applied(here: Here) -> Array:
    """All forces (nv,) but constraints and bias: τ."""
    rest, drive = forces(here)
    return rest.qfrc + drive.qfrc + f_.applied(here.model, here.kin, here.inputs, here.v)


def constraint_pull(kinds: RowKinds, here: Here, a: Array) -> tuple[Array, Array]:
    """Constraint forces f and Jᵀ f at acceleration a."""
    return constraint_force(frame_of(here), a, kinds)


# ---- residuals ------------------------------------------------------------------------------------------------------


def imbalance(kinds: RowKinds, a: Array, here: Here) -> Array:
    """M a + c − τ − Jᵀ f (nv,): zero at the acceleration of the soft law."""
    inertial = motion_force(here.model, here.kin, velocities(here.model.tree, here.kin.S, here.v), here.v, a)
    return inertial - applied(here) - constraint_pull(kinds, here, a)[1]


def lag(integrator: str, a: Array, e: Array, here: Here) -> Array:
    """M̂ e − M a (nv,): zero at the acceleration that the integrator uses."""
    return inertial_force(here.model, here.kin, e - a) - here.model.options.timestep * taken(integrator, e, here)


def taken(integrator: str, e: Array, here: Here) -> Array:
    """The part of the forces at acceleration e that the integrator takes implicitly: (D − C) e."""
    velocity = velocities(here.model.tree, here.kin.S, here.v)
    return i_.slope_product(integrator, here.model, here.kin, velocity, here.v, forces(here)[1], e)


def taken_slopes(integrator: str, e: Array, here: Here) -> s_.ForceSlopes:
    """Slopes of `taken`."""
    model, kin, _, q, v, act, _, inputs = here
    if i_.takes_forces_of_joints(integrator, model) and s_.has_plain_forces(model):
        return s_.damping_slopes(model, kin, q, v, act, cast(Array, inputs.ctrl), e)
    return columns_of(partial(taken, integrator, e), here)


def slope(integrator: str, here: Here) -> i_.Slope:
    """What the integrator takes implicitly."""
    velocity = velocities(here.model.tree, here.kin.S, here.v)
    return i_.implicit_slope(integrator, here.model, here.kin, velocity, here.v, forces(here)[1])


# ---- the implicit rule, vector by vector ------------------------------------------------------------------------


def vector_rule(kinds: RowKinds, implicit: str | None, z, here: Here, along: Here):
    """(da, de) along tangents of anything."""
    a, e = z
    dr = pushforward(partial(imbalance, kinds, a), here, along)
    if dr is None:
        return None
    dyn = smooth(here.model, here.kin, here.v)
    H = hessian_active(scene_rows, kinds, scene(here, dyn, jnp.zeros_like(a)), a)
    da = -_solve(H, dr)
    if not implicit:
        return da, da
    lagging = pushforward(partial(lag, implicit, a, e), here, along)
    force = inertial_force(here.model, here.kin, da) - lagging
    return da, i_.solve_implicit(implicit, here.model, dyn.M, slope(implicit, here), force)


def _solve(H: Array, rhs: Array) -> Array:
    return jsl.cho_solve((lax.linalg.cholesky(H, symmetrize_input=False), True), rhs)


# ---- the implicit rule with Jacobians ------------------------------------------------------------------------------


def dense_rule(kinds: RowKinds, implicit: str | None, z, here: Here, along: Here):
    """(da, de) along tangents of state and controls: products with the Jacobians of a and e."""
    others = along.model, dataclasses.replace(along.inputs, ctrl=None)
    if not unmoved(others):
        raise GradientError("dense derivatives are in state and controls only; use uk.step for other parameters.")
    parts = [along.q, along.v, along.act, along.inputs.ctrl]
    values = [here.q, here.v, here.act, here.inputs.ctrl]
    parts = [filled(t, like) for t, like in zip(parts, values, strict=True)]
    parts[0] = tangent_vector(here.model.tree, here.q, parts[0])
    A, E = compact(partial(jacobians, kinds, implicit))(z, here)
    tangent = jnp.concatenate(parts)
    return A @ tangent, E @ tangent


def jacobians(kinds: RowKinds, implicit: str | None, z, here: Here) -> tuple[Array, Array]:
    """∂a and ∂e (nv, nv + nv + na + nu) in position (tangent space), velocity, activation and control."""
    model, (a, e) = here.model, z
    dyn = smooth(model, here.kin, here.v)
    inertial = motion_slopes(model, here.kin, dyn.velocity, here.v, a)
    pull = _constraint_slopes(kinds, here, dyn, a)
    push = force_slopes(kinds, here, a)
    R = jnp.concatenate([inertial.q - pull.q - push.q, inertial.v - pull.v - push.v, -push.act, -push.ctrl], -1)
    A = -eliminate(dyn.M + pull.H, R)
    if not implicit:
        return A, A
    force = dyn.M @ A
    force = force - jnp.pad(inertial_slope(model, here.kin, e - a), ((0, 0), (0, force.shape[1] - model.nv)))
    if implicit != "Euler":  # the slope that Euler takes is a parameter
        force = force + model.options.timestep * jnp.concatenate(taken_slopes(implicit, e, here), -1)
    return A, eliminate(i_.implicit_matrix(model, dyn.M, slope(implicit, here)), force)


def _constraint_slopes(kinds: RowKinds, here: Here, dyn: Smooth, a: Array) -> s_.ConstraintSlopes:
    """Slopes of the constraint forces that have a closed form, and the curvature of all."""
    nothing = jnp.zeros((here.model.nv, here.model.nv), a.dtype)
    total = s_.ConstraintSlopes(nothing, nothing, nothing)
    there = scene(here, dyn, jnp.zeros_like(a))
    if kinds.scalar:
        total = s_.row_slopes(kinds, there.frame, a)
    if not kinds.contacts:
        return total
    follow = following(here, jnp.asarray(kinds.ahead.width, a.dtype) if kinds.ahead else None)

    def of_contacts(own: RowKinds, scene: Scene, follow: Follow) -> tuple[s_.ConstraintSlopes, tuple]:
        return s_.contact_slopes(own, scene.frame, scene.warm, follow), ()

    contacts, _ = in_chunks(of_contacts, kinds)(there._replace(warm=a), follow)
    return jax.tree.map(jnp.add, total, contacts)


def following(here: Here, ahead: Array | None = None) -> Follow:
    """How the contacts follow the shapes that they are of."""
    layout, shapes = here.model.pairs.layout, Shape(*geom_frames(here.model, here.kin), here.model.geoms.size)
    margin, gap = reach_of_pairs(here.model)
    reach = margin + gap if ahead is None else margin + gap + ahead
    G = one_by_one(partial(responses, layout, False, still_groups(here.model)))(reach, shapes, here.contacts)
    geoms = jnp.asarray(layout.geoms)[here.contacts.pair]
    return Follow(G, shapes.pos[geoms] - here.kin.ref[0])


def force_slopes(kinds: RowKinds, here: Here, a: Array) -> s_.ForceSlopes:
    """Slopes of τ, and of the constraint forces that have no closed form."""
    model, rows = here.model, not s_.has_constant_rows(here.model, kinds)
    plain = s_.has_plain_forces(model) and here.inputs.xfrc is None

    def force(here: Here) -> Array:
        out = jnp.zeros_like(a) if plain else applied(here)
        return out + scalar_force(kinds, here, a) if rows else out

    if not plain:
        return columns_of(force, here)
    slopes = s_.force_slopes(model, here.kin, here.q, here.v, here.act, cast(Array, here.inputs.ctrl))
    return jax.tree.map(jnp.add, slopes, columns_of(force, here)) if rows else slopes


def columns_of(function, here: Here) -> s_.ForceSlopes:
    """Jacobians of a function of `here` by AD, in position, velocity, activation and control."""

    def moved(shift, v, act, ctrl):
        kin = jax.tree.map(jnp.add, here.kin, carry(here.model, here.kin, shift))
        q = here.q + coordinate_rate(here.model.tree, here.q, shift)
        inputs = dataclasses.replace(here.inputs, ctrl=ctrl)
        return function(here._replace(kin=kin, q=q, v=v, act=act, inputs=inputs))

    start = jnp.zeros_like(here.v), here.v, here.act, cast(Array, here.inputs.ctrl)
    return s_.ForceSlopes(*jax.jacfwd(moved, argnums=(0, 1, 2, 3))(*start))
