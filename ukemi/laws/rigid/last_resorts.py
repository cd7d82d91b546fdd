"""What is left where neither pivoting nor the central path tells the sides of a boxed problem (Jade, IV-C)."""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.laws.rigid.boxes import (
    CLAMPED,
    HIGH,
    LOW,
    Boxed,
    Roles,
    box,
    matrix,
    regularised,
    residual,
    right_side,
    system,
)

SEARCHED = 5  # rows whose sides vary


def variants(n: int) -> int:
    """How many there are of n sides."""
    return 3 ** min(SEARCHED, n)


def variant(p: Boxed, own: Roles, side: Array, k: Array) -> Array:
    """One of all sides (n,) of the most violated rows; the first are those given."""
    regular = regularised(p)
    f = jnp.linalg.solve(system(regular, own, side, 0.0), right_side(p, own, side))
    doubt = jnp.where(p.on & ~own.hold, jnp.abs(residual(regular, own, f)), -1.0)
    rows = lax.top_k(doubt, min(SEARCHED, len(side)))[1]
    digits = 3 ** np.arange(len(rows))
    return side.at[rows].set(((side[rows] + 1 + k // digits) % 3 - 1).astype(side.dtype))


def gauss_seidel(p: Boxed, own: Roles, needed: Array, sweeps: int = 200) -> Array:
    """Sides (n,) that projected Gauss–Seidel ends with, on the problem of A + δ I."""
    p = regularised(p)
    n, A = len(p.b), matrix(p)

    def relax(k, f):
        w = A[k] @ f + p.b[k]
        bound = p.fixed[k] + p.mu[k] * jnp.maximum(f[jnp.asarray(own.owner)[k]], 0.0)
        new = f[k] - w / jnp.where(p.on[k], A[k, k], 1.0)
        boxed = jnp.where(jnp.asarray(own.push)[k], jnp.maximum(new, 0.0), jnp.clip(new, -bound, bound))
        return f.at[k].set(jnp.where(p.on[k], jnp.where(jnp.asarray(own.hold)[k], new, boxed), 0.0))

    def sweep(carry):
        k, f = carry
        return k + 1, lax.fori_loop(0, n, relax, f)

    f = lax.while_loop(lambda c: needed & (c[0] < sweeps), sweep, (0, jnp.zeros_like(p.b)))[1]
    w = p.A @ f + p.b
    low, high = box(p, own, f)
    free = jnp.where(f - w < low, LOW, jnp.where(~own.push & (f - w > high), HIGH, CLAMPED))
    return free.astype(jnp.int8)
