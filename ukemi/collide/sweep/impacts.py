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

from ukemi.collide.sweep import hull
from ukemi.collide.sweep.hull import Hull
from ukemi.collide.sweep.motion import Moving, acceleration_bound, moving
from ukemi.maths import spatial
from ukemi.maths.ranking import parts
from ukemi.mechanics.kinematics import Kinematics, geom_frames
from ukemi.model.records import Model
from ukemi.xla.batches import one_by_one

ROOM = 128  # pairs watched at the most; the rest bound the time that is searched
CHUNK = 4  # of which this many are examined together
STEPS = 64  # of the advancement
ROUNDS = 4  # of tangents and chords towards the root of g


class Impact(NamedTuple):
    """The first impact of a motion. No derivative passes through the search for it."""

    time: Array  # () until when nothing has met: of the impact, or else the duration [s]
    pair: Array  # () which pair of geoms meets, a row of `PairLayout.geoms`; -1 for none
    found: Array  # () bool: there is an impact
    exhausted: Array  # () bool: the search gave up at `time`, up to where all is well
    iterations: Array  # () times at which pairs were examined


class _Row(NamedTuple):
    """Two shapes to keep apart; leading axes broadcast."""

    a: Hull  # in its own axes
    b: Hull
    geoms: Array  # (..., 2)
    pair: Array  # (...)
    start: Array  # (..., 3) a direction that separates them when the motion begins
    bend: Array  # (...) bound of the relative acceleration of their points [m/s²]


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
    steps: of the advancement at the most.
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
    pos, mat = geom_frames(model, kin)
    shapes = hull.posed(hull.local_hulls(model), pos, mat)
    a, b = (jax.tree.map(lambda x, k=k: x[k], shapes) for k in geoms.T)
    start, bound = spatial.materialize(jax.vmap(hull.axis_direction)(a, b))
    near = bound <= within
    order = jnp.argsort(~near, stable=True)

    def examine(pair):
        one, other = (jax.tree.map(lambda x, k=k: x[k], shapes) for k in jnp.asarray(geoms)[pair])
        return hull.gap(one, other, hull.best_direction(one, other, start[pair]))

    found = _in_chunks(examine, near.sum(), order, bound[order])
    return bound.at[order].set(jnp.maximum(found, bound[order]))


