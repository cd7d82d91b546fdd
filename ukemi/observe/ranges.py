"""Sensors that measure distances: rays of rangefinders, and the gap between geoms."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.collide.kinds import KINDS
from ukemi.collide.pairs.convex import body_of, witness
from ukemi.collide.primitives import PAIRS
from ukemi.collide.shapes import EMPTY, Shape, shapes_at, sides
from ukemi.maths import spatial
from ukemi.observe import ground
from ukemi.observe.scene import Placed, Scene
from ukemi.observe.zones import SURFACES, first_meeting

# ---- rays -------------------------------------------------------------------------------------------------------

RAY = ("dist", "dir", "origin", "point", "normal", "depth")  # what a rangefinder may tell, in the order of its bits


def rangefinder(scene: Scene, rows: np.ndarray) -> list[Array]:
    """Where the rays along z of sites meet the first shape of another body."""
    at = scene.objects(rows)
    along = at.mat[:, :, 2]
    x, normal = _first_met(scene, at, along)
    met = jnp.isfinite(x)
    length = jnp.where(met, x, 0.0)[:, None]
    read = {
        "dist": jnp.where(met, x, -1.0)[:, None],
        "dir": jnp.where(met[:, None], along, 0.0),
        "origin": at.pos,
        "point": jnp.where(met[:, None], at.pos + length * along, 0.0),
        "normal": normal,
        "depth": jnp.where(met, x, -1.0)[:, None],
    }
    specs = scene.layout.spec[rows, 0]
    return [
        jnp.concatenate([read[word][k] for bit, word in enumerate(RAY) if spec >> bit & 1])
        for k, spec in enumerate(specs.tolist())
    ]


def _first_met(scene: Scene, at: Placed, along: Array) -> tuple[Array, Array]:
    """Distance (n,), infinite if there is none, and normal (n, 3) where rays first meet a geom."""
    geoms, frames, owners = scene.model.geoms, scene.frames.geoms, scene.model.geoms.layout.body
    distance = [jnp.full((len(at.body), 1), jnp.inf, along.dtype)]
    normal = [jnp.zeros((len(at.body), 1, 3), along.dtype)]
    for kind in SURFACES:
        own = np.flatnonzero((np.array(geoms.layout.type) == kind) & scene.layout.opaque)
        if not len(own):
            continue

        def meet(p, u, pos, mat, size, kind=kind):
            found = first_meeting(kind, size, spatial.apply(mat.T, p - pos), spatial.apply(mat.T, u))
            return found.x, spatial.apply(mat, found.normal)

        each = jax.vmap(jax.vmap(meet, (None, None, 0, 0, 0)), (0, 0, None, None, None))
        x, out = each(at.pos, along, frames.pos[own], frames.mat[own], geoms.size[own])
        distance.append(jnp.where(at.body[:, None] == owners[own], jnp.inf, x))
        normal.append(out)
    heights = scene.model.heights
    for g in np.flatnonzero((heights.layout.of >= 0) & scene.layout.opaque):
        pos, mat, field, size = frames.pos[g], frames.mat[g], int(heights.layout.of[g]), geoms.size[g]

        def cross_field(p, u, pos=pos, mat=mat, field=field, size=size):
            found = ground.first_meeting(heights, field, size, spatial.apply(mat.T, p - pos), spatial.apply(mat.T, u))
            return found.x, spatial.apply(mat, found.normal)

        x, out = jax.vmap(cross_field)(at.pos, along)
        distance.append(jnp.where(at.body == owners[g], jnp.inf, x)[:, None])
        normal.append(out[:, None])
    distance, normal = jnp.concatenate(distance, 1), jnp.concatenate(normal, 1)
    k = jnp.argmin(distance, 1)[:, None]
    x = jnp.take_along_axis(distance, k, 1)[:, 0]
    out = jnp.take_along_axis(normal, k[..., None], 1)[:, 0]
    return x, jnp.where(jnp.isfinite(x)[:, None], out, 0.0)


# ---- gaps -------------------------------------------------------------------------------------------------------


def gaps(word: str):
    """Reader of the distance, the normal or the ends of the shortest segment between two geoms or bodies."""

    def read(scene: Scene, rows: np.ndarray) -> list[Array]:
        sensor, geoms = _candidates(scene, rows)
        distance, start, end = _measured(scene, geoms, scene.model.sensors.cutoff[rows[sensor]])
        out = []
        for k, row in enumerate(rows):
            own = np.flatnonzero(sensor == k)
            found = _nearest(distance[own], start[own], end[own], scene.model.sensors.cutoff[row])
            out.append(found[word])
        return out

    return read


def _nearest(distance: Array, start: Array, end: Array, cutoff: Array) -> dict[str, Array]:
    """What sensors of candidates (m,) tell: of the nearest one, if it is nearer than the cutoff."""
    if not len(distance):
        nothing = jnp.zeros(3, cutoff.dtype)
        return {"distance": cutoff[None], "normal": nothing, "fromto": jnp.concatenate([nothing, nothing])}
    k = jnp.argmin(distance)
    x, a, b = distance[k], start[k], end[k]
    near, apart = x < cutoff, b - a
    square = (apart * apart).sum()
    known = near & (square > 0)
    normal = jnp.where(known, apart / jnp.sqrt(jnp.where(known, square, 1.0)), 0.0)
    ends = jnp.where(near, jnp.concatenate([a, b]), 0.0)
    return {"distance": jnp.where(near, x, cutoff)[None], "normal": normal, "fromto": ends}


def _candidates(scene: Scene, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of geoms (m, 2) that sensors measure, and whose each is (m,)."""
    layout, owners = scene.layout, scene.model.geoms.layout.body
    sensor, geoms = [], []

    def own(kind: str, index: int) -> list[int]:
        return [index] if kind == "geom" else np.flatnonzero(owners == index).tolist()

    for k, row in enumerate(rows):
        firsts = own(layout.kind[row], int(layout.index[row]))
        seconds = own(layout.reference_kind[row], int(layout.reference[row]))
        pairs = [(a, b) for a in firsts for b in seconds]
        sensor += [k] * len(pairs)
        geoms += pairs
    return np.array(sensor, int), np.array(geoms, int).reshape(-1, 2)


