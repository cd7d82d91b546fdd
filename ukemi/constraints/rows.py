"""All constraint rows of a model: a table of kinds, and how many of each side and of contacts there are.

Rows have a fixed order and number: what holds, what rubs, what pushes, kind by kind, then `dim` rows per contact slot
in the contact's frame. Laws and solvers know rows by their sides alone, so that a new kind is a record in `KINDS`.
"""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.constraints.block import Block, Frame, RowKind, Side
from ukemi.constraints.contacts import Lever, contact_jacobian, contact_lever
from ukemi.constraints.equalities import CONNECTS, COUPLINGS, WELDS
from ukemi.constraints.joints import DRY_FRICTION, LIMITS
from ukemi.constraints.tendons import TENDON_COUPLINGS, TENDON_DRY_FRICTION, TENDON_LIMITS
from ukemi.implicit.rules import FromDistance
from ukemi.maths import spatial
from ukemi.model.records import Model
from ukemi.model.tree import Static

KINDS = (
    *(CONNECTS, WELDS, COUPLINGS, TENDON_COUPLINGS),
    *(DRY_FRICTION, TENDON_DRY_FRICTION),
    *(LIMITS, TENDON_LIMITS),
)  # in the order of their sides
assert [kind.side for kind in KINDS] == sorted((kind.side for kind in KINDS), key=list(Side).index)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RowKinds(Static):
    """How many rows of each side there are, in their order, then contacts × dim."""

    hold: int
    rub: int
    push: int  # that are not contacts' normals
    contacts: int
    dim: int  # rows per contact
    cone: str  # pyramidal or elliptic
    frictionless: bool  # some contact of a frictional model may have no friction
    several: tuple[slice, ...]  # scalar rows that may move several dofs
    ahead: FromDistance | None = None  # contacts act from a distance: the law that a gradient rule looks at

    @property
    def scalar(self) -> int:
        """Rows that are not contacts."""
        return self.hold + self.rub + self.push

    @property
    def total(self) -> int:
        """All rows."""
        return self.scalar + self.contacts * self.dim

    @property
    def holding(self) -> slice:
        """Rows that hold."""
        return slice(0, self.hold)

    @property
    def rubbing(self) -> slice:
        """Rows that rub and are not contacts'."""
        return slice(self.hold, self.hold + self.rub)

    @property
    def pushing(self) -> slice:
        """Rows that push and are not contacts'."""
        return slice(self.hold + self.rub, self.scalar)

    def of_contacts(self, rows: Array) -> Array:
        """The part (contacts, dim, ...) of rows (total, ...) that is contacts'."""
        return rows[self.scalar :].reshape(self.contacts, self.dim, *rows.shape[1:])


def present(model: Model) -> list[tuple[RowKind, np.ndarray]]:
    """The kinds of which a model has rows, with the dofs (n, nv) that each row may move."""
    disabled = model.options.layout.disabled
    kinds = [kind for kind in KINDS if not {kind.flag, "constraint"} & set(disabled)]
    found = [(kind, kind.moves(model)) for kind in kinds]
    return [(kind, moves) for kind, moves in found if len(moves)]


def row_kinds(model: Model, cone: str | None = None, ahead: FromDistance | None = None) -> RowKinds:
    """Number and kinds of the rows of a model; cone: of the file if left out; ahead: contacts act from a distance."""
    cone, layout = cone or model.options.layout.cone, model.pairs.layout
    if "constraint" in model.options.layout.disabled:
        return RowKinds(0, 0, 0, 0, 1, cone, False, ())
    found = present(model)
    hold, rub, push = (sum(len(moves) for kind, moves in found if kind.side is side) for side in Side)
    dims = {int(d) for group in layout.groups for d in group.condim}
    frictionless = (1 in dims or layout.adheres) and layout.dim > 1
    several = tuple(_several(_moves(model)))
    return RowKinds(hold, rub, push, layout.capacity, layout.dim, cone, frictionless, several, ahead)


def _moves(model: Model) -> np.ndarray:
    """The dofs (scalar, nv) bool that each row may move."""
    return np.concatenate([np.zeros((0, model.nv), bool), *(moves for _, moves in present(model))])


