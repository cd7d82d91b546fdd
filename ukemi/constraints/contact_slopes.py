"""How contacts' rows turn with the joints, in closed form: what dense derivatives of every contact law are made of.

Everything is in tangent coordinates. A contact's force is a wrench φ (force, torque) in its frame; the frame moves
by the twist Γ δq, the relative motion of its two bodies is J δq, and with masks 1 (dof moves the body) or 0

    ∂(J x)/∂q = mask ∘ W ψ̇(x)ᵀ − [V₁(x) ×] J + [u(x) ×] (Γ − J₂),      u = J x, J₂ of the second body alone
    ∂(Jᵀφ)/∂q = anc ∘ (S ×* F^C) Sᵀ + Jᵀ (∂φ/∂q + [×* φ] Γ),           F^C = maskᵀ Wᵀφ

with W the wrench rows of the contact's frame, and V₁ the first body's velocity seen from it.
Small matrices of all contacts have the contacts as their last axis: XLA's CPU loops vectorise over that.
"""

from typing import NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.constraints.contacts import SLIPS, Lever, contact_lever, surface_velocities
from ukemi.maths import spatial
from ukemi.mechanics.kinematics import accumulate_before
from ukemi.model.records import Model


def still_groups(model: Model) -> np.ndarray:
    """Groups of pairs (n,) bool whose first geoms belong to bodies that no joint moves."""
    moved = np.asarray(model.tree.moves.any(1))[model.geoms.layout.body]
    return np.array([not moved[group.geoms[:, 0]].any() for group in model.pairs.layout.groups])


class Follow(NamedTuple):
    """How contacts follow the shapes that they are of."""

    G: Array  # (nc, 7, 12) of `collide.response`
    arm: Array  # (nc, 2, 3) from the origin that rows share to the shapes' own [m]


class Turning(NamedTuple):
    """Contacts at their poses, and what rates x do to them."""

    lever: Lever
    sides: tuple[Array, Array]  # (n, nv) each: 1 where a dof moves the first body, the second
    W: Array  # (6, 6, n)
    rates: "Rates"
    follow: tuple[Array, Array] | None  # (7, 6, n) each

    @staticmethod
    def of(model: Model, kin, contacts, dim: int, x: Array, follow: Follow | None = None) -> "Turning":
        """For k rates x (nv, k)."""
        lever = contact_lever(model, kin, contacts, dim)
        body = jnp.asarray(model.geoms.layout.body[model.pairs.layout.geoms])[contacts.pair]
        moves = jnp.asarray(model.tree.moves.astype(x.dtype))
        sides = spatial.materialize((moves[body[:, 0]], moves[body[:, 1]]))
        frame, arm = spatial.materialize((jnp.moveaxis(lever.frame, 0, -1), lever.arm.T))
        W, motion = _wrench_rows(frame, arm), follow and _frame_motion(frame, follow)
        rates = Rates.of(model.tree, lever, sides[0], W, x)
        if model.geoms.layout.conveys:
            rates = rates.with_surfaces(*surface_velocities(model, kin, contacts))
        return Turning(lever, sides, W, rates, motion)


def of_slip(model: Model, by: Array) -> tuple[Array, ...]:
    """What depends on the motion of bodies by (·, dim, n) depends on that of surfaces that run, if there are any."""
    return (by * SLIPS[: by.shape[1], None],) if model.geoms.layout.conveys else ()


class Change(NamedTuple):
    """A wrench in the contacts' frames, and how its first r rows depend on the rates seen there and on the distance."""

    force: Array | None  # (6, n)
    by: tuple[Array | None, ...]  # (r, dim, n) on J x of each rate, then, if any, on that of surfaces that run
    distance: Array | None  # (r, n)


def wrench_slopes(turning: Turning, changes: list[Change], more: list[Array]) -> tuple[Array, list[Array], Array]:
    """J (6, n, nv), ∂φ/∂q + [×* φ] Γ (·, n, nv) of each change, and rows (·, n, nv) of matrices `more` (·, 6, n) on
    screws; changes without a force have their r rows, others six.
    """
    S, mask, nv = turning.lever.S, turning.lever.mask, len(turning.lever.S)
    right = spatial.materialize(jnp.concatenate([S, turning.rates.psi], -1)).T

    def rows(matrices: list[Array], right: Array) -> list[Array]:
        tall = spatial.materialize(jnp.concatenate([m.transpose(0, 2, 1) for m in matrices]))
        out = (tall.reshape(-1, tall.shape[-1]) @ right).reshape(len(tall), len(mask), nv)
        return jnp.split(out, np.cumsum([len(m) for m in matrices])[:-1])

    blocks = [_blocks(turning, change) for change in changes]
    own = iter(rows([turning.W, *(side for block in blocks for side in block[1:]), *more], right[:6]))
    relative = iter(rows([block[0] for block in blocks if block[0] is not None], right))
    J, slopes = next(own) * mask, []
    for block in blocks:
        ride = turning.sides[0] * next(own) + turning.sides[1] * next(own)
        slopes.append(ride if block[0] is None else ride + mask * next(relative))
    others = jnp.concatenate([jnp.zeros((0, *J.shape[1:]), J.dtype), *own]) * mask
    return spatial.materialize((J, slopes, others))


