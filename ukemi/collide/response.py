"""How contacts follow their shapes: the derivative of the pair functions in the motions of two shapes.

Each contact depends on 12 tangents, the translation and rotation of both shapes, and on the w parameters that say
what each of them is (so far their sizes, w = 3). AD of the
small pair function along these is all that is ever differentiated of collision detection; which contacts there
are, and how they were found, is constant.
"""

from functools import partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.hulls import response as polytopes
from ukemi.collide.hulls.features import CURVED, Corners, all_corners
from ukemi.collide.pairs.response import pair_pull, pair_response
from ukemi.collide.primitives import (
    POLYTOPES,
    bundles,
    chunk_in,
    families,
    family_function,
    go_with_both,
    kind_in,
    place_in_bundle,
    points_in,
)
from ukemi.collide.shapes import Hit, Shape, parameter_count, parameters, sides
from ukemi.implicit.linear_maps import transposable
from ukemi.implicit.rule import filled, is_zero, unmoved
from ukemi.maths import spatial
from ukemi.maths.gathers import mix
from ukemi.maths.ranking import parts
from ukemi.model.records import PairLayout
from ukemi.xla.batches import one_by_one, side_by_side


class Placed(NamedTuple):
    """Where contacts are, or how that changes."""

    distance: Array  # (nc,)
    point: Array  # (nc, 3)
    frame: Array  # (nc, 3, 3)


def follow(layout: PairLayout, reach: Array, shapes: Shape, along: Shape, corners: Corners, bend, contacts) -> Placed:
    """Derivative of the contacts as shapes and corners move along tangents, whose leaves may be SymbolicZero.

    bend: the tangent of `corners`, without the corners of hulls that are no parameters.
    """
    turn = filled(along.mat, shapes.mat)
    spin = spatial.materialize(_axial(spatial.compose(turn, shapes.mat.mT)))
    parts = [jnp.concatenate([filled(along.pos, shapes.pos), spin], -1)]
    sized, like = not all(map(is_zero, along[2:])), Placed(contacts.distance, contacts.point, contacts.frame)
    if sized:
        parts.append(parameters(type(shapes)(shapes.pos, shapes.mat, *map(filled, along[2:], shapes[2:]))))
    bent = not layout.hulls.idle and not unmoved(bend)
    if bent:
        parts.append(jax.tree.map(filled, bend, corners, is_leaf=is_zero))
    move = transposable(partial(_push, layout, sized, bent), partial(_pull, layout, sized, bent))
    return move((reach, shapes, corners, contacts), parts, like)


def _push(layout: PairLayout, sized: bool, bent: bool, known, parts: list) -> Placed:
    """Changes of the contacts along translations and rotations (ng, 6) of the shapes, along parameters (ng, w) if
    `sized`, and along corners if `bent`."""
    reach, shapes, corners, contacts = known
    geoms = jnp.asarray(layout.geoms)[contacts.pair]
    columns = [part[geoms[:, side]] for part in parts[: 1 + sized] for side in (0, 1)]
    still = np.zeros(len(layout.groups), bool)
    G = one_by_one(partial(responses, layout, sized, still))(reach, shapes, contacts)
    moved = spatial.apply(G, jnp.concatenate(columns, -1))
    if bent:
        moved = moved + one_by_one(partial(_bend, layout))(shapes, contacts, corners, parts[-1])
    frame = spatial.cross(moved[:, None, 4:], contacts.frame)
    return Placed(moved[:, 0], moved[:, 1:4], frame)


def _bend(layout: PairLayout, shapes: Shape, contacts, corners: Corners, along: Corners) -> Array:
    """Changes (nc, 7) of the contacts of polytopes as corners move along."""
    corners, along = jax.jvp(partial(all_corners, layout.hulls), (corners,), (along,))
    out = jnp.zeros((len(contacts.pair), 7), shapes.pos.dtype)
    for family, own in _of_polytopes(layout, contacts):
        bend = partial(polytopes.bend, family.form, layout.hulls, corners, along)

        def write(touch, out, bend=bend):
            return polytopes.put(out, touch.row, bend(touch))

        out = polytopes.each(layout, family, shapes, contacts, own, write, out)
    return out


