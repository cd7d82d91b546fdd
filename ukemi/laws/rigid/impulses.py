"""The balance of impulses of rigid contact: the problem that its solver is given, and the residual that its solution
brings to zero.

One step finds v⁺ and impulses f with

    M̂ (v⁺ − v) = h (τ − c) + Jᵀ f,        J v⁺ and f complementary within their boxes (`laws.rigid.boxes`)

with M̂ of `laws.momentum`; and a displacement M̂ δ = Jᵀ λ that takes back penetration and drift through the same rows on
the same sides, and leaves velocities alone. Of an overlap that opens at J v⁺ it takes back what that leaves of it.
"""

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.constraints.block import Frame
from ukemi.constraints.rows import RowKinds, row_kinds, row_map, row_matrix
from ukemi.laws.active_contacts import with_slots
from ukemi.laws.here import Here, applied, frame_of
from ukemi.laws.memory import same_names
from ukemi.laws.momentum import damped, free_motion, missing_impulse
from ukemi.laws.rigid import boxes, conditions
from ukemi.laws.rigid import solve as rigid
from ukemi.laws.rigid.conditions import Event, Stepping
from ukemi.laws.rigid.live_rows import on_rows
from ukemi.laws.rigid.memory import Sides
from ukemi.maths.ranking import place_in
from ukemi.maths.systems import eliminate
from ukemi.mechanics.dynamics import motion_force
from ukemi.mechanics.kinematics import velocities


class Impulses(NamedTuple):
    """What a step finds; rows have the order of `constraints.rows`."""

    v: Array  # (nv,) v⁺
    shift: Array  # (nv,) displacement δ against penetration and drift
    f: Array  # (total,) impulses [N s]
    lam: Array  # (total,) λ, what the displacement is made by
    side: Array  # (total,) int8: clamped, or the side of its box, or opening
    bounce: Array  # (total,) bool: leaves with restitution


class Scene(NamedTuple):
    """What a step's problem is made from."""

    frame: Frame
    M: Array  # (nv, nv) M̂
    inverse: Array  # (nv, nv) of M̂
    free: Array  # (nv,) velocity without impulses
    duration: Array  # () [s]
    sides: Sides  # of the last step, or of this one
    event: Event | None


def scene(here: Here, duration: Array, sides: Sides, event: Event | None = None) -> Scene:
    """The problem at `here`."""
    motion = free_motion(here, duration, event.lasts if event else None)
    return Scene(frame_of(here, motion.velocity), motion.M, motion.inverse, motion.v, duration, sides, event)


class Problem(NamedTuple):
    """Rows of a scene and their boxed problem."""

    J: Array  # (n, nv)
    X: Array  # (nv, n) M̂⁻¹ Jᵀ
    law: conditions.Law
    bounce: Array  # (n,) bool
    boxed: boxes.Boxed


def problem(scene: Scene, kinds: RowKinds, stepping: Stepping) -> Problem:
    """The boxed problem of a scene: w = J v⁺ less what the rows ask for.

    Rows that point where nothing can move, such as out of the plane of a planar robot, have rounding errors for a
    Jacobian. They are switched off: scaled like the others, they would lock whatever those point at.
    """
    blocks = conditions.scalar_rows(scene.frame)
    J = row_matrix(scene.frame, kinds, blocks)
    moving, free = J @ scene.frame.v, J @ scene.free
    law = conditions.law(scene.frame, kinds, blocks, moving, scene.duration, stepping, scene.event)
    own, rebound = boxes.roles(kinds), conditions.rebound(law.restitution, moving)
    bounce = law.on & own.push & ~(rebound <= 0) & (free < law.reach)  # NaN, too, so that it is not dropped
    X = scene.inverse @ J.T
    mobility = (J * X.T).sum(-1)
    around = law.weight + conditions.mobility_of_points(scene.frame, kinds, scene.inverse, mobility)
    on = law.on & ~(mobility <= boxes.Constants.of(J.dtype).still * around)
    p = boxes.boxed(boxes.Product(J, X), free - jnp.where(bounce, rebound, law.reach), law.fixed, law.mu, on, own)
    return Problem(J, X, law, bounce, p)


