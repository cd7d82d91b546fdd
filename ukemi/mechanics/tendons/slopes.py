"""How moment arms turn with the joints: second derivatives of lengths, in closed form.

An end of a straight part pulls with F on its point, which moves at J_i with dof i, against what the other end lies on.
Only dofs between its body and that base count. With T_ij = F · (ω_j × J_i), the motion of an arm that rides along with
a dof above it, a span changes ∂length/∂q_i along q_j by

    s_i (anc_ij − b_j) T_ij + s_i (s_j − anc_ij + b_j) T_ji + Σ_k stiff_k (row_k · J_i) (row_k · J_j)

where s is 1 for dofs that move the body and −1 for those that move the base (b = 1), in tangent space, and the last
term is how the string gives way across itself (`wrapping.bending`), both ends of a string at a shape taken together.
It is not symmetric where a rotation has three dofs: these do not commute.
"""

from typing import NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial
from ukemi.maths.gathers import pick, placed_sums
from ukemi.mechanics.kinematics import Kinematics
from ukemi.mechanics.tendons.paths import Part
from ukemi.mechanics.tendons.wrapping import bending
from ukemi.model.records import Model


class Turns(NamedTuple):
    """∂(moment arm of a tendon about dof i)/∂q_j, as a list of what adds up."""

    change: Array  # (k,)
    tendon: np.ndarray  # (k,)
    i: np.ndarray  # (k,)
    j: np.ndarray  # (k,)


def turns(model: Model, kin: Kinematics, parts: list[Part]) -> Turns:
    """Of all strings."""
    none = np.zeros(0, int)
    found = [Turns(jnp.zeros(0, kin.S.dtype), none, none, none), *(_of_part(model, part) for part in parts)]
    change, *places = zip(*found, strict=True)
    return Turns(jnp.concatenate(change), *map(np.concatenate, places))


def _of_part(model: Model, part: Part) -> Turns:
    over, ends, n = part.over, part.ends, len(part.spans)
    span = over.end % n
    x, y = np.nonzero(span[:, None] == span)  # pairs of dofs that move one span
    i, j, one = over.dof[x], over.dof[y], over.end[x] == over.end[y]
    below = model.tree.anc[i, j].astype(int) - model.tree.moves[ends.base[over.end[x]], j]
    ridden, rode = over.sign[x] * below * one, over.sign[x] * (over.sign[y] - below) * one
    turned = spatial.columns_cross(pick(ends.force, over.end), over.turn)
    rows, stiff = _bent(part)
    move, turned, rows = spatial.materialize((over.move, turned, rows))
    change = ridden * (pick(turned, y) * pick(move, x)).sum(0) + rode * (pick(turned, x) * pick(move, y)).sum(0)
    change = change + (pick(stiff, span[x]) * pick(rows, x) * pick(rows, y)).sum(0)
    return Turns(change, part.spans[span[x], 0], i, j)


def _bent(part: Part) -> tuple[Array, Array]:
    """row_k · J_i of crossings (k, m), and stiff_k of spans (k, n)."""
    over = part.over
    if part.shapes is None:
        length = jnp.where(part.length > 0, part.length / part.share, 1.0)
        across = spatial.columns_across(part.ends.force / part.share)
        rows = jnp.stack([over.sign * (pick(x, over.end) * over.move).sum(0) for x in across])
        return rows, jnp.where(part.length > 0, part.share / length, 0.0)[None]
    mat, sphere, way = part.shapes
    bent = bending(way, sphere)
    rows = jnp.concatenate([bent.rows[:, 0], bent.rows[:, 1]], -1)
    rows, stiff = spatial.materialize((rows, bent.stiff * part.share))
    seen = (pick(mat, over.end % mat.shape[-1]) * over.move[:, None]).sum(0)
    return (pick(rows, over.end) * seen).sum(1) * over.sign, stiff


def velocity_slopes(model: Model, found: Turns, v: Array) -> Array:
    """∂(m v)/∂q (nt, nv) of velocities along tendons with moment arms m."""
    shape = len(model.tendons.layout.names), model.nv
    places = found.tendon * model.nv + found.j
    return placed_sums(found.change * pick(v, found.i), places, int(np.prod(shape))).reshape(shape)


def force_slopes_of_strings(model: Model, found: Turns, tension: Array) -> Array:
    """∂(mᵀ f)/∂q (nv, nv) of constant tensions (nt,)."""
    places = found.i * model.nv + found.j
    return placed_sums(found.change * pick(tension, found.tendon), places, model.nv**2).reshape(model.nv, model.nv)


def pull_of_strings(model: Model, found: Turns, pairs: list[tuple[Array, Array]]) -> Array:
    """Σ fᵀ ∂(m x)/∂q (nv,) over pairs of constant f (nt,) and x (nv,), without a matrix in between."""
    weight = cast(Array, sum(pick(f, found.tendon) * pick(x, found.i) for f, x in pairs))
    return placed_sums(found.change * weight, found.j, model.nv)
