"""Lengths of tendons and their moment arms: sums over joints, or over the straight parts of a string.

A string does not stretch where it lies on a shape, and the way that it takes is the shortest, so that its length
changes with its straight parts alone: ∂L/∂q = Σ uᵀ (J(end) − J(start)), u: direction of the part.
"""

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial
from ukemi.maths.gathers import mix, pick, placed_sums
from ukemi.mechanics.kinematics import Kinematics, geom_poses, shared_reference, site_points
from ukemi.mechanics.tendons.wrapping import Ways, ways
from ukemi.model.records import Model


class Lengths(NamedTuple):
    """Of all tendons."""

    length: Array  # (nt,) [m]; of fixed tendons in the units of their joints times coefficients
    moment: Array  # (nt, nv) ∂length/∂q


class Strung(NamedTuple):
    """Tendons at some poses: what slopes of their forces need, too."""

    lengths: Lengths
    ways: Ways | None  # of strings around shapes, half of what strings take; None where there are no shapes


class Ends(NamedTuple):
    """Where strings pull on one body against another: a straight part's end, seen from what its other end lies on."""

    tendon: np.ndarray  # (n,)
    body: np.ndarray  # (n,)
    base: np.ndarray  # (n,) the other body
    point: Array  # (3, n)
    force: Array  # (3, n) by which the length grows with the point's motion relative to the base


class Part(NamedTuple):
    """Spans of strings of one kind, and what they come to."""

    spans: np.ndarray  # (n, 6) as in the layout
    share: Array  # (n,) of what counts of a length or pull: what the pulley before says
    length: Array  # (n,)
    ends: Ends  # one of each span, or first all first and then all second ones of those with a shape in between
    over: "Crossings"  # of the ends
    shapes: "Shapes | None"


class Shapes(NamedTuple):
    """What spans have in between."""

    mat: Array  # (3, 3, n) rotations
    sphere: np.ndarray  # (n,) bool
    ways: Ways


def strung(model: Model, kin: Kinematics, q: Array) -> Strung:
    """All tendons at q."""
    parts = strings(model, kin)
    ways = next((part.shapes.ways for part in parts if part.shapes), None)
    return Strung(lengths_of(model, kin, q, parts), ways)


def tendon_lengths(model: Model, kin: Kinematics, q: Array) -> Lengths:
    """Lengths and moment arms at q."""
    return lengths_of(model, kin, q, strings(model, kin))


def lengths_of(model: Model, kin: Kinematics, q: Array, parts: list[Part]) -> Lengths:
    """The same where the strings are known."""
    tendon, dtype = np.arange(len(model.tendons.layout.names))[:, None], kin.S.dtype
    length = jnp.zeros(len(tendon), dtype)
    for part in parts:
        length = length + mix((part.spans[:, 0] == tendon), part.length)
    moment = _string_moments(model, kin, parts)
    if not len(model.tendons.layout.terms):
        return Lengths(length, moment)
    sums, of_joints = _sums(model)
    coordinate = model.tree.joint_qpos[model.tendons.layout.terms[:, 1]]
    return Lengths(length + sums @ pick(q, coordinate), moment + sums @ of_joints)


def tendon_moments(model: Model, kin: Kinematics) -> Array:
    """Moment arms (nt, nv) alone."""
    moment = _string_moments(model, kin, strings(model, kin))
    if not len(model.tendons.layout.terms):
        return moment
    sums, of_joints = _sums(model)
    return moment + sums @ of_joints


def _sums(model: Model) -> tuple[Array, Array]:
    """Coefficients (nt, nterm), and the dofs (nterm, nv) of the joints that are summed up."""
    layout, tree = model.tendons.layout, model.tree
    sums = (layout.terms[:, 0] == np.arange(len(layout.names))[:, None]) * model.tendons.coefficient
    return sums, (tree.joint_dof[layout.terms[:, 1]][:, None] == np.arange(tree.nv)).astype(sums.dtype)


def strings(model: Model, kin: Kinematics, found: Ways | None = None) -> list[Part]:
    """Spans without a shape in between, and with one; found: their ways around it, where they are known."""
    spans = model.tendons.layout.spans
    wraps = spans[:, 3] >= 0
    kinds = (spans[~wraps], _straight), (spans[wraps], partial(_wrapped, found))
    return [function(model, kin, own) for own, function in kinds if len(own)]


def between(model: Model, ends: Ends) -> np.ndarray:
    """(n, nv) 1 for dofs that move the body alone, −1 for those that move the base alone."""
    moves = model.tree.moves.astype(int)
    return moves[ends.body] - moves[ends.base]


