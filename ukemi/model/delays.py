"""Controls that arrive late: what an actuator was told acts a while later."""

import dataclasses

import equinox as eqx
import numpy as np
from jax import Array
from jaxtyping import Float

from ukemi.model.tree import Static


class Delays(eqx.Module):
    """Actuators with a delay. A state has their past controls behind its activations, in `State.act`."""

    time: Float[Array, " ndelay"]  # from when a control is given to when it acts [s]
    layout: "DelayLayout" = eqx.field(static=True)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class DelayLayout(Static):
    """Which controls these are, of how many past steps each is kept, and how one reads between steps."""

    control: np.ndarray  # (n,) each late control
    owner: np.ndarray  # (n,) row of `Delays` of its actuator
    order: np.ndarray  # (n,) 0: as at the last step before, 1: linear between steps, 2: cubic
    kept: np.ndarray  # (n,) past values of each
    slot: np.ndarray  # (n, most) where those stand behind the activations, the last step's first; else -1

    @property
    def size(self) -> int:
        """Number of all past values."""
        return int(self.kept.sum())
