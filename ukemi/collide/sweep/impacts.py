"""When shapes meet: the earliest time of impact along a step's motion, never later than the true one.

Over a step the joint velocities are constant, so every point moves on a composition of screw motions. Conservative
advancement (Mirtich 1996) walks along it: at time t each pair of shapes has a direction n that separates it, and the
support functions of the two shapes tell how far they stay apart along n. With u and ω the velocities of a shape now,
a point at arm r from its centre p has moved along n, after τ, by τ n·u + τ (n×ω)·r up to ½ a τ², where a bounds the
acceleration of all its points over the rest of the step. So for all τ up to the end

    distance(t + τ)  ≥  g(τ) = n·Δp + τ n·Δu − h_a(n + τ n×ω_a) − h_b(−n − τ n×ω_b) − r − ½ (a_a + a_b) τ²

with Δp and Δu those of b less those of a, r the balls' radii, and h the support functions, which are convex. So g is
concave, chords and tangents bracket its only root from both sides, and time may advance to where g falls to `slop`,
and no further. g(0) is the distance and g'(0) its rate: near the impact this is Newton's method from below, and
converges quadratically. Nothing is stepped over, however thin or fast, because g never exceeds the distance, whatever
n is (see `hull`).

Where an edge or a face takes part, g'(0) is the rate of its worst corner, not that of the point in contact, unless n
turns along with it. So n may turn, n(τ) = (n + τ n') / s with s = |n + τ n'| and n' perpendicular to n: then n' τ is
added to the arguments of both h, and of s g

    n·Δp + τ (n'·Δp + n·Δu) − h_a(n + τ (n' + n×ω_a)) − h_b(−n − τ (n' + n×ω_b)) − r − ½ c τ²

is a lower bound, where c gathers all terms of second order: s a_max, |n'|² r, 2 |n'| |ω| times a shape's extent, and
−2 n'·Δu if positive. Each of four rates n' is tried, for a vertex, an edge or a face of a, of b, or an edge of each;
all are safe, and the one that gets furthest counts.

An impact is where the distance has fallen to `slop`, 1e-10 m in float64: far above the rounding of positions of some
metres (1e-14 m), far below the 1e-9 m that no contact may penetrate.

*Pairs in touch* are the contact law's. It keeps their contact points from approaching; but another corner of the same
pair may come down. So from a pair that touches when the motion begins those corners of either shape are left out
that touch the other's supporting plane, and two distances are watched: of what is left of a to b, and of a to what is
left of b. A box on its edge waits for its other corners, a box that lies on a face for those of the other face.
A cylinder counts as eight rim points then, beginning at its lowest; a ball or an ellipsoid in touch is not watched.
What the law does not see, and this does not report, is that a contact point on a curved path sinks (or rises) by
½ h² times its acceleration: `distance` measures it. Nor is a corner watched that leaves the other shape and comes
back to it, with no other impact between: that takes half a turn in one motion.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from ukemi.collide.geometry import dot, unrotate
from ukemi.collide.hulls.support import each, together
from ukemi.collide.sweep import hull
from ukemi.collide.sweep.hull import Hull
from ukemi.collide.sweep.meshes import Meshes
from ukemi.collide.sweep.motion import Moving, acceleration_bound, moving
from ukemi.maths import spatial
from ukemi.maths.gathers import put_rows, rows_at
from ukemi.maths.ranking import parts
from ukemi.mechanics.kinematics import Kinematics, geom_frames
from ukemi.model.records import Model
from ukemi.xla.batches import abreast, one_by_one, side_by_side

ROOM = 128  # pairs watched at the most; the rest bound the time that is searched
CHUNK = 4  # of which this many are examined together where worlds run in lockstep
STEPS = 64  # of the advancement of each
ROUNDS = 4  # of tangents and chords towards the root of g


class Impact(NamedTuple):
    """The first impact of a motion. No derivative passes through the search for it."""

    time: Array  # () until when nothing has met: of the impact, or else the duration [s]
    pair: Array  # () which pair of geoms meets, a row of `PairLayout.geoms`; -1 for none
    found: Array  # () bool: there is an impact
    exhausted: Array  # () bool: the search gave up at `time`, up to where all is well
    iterations: Array  # () how often a pair was examined at the most


class _Pair(NamedTuple):
    """Two geoms; leading axes broadcast."""

    geoms: Array  # (..., 2)
    number: Array  # (...) of the pair
    start: Array  # (..., 3) a direction that separates them when the motion begins
    bend: Array  # (...) bound of the relative acceleration of their points [m/s²]


class _Row(NamedTuple):
    """Two shapes to keep apart; leading axes broadcast."""

    a: Hull  # in its own axes
    b: Hull
    of: _Pair


def default_slop(dtype) -> float:
    """Distance at which shapes count as in touch [m]."""
    return 1e-10 if dtype == jnp.float64 else 1e-5


def first_impact(
    model: Model,
    q: Array,
    v: Array,
    duration: Array,
    *,
    ignore: Array | None = None,
    slop: Array | None = None,
    touch: Array | float = 0.0,
    mocap_pos: Array | None = None,
    mocap_quat: Array | None = None,
    steps: int | Array = STEPS,
) -> Impact:
    """The first impact as q (nq,) moves with constant joint velocities v (nv,) for a duration [s].

    Until `time` no distance falls below `slop`, and there, at an impact, it is `slop` to rounding.

    ignore: (pairs,) bool, pairs not to watch.
    slop: distance at which shapes meet [m].
    touch: distance up to which they count as in touch when the motion begins, if more than twice `slop` [m].
    mocap_pos, mocap_quat: poses of motion-capture bodies, which do not move meanwhile.
    steps: of the advancement of each pair at the most.
    """
    dtype, n = q.dtype, len(model.pairs.layout.geoms)
    duration = jnp.asarray(duration, dtype)
    if not n or not model.nv:
        no = jnp.zeros((), bool)
        return Impact(duration, jnp.int32(-1), no, no, jnp.int32(0))
    steps = jnp.asarray(steps, jnp.int32)
    slop = jnp.asarray(default_slop(dtype) if slop is None else slop, dtype)
    watch = jnp.ones(n, bool) if ignore is None else ~jnp.asarray(ignore)
    touch = jnp.asarray(touch, dtype)
    return one_by_one(_first_impact)(model, q, v, duration, watch, (slop, touch), mocap_pos, mocap_quat, steps)


def distance(model: Model, kin: Kinematics, within: Array | float = jnp.inf) -> Array:
    """Signed distance (pairs,) of the shapes of every pair at the poses `kin` [m], or a lower bound of it.

    Where shapes are apart it is the distance to a relative error of 1e-4; where they overlap slightly at faces or
    edges, minus the depth to rounding; where they overlap deeply, less than that.

    within: pairs surely further apart than this are not examined: they get a cheap lower bound [m].
    """
    geoms = model.pairs.layout.geoms
    if not len(geoms):
        return jnp.zeros(0, kin.X.dtype)
    return one_by_one(_distance)(model, kin, jnp.asarray(within, kin.X.dtype))


def _distance(model: Model, kin: Kinematics, within: Array) -> Array:
    geoms = model.pairs.layout.geoms
    (pos, mat), (local, meshes) = geom_frames(model, kin), hull.local_hulls(model)
    shapes = hull.posed(local, pos, mat)
    start, bound = _far(model, local, pos, mat)
    near = bound <= within
    order = jnp.argsort(~near, stable=True)

    def examine(pair):
        one, other = (jax.tree.map(lambda x, k=k: x[k], shapes) for k in jnp.asarray(geoms)[pair])
        return hull.best_direction(meshes, one, other, start[pair], hull.rounding(one, other))[1]

    found = _in_chunks(examine, near.sum(), order, bound[order])
    return bound.at[order].set(jnp.maximum(found, bound[order]))


def _far(model: Model, local: Hull, pos: Array, mat: Array) -> tuple[Array, Array]:
    """A direction (pairs, 3) that may separate the geoms of each pair, and their distance (pairs,) along it."""
    shapes = hull.posed(hull.around(model, local), pos, mat)
    sides = [jax.tree.map(lambda x, k=k: x[k], shapes) for k in model.pairs.layout.geoms.T]
    return spatial.materialize(jax.vmap(hull.axis_direction)(*sides))


def _in_chunks(function, count: Array, args, fill):
    """`function` of each of the first `count` rows of `args`, some at a time; the results of others are `fill`."""
    n, size = len(jax.tree.leaves(args)[0]), abreast(CHUNK)
    padded = jax.tree.map(lambda x: jnp.pad(x, [(0, -n % size)] + [(0, 0)] * (x.ndim - 1)), (args, fill))

    def some(i, out):
        own = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, i * size, size), padded[0])
        real = i * size + jnp.arange(size) < count

        def keep(new, x):
            old = lax.dynamic_slice_in_dim(x, i * size, size)
            return jnp.where(real.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        new = jax.tree.map(keep, side_by_side(function)(own), out)
        return jax.tree.map(lambda x, y: lax.dynamic_update_slice_in_dim(x, y, i * size, 0), out, new)

    out = lax.fori_loop(0, parts(count, size), some, padded[1])
    return jax.tree.map(lambda x: x[:n], out)


class _Search(NamedTuple):
    """What is known of the rows to watch, and which is looked at next."""

    now: Moving  # the geoms at `time`
    time: Array  # () when a row was looked at last
    until: Array  # (rows,) when each may meet at the earliest
    normals: Array  # (rows, 3) directions in which they were apart
    looks: Array  # (rows,) how often each was looked at
    next: Array  # () the row that may meet first
    hit: Array  # () bool: that one meets now


def _first_impact(model, q, v, duration, watch, levels, mocap_pos, mocap_quat, steps) -> Impact:
    (slop, touch), shapes = levels, hull.local_hulls(model)
    move = partial(moving, model, q, v, mocap_pos=mocap_pos, mocap_quat=mocap_quat)
    time = jnp.zeros_like(duration)
    now = move(time)
    rows, live, horizon = _rows(model, shapes, now, q, v, duration, watch, slop, touch)

    def look(at: _Search) -> _Search:
        """A bound stays what it is until its time comes: only the row that may meet first is looked at, then."""
        k = at.next
        time = rows_at(at.until, k)
        now = lax.cond(time > at.time, move, lambda _: at.now, time)
        row, normal = jax.tree.map(lambda x: x[k], rows), rows_at(at.normals, k)
        ahead, normal, hit = _examine(shapes[1], now, horizon - time, slop, row, normal)
        until, normals = put_rows(at.until, (time + ahead)[None], k), put_rows(at.normals, normal[None], k)
        looks = put_rows(at.looks, rows_at(at.looks, k)[None] + 1, k)
        return _Search(now, time, until, normals, looks, jnp.where(hit, k, _first(until)), hit)

    def goes_on(at: _Search) -> Array:
        return ~at.hit & ~(rows_at(at.until, at.next) >= horizon) & (rows_at(at.looks, at.next) < steps)

    until = jnp.where(live, time, jnp.inf)
    looks = jnp.zeros(len(until), jnp.int32)
    start = _Search(now, time, until, rows.of.start, looks, _first(until), jnp.zeros((), bool))
    found = lax.while_loop(goes_on, look, start)
    hit, free = found.hit, rows_at(found.until, found.next)
    time = jnp.where(hit, found.time, jnp.where(free >= horizon, horizon, free))
    given_up = ~hit & (~(free >= horizon) | (horizon < duration))
    pair = jnp.where(hit, rows_at(rows.of.number, found.next), -1).astype(jnp.int32)
    return Impact(time, pair, hit, given_up, found.looks.max(initial=0))


def _first(until: Array) -> Array:
    return jnp.argmin(until).astype(jnp.int32)


def _rows(model: Model, shapes, at: Moving, q: Array, v: Array, duration: Array, watch: Array, slop: Array, touch):
    """Rows, which of them to watch, and the time until which no other pair can meet."""
    geoms, local = model.pairs.layout.geoms, shapes[0]
    extent = hull.extent(local)
    bend = acceleration_bound(model, q, v, duration, extent)
    a, b = geoms.T
    bend = bend[a] + bend[b]
    start, apart = _far(model, local, at.pos, at.mat)
    rim = extent * spatial.safe_norm(at.spin)
    speed = spatial.safe_norm(at.velocity[b] - at.velocity[a]) + rim[a] + rim[b]
    room = jnp.maximum(apart - slop, 0.0)
    root = speed + jnp.sqrt(speed**2 + 2 * bend * room)
    moves = root > 0
    safe = jnp.where(watch & moves, 2 * room / jnp.where(moves, root, 1.0), jnp.inf)  # until then they cannot meet

    order = jnp.argsort(safe)
    horizon = duration
    if len(geoms) > ROOM:
        horizon = jnp.minimum(duration, safe[order[ROOM]])
        order = order[:ROOM]
    pairs = _Pair(jnp.asarray(geoms)[order], order.astype(jnp.int32), start[order], bend[order])
    real = safe[order] < duration
    split = partial(_split, shapes, at, slop, touch)
    blank = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(jax.vmap(split), pairs))
    rows, live = _in_chunks(split, real.sum(), pairs, blank)
    rows, live = (jax.tree.map(lambda x, y: jnp.concatenate([x, y]), *both) for both in (rows, live))
    return rows, live, horizon


def _posed(row: _Row, at: Moving) -> tuple[Hull, Hull]:
    i, j = row.of.geoms
    return hull.posed(row.a, at.pos[i], at.mat[i]), hull.posed(row.b, at.pos[j], at.mat[j])


def _split(shapes: tuple[Hull, Meshes | None], at: Moving, slop: Array, near: Array, pair: _Pair):
    """What to watch of a pair: two rows, and whether they are needed; one row, as it is, of shapes not in touch."""
    own, meshes = shapes
    a, b = (jax.tree.map(lambda x, g=g: x[g], own) for g in pair.geoms)
    row = _Row(a, b, pair)
    a, b = _posed(row, at)
    level = jnp.maximum(2 * (slop + hull.rounding(a, b)), near)
    n, apart = hull.best_direction(meshes, a, b, row.of.start, level)
    touch = apart <= level

    def rest(local: Hull, own: Hull, other: Hull, towards: Array) -> tuple[Hull, Array]:
        fine = hull.faceted(local, unrotate(own.mat, towards))
        room = dot(towards, other.pos - own.pos) - hull.reach(meshes, other, -towards) - own.radius - other.radius
        left, some = hull.without(meshes, fine, hull.posed(fine, own.pos, own.mat), towards, room - level)
        return jax.tree.map(lambda x, y: jnp.where(touch, x, y), left, local), some

    sides = together(row.a, row.b), together(a, b), together(b, a), jnp.stack([n, -n])
    left, some = jax.vmap(rest)(*sides)
    (rest_a, rest_b), of = each(left), pair._replace(start=n)
    return (row._replace(a=rest_a, of=of), row._replace(b=rest_b, of=of)), (~touch | some[0], touch & some[1])


def _examine(meshes: Meshes | None, at: Moving, remaining: Array, slop: Array, row: _Row, normal: Array):
    """How long () two shapes surely stay apart, the direction (3,) that tells, and whether they meet now."""
    a, b = _posed(row, at)
    n = spatial.materialize(hull.separating_direction(meshes, a, b, normal))
    hit = hull.gap(meshes, a, b, n) - slop <= hull.rounding(a, b)
    turns = _turns_of_normal(at, row.of.geoms, a, hull.edges(meshes, a, b, n), n)
    ahead = jax.vmap(partial(_apart_until, meshes, at, row, a, b, n, remaining, slop))(turns).max()
    return jnp.where(hit, 0.0, ahead), n, hit


def _turns_of_normal(at: Moving, geoms: Array, a: Hull, edges: tuple[Array, Array], n: Array) -> Array:
    """Rates (4, 3) at which n may turn: not at all, with a, with b, or perpendicular to an edge of either."""
    with_a, with_b = spatial.cross(at.spin[geoms[0]], n), spatial.cross(at.spin[geoms[1]], n)
    edge_a, edge_b = edges
    volume = n @ spatial.cross(edge_a, edge_b)
    both = (edge_a @ with_a) * spatial.cross(edge_b, n) + (edge_b @ with_b) * spatial.cross(n, edge_a)
    crossing = jnp.abs(volume) > 1e-6 * spatial.safe_norm(edge_a) * spatial.safe_norm(edge_b)
    both = jnp.where(crossing, both / jnp.where(crossing, volume, 1.0), 0.0)
    turns = jnp.stack([jnp.zeros_like(n), with_a, with_b, both - n * (n @ both)])
    return jnp.where(a.flat, 0.0, turns)  # a plane reaches to infinity in other directions than its own


def _apart_until(meshes, at: Moving, row: _Row, a: Hull, b: Hull, n: Array, remaining, slop, turn: Array) -> Array:
    """How long () two shapes surely stay apart, judging by the direction n (3,), which turns at a rate `turn` (3,)."""
    i, j = row.of.geoms
    turns = jnp.stack([turn + spatial.cross(n, at.spin[i]), -turn - spatial.cross(n, at.spin[j])])
    apart, speed, balls = b.pos - a.pos, at.velocity[j] - at.velocity[i], a.radius + b.radius + slop
    rim = hull.extent(row.a) * spatial.safe_norm(at.spin[i]) + hull.extent(row.b) * spatial.safe_norm(at.spin[j])
    square = turn @ turn
    bend = row.of.bend * jnp.sqrt(1 + square * remaining**2) + square * balls
    bend = bend + 2 * jnp.sqrt(square) * rim + 2 * jnp.maximum(0.0, -turn @ speed)

    def room(t: Array) -> tuple[Array, Array]:
        """s g, and its slope: the points that are furthest stay so to first order."""
        towards, rate = jnp.stack([n, -n]) + t * turns, n @ speed + turn @ apart
        points = hull.supports(meshes, a, b, towards)
        value = n @ apart + t * rate - balls - (points * towards).sum() - 0.5 * bend * t**2
        return value, rate - (points * turns).sum() - bend * t

    return _first_root(room, remaining)


class _Bracket(NamedTuple):
    """Where a root is, and what the function is there."""

    low: Array
    at_low: Array
    slope: Array  # at `low`
    high: Array
    at_high: Array
    at_end: Array

    def chord(self) -> Array:
        """Where the chord is zero, which runs below a concave function."""
        down = self.at_high < 0
        along = (self.high - self.low) * self.at_low / jnp.where(down, self.at_low - self.at_high, 1.0)
        return jnp.where(down, self.low + along, self.high)

    def tangent(self) -> Array:
        """Where the tangent at `low` is, which runs above it, but not beyond `high`."""
        falls = self.slope < 0
        root = self.low - self.at_low / jnp.where(falls, self.slope, -1.0)
        return jnp.where(falls & (root < self.high), root, self.high)


def _first_root(room, end: Array) -> Array:
    """A time () up to which the concave function `room`, given with its slope, stays positive: its root in [0, end],
    from below. Both ends of a bracket close in by turns, in a loop, since what is looked at takes long to compile.
    """

    def look(k, at: _Bracket) -> _Bracket:
        first, last, below = k == 0, k == 1, (k % 2 == 1) & (k > 1)
        t = jnp.where(below, at.chord(), at.tangent())
        t = jnp.where(first, 0.0, jnp.where(last, end, t))
        value, slope = room(t)
        lower = first | below
        clear = ~lower & ~last & (t >= at.high)  # the tangent says no more
        return _Bracket(
            jnp.where(lower, t, at.low),
            jnp.where(first, value, jnp.where(below, jnp.maximum(value, 0.0), at.at_low)),
            jnp.where(lower, slope, at.slope),
            jnp.where(lower, at.high, t),
            jnp.where(lower | clear, at.at_high, value),
            jnp.where(last, value, at.at_end),
        )

    none = jnp.zeros_like(end)
    at = lax.fori_loop(0, 1 + 2 * ROUNDS, look, _Bracket(none, none, none, end, none, none))
    return jnp.where(at.at_end >= 0, end, at.chord())
