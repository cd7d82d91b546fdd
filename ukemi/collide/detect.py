"""Which contacts there are: bounding capsules, then the pair functions, then the nearest contact points."""

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide import response
from ukemi.collide.examine import examine_whole, near_pairs, planes
from ukemi.collide.frames import of_rows
from ukemi.collide.hulls import touching
from ukemi.collide.hulls.features import Corners, Patch
from ukemi.collide.near import at_pairs, free_corners, posed_at, reach_ahead
from ukemi.collide.shapes import EMPTY, Shape, shapes_at
from ukemi.implicit.rule import keep, unmoved, zero_tangent
from ukemi.maths import spatial
from ukemi.maths.gathers import put_rows, rows_at
from ukemi.maths.ranking import parts, places, smallest, wrapped
from ukemi.mechanics.kinematics import Kinematics, geom_frames
from ukemi.model.records import Model, PairLayout
from ukemi.status import Status
from ukemi.xla.batches import one_by_one
from ukemi.xla.stages import compact

SHORT = 64  # candidates near enough to look at, of which all are ranked in much less time than of more
ROWS = 8  # contacts whose patches are looked up together
NAMES = 1021  # of contact points of a pair, a prime: prisms of a height field that share one are far apart


class Contacts(NamedTuple):
    """Contact points, nearest first up to the model's capacity; rows where `active` is false mean nothing.

    Where a shape is nowhere, all are active, their distances and frames NaN: comparisons would drop them.
    """

    active: Array  # (nc,) bool: closer than the margin, so that forces may act
    distance: Array  # (nc,) signed [m]
    point: Array  # (nc, 3) midway between the surfaces [m]
    frame: Array  # (nc, 3, 3) rows: normal from the first geom to the second, two tangents
    pair: Array  # (nc,) which pair of geoms, a row of `PairLayout.geoms`
    which: Array  # (nc,) which of the pair's contact points, in MuJoCo's order
    dropped: Array  # () how far beyond its margin the nearest is that found no room [m]; infinite: there is none
    features: Array  # (nc, 9) codes of `Features` where polytopes touch; (nc, 0) where a model has none
    patch: Patch | None  # (nc, 2, ...) what of both shapes touches; None where a model has no polytopes
    failed: Array  # () bool: a search for what touches did not end

    @property
    def overflow(self) -> Array:
        """() bool: more contacts than the model can hold."""
        return self.dropped < jnp.inf

    @property
    def names(self) -> Array:
        """A number (nc,) for each contact point, by which another step knows it; −1 where there is none."""
        return jnp.where(self.active, self.pair * NAMES + wrapped(self.which, NAMES), -1).astype(jnp.int32)

    def rowwise(self, change: Callable[[Array], Array]) -> "Contacts":
        """The same with all arrays that lead with contacts changed."""
        flags = {"dropped": self.dropped, "failed": self.failed}
        return jax.tree.map(change, self._replace(**dict.fromkeys(flags)))._replace(**flags)


def unsound(contacts: Contacts) -> dict[Status, Array]:
    """Why contacts should not be trusted, if they should not."""
    return {Status.CONTACT_OVERFLOW: contacts.overflow, Status.SEARCH_UNFINISHED: contacts.failed}


def detect(
    model: Model,
    kin: Kinematics,
    ahead: Array | None = None,
    steady: Array | None = None,
    early: Array | None = None,
) -> Contacts:
    """Contact points at the poses `kin`.

    ahead: distance, one or per pair (pairs,), beyond the margin from which on contacts count as active [m].
    steady: () bool, whether boxes touch with faces alone, which do not jump as boxes turn (`pairs.box_box`).
    early: distance, one or per pair (pairs,), from which on polytopes have several contacts (`hulls.touching`) [m].
        None: that from which on contacts are active, or without `ahead` once they overlap, as in MuJoCo.
    """
    if not model.pairs.layout.groups:
        return _no_contacts(model)
    # a stage of its own: fused with what derivatives make of the same frames, they would be rounded otherwise
    pos, mat = compact(geom_frames)(model, kin)
    return _detect(model, shapes_at(model.geoms, pos, mat), ahead, steady, early)


@jax.custom_jvp
def _detect(model: Model, shapes: Shape, ahead: Array | None, steady: Array | None, early: Array | None) -> Contacts:
    return compact(_find)(model, shapes, ahead, steady, early)


def _find(model: Model, shapes: Shape, ahead: Array | None, steady: Array | None, early: Array | None) -> Contacts:
    layout = model.pairs.layout
    lost, failed = jnp.zeros((2,), bool)
    posed, unlisted = posed_at(model, shapes, ahead)
    if ahead is not None and not layout.hulls.idle:
        own = posed.pair if layout.many else None
        early = posed.reach if early is None else jnp.minimum(posed.reach, at_pairs(early, own))
    posed = posed._replace(steady=steady, early=early)
    parts, given = [examine_whole(layout, g, posed) for g in planes(layout)], [*shapes]
    if len(planes(layout)) < len(layout.groups):
        others, lost, failed = one_by_one(lambda posed: near_pairs(layout, posed))(posed)
        parts.append(others)
        lost, given = lost | unlisted, [shapes.pos, posed.near]  # which comes of all the rest
    found = jax.tree.map(lambda *x: jnp.concatenate(x), *parts)
    margin, gap = reach_ahead(model, ahead, found.pair)
    excess, known = spatial.materialize(((found.distance - margin).astype(jnp.float32), found.distance < margin + gap))
    ranked = _ranked(excess, known, min(layout.capacity + 1, len(excess)))
    nearest, beyond = ranked[: layout.capacity], ranked[-1]
    distance, hit, pair, which, features = spatial.materialize(tuple(x[nearest] for x in found))
    nowhere = ~reduce(jnp.logical_and, [jnp.isfinite(x).all() for x in (*given, excess)])
    point, frame = of_rows(hit)
    distance, frame = (jnp.where(nowhere, jnp.nan, x) for x in (distance, frame))
    margin, gap = reach_ahead(model, ahead, pair)
    active, known = ~(distance >= margin), ~(distance >= margin + gap)
    dropped = jnp.where(lost, -jnp.inf, jnp.asarray(jnp.inf, distance.dtype))
    if layout.capacity < len(excess):
        dropped = jnp.where(excess[beyond] < 0, jnp.minimum(dropped, excess[beyond]), dropped)
    return Contacts(
        active=active,
        distance=distance,
        point=point,
        frame=frame,
        pair=pair,
        which=which,
        dropped=dropped,
        features=features,
        patch=None if layout.hulls.idle else _patches(layout, posed.corners, features, count(known)),
        failed=failed,
    )


