"""The derivatives of a step of rigid contact: what its unknowns do about an imbalance, and the gradient rules.

The residual is that of `laws.rigid.impulses`, at the sides that the solver found. `solve` moves vectors through it, for
gradients and for any parameter; `jacobians` has it dense in state and controls; `solve_aware` chooses other sides.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.constraints.block import Frame
from ukemi.constraints.rows import RowKinds, constant_dofs, row_kinds, row_map, row_matrix
from ukemi.implicit.rule import filled, pushforward, root, zero_tangent
from ukemi.laws.active_contacts import in_chunks, with_slots
from ukemi.laws.here import Here
from ukemi.laws.here_slopes import columns_of, following
from ukemi.laws.momentum import damping_varies
from ukemi.laws.momentum_slopes import damped_slopes, missing_slopes
from ukemi.laws.rigid import boxes, conditions, impulse_slopes
from ukemi.laws.rigid.conditions import Stepping
from ukemi.laws.rigid.impulse_slopes import Motion, OfRows, RowSlopes
from ukemi.laws.rigid.impulses import (
    Balance,
    Impulses,
    Problem,
    Scene,
    find,
    firm_rows,
    imbalance,
    problem,
    row_balance,
    scene,
    solve_restoring,
)
from ukemi.laws.rigid.live_rows import live_rows, on_rows
from ukemi.maths import spatial
from ukemi.mechanics.dynamics import inertial_slope
from ukemi.mechanics.kinematics import tangent_vector


class Response(NamedTuple):
    """What the unknowns do about an imbalance: dv⁺ = −(force · dR_force + rowsᵀ · dR_rows), and dδ alike."""

    force: Array  # (nv, nv)
    rows: Array  # (total, nv)
    shift: Array  # (nv, nv)
    restore: Array  # (total, nv)
    bounce: Array  # (nv, nv) how a displacement of the start turns round where contacts bounce


def response(kinds: RowKinds, stepping: Stepping, z: Impulses, scene: Scene, bounces: bool) -> Response:
    """Inverse of the residual's Jacobian in v⁺ and f, as seen by v⁺, at the sides that `scene` names.

    The rows' part is solved from the left, so that it exists where contacts are more than the degrees of freedom: what
    they cannot tell apart drops out of v⁺ (Nimble, IV-C).
    """

    def invert(own_kinds: RowKinds, scene: Scene, bounce: Array) -> Response:
        own, given = boxes.roles(own_kinds), problem(scene, own_kinds, stepping)
        p, side = given.boxed, scene.sides.rows[: own_kinds.total]
        free = scene.inverse
        clamped, firm = boxes.is_clamped(p, own, side), firm_rows(p, own, side)
        seen = (given.X * p.scale).T
        rows = on_rows(_inverse_rows, live_rows(p, own, side), p, own, side, seen)
        restore = _inverse_restoring(given, own, firm, seen)
        room = ((0, kinds.total - own_kinds.total), (0, 0))
        turn = jnp.zeros_like(free)
        if bounces:
            thrown = jnp.concatenate([jnp.zeros(own_kinds.scalar, bool), bounce.reshape(-1)]) & clamped
            turn = _turning(given, own, thrown)
        return Response(
            free - spatial.materialize(given.X @ jnp.where(clamped[:, None], rows, 0.0)).T,
            jnp.pad(rows, room),
            free - spatial.materialize(given.X @ restore).T,
            jnp.pad(restore, room),
            turn,
        )

    if not kinds.total:
        free, none = scene.inverse, jnp.zeros((0, len(scene.free)), scene.free.dtype)
        return Response(free, none, free, none, jnp.zeros_like(free))
    bounce = kinds.of_contacts(z.bounce)
    return with_slots(invert, kinds)(scene, bounce)


def _inverse_rows(p: boxes.Boxed, own: boxes.Roles, side: Array, seen: Array) -> Array:
    """(M̂⁻¹Jᵀ system⁻¹)ᵀ (n, nv) in the units of the rows, of seen = (M̂⁻¹Jᵀ)ᵀ in those of the system."""
    regular = boxes.system(p, own, side, boxes.Constants.of(seen.dtype).delta)
    # copied, as `spatial.gram` does
    regular, exact = spatial.materialize(regular.T), spatial.materialize(boxes.system(p, own, side, 0.0).T)
    left = boxes.refined(regular, exact, seen, own).least
    of_side = jnp.where(p.on, 1 / jnp.where(p.on, p.scale, 1.0), 1.0)
    return left * jnp.where(boxes.is_clamped(p, own, side), p.scale, of_side)[:, None]


def _inverse_restoring(given: Problem, own: boxes.Roles, firm: Array, seen: Array) -> Array:
    """(M̂⁻¹Jᵀ (A + yields)⁻¹)ᵀ (n, nv) over the firm rows, where any is to be restored: equalities always, since those
    that are met exactly would be restored from either side.
    """
    p, seen = given.boxed, jnp.where(firm[:, None], seen, 0.0)

    def invert(seen: Array) -> Array:
        return on_rows(solve_restoring, firm, p, own, firm, given.law.yields, seen) * p.scale[:, None]

    needed = (firm & (own.hold | (given.law.restore != 0))).any()
    return lax.cond(needed, invert, jnp.zeros_like, seen)


def _turning(given: Problem, own: boxes.Roles, thrown: Array) -> Array:
    """M̂⁻¹ J_bᵀ A_bb⁻¹ (1 + e) J_b of the rows b that bounce.

    A body that starts nearer to what it hits turns round earlier, so that it ends farther: the time of impact moves
    by −J δq / (J v), and with it the jump (1 + e) M̂⁻¹ Jᵀ A⁻¹ J v (Nimble, VI and appendix E, in the metric of M̂).
    """

    def solve(p: boxes.Boxed, own: boxes.Roles, thrown: Array, right: Array) -> Array:
        thrown, eye = thrown & p.on, np.eye(len(thrown), dtype=right.dtype)
        exact = jnp.where(thrown[:, None] & thrown, boxes.matrix(p), jnp.where(thrown, 0.0, 1.0)[:, None] * eye)
        return boxes.refined(exact + boxes.Constants.of(right.dtype).delta * eye, exact, right, own).least

    p = given.boxed
    right = jnp.where(thrown, (1 + given.law.restitution) * p.scale, 0.0)[:, None] * given.J
    return (given.X * p.scale) @ on_rows(solve, thrown, p, own, thrown, right)


def solve(stepping: Stepping, args, *, bounces: bool = False) -> tuple[Impulses, tuple[Array, Array]]:
    """What a step finds from args (here, duration, sides), differentiable at its sides; a fourth is an `Event`, with
    `here` at rest where it displaces.

    bounces: with the change of the time of impact.
    """
    return root(partial(_find, stepping), partial(_exact_rule, stepping, bounces))(args)


def _find(stepping: Stepping, args):
    return find(row_kinds(args[0].model), stepping, scene(*args))


def _exact_rule(stepping: Stepping, bounces: bool, z: Impulses, args, along):
    here, duration, sides, *event = args
    dr = pushforward(lambda moving: imbalance(stepping, z, *moving, *event), (here, duration), along[:2])
    if dr is None:
        return None
    kinds, now = row_kinds(here.model), scene(here, duration, replace(sides, rows=z.side), *event)
    move = response(kinds, stepping, z, now, bounces)
    dv = -(move.force @ dr.force + dr.rows @ move.rows)
    dr = dr._replace(restore=dr.restore + _opening(kinds, now, lambda J: J @ dv, jnp.zeros_like(dr.restore)))
    shift = -(move.shift @ dr.shift + dr.restore @ move.restore)
    if bounces:
        dq = filled(along[0].q, here.q)
        shift = shift - move.bounce @ tangent_vector(here.model.tree, here.q, dq)
    df, dlam = _force_change(kinds, stepping, now, dr)  # which second derivatives see
    return zero_tangent(z)._replace(v=dv, shift=shift, f=df, lam=dlam)


def _opening(kinds: RowKinds, scene: Scene, function: Callable[[Array], Array], none: Array) -> Array:
    """`function(h J)` with the rows (total, nv) that are opening, the others zero; `none` where no row is.

    How much they open by is part of what restores them, so that dδ follows dv⁺ there.
    """
    opening = scene.sides.rows == boxes.OPENING

    def of_rows(_):
        J = row_matrix(scene.frame, kinds, conditions.scalar_rows(scene.frame))
        return function(scene.duration * jnp.where(opening[:, None], J, 0.0))

    return lax.cond(opening.any(), of_rows, lambda none: none, none) if kinds.total else none


class _Imbalance(NamedTuple):
    """A change of the residual, and where."""

    frame: Frame
    scene: Scene
    change: Balance


def _force_change(kinds: RowKinds, stepping: Stepping, scene: Scene, dr: Balance) -> tuple[Array, Array]:
    """Changes (total,) of f and λ along an imbalance: of least norm, since of those that bodies cannot tell apart each
    leads to the same derivatives of their motion.
    """

    def solve(own_kinds: RowKinds, at: _Imbalance) -> tuple[Array, Array]:
        scene, (force, shift, rows, restore) = at.scene._replace(frame=at.frame), at.change
        own, given = boxes.roles(own_kinds), problem(scene, own_kinds, stepping)
        p, side, n = given.boxed, scene.sides.rows[: own_kinds.total], own_kinds.total
        clamped, firm = boxes.is_clamped(p, own, side), firm_rows(p, own, side)
        of_side = jnp.where(p.on, 1 / jnp.where(p.on, p.scale, 1.0), 0.0)
        right = jnp.where(clamped, p.scale * (given.X.T @ force - rows[:n]), -of_side * rows[:n])
        df = on_rows(boxes.solved, live_rows(p, own, side), p, own, side, right).least
        right = jnp.where(firm, p.scale * (given.X.T @ shift - restore[:n]), 0.0)[:, None]
        dlam = on_rows(solve_restoring, firm, p, own, firm, given.law.yields, right)[:, 0] * p.scale
        room = (0, kinds.total - n)
        return jnp.pad(df * p.scale, room), jnp.pad(dlam, room)

    return with_slots(solve, kinds)(_Imbalance(scene.frame, scene, dr)) if kinds.total else (dr.rows, dr.restore)


def jacobians(kinds: RowKinds, stepping: Stepping, bounces: bool, z: Impulses, args, ahead) -> tuple[Array, Array]:
    """∂v⁺ and ∂δ (nv, nv + nv + na + nu) in position (tangent space), velocity, activation and control."""
    here, duration, sides = args
    now = scene(here, duration, replace(sides, rows=z.side))
    move = response(kinds, stepping, z, now, bounces)
    force, shift, rows, restore = _slopes(kinds, stepping, z, here, now, ahead)
    dv = -(move.force @ force) - _widened(spatial.gram(move.rows, rows), force)
    ds = spatial.gram(move.restore, restore)
    if bounces:
        ds = ds + move.bounce
    opened = _opening(kinds, now, lambda J: spatial.gram(move.restore, J @ dv), jnp.zeros_like(dv))
    return dv, -(move.shift @ shift) - _widened(ds, dv) - opened


def _widened(first: Array, like: Array) -> Array:
    """The first columns of a matrix whose others are zero."""
    return jnp.pad(first, ((0, 0), (0, like.shape[1] - first.shape[1])))


def _slopes(kinds: RowKinds, stepping: Stepping, z: Impulses, here: Here, now: Scene, ahead):
    """Slopes of `Balance`: force and shift in everything, rows in q and v, restore in q."""
    model, h, nv = here.model, here.model.options.timestep, here.model.nv
    e = (z.v - here.v) / h
    force = missing_slopes(here, e, now.M, now.frame.velocity)
    shift = _widened(inertial_slope(model, here.kin, z.shift), force)
    if damping_varies(model):
        shift = shift + h * damped_slopes(z.shift, here)
    rows, restore = jnp.zeros((0, 2 * nv), e.dtype), jnp.zeros((0, nv), e.dtype)
    n = kinds.scalar
    if n:
        part = _scalar_slopes(kinds, stepping, z, here, now)
        force, shift = force + _widened(part.force, force), shift + _widened(part.shift, shift)
        rows, restore = part.rows, part.restore
    if kinds.contacts:
        part = _contact_slopes(kinds, stepping, z, now, following(here, ahead))
        force, shift = force - _widened(part.pull, force), shift - _widened(part.drag, shift)
        rows = jnp.concatenate([rows, jnp.concatenate([part.q, part.v], -1)])
        restore = jnp.concatenate([restore, part.restore])
    return force, shift, rows, restore


def _contact_slopes(kinds: RowKinds, stepping: Stepping, z: Impulses, now: Scene, follow) -> RowSlopes:
    """Slopes of the contacts, of those slots that hold any."""

    def of_slots(own: RowKinds, motion: Motion, follow, *rows):
        part = impulse_slopes.contact_slopes(own, stepping, motion, OfRows(*(row.reshape(-1) for row in rows)), follow)
        by_row = [x.reshape(own.contacts, -1) for x in (part.q, part.v, part.restore)]
        return (part.pull, part.drag), by_row

    rows = [kinds.of_contacts(part) for part in (z.f, z.lam, z.side, z.bounce)]
    sums, by_row = in_chunks(of_slots, kinds)(Motion(now.frame, z.v, z.shift), follow, *rows)
    return RowSlopes(*sums, *(x.reshape(kinds.contacts * kinds.dim, -1) for x in by_row))


def _scalar_slopes(kinds: RowKinds, stepping: Stepping, z: Impulses, here: Here, now: Scene) -> Balance:
    """Slopes of rows that are not contacts, in q and v (force, rows) or q (shift, restore)."""
    only, nv = replace(kinds, contacts=0), here.model.nv
    if constant_dofs(here.model) is not None:
        q, v, restore = impulse_slopes.scalar_slopes(only, stepping, now.frame, z)
        none = jnp.zeros((nv, 2 * nv), q.dtype)
        return Balance(none, none[:, :nv], jnp.concatenate([q, v], -1), restore)
    n = kinds.scalar
    mine = z._replace(f=z.f[:n], lam=z.lam[:n], side=z.side[:n], bounce=z.bounce[:n])
    slopes = columns_of(lambda here: jnp.concatenate(row_balance(only, stepping, mine, here, now.duration)), here)
    parts = np.cumsum([nv, nv, n])
    q, v = (Balance(*jnp.split(columns, parts)) for columns in (slopes.q, slopes.v))
    force, rows = (jnp.concatenate(pair, -1) for pair in ((q.force, v.force), (q.rows, v.rows)))
    return Balance(force, q.shift, rows, q.restore)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def solve_aware(stepping: Stepping, args) -> tuple[Impulses, tuple[Array, Array]]:
    """`solve` with the reverse-mode rule of Nimble, IV-D; see `rules.ComplementarityAware`."""
    return _find(stepping, args)


def _solve_forward(stepping: Stepping, args):
    z, facts = _find(stepping, args)
    return (z, facts), (z, args)


def _solve_backward(stepping: Stepping, kept, wanted):
    (z, args), (wanted, _) = kept, wanted
    exact, size = _pull_back(stepping, z, args, wanted)
    sides = _as_wanted(row_kinds(args[0].model), z, scene(*args), wanted.v)
    other, other_size = _pull_back(stepping, z._replace(side=sides), args, wanted)
    return ((*_choose_cotangent(other_size > size, other, exact), *_no_cotangent(args[2:])),)


solve_aware.defvjp(_solve_forward, _solve_backward)


def _pull_back(stepping: Stepping, z: Impulses, args, wanted: Impulses):
    """Cotangents of all that the step depends on, and how large those of velocities and forces are."""
    here, h, sides = args
    kinds, now = row_kinds(here.model), scene(here, h, replace(sides, rows=z.side))
    move = response(kinds, stepping, z, now, bounces=False)
    shift, restore = -(wanted.shift @ move.shift), -(move.restore @ wanted.shift)
    v = wanted.v + _opening(kinds, now, lambda J: restore @ J, jnp.zeros_like(wanted.v))
    force = -(v @ move.force)
    balance = Balance(force, shift, -(move.rows @ v), restore)
    cotangent = jax.vjp(partial(imbalance, stepping, z), here, h)[1](balance)
    # R holds −h τ, so that the gradient in τ is −h times that in R
    return cotangent, (cotangent[0].v ** 2).sum() + ((h * force) ** 2).sum() / h


def _as_wanted(kinds: RowKinds, z: Impulses, scene: Scene, wanted: Array) -> Array:
    """Sides (total,) with the normals that the loss pulls apart separating, and those it presses together clamped."""
    own = boxes.roles(kinds)
    blocks = conditions.scalar_rows(scene.frame)
    slope = row_map(scene.frame, kinds, blocks).motion(scene.inverse @ wanted)
    normal = own.push & (np.arange(kinds.total) >= kinds.scalar)
    side = jnp.where(slope < 0, boxes.LOW, jnp.where(slope > 0, boxes.CLAMPED, z.side))
    side = jnp.where(normal, side, z.side)
    rubs = (own.owner != np.arange(kinds.total)) & (side[own.owner] <= boxes.LOW)
    return jnp.where(rubs, boxes.LOW, side).astype(z.side.dtype)  # what is let go does not rub


def _choose_cotangent(yes: Array, a, b):
    def pick(x, y):
        return x if x.dtype == jax.dtypes.float0 else jnp.where(yes, x, y)

    return jax.tree.map(pick, a, b)


def _no_cotangent(values):
    return jax.tree.map(lambda x: np.zeros(x.shape, jax.dtypes.float0), values)
