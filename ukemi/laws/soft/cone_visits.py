"""Gauss–Seidel visits of elliptic contacts (MuJoCo, "PGS"): along a ray of the cone, then within the cone's slice.

Coordinate steps would get stuck on the curved surface of a cone. The ray through the present force (at the tip: the
steepest edge) and the slice of constant normal force span the space, so that a force which neither can improve
is the optimum.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.maths import spatial

SECULAR_STEPS = 12  # Newton steps for the slice's multiplier; quadratic convergence, from the safe side


class Cones(NamedTuple):
    """Elliptic contacts: Σ (f_k / μ_k)² ≤ f_n²."""

    J: Array  # (nc, dim, nv)
    W: Array  # (nc, dim, nv) J M⁻¹
    aref: Array  # (nc, dim)
    R: Array  # (nc, dim)
    friction: Array  # (nc, dim - 1)
    block: Array  # (nc, dim, dim) of A + R
    values: Array  # (nc, dim - 1) eigenvalues of the tangent block where the cone is circular
    vectors: Array  # (nc, dim - 1, dim - 1)
    order: Array  # (nc,) active ones first
    count: Array  # () active ones


def cones(J: Array, W: Array, aref: Array, D: Array, friction: Array) -> Cones:
    """Cones of contacts with frame rows J and W (nc, dim, nv) and stiffness D (nc, dim)."""
    dim, active = J.shape[1], D[:, 0] > 0
    R = jnp.where(D > 0, 1 / jnp.where(D > 0, D, 1.0), 0.0)
    block = jnp.einsum("civ,cjv->cij", J, W) + R[:, :, None] * np.eye(dim, dtype=J.dtype)
    scaled = friction[:, :, None] * block[:, 1:, 1:] * friction[:, None]
    scaled = scaled + jnp.where(friction == 0, 1.0, 0.0)[:, :, None] * np.eye(dim - 1, dtype=J.dtype)
    if len(J):
        values, vectors = jnp.linalg.eigh(scaled)
    else:
        values, vectors = friction, scaled
    return Cones(J, W, aref, R, friction, block, values, vectors, jnp.argsort(~active, stable=True), active.sum())


def admissible(c: Cones, forces: Array) -> Array:
    """Forces (nc, dim) with friction shortened until they are within their cones."""
    normal, friction = jnp.maximum(forces[:, :1], 0.0), forces[:, 1:]
    size = spatial.safe_norm(friction / jnp.where(c.friction == 0, 1.0, c.friction))[:, None]
    share = jnp.minimum(1.0, normal / jnp.where(size == 0, 1.0, size))
    return jnp.concatenate([normal, share * friction], -1)


def visit(c: Cones):
    """Body of a loop over the active contacts; carries the acceleration (nv,) and the forces (nc, dim)."""

    def body(k, carry):
        a, forces = carry
        i = c.order[k]
        f, mu, block = forces[i], c.friction[i], c.block[i]
        residual = c.J[i] @ a - c.aref[i] + c.R[i] * f
        moved = _along_ray(f, residual, mu, block)
        residual = residual + block @ (moved - f)
        moved = _within_slice(moved, residual, mu, block, c.values[i], c.vectors[i])
        return a + (moved - f) @ c.W[i], forces.at[i].set(moved)

    return body


def _along_ray(f: Array, residual: Array, mu: Array, block: Array) -> Array:
    """Force (dim,) at the optimum of the ray through f, or, from the cone's tip, of the steepest edge."""
    slope = mu * residual[1:]
    size = spatial.safe_norm(slope)
    edge = jnp.concatenate([jnp.ones(1, f.dtype), -mu * slope / jnp.where(size == 0, 1.0, size)])
    at_tip = f[0] <= 0
    way = jnp.where(at_tip, edge, f)
    step = -(way @ residual) / (way @ block @ way)
    return f + jnp.maximum(step, jnp.where(at_tip, 0.0, -1.0)) * way


def _within_slice(f: Array, residual: Array, mu: Array, block: Array, values: Array, vectors: Array) -> Array:
    """Force (dim,) at the optimum of its friction part for the normal force as it is.

    With z = friction / μ the slice is |z| ≤ f_n, and the optimum solves (B + λ) z = −b with the least λ ≥ 0 that
    keeps it inside: Newton on 1/|z(λ)| = 1/f_n, whose left side is concave and all but straight.
    """
    offset = mu * (residual[1:] - block[1:, 1:] @ f[1:])
    b, radius = vectors.T @ offset, jnp.maximum(f[0], 0.0)
    z = vectors @ (-b / (values + multiplier_of(values, b, radius)))
    norm = spatial.safe_norm(z)
    z = z * jnp.minimum(1.0, radius / jnp.where(norm == 0, 1.0, norm))
    return jnp.concatenate([f[:1], mu * z])


def multiplier_of(values: Array, b: Array, radius: Array) -> Array:
    """The least λ ≥ 0 with |(B + λ)⁻¹ b| ≤ radius, of a matrix B of eigenvalues (n,) and b in its eigenvectors."""

    def improve(_, multiplier):
        square = (b / (values + multiplier)) ** 2
        total = square.sum()
        norm = jnp.sqrt(jnp.where(total == 0, 1.0, total))
        bend = (square / (values + multiplier)).sum()
        step = (norm - radius) * total / jnp.where(bend * radius == 0, 1.0, bend * radius)
        return jnp.where(bend * radius == 0, multiplier, jnp.maximum(multiplier + step, 0.0))

    return lax.fori_loop(0, SECULAR_STEPS, improve, jnp.zeros_like(radius))
