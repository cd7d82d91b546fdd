"""The soft-constraint penalty s(x) of MuJoCo's reduced primal problem (eq. 8), its gradient and its Hessian.

x = J a − a_ref. Scalar rows (equality, dry friction, limits) have a quadratic, a Huber and a half-quadratic
penalty. A contact's rows live in its frame (normal, tangents, torsion, rolling), whichever cone bounds them;
the pyramid's edges are combinations n ± μ_k t_k of those rows. The force is f = −∇s, and s(x) = −fᵀx − ½ fᵀRf.
"""

from typing import NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.constraints.rows import RowKinds
from ukemi.maths import spatial
from ukemi.maths.codes import between


class Penalty(NamedTuple):
    """Stiffness of the penalty; D = 1/R is zero on rows that are not active."""

    D: Array  # (scalar,) inverse regulariser of the scalar rows
    bound: Array  # (rub,) largest force of those that rub [N] or [N m]
    D_edge: Array  # (nc,) pyramid: of every edge; elliptic: unused
    D_frame: Array  # (nc, dim) elliptic: of each direction; pyramid: of the normal of frictionless contacts
    friction: Array  # (nc, dim - 1) coefficients, 0 in directions beyond the contact's own dimension
    mu: Array  # (nc,) elliptic: slope of the regularised cone


def penalty_force(kinds: RowKinds, penalty: Penalty, x: Array) -> Array:
    """Constraint force −∇s (total,) at x (total,)."""
    n = kinds.scalar
    f = -penalty.D * x[:n]
    parts = [f[kinds.holding]]
    if kinds.rub:
        parts.append(jnp.clip(f[kinds.rubbing], -penalty.bound, penalty.bound))
    parts.append(jnp.maximum(f[kinds.pushing], 0.0))
    if kinds.contacts:
        parts.append(_contact_force(kinds, penalty, kinds.of_contacts(x)).reshape(-1))
    return jnp.concatenate(parts)


def penalty_hessian(kinds: RowKinds, penalty: Penalty, x: Array) -> tuple[Array, Array]:
    """H[s] at x: diagonal (scalar,) of the scalar rows, blocks (nc, dim, dim) of the contacts."""
    D = penalty.D
    stiff = [D[kinds.holding]]
    if kinds.rub:
        rows = kinds.rubbing
        stiff.append(jnp.where(jnp.abs(D[rows] * x[rows]) < penalty.bound, D[rows], 0.0))
    stiff.append(jnp.where(x[kinds.pushing] < 0, D[kinds.pushing], 0.0))
    if not kinds.contacts:
        return jnp.concatenate(stiff), jnp.zeros((0, kinds.dim, kinds.dim), x.dtype)
    return jnp.concatenate(stiff), _contact_hessian(kinds, penalty, kinds.of_contacts(x))


def penalty_pieces(kinds: RowKinds, penalty: Penalty, x: Array) -> tuple[Array, Array]:
    """Which of its smooth pieces the penalty is in at x: numbers (scalar,) of scalar rows and (nc,) of contacts."""
    rub = between(-penalty.D[kinds.rubbing] * x[kinds.rubbing], -penalty.bound, penalty.bound)
    scalar = jnp.concatenate([jnp.zeros(kinds.hold, int), rub, jnp.sign(x[kinds.pushing]).astype(int)])
    if not kinds.contacts:
        return scalar, jnp.zeros(0, int)
    frame = kinds.of_contacts(x)
    if kinds.cone == "elliptic" and kinds.dim > 1:
        cone = _cone(penalty, frame)
        return scalar, 1 + jnp.where(cone.middle, 0, jnp.where(cone.bottom, 1, 2))
    edges = jnp.concatenate([*_edges(penalty, frame), frame[:, :1]], -1) < 0
    return scalar, 1 + (edges * 2 ** np.arange(edges.shape[1])).sum(-1)


def apply_hessian(kinds: RowKinds, blocks: tuple[Array, Array], y: Array) -> Array:
    """H[s] y for rows y (total, ...)."""
    diagonal, block = blocks
    n, rest = kinds.scalar, y.shape[1:]
    scalar = diagonal.reshape(-1, *(1 for _ in rest)) * y[:n]
    if not kinds.contacts:
        return scalar
    frame = y[n:].reshape(kinds.contacts, kinds.dim, -1)
    turned = cast(Array, sum(block[:, :, k, None] * frame[:, None, k] for k in range(kinds.dim)))
    return jnp.concatenate([scalar, turned.reshape(-1, *rest)])


def active_contacts(penalty: Penalty) -> Array:
    """How many leading contact slots hold all that are active."""
    stiff = (penalty.D_edge > 0) | (penalty.D_frame > 0).any(-1)
    return jnp.max(jnp.where(stiff, jnp.arange(1, len(stiff) + 1), 0), initial=0)


