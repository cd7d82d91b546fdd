"""Less slip than softness leaves: MuJoCo's "noslip" sweeps over friction, after the solver.

Dry friction and the friction of contacts are visited one after the other and set to what would stop their row, as if
they were not regularised, within bounds that normal forces give; everything else keeps the force that the solver
found. The file says how many sweeps, few as a rule, so that their order matters: here it is MuJoCo's. As there, trees
that rows couple are an island, and each stops when it gains no more. Derivatives are those of the sweeps that were
made.
"""

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax import Array, lax

from ukemi.collide.detect import Contacts
from ukemi.constraints.rows import RowKinds, trees_of_rows
from ukemi.laws.soft.cone_visits import multiplier_of
from ukemi.laws.soft.penalty import penalty_force
from ukemi.laws.soft.problem import Problem
from ukemi.maths import spatial
from ukemi.model.records import Model


class Settled(NamedTuple):
    """Where the sweeps end."""

    acceleration: Array  # (nv,)
    force: Array  # (total,) of all rows


class _Sweeping(NamedTuple):
    a: Array  # (nv,)
    force: Array  # (total,)
    gain: Array  # (ntree,) by how much the cost has fallen in this sweep, island by island
    done: Array  # (ntree,) bool


class _Friction(NamedTuple):
    """Rows, and how far friction may go."""

    J: Array  # (total, nv)
    W: Array  # (total, nv) J M⁻¹
    aref: Array  # (total,)
    bound: Array  # (rub,) largest dry friction
    carried: Array  # (nc, dim - 1) how much of a contact's normal force bounds each direction, of pyramids
    friction: Array  # (nc, dim - 1)
    order: Array  # (nc,) of visits
    island: Array  # (total,) of each row


def settle(kinds: RowKinds, model: Model, contacts: Contacts, problem: Problem, a: Array) -> Settled:
    """Sweeps from the soft law's acceleration a (nv,)."""
    sweeps, tolerance = model.options.layout.noslip
    rows, x = problem.rows, problem.rows.J @ a - problem.rows.aref
    force = penalty_force(kinds, rows.penalty, x)
    factor = (lax.linalg.cholesky(problem.M, symmetrize_input=False), True)
    carried = _carried(kinds, rows.penalty, kinds.of_contacts(x)) if kinds.contacts else jnp.zeros((0, 0), a.dtype)
    order = _order(model, contacts)[: kinds.contacts]
    W = jsl.cho_solve(factor, rows.J.T).T
    island, share = _islands(kinds, model, contacts, rows.penalty)
    friction = _Friction(rows.J, W, rows.aref, rows.penalty.bound, carried, rows.penalty.friction, order, island)
    first = lax.stop_gradient(_softness_cost(kinds, rows.penalty, force, x))
    first = (jnp.arange(len(share)) == island[:, None]).astype(a.dtype).T @ first

    def sweep(k, at: _Sweeping) -> _Sweeping:
        at = at._replace(gain=jnp.where(k == 0, first, 0.0))
        if kinds.rub:
            at = lax.fori_loop(0, kinds.rub, partial(_visit_row, kinds, friction), at)
        if kinds.contacts and kinds.dim > 1:
            visit = _visit_cone if kinds.cone == "elliptic" else _visit_pyramid
            at = lax.fori_loop(0, kinds.contacts, partial(visit, kinds, friction), at)
        return at._replace(done=at.done | (at.gain < tolerance * share))

    def unless_done(k, at: _Sweeping) -> _Sweeping:
        return lax.cond(at.done.all(), lambda at: at, partial(sweep, k), at)

    start = _Sweeping(a, force, jnp.zeros_like(share), jnp.zeros(len(share), bool))
    end = lax.fori_loop(0, sweeps, unless_done, start)
    return Settled(end.a, end.force)


def _visit_row(kinds: RowKinds, of: _Friction, k, at: _Sweeping) -> _Sweeping:
    """Dry friction of one row."""
    i = kinds.hold + k
    residual, size = of.J[i] @ at.a - of.aref[i], of.J[i] @ of.W[i]
    new = jnp.clip(at.force[i] - residual / jnp.where(size > 0, size, 1.0), -of.bound[k], of.bound[k])
    return _moved(at, of, i[None], new[None], residual[None], size[None, None])


def _visit_pyramid(kinds: RowKinds, of: _Friction, k, at: _Sweeping) -> _Sweeping:
    """A contact's directions one by one: two opposite edges share what normal force they have."""
    c = of.order[k]
    for j in range(kinds.dim - 1):
        i = kinds.scalar + c * kinds.dim + 1 + j
        residual, size = of.J[i] @ at.a - of.aref[i], of.J[i] @ of.W[i]
        most = of.friction[c, j] * of.carried[c, j]
        new = jnp.clip(at.force[i] - residual / jnp.where(size > 0, size, 1.0), -most, most)
        at = _moved(at, of, i[None], new[None], residual[None], size[None, None])
    return at


def _visit_cone(kinds: RowKinds, of: _Friction, k, at: _Sweeping) -> _Sweeping:
    """All directions of a contact, within the slice of its cone at the normal force that it has."""
    c = of.order[k]
    first = kinds.scalar + c * kinds.dim
    own = first + 1 + jnp.arange(kinds.dim - 1)
    J, W, mu, radius = of.J[own], of.W[own], of.friction[c], jnp.maximum(at.force[first], 0.0)
    residual, block = J @ at.a - of.aref[own], J @ W.T
    new = mu * _in_slice(mu[:, None] * block * mu, mu * (residual - block @ at.force[own]), radius, mu == 0)
    return _moved(at, of, own, new, residual, block)