def find(kinds: RowKinds, stepping: Stepping, scene: Scene) -> tuple[Impulses, tuple[Array, Array]]:
    """Impulses of a scene, with (linear systems solved, whether that found a solution)."""

    def solve(own_kinds: RowKinds, scene: Scene):
        own, given = boxes.roles(own_kinds), problem(scene, own_kinds, stepping)
        p = given.boxed
        found = rigid.solve(p, own, _recalled(scene, own_kinds, own, p))
        f, side = found.f * p.scale, boxes.bounded(p, own, found.side)
        sound = jnp.isfinite(p.b + p.fixed + p.mu + f).all()  # comparisons of sides would drop a NaN
        v = jnp.where(sound, scene.free + given.X @ f, jnp.nan)
        inside = (p.on & (given.law.restore != 0)).any()
        side, lam, shift = lax.cond(
            inside, partial(_restoring, given, own, scene.duration), partial(_unmoved, given), side, v
        )
        room = (0, kinds.total - own_kinds.total)
        rows = tuple(jnp.pad(part, room) for part in (f, lam, side, given.bounce))
        sure = found.solved & found.settled
        if scene.event is not None and boxes.may_hold(own):
            sure = sure & (~scene.event.displaces | _is_met(given, own, given.J @ v))
        return Impulses(v, shift, *rows), (found.rounds, sure)

    if not kinds.total:
        none = jnp.zeros(0, scene.free.dtype)
        rows = none, none, jnp.zeros(0, jnp.int8), jnp.zeros(0, bool)
        return Impulses(scene.free, jnp.zeros_like(scene.free), *rows), (jnp.zeros((), jnp.int32), jnp.ones((), bool))
    return with_slots(solve, kinds)(scene)


def _is_met(given: Problem, own: boxes.Roles, moved: Array) -> Array:
    """Whether equalities ask for nothing that others of them rule out (): derivatives leave out how they compromise."""
    left = jnp.where(given.boxed.on & own.hold, moved - given.law.reach, 0.0)
    return jnp.abs(left).max(initial=0.0) <= boxes.Constants.of(moved.dtype).unmet


def _restoring(given: Problem, own: boxes.Roles, duration: Array, side: Array, v: Array) -> tuple[Array, Array, Array]:
    """Sides, with those that open; λ (n,) that restores normals, limits and equalities, less what they opened, while
    friction takes no part; and the displacement that it makes.
    """
    p, opened = given.boxed, duration * (given.J @ v)
    less = p.on & own.push & (given.law.restore > jnp.maximum(opened, 0.0))
    side = jnp.where(less & (side == boxes.LOW), boxes.OPENING, side).astype(side.dtype)
    firm = firm_rows(p, own, side)
    restore = given.law.restore - jnp.where(side == boxes.OPENING, opened, 0.0)
    wanted = jnp.where(firm, restore * p.scale, 0.0)

    def solve(wanted: Array) -> Array:
        solved = on_rows(solve_restoring, firm, p, own, firm, given.law.yields, wanted[:, None])
        return solved[:, 0] * p.scale

    lam = lax.cond((wanted != 0).any(), solve, jnp.zeros_like, wanted)
    return side, lam, given.X @ lam


def _unmoved(given: Problem, side: Array, v: Array) -> tuple[Array, Array, Array]:
    """The same where nothing is to be restored."""
    return side, jnp.zeros_like(given.boxed.b), jnp.zeros_like(v)


def solve_restoring(p: boxes.Boxed, own: boxes.Roles, firm: Array, yields: Array, right: Array) -> Array:
    """Solution (n, ·) of the system of λ, scaled."""
    firm, eye = firm & p.on, np.eye(len(firm), dtype=right.dtype)
    yielding = jnp.where(firm, yields * p.scale**2, 1.0)
    A = jnp.where(firm[:, None] & firm, boxes.matrix(p), 0.0) + yielding[:, None] * eye
    return eliminate(A, right, definite=True)


