"""Rotations, spatial vectors and inertias.

Conventions: quaternions are w x y z; spatial vectors are [angular; linear], written in world axes about a
reference point; leading axes broadcast. Everything here is smooth wherever the geometry is: guards keep the
untaken side of each branch away from 0/0, so that derivatives of any order stay finite.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths.gathers import pick, pick_rows
from ukemi.xla.walls import barrier

# ---- vectors ---------------------------------------------------------------------------------------------


_NEXT, _LAST = np.array([1, 2, 0]), np.array([2, 0, 1])


def materialize(x):
    """x, computed once: without the barrier XLA's CPU fusion recomputes long elementwise chains per consumer."""
    return barrier(x)


def cross(a: Array, b: Array) -> Array:
    """Cross product over the last axis."""
    return pick(a, _NEXT) * pick(b, _LAST) - pick(a, _LAST) * pick(b, _NEXT)


def apply(matrix: Array, vector: Array) -> Array:
    """Matrix (..., m, n) times vector (..., n): a fused sum, since XLA's batched dots of tiny matrices are slow."""
    return (matrix * vector[..., None, :]).sum(-1)


def gram(a: Array, b: Array) -> Array:
    """aᵀ b (m, n) of tall matrices (k, m) and (k, n).

    The transpose is copied first: XLA's CPU backend hands a dot over leading axes to a thread pool, whose
    synchronisation costs ten times the product at these sizes.
    """
    return materialize(a.T) @ b


def compose(a: Array, b: Array) -> Array:
    """Product (..., m, n) of small matrices (..., m, k) and (..., k, n), as a fused sum."""
    return (a[..., :, :, None] * b[..., None, :, :]).sum(-2)


def with_blocks(matrix: np.ndarray, places: np.ndarray, blocks: Array) -> Array:
    """The constant matrix (m, m) with blocks (n, 3, 3) on the rows and columns of places (n, 3)."""
    block, axis = np.full(len(matrix), -1), np.zeros(len(matrix), int)
    block[places.ravel()] = np.repeat(np.arange(len(places)), 3)
    axis[places.ravel()] = np.tile(np.arange(3), len(places))
    own = (block[:, None] == block) & (block >= 0)
    entry = np.where(own, (block[:, None] * 3 + axis[:, None]) * 3 + axis, 0)
    return jnp.where(own, pick(blocks.reshape(-1), entry), matrix)


_OTHER = np.array([[0, 2, 1], [2, 0, 0], [1, 0, 0]])  # where [a ×] takes its entries from, and with which sign
_TURN = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


def skew(a: Array) -> Array:
    """Matrix X (..., 3, 3) with X b = a × b."""
    return pick(a, _OTHER) * _TURN.astype(a.dtype)


def skew_columns(a: Array) -> Array:
    """The same (3, 3, n) of vectors (3, n)."""
    return pick_rows(a, _OTHER.ravel()).reshape(3, 3, -1) * _TURN.astype(a.dtype)[..., None]


def columns_cross(a: Array, b: Array) -> Array:
    """Cross product (3, ...) of vectors (3, ...)."""
    return jnp.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def columns_across(a: Array) -> tuple[Array, Array]:
    """Two vectors (3, n) each across unit vectors (3, n) and across each other (Duff et al. 2017)."""
    x, y, z = a
    sign = jnp.where(z < 0, -1.0, 1.0)
    share = -1 / (sign + z)
    both = x * y * share
    first = jnp.stack([1 + sign * x * x * share, sign * both, -sign * x])
    return first, jnp.stack([both, sign + y * y * share, -y])


def safe_norm(a: Array, axis: int = -1) -> Array:
    """Euclidean norm over an axis, the last one by default, with derivative 0 (a valid subgradient) at the origin."""
    square = (a * a).sum(axis)
    zero = square == 0
    return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, square)))


# ---- quaternions -------------------------------------------------------------------------------------------


def quat_mul(a: Array, b: Array) -> Array:
    """Quaternion product a ∘ b."""
    aw, ax, ay, az = a[..., 0], a[..., 1], a[..., 2], a[..., 3]
    bw, bx, by, bz = b[..., 0], b[..., 1], b[..., 2], b[..., 3]
    return jnp.stack(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ],
        -1,
    )


def quat_conj(q: Array) -> Array:
    """Inverse of a unit quaternion."""
    return q * np.array([1.0, -1.0, -1.0, -1.0], q.dtype)


