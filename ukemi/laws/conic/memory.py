"""What Dojo's laws remember: how hard each contact and limit was pushed, where the next step's search starts."""

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int32

from ukemi.constraints.rows import row_kinds
from ukemi.laws.conic.cones import layout
from ukemi.laws.memory import remembers, same_names
from ukemi.model.records import Model, State

NAME = "conic"


class Pushes(eqx.Module):
    """Impulses of the last step's limits and contacts."""

    contacts: Int32[Array, " nc"]  # which contact points there were, −1 for none
    gamma: Float[Array, " heads"]  # [N s]
    velocity: Float[Array, " nv"]  # what they made
    valid: Bool[Array, ""]  # whether there was a last step

    def of(self, names: Array) -> Array:
        """Impulses (heads,) where contacts have these names; 0 of new ones."""
        limits = len(self.gamma) - len(self.contacts)
        before = jnp.where(same_names(names, self.contacts), self.gamma[limits:], 0.0).sum(-1)
        return jnp.concatenate([self.gamma[:limits], before])


def unknown(model: Model) -> Pushes:
    """Before the first step."""
    kinds, dtype = row_kinds(model), model.options.timestep.dtype
    names = jnp.full(kinds.contacts, -1, jnp.int32)
    gamma, velocity = jnp.zeros(len(layout(model, kinds).heads), dtype), jnp.zeros(model.nv, dtype)
    return Pushes(names, gamma, velocity, jnp.zeros((), bool))


def recalled(state: State) -> Pushes:
    """What a state remembers."""
    return state.cache.laws[NAME]


remembers(NAME, unknown)
