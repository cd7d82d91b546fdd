"""The softer law that rigid contact may take its derivative from: the central path of `LCP`'s own conditions."""

import jax.numpy as jnp
from jax import Array

from ukemi.collide.sweep.motion import covered
from ukemi.implicit.rules import CentralPath
from ukemi.laws.conic.law import Conic, path_of
from ukemi.laws.conic.mechanics import Linear
from ukemi.model.records import Input, Model, State


class Relaxed(Conic):
    """Contacts as they are where a step begins, friction bounded in each direction apart, at a κ."""

    mechanics = Linear()
    reach = staticmethod(covered)  # contacts are not looked for again


def relaxed(rule: CentralPath, model: Model, state: State, inputs: Input) -> tuple[Array, Array]:
    """v⁺ (nv,) of the softer law, NaN where it is not found; and whether it saw too few contacts."""
    law = Relaxed(cone="pyramidal", ahead=rule.width)
    here, guide = law.start(model, state, inputs)
    (z, _), (_, solved) = law.solved(here, guide, path_of(rule, here.v.dtype))
    return z.v * jnp.where(solved, 1.0, jnp.nan), here.contacts.overflow