def quat_normalize(q: Array) -> Array:
    """Unit quaternion; the zero quaternion becomes the identity, as in MuJoCo."""
    square = (q * q).sum(-1, keepdims=True)
    zero = square == 0
    unit = np.array([1.0, 0.0, 0.0, 0.0], q.dtype)
    return jnp.where(zero, unit, q / jnp.sqrt(jnp.where(zero, 1.0, square)))


def rotate(q: Array, v: Array) -> Array:
    """Vector v rotated by the unit quaternion q."""
    axis = q[..., 1:]
    t = 2 * cross(axis, v)
    return v + q[..., :1] * t + cross(axis, t)


def quat_to_mat(q: Array) -> Array:
    """Rotation matrix (..., 3, 3) of a unit quaternion; its columns are the rotated axes."""
    w, x, y, z = (q[..., k : k + 1] for k in range(4))
    entries = [
        *(w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)),
        *(2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)),
        *(2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z),
    ]
    return jnp.concatenate(entries, -1).reshape(*q.shape[:-1], 3, 3)


def quat_exp(u: Array) -> Array:
    """Unit quaternion of the rotation vector u [rad]; smooth at u = 0."""
    square = (u * u).sum(-1, keepdims=True)
    small = square < 1e-8
    angle = jnp.sqrt(jnp.where(small, 1.0, square))
    # sin(angle/2)/angle and cos(angle/2); the series are exact to double precision below 1e-4 rad
    s = jnp.where(small, 0.5 - square / 48, jnp.sin(angle / 2) / angle)
    c = jnp.where(small, 1 - square / 8 + square * square / 384, jnp.cos(angle / 2))
    return jnp.concatenate([c, s * u], -1)


def right_jacobian(u: Array) -> Array:
    """J_r (..., 3, 3) with exp(u + δ) = exp(u) exp(J_r δ) to first order, for rotation vectors u (..., 3) [rad]."""
    square = (u * u).sum(-1)[..., None, None]
    small = square < 1e-2
    angle = jnp.sqrt(jnp.where(small, 1.0, square))
    first = 1 / 2 - square * (1 / 24 - square * (1 / 720 - square / 40320))
    second = 1 / 6 - square * (1 / 120 - square * (1 / 5040 - square / 362880))
    first = jnp.where(small, first, (1 - jnp.cos(angle)) / angle**2)
    second = jnp.where(small, second, (angle - jnp.sin(angle)) / angle**3)
    turn = skew(u)
    return jnp.eye(3, dtype=u.dtype) - first * turn + second * compose(turn, turn)


def right_jacobian_inverse(u: Array) -> Array:
    """J_r⁻¹ (..., 3, 3) of rotation vectors shorter than 2π: I + ½ [u ×] + (1 − ½θ cot ½θ)/θ² [u ×]², θ = |u|."""
    square = (u * u).sum(-1)[..., None, None]
    small = square < 1e-2
    angle = jnp.sqrt(jnp.where(small, 1.0, square))
    series = 1 / 12 + square * (1 / 720 + square * (1 / 30240 + square / 1209600))
    factor = jnp.where(small, series, (1 - 0.5 * angle / jnp.tan(0.5 * angle)) / angle**2)
    turn = skew(u)
    return jnp.eye(3, dtype=u.dtype) + 0.5 * turn + factor * compose(turn, turn)


def short_way(u: Array) -> Array:
    """Rotation vectors (..., 3), those of more than half a turn made the short ones of the same rotation."""
    angle = safe_norm(u)[..., None]
    long = angle > np.pi
    rest = angle - 2 * np.pi * jnp.round(angle / (2 * np.pi))
    return u * jnp.where(long, rest / jnp.where(long, angle, 1.0), 1.0)


def quat_log(q: Array) -> Array:
    """Rotation vector [rad] of a unit quaternion, of length at most π; smooth at the identity."""
    w, v = q[..., :1], q[..., 1:]
    flip = jnp.where(w < 0, -1.0, 1.0)  # the short way round
    w, v = w * flip, v * flip
    square = (v * v).sum(-1, keepdims=True)
    small = square < 1e-8
    s = jnp.sqrt(jnp.where(small, 1.0, square))
    # angle / sin(angle/2); near the identity 2 atan(s/w)/s = 2/w (1 − s²/(3w²) + …)
    ratio = square / jnp.where(small, w * w, 1.0)
    series = 2 / jnp.where(small, w, 1.0) * (1 - ratio / 3 + ratio * ratio / 5)
    return v * jnp.where(small, series, 2 * jnp.arctan2(s, w) / s)