def _in_slice(B: Array, b: Array, radius: Array, absent: Array) -> Array:
    """z that minimises ½ zᵀB z + bᵀz in |z| ≤ radius: −(B + λ)⁻¹ b, with λ by one differentiable step of Newton's
    method from where it is known; `absent` (n,) are directions without friction.
    """
    pressed = radius > 0
    B = B + jnp.diag(jnp.where(absent | ~pressed, 1.0, 0.0))
    values, vectors = jnp.linalg.eigh(lax.stop_gradient(B))
    known = multiplier_of(values, vectors.T @ lax.stop_gradient(b), lax.stop_gradient(radius))
    on_rim, eye = known > 0, jnp.eye(len(b), dtype=b.dtype)
    z = -jnp.linalg.solve(B + known * eye, b)
    bend = jnp.linalg.solve(lax.stop_gradient(B) + known * eye, lax.stop_gradient(z))  # −∂z/∂λ
    size = spatial.safe_norm(z)
    slope = lax.stop_gradient(z @ bend / jnp.where(size > 0, size, 1.0))
    more = jnp.where(on_rim, (size - radius) / jnp.where(slope > 0, slope, 1.0), 0.0)
    return jnp.where(pressed, z - more * bend, 0.0)


def _moved(at: _Sweeping, of: _Friction, own: Array, new: Array, residual: Array, block: Array) -> _Sweeping:
    """With new forces in rows `own` (n,), which had these residuals, unless their island is done."""
    island = of.island[own[0]]
    new = jnp.where(at.done[island], at.force[own], new)
    change = new - at.force[own]
    gain = lax.stop_gradient(-(0.5 * change @ block @ change + change @ residual))
    gain = jnp.where(jnp.arange(len(at.gain)) == island, at.gain + gain, at.gain)
    return at._replace(a=at.a + change @ of.W[own], force=at.force.at[own].set(new), gain=gain)


def _islands(kinds: RowKinds, model: Model, contacts: Contacts, penalty) -> tuple[Array, Array]:
    """The island of each row (total,), named by its first tree; the share of dofs (ntree,) of each tree's island."""
    tree, pair = model.tree, contacts.pair[: kinds.contacts]
    touched = tree.members.T[model.geoms.layout.body[model.pairs.layout.geoms]].any(1)  # (pairs, ntree)
    on = jnp.concatenate([trees_of_rows(model) > 0, jnp.asarray(touched)[pair]])
    acts = jnp.concatenate([penalty.D > 0, contacts.active[: kinds.contacts]])
    coupled = (on & acts[:, None]).astype(penalty.D.dtype)
    joined = coupled.T @ coupled + np.eye(tree.ntree)
    if "island" in model.options.layout.disabled:
        joined = jnp.ones_like(joined)
    for _ in range(int(np.ceil(np.log2(max(tree.ntree, 2))))):
        joined = ((joined @ joined) > 0).astype(joined.dtype)
    count = np.bincount(tree.body_tree[tree.dof_body], minlength=tree.ntree)
    label = jnp.argmax(joined > 0, 1)
    island = label[jnp.argmax(on, 1)]
    each = [island[: kinds.scalar], jnp.repeat(island[kinds.scalar :], kinds.dim)]
    return jnp.concatenate(each), (joined > 0) @ count.astype(joined.dtype) / tree.nv


def _carried(kinds: RowKinds, penalty, x: Array) -> Array:
    """Normal forces (nc, dim - 1) of both edges of a pyramid in each direction; x: (nc, dim)."""
    if kinds.cone == "elliptic" or kinds.dim == 1:
        return jnp.zeros((len(x), kinds.dim - 1), x.dtype)
    normal, side = x[:, :1], penalty.friction * x[:, 1:]
    edges = jnp.maximum(0.0, -(normal + side)) + jnp.maximum(0.0, -(normal - side))
    return penalty.D_edge[:, None] * jnp.where(penalty.friction == 0, 0.0, edges)


def _softness_cost(kinds: RowKinds, penalty, force: Array, x: Array) -> Array:
    """½ f R f of rows (total,), of edges for pyramids: what leaving softness out gains."""
    n = kinds.scalar
    D = penalty.D
    scalar = jnp.where(D > 0, force[:n] ** 2 / jnp.where(D > 0, D, 1.0), 0.0)
    if not kinds.contacts:
        return 0.5 * scalar
    own, D = kinds.of_contacts(force), penalty.D_frame
    cost = jnp.where(D > 0, own**2 / jnp.where(D > 0, D, 1.0), 0.0)
    if kinds.cone == "pyramidal" and kinds.dim > 1:
        x = kinds.of_contacts(x)
        for side in (1.0, -1.0):
            edge = jnp.maximum(0.0, -(x[:, :1] + side * penalty.friction * x[:, 1:]))
            edges = penalty.D_edge[:, None] * jnp.where(penalty.friction == 0, 0.0, edge) ** 2
            cost = cost.at[:, 1:].add(edges)
    return 0.5 * jnp.concatenate([scalar, cost.reshape(-1)])


def _order(model: Model, contacts: Contacts) -> Array:
    """Contacts (nc,) in MuJoCo's order: by bodies, then by geoms."""
    geoms = model.pairs.layout.geoms
    if not len(geoms):
        return jnp.arange(len(contacts.pair))
    body = np.sort(model.geoms.layout.body[geoms], 1)
    first = np.argsort(np.lexsort((*np.sort(geoms, 1).T[::-1], *body.T[::-1])))
    return jnp.lexsort((contacts.which, jnp.asarray(first)[contacts.pair], ~contacts.active))