def _several(moves: np.ndarray) -> Iterator[slice]:
    """Runs of the rows that may move several dofs (n, nv)."""
    edges = np.flatnonzero(np.diff(np.pad(moves.sum(1) > 1, 1).astype(int)))
    yield from (slice(int(a), int(b)) for a, b in edges.reshape(-1, 2))


def scalar_blocks(frame: Frame, *, together: bool = False) -> list[Block]:
    """The rows that are not contacts, kind by kind; together: see `constraints.equalities`."""
    return [kind.block(frame, together) for kind, _ in present(frame.model)]


def placed(blocks: list[Block]) -> Iterator[tuple[Block, slice]]:
    """Each block, and which of all rows it has."""
    start = 0
    for block in blocks:
        yield block, slice(start, start + len(block))
        start += len(block)


def constant_dofs(model: Model) -> np.ndarray | None:
    """The dof (scalar,) that each row moves by plus or minus one, whatever the state; None where some row is not so."""
    moves = _moves(model)
    plain = all(kind in (DRY_FRICTION, LIMITS) for kind, _ in present(model)) and (moves.sum(1) == 1).all()
    return moves.argmax(1) if plain and len(moves) else np.zeros(0, int) if plain else None


def trees_of_rows(model: Model) -> np.ndarray:
    """The kinematic trees (scalar, ntree) bool that each row couples or acts on."""
    tree = model.tree
    own = tree.body_tree[tree.dof_body][:, None] == np.arange(tree.ntree)
    return _moves(model) @ own


def squares(kinds: RowKinds, J: Array, stiff: Array) -> Array:
    """Jᵀ diag(stiff) J (nv, nv) of the scalar rows (n, nv); those that move one dof each add to its diagonal alone."""
    alone, pulls = np.ones((len(J), 1), bool), stiff[:, None] * J
    for run in kinds.several:
        alone[run] = False
    total = jnp.where(alone, J * pulls, 0.0).sum(0) * np.eye(J.shape[1], dtype=J.dtype)
    if alone.all():
        return total
    J, pulls = (jnp.concatenate([x[run] for run in kinds.several]) for x in (J, pulls))
    return total + spatial.gram(J, pulls)


# ---- as matrix and as map -------------------------------------------------------------------------------------------


class RowMap(NamedTuple):
    """Rows as a linear map from velocities, without the contacts' matrix."""

    J: Array  # (scalar, nv)
    lever: Lever | None
    dim: int

    def motion(self, x: Array) -> Array:
        """J x (total,)."""
        out = self.J @ x
        return out if self.lever is None else jnp.concatenate([out, self.lever.motion(x).reshape(-1)])

    def pull(self, f: Array) -> Array:
        """Jᵀ f (nv,)."""
        n = len(self.J)
        out = f[:n] @ self.J
        return out if self.lever is None else out + self.lever.pull(f[n:].reshape(-1, self.dim))


def row_map(frame: Frame, kinds: RowKinds, blocks: list[Block]) -> RowMap:
    """The rows at a state as a map."""
    return map_with_contacts(frame, kinds, _scalar_matrix(frame, blocks))


def map_with_contacts(frame: Frame, kinds: RowKinds, J: Array) -> RowMap:
    """The same, where J (scalar, nv) of those that are not contacts is known."""
    lever = contact_lever(frame.model, frame.kin, frame.contacts, kinds.dim) if kinds.contacts else None
    return RowMap(J, lever, kinds.dim)


def row_matrix(frame: Frame, kinds: RowKinds, blocks: list[Block]) -> Array:
    """J (total, nv) at a state."""
    J = _scalar_matrix(frame, blocks)
    if not kinds.contacts:
        return J
    contacts = contact_jacobian(frame.model, frame.kin, frame.contacts, kinds.dim)
    return jnp.concatenate([J, contacts.reshape(-1, frame.model.nv)])


def _scalar_matrix(frame: Frame, blocks: list[Block]) -> Array:
    return jnp.concatenate([jnp.zeros((0, frame.model.nv), frame.v.dtype), *(block.J for block in blocks)])
