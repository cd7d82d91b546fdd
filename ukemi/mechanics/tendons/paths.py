"""Lengths of tendons and their moment arms: sums over joints, or over the straight parts of a string.

A string does not stretch where it lies on a shape, and the way that it takes is the shortest, so that its length
changes with its straight parts alone: ∂L/∂q = Σ uᵀ (J(end) − J(start)), u: direction of the part.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.maths import spatial
from ukemi.maths.gathers import pick, pick_rows
from ukemi.mechanics.kinematics import Kinematics, shared_reference, site_points
from ukemi.mechanics.tendons.wrapping import wrap
from ukemi.model.records import Model


class Lengths(NamedTuple):
    """Of all tendons."""

    length: Array  # (nt,) [m]; of fixed tendons in the units of their joints times coefficients
    moment: Array  # (nt, nv) ∂length/∂q


class Ends(NamedTuple):
    """Where strings pull on one body against another: a straight part's end, seen from what its other end lies on."""

    tendon: np.ndarray  # (n,)
    body: np.ndarray  # (n,)
    base: np.ndarray  # (n,) the other body
    point: Array  # (n, 3)
    force: Array  # (n, 3) by which the length grows with the point's motion relative to the base


def tendon_lengths(model: Model, kin: Kinematics, q: Array) -> Lengths:
    """Lengths and moment arms at q."""
    length, moment = _strings(model, kin)
    if not len(model.tendons.layout.terms):
        return Lengths(length, moment)
    sums, of_joints = _sums(model)
    coordinate = model.tree.joint_qpos[model.tendons.layout.terms[:, 1]]
    return Lengths(length + sums @ pick(q, coordinate), moment + sums @ of_joints)


def tendon_moments(model: Model, kin: Kinematics) -> Array:
    """Moment arms (nt, nv) alone."""
    sums, of_joints = _sums(model)
    return _strings(model, kin)[1] + sums @ of_joints


def _sums(model: Model) -> tuple[Array, Array]:
    """Coefficients (nt, nterm), and the dofs (nterm, nv) of the joints that are summed up."""
    layout, tree = model.tendons.layout, model.tree
    sums = (layout.terms[:, 0] == np.arange(len(layout.names))[:, None]) * model.tendons.coefficient
    return sums, (tree.joint_dof[layout.terms[:, 1]][:, None] == np.arange(tree.nv)).astype(sums.dtype)


def _strings(model: Model, kin: Kinematics) -> tuple[Array, Array]:
    """Lengths (nt,) and moment arms (nt, nv) of tendons from site to site, zero of sums."""
    nt, dtype = len(model.tendons.layout.names), kin.S.dtype
    length, moment = jnp.zeros(nt, dtype), jnp.zeros((nt, model.nv), dtype)
    for spans, function in parts(model):
        size, ends = function(model, kin, spans)
        length = length + _sum(spans[:, 0], size, nt)
        moment = moment + _sum(ends.tendon, _moments(model, kin, ends), nt)
    return length, moment


def parts(model: Model) -> Iterator[tuple[np.ndarray, Callable]]:
    """Spans without a shape in between, and with one, and what gives their lengths (n,) and ends."""
    spans = model.tendons.layout.spans
    wraps = spans[:, 3] >= 0
    for own, function in ((spans[~wraps], straight), (spans[wraps], wrapped)):
        if len(own):
            yield own, function


def between(model: Model, ends: Ends) -> np.ndarray:
    """(n, nv) 1 for dofs that move the body alone, −1 for those that move the base alone."""
    moves = model.tree.moves.astype(int)
    return moves[ends.body] - moves[ends.base]


def string_pulls(model: Model, kin: Kinematics) -> list[Ends]:
    """Where strings pull on bodies, each end twice: on its body, and along the same line on the base."""
    ends = [function(model, kin, spans)[1] for spans, function in parts(model)]
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


