"""Boxed linear complementarity problems: what rigid contact asks of its impulses (Nimble, eq. 3 and appendix A).

With w = A f + b, every row is clamped (w = 0, its force within its box) or at a side of its box:

    push    f ≥ 0, w ≥ 0, f w = 0                                         contact normals, joint limits
    rub     |f| ≤ fixed + μ f_owner, at a side with the force against w    friction of contacts and joints
    hold    w = 0                                                          equalities

Once the sides are known the problem is a linear system, one row each: A_k f = −b_k where clamped, and
f_k − s_k μ_k f_owner = s_k fixed_k at side s_k. Contacts may outnumber the degrees of freedom, so A is only positive
semidefinite. Sides are chosen for A + δ I, where they are unique; the forces are then those of A itself, of least
norm, by iterated refinement of the same factorisation (the limit δ → 0, which the pseudo-inverse of Nimble's
appendix B is where that is feasible).
"""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.constraints.rows import RowKinds
from ukemi.maths.systems import factored

LOW, CLAMPED, HIGH = -1, 0, 1
OPENING = -2  # LOW, of an overlap that opens by less than is restored: no solver's, but what follows it may say so
REFINEMENTS = 4


class Roles(NamedTuple):
    """What each row is."""

    push: Array | np.ndarray  # (n,) bool
    hold: Array | np.ndarray  # (n,) bool
    owner: Array | np.ndarray  # (n,) row of the normal whose force bounds a friction; itself elsewhere


@functools.cache
def roles(kinds: RowKinds) -> Roles:
    """Roles of rows in their fixed order."""
    n, first = kinds.total, kinds.scalar
    normals = first + kinds.dim * np.arange(kinds.contacts)
    push, hold, owner = np.zeros(n, bool), np.zeros(n, bool), np.arange(n)
    hold[kinds.holding] = True
    push[kinds.pushing] = True
    push[normals] = True
    owner[first:] = np.repeat(normals, kinds.dim)
    return Roles(push, hold, owner)


def may_hold(own: Roles) -> bool:
    """Whether there may be equalities."""
    return not isinstance(own.hold, np.ndarray) or bool(own.hold.any())


class Product(NamedTuple):
    """A = J X before it is multiplied out: of n rows a few matter, and A of those alone costs little."""

    J: Array  # (n, m)
    X: Array  # (m, n)

    def __matmul__(self, f: Array) -> Array:
        """A f."""
        return self.J @ (self.X @ f)

    def of_rows(self, rows: Array | np.ndarray) -> Array:
        """A of some rows and columns, as symmetric as it is without rounding."""
        A = self.J[rows] @ self.X[:, rows]
        return 0.5 * (A + A.T)


class Boxed(NamedTuple):
    """A boxed problem, scaled so that A has ones on its diagonal."""

    A: Array | Product  # (n, n)
    b: Array  # (n,)
    fixed: Array  # (n,) part of a friction's bound that does not move
    mu: Array  # (n,) and the part per force of its owner
    on: Array  # (n,) bool: rows that may exert a force
    scale: Array  # (n,) f of the problem as given = scale · f of this one


def boxed(A: Array | Product, b: Array, fixed: Array, mu: Array, on: Array, own: Roles) -> Boxed:
    """The scaled problem; rows that nothing can move are switched off."""
    mobility = (A.J * A.X.T).sum(-1) if isinstance(A, Product) else jnp.diagonal(A)
    on = on & (mobility > 0)
    if may_hold(own) and b.dtype == jnp.float64:  # δ is too large in float32
        # what redundant equalities leave undone must not depend on masses: they have one scale
        held = own.hold & on
        mobility = jnp.where(held, mobility.max(initial=0.0, where=held), mobility)
    s = jnp.where(on, 1 / jnp.sqrt(jnp.where(on, mobility, 1.0)), 0.0)
    safe = jnp.where(on, s, 1.0)
    A = Product(A.J * s[:, None], A.X * s) if isinstance(A, Product) else A * s[:, None] * s
    return Boxed(A, b * s, jnp.where(on, fixed / safe, 0.0), jnp.where(on, mu * s[own.owner] / safe, 0.0), on, s)


def matrix(p: Boxed) -> Array:
    """A, multiplied out."""
    return p.A.of_rows(np.arange(len(p.b))) if isinstance(p.A, Product) else p.A


def dense(p: Boxed) -> Boxed:
    """The same with A multiplied out."""
    return p._replace(A=matrix(p))


def regularised(p: Boxed) -> Boxed:
    """The problem of A + δ I, whose sides are unique."""
    return p._replace(A=matrix(p) + Constants.of(p.b.dtype).delta * np.eye(len(p.b), dtype=p.b.dtype))


class Constants(NamedTuple):
    """Numbers that depend on the precision."""

    delta: float  # regulariser of the scaled A
    slack: float  # violation, relative to the velocities at hand, that is noise
    still: float  # mobility of a row, relative to that of the bodies, that is noise: its Jacobian's, squared
    unsettled: float  # last change of forces where the system is near δ, relative to the largest, that is no noise
    unmet: float  # what equalities ask for that others of them rule out [m], that is noise

    @staticmethod
    def of(dtype) -> "Constants":
        """Those of a floating type."""
        wide = dtype == jnp.float64
        return Constants(1e-8, 1e-11, 1e-24, 1e-7, 1e-8) if wide else Constants(1e-4, 1e-5, 1e-10, 1e-2, 1e-3)