def quat_sub(a: Array, b: Array) -> Array:
    """Rotation vector u with b ∘ exp(u) = a: the difference in the frame of b."""
    return quat_log(quat_mul(quat_conj(b), a))


def quat_integrate(q: Array, w: Array) -> Array:
    """q ∘ exp(w): rotate q by the rotation vector w [rad] given in the body frame."""
    return quat_mul(quat_normalize(q), quat_exp(w))


# ---- spatial vectors ------------------------------------------------------------------------------------------


_TOP, _BOTTOM = np.repeat([1.0, 0.0], 3), np.repeat([0.0, 1.0], 3)
_TWICE_NEXT, _TWICE_LAST = np.array([1, 2, 0, 4, 5, 3]), np.array([2, 0, 1, 5, 3, 4])


def _cross_halves(v: Array, x: Array) -> Array:
    """[ω × x_angular; ω × x_linear] for ω the angular part of v."""
    w_next, w_last = pick(v, np.tile(_NEXT, 2)), pick(v, np.tile(_LAST, 2))
    return w_next * pick(x, _TWICE_LAST) - w_last * pick(x, _TWICE_NEXT)


def _cross_linear(v: Array, x: Array, half: int) -> Array:
    """u × x_half in both halves, for u the linear part of v."""
    u_next, u_last = pick(v, 3 + np.tile(_NEXT, 2)), pick(v, 3 + np.tile(_LAST, 2))
    return u_next * pick(x, half + np.tile(_LAST, 2)) - u_last * pick(x, half + np.tile(_NEXT, 2))


def cross_motion(v: Array, s: Array) -> Array:
    """Spatial cross product v × s of two motion vectors."""
    return _cross_halves(v, s) + _BOTTOM.astype(s.dtype) * _cross_linear(v, s, 0)


def cross_force(v: Array, f: Array) -> Array:
    """Spatial cross product v ×* f of a motion and a force vector."""
    return _cross_halves(v, f) + _TOP.astype(f.dtype) * _cross_linear(v, f, 3)


def columns_cross_motion(v: Array, s: Array) -> Array:
    """v × s of motions (6, n)."""
    cross = columns_cross
    return jnp.concatenate([cross(v[:3], s[:3]), cross(v[:3], s[3:]) + cross(v[3:], s[:3])])


def columns_cross_force(v: Array, f: Array) -> Array:
    """v ×* f of motions and forces (6, n)."""
    cross = columns_cross
    return jnp.concatenate([cross(v[:3], f[:3]) + cross(v[3:], f[3:]), cross(v[:3], f[3:])])


# ---- poses as homogeneous matrices ---------------------------------------------------------------------------


def pose(mat: Array, pos: Array) -> Array:
    """Homogeneous matrix (..., 4, 4) of a rotation (..., 3, 3) and a position (..., 3)."""
    top = jnp.concatenate([mat, pos[..., None]], -1)
    bottom = jnp.broadcast_to(np.array([0.0, 0.0, 0.0, 1.0], top.dtype), (*top.shape[:-2], 1, 4))
    return jnp.concatenate([top, bottom], -2)


def mat_to_quat(mat: Array) -> Array:
    """Unit quaternion (..., 4) of a rotation matrix, from whichever of its components is largest."""
    m = [[mat[..., i, j] for j in range(3)] for i in range(3)]
    trace = m[0][0] + m[1][1] + m[2][2]
    four = [1 + trace] + [1 + 2 * m[k][k] - trace for k in range(3)]  # 4 × square of each component
    w = [m[2][1] - m[1][2], m[0][2] - m[2][0], m[1][0] - m[0][1]]
    xy, xz, yz = m[0][1] + m[1][0], m[0][2] + m[2][0], m[1][2] + m[2][1]
    rows = [[four[0], *w], [w[0], four[1], xy, xz], [w[1], xy, four[2], yz], [w[2], xz, yz, four[3]]]
    table = jnp.stack([jnp.stack(row, -1) for row in rows], -2)
    best = jnp.argmax(jnp.stack(four, -1), -1)[..., None, None]
    row = jnp.take_along_axis(table, best, -2)[..., 0, :]
    return row / jnp.sqrt((row * row).sum(-1, keepdims=True))


# ---- inertia -------------------------------------------------------------------------------------------------
# The pseudo-inertia J = Σ m x xᵀ over homogeneous points x = (r, 1) of a body: J = [[Σ m r rᵀ, m c], [m cᵀ, m]].
# It moves with a pose X as X J Xᵀ and adds over bodies, so composites are one matrix product over 16 columns.