def _measured(scene: Scene, geoms: np.ndarray, cutoff: Array) -> tuple[Array, Array, Array]:
    """Signed distances (m,) of pairs of geoms, and the points (m, 3) on both that are nearest."""
    kinds = np.array([list(KINDS).index(kind) for kind in scene.model.geoms.layout.type], int)
    flipped = kinds[geoms[:, 0]] > kinds[geoms[:, 1]]
    ordered = np.where(flipped[:, None], geoms[:, ::-1], geoms)
    shapes = shapes_at(scene.model.geoms, scene.frames.geoms.pos, scene.frames.geoms.mat)
    size, dtype = len(geoms), scene.state.q.dtype
    out = [jnp.zeros((0,), dtype), jnp.zeros((0, 3), dtype), jnp.zeros((0, 3), dtype)]
    order = np.zeros(0, int)
    for a, b in sorted({tuple(pair) for pair in kinds[ordered].tolist()}):
        own = np.flatnonzero((kinds[ordered] == (a, b)).all(1))
        found = jax.vmap(_measure(list(KINDS)[a], list(KINDS)[b]))(*sides(shapes, ordered[own]), cutoff[own])
        out = [jnp.concatenate(pair) for pair in zip(out, found, strict=True)]
        order = np.concatenate([order, own])
    back = np.argsort(order)
    distance, start, end = (x[back] for x in out)
    turned = flipped.reshape(size, 1)
    return distance, jnp.where(turned, end, start), jnp.where(turned, start, end)


def _measure(a: str, b: str):
    """Function of two shapes and a cutoff: signed distance and the nearest points on both."""
    pair, first, second = PAIRS.get((a, b)), KINDS[a].convex, KINDS[b].convex
    if first and second and (pair is None or not pair.exact or (a, b) == ("box", "box")):
        return partial(_by_witness, body_of(first), body_of(second))
    return _apart if pair is None else partial(_by_contacts, pair.function)


def _by_witness(body_a, body_b, a: Shape, b: Shape, cutoff: Array):
    found = witness(body_a, body_b, a, b)
    return found.distance, found.point_a, found.point_b


def _by_contacts(function, a: Shape, b: Shape, cutoff: Array):
    hit = function(a, b, cutoff)
    k = jnp.argmin(hit.distance)
    x, half = hit.distance[k], 0.5 * hit.distance[k] * jnp.broadcast_to(hit.normal, hit.point.shape)[k]
    return x, hit.point[k] - half, hit.point[k] + half


def _apart(a: Shape, b: Shape, cutoff: Array):
    """Two planes never meet."""
    return jnp.full((), EMPTY, a.pos.dtype), a.pos, b.pos
