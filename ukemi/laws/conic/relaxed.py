"""The softer law that rigid contact may take its derivative from: the central path of `LCP`'s own conditions."""

import jax.numpy as jnp
from jax import Array

from ukemi.collide.sweep.motion import covered
from ukemi.implicit.rules import CentralPath
from ukemi.laws.conic.law import Conic
from ukemi.laws.conic.mechanics import Linear
from ukemi.laws.conic.unknowns import Path
from ukemi.model.records import Input, Model, State


class Relaxed(Conic):
    """Contacts as they are where a step begins, friction bounded in each direction apart, at a κ."""

    mechanics = Linear()
    reach = staticmethod(covered)  # contacts are not looked for again


def relaxed(rule: CentralPath, model: Model, state: State, inputs: Input) -> tuple[Array, Array]:
    """v⁺ (nv,) of the softer law, NaN where it is not found; and whether it saw too few contacts."""
    law = Relaxed(kappa=rule.kappa, cone="pyramidal", ahead=rule.width)
    here, guide = law.start(model, state, inputs)
    path = Path(*(jnp.asarray(x, here.v.dtype) for x in (rule.kappa, rule.width)))
    (z, _), (_, solved) = law.solved(here, guide, path)
    return z.v * jnp.where(solved, 1.0, jnp.nan), here.contacts.overflow
