"""Dantzig's pivoting for boxed problems with friction (Nimble, appendix A; Jade, IV-C).

Rows join one by one: the force of a violated row is driven until its velocity vanishes or its bound is met, while the
rows that joined before keep their conditions by changing sides where they must. Of Jade's corrections the bound of a
friction moves with the force of its normal during a step. As bounds move, the path on which joined rows keep their
conditions may fold: it is then followed back, as Lemke's are.
"""

from typing import NamedTuple

import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax import Array, lax

from ukemi.laws.rigid.boxes import (
    CLAMPED,
    HIGH,
    LOW,
    Boxed,
    Roles,
    box,
    noise,
    regularised,
    residual,
    sorted_out,
    system,
)

FREE = 1e30  # a step that nothing stops


class Pivots(NamedTuple):
    """Where the pivoting stands."""

    side: Array  # (n,) int8
    joined: Array  # (n,) bool
    f: Array  # (n,)
    row: Array  # () the row being driven, −1 for none
    way: Array  # () ±1, in which direction
    last: Array  # () the row that changed last while this one is driven, −1 for none
    came: Array  # () int8: the side on which that was before
    count: Array  # () pivots so far
    stuck: Array  # () bool: nothing stops a step
    done: Array  # () bool


def dantzig(p: Boxed, own: Roles, needed: Array) -> tuple[Array, Array]:
    """Sides (n,) found by pivoting, and the number of pivots; does nothing unless `needed`."""
    slack, n = noise(p, own), len(p.b)
    bound, regular = 20 + 2 * p.on.sum(), regularised(p)  # what takes more goes round in circles

    def go_on(at: Pivots) -> Array:
        return needed & ~at.done & ~at.stuck & (at.count < bound)

    start = Pivots(
        side=jnp.full(n, LOW, jnp.int8),
        joined=jnp.zeros(n, bool),
        f=jnp.zeros_like(p.b),
        row=jnp.full((), -1, jnp.int32),
        way=jnp.ones((), p.b.dtype),
        last=jnp.full((), -1, jnp.int32),
        came=jnp.zeros((), jnp.int8),
        count=jnp.zeros((), jnp.int32),
        stuck=jnp.zeros((), bool),
        done=jnp.zeros((), bool),
    )
    at = lax.while_loop(go_on, lambda at: _pivot(regular, own, slack, at), start)
    # rows that never had to be driven have no force; which side they are on is for their velocity to say
    rest = sorted_out(regular, own, jnp.zeros_like(at.side), at.f, 0.0, slack)
    return jnp.where(at.joined, at.side, rest), at.count


def _pivot(p: Boxed, own: Roles, slack: Array, at: Pivots) -> Pivots:
    w = p.A @ at.f + p.b
    violated = jnp.abs(residual(p, own, at.f)) > slack
    order = jnp.where(own.hold, 3, jnp.where(own.push, 2, 1))  # equalities first, friction last
    rank = jnp.where(violated & ~at.joined, order, 0)
    row = jnp.where(at.row < 0, jnp.argmax(rank), at.row)
    done = (at.row < 0) & (rank.max() == 0)
    driven = np.arange(len(at.f)) == row
    df, dw = _direction(p, own, at, driven)
    # towards zero velocity at first, then so that the row that changed last enters the range of its new side
    ahead = jnp.where(at.last < 0, jnp.where(w[row] < 0, 1.0, -1.0), at.way).astype(p.b.dtype)
    way = jnp.where(_enters(p, own, at, df, dw) * ahead < 0, -ahead, ahead)
    df, dw = way * df, way * dw
    step, which, side = _ratio_test(p, own, at, driven, w, df, dw)
    stuck = step >= FREE
    step = jnp.where(stuck | done, 0.0, step)
    met = (np.arange(len(at.f)) == which) & ~done & ~stuck
    ends = done | (met & driven).any()
    return Pivots(
        side=jnp.where(met, side, at.side).astype(jnp.int8),
        joined=at.joined | (met & driven),
        f=at.f + step * df,
        row=jnp.where(ends, -1, row).astype(jnp.int32),
        way=way,
        last=jnp.where(ends, -1, which).astype(jnp.int32),
        came=at.side[which],
        count=at.count + 1,
        stuck=stuck & ~done,
        done=done,
    )


def _enters(p: Boxed, own: Roles, at: Pivots, df: Array, dw: Array) -> Array:
    """How fast the row that changed last enters the range of its new side (), zero if there is none."""
    k, to = at.last, at.side[at.last]
    wide = jnp.where(jnp.asarray(own.push)[k], 0.0, p.mu[k] * df[jnp.asarray(own.owner)[k]])
    force, velocity = at.came * (at.came * wide - df[k]), -to * dw[k]
    return jnp.where(k < 0, 0.0, jnp.where(to == CLAMPED, force, velocity))


def _direction(p: Boxed, own: Roles, at: Pivots, driven: Array) -> tuple[Array, Array]:
    """Change of forces and velocities per unit of the driven force, joined rows keeping their conditions."""
    eye = np.eye(len(at.f), dtype=at.f.dtype)
    G = jnp.where(at.joined[:, None], system(p, own, at.side, 0.0), eye)
    df = jsl.lu_solve(jsl.lu_factor(G), driven.astype(G.dtype))
    return df, p.A @ df


def _ratio_test(p: Boxed, own: Roles, at: Pivots, driven: Array, w: Array, df: Array, dw: Array):
    """Longest step, the row that stops it, and the side that the row then takes."""
    high, dhigh = box(p, own, at.f)[1], p.mu * df[own.owner]
    inside = (at.joined & p.on & ((at.side == CLAMPED) & ~own.hold)) | driven

    def until(room, rate):
        return jnp.where(rate > 0, jnp.maximum(room, 0.0) / jnp.where(rate > 0, rate, 1.0), FREE)

    # forces within their boxes reach a side; a friction's bound moves along (Jade, IV-C)
    up = jnp.where(inside & ~own.push & ~own.hold, until(high - at.f, df - dhigh), FREE)
    low, dlow = jnp.where(own.push, 0.0, -high), jnp.where(own.push, 0.0, -dhigh)
    down = jnp.where(inside & ~own.hold & ~(driven & own.push), until(at.f - low, dlow - df), FREE)
    # velocities of rows at a side, and that of the driven row, reach zero; a box of no width holds whatever they are
    wide = own.push | (high > 0) | (dhigh > 0)
    aside = at.joined & p.on & ~driven & wide
    turn = jnp.where(aside & (at.side == LOW), until(w, -dw), FREE)
    turn = jnp.where(aside & (at.side == HIGH), until(-w, dw), turn)
    rest = until(jnp.abs(w), -jnp.sign(w) * dw)
    turn = jnp.where(driven, rest, turn)
    steps = jnp.concatenate([turn, up, down])
    best, n = jnp.argmin(steps), len(at.f)
    side = jnp.array([CLAMPED, HIGH, LOW], jnp.int8)[best // n]
    return steps[best], best % n, side