# ---- contacts -----------------------------------------------------------------------------------------------


def _contact_force(kinds: RowKinds, penalty: Penalty, x: Array) -> Array:
    if kinds.cone == "elliptic" and kinds.dim > 1:
        return _elliptic_force(penalty, x)
    normal = jnp.maximum(-penalty.D_frame[:, 0] * x[:, 0], 0.0)
    if kinds.dim == 1:
        return normal[:, None]
    plus, minus = _edges(penalty, x)
    D = penalty.D_edge[:, None]
    push, pull = D * jnp.maximum(-plus, 0.0), D * jnp.maximum(-minus, 0.0)
    push, pull = (jnp.where(penalty.friction == 0, 0.0, f) for f in (push, pull))
    total = (push + pull).sum(-1)
    if kinds.frictionless:
        total = total + normal
    return jnp.concatenate([total[:, None], penalty.friction * (push - pull)], -1)


def _edges(penalty: Penalty, x: Array) -> tuple[Array, Array]:
    """x along the pyramid's edges n + μ_k t_k and n − μ_k t_k, each (nc, dim - 1)."""
    side = penalty.friction * x[:, 1:]
    return x[:, :1] + side, x[:, :1] - side


def _contact_hessian(kinds: RowKinds, penalty: Penalty, x: Array) -> Array:
    if kinds.cone == "elliptic" and kinds.dim > 1:
        return _elliptic_hessian(penalty, x)
    normal = jnp.where(x[:, 0] < 0, penalty.D_frame[:, 0], 0.0)
    if kinds.dim == 1:
        return normal[:, None, None]
    plus, minus = _edges(penalty, x)
    D = jnp.where(penalty.friction == 0, 0.0, penalty.D_edge[:, None])
    a, b = jnp.where(plus < 0, D, 0.0), jnp.where(minus < 0, D, 0.0)
    top = (a + b).sum(-1)
    if kinds.frictionless:
        top = top + normal
    side, diagonal = penalty.friction * (a - b), penalty.friction**2 * (a + b)
    lower = diagonal[:, :, None] * np.eye(kinds.dim - 1, dtype=x.dtype)
    first = jnp.concatenate([top[:, None], side], -1)
    return jnp.concatenate([first[:, None], jnp.concatenate([side[:, :, None], lower], -1)], 1)


class _Cone(NamedTuple):
    """Elliptic contacts in the space where their cone is circular."""

    N: Array
    T: Array
    U: Array  # (nc, dim - 1)
    middle: Array  # bool: slipping, force on the cone's surface
    bottom: Array  # bool: sticking, force inside the cone
    Dm: Array


def _cone(penalty: Penalty, x: Array) -> _Cone:
    mu = penalty.mu
    N, U = mu * x[:, 0], penalty.friction * x[:, 1:]
    T = spatial.safe_norm(U)
    top = (N >= mu * T) | ((T <= 0) & (N >= 0))
    bottom = ~top & ((mu * N + T <= 0) | ((T <= 0) & (N < 0)))
    Dm = penalty.D_frame[:, 0] / (mu * mu * (1 + mu * mu))
    return _Cone(N, T, U, ~top & ~bottom, bottom, Dm)


def _elliptic_force(penalty: Penalty, x: Array) -> Array:
    c, mu = _cone(penalty, x), penalty.mu
    normal = -c.Dm * (c.N - mu * c.T) * mu
    slope = normal / jnp.where(c.middle, c.T, 1.0)
    slip = jnp.concatenate([normal[:, None], -slope[:, None] * c.U * penalty.friction], -1)
    stick = -penalty.D_frame * x
    return jnp.where(c.middle[:, None], slip, jnp.where(c.bottom[:, None], stick, 0.0))


def _elliptic_hessian(penalty: Penalty, x: Array) -> Array:
    c, mu = _cone(penalty, x), penalty.mu
    T = jnp.where(c.middle, c.T, 1.0)
    direction = c.U / T[:, None]
    eye = np.eye(x.shape[1] - 1, dtype=x.dtype)
    bend = (mu * c.N / T)[:, None, None]
    tangent = bend * (direction[:, :, None] * direction[:, None]) + ((mu * mu)[:, None, None] - bend) * eye
    side = -mu[:, None] * direction
    first = jnp.concatenate([jnp.ones_like(mu)[:, None], side], -1)
    slip = jnp.concatenate([first[:, None], jnp.concatenate([side[:, :, None], tangent], -1)], 1)
    scale = jnp.concatenate([mu[:, None], penalty.friction], -1)
    slip = c.Dm[:, None, None] * scale[:, :, None] * scale[:, None] * slip
    stick = penalty.D_frame[:, :, None] * np.eye(x.shape[1], dtype=x.dtype)
    return jnp.where(c.middle[:, None, None], slip, jnp.where(c.bottom[:, None, None], stick, 0.0))
