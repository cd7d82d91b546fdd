"""The primal–dual interior point method (Dojo, algorithm 2) for a step with contacts at its end.

It differs from the paper in what it seeks: the point of the central path at κ, which depends on nothing but the step's
data, instead of the first point below a tolerance. So the line search measures the distance from the target. Contacts
are found anew at every point that is tried, and their variables go with their names.

All is a loop whose turn looks at one point: it takes it, and decides on the next direction, or goes back half way.
Thus geometry and linear algebra are compiled once, or once per number of contacts that there is room for.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.laws.conic import cones
from ukemi.laws.conic.balance import (
    SHALLOW,
    asked,
    cone_heads,
    impulses,
    matched,
    residual,
)
from ukemi.laws.conic.cones import Cones, of_cones, of_heads, of_places, owned
from ukemi.laws.conic.direction import SHORT, direction
from ukemi.laws.conic.learning import aside, learned, noted
from ukemi.laws.conic.marks import Marks, marks, places
from ukemi.laws.conic.newton import Slopes
from ukemi.laws.conic.progress import Bent, Carry, Found, Landing, Progress, Settings, Solution, Task, Way
from ukemi.laws.conic.room import chosen, fewer, narrowed, together, widened
from ukemi.laws.conic.unknowns import Asked, Imbalance, Known, Point
from ukemi.mechanics.articulated import Articulated

HALVINGS = 10
# Scales of starting points in turn, of which the first is warm. Where Newton's system leads nowhere since rows bend
# within a step, which it does not know (docs/decisions/conic.md), slopes are measured from `MEASURED` on.
STARTS = (1.0, 1.0, 1.0, 10.0, 0.1, 1.0, 1.0, 10.0, 0.1, 3.0, 10.0, 0.1)
AT_REST = np.array([2, 6, 10, 11])  # those that look at the pose at the start of the step
MEASURED = 5
STEADY = 3  # that in which boxes touch with faces alone, which do not jump as they turn (`detect`)
AGAIN = 3  # iterations from one measurement to the next
JAMMED = (1e-2, 1e-6)  # steps, of the warm start and of others, after which another start is tried
CREEPING = 8  # short steps in a row after which another start is tried
FIRST_EASE, MORE_EASE = 0.5, 4.0  # what eases Newton's step after a short one, and by how much more after others
LEAST_EASE, MOST_EASE = 0.02, 64.0
LONG = 0.7  # after a step longer than this the next one is eased less
WARM = 0.1  # κ of a warm start, relative to that of a cold one
STILL = 1e-8  # Jacobian of a head that nothing can move: a rounding error


def solve(settings: Settings, task: Task) -> Solution:
    """The point of the central path, or the last one that was looked at."""
    carry, rooms = blank(task), [fewer(task, room) for room in settings.rooms]
    if rooms and together(task.here.model):
        carry = lax.while_loop(goes_on, partial(_turn_in_some_room, settings, [*rooms, task]), carry)
    else:
        for own, few in enumerate(rooms):
            here = lambda carry, own=own: goes_on(carry) & (carry.progress.room == own)  # noqa: E731
            carry = lax.while_loop(here, partial(_turn_in_room, settings, task, few, own), narrowed(carry, few))
            carry = widened(carry, task)
        carry = lax.while_loop(goes_on, partial(turn, settings, task), carry)
    point, known, _, progress, _ = carry
    sound = jnp.isfinite(task.free.v).all() & jnp.isfinite(point.v).all() & jnp.isfinite(progress.residual)
    point = point._replace(v=jnp.where(sound, point.v, jnp.nan))
    return Solution(point, known, progress.total, progress.solved, progress.start)


def goes_on(carry: Carry) -> Array:
    """Whether the search has not ended, one way or the other."""
    return ~carry.progress.solved & ~carry.progress.stuck


def blank(task: Task) -> Carry:
    """Before the first point."""
    own, v, zero = task.layout, task.here.v, jnp.zeros((), task.here.v.dtype)
    H, K, one = len(own.heads), len(own.cones), jnp.ones_like(zero)
    heads, rubs = jnp.ones(H, v.dtype), jnp.ones(K, v.dtype)
    none = Cones(heads, heads, jnp.zeros((K, 2), v.dtype), rubs, jnp.zeros((K, 2), v.dtype))
    point = Point(v, jnp.zeros(task.kinds.hold, v.dtype), none)
    shapes = jax.eval_shape(task.detect, task.here.kin, jnp.zeros((), bool))
    contacts = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    on = jnp.zeros(H, bool), jnp.zeros(K, bool)
    none_yet = jnp.full(task.kinds.contacts, -1, jnp.int32)
    unmarked = jax.tree.map(jnp.zeros_like, task.marks)._replace(names=none_yet)
    known = Known(contacts, unmarked, none_yet, on, on[0], on[0], jnp.zeros_like(v))
    no, count = jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    first = jnp.where(task.recalled.valid, 0, 1).astype(jnp.int32)
    progress = Progress(
        zero, one, count, count, one, one, one, one, first, ~no, zero, count, count, count, count, no, no, no
    )
    bent = Bent(*(jnp.zeros(shape, v.dtype) for shape in ((len(v), len(v)), (K, 2, len(v)), v.shape, (K, 2))))
    return Carry(point, known, jax.tree.map(jnp.zeros_like, point), progress, bent)


def turn(settings: Settings, task: Task, carry: Carry) -> Carry:
    """Look at the next point; take it and turn to the next direction, or go back half way. From some starts slopes are
    measured at every third point before: one direction of velocities per turn, and the point itself once more.
    """
    return _judge(settings, task, carry, _next(task, carry))


def _turn_in_room(settings: Settings, task: Task, few: Task, own: int, carry: Carry) -> Carry:
    """The same with room for few contacts, if these suffice; else nothing but the room that is needed.

    task: with all room; few: with this one, the `own`th.
    """
    landing = _next(few, carry)
    carry = _in_room(settings, task, carry, landing, own)
    return lax.cond(carry.progress.room == own, lambda: _judge(settings, few, carry, landing), lambda: carry)


def _turn_in_some_room(settings: Settings, rooms: list[Task], carry: Carry) -> Carry:
    """The same with the room that is needed. Then carries are copied, but geometry is compiled once for all rooms."""
    task = rooms[-1]
    landing = _next(task, carry)

    def within(few: Task):
        return lambda carry: widened(_judge(settings, few, narrowed(carry, few), landing), task)

    carry = _in_room(settings, task, carry, landing)
    return lax.switch(carry.progress.room, [within(few) for few in rooms], carry)


def _in_room(settings: Settings, task: Task, carry: Carry, landing: Landing, least: int = 0) -> Carry:
    """Before a point is judged: with the room that it needs, and no less than `least`."""
    room = chosen(task, carry.progress, landing.end.frame.contacts, settings.rooms)
    return carry._replace(progress=carry.progress._replace(room=jnp.maximum(room, least)))


def _next(task: Task, carry: Carry) -> Landing:
    """The point to look at."""
    now, v = carry.progress, carry.point.v + carry.progress.alpha * carry.change.v
    shift = aside(v.dtype) * (np.arange(1, len(v) + 1) == now.probe)
    return land(task, carry, jnp.where(now.fresh, _start(task, now.start), v + shift))


def _judge(settings: Settings, task: Task, carry: Carry, landing: Landing) -> Carry:
    """What follows from a point."""
    now, nv = carry.progress, len(task.here.v)
    tried = jax.tree.map(lambda x, d: x + now.alpha * d, carry.point, carry.change)
    found, speed = look(task, carry, tried._replace(v=landing.end.frame.v), landing)
    measuring, measured = (now.probe > 0) & (now.probe <= nv), now.probe > nv
    far = off_path(task, found, now.excess)
    worse = (found.residual > jnp.maximum(now.residual, 1e-12)) & (far > now.off_path)
    measures = nv > 0 and settings.starts > MEASURED and not isinstance(found.M, Articulated)  # which knows all
    good, last_try = jnp.isfinite(found.residual) & jnp.isfinite(far), now.tries >= HALVINGS
    taken = now.fresh | (good & (~worse | last_try)) | measured

    def note():
        return carry._replace(bent=noted(task, carry, found), progress=now._replace(probe=now.probe + 1))

    def take():
        return _take(settings, task, carry, found, speed, measures)

    def go_back():
        return carry._replace(progress=now._replace(alpha=now.alpha / 2, tries=now.tries + 1))

    def go_on():
        return lax.cond(taken, take, go_back)

    after = lax.cond(measuring, note, go_on) if measures else go_on()
    return after._replace(progress=_restarted(settings, after.progress, ~taken & last_try & ~measuring))


def _take(settings: Settings, task: Task, carry: Carry, found: Found, speed: Array, measures: bool) -> Carry:
    """The search at a point that it takes, with the way from there; measures: whether slopes ever are."""
    now, measured = carry.progress, carry.progress.probe > len(task.here.v)
    distance = off_path(task, found, jnp.zeros_like(now.excess))
    close = (found.residual < settings.tolerance) & (distance < settings.near)
    solved = close & (now.close | (found.residual < settings.exact)) & ~measured
    knows = measures & (now.start >= MEASURED) & ~now.fresh
    stays = knows & (now.rounds % AGAIN == 0) & ~measured & ~solved
    moves = now._replace(ease=_ease(now))
    bent = jax.tree.map(lambda old, new: jnp.where(measured, old, new), carry.bent, learned(task, carry, found))
    still = jax.tree.map(jnp.zeros_like, found.point), now.alpha, jnp.where(solved, 0.0, now.excess)
    way = lax.cond(solved | stays, lambda: Way(*still), lambda: direction(task, found, moves, bent, distance, knows))
    more = (~now.fresh & ~measured).astype(jnp.int32)
    moves = moves._replace(
        last=jnp.where(now.fresh, 1.0, now.alpha),
        creeping=jnp.where(now.fresh | (now.alpha > SHORT), 0, now.creeping + 1),
    )
    after = jax.tree.map(lambda old, new: jnp.where(stays, old, new), now, moves)._replace(
        alpha=way.alpha,
        tries=jnp.zeros_like(now.tries),
        residual=found.residual,
        off_path=off_path(task, found, way.excess),
        excess=way.excess,
        speed=speed,
        fresh=jnp.zeros_like(now.fresh),
        probe=stays.astype(jnp.int32),
        rounds=now.rounds + more,
        total=now.total + more,
        close=jnp.where(measured, now.close, close),
        solved=solved,
    )
    return Carry(found.point, found.known, way.change, after, bent)


def _ease(now: Progress) -> Array:
    """What eases Newton's step, as steps become short and long again."""
    more = jnp.clip(MORE_EASE * now.ease, FIRST_EASE, MOST_EASE)
    less = jnp.where(now.ease < LEAST_EASE * MORE_EASE, 0.0, now.ease / MORE_EASE)
    eased = jnp.where(now.alpha < SHORT, more, jnp.where(now.alpha > LONG, less, now.ease))
    return jnp.where(now.fresh, 0.0, eased)