def _ranked(excess: Array, known: Array, k: int) -> Array:
    """Places (k,) of the smallest of (n,) in rising order, of those that are known, or of all."""
    if len(excess) < 2 * SHORT:
        return smallest(excess, k)

    def of_few(excess: Array, known: Array) -> Array:
        at, here = places(known, SHORT), np.arange(SHORT) < known.sum()
        order = smallest(jnp.where(here, excess[at], jnp.inf), SHORT)
        first = jnp.where(here, at[order], jnp.argmin(known).astype(at.dtype))  # then one that is not, over and over
        return jnp.pad(first, (0, max(0, k - SHORT)), mode="edge")[:k]

    def of_all(excess: Array, known: Array) -> Array:
        return smallest(excess, k)

    def ranked(excess: Array, known: Array) -> Array:
        return lax.cond(known.sum() < SHORT, of_few, of_all, excess, known)

    return one_by_one(ranked, in_lockstep=of_all)(excess, known)


def count(mask: Array) -> Array:
    """How many () are true of a mask (n,), and those before the last of them."""
    return jnp.where(mask, np.arange(1, len(mask) + 1, dtype=np.int32), 0).max(initial=0)


def _patches(layout: PairLayout, corners: Corners, features: Array, count: Array) -> Patch:
    """What touches (nc, 2, ...) of the first `count` contacts."""

    def every(corners, features, count):
        return touching.patches(layout.hulls, corners, features)

    def by_rows(corners, features, count):
        padded = jnp.pad(features, ((0, -len(features) % ROWS), (0, 0)))

        def some(k, out):
            new = touching.patches(layout.hulls, corners, rows_at(padded, k * ROWS + np.arange(ROWS)))
            return jax.tree.map(lambda x, y: put_rows(x, y, k * ROWS), out, new)

        blank = jax.eval_shape(every, corners, padded, count)
        blank = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), blank)
        out = lax.fori_loop(0, parts(count, ROWS), some, blank)
        return jax.tree.map(lambda x: x[: len(features)], out)

    return one_by_one(by_rows, in_lockstep=every)(corners, features, count)


def _differentiate_detect(primals, tangents):
    """Contacts follow their shapes by the derivative of the pair functions; which contacts there are is constant."""
    (model, shapes, ahead, *asked), (models, along, *_) = primals, tangents
    contacts = keep(_detect(model, shapes, ahead, *asked))
    return contacts, _following(model, shapes, ahead, along, free_corners(models), contacts)


_detect.defjvp(_differentiate_detect, symbolic_zeros=True)


def attached(model: Model, kin: Kinematics, contacts: Contacts, ahead: Array | None = None) -> Contacts:
    """Contacts that `detect` found at these poses, as functions of them, for derivatives of what they led to."""
    if not model.pairs.layout.groups:
        return contacts
    return _attached(model, shapes_at(model.geoms, *geom_frames(model, kin)), ahead, contacts)


@jax.custom_jvp
def _attached(model: Model, shapes: Shape, ahead: Array | None, contacts: Contacts) -> Contacts:
    return contacts


def _differentiate_attached(primals, tangents):
    (model, shapes, ahead, contacts), (models, along, _, _) = primals, tangents
    return contacts, _following(model, shapes, ahead, along, free_corners(models), contacts)


def _following(model: Model, shapes: Shape, ahead: Array | None, along: Shape, bend, contacts: Contacts) -> Contacts:
    """How contacts move as their shapes, and the corners of hulls, move along tangents."""
    tangent = zero_tangent(contacts)
    if unmoved((along, bend)):
        return tangent
    margin, gap = reach_ahead(model, ahead)
    moved = response.follow(model.pairs.layout, margin + gap, shapes, along, free_corners(model), bend, contacts)
    return tangent._replace(distance=moved.distance, point=moved.point, frame=moved.frame)


_attached.defjvp(_differentiate_attached, symbolic_zeros=True)


def _no_contacts(model: Model) -> Contacts:
    dtype = model.options.timestep.dtype
    return Contacts(
        active=jnp.zeros(0, bool),
        distance=jnp.full(0, EMPTY, dtype),
        point=jnp.zeros((0, 3), dtype),
        frame=jnp.zeros((0, 3, 3), dtype),
        pair=jnp.zeros(0, jnp.int32),
        which=jnp.zeros(0, jnp.int32),
        dropped=jnp.asarray(jnp.inf, dtype),
        features=jnp.zeros((0, 0), jnp.int32),
        patch=None,
        failed=jnp.zeros((), bool),
    )