def _unbend(layout: PairLayout, shapes: Shape, contacts, corners: Corners, on: Array) -> Corners:
    """What `on` (nc, 7) pulls on the corners: the transpose of `_bend`."""
    corners = all_corners(layout.hulls, corners)
    total = jax.tree.map(jnp.zeros_like, corners)
    for family, own in _of_polytopes(layout, contacts):
        unbend = partial(polytopes.unbend, family.form, layout.hulls, corners)

        def write(touch, total, unbend=unbend):
            pull = jnp.where((touch.row < len(on))[:, None], on[jnp.minimum(touch.row, len(on) - 1)], 0.0)
            return jax.tree.map(jnp.add, total, unbend(touch, pull))

        total = polytopes.each(layout, family, shapes, contacts, own, write, total)
    return total._replace(hulls=total.hulls.free)


def _of_polytopes(layout: PairLayout, contacts):
    """Families of polytopes, and which contacts (nc,) are theirs."""
    groups = [g for g, group in enumerate(layout.groups) if group.types in POLYTOPES]
    for family in polytopes.families_of(layout, groups):
        curved = contacts.features[:, 0] == CURVED
        yield family, _own(layout, [family.groups], contacts) & (curved == family.form.curved)


def _own(layout: PairLayout, families: list[list[int]], contacts) -> Array:
    """Which contacts (nc,) are of the pairs of some families of groups."""
    first = layout.first
    own = [(contacts.pair >= first[g]) & (contacts.pair < first[g + 1]) for groups in families for g in groups]
    return contacts.active & reduce(jnp.logical_or, own)


def _others(layout: PairLayout) -> list[list[list[int]]]:
    """Bundles of the families that are no polytopes."""
    groups = [g for g, group in enumerate(layout.groups) if group.types not in POLYTOPES]
    return bundles(layout, families(layout, groups))


def _pull(layout: PairLayout, sized: bool, bent: bool, known, on: Placed) -> list:
    """The transpose of `_push`."""
    reach, shapes, corners, contacts = known
    spin = spatial.cross(contacts.frame, on.frame).sum(1)
    on_contact = OnContact(on.distance, on.point, spatial.apply(contacts.frame, spin))
    still = np.zeros(len(layout.groups), bool)
    pulled = one_by_one(partial(pull, layout, sized, still))(reach, shapes, contacts, on_contact)
    out = [pulled[:, :6], pulled[:, 6:]] if sized else [pulled]
    if bent:
        rows = jnp.concatenate([on.distance[:, None], on.point, on_contact.turn], -1)
        out.append(one_by_one(partial(_unbend, layout))(shapes, contacts, corners, rows))
    return out


def _axial(matrix: Array) -> Array:
    """Vector ω of the skew part of matrices [ω×] (..., 3, 3)."""
    a = 0.5 * (matrix - matrix.mT)
    return jnp.stack([a[..., 2, 1], a[..., 0, 2], a[..., 1, 0]], -1)


def responses(layout: PairLayout, sized: bool, still: np.ndarray, reach: Array, shapes: Shape, contacts) -> Array:
    """G (nc, 7, 12 or 12 + 2 w): change of distance, point and frame (its rotation) per motion of a contact's shapes.

    Columns: translation and rotation of the first shape, of the second, in world axes, the rotation about the
    shape's own origin; then the parameters of both if `sized`. still: groups whose first shapes do not move, whose
    columns are then left at zero.
    """
    n, width = len(contacts.pair), 12 + 2 * parameter_count(shapes) * sized
    G = jnp.zeros((n, 7, width), shapes.pos.dtype)
    for bundle in _others(layout):
        own = _own(layout, bundle, contacts)
        fill = partial(_fill, layout, bundle, still, sized, reach, shapes, contacts, own)
        G = fill(G) if len(layout.groups) == 1 else lax.cond(own.any(), fill, lambda G: G, G)
    for family, own in _of_polytopes(layout, contacts):
        G = _fill_touching(layout, family, bool(still[family.groups].all()), sized, shapes, contacts, own, G)
    return G


def _fill_touching(
    layout: PairLayout,
    family: polytopes.Family,
    still: bool,
    sized: bool,
    shapes: Shape,
    contacts,
    own: Array,
    G: Array,
) -> Array:
    """Write the responses of a family of polytopes, several contacts at a time."""

    def respond(touch: polytopes.Touch) -> Array:
        none = jnp.zeros((), G.dtype)
        return pair_response(polytopes.hit_of(family.form, touch), touch.a, touch.b, none, still, sized)[0]

    def write(touch: polytopes.Touch, G: Array) -> Array:
        new = jnp.pad(side_by_side(respond)(touch), ((0, 0), (0, 0), (6 * still, 0)))
        return polytopes.put(G, touch.row, new)

    return polytopes.each(layout, family, shapes, contacts, own, write, G)


