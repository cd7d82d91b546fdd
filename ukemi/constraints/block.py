"""What a kind of constraint row brings, whichever law it serves; contacts are apart (`constraints.contacts`)."""

import dataclasses
import enum
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.collide.detect import Contacts
from ukemi.mechanics.kinematics import Kinematics, Velocities
from ukemi.model.records import Joints, Model
from ukemi.model.tendons import Tendons


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

    side: Side | None  # None where there are several
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


def joined(blocks: list[Block], nv: int, dtype) -> Block:
    """All rows (n, nv) as one block, so that what they have in common is compiled once; without their bounds."""
    names = [field.name for field in dataclasses.fields(Block)[1:-1]]
    shapes = {"J": (0, nv), "solref": (0, 2), "solimp": (0, 5)}
    none = {name: jnp.zeros(shapes.get(name, 0), bool if name == "active" else dtype) for name in names}
    return Block(None, **{name: jnp.concatenate([none[name], *(getattr(b, name) for b in blocks)]) for name in names})


def rubbing(of: Joints | Tendons, own: np.ndarray, J: Array) -> Block:
    """Dry friction of the dofs or tendons `own` (n,), that move by J: velocity is the residual, no position is."""
    zero = jnp.zeros(len(own), J.dtype)
    return Block(
        side=Side.RUB,
        J=J,
        residual=zero,
        depth=zero,
        margin=zero,
        weight=of.invweight[own],
        solref=of.solref_friction[own],
        solimp=of.solimp_friction[own],
        active=of.frictionloss[own] != 0,
        drift=zero,
        bound=of.frictionloss[own],
    )


def limiting(of: Joints | Tendons, own: np.ndarray, distance: Array, J: Array, weight: Array) -> Block:
    """Limits of the joints or tendons `own` (n,) at a distance that grows by J."""
    return Block(
        side=Side.PUSH,
        J=J,
        residual=distance,
        depth=distance,
        margin=of.margin[own],
        weight=weight,
        solref=of.solref_limit[own],
        solimp=of.solimp_limit[own],
        active=~(distance >= of.margin[own]),  # NaN, too, so that it is not dropped
        drift=jnp.zeros_like(distance),
    )


def nearer_end(value: Array, ends: Array, side: np.ndarray) -> tuple[Array, Array]:
    """Distances (n,) of values from the lower end of a range (n, 2), side −1, the upper, 1, or the nearer one, 0, and
    whether it is the lower.
    """
    below, above = value - ends[:, 0], ends[:, 1] - value
    lower = (side < 0) | ((side == 0) & ((below < above) | jnp.isnan(below)))  # NaN is kept, from either end
    return jnp.where(lower, below, above), lower


class RowKind(NamedTuple):
    """A kind of constraint row."""

    name: str  # as reports have it
    flag: str  # the stage of a step that the file may switch off, and these rows with it
    side: Side
    moves: Callable[[Model], np.ndarray]  # (n, nv) bool: the dofs that each row may move
    # at a state; bool: points that drifted apart act where the first is, see `equalities`
    block: Callable[[Frame, bool], Block]
