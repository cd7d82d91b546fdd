"""Rotations, spatial vectors and inertias.

Conventions: quaternions are w x y z; spatial vectors are [angular; linear], written in world axes about a
reference point; leading axes broadcast. Everything here is smooth wherever the geometry is: guards keep the
untaken side of each branch away from 0/0, so that derivatives of any order stay finite.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

# ---- vectors ---------------------------------------------------------------------------------------------


def cross(a: Array, b: Array) -> Array:
    """Cross product over the last axis; cheaper to compile than jnp.cross."""
    a1, a2, a3 = a[..., 0], a[..., 1], a[..., 2]
    b1, b2, b3 = b[..., 0], b[..., 1], b[..., 2]
    return jnp.stack([a2 * b3 - a3 * b2, a3 * b1 - a1 * b3, a1 * b2 - a2 * b1], -1)


def skew(a: Array) -> Array:
    """Matrix X (..., 3, 3) with X b = a × b."""
    x, y, z = a[..., 0], a[..., 1], a[..., 2]
    o = jnp.zeros_like(x)
    return jnp.stack([jnp.stack([o, -z, y], -1), jnp.stack([z, o, -x], -1), jnp.stack([-y, x, o], -1)], -2)


def safe_norm(a: Array) -> Array:
    """Euclidean norm over the last axis, with derivative 0 (a valid subgradient) at the origin."""
    square = (a * a).sum(-1)
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
    w, x, y, z = q[..., 0], q[..., 1], q[..., 2], q[..., 3]
    rows = [
        [w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z],
    ]
    return jnp.stack([jnp.stack(row, -1) for row in rows], -2)


def quat_exp(u: Array) -> Array:
    """Unit quaternion of the rotation vector u [rad]; smooth at u = 0."""
    square = (u * u).sum(-1, keepdims=True)
    small = square < 1e-8
    angle = jnp.sqrt(jnp.where(small, 1.0, square))
    # sin(angle/2)/angle and cos(angle/2); the series are exact to double precision below 1e-4 rad
    s = jnp.where(small, 0.5 - square / 48, jnp.sin(angle / 2) / angle)
    c = jnp.where(small, 1 - square / 8 + square * square / 384, jnp.cos(angle / 2))
    return jnp.concatenate([c, s * u], -1)


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


def cross_motion(v: Array, s: Array) -> Array:
    """Spatial cross product v × s of two motion vectors."""
    w, u = v[..., :3], v[..., 3:]
    return jnp.concatenate([cross(w, s[..., :3]), cross(w, s[..., 3:]) + cross(u, s[..., :3])], -1)


def cross_force(v: Array, f: Array) -> Array:
    """Spatial cross product v ×* f of a motion and a force vector."""
    w, u = v[..., :3], v[..., 3:]
    return jnp.concatenate([cross(w, f[..., :3]) + cross(u, f[..., 3:]), cross(w, f[..., 3:])], -1)


# ---- spatial inertia as ten numbers --------------------------------------------------------------------------
# (mass, mass·c (3), xx, yy, zz, xy, xz, yz of the rotational inertia about the reference point): additive over
# bodies, so composites are one matrix product over ten columns instead of thirty-six.


def inertia_about(mass: Array, center: Array, mat: Array, principal: Array) -> Array:
    """Spatial inertia (..., 10) of a body with centre of mass at `center` (relative to the reference point).

    mass (...), center (..., 3), mat (..., 3, 3) principal axes in the world, principal (..., 3) moments.
    """
    first = mass[..., None] * center

    def moment(i, j):
        turned = (mat[..., i, :] * principal * mat[..., j, :]).sum(-1)
        parallel = (first * center).sum(-1) if i == j else 0.0
        return turned + parallel - first[..., i] * center[..., j]

    entries = [moment(i, j) for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))]
    return jnp.concatenate([mass[..., None], first, jnp.stack(entries, -1)], -1)


def inertia_apply(inertia: Array, v: Array) -> Array:
    """Momentum I v (..., 6) of the motion vector v (..., 6)."""
    mass, first = inertia[..., :1], inertia[..., 1:4]
    xx, yy, zz, xy, xz, yz = (inertia[..., k] for k in range(4, 10))
    w, u = v[..., :3], v[..., 3:]
    wx, wy, wz = w[..., 0], w[..., 1], w[..., 2]
    turn = jnp.stack([xx * wx + xy * wy + xz * wz, xy * wx + yy * wy + yz * wz, xz * wx + yz * wy + zz * wz], -1)
    return jnp.concatenate([turn + cross(first, u), mass * u - cross(first, w)], -1)


def inertia_matrix(inertia: Array) -> Array:
    """The same inertia as a matrix (..., 6, 6)."""
    mass, first = inertia[..., 0], inertia[..., 1:4]
    xx, yy, zz, xy, xz, yz = (inertia[..., k] for k in range(4, 10))
    turn = jnp.stack([jnp.stack([xx, xy, xz], -1), jnp.stack([xy, yy, yz], -1), jnp.stack([xz, yz, zz], -1)], -2)
    c = skew(first)
    eye = mass[..., None, None] * jnp.eye(3, dtype=inertia.dtype)
    return jnp.concatenate([jnp.concatenate([turn, c], -1), jnp.concatenate([-c, eye], -1)], -2)


def motion_matrix(v: Array) -> Array:
    """Matrix [v×] (..., 6, 6) with [v×] s = v × s for motion vectors."""
    w, u = skew(v[..., :3]), skew(v[..., 3:])
    return jnp.concatenate([jnp.concatenate([w, jnp.zeros_like(w)], -1), jnp.concatenate([u, w], -1)], -2)


def force_bar_matrix(f: Array) -> Array:
    """Matrix X (..., 6, 6) with X m = m ×* f for motion vectors m."""
    n, u = skew(f[..., :3]), skew(f[..., 3:])
    return -jnp.concatenate([jnp.concatenate([n, u], -1), jnp.concatenate([u, jnp.zeros_like(u)], -1)], -2)