def firm_rows(p: boxes.Boxed, own: boxes.Roles, side: Array) -> Array:
    """Clamped rows (n,) but friction, and those opening."""
    return (boxes.is_clamped(p, own, side) & (own.push | own.hold)) | (p.on & (side == boxes.OPENING))


def _recalled(scene: Scene, kinds: RowKinds, own: boxes.Roles, p: boxes.Boxed) -> Array:
    """Sides that the last step's rows had; of new contacts those that approach are clamped."""
    scalar, now = kinds.scalar, scene.frame.contacts.names
    if not kinds.contacts:
        return scene.sides.rows
    same = same_names(now, scene.sides.contacts)
    before = scene.sides.rows[scalar:].reshape(len(scene.sides.contacts), -1)[place_in(same, none=0)]
    fresh = jnp.where(own.push & (p.b >= 0), boxes.LOW, boxes.CLAMPED).astype(jnp.int8)
    contacts = jnp.where(same.any(-1)[:, None], before, fresh[scalar:].reshape(-1, kinds.dim))
    return jnp.concatenate([scene.sides.rows[:scalar], contacts.reshape(-1)])


# ---- residual --------------------------------------------------------------------------------------------------------


class Balance(NamedTuple):
    """What a step brings to zero."""

    force: Array  # (nv,) of the impulses
    shift: Array  # (nv,) of the displacement
    rows: Array  # (total,) conditions of the rows' sides on v⁺ and f
    restore: Array  # (total,) and on the displacement and λ


def imbalance(stepping: Stepping, z: Impulses, here: Here, duration: Array, event: Event | None = None) -> Balance:
    """Residual of the step at given sides."""
    model, kin, h = here.model, here.kin, duration
    rows = row_balance(row_kinds(model), stepping, z, here, h, event)
    if event is not None:  # displacements are sought for themselves: there is no δ beside velocities
        missing = lax.cond(event.lasts, missing_impulse, _missing_at_once, here, z.v, h)
        return rows._replace(force=rows.force + missing)
    e = (z.v - here.v) / h
    of_rate, of_shift = h * damped(jnp.stack([e, z.shift]), here)
    inertial = motion_force(model, kin, e, velocities(model.tree, kin.S, here.v)) + of_rate
    lagging = motion_force(model, kin, z.shift) + of_shift
    return rows._replace(force=rows.force + h * (inertial - applied(here)), shift=rows.shift + lagging)


def _missing_at_once(here: Here, after: Array, duration: Array) -> Array:
    """Impulse (nv,) that changes the velocity to `after` in an instant."""
    return motion_force(here.model, here.kin, after - here.v)


def row_balance(
    kinds: RowKinds, stepping: Stepping, z: Impulses, here: Here, duration: Array, event: Event | None = None
) -> Balance:
    """The rows' part of the residual."""
    frame = frame_of(here)
    blocks, own = conditions.scalar_rows(frame), boxes.roles(kinds)
    rows = row_map(frame, kinds, blocks)
    moving, moved = rows.motion(here.v), rows.motion(z.v)
    law = conditions.law(frame, kinds, blocks, moving, duration, stepping, event)
    opening = law.on & (z.side == boxes.OPENING)
    clamped = law.on & (own.hold | (z.side == boxes.CLAMPED))
    firm = (clamped & (own.push | own.hold)) | opening
    restore = law.restore - jnp.where(opening, duration * moved, 0.0)
    target = jnp.where(z.bounce, conditions.rebound(law.restitution, moving), law.reach)
    at_side = z.f - z.side * (law.fixed + law.mu * z.f[own.owner])
    return Balance(
        -rows.pull(z.f),
        -rows.pull(z.lam),
        jnp.where(clamped, moved - target, jnp.where(law.on, at_side, z.f)),
        jnp.where(firm, rows.motion(z.shift) + law.yields * z.lam - restore, z.lam),
    )