class Crossings(NamedTuple):
    """Dofs between an end's body and base, one after the other: few have any, and those that have have few."""

    end: np.ndarray  # (m,)
    dof: np.ndarray  # (m,)
    sign: np.ndarray  # (m,) that of `between`
    turn: Array  # (3, m) axes about which the end turns
    move: Array  # (3, m) and velocity of its point, if it moved with the body alone

    @staticmethod
    def of(model: Model, kin: Kinematics, ends: Ends) -> "Crossings":
        """Those of ends."""
        apart = between(model, ends)
        end, dof = np.nonzero(apart)
        origin, S = shared_reference(model.tree, kin)
        S = pick(S.T, dof)
        move = S[3:] + spatial.columns_cross(S[:3], pick(ends.point - origin[:, None], end))
        return Crossings(end, dof, apart[end, dof], *spatial.materialize((S[:3], move)))


def _string_moments(model: Model, kin: Kinematics, parts: list[Part]) -> Array:
    """Moment arms (nt, nv) of tendons from site to site, zero of sums."""
    shape = len(model.tendons.layout.names), model.nv
    values: list[Array] = [jnp.zeros(0, kin.S.dtype)]
    places = [np.zeros(0, int)]
    for part in parts:
        over = part.over
        values.append((pick(part.ends.force, over.end) * over.move).sum(0) * over.sign)
        places.append(part.ends.tendon[over.end] * model.nv + over.dof)
    return placed_sums(jnp.concatenate(values), np.concatenate(places), int(np.prod(shape))).reshape(shape)


def string_pulls(model: Model, kin: Kinematics) -> list[Ends]:
    """Where strings pull on bodies, each end twice: on its body, and along the same line on the base."""
    ends = [part.ends for part in strings(model, kin)]
    return ends + [Ends(e.tendon, e.base, e.body, e.point, -e.force) for e in ends]


def moved_dofs(model: Model) -> np.ndarray:
    """(nt, nv) bool: dofs that may change each tendon's length."""
    layout, tree = model.tendons.layout, model.tree
    out = np.zeros((len(layout.names), tree.nv), bool)
    tendon, joint = layout.terms.T
    out[tendon, tree.joint_dof[joint]] = True
    for t, a, b, geom, *_ in layout.spans.tolist():
        bodies = [*model.sites.layout.body[[a, b]], *(model.geoms.layout.body[[geom]] if geom >= 0 else ())]
        moves = tree.moves[bodies].astype(bool)
        out[t] |= moves.any(0) & ~moves.all(0)
    return out


def _shares(model: Model, spans: np.ndarray) -> Array:
    """By what lengths and pulls of spans (n,) are divided: what the pulley before them says."""
    pulley = spans[:, 5]
    if (pulley < 0).all():
        return jnp.ones(len(spans), model.tendons.divisor.dtype)
    return jnp.where(pulley < 0, 1.0, 1 / model.tendons.divisor[np.maximum(pulley, 0)])


def _straight(model: Model, kin: Kinematics, spans: np.ndarray) -> Part:
    """Spans without a shape in between."""
    tendon, a, b = spans[:, :3].T
    x, y = spatial.materialize((site_points(model, kin, a).T, site_points(model, kin, b).T))
    size, share = spatial.safe_norm(y - x, 0), _shares(model, spans)
    along, body = (y - x) / jnp.where(size == 0, 1.0, size), model.sites.layout.body
    ends = Ends(tendon, body[b], body[a], y, along * share)
    return Part(spans, share, size * share, ends, Crossings.of(model, kin, ends), None)


def _wrapped(found: Ways | None, model: Model, kin: Kinematics, spans: np.ndarray) -> Part:
    """Spans with a shape in between, which both ends pull against."""
    tendon, a, b, geom, side, _ = spans.T
    body, share, on = model.sites.layout.body, _shares(model, spans), model.geoms.layout.body[geom]
    X = jnp.moveaxis(geom_poses(model, kin, geom), 0, -1)
    sites = (site_points(model, kin, s).T for s in (a, b, np.maximum(side, 0)))
    X, *points = spatial.materialize((X, *sites))
    mat, seen = X[:3, :3], [((x - X[:3, 3])[:, None] * X[:3, :3]).sum(0) for x in points]
    sphere = np.array([model.geoms.layout.type[g] == "sphere" for g in geom.tolist()])
    if found is None:
        near, aside = spatial.materialize((jnp.stack(seen[:2]), seen[2]))
        way = spatial.materialize(ways(near, model.geoms.size[geom, 0], aside, sphere, side >= 0))
    else:
        way = found
    force = (mat * way.slope[:, None]).sum(2) * share
    places = np.tile(tendon, 2), body[np.concatenate([a, b])], np.tile(on, 2)
    ends = Ends(*places, jnp.concatenate(points[:2], 1), jnp.concatenate([*force], 1))
    return Part(spans, share, way.length * share, ends, Crossings.of(model, kin, ends), Shapes(mat, sphere, way))
