"""Pairs of variables in cones, and what Newton's method makes of them (Dojo, IV-A and IV-B).

A head is what pushes: an impulse γ ≥ 0 and its slack s ≥ 0 with γ s = κ (Dojo, eq. 3). A cone is what rubs: an impulse
ξ = (ξ₀, y) and a slip η = (ψ, u), both in a second-order cone, with ξ ∘ η = κ e (eq. 22). Its ξ₀ is the impulse of its
head, so that eq. 21 is an identity, or the bound of a joint's dry friction; y is scaled by the coefficient of friction,
which may differ between directions, and u likewise. All cones have room for two directions: one that has a single
direction has nothing in the other. Arrays lead with heads, or with cones.
"""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.constraints.rows import RowKinds
from ukemi.maths.gathers import pick, pick_rows
from ukemi.model.records import Model
from ukemi.model.tree import BALL

WIDE = ((1, 2), (3,), (4, 5))  # rows of a contact that share a cone: sliding, turning on the spot, rolling


class Layout(NamedTuple):
    """Which rows are heads and which are in cones; −1 where there is none."""

    heads: np.ndarray  # (H,) row of each: limits, their other sides, then normals
    sign: np.ndarray  # (H,) of its impulse in that row
    cones: np.ndarray  # (K, 2) rows of each: dry friction of joints, then that of contacts
    owner: np.ndarray  # (K,) head that bounds each
    limits: int  # heads that are not contacts'
    dry: int  # cones that are not contacts'
    plain: bool  # whether what is not contacts' moves by one dof each


def layout(model: Model, kinds: RowKinds) -> Layout:
    """Heads and cones of a model's rows in their fixed order."""
    return _layout(kinds, tuple(two_sided(model).tolist()))


def two_sided(model: Model) -> np.ndarray:
    """Limits (n,), as rows of `Joints.limit_rows`, of which only the nearer side is a row.

    Heads push from afar, however little, so that both sides are heads: in the middle the nearer one changes.
    """
    if {"limit", "constraint"} & set(model.options.layout.disabled):
        return np.zeros(0, int)
    joint, side = model.joints.layout.limit_rows.T
    return np.nonzero((side == 0) & (model.tree.joint_type[joint] != BALL))[0]


@functools.cache
def _layout(kinds: RowKinds, other: tuple[int, ...]) -> Layout:
    groups = [[k for k in group if k < kinds.dim] for group in WIDE]
    if kinds.cone == "pyramidal":  # a cone of its own for every direction bounds each alone
        groups = [[k] for k in range(1, kinds.dim)]
    groups = [(group + [-1])[:2] for group in groups if group]
    rows, first = np.arange(kinds.total), kinds.scalar + kinds.dim * np.arange(kinds.contacts)
    inner = np.array(groups, int).reshape(-1, 2)
    of_contacts = np.where(inner < 0, -1, first[:, None, None] + inner).reshape(-1, 2)
    dry = np.stack([rows[kinds.rubbing], np.full(kinds.rub, -1)], -1)
    limits = rows[kinds.pushing]
    second = limits[np.array(other, int)]
    heads = np.concatenate([limits, second, first])
    sign = np.ones(len(heads))
    sign[len(limits) : len(limits) + len(second)] = -1
    count = len(limits) + len(second)
    owner = np.concatenate([np.full(kinds.rub, -1), count + np.repeat(np.arange(kinds.contacts), len(inner))])
    return Layout(heads, sign, np.concatenate([dry, of_contacts]), owner, count, kinds.rub, not kinds.several)


def of_heads(layout: Layout, rows: Array) -> Array:
    """The part (H, ...) of rows (n, ...) that is heads'."""
    return pick_rows(rows, layout.heads) * layout.sign.reshape(-1, *(1 for _ in rows.shape[1:])).astype(rows.dtype)