def _in_chunks(function, count: Array, args, fill):
    """`function` of each of the first `count` rows of `args`, several at a time; the results of others are `fill`."""
    n = len(jax.tree.leaves(args)[0])
    padded = jax.tree.map(lambda x: jnp.pad(x, [(0, -n % CHUNK)] + [(0, 0)] * (x.ndim - 1)), (args, fill))

    def some(i, out):
        own = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, i * CHUNK, CHUNK), padded[0])
        real = i * CHUNK + jnp.arange(CHUNK) < count

        def keep(new, x):
            old = lax.dynamic_slice_in_dim(x, i * CHUNK, CHUNK)
            return jnp.where(real.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        new = jax.tree.map(keep, jax.vmap(function)(own), out)
        return jax.tree.map(lambda x, y: lax.dynamic_update_slice_in_dim(x, y, i * CHUNK, 0), out, new)

    out = lax.fori_loop(0, parts(count, CHUNK), some, padded[1])
    return jax.tree.map(lambda x: x[:n], out)


def _first_impact(model, q, v, duration, watch, levels, mocap_pos, mocap_quat, steps) -> Impact:
    slop, touch = levels
    move = partial(moving, model, q, v, mocap_pos=mocap_pos, mocap_quat=mocap_quat)
    rows, count, horizon = _rows(model, move(jnp.zeros_like(duration)), q, v, duration, watch, slop, touch)

    def advance(state):
        time, normals, *_, iterations = state
        at = move(time)
        examine = partial(_examine, at, horizon - time, slop)
        ahead = jnp.full_like(normals[:, 0], horizon - time)
        ahead, normals, hit = _in_chunks(examine, count, (rows, normals), (ahead, normals, jnp.zeros(len(ahead), bool)))
        first = jnp.argmin(ahead)
        step = ahead[first]
        ended = step >= horizon - time
        time = jnp.where(ended, horizon, time + step)
        return time, normals, ended, hit[first], rows.pair[first], iterations + 1

    def goes_on(state):
        *_, ended, hit, _, iterations = state
        return ~ended & ~hit & (iterations < steps)

    no = jnp.zeros((), bool)
    start = jnp.zeros_like(duration), rows.start, count == 0, no, jnp.int32(-1), jnp.int32(0)
    time, _, ended, hit, pair, iterations = lax.while_loop(goes_on, advance, start)
    time = jnp.where(count == 0, horizon, time)
    given_up = ~hit & (~ended | (horizon < duration))
    return Impact(time, jnp.where(hit, pair, -1).astype(jnp.int32), hit, given_up, iterations)


def _rows(model: Model, at: Moving, q: Array, v: Array, duration: Array, watch: Array, slop: Array, touch):
    """Rows to watch, the real ones first, their number, and the time until which no other pair can meet."""
    geoms = model.pairs.layout.geoms
    local = hull.local_hulls(model)
    shapes = hull.posed(local, at.pos, at.mat)
    extent = hull.extent(local)
    bend = acceleration_bound(model, q, v, duration, extent)
    a, b = geoms.T
    bend = bend[a] + bend[b]
    sides = [jax.tree.map(lambda x, k=k: x[k], shapes) for k in (a, b)]
    start, apart = spatial.materialize(jax.vmap(hull.axis_direction)(*sides))
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
    chosen = jnp.asarray(geoms)[order]
    first, second = (jax.tree.map(lambda x, k=k: x[chosen[:, k]], local) for k in (0, 1))
    plain = _Row(first, second, chosen, order.astype(jnp.int32), start[order], bend[order])
    real = safe[order] < duration
    split = (plain, plain), (real, jnp.zeros_like(real))
    rows, live = _in_chunks(partial(_split, at, slop, touch), real.sum(), plain, split)
    rows, live = (jax.tree.map(lambda x, y: jnp.concatenate([x, y]), *both) for both in (rows, live))
    final = jnp.argsort(~live, stable=True)
    return jax.tree.map(lambda x: x[final], rows), live.sum(), horizon


def _posed(row: _Row, at: Moving) -> tuple[Hull, Hull]:
    i, j = row.geoms
    return hull.posed(row.a, at.pos[i], at.mat[i]), hull.posed(row.b, at.pos[j], at.mat[j])


def _split(at: Moving, slop: Array, near: Array, row: _Row):
    """What to watch of a pair: two rows, and whether they are needed; one row, as it is, of shapes not in touch."""
    a, b = _posed(row, at)
    n = hull.best_direction(a, b, row.start)
    level = jnp.maximum(2 * (slop + hull.rounding(a, b)), near)
    touch = hull.gap(a, b, n) <= level
    rest = []
    for local, own, other, towards in ((row.a, a, b, n), (row.b, b, a, -n)):
        fine = hull.faceted(local, (own.mat * towards[:, None]).sum(0))
        placed = hull.posed(fine, own.pos, own.mat)
        room = towards @ (other.pos - own.pos) - hull.reach(other, -towards) - own.radius - other.radius
        left = hull.without(fine, room - hull.heights(placed, towards) <= level)
        rest.append(jax.tree.map(lambda x, y: jnp.where(touch, x, y), left, local))
    rows = row._replace(a=rest[0], start=n), row._replace(b=rest[1], start=n)
    return rows, (rest[0].kept.any(), touch & rest[1].kept.any())


def _examine(at: Moving, remaining: Array, slop: Array, args):
    """How long () two shapes surely stay apart, the direction (3,) that tells, and whether they meet now."""
    row, normal = args
    a, b = _posed(row, at)
    n = spatial.materialize(hull.separating_direction(a, b, normal))
    hit = hull.gap(a, b, n) - slop <= hull.rounding(a, b)
    turns = _turns_of_normal(at, row.geoms, a, b, n)
    ahead = jax.vmap(partial(_apart_until, at, row, a, b, n, remaining, slop))(turns).max()
    return jnp.where(hit, 0.0, ahead), n, hit


def _turns_of_normal(at: Moving, geoms: Array, a: Hull, b: Hull, n: Array) -> Array:
    """Rates (4, 3) at which n may turn: not at all, with a, with b, or perpendicular to an edge of either."""
    with_a, with_b = spatial.cross(at.spin[geoms[0]], n), spatial.cross(at.spin[geoms[1]], n)
    edge_a, edge_b = hull.edge(a, n), hull.edge(b, -n)
    volume = n @ spatial.cross(edge_a, edge_b)
    both = (edge_a @ with_a) * spatial.cross(edge_b, n) + (edge_b @ with_b) * spatial.cross(n, edge_a)
    crossing = jnp.abs(volume) > 1e-6 * spatial.safe_norm(edge_a) * spatial.safe_norm(edge_b)
    both = jnp.where(crossing, both / jnp.where(crossing, volume, 1.0), 0.0)
    turns = jnp.stack([jnp.zeros_like(n), with_a, with_b, both - n * (n @ both)])
    return jnp.where(a.flat, 0.0, turns)  # a plane reaches to infinity in other directions than its own


def _apart_until(at: Moving, row: _Row, a: Hull, b: Hull, n: Array, remaining, slop, turn: Array) -> Array:
    """How long () two shapes surely stay apart, judging by the direction n (3,), which turns at a rate `turn` (3,)."""
    i, j = row.geoms
    turn_a, turn_b = turn + spatial.cross(n, at.spin[i]), turn + spatial.cross(n, at.spin[j])
    apart, speed, balls = b.pos - a.pos, at.velocity[j] - at.velocity[i], a.radius + b.radius + slop
    rim = hull.extent(row.a) * spatial.safe_norm(at.spin[i]) + hull.extent(row.b) * spatial.safe_norm(at.spin[j])
    square = turn @ turn
    bend = row.bend * jnp.sqrt(1 + square * remaining**2) + square * balls
    bend = bend + 2 * jnp.sqrt(square) * rim + 2 * jnp.maximum(0.0, -turn @ speed)

    def room(t):
        reaches = hull.reach(a, n + t * turn_a) + hull.reach(b, -n - t * turn_b)
        return n @ apart + t * (n @ speed + turn @ apart) - balls - reaches - 0.5 * bend * t**2

    return _first_root(room, room(jnp.zeros_like(remaining)), remaining)


def _first_root(room, now: Array, end: Array) -> Array:
    """A time () up to which the concave function `room` stays positive: its root in [0, end], from below.

    A chord between two points of a concave function runs below it, a tangent above: both ends close in.
    """
    at_end = room(end)

    def close_in(_, bracket):
        low, at_low, high, at_high = bracket
        slope = jax.jvp(room, (low,), (jnp.ones_like(low),))[1]
        tangent = low - at_low / jnp.where(slope < 0, slope, -1.0)
        tighter = (slope < 0) & (tangent < high)
        high = jnp.where(tighter, tangent, high)
        at_high = jnp.where(tighter, room(high), at_high)
        chord = low + (high - low) * at_low / jnp.where(at_high < 0, at_low - at_high, 1.0)
        low = jnp.where(at_high < 0, chord, high)
        return low, jnp.maximum(room(low), 0.0), high, at_high

    low, *_ = lax.fori_loop(0, ROUNDS, close_in, (jnp.zeros_like(end), now, end, at_end))
    return jnp.where(at_end >= 0, end, low)