def _restarted(settings: Settings, now: Progress, spent: Array) -> Progress:
    """At another start where this one leads nowhere."""
    jammed = ~(now.alpha >= jnp.where(now.start == 0, *JAMMED))  # NaN, too
    last = now.start >= settings.starts - 1
    lost = ~now.solved & (spent | (now.rounds >= settings.iterations) | jammed | (now.creeping >= CREEPING) & ~last)
    return now._replace(
        stuck=lost & last,
        start=jnp.where(lost, now.start + 1, now.start),
        fresh=now.fresh | lost,
        probe=jnp.where(lost, 0, now.probe),
        rounds=jnp.where(lost, 0, now.rounds),
        creeping=jnp.where(lost, 0, now.creeping),
    )


def _start(task: Task, start: Array) -> Array:
    """Velocity (nv,) of a starting point: where a warm one is, impulses do what they did in the last step."""
    return jnp.where((start == AT_REST).any(), 0.0, task.free.v + jnp.where(start == 0, task.recalled.velocity, 0.0))


# ---- a point ---------------------------------------------------------------------------------------------------------


def land(task: Task, carry: Carry, v: Array) -> Landing:
    """The end of a step at v, with the contacts that there are."""
    here, h, mechanics = task.here, task.duration, task.mechanics
    end = mechanics.arrival(here, v, h, partial(task.detect, steady=carry.progress.start == STEADY))
    return Landing(end, *mechanics.missing(task.begun, here, end, h))


