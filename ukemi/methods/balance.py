"""The balance of forces of the soft law: the residual that its solver brings to zero.

R(a) = M a + c − τ − Jᵀ f(J a − a_ref), with Jacobian H = M + Jᵀ H[s] J; and, for integrators that take a slope D
implicitly, M̂ e − M a with M̂ = M − h D. Their derivatives are in `methods.balance_rules`.
"""

from typing import NamedTuple, cast

import jax.numpy as jnp
from jax import Array, lax

from ukemi import forces as f_
from ukemi.collide.detect import Contacts, detect
from ukemi.constraint import Frame, Rows, constraint_force, constraint_rows, frame_of
from ukemi.dynamics import Smooth, inertial_force, motion_force
from ukemi.kinematics import Kinematics, of_state, velocities
from ukemi.methods import integrators as i_
from ukemi.model import Input, Model, State
from ukemi.penalty import RowKinds


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


def slope(integrator: str, here: Here) -> i_.Slope:
    """What the integrator takes implicitly."""
    velocity = velocities(here.model.tree, here.kin.S, here.v)
    return i_.implicit_slope(integrator, here.model, here.kin, velocity, here.v, forces(here)[1])