def of_cones(layout: Layout, rows: Array) -> Array:
    """The part (K, 2, ...) of rows (n, ...) that is cones', zero where there is none."""
    padded = jnp.concatenate([rows, jnp.zeros_like(rows[:1])]) if len(rows) else jnp.zeros((1, *rows.shape[1:]))
    place = layout.cones % len(padded)  # none: the last
    return pick_rows(padded, place.ravel()).reshape(*place.shape, *rows.shape[1:])


def of_places(layout: Layout, x: Array, place: Array) -> Array:
    """Values (K, ...) of cones whose contacts were at places (nc,)."""
    dry, nc = layout.dry, len(place)
    if not nc:
        return x
    parts = x[dry:].reshape(nc, -1, *x.shape[1:])[jnp.maximum(place, 0)]
    return jnp.concatenate([x[:dry], parts.reshape(x[dry:].shape)])


def to_rows(layout: Layout, count: int, heads: Array, cones: Array) -> Array:
    """Rows (count,) of values of heads (H,) and cones (K, 2); those that are neither are zero."""
    place = np.zeros((2, count + 1), int)
    last = len(heads) + 2 * len(cones)
    place[:] = last
    first = layout.sign > 0
    place[0, layout.heads[first]] = np.arange(len(heads))[first]
    place[1, layout.heads[~first]] = np.arange(len(heads))[~first]
    place[0, layout.cones.ravel()] = len(heads) + np.arange(2 * len(cones))
    both = jnp.concatenate([heads * layout.sign.astype(heads.dtype), cones.reshape(-1), jnp.zeros(1, heads.dtype)])
    return pick(both, place[0, :count]) + pick(both, place[1, :count])


def owned(layout: Layout, heads: Array, fixed: float | bool = 0.0) -> Array:
    """Values (K, ...) of the heads that cones belong to; `fixed` where the bound is."""
    dry = jnp.full((layout.dry, *heads.shape[1:]), fixed, heads.dtype)
    return jnp.concatenate([dry, pick_rows(heads, layout.owner[layout.dry :])]) if len(heads) else dry


class Cones(NamedTuple):
    """The variables that stay in cones, and changes of them."""

    gamma: Array  # (H,) impulses of heads [N s]
    s: Array  # (H,) slacks [m] or [rad]
    y: Array  # (K, 2) impulses of friction, divided by its coefficients
    psi: Array  # (K,) ψ [m/s]
    u: Array  # (K, 2) slip, times the coefficients of friction


class Products(NamedTuple):
    """Cone products of variables, and changes of them."""

    heads: Array  # (H,) γ s
    first: Array  # (K,) of ξ ∘ η, ξᵀ η
    rest: Array  # (K, 2) and ξ₀ u + ψ y


def bounds(layout: Layout, gamma: Array, dry: Array) -> Array:
    """ξ₀ (K,) of impulses (H,) of heads and bounds (dry,) of dry friction."""
    if not len(gamma):
        return dry
    return jnp.concatenate([dry, pick(gamma, layout.owner[layout.dry :])])


def products(cones: Cones, head: Array) -> Products:
    """Cone products (Dojo, eq. 24); head: ξ₀ (K,)."""
    rest = head[:, None] * cones.u + cones.psi[:, None] * cones.y
    return Products(cones.gamma * cones.s, head * cones.psi + (cones.y * cones.u).sum(-1), rest)


# ---- staying inside --------------------------------------------------------------------------------------------------


def longest_step(cones: Cones, head: Array, change: Cones, d_head: Array, on: tuple[Array, Array], tau: float) -> Array:
    """α ≤ 1 up to which variables stay a share τ within their cones (Dojo, algorithm 1); on: heads and cones."""
    alpha = jnp.ones((), cones.gamma.dtype)
    for x, dx in ((cones.gamma, change.gamma), (cones.s, change.s)):
        alpha = jnp.minimum(alpha, _to_orthant(x, dx, on[0], tau))
    for x, tail, dx, d_tail in (
        (head, cones.y, d_head, change.y),
        (cones.psi, cones.u, change.psi, change.u),
    ):
        alpha = jnp.minimum(alpha, _to_cone(x, tail, dx, d_tail, on[1], tau))
    return alpha


