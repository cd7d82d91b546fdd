"""Arrays of a model."""

import jax
import numpy as np
from jax import Array


def leaf(x) -> Array:
    """Numbers, copied, at JAX's default precision. `jnp.asarray` would compile a program for each shape."""
    return jax.device_put(np.array(x, np.float64))
