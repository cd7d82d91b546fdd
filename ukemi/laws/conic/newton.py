"""Newton's step on the residual of a step with cones: one system of the size of the velocities, whatever contacts
there are (docs/hard_contact.md). Solver and derivative take the same step.
"""

from collections.abc import Callable
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.laws.conic import cones
from ukemi.laws.conic.cones import Cones, Elimination, Layout, owned
from ukemi.laws.conic.unknowns import Asked, Imbalance, Point
from ukemi.maths.systems import factored, factored_as_it_stands
from ukemi.mechanics.articulated import Articulated


class Slopes(NamedTuple):
    """How gaps, slips and equalities change with velocities, and what impulses pull on."""

    gap: Array  # (H, nv) ∂/∂v⁺
    slip: Array  # (K, 2, nv)
    held: Array  # (hold, nv)
    heads: Array  # (H, nv) what an impulse pulls on
    rubs: Array  # (K, 2, nv)
    holds: Array  # (hold, nv)


class System(NamedTuple):
    """The linear system of a Newton step."""

    layout: Layout
    cones: Cones
    head: Array  # (K,) ξ₀
    asked: Asked
    on: tuple[Array, Array]  # heads and cones that count
    slopes: Slopes
    found: Elimination
    given: Array  # (H, nv) −dγ/dv⁺
    rub: Array  # (K, 2, nv) −dy/dv⁺
    M: Array | Articulated  # (nv, nv) slope of the force but for the cones' part
    matrix: Array | Articulated  # (nv + hold, nv + hold)


def system(
    layout: Layout, point: Cones, head: Array, asked: Asked, on, M: Array | Articulated, slopes: Slopes
) -> System:
    """The system at a point; M: slope of the force (nv, nv) but for the cones' part, articulated where each row moves
    one dof.
    """
    heads, rubs = on
    found = cones.eliminated(layout, point, head, asked.delta, asked.fade)
    e, p = (jnp.where(heads, x, 0.0) for x in (found.e, found.p))
    b, f = (jnp.where(rubs[:, None], x, 0.0) for x in (found.b, found.f))
    found = found._replace(e=e, p=p, b=b, f=f, E=jnp.where(rubs[:, None, None], found.E, 0.0))
    given = p[:, None] * slopes.gap
    by_head = b[:, :, None] * owned(layout, given)[:, None] + f[:, :, None] * owned(layout, slopes.gap)[:, None]
    rub = by_head - found.E @ slopes.slip
    if isinstance(M, Articulated):
        W = M.plus((slopes.heads * given).sum(0) + (slopes.rubs * rub).sum((0, 1)))
        return System(layout, point, head, asked, on, slopes, found, given, rub, M, W)
    W = M + _by_cones(layout, slopes, given, rub)
    if len(slopes.held):
        W = jnp.block([[W, -slopes.holds.T], [slopes.held, jnp.diag(asked.yields)]])
    return System(layout, point, head, asked, on, slopes, found, given, rub, M, W)


def _by_cones(layout: Layout, slopes: Slopes, given: Array, rub: Array) -> Array:
    """What heads and cones add to the matrix (nv, nv); rows that move one dof each add to its diagonal alone."""
    limits, dry = (layout.limits, layout.dry) if layout.plain else (0, 0)
    nv, heads = given.shape[1], slopes.heads
    diagonal = (heads * given)[:limits].sum(0) + (slopes.rubs * rub)[:dry].sum((0, 1))
    pull, move = (x[dry:].reshape(2 * (len(x) - dry), nv) for x in (slopes.rubs, rub))
    return heads[limits:].T @ given[limits:] + pull.T @ move + diagonal * np.eye(nv, dtype=given.dtype)


def condition(system: System, M: Array) -> Array:
    """Condition number () of the matrix, of velocities times the roots of masses: M is M̂ (nv, nv)."""
    matrix = cast(Array, system.matrix)
    sizes = jnp.sqrt(jnp.diagonal(M))  # as roots of energies, whatever the units
    scale = jnp.concatenate([1 / sizes, jnp.ones(len(matrix) - len(sizes))])
    return jnp.linalg.cond(scale[:, None] * matrix * scale)


