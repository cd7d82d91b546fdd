"""Height fields: elevations over a regular grid."""

import dataclasses

import equinox as eqx
import numpy as np
from jax import Array
from jaxtyping import Float

from ukemi.model.tree import Static


class Heights(eqx.Module):
    """Height fields, one after the other; several geoms may share one.

    A field is `data` over a grid of rows (along y) and columns (along x), in units of its geom's third size, between
    −size and size of its first two; below zero it goes on down for `base`.
    """

    data: Float[Array, " nheight"]  # elevations, row after row, 0 to 1 at load
    base: Float[Array, " nfield"]  # thickness below elevation zero [m]
    layout: "HeightLayout" = eqx.field(static=True)

    def grid(self, name: str) -> Array:
        """Elevations (rows, columns) of a field: of the y axis, and of the x axis."""
        k = self.layout.names.index(name)
        rows, columns = self.layout.shape[k].tolist()
        return self.data[self.layout.first[k] : self.layout.first[k + 1]].reshape(rows, columns)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class HeightLayout(Static):
    """Grids of the height fields, and which geoms have them."""

    of: np.ndarray  # (ng,) field of each geom, -1 for shapes that are none
    shape: np.ndarray  # (nf, 2) rows and columns
    first: np.ndarray  # (nf + 1,) first elevation of each field
    names: tuple[str, ...]
