"""Sides of a boxed problem from its interior, where pivoting does not end.

With w⁺ = w + δ f, and gaps f − low and high − f that keep multipliers λ > 0, the central path is

    w⁺ − λ_low + λ_high = 0,     (f − low) λ_low = κ,     (high − f) λ_high = κ

and as κ falls one of each pair vanishes, which tells the side. Mehrotra's predictor and corrector share one system.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.laws.rigid.boxes import CLAMPED, HIGH, LOW, Boxed, Constants, Roles, matrix, noise
from ukemi.maths.systems import factored

ITERATIONS = 30
INSIDE = 0.99  # share of the way to a bound that a step may go
TOLD = {"float64": 1e-15, "float32": 1e-6}  # κ, relative to the velocities at hand squared, at which sides are told


class Inner(NamedTuple):
    """A point inside: forces, and the multipliers of their lower and upper bounds, (n,) each."""

    f: Array
    low: Array
    high: Array


class Pairs(NamedTuple):
    """Which bounds there are (n,) bool."""

    low: Array
    high: Array


def sides_from_inside(p: Boxed, own: Roles, needed: Array) -> tuple[Array, Array]:
    """Sides (n,) that the central path tells, and the number of linear systems; does nothing unless `needed`."""
    live = p.on & (own.push | own.hold | (p.fixed > 0) | (p.mu > 0))
    has = Pairs(live & ~own.hold, live & ~own.hold & ~own.push)
    A = jnp.where(live[:, None] & live, matrix(p), 0.0)
    A = A + jnp.diag(jnp.where(live, Constants.of(A.dtype).delta, 1.0))
    speed = jnp.maximum(noise(p, own) / Constants.of(A.dtype).slack, jnp.finfo(A.dtype).tiny ** 0.25)
    f = jnp.where(live & own.push, speed, 0.0)
    gaps = _gaps(p, own, has, f)
    start = Inner(f, *(jnp.where(on, speed**2 / gap, 0.0) for on, gap in zip(has, gaps, strict=True)))
    enough = TOLD[A.dtype.name] * speed**2

    def go_on(carry):
        at, rounds = carry
        kappa = _mean(has, _gaps(p, own, has, at.f), at)
        return needed & (kappa > enough) & (rounds < ITERATIONS)

    def again(carry):
        at, rounds = carry
        return _step(p, own, has, A, at), rounds + 1

    at, rounds = lax.while_loop(go_on, again, (start, jnp.zeros((), jnp.int32)))
    gaps = _gaps(p, own, has, at.f)
    low, high = (on & (force > gap) for on, force, gap in zip(has, at[1:], gaps, strict=True))
    low = low & ~(high & (at.high > at.low))
    return jnp.where(low, LOW, jnp.where(high, HIGH, CLAMPED)).astype(jnp.int8), rounds


def _gaps(p: Boxed, own: Roles, has: Pairs, f: Array) -> Pairs:
    """f − low and high − f, one where there is no such bound."""
    wide = p.fixed + p.mu * f[own.owner]
    return Pairs(jnp.where(has.low, f + jnp.where(own.push, 0.0, wide), 1.0), jnp.where(has.high, wide - f, 1.0))


def _mean(has: Pairs, gaps: Pairs, at: Inner) -> Array:
    total = (gaps.low * at.low).sum() + (gaps.high * at.high).sum()
    return total / jnp.maximum(has.low.sum() + has.high.sum(), 1)


def _step(p: Boxed, own: Roles, has: Pairs, A: Array, at: Inner) -> Inner:
    """Predictor, corrector, and as far as the bounds allow."""
    gaps = _gaps(p, own, has, at.f)
    stiff = at.low / gaps.low, at.high / gaps.high
    along = np.arange(len(at.f)) == own.owner[:, None]
    mu = jnp.where(has.high, p.mu, 0.0)  # a bound that moves
    solve = factored(A + jnp.diag(stiff[0] + stiff[1]) + ((stiff[0] - stiff[1]) * mu)[:, None] * along)
    counts = has.low | own.hold
    off = jnp.where(counts & p.on, A @ at.f + p.b, A @ at.f) - at.low + at.high

    def towards(kappa, second: Pairs) -> tuple[Inner, Pairs]:
        wanted = Pairs(
            *(
                jnp.where(on, (kappa - force * gap - more) / gap, 0.0)
                for on, force, gap, more in zip(has, at[1:], gaps, second, strict=True)
            )
        )
        df = solve(wanted.low - wanted.high - off)
        wide = mu * df[own.owner]
        moved = Pairs(jnp.where(has.low, df + wide, 0.0), jnp.where(has.high, wide - df, 0.0))
        return Inner(df, wanted.low - stiff[0] * moved.low, wanted.high - stiff[1] * moved.high), moved

    def reach(change: Inner, moved: Pairs, tau: float) -> Array:
        rates = [-d / x for x, d in zip((*gaps, *at[1:]), (*moved, *change[1:]), strict=True)]
        on = jnp.concatenate([has.low, has.high, has.low, has.high])
        rate = jnp.where(on, jnp.concatenate(rates), 0.0).max(initial=0.0)
        return jnp.minimum(1.0, tau / jnp.maximum(rate, tau))

    none = Pairs(jnp.zeros_like(at.f), jnp.zeros_like(at.f))
    affine, moved = towards(0.0, none)
    alpha = reach(affine, moved, 1.0)
    ahead = jax.tree.map(lambda x, d: x + alpha * d, at, affine)
    before = _mean(has, gaps, at)
    sigma = (_mean(has, _gaps(p, own, has, ahead.f), ahead) / before) ** 3
    # as far as the predictor got: in full it threw the path about where bounds that move let it go no further
    second = Pairs(alpha * moved.low * affine.low, alpha * moved.high * affine.high)
    change, moved = towards(jnp.clip(sigma, 0.0, 1.0) * before, second)
    alpha = reach(change, moved, INSIDE)
    return jax.tree.map(lambda x, d: x + alpha * d, at, change)