def _fill(
    layout: PairLayout,
    bundle: list[list[int]],
    still,
    sized: bool,
    reach,
    shapes: Shape,
    contacts,
    own: Array,
    G: Array,
):
    """Write the responses of a bundle's `own` contacts, several pairs at a time."""
    chunk, points, count, turns = _in_turn(layout, bundle, contacts, own)

    def of_family(family: list[int], pair: Array) -> Array:
        fixed = bool(still[family].all())
        respond = partial(_of_known, partial(pair_response, still=fixed, sized=sized), layout, family)
        (a, b), kind = sides(shapes, jnp.asarray(layout.geoms)[pair]), kind_in(layout, family, pair)
        new = side_by_side(respond)(_first_contacts(layout, family, contacts, pair), kind, a, b, reach[pair])
        return jnp.pad(new, ((0, 0), (0, points - points_in(layout, family)), (0, 0), (6 * fixed, 0)))

    def some(i, G):
        pair, real = turns(i)
        routines = [partial(of_family, family) for family in bundle]
        new = _by_family(layout, bundle, routines, pair).reshape(chunk * points, 7, -1)
        mine = _slots(contacts, own, pair, real, points).reshape(chunk * points, -1)
        row = jnp.where(mine.any(-1), jnp.argmax(mine, -1), len(own))
        return polytopes.put(G, *spatial.materialize((row, new)))

    return lax.fori_loop(0, parts(count, chunk), some, G)


# ---- the transpose ---------------------------------------------------------------------------------------------------


class OnContact(NamedTuple):
    """What a function of contacts pulls on."""

    distance: Array  # (nc,)
    point: Array  # (nc, 3)
    turn: Array  # (nc, 3) on the rotation of the frame, in its own axes


def pull(
    layout: PairLayout, sized: bool, still: np.ndarray, reach: Array, shapes: Shape, contacts, on: OnContact
) -> Array:
    """What `on` pulls on the shapes (ng, 6 or 6 + w): on their translations and rotations, in world axes about their
    origins, then on their parameters if `sized`; but not on first shapes of groups that are `still`.

    Gᵀ of `responses`, of which only one contact's is there at a time. Reverse mode through each pair's function would
    be three times as much to compile, and saves no time.
    """
    total = jnp.zeros((len(shapes.pos), 6 + parameter_count(shapes) * sized), shapes.pos.dtype)
    turn = spatial.apply(contacts.frame.mT, on.turn)
    rows = jnp.concatenate([on.distance[:, None], on.point, turn], -1)
    for bundle in _others(layout):
        own = _own(layout, bundle, contacts)
        add = partial(_add_pulls, layout, bundle, still, reach, shapes, contacts, own, rows)
        total = add(total) if len(layout.groups) == 1 else lax.cond(own.any(), add, lambda total: total, total)
    for family, own in _of_polytopes(layout, contacts):
        total = _add_touching(layout, family, bool(still[family.groups].all()), shapes, contacts, own, rows, total)
    return total


def _add_touching(
    layout: PairLayout, family: polytopes.Family, still: bool, shapes: Shape, contacts, own: Array, rows, total: Array
) -> Array:
    """Add what the contacts of a family of polytopes pull on, several at a time."""
    width = total.shape[-1]

    def pull_one(touch: polytopes.Touch, on: Array) -> Array:
        none = jnp.zeros((), rows.dtype)
        return pair_pull(polytopes.hit_of(family.form, touch), touch.a, touch.b, none, on[None], width, still)

    def write(touch: polytopes.Touch, total: Array) -> Array:
        real = touch.row < len(rows)
        pulled = side_by_side(pull_one)(touch, rows[jnp.minimum(touch.row, len(rows) - 1)])
        pulled = spatial.materialize(jnp.where(real[:, None, None], pulled, 0.0).reshape(-1, width))
        owner = touch.geoms.reshape(-1) == np.arange(len(total))[:, None]
        return total + mix(owner.astype(rows.dtype), pulled)

    return polytopes.each(layout, family, shapes, contacts, own, write, total)