def _to_orthant(x: Array, dx: Array, on: Array, tau: float) -> Array:
    """Dojo, eq. 41."""
    falls = on & (dx < 0)
    return jnp.where(falls, -tau * x / jnp.where(falls, dx, -1.0), 1.0).min(initial=1.0)


def _to_cone(x: Array, tail: Array, dx: Array, d_tail: Array, on: Array, tau: float) -> Array:
    """Dojo, eqs. 42–46."""
    length = jnp.sqrt((tail * tail).sum(-1))
    square = (x - length) * (x + length)
    square = jnp.where(on & (square > 0), square, 1.0)
    root = jnp.sqrt(square)
    zeta = x * dx - (tail * d_tail).sum(-1)
    rest = d_tail / root[:, None] - ((zeta / root + dx) / (x * root + square))[:, None] * tail
    out = jnp.sqrt((rest * rest).sum(-1)) - zeta / square
    leaves = on & (out > 0)
    return jnp.where(leaves, tau / jnp.where(leaves, out, 1.0), 1.0).min(initial=1.0)


# ---- elimination -----------------------------------------------------------------------------------------------------


class Elimination(NamedTuple):
    """Cone variables as functions of velocities: what is left of a linear system after it is solved for them.

    dγ = a − e r − p J dv and dy = c + b dγ + E (C dv + t) − f J dv, where r, t are residuals of slack and slip, and p
    and f know that κ falls with distance.
    """

    e: Array  # (H,)
    p: Array  # (H,)
    b: Array  # (K, 2)
    f: Array  # (K, 2)
    E: Array  # (K, 2, 2)
    inner: Array  # (K,) d = ξ₀ − u · y/ψ, positive inside the cones
    per: Array  # (H,) 1/(s + δ γ)


def eliminated(layout: Layout, cones: Cones, head: Array, delta: Array, fade: Array) -> Elimination:
    """The coefficients at a point; delta: (H,) what slacks gain per impulse; fade: (H,) ∂κ/∂φ."""
    _, _, y, psi, u = cones
    per = 1 / (cones.s + delta * cones.gamma)
    length = jnp.sqrt((u * u).sum(-1))
    inner = head - (u * y).sum(-1) / psi
    spread = (psi - length) * (psi + length) / (psi * inner)  # (ψ² − |u|²)/ψd, as a product: it nearly cancels
    b = (y * spread[:, None] - u) / psi[:, None]
    b = jnp.where((layout.owner >= 0)[:, None], b, 0.0)
    turned = (y - head[:, None] * u / psi[:, None]) / inner[:, None]
    E = (y[:, :, None] * turned[:, None] - head[:, None, None] * np.eye(2)) / psi[:, None, None]
    f = y * (owned(layout, fade) / (psi * inner))[:, None]
    return Elimination(cones.gamma * per, (cones.gamma - fade) * per, b, f, E, inner, per)


def constants(cones: Cones, found: Elimination, off: Products) -> tuple[Array, Array]:
    """a (H,) and c (K, 2) of residuals of the cone products."""
    first = (off.first - (cones.u * off.rest).sum(-1) / cones.psi) / found.inner
    return -off.heads * found.per, (cones.y * first[:, None] - off.rest) / cones.psi[:, None]


def change_of_first(cones: Cones, head: Array, found: Elimination, off: Products, d_head: Array, du: Array) -> Array:
    """dψ (K,) that goes with changes of ξ₀ and of the slip."""
    length = jnp.sqrt((cones.u * cones.u).sum(-1))
    spread = (cones.psi - length) * (cones.psi + length) / cones.psi
    turned = cones.y - head[:, None] * cones.u / cones.psi[:, None]
    given = (cones.u * off.rest).sum(-1) / cones.psi - off.first
    return (given - spread * d_head - (turned * du).sum(-1)) / found.inner
