"""Rows of tendons: lengths that are coupled, dry friction and limits."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.constraints.block import Block, Frame, RowKind, Side, limiting, nearer_end, rubbing
from ukemi.constraints.equalities import block_of, quartic, rows_of
from ukemi.maths.gathers import pick, pick_rows, placed_sums
from ukemi.mechanics.tendons.paths import moved_dofs, tendon_lengths
from ukemi.model.records import Model
from ukemi.model.tendons import Tendons


def _coupling_moves(model: Model) -> np.ndarray:
    first, second = model.equalities.layout.objects[rows_of(model, "tendon")].T
    moved = moved_dofs(model)
    return moved[first] | (moved[np.maximum(second, 0)] & (second >= 0)[:, None])


def _followed(model: Model, length: Array) -> tuple[np.ndarray, np.ndarray, Array, Array]:
    """Tendons (n,) that follow and those that are followed, how far they are off, and the slope of what they follow."""
    index = rows_of(model, "tendon")
    first, second = model.equalities.layout.objects[index].T
    pair, other = second >= 0, np.maximum(second, 0)
    shift = length - model.tendons.length0
    value, slope = quartic(model.equalities.data[index], jnp.where(pair, pick(shift, other), 0.0))
    return first, second, pick(shift, first) - value, jnp.where(pair, slope, 0.0)


def _couplings(frame: Frame, _: bool) -> Block:
    """Tendon 1 as a quartic polynomial of tendon 2, from their lengths at qpos0, or held at a constant."""
    model, index = frame.model, rows_of(frame.model, "tendon")
    length, J = tendon_lengths(model, frame.kin, frame.q)
    first, second, residual, slope = _followed(model, length)
    pair, other, inverse = second >= 0, np.maximum(second, 0), model.tendons.invweight
    J = pick_rows(J, first) - slope[:, None] * pick_rows(J, other)
    weight = inverse[first] + jnp.where(pair, inverse[other], 0.0)
    return block_of(model, index, J, residual, residual, weight, jnp.zeros_like(residual))


def _dry_moves(model: Model) -> np.ndarray:
    return moved_dofs(model)[model.tendons.layout.dry]


def _dry_rows(frame: Frame, _: bool) -> Block:
    """One row per tendon with friction loss."""
    tendons, own = frame.model.tendons, frame.model.tendons.layout.dry
    return rubbing(tendons, own, pick_rows(tendon_lengths(frame.model, frame.kin, frame.q).moment, own))


def _limit_moves(model: Model) -> np.ndarray:
    return moved_dofs(model)[model.tendons.layout.limit_rows[:, 0]]


def _ends(tendons: Tendons, length: Array) -> tuple[np.ndarray, Array, Array]:
    """Tendons (n,) of limits, distances to the nearer one, or to both where both can act, and how these grow."""
    own, side = tendons.layout.limit_rows.T
    distance, lower = nearer_end(pick(length, own), tendons.range[own], side)
    return own, distance, jnp.where(lower, 1.0, -1.0)


def _limit_rows(frame: Frame, _: bool) -> Block:
    """The nearer limit, or both where both can act."""
    tendons = frame.model.tendons
    length, moment = tendon_lengths(frame.model, frame.kin, frame.q)
    own, distance, sign = _ends(tendons, length)
    return limiting(tendons, own, distance, sign[:, None] * pick_rows(moment, own), tendons.invweight[own])


def tensions(kind: RowKind, model: Model, length: Array, f: Array) -> Array:
    """What the impulses (n,) of the rows of a kind are along tendons (nt,)."""
    if kind is TENDON_DRY_FRICTION:
        return placed_sums(f, model.tendons.layout.dry, len(length))
    if kind is TENDON_LIMITS:
        own, _, sign = _ends(model.tendons, length)
        return placed_sums(sign * f, own, len(length))
    first, second, _, slope = _followed(model, length)
    return placed_sums(jnp.concatenate([f, -slope * f]), np.concatenate([first, np.maximum(second, 0)]), len(length))


TENDON_COUPLINGS = RowKind("coupling of tendons", "equality", Side.HOLD, _coupling_moves, _couplings)
TENDON_DRY_FRICTION = RowKind("dry friction of a tendon", "frictionloss", Side.RUB, _dry_moves, _dry_rows)
TENDON_LIMITS = RowKind("limit of a tendon", "limit", Side.PUSH, _limit_moves, _limit_rows)
