"""Many arrays as few."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class Packing:
    """Arrays as one flat array per type, but those of at least `alone` numbers as they are."""

    def __init__(self, avals, alone: float = np.inf):
        self.shapes = [x.shape for x in avals]
        self.sizes = [int(np.prod(shape)) for shape in self.shapes]
        groups: dict = {}
        for k, x in enumerate(avals):
            groups.setdefault(k if self.sizes[k] >= alone else x.dtype, []).append(k)
        self.groups = list(groups.values())
        self.count = len(self.groups)
        self.avals = jax.eval_shape(self.pack, [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in avals])

    def pack(self, values) -> list[Array]:
        """The flat arrays."""
        return [
            values[g[0]] if len(g) == 1 else jnp.concatenate([values[k].reshape(-1) for k in g]) for g in self.groups
        ]

    def unpack(self, packed) -> list[Array]:
        """The arrays again."""
        found = {}
        for group, flat in zip(self.groups, packed, strict=True):
            parts = jnp.split(flat.reshape(-1), np.cumsum([self.sizes[k] for k in group])[:-1])
            found |= {k: part.reshape(self.shapes[k]) for k, part in zip(group, parts, strict=True)}
        return [found[k] for k in range(len(found))]
