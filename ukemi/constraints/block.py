"""What a kind of constraint row brings, whichever law it serves; contacts are apart (`constraints.contacts`)."""

import dataclasses
import enum
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jax import Array

from ukemi.collide.detect import Contacts
from ukemi.mechanics.kinematics import Kinematics, Velocities
from ukemi.model.records import Model


class Side(enum.Enum):
    """What the force of a row may be."""

    HOLD = "any force, whatever keeps the row where it is"
    RUB = "a force against motion, up to a bound"
    PUSH = "a force that is not negative"


class Frame(NamedTuple):
    """What rows are made from."""

    model: Model
    kin: Kinematics
    velocity: Velocities
    q: Array
    v: Array
    contacts: Contacts


@dataclasses.dataclass(frozen=True)
class Block:
    """Rows of one kind at a state, before any law says how they act."""

    side: Side
    J: Array  # (n, nv)
    residual: Array  # (n,) position error, that of the row itself
    depth: Array  # (n,) position error that sets the impedance
    margin: Array  # (n,) position error from which the row acts
    weight: Array  # (n,) diagonal of Â: inverse weight of what the row moves
    solref: Array  # (n, 2)
    solimp: Array  # (n, 5)
    active: Array  # (n,) bool
    drift: Array  # (n,) J̇ v
    bound: Array | None = None  # (n,) largest force, of what rubs [N] or [N m]

    def __len__(self) -> int:
        return len(self.residual)


class RowKind(NamedTuple):
    """A kind of constraint row."""

    name: str  # as reports have it
    flag: str  # the stage of a step that the file may switch off, and these rows with it
    side: Side
    moves: Callable[[Model], np.ndarray]  # (n, nv) bool: the dofs that each row may move
    # at a state; bool: points that drifted apart act where the first is, see `equalities`
    block: Callable[[Frame, bool], Block]
