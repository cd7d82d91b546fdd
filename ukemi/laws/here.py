"""Where a step stands: poses, contacts, and the forces that are not constraints."""

from typing import NamedTuple, cast

import jax.numpy as jnp
from jax import Array, lax

from ukemi.collide.detect import Contacts, detect
from ukemi.constraints.adhesion import adhesion_at, grips, pull_of_contacts
from ukemi.constraints.block import Frame
from ukemi.constraints.rows import RowKinds
from ukemi.implicit.rule import keep
from ukemi.mechanics.force_slopes import acts_along_tendons
from ukemi.mechanics.forces import Actuation, Passive, actuation, passive
from ukemi.mechanics.forces import applied as applied_wrenches
from ukemi.mechanics.kinematics import Kinematics, Velocities, of_state, velocities
from ukemi.mechanics.tendons.paths import Strung, strung
from ukemi.model.records import Input, Model, State
from ukemi.xla.stages import compact


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
    tendons: Strung | None = None  # at these poses; None where no force acts along them, or not looked at yet

    def at(self, kin: Kinematics, **changes) -> "Here":
        """The same at other poses, and with other changes."""
        return self._replace(kin=kin, tendons=None, **changes)


def here_of(model: Model, state: State, inputs: Input, ahead: Array | None = None) -> Here:
    """Kinematics and contacts of a state, of those up to `ahead` beyond their margin too."""
    return here_at(model, state, inputs, of_state(model, state, inputs), ahead)


def here_at(
    model: Model, state: State, inputs: Input, kin: Kinematics, ahead: Array | None, early: Array | None = None
) -> Here:
    """The same where the kinematics are known; early: from where on polytopes have several contacts (`detect`)."""
    warm = state.cache.acceleration
    if "warmstart" in model.options.layout.disabled:
        warm = jnp.zeros_like(warm)
    contacts, warm = detect(model, kin, ahead, early=early), lax.stop_gradient(warm)
    tendons = keep(compact(strung)(model, kin, state.q)) if acts_along_tendons(model) else None
    return Here(model, kin, contacts, state.q, state.v, state.act, warm, inputs, ahead, tendons)


def forces(here: Here) -> tuple[Passive, Actuation]:
    """Passive and actuator forces, but adhesion."""
    model, kin, contacts, q, v, act, _, inputs, ahead, tendons = here
    lengths = tendons and tendons.lengths
    rest = passive(model, kin, q, v, act, lengths)
    ctrl = cast(Array, inputs.ctrl)  # `as_input` fills it
    return rest, actuation(model, kin, q, v, act, ctrl, rest.held, grips(model, kin, contacts, ahead), lengths)


def adhesion(here: Here) -> Array:
    """Force (nv,) of contacts that adhere. Its slopes are those of contacts' forces, which are net of it."""
    return pull_of_contacts(here.model, here.kin, here.contacts, here.ahead)


def net_forces(here: Here, kinds: RowKinds, rows: Array, pull: Array | None = None) -> Array:
    """Rows' forces (total,) with those of contacts less what pulls there: by adhesion, or `pull` (nc,)."""
    if not (here.model.pairs.layout.adheres and kinds.contacts):
        return rows
    pull = adhesion_at(here.model, here.contacts) if pull is None else pull
    return rows.at[kinds.scalar :: kinds.dim].add(-pull)


def with_adhesion(here: Here, rest: Passive) -> Passive:
    """Passive forces, those of contacts that adhere among them."""
    return rest._replace(qfrc=rest.qfrc + adhesion(here)) if here.model.pairs.layout.adheres else rest


def applied(here: Here) -> Array:
    """All forces (nv,) but constraints and bias: τ."""
    return applied_apart(here) + adhesion(here) if here.model.pairs.layout.adheres else applied_apart(here)


def applied_apart(here: Here) -> Array:
    """The same without adhesion."""
    rest, drive = forces(here)
    return rest.qfrc + drive.qfrc + applied_wrenches(here.model, here.kin, here.inputs, here.v)


def frame_of(here: Here, velocity: Velocities | None = None) -> Frame:
    """What rows are made from; velocity: where it is known already."""
    velocity = velocity or velocities(here.model.tree, here.kin.S, here.v)
    return Frame(here.model, here.kin, velocity, here.q, here.v, here.contacts)
