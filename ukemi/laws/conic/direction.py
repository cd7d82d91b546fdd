"""Where the search goes from a point: predictor, then corrector (Dojo, eqs. 51–54)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from ukemi.laws.conic import cones, newton
from ukemi.laws.conic.balance import impulses
from ukemi.laws.conic.cones import Products
from ukemi.laws.conic.progress import Bent, Found, Progress, Task, Way
from ukemi.laws.conic.unknowns import Imbalance, Point
from ukemi.mechanics.articulated import Articulated

INSIDE = 0.99  # τ: share of the way to a cone's boundary that a step may go
ASIDE = 3.0  # distance of products from κ, relative to it, from which on κ is left again
NEAR = 0.1  # the same, up to which Newton's step needs no corrector
SHORT = 0.1  # after a step shorter than this the next one only centres
FLOOR = 0.1  # of products [J], relative to the square of what is left of the balance


def direction(task: Task, found: Found, now: Progress, bent: Bent, distance: Array, knows: Array | bool) -> Way:
    """The change of the variables, how far it may go, and its excess over κ.

    distance: of products from κ; knows: slopes were measured at this point or at one shortly before.
    """
    off, (heads, rubs), short = found.off, found.known.on, (now.last < SHORT) & ~now.fresh
    # what was learned on the way to a wall, but not what was measured, is forgotten
    learned = jax.tree.map(lambda x: jnp.where(short & ~knows, 0.0, x), bent)
    step = _newton(task, found, learned, now, knows)
    # once κ was the target it stays so, but where the cones' walls are in the way
    arrived = ~now.fresh & (now.excess == 0) & ~(short & (distance > ASIDE))
    none = jax.tree.map(jnp.zeros_like, off.products)
    excess, second = lax.cond(
        arrived, lambda: _to_path(found, step, now), lambda: _ahead(task, found, now, step, short)
    )
    corrects = ((excess > 0) | (distance > NEAR)) & ~short
    second = jax.tree.map(lambda x: jnp.where(corrects, x, 0.0), second)

    def towards(second: Products) -> tuple[Point, Array]:
        heads_off = off.products.heads - excess * task.duration + second.heads
        first, rest = off.products.first - excess + second.first, off.products.rest + second.rest
        parts = jnp.where(heads, heads_off, 0.0), jnp.where(rubs, first, 0.0), jnp.where(rubs[:, None], rest, 0.0)
        change, d_head = step(off._replace(products=Products(*parts)))
        return change, _reach(found, change, d_head, INSIDE)

    change, alpha = towards(second)

    def without_second():  # the corrector led out of the cone
        plain, farther = towards(none)
        return jax.tree.map(lambda x, y: jnp.where(farther > alpha, y, x), (change, alpha), (plain, farther))

    change, alpha = lax.cond(corrects & (alpha < SHORT), without_second, lambda: (change, alpha))
    return Way(change, alpha, excess)


def _newton(
    task: Task, found: Found, bent: Bent, now: Progress, knows: Array | bool
) -> Callable[[Imbalance], tuple[Point, Array]]:
    """Newton's step from a point, as a function of what is off."""
    point, known, wants, head, _, slopes, M = found[:7]
    f = impulses(task.layout, task.kinds, point, wants.mu, known.on)[: task.kinds.scalar]
    bend = task.mechanics.bending(task.here, point.v, task.duration, f)
    slopes = slopes._replace(slip=slopes.slip + bent.slip)
    if not isinstance(M, Articulated):  # which knows all that there is
        M = M + bent.force + now.ease * task.free.M
        if bend is not None:  # of what is measured it is part
            M = M - jnp.where(knows, 0.0, bend)
    return newton.solver(newton.system(task.layout, point.cones, head, wants, known.on, M, slopes))


def _reach(found: Found, change: Point, d_head: Array, tau: float) -> Array:
    return cones.longest_step(found.point.cones, found.head, change.cones, d_head, found.known.on, tau)


def _to_path(found: Found, step: Callable, now: Progress) -> tuple[Array, Products]:
    """Where κ is the target: no excess, and what the step there leaves of the products."""
    change, d_head = step(found.off)
    return jnp.zeros_like(now.excess), cones.products(change.cones, d_head)


def _ahead(task: Task, found: Found, now: Progress, step: Callable, short: Array) -> tuple[Array, Products]:
    """The predictor: the excess to aim at, and what the step that aims at κ at once leaves of the products."""
    cones_now, head, off, (heads, rubs) = found.point.cones, found.head, found.off, found.known.on
    aims = Products(*found.asked.aims, jnp.zeros_like(off.products.rest))
    masks = heads, rubs, rubs[:, None]
    made = Products(*(jnp.where(on, x + aim, 0.0) for on, x, aim in zip(masks, off.products, aims, strict=True)))

    def mean(products: Products, less: Array | float = 0.0) -> Array:
        of_heads, of_rubs = jnp.maximum(products.heads - less, 0.0), jnp.maximum(products.first - less, 0.0)
        total = jnp.where(heads, of_heads, 0.0).sum() / task.duration + jnp.where(rubs, of_rubs, 0.0).sum()
        return total / jnp.maximum(heads.sum() + rubs.sum(), 1)

    affine, d_head = step(off._replace(products=made))
    alpha = _reach(found, affine, d_head, 1.0)
    tried = jax.tree.map(lambda x, d: x + alpha * d, cones_now, affine.cones)
    before, after = mean(made), mean(cones.products(tried, head + alpha * d_head))
    sigma = jnp.clip(after / jnp.where(before > 0, before, 1.0), 0.0, 1.0) ** 3
    excess = jnp.where(short, jnp.maximum(sigma, 0.5), sigma) * mean(made, task.path.kappa)
    # products do not fall faster than the square of what is left of the balance: the cones' walls would be in the way
    floor = jnp.minimum(FLOOR * (found.residual * now.speed) ** 2, jnp.where(now.fresh, 0.0, now.excess))
    excess = jnp.where(heads.any() | rubs.any(), jnp.maximum(excess, floor), now.excess)
    excess = jnp.where(excess <= task.path.kappa, 0.0, excess)
    return excess, cones.products(affine.cones, d_head)