_ROW, _COLUMN = np.array([0, 0, 1]), np.array([1, 2, 2])  # where the products xy, xz, yz stand in a tensor


def pseudo_inertia(mass: Array, center: Array, mat: Array, moments: Array, products: Array) -> Array:
    """Pseudo-inertia (..., 4, 4) of bodies: mass (...), centre (..., 3), axes, moments and products of inertia."""
    spread = 0.5 * moments.sum(-1, keepdims=True) - moments
    row, column = pick(mat, _ROW), pick(mat, _COLUMN)
    mixed = row[..., :, None, :] * column[..., None, :, :] + column[..., :, None, :] * row[..., None, :, :]
    straight = (mat * spread[..., None, :])[..., :, None, :] * mat[..., None, :, :]
    second = (straight - products[..., None, None, :] * mixed).sum(-1)
    first = mass[..., None] * center
    second = second + first[..., :, None] * center[..., None, :]
    side = jnp.concatenate([first, mass[..., None]], -1)
    return jnp.concatenate([jnp.concatenate([second, first[..., None]], -1), side[..., None, :]], -2)


def _inertia_table() -> tuple[np.ndarray, np.ndarray]:
    """Entries of the flattened pseudo-inertia, and their signs, that add up to each entry of the 6×6 inertia."""
    entry, sign = np.zeros((2, 6, 6), int), np.zeros((2, 6, 6))
    for i in range(3):
        for j in range(3):
            if i == j:  # tr(Σ) − Σ_ii
                a, b = (i + 1) % 3, (i + 2) % 3
                entry[:, i, i], sign[:, i, i] = (4 * a + a, 4 * b + b), 1.0
            else:
                entry[0, i, j], sign[0, i, j] = 4 * i + j, -1.0
        entry[0, 3 + i, 3 + i], sign[0, 3 + i, 3 + i] = 15, 1.0
        for j in range(3):  # [m c ×]
            k = 3 - i - j
            if i != j:
                s = 1.0 if (j - i) % 3 == 2 else -1.0
                entry[0, i, 3 + j], sign[0, i, 3 + j] = 4 * 3 + k, s
                entry[0, 3 + j, i], sign[0, 3 + j, i] = 4 * k + 3, s
    return entry, sign


_ENTRY, _SIGN = _inertia_table()


def spatial_inertia(pseudo: Array) -> Array:
    """Spatial inertia (..., 6, 6) in [angular; linear] order, of pseudo-inertias (..., 16).

    Of Σ m x yᵀ it is the map from a motion of the points x to the wrench of their momenta at the points y.
    """
    sign = _SIGN.astype(pseudo.dtype)
    return pick(pseudo, _ENTRY[0]) * sign[0] + pick(pseudo, _ENTRY[1]) * sign[1]


def flow(motion: Array, pseudo: Array) -> Array:
    """Σ m ẋ xᵀ (3, 4, n) of the points x = (r, 1) of pseudo-inertias (4, 4, n), as they move by motions (6, n)."""
    rate = jnp.concatenate([skew_columns(motion[:3]), motion[3:, None]], 1)
    return (rate[:, :, None] * pseudo).sum(1)


def momentum(flow: Array) -> Array:
    """Σ m (r × ẋ, ẋ) (6, n) of flows (3, 4, n): what the spatial inertia makes of a motion."""
    twist = jnp.stack([flow[2, 1] - flow[1, 2], flow[0, 2] - flow[2, 0], flow[1, 0] - flow[0, 1]])
    return jnp.concatenate([twist, flow[:, 3]])


def turning(motion: Array, flow: Array) -> Array:
    """Σ m (r × (ω × ẋ), ω × ẋ) (6, n): the force that turns flows (3, 4, n) as motions (6, n) do."""
    turn = motion[:3]
    twist = (flow[0, 0] + flow[1, 1] + flow[2, 2]) * turn - (flow[:, :3] * turn).sum(1)
    return jnp.concatenate([twist, columns_cross(turn, flow[:, 3])])


def turning_back(motion: Array, flow: Array) -> Array:
    """The transpose of `turning` (3, n) in its motion, whose linear part is zero."""
    turn = motion[:3]
    twist = (flow[0, 0] + flow[1, 1] + flow[2, 2]) * turn - (flow[:, :3] * turn[:, None]).sum(0)
    return twist + columns_cross(flow[:, 3], motion[3:])
