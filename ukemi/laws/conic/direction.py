"""Where the search goes from a point: predictor, then corrector (Dojo, eqs. 51–54)."""

import jax
import jax.numpy as jnp
from jax import Array

from ukemi.laws.conic import cones, newton
from ukemi.laws.conic.balance import impulses
from ukemi.laws.conic.cones import Products
from ukemi.laws.conic.progress import Carry, Found, Task, Way
from ukemi.laws.conic.unknowns import Point

INSIDE = 0.99  # τ: share of the way to a cone's boundary that a step may go
SHORT = 0.1  # after a step shorter than this the next one only centres
STEADY, NEARLY = 0.2, 0.95  # ratios of successive steps from which on these are summed up, and up to which
WHOLE = 0.9  # shares of steps that count as whole ones


def direction(task: Task, found: Found, carry: Carry) -> Way:
    """The change of the variables, how far it may go, and its excess over κ."""
    (point, known, wants, head, off, slopes, M, _), now = found, carry.progress
    heads, rubs = known.on
    aims = Products(*wants.aims, jnp.zeros_like(off.products.rest))
    made = Products(
        *(
            jnp.where(on, x + aim, 0.0)
            for on, x, aim in zip((heads, rubs, rubs[:, None]), off.products, aims, strict=True)
        )
    )
    f = impulses(task.layout, task.kinds, point, wants.mu, known.on)[: task.kinds.scalar]
    bend = task.mechanics.bending(task.here, task.kinds, point.v, task.duration, f)
    M = M if bend is None else M - bend
    step = newton.solver(newton.system(task.layout, point.cones, head, wants, known.on, M, slopes))

    def towards(excess: Array, second: Products) -> tuple[Point, Array]:
        heads_off = off.products.heads - excess * task.duration + second.heads
        first, rest = off.products.first - excess + second.first, off.products.rest + second.rest
        parts = jnp.where(heads, heads_off, 0.0), jnp.where(rubs, first, 0.0), jnp.where(rubs[:, None], rest, 0.0)
        return step(off._replace(products=Products(*parts)))

    def reach(change: Point, d_head: Array, tau: float) -> Array:
        return cones.longest_step(point.cones, head, change.cones, d_head, known.on, tau)

    def mean(products: Products, less: Array | float = 0.0) -> Array:
        of_heads, of_rubs = jnp.maximum(products.heads - less, 0.0), jnp.maximum(products.first - less, 0.0)
        total = jnp.where(heads, of_heads, 0.0).sum() / task.duration + jnp.where(rubs, of_rubs, 0.0).sum()
        return total / jnp.maximum(heads.sum() + rubs.sum(), 1)

    affine, d_head = step(off._replace(products=made))
    alpha = reach(affine, d_head, 1.0)
    ahead = jax.tree.map(lambda x, d: x + alpha * d, point.cones, affine.cones)
    before, after = mean(made), mean(cones.products(ahead, head + alpha * d_head))
    sigma = jnp.clip(after / jnp.where(before > 0, before, 1.0), 0.0, 1.0) ** 3
    short = (now.last < SHORT) & ~now.fresh
    excess = jnp.where(short, jnp.maximum(sigma, 0.5), sigma) * mean(made, task.path.kappa)
    arrived = ~now.fresh & (now.excess == 0)  # once κ was the target it stays so
    excess = jnp.where(arrived | (excess <= task.path.kappa), 0.0, excess)
    corrects = (excess > 0) & ~short
    second = jax.tree.map(lambda x: jnp.where(corrects, x, 0.0), cones.products(affine.cones, d_head))
    none = jax.tree.map(jnp.zeros_like, second)
    (change, d_head), (plain, d_plain) = towards(excess, second), towards(excess, none)
    alpha, alpha_plain = reach(change, d_head, INSIDE), reach(plain, d_plain, INSIDE)
    better = (alpha < SHORT) & (alpha_plain > alpha)  # the corrector led out of the cone
    change, d_head = jax.tree.map(lambda x, y: jnp.where(better, y, x), (change, d_head), (plain, d_plain))
    alpha = jnp.where(better, alpha_plain, alpha)
    # the matrix knows no curvature: where that leaves errors of a constant ratio, their sum is known (Lyusternik)
    ratio = _ratio(task.free.M, change.v, carry.change.v)
    full = (now.alpha > WHOLE) & (alpha > WHOLE)
    longer = (excess == 0) & (now.excess == 0) & full & ~now.longer & ~now.fresh
    longer = longer & (jnp.abs(ratio) > STEADY) & (ratio < 1)
    factor = jnp.where(longer, 1 / (1 - jnp.where(longer, jnp.minimum(ratio, NEARLY), 0.0)), 1.0)
    change, d_head = jax.tree.map(lambda x: factor * x, (change, d_head))
    return Way(change, jnp.where(longer, reach(change, d_head, INSIDE), alpha), excess, longer)


def _ratio(M: Array, now: Array, before: Array) -> Array:
    """How long a step is in the direction of the one before, relative to it."""
    size = before @ M @ before
    return jnp.where(size > 0, now @ M @ before / jnp.where(size > 0, size, 1.0), 0.0)
