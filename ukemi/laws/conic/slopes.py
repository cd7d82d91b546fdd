"""Dense derivatives of hard contact in joint coordinates, in closed form: what `linearize` of `NCP` is made of.

The residual depends on the pose at the end through a tangent vector δ⁺ = C δ + T h dv⁺, with C what carries a change of
the start along and T = J_r of the turn within the step (one, where nothing turns freely):

    of the force        ∂/∂x (M̂ (v⁺ − v) − h (τ − c)) − Tᵀ ∂(J⁺ᵀ f)/∂q⁺ δ⁺ − d(Tᵀ) J⁺ᵀ f
    of gaps             J⁺ δ⁺,     of those that bounce    h (J⁺ dv⁺ + ∂(J⁺ v⁺)/∂q⁺ δ⁺ + d(e J v))
    of slips            μ (J⁺ dv⁺ + ∂(J⁺ v⁺)/∂q⁺ δ⁺)
    of equalities       (G⁺ δ⁺ − G δ)/h
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from ukemi.collide.detect import attached
from ukemi.constraints.block import Frame
from ukemi.constraints.contact_slopes import Change, Follow, Turning, ridden, wrench_slopes
from ukemi.constraints.rows import RowKinds, constant_dofs, row_map, row_matrix
from ukemi.laws.active_contacts import in_chunks
from ukemi.laws.conic import newton
from ukemi.laws.conic.balance import asked, cone_heads, impulses, matched, of_origin, start_of
from ukemi.laws.conic.cones import Products, layout, of_cones, of_heads, owned
from ukemi.laws.conic.derivative import follower
from ukemi.laws.conic.end import Across, blocks_of
from ukemi.laws.conic.mechanics import End, Joints, without_contacts
from ukemi.laws.conic.newton import Slopes
from ukemi.laws.conic.unknowns import Imbalance, Known, Path, Point
from ukemi.laws.here import Here, frame_of
from ukemi.laws.here_slopes import columns_of, following
from ukemi.laws.momentum import free_motion
from ukemi.laws.momentum_slopes import missing_slopes
from ukemi.mechanics.kinematics import carry, coordinate_rate, integrate_slopes


class AtEnd(NamedTuple):
    """How rows at the end change with the pose there, in its tangent space."""

    J: Array  # (total, nv)
    pull: Array  # (nv, nv) ∂(Jᵀ f)/∂q⁺
    turn: Array  # (total, nv) ∂(J v⁺)/∂q⁺


def jacobian(kinds: RowKinds, z: Point, known: Known, ahead, here: Here, duration: Array, path: Path) -> Array:
    """∂v⁺ (nv, 2nv + na + nu) in position (tangent space), velocity, activation and control."""
    model, own, nv = here.model, layout(here.model, kinds), here.model.nv
    end = Joints().ending(here, kinds, z.v, duration, follower(here, known, ahead))
    start, free = start_of(here, kinds, duration), free_motion(here, duration)
    found = matched(own, start, known.origin)
    wants = asked(own, end.rows, found, end.motion(), known.bounce, duration, path)
    f = impulses(own, kinds, z, wants.mu, known.on)
    at, (C, T) = _at_end(here, end, f, ahead), integrate_slopes(model.tree, z.v, duration)
    # in v⁺
    pulls, bend = at.J @ T, jax.jacfwd(lambda v: Across.of(model.tree, v, duration).rows(f @ at.J))(z.v)
    M = free.M - bend - duration * (T.T @ at.pull @ T)
    moves = at.J + duration * (at.turn @ T)
    slips, rubs = (wants.mu[:, :, None] * of_cones(own, x) for x in (moves, pulls))
    heads, held = of_heads(own, pulls), pulls[kinds.holding]
    gaps = jnp.where(known.bounce[:, None], of_heads(own, moves), heads)
    slopes = Slopes(duration * gaps, slips, held, heads, rubs, held)
    head = cone_heads(own, z, wants, known.on[1])
    step = newton.solver(newton.system(own, z.cones, head, wants, known.on, M, slopes), refined=True)
    # in the state and the controls
    force = missing_slopes(here, (z.v - here.v) / duration, free.M, free.velocity)
    off = _of_start(kinds, here, known, start, at, C, duration, ahead, wants.fade)
    force = force.at[:, :nv].add(-(T.T @ at.pull @ C))
    room = force.shape[1] - 2 * nv
    wide = jax.tree.map(lambda x: jnp.pad(x, ((0, 0),) * (x.ndim - 1) + ((0, room),)), off)
    heads, rubs = (on[:, None] for on in known.on)
    slack = jnp.where(heads, wide.slack, 0.0)
    slip = jnp.where(rubs[:, None], wants.mu[:, :, None] * wide.slip, 0.0)
    aims = jnp.where(heads, wide.products.heads, 0.0), jnp.where(rubs, wide.products.first, 0.0)
    products = Products(*aims, jnp.zeros_like(slip))
    whole = Imbalance(force, wide.held, slack, slip, products)
    return jax.vmap(lambda off: step(off)[0].v, in_axes=-1, out_axes=-1)(whole)


def _of_start(kinds: RowKinds, here: Here, known: Known, start, at: AtEnd, C: Array, h: Array, ahead, fade: Array):
    """How what is asked changes with q and v at a given v⁺ (·, 2nv), but for the force; slips without coefficients."""
    own, nv = layout(here.model, kinds), here.model.nv
    frame = frame_of(here)
    J = row_matrix(frame, kinds, blocks_of(frame))
    inside = jnp.where((start.inside > 0)[:, None], -of_heads(own, J), 0.0)
    nearer, turned = of_heads(own, at.J @ C), at.turn @ C

    def rebounds(_):
        def rebound(here: Here) -> Array:
            there = here._replace(contacts=attached(here.model, here.kin, here.contacts, ahead))
            return start_of(there, kinds, h).rebound

        found = columns_of(rebound, here)
        return jnp.concatenate([found.q, found.v], -1)

    none = jnp.zeros((len(start.rebound), 2 * nv), J.dtype)
    thrown = lax.cond((start.rebound > 0).any(), rebounds, lambda none: none, none) if len(none) else none
    inside, thrown = (of_origin(own, x, known.origin) for x in (inside, thrown))
    bounce, room = known.bounce[:, None], ((0, 0), (0, nv))
    gap = jnp.where(bounce, 0.0, nearer + inside)
    leaves = jnp.pad(h * of_heads(own, turned), room) - h * thrown
    slack = jnp.where(bounce, leaves, jnp.pad(gap, room))
    aims = jnp.pad(-fade[:, None] * nearer, room)
    held = jnp.pad((at.J @ C - J)[kinds.holding] / h, room)
    slip = jnp.pad(of_cones(own, turned), ((0, 0), *room))
    empty = jnp.zeros((0, 2 * nv), J.dtype)
    return Imbalance(empty, held, slack, slip, Products(aims, owned(own, aims), empty))


def _at_end(here: Here, end: End, f: Array, ahead) -> AtEnd:
    """Slopes of the rows at the end."""
    kinds, frame, nv = end.kinds, end.frame, here.model.nv
    scalar, n = without_contacts(kinds), kinds.scalar
    parts = [row_matrix(frame, scalar, end.blocks)], [jnp.zeros((n, nv), f.dtype)]
    pull = jnp.zeros((nv, nv), f.dtype)
    if constant_dofs(here.model) is None:
        pull = pull + _pull_of_scalars(scalar, frame, f[:n])
    if kinds.contacts:
        follow = following(here._replace(kin=frame.kin, contacts=frame.contacts), ahead)
        forces = kinds.of_contacts(f)
        ride, by_row = in_chunks(_of_contacts, kinds)(_AtFrame(frame), follow, forces)
        pull = pull + ride
        for part, rows in zip(parts, by_row, strict=True):
            part.append(rows.reshape(-1, nv))
    J, turn = (jnp.concatenate(part) for part in parts)
    return AtEnd(J, pull, turn)


class _AtFrame(NamedTuple):
    """What `in_chunks` takes contacts from."""

    frame: Frame


def _of_contacts(own: RowKinds, at: _AtFrame, follow: Follow, forces: Array):
    """∂(Jᵀ f)/∂q, and J and ∂(J v)/∂q (n, dim nv) of a few contacts."""
    frame, dim = at.frame, own.dim
    turning = Turning.of(frame.model, frame.kin, frame.contacts, dim, frame.v[:, None], follow)
    there = frame.contacts.active.astype(frame.v.dtype)
    force = jnp.pad(forces, ((0, 0), (0, 6 - dim))).T
    ones = jnp.eye(dim, dtype=frame.v.dtype)[:, :, None] * there
    changes = [Change(None, (ones,), jnp.zeros((dim, len(there)), frame.v.dtype)), Change(force, (None,), None)]
    J, (moved, ride), _ = wrench_slopes(turning, changes, [])
    pull = ridden(frame.model.tree, turning, force, J, ride)
    rows = (x.transpose(1, 0, 2).reshape(len(there), -1) for x in (J[:dim] * there[:, None], moved))
    return pull, tuple(rows)


def _pull_of_scalars(kinds: RowKinds, end: Frame, f: Array) -> Array:
    """∂(Jᵀ f)/∂q⁺ (nv, nv) of rows that are not contacts."""

    def pulled(shift: Array) -> Array:
        kin = jax.tree.map(jnp.add, end.kin, carry(end.model, end.kin, shift))
        q = end.q + coordinate_rate(end.model.tree, end.q, shift)
        frame = end._replace(kin=kin, q=q)
        return row_map(frame, kinds, blocks_of(frame)).pull(f)

    return jax.jacfwd(pulled)(jnp.zeros_like(end.v))