def look(task: Task, carry: Carry, tried: Point, landing: Landing) -> tuple[Found, Array]:
    """The residual at a point, with the contacts that the task has room for; and the velocities at hand."""
    kinds, own, here, start, h, path, mechanics = task[:4] + task[6:9]
    nearest = landing.end.frame.contacts.rowwise(lambda x: x[: kinds.contacts])
    end = mechanics.rows(kinds, landing.end._replace(frame=landing.end.frame._replace(contacts=nearest)), h)
    frame, rows, moves = end.frame, end.rows, end.moves()
    pulls = mechanics.pulls(task.begun, here, end, moves)
    at = marks(here.model, frame.kin, frame.contacts, kinds.contacts)
    origin = places(task.marks, at)
    bounce = jnp.concatenate([task.bounce[: own.limits], (origin >= 0) & task.bounce[own.limits :][origin]])
    wants = asked(own, rows, matched(own, start, origin), moves @ tried.v + end.slip(), bounce, h, path)
    slips, rubs = (rows.mu[:, :, None] * of_cones(own, J) for J in (moves, pulls))
    nearer, pushes, holding = of_heads(own, moves), of_heads(own, pulls), kinds.holding
    slopes = Slopes(h * nearer, slips, moves[holding], pushes, rubs, pulls[holding])
    active = jnp.concatenate([np.ones(own.limits, bool), frame.contacts.active])
    # what is far has nothing to push, which Newton's step would only approach; what is NaN counts, to be seen
    near = ~(wants.aims[0] <= 0) | carry.progress.fresh | (carry.progress.excess > 0)
    heads = active & ~(jnp.abs(pushes) <= STILL).all(-1) & near
    rubs_at_all = (~(rows.mu <= 0)).any(-1) & ~(cones.bounds(own, heads * 1.0, start.dry) <= 0)
    on = heads, owned(own, heads, True) & rubs_at_all
    deep = heads & (rows.phi < -SHALLOW)
    known = Known(landing.end.frame.contacts, at, origin, on, bounce, deep, tried.v - task.free.v)
    speed = jnp.where(carry.progress.fresh, _speed(task, on, slopes, rows.weight), carry.progress.speed)
    fresh = carry.progress.fresh
    place = jnp.where(fresh, -1, places(carry.known.marks, at))
    was = carry.known.on[0]
    kept = jnp.concatenate([was[: own.limits] & ~fresh, (place >= 0) & was[own.limits :][place]])
    kept = kept, owned(own, kept, True) & ~fresh
    point = tried._replace(cones=_variables(task, carry.progress, tried.cones, at, place, kept, wants, on, speed))
    off = residual(own, point, wants, on, landing.missing - impulses(own, kinds, point, wants.mu, on) @ pulls)
    size = _size(task, off, rows.weight) / speed
    return Found(
        point, known, wants, cone_heads(own, point, wants, on[1]), off, slopes, landing.M, size, place, kept
    ), speed