def is_clamped(p: Boxed, own: Roles, side: Array) -> Array:
    """Rows (n,) whose w is zero."""
    return p.on & (own.hold | (side == CLAMPED))


def system(p: Boxed, own: Roles, side: Array, delta: float) -> Array:
    """Matrix (n, n) of the linear system of the sides."""
    A = matrix(p)
    eye = np.eye(len(side), dtype=A.dtype)
    bound = eye - (side * p.mu)[:, None] * (own.owner[:, None] == np.arange(len(side)))
    return jnp.where(is_clamped(p, own, side)[:, None], A + delta * eye, bound)


def right_side(p: Boxed, own: Roles, side: Array) -> Array:
    """Right-hand side (n,) of the same."""
    return jnp.where(is_clamped(p, own, side), -p.b, side * p.fixed)


def box(p: Boxed, own: Roles, f: Array) -> tuple[Array, Array]:
    """Lower and upper bounds (n,) of the forces; no row is ever at the upper bound of a push."""
    high = p.fixed + p.mu * jnp.maximum(f[own.owner], 0.0)
    return jnp.where(own.push, 0.0, -high), high


def noise(p: Boxed, own: Roles) -> Array:
    """Velocity below which violations are noise: rows that no force need act on do not count."""
    counts = p.on & (~own.push | (p.b < 0))
    return Constants.of(p.b.dtype).slack * jnp.where(counts, jnp.abs(p.b), 0.0).max(initial=0.0)


def residual(p: Boxed, own: Roles, f: Array) -> Array:
    """Violation (n,) of complementarity and of the boxes: f − clip(f − w), zero at solutions."""
    w = p.A @ f + p.b
    low, high = box(p, own, f)
    inside = jnp.maximum(f - w, low)
    inside = jnp.where(own.push, inside, jnp.minimum(inside, high))
    return jnp.where(p.on, jnp.where(own.hold, w, f - inside), 0.0)


def sorted_out(p: Boxed, own: Roles, side: Array, f: Array, delta: float, slack: Array) -> Array:
    """Sides (n,) that the forces of `side` ask for: the same where they are a solution."""
    w = p.A @ f + delta * f + p.b
    low, high = box(p, own, f)
    target = f - w
    below, above = target < low - slack, ~own.push & (target > high + slack)
    new = jnp.where(below, LOW, jnp.where(above, HIGH, CLAMPED))
    # on a side, and clamped within the box, rows stay unless the violation is more than noise
    stays = jnp.where(side == LOW, w >= -slack, jnp.where(side == HIGH, ~own.push & (w <= slack), ~below & ~above))
    return jnp.where(stays | own.hold | ~p.on, side, new).astype(side.dtype)


def bounded(p: Boxed, own: Roles, side: Array) -> Array:
    """The sides (n,) with clamped rows whose box has no width at its end: their w is zero by chance, not by a force."""
    wide = own.push | own.hold | (p.fixed > 0) | ((p.mu > 0) & (side[own.owner] != LOW))
    return jnp.where(wide | (side != CLAMPED), side, LOW).astype(side.dtype)


class Refined(NamedTuple):
    """Solutions of a system that may be singular."""

    regular: Array  # with δ
    least: Array  # of least norm of the system itself
    moving: Array  # the system times the last change of that: not zero for what is neither free nor held


def is_settled(found: Refined) -> Array:
    """Whether forces are known (): not where equalities hold what hardly moves, near a singular configuration."""
    size, moving = (jnp.abs(x).max(initial=0.0) for x in (found.least, found.moving))
    known = Constants.of(size.dtype)
    return moving <= known.delta * known.unsettled * size


def forces(p: Boxed, own: Roles, side: Array) -> Refined:
    """Forces (n,) of the sides."""
    return solved(p, own, side, right_side(p, own, side))


def solved(p: Boxed, own: Roles, side: Array, right: Array) -> Refined:
    """Solutions of the system of the sides."""
    regular = system(p, own, side, Constants.of(p.b.dtype).delta)
    return refined(regular, system(p, own, side, 0.0), right, own)


def refined(regular: Array, exact: Array, right: Array, own: Roles) -> Refined:
    """Solutions of `regular`, and by refinement of its factors of `exact`, which may be singular and is near it.

    Equalities that say the same may contradict each other, as the joints of a flat loop that is torn open do. What no
    force can do is taken from the right-hand side first: refinement would chase it, with ever larger forces.
    """
    solve = factored(regular)

    def least(right: Array, start: Array) -> Array:
        return lax.fori_loop(0, REFINEMENTS, lambda _, x: x + solve(right - exact @ x), start)

    def again(_, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        feasible = exact @ carry[0]
        return least(feasible, solve(feasible)), carry[0]

    first = solve(right)
    x = least(right, first)
    before = x
    if may_hold(own):
        # the first time leaves rounding of large forces
        x, before = lax.fori_loop(0, jnp.where(own.hold.any(), 2, 0), again, (x, before))
    return Refined(first, x, exact @ (x - before))
