"""What the search for a step did, turn by turn, for plots of convergence (Dojo, Figs. 9 and 10)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from ukemi.laws.conic import newton
from ukemi.laws.conic.interior_point import blank, goes_on, land, look, off_path, turn
from ukemi.laws.conic.progress import Carry, Settings, Task
from ukemi.mechanics.articulated import Articulated


class Search(NamedTuple):
    """The points that a search took, one per turn (T,); what comes after the solution repeats it."""

    residual: Array  # largest residual, as a velocity times the root of a mass [√J]
    products: Array  # largest distance of cone products from κ, relative to it
    condition: Array  # condition number of Newton's matrix, or of the whole system, velocities times roots of masses
    start: Array  # which start: 0 is warm
    iterations: Array  # so far
    solved: Array  # bool


def record(settings: Settings, task: Task, turns: int, whole: bool) -> Search:
    """The search of a task over some turns, of which some may only have gone back half way."""

    def one(carry: Carry, _):
        more = goes_on(carry)
        after = jax.tree.map(lambda old, new: jnp.where(more, new, old), carry, turn(settings, task, carry))
        now = after.progress
        at = after._replace(progress=now._replace(fresh=jnp.zeros_like(now.fresh)))
        found = look(task, at, after.point, land(task, at, after.point.v))[0]
        slope = found.M.dense() if isinstance(found.M, Articulated) else found.M
        system = newton.system(
            task.layout, found.point.cones, found.head, found.asked, found.known.on, slope, found.slopes
        )
        distance = off_path(task, found, jnp.zeros_like(now.excess))
        M, h = task.free.M, task.duration
        condition = newton.whole_condition(system, M, h) if whole else newton.condition(system, M)
        return after, Search(now.residual * now.speed, distance, condition, now.start, now.total, now.solved)

    return lax.scan(one, blank(task), None, length=turns)[1]
