"""How many rows of each kind bind a model: what its layout says before any state is known."""

import dataclasses

from ukemi.implicit.rules import FromDistance
from ukemi.model.tree import Static


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RowKinds(Static):
    """How many rows of each kind there are: equality, dry friction, limits, then contacts × dim."""

    equality: int
    dry: int
    limit: int
    contacts: int
    dim: int  # rows per contact
    cone: str  # pyramidal or elliptic
    frictionless: bool  # some contact of a frictional model has no friction
    ahead: FromDistance | None = None  # contacts act from a distance: the law that a gradient rule looks at

    @property
    def scalar(self) -> int:
        """Rows that are not contacts."""
        return self.equality + self.dry + self.limit

    @property
    def total(self) -> int:
        """All rows."""
        return self.scalar + self.contacts * self.dim


def row_kinds(model, cone: str | None = None, ahead: FromDistance | None = None) -> RowKinds:
    """Number and kinds of the rows of a model; cone: of the file if left out; ahead: contacts act from a distance."""
    disabled = model.options.layout.disabled
    cone = cone or model.options.layout.cone
    if "constraint" in disabled:
        return RowKinds(0, 0, 0, 0, 1, cone, False)
    sizes = {"connect": 3, "weld": 6, "joint": 1}
    layout = model.pairs.layout
    dims = {int(d) for group in layout.groups for d in group.condim}
    return RowKinds(
        equality=0 if "equality" in disabled else sum(sizes[t] for t in model.equalities.layout.type),
        dry=0 if "frictionloss" in disabled else len(model.joints.layout.dry),
        limit=0 if "limit" in disabled else len(model.joints.layout.limit_rows),
        contacts=layout.capacity,
        dim=layout.dim,
        cone=cone,
        frictionless=1 in dims and layout.dim > 1,
        ahead=ahead,
    )
