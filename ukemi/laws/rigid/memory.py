"""What the rigid laws remember: on which sides of their boxes the rows were, which the next step tries first."""

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Int8, Int32

from ukemi.constraints.rows import row_kinds
from ukemi.laws.memory import remembers
from ukemi.laws.rigid.boxes import LOW
from ukemi.model.records import Model, State

NAME = "rigid"


class Sides(eqx.Module):
    """Sides of the last step's rows."""

    contacts: Int32[Array, " nc"]  # which contact points there were, −1 for none
    rows: Int8[Array, " total"]  # side of its box that each row's impulse was on


def unknown(model: Model) -> Sides:
    """Before the first step."""
    contacts = jnp.full(model.pairs.layout.capacity, -1, jnp.int32)
    return Sides(contacts, jnp.full(row_kinds(model).total, LOW, jnp.int8))


def recalled(state: State) -> Sides:
    """What a state remembers."""
    return state.cache.laws[NAME]


remembers(NAME, unknown)