def whole_condition(system: System, M: Array, duration: Array) -> Array:
    """The same of the system before cones are eliminated, in v⁺, impulses of equalities, γ, s/h, y, ψ and u."""
    layout, point, head, asked, (heads, rubs), slopes, _, _, _, slope, _ = system
    slope = cast(Array, slope)
    hold, (H, nv), K = len(slopes.held), slopes.gap.shape, len(rubs)

    def made(change: Array) -> Array:
        dv, held, gamma, s, y, psi, u = jnp.split(change, np.cumsum([nv, hold, H, H, 2 * K, K]))
        y, u, nearer = y.reshape(K, 2), u.reshape(K, 2), slopes.gap @ dv
        ahead, d_head = owned(layout, asked.fade * nearer), owned(layout, gamma)
        both = (point.y * u + y * point.u).sum(-1)
        return jnp.concatenate([
            slope @ dv - held @ slopes.holds - gamma @ slopes.heads - jnp.einsum("ki,kin->n", y, slopes.rubs),
            slopes.held @ dv + asked.yields * held,
            jnp.where(heads, (nearer + asked.delta * gamma) / duration - s, gamma),
            jnp.where(heads, point.gamma * s + (point.s * gamma - asked.fade * nearer) / duration, s),
            jnp.where(rubs[:, None], slopes.slip @ dv - u, y).reshape(-1),
            jnp.where(rubs, head * psi + point.psi * d_head + both - ahead, psi),
            jnp.where(rubs[:, None], head[:, None] * u + d_head[:, None] * point.u + point.psi[:, None] * y
                      + psi[:, None] * point.y, u).reshape(-1),
        ])  # fmt: skip

    matrix, sizes = jax.jacfwd(made)(jnp.zeros(nv + hold + 2 * H + 5 * K, M.dtype)), jnp.sqrt(jnp.diagonal(M))
    scale = jnp.concatenate([1 / sizes, jnp.ones(len(matrix) - nv)])
    return jnp.linalg.cond(scale[:, None] * matrix * scale)


def at_rest(system: System, off: Imbalance) -> tuple[Array, Array]:
    """Changes of γ (H,) and y (K, 2) where velocities stay."""
    found, (heads, rubs) = system.found, system.on
    a, c = cones.constants(system.cones, found, off.products)
    a = jnp.where(heads, a - found.e * off.slack, 0.0)
    c = c + _apply(found.E, off.slip) + found.b * owned(system.layout, a)[:, None]
    return a, jnp.where(rubs[:, None], c, 0.0)


def solver(system: System, *, refined: bool = False) -> Callable[[Imbalance], tuple[Point, Array]]:
    """Function of an imbalance: the change (Point) that a Newton step makes, and that of ξ₀ (K,).

    refined: what rounding leaves of the force is solved for once more. A contact that presses with γ adds γ²/κ to the
    matrix, beside which masses lose digits. Then factors are pivoted, too, which a search, that corrects itself, is
    quicker without.
    """
    layout, point, head, asked, (heads, rubs), slopes, found, _, _, M, matrix = system
    nv = slopes.gap.shape[1]
    if isinstance(matrix, Articulated):
        solve = matrix.factored()
    else:
        solve = factored(matrix) if refined else factored_as_it_stands(matrix)

    def pulled(gamma: Array, y: Array) -> Array:
        return gamma @ slopes.heads + y.reshape(-1) @ slopes.rubs.reshape(y.size, nv)

    def reduced(a: Array, c: Array, force: Array, held: Array) -> tuple[Array, ...]:
        """Changes of velocities, of the impulses of equalities, of heads and of cones."""
        out = solve(jnp.concatenate([pulled(a, c) - force, -held]))
        dv, nearer, slid = out[:nv], slopes.gap @ out[:nv], slopes.slip @ out[:nv]
        gamma = jnp.where(heads, a - found.p * nearer, 0.0)
        by_head = found.b * owned(layout, found.p * nearer)[:, None] + found.f * owned(layout, nearer)[:, None]
        return dv, out[nv:], gamma, c + _apply(found.E, slid) - by_head

    def step(off: Imbalance) -> tuple[Point, Array]:
        a, c = at_rest(system, off)
        dv, held, gamma, y = out = reduced(a, c, off.force, off.held)
        if refined:
            left = off.force + cast(Array, M) @ dv - pulled(gamma, y) - held @ slopes.holds
            held_left = off.held + slopes.held @ dv + asked.yields * held
            more = reduced(jnp.zeros_like(a), jnp.zeros_like(c), left, held_left)
            dv, held, gamma, y = (x + dx for x, dx in zip(out, more, strict=True))
        nearer, slid = slopes.gap @ dv, slopes.slip @ dv
        du = jnp.where(rubs[:, None], slid + off.slip, 0.0)
        d_head = owned(layout, gamma)
        less = off.products._replace(first=off.products.first - owned(layout, asked.fade * nearer))
        psi = cones.change_of_first(point, head, found, less, d_head, du)
        s = jnp.where(heads, nearer + off.slack + asked.delta * gamma, 0.0)
        return Point(dv, held, Cones(gamma, s, y, jnp.where(rubs, psi, 0.0), du)), d_head

    return step


def _apply(matrices: Array, vectors: Array) -> Array:
    return (matrices * vectors[:, None]).sum(-1)
