"""Height fields of a compiled model."""

import mujoco
import numpy as np

from ukemi.collide.kinds import KINDS
from ukemi.files.leaves import leaf
from ukemi.model.heights import HeightLayout, Heights


def build(m: mujoco.MjModel, kinds: tuple[str, ...], names: tuple[str, ...]) -> Heights:
    """The height fields of a model; names: of all fields."""
    layout = HeightLayout(
        of=np.where(_fields(kinds), m.geom_dataid, -1).astype(np.int32),
        shape=np.stack([m.hfield_nrow, m.hfield_ncol], -1).astype(np.int32).reshape(-1, 2),
        first=np.append(m.hfield_adr, m.nhfielddata).astype(np.int32),
        names=names,
    )
    return Heights(leaf(m.hfield_data), leaf(np.reshape(m.hfield_size, (-1, 4))[:, 3]), layout)


def sizes(m: mujoco.MjModel, kinds: tuple[str, ...]) -> np.ndarray:
    """Sizes (ng, 3) of geoms, where those of height fields say how far they reach along x, y, and one of elevation."""
    size = np.array(m.geom_size)
    own = _fields(kinds)
    size[own] = np.asarray(m.hfield_size).reshape(-1, 4)[m.geom_dataid[own], :3]
    return size


def cells_beneath(m: mujoco.MjModel, field: int, reach: float) -> tuple[int, int]:
    """Rows and columns of cells, at the most, that a shape lies over which reaches as far as this from its origin."""
    k = m.geom_dataid[field]
    grid = np.array([m.hfield_nrow[k], m.hfield_ncol[k]]) - 1
    step = 2 * np.asarray(m.hfield_size).reshape(-1, 4)[k, [1, 0]] / grid
    rows, columns = np.minimum(np.ceil(2 * reach / step) + 2, grid).astype(int).tolist()
    return rows, columns


def _fields(kinds: tuple[str, ...]) -> np.ndarray:
    """Which geoms (ng,) are height fields."""
    return np.array([KINDS[kind].ground for kind in kinds], bool)
