"""Where a step stands: poses, contacts, and the forces that are not constraints."""

from typing import NamedTuple, cast

import jax.numpy as jnp
from jax import Array, lax

from ukemi.collide.detect import Contacts, detect
from ukemi.constraints.adhesion import grips
from ukemi.constraints.block import Frame
from ukemi.mechanics.forces import Actuation, Passive, actuation, passive
from ukemi.mechanics.forces import applied as applied_wrenches
from ukemi.mechanics.kinematics import Kinematics, Velocities, of_state, velocities
from ukemi.model.records import Input, Model, State


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
    ahead: Array | None  # distance beyond margins, one or per pair, from which on contacts are known [m]


def here_of(model: Model, state: State, inputs: Input, ahead: Array | None = None) -> Here:
    """Kinematics and contacts of a state, of those up to `ahead` beyond their margin too."""
    return here_at(model, state, inputs, of_state(model, state, inputs), ahead)


def here_at(model: Model, state: State, inputs: Input, kin: Kinematics, ahead: Array | None) -> Here:
    """The same where the kinematics are known."""
    warm = state.cache.acceleration
    if "warmstart" in model.options.layout.disabled:
        warm = jnp.zeros_like(warm)
    contacts, warm = detect(model, kin, ahead), lax.stop_gradient(warm)
    return Here(model, kin, contacts, state.q, state.v, state.act, warm, inputs, ahead)


def forces(here: Here) -> tuple[Passive, Actuation]:
    """Passive and actuator forces."""
    model, kin, contacts, q, v, act, _, inputs, ahead = here
    rest = passive(model, kin, q, v, act)
    ctrl = cast(Array, inputs.ctrl)  # `as_input` fills it
    return rest, actuation(model, kin, q, v, act, ctrl, rest.held, grips(model, kin, contacts, ahead))


def applied(here: Here) -> Array:
    """All forces (nv,) but constraints and bias: τ."""
    rest, drive = forces(here)
    return rest.qfrc + drive.qfrc + applied_wrenches(here.model, here.kin, here.inputs, here.v)


def frame_of(here: Here, velocity: Velocities | None = None) -> Frame:
    """What rows are made from; velocity: where it is known already."""
    velocity = velocity or velocities(here.model.tree, here.kin.S, here.v)
    return Frame(here.model, here.kin, velocity, here.q, here.v, here.contacts)
