"""What a search learns of how force and slips bend within a step, which Newton's system does not know: measured, or as
steps leave it (Broyden's update).
"""

from typing import cast

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.laws.conic.cones import of_places, owned
from ukemi.laws.conic.progress import Bent, Carry, Found, Task


def aside(dtype) -> float:
    """How far velocities are changed to measure slopes."""
    return 10 * float(np.sqrt(np.finfo(dtype).eps))


def noted(task: Task, carry: Carry, found: Found) -> Bent:
    """How force and slips bend along one direction of velocities, measured."""
    bent, k, far = carry.bent, carry.progress.probe - 1, aside(found.point.v.dtype)
    in_place = jnp.concatenate([np.ones(task.layout.limits, bool), found.place == np.arange(len(found.place))])
    same = found.kept[1] & owned(task.layout, in_place, True)
    force = (found.off.force - bent.force_left) / far - jnp.take(cast(Array, found.M), k, 1)
    slip = (found.off.slip - bent.slip_left) / far - jnp.take(found.slopes.slip, k, 2)
    slip = jnp.where(same[:, None], slip, 0.0)
    here = np.arange(bent.force.shape[1]) == k
    return bent._replace(
        force=jnp.where(here, force[:, None], bent.force), slip=jnp.where(here, slip[..., None], bent.slip)
    )


def learned(task: Task, carry: Carry, found: Found) -> Bent:
    """How force and slips bend: what a step left of them beyond what its system said, along the step."""
    now, M, (heads, rubs) = carry.progress, task.free.M, found.kept
    bent = carry.bent._replace(
        slip=of_places(task.layout, carry.bent.slip, found.place),
        slip_left=of_places(task.layout, carry.bent.slip_left, found.place),
    )
    dv = found.point.v - carry.point.v
    along = M @ dv
    size, off, left = dv @ along, found.off, 1 - now.alpha
    along = jnp.where(size > 0, along / jnp.where(size > 0, size, 1.0), 0.0)
    force = (off.force - left * bent.force_left)[:, None] * along
    slip = (off.slip - left * bent.slip_left)[:, :, None] * along
    # the force of heads that came or went is no bend
    same = (heads == found.known.on[0]).all() & (carry.known.on[0].sum() == heads.sum())
    return Bent(
        jnp.where(now.fresh, 0.0, bent.force + jnp.where(same, force, 0.0)),
        jnp.where(rubs[:, None, None], bent.slip + slip, 0.0),
        off.force,
        off.slip,
    )