def ridden(tree, turning: Turning, force: Array, J: Array, slope: Array) -> Array:
    """∂(Jᵀφ)/∂q (nv, nv) of wrenches (6, n) with J and their `wrench_slopes`."""
    W = turning.W.transpose(1, 0, 2)
    summed = spatial.gram(turning.lever.mask, times(W, force[:, None])[:, 0].T)
    return carried(tree, turning.lever.S, summed) + spatial.gram(lax.collapse(J, 0, 2), lax.collapse(slope, 0, 2))


def carried(tree, S: Array, wrenches: Array) -> Array:
    """∂(S · F)/∂q (nv, nv) of wrenches F (nv, 6), summed over what dofs move, that stay where they are."""
    return tree.anc * (spatial.cross_force(S, wrenches) @ S.T)


class Pull(NamedTuple):
    """What a function of contacts' forces and motions pulls on, as their frames move."""

    q: Array  # (nv,) on positions, but through the frames' own motion
    rates: Array  # (k, nv) Jᵀ c_k
    frame: Array  # (n, 6) on the motion of each frame: of its point in world axes, its turn in its own


def turning_pull(turning: Turning, by: Array) -> Pull:
    """Σ_k c_kᵀ ∂(J x_k)/∂q for c = by (6, k or k + 1, n): the formula of ∂(J x)/∂q above, added up over its rows."""
    x, S, k = turning.rates, turning.lever.S, turning.rates.joints
    following = -_cross_force(x.relative, by).sum(1)  # [u ×]ᵀ c, on Γ − J₂
    carried = _cross_force(x.first, by).sum(1)  # −[V₁ ×]ᵀ c, on J
    columns = spatial.materialize(jnp.concatenate([by[:, :k], carried[:, None], following[:, None]], 1))
    wrench = spatial.materialize(times(turning.W.transpose(1, 0, 2), columns)).transpose(2, 1, 0)
    moving = spatial.gram(turning.lever.mask, wrench[:, : k + 1].reshape(-1, 6 * (k + 1)))
    second = spatial.gram(turning.sides[1], wrench[:, k + 1])
    moving, second = spatial.materialize((moving.reshape(-1, k + 1, 6), second))
    q = (x.psi * moving[:, :k].reshape(len(S), 6 * k)).sum(-1) + (S * (moving[:, k] - second)).sum(-1)
    point = spatial.apply(turning.lever.frame.mT, following[:3].T)
    return Pull(q, (S[:, None] * moving[:, :k]).sum(-1).T, jnp.concatenate([point, following[3:].T], -1))


def times(a: Array, b: Array) -> Array:
    """Products (i, j, n) of matrices (i, k, n) and (k, j, n)."""
    return cast(Array, sum(a[:, k, None] * b[None, k] for k in range(a.shape[1])))


def _square(rows) -> Array:
    """Matrix (6, 6, n) of 2 × 2 blocks (3, 3, n)."""
    return jnp.concatenate([jnp.concatenate(row, 1) for row in rows])


def _wrench_rows(frame: Array, arm: Array) -> Array:
    """W (6, 6, n): rows that take a spatial velocity to the contact's frame, linear part first."""
    turned = -times(frame, spatial.skew_columns(arm))  # e · (ω × r) = (r × e) · ω = −(e [r ×]) ω
    return spatial.materialize(_square([[turned, frame], [frame, jnp.zeros_like(frame)]]))


def _frame_motion(frame: Array, follow: Follow) -> tuple[Array, Array]:
    """Per side (7, 6, n): change of distance, point and frame, in the frame's axes, per twist of the side's body."""
    G, arm = spatial.materialize((jnp.moveaxis(follow.G, 0, -1), jnp.moveaxis(follow.arm, 0, -1)))
    moved = spatial.materialize(jnp.concatenate([G[:1], times(frame, G[1:4]), times(frame, G[4:])]))
    sides = []
    for side in range(2):
        linear, turn = moved[:, 6 * side : 6 * side + 3], moved[:, 6 * side + 3 : 6 * side + 6]
        # g · (ω × r) = −(g [r ×]) ω
        sides.append(jnp.concatenate([turn - times(linear, spatial.skew_columns(arm[side])), linear], 1))
    return sides[0], sides[1]