def _add_pulls(
    layout: PairLayout, bundle: list[list[int]], still, reach, shapes: Shape, contacts, own: Array, rows, total: Array
):
    """Add what a bundle's `own` contacts pull on, several pairs at a time."""
    chunk, points, count, turns = _in_turn(layout, bundle, contacts, own)
    width = total.shape[-1]

    def of_family(family: list[int], pair: Array, on: Array) -> Array:
        pull_pair = partial(pair_pull, width=width, still=bool(still[family].all()))
        pull_one = partial(_of_known, pull_pair, layout, family)
        (a, b), kind = sides(shapes, jnp.asarray(layout.geoms)[pair]), kind_in(layout, family, pair)
        first, on = _first_contacts(layout, family, contacts, pair), on[:, : points_in(layout, family)]
        return side_by_side(pull_one)(first, kind, a, b, reach[pair], on)

    def some(i, total):
        pair, real = turns(i)
        mine = _slots(contacts, own, pair, real, points)
        on = mix(mine.reshape(chunk * points, -1).astype(rows.dtype), rows).reshape(chunk, points, 7)
        routines = [partial(of_family, family) for family in bundle]
        pulled, geoms = _by_family(layout, bundle, routines, pair, on), jnp.asarray(layout.geoms)[pair]
        pulled = spatial.materialize(jnp.where(real[:, None, None], pulled, 0.0).reshape(2 * chunk, width))
        owner = geoms.reshape(-1) == np.arange(len(total))[:, None]
        return total + mix(owner.astype(rows.dtype), pulled)

    return lax.fori_loop(0, parts(count, chunk), some, total)


# ---- pairs of a bundle, several at a time ----------------------------------------------------------------------------


def _by_family(layout: PairLayout, bundle: list[list[int]], routines: list, pair: Array, *more) -> Array:
    """What the routine of their family makes of pairs (n,), of one pair alone where there are several families."""
    if len(bundle) == 1:
        return routines[0](pair, *more)
    return lax.switch(place_in_bundle(layout, bundle, pair[0]), routines, pair, *more)


def _in_turn(layout: PairLayout, bundle: list[list[int]], contacts, own: Array):
    """How many pairs of a bundle to look at together, contact points of each at most, how many have contacts, and which
    are the i-th few: their rows, and which of these are real.
    """
    chunk, points = (max(f(layout, family) for family in bundle) for f in (chunk_in, points_in))
    first, n = layout.first[bundle[0][0]], len(own)
    # the first contact of each pair stands for it: compared with each other, since there may be far more pairs
    same = (contacts.pair[:, None] == contacts.pair) & own
    used = own & ~(same & np.tri(n, k=-1, dtype=bool)).any(-1)
    rank = spatial.materialize(jnp.where(used, jnp.cumsum(used), 0))

    def turns(i) -> tuple[Array, Array]:
        turn = i * chunk + np.arange(1, chunk + 1)
        mine = rank == turn[:, None]
        return spatial.materialize(first + (mine * (contacts.pair - first)).sum(-1)), mine.any(-1)

    return chunk, points, used.sum(), turns


def _slots(contacts, own: Array, pair: Array, real: Array, points: int) -> Array:
    """Which contact (n, points, nc) each contact point of pairs (n,) that are real is, of `own` ones."""
    mine = (contacts.pair == pair[:, None]) & real[:, None] & own
    return mine[:, None] & (contacts.which == np.arange(points)[:, None])


def _first_contacts(layout: PairLayout, family: list[int], contacts, pair: Array) -> Hit | None:
    """First contacts (n, ...) of pairs (n,) of a family, if these spare it a search or a choice."""
    if not family_function(layout, family)[1]:
        return None
    own = (contacts.pair == pair[:, None]) & contacts.active
    which = jnp.where(own, contacts.which, np.iinfo(np.int32).max)
    own = own & (which == which.min(-1, keepdims=True))
    return Hit(*(mix(own, x) for x in (contacts.distance, contacts.point, contacts.frame[:, 0])))


def _of_known(derive, layout: PairLayout, family: list[int], first: Hit | None, kind: Array, a, b, *more):
    """What `derive` makes of a pair's function, which need not search, or choose, where its first contact is known; and
    of whether its contacts go with both shapes.
    """
    function, recall = family_function(layout, family)
    known = {"known": recall(a, b, first, kind)} if recall and first else {}
    return derive(partial(function, kind=kind, **known), a, b, *more, go_with_both=go_with_both(layout, family))