def _speed(task: Task, on, slopes: Slopes, weight: Array) -> Array:
    """Velocities at hand, times roots of masses [√J]."""
    free, own = task.free, task.layout
    moving = jnp.where(on[0], jnp.abs(slopes.heads @ free.v) / jnp.sqrt(weight), 0.0).max(initial=0.0)
    if own.dry or not len(own.heads):
        moving = jnp.maximum(moving, (jnp.abs(free.v) * jnp.sqrt(jnp.diagonal(free.M))).max(initial=0.0))
    return jnp.maximum(moving, jnp.sqrt(task.path.kappa / task.duration))


def _variables(task: Task, now: Progress, old: Cones, at: Marks, place, kept, wants: Asked, on, speed: Array) -> Cones:
    """Variables in the order of the contacts that there are now. New ones stand on the central path, at the κ of the
    start or of this iteration.
    """
    own, h = task.layout, task.duration
    (heads, rubs), (kept_heads, kept_rubs), warm = on, kept, now.fresh & (now.start == 0)
    old = _in_place(task, old, place)
    scale = jnp.asarray(STARTS, speed.dtype)[now.start]
    excess = jnp.where(now.fresh, speed**2 * jnp.where(warm, WARM, scale**2), now.excess)
    kappa, per_head = task.path.kappa + excess, task.path.kappa + excess * h
    least = h * speed * scale * jnp.sqrt(wants.weight)
    recalled = per_head / jnp.maximum(task.recalled.of(at.names), per_head / jnp.maximum(wants.gap, least))
    gamma = per_head / jnp.maximum(wants.gap, jnp.where(warm, recalled, least))
    gamma = jnp.where(heads, jnp.where(kept_heads, old.gamma, gamma), 1.0)
    s = jnp.where(heads, jnp.where(kept_heads, old.s, per_head / gamma), 1.0)
    head = jnp.where(rubs, cones.bounds(own, gamma, wants.dry), 1.0)
    half = kappa / (2 * head)
    psi = half + jnp.sqrt(half**2 + (wants.slip * wants.slip).sum(-1))
    y = -head[:, None] * wants.slip / psi[:, None]
    keep, use = kept_rubs[:, None], rubs[:, None]
    return Cones(
        gamma,
        s,
        jnp.where(use, jnp.where(keep, old.y, y), 0.0),
        jnp.where(rubs, jnp.where(kept_rubs, old.psi, psi), 1.0),
        jnp.where(use, jnp.where(keep, old.u, wants.slip), 0.0),
    )