def _sum(owner: np.ndarray, rows: Array, n: int) -> Array:
    return (owner == np.arange(n)[:, None]).astype(rows.dtype) @ rows


def shares(model: Model, spans: np.ndarray) -> Array:
    """By what lengths and pulls of spans (n,) are divided: what the pulley before them says."""
    pulley = spans[:, 5]
    if (pulley < 0).all():
        return jnp.ones(len(spans), model.tendons.divisor.dtype)
    return jnp.where(pulley < 0, 1.0, 1 / model.tendons.divisor[np.maximum(pulley, 0)])


def straight(model: Model, kin: Kinematics, spans: np.ndarray) -> tuple[Array, Ends]:
    """Lengths (n,) and ends of spans without a shape in between."""
    tendon, a, b = spans[:, :3].T
    x, y, share = site_points(model, kin, a), site_points(model, kin, b), shares(model, spans)
    size, along = leg(x, y)
    body = model.sites.layout.body
    return size * share, Ends(tendon, body[b], body[a], y, along * share[:, None])


def wrapped(model: Model, kin: Kinematics, spans: np.ndarray) -> tuple[Array, Ends]:
    """The same of spans with a shape in between, which both ends pull against."""
    tendon, a, b, geom = spans[:, :4].T
    mat, p, shape = in_shapes(model, kin, spans)
    share, body, on = shares(model, spans), model.sites.layout.body, model.geoms.layout.body[geom]
    total, force = jax.vmap(way)(p, *shape)
    force = jnp.moveaxis(spatial.apply(mat[:, None], force), 1, 0) * share[:, None]
    sites = np.concatenate([a, b])
    ends = np.tile(tendon, 2), body[sites], np.tile(on, 2), site_points(model, kin, sites), lax.collapse(force, 0, 2)
    return total * share, Ends(*ends)


def in_shapes(model: Model, kin: Kinematics, spans: np.ndarray) -> tuple[Array, Array, tuple]:
    """Rotations (n, 3, 3) of the shapes in between, both ends (n, 2, 3) as seen there, and what `wrap` asks besides."""
    _, a, b, geom, side, _ = spans.T
    local = spatial.pose(spatial.quat_to_mat(model.geoms.quat[geom]), model.geoms.pos[geom])
    X = spatial.compose(pick_rows(kin.X, model.geoms.layout.body[geom]), local)
    points = jnp.stack([site_points(model, kin, s) for s in (a, b, np.maximum(side, 0))], 1)
    p = spatial.apply(X[:, None, :3, :3].mT, points - X[:, None, :3, 3])
    sphere = np.array([model.geoms.layout.type[g] == "sphere" for g in geom.tolist()])
    return X[:, :3, :3], p[:, :2], (model.geoms.size[geom, 0], p[:, 2], sphere, side >= 0)


def way(p: Array, radius: Array, side: Array, round_: Array, sided: Array) -> tuple[Array, Array]:
    """Length of a string between p (2, 3), and its slopes (2, 3) in these."""
    found = wrap(p, radius, side, round_, sided)
    met = found.touches
    ahead = jnp.where(met, jnp.stack([found.first, found.last]), p[::-1])
    size, along = leg(ahead, p)
    return jnp.where(met, size.sum() + found.length, size[0]), along


def leg(x: Array, y: Array) -> tuple[Array, Array]:
    """Length and direction of straight parts; none where both ends are one point."""
    size = spatial.safe_norm(y - x)
    return size, (y - x) / jnp.where(size == 0, 1.0, size)[..., None]


def _moments(model: Model, kin: Kinematics, ends: Ends) -> Array:
    """Generalised forces (n, nv) of the ends."""
    origin, S = shared_reference(model.tree, kin)
    wrench = jnp.concatenate([spatial.cross(ends.point - origin, ends.force), ends.force], -1)
    return (wrench @ S.T) * between(model, ends).astype(S.dtype)
