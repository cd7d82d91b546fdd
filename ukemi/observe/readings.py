"""What sensors read: arrays by name, and all of them as one vector."""

import dataclasses
from collections.abc import Iterator

import equinox as eqx
import numpy as np
from jax import Array

from ukemi import values
from ukemi.errors import InputError, UnsupportedModelError
from ukemi.model.tree import Static


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ReadingLayout(Static):
    """Where the readings of each sensor stand."""

    names: tuple[str, ...]  # of those that were read, in the file's order
    start: np.ndarray  # (n,)
    dim: np.ndarray  # (n,)
    missing: tuple[str, ...]  # sensors that were asked for and cannot be read, as "sensor 'name': why"
    unread: tuple[str, ...]  # their names


class Readings(eqx.Module):
    """What sensors read, by name: `readings["gyro"]` (dim,); `.flat` has all in the file's order.

    It is used like a dict, with `in`, `len`, `keys`, `values` and `items`. Readings of many states lead with theirs.
    """

    data: Array  # (n,) of all sensors that could be read, one after the other
    layout: ReadingLayout = eqx.field(static=True)

    @property
    def flat(self) -> Array:
        """All readings (n,), as MuJoCo's `sensordata`; refused where the file has sensors that cannot be read."""
        if self.layout.missing:
            raise UnsupportedModelError(list(self.layout.missing), source="readings.flat")
        return self.data

    def __getitem__(self, name: str) -> Array:
        layout = self.layout
        if name in layout.names:
            k = layout.names.index(name)
            start = int(layout.start[k])
            return self.data[..., start : start + int(layout.dim[k])]
        if name in layout.unread:
            raise UnsupportedModelError([layout.missing[layout.unread.index(name)]], source=f"readings[{name!r}]")
        listing = ", ".join(map(repr, layout.names)) or "none"
        raise InputError(f"No sensor {values.shown(name)} was read; there are {listing}.")

    def keys(self) -> tuple[str, ...]:
        """Names of the sensors that were read."""
        return self.layout.names

    def values(self) -> list[Array]:
        """Their readings."""
        return [self[name] for name in self.layout.names]

    def items(self) -> list[tuple[str, Array]]:
        """Names and readings."""
        return list(zip(self.keys(), self.values(), strict=True))

    def __iter__(self) -> Iterator[str]:
        return iter(self.layout.names)

    def __len__(self) -> int:
        return len(self.layout.names)

    def __contains__(self, name) -> bool:
        return name in self.layout.names

    def __repr__(self):
        return f"Readings({', '.join(f'{name}: {int(dim)}' for name, dim in zip(self.layout.names, self.layout.dim))})"