def _in_place(task: Task, old: Cones, place: Array) -> Cones:
    """Variables of contacts that were at places (nc,)."""
    own = task.layout

    def heads(x: Array) -> Array:
        return jnp.concatenate([x[: own.limits], x[own.limits :][jnp.maximum(place, 0)]]) if len(place) else x

    return Cones(heads(old.gamma), heads(old.s), *(of_places(task.layout, x, place) for x in (old.y, old.psi, old.u)))


# ---- how far from a solution -----------------------------------------------------------------------------------------


def _size(task: Task, off: Imbalance, weight: Array) -> Array:
    """Largest residual, as a velocity times the root of a mass [√J]."""
    own, M, weight = task.layout, jnp.diagonal(task.free.M), jnp.sqrt(weight)
    mass = jnp.sqrt(M.mean()) if len(M) else 1.0
    parts = (
        jnp.abs(off.force) / jnp.sqrt(M),
        jnp.abs(off.held) * mass,
        jnp.abs(off.slack) / (task.duration * weight),
        jnp.abs(off.slip[: own.dry]) * mass,
        jnp.abs(off.slip[own.dry :]) / weight[own.owner[own.dry :], None],
    )
    return _largest(parts)


def off_path(task: Task, found: Found, excess: Array) -> Array:
    """Distance of the cone products from κ and an excess, relative to these."""
    (heads, rubs), off, kappa = found.known.on, found.off.products, task.path.kappa
    per_head, per_cone = excess * task.duration, excess
    parts = (
        jnp.where(heads, jnp.abs(off.heads - per_head), 0.0) / (kappa + per_head),
        jnp.where(rubs, jnp.abs(off.first - per_cone), 0.0) / (kappa + per_cone),
        jnp.abs(off.rest) / (kappa + per_cone),
    )
    return _largest(parts)


def _largest(parts) -> Array:
    """The largest of arrays that may be empty; NaN if any is."""
    return jnp.concatenate([jnp.zeros(1), *(part.reshape(-1) for part in parts)]).max()