class Rates(NamedTuple):
    """What k joint rates x do to the contacts. Surfaces that run are one more rate that bodies carry along: it turns
    with them as their own velocity does, and follows no joint.
    """

    psi: Array  # (nv, 6k) ψ̇ of all
    first: Array  # (6, k or k + 1, n) velocity of the first body in the frame
    relative: Array  # (6, k or k + 1, n) J x, all six directions

    @property
    def joints(self) -> int:
        """k."""
        return self.psi.shape[1] // 6

    def with_surfaces(self, first: Array, second: Array) -> "Rates":
        """And the rate of surfaces that run at (n, 6), see `contacts.surface_velocities`."""
        own, relative = (jnp.concatenate([x, more.T[:, None]], 1) for x, more in zip(self[1:], (first, second - first)))
        return Rates(self.psi, own, relative)

    @staticmethod
    def of(tree, lever, first: Array, W: Array, x: Array) -> "Rates":
        """Those of rates x (nv, k) where `first` (n, nv) marks the dofs that move the first bodies."""
        S, n, (nv, k) = lever.S, len(first), x.shape
        moving = spatial.materialize((S[:, None] * x[:, :, None]).reshape(nv, 6 * k))
        above = accumulate_before(tree, moving).reshape(nv, k, 6)
        psi = spatial.cross_motion(above, S[:, None]).reshape(nv, 6 * k)
        V = jnp.concatenate([first, lever.mask]) @ moving
        V = V.reshape(2, n, k, 6).transpose(3, 0, 2, 1).reshape(6, 2 * k, n)
        seen = times(W, V)
        return Rates(*spatial.materialize((psi, seen[:, :k], seen[:, k:])))


def _blocks(turning: Turning, change: Change) -> tuple[Array | None, Array, Array]:
    """∂φ/∂q + [×* φ] Γ as (·, 6 + 6k, n) on S and the ψ̇(x) of what moves relatively, and (·, 6, n) on S per side."""
    W, x, follow = turning.W, turning.rates, cast(tuple[Array, Array], turning.follow)
    count = 6 if change.force is not None else len(cast(Array, change.distance))

    def through(matrix: Array, rows: Array) -> Array:
        out = times(matrix, rows[: matrix.shape[1]])
        return jnp.pad(out, ((0, count - len(out)), (0, 0), (0, 0)))

    def seen(rates: Array) -> Array:
        """Sum of the dependences, each through the rate's motion as the frame turns."""
        parts = (through(m, _cross_rows(rates[:, k])) for k, m in enumerate(change.by) if m is not None)
        return spatial.materialize(sum(parts))

    moves = any(m is not None for m in change.by)
    K = seen(x.relative) if moves else jnp.zeros((count, *W.shape[1:]), W.dtype)
    shift = K if change.force is None else K + _cross_force_rows(change.force)
    shift = spatial.materialize(shift)
    first, second = (times(shift, side[1:]) for side in follow)
    if change.distance is not None:
        nearer = jnp.pad(change.distance, ((0, count - len(change.distance)), (0, 0)))[:, None]
        first, second = first + nearer * follow[0][:1], second + nearer * follow[1][:1]
    if not moves:
        return None, *spatial.materialize((first, second))
    none = jnp.zeros_like(K)
    together = [none if m is None else through(m, W) for m in change.by[: x.joints]]
    together = jnp.concatenate([-times(seen(x.first), W), *together], 1)
    return spatial.materialize((together, first, second - times(K, W)))


def _cross_rows(m: Array) -> Array:
    """Matrix [m ×] (6, 6, n) of motion vectors (6, n) ordered linear, angular."""
    linear, turn = spatial.skew_columns(m[:3]), spatial.skew_columns(m[3:])
    return _square([[turn, linear], [jnp.zeros_like(turn), turn]])


def _cross_force_rows(f: Array) -> Array:
    """Matrix (6, 6, n) of Γ ↦ Γ ×* f for motions Γ and forces f (6, n), both ordered linear, angular."""
    push, twist = spatial.skew_columns(f[:3]), spatial.skew_columns(f[3:])
    return -_square([[jnp.zeros_like(push), push], [push, twist]])


def _cross_force(m: Array, f: Array) -> Array:
    """m ×* f (6, ...) of motions and forces, both ordered linear, angular."""
    cross = spatial.columns_cross
    return jnp.concatenate([cross(m[3:], f[:3]), cross(m[:3], f[:3]) + cross(m[3:], f[3:])])
