"""Forces of a fluid on ellipsoids that move through it (MuJoCo, "Fluid forces", its ellipsoid model).

Added mass (f_A), drag (f_D), viscous resistance (f_V), and the lifts of Kutta (f_K) and Magnus (f_M), in the own axes
of the ellipsoid, as functions of its velocity alone.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial


class Ellipsoids(NamedTuple):
    """Ellipsoids and the fluid around them; linear and angular parts are in their own axes."""

    axes: Array  # (n, 3) semi-axes [m]
    fluid: Array  # (n, 5) drag: blunt, slender, angular; lift: of Kutta, of Magnus
    added: Array  # (n, 6) inertia [m⁵], then mass [m³], of the fluid that moves along, for unit density
    density: Array  # [kg/m³]
    viscosity: Array  # [Pa s]
    turn: Array  # (n, 3) angular velocity ω [rad/s]
    move: Array  # (n, 3) velocity v relative to the fluid [m/s]

    def coefficients(self) -> list[Array]:
        """The columns of `fluid`, each (n, 1)."""
        return [self.fluid[:, k, None] for k in range(5)]


def semi_axes(types: tuple[str, ...], size: Array, of_mesh: Array) -> Array:
    """Semi-axes (n, 3) of the ellipsoids that geoms of the given kinds and sizes (n, 3) stand for [m]; meshes, which
    their sizes scale, for their own (n, 3).
    """
    kinds = np.array(types, str)[:, None]
    r, half = size[:, :1], size[:, 1:2]
    ball, capsule, cylinder, mesh = (kinds == kind for kind in ("sphere", "capsule", "cylinder", "mesh"))
    upright = jnp.concatenate([r, r, jnp.where(capsule, half + r, half)], -1)
    return jnp.where(ball, r, jnp.where(capsule | cylinder, upright, jnp.where(mesh, size * of_mesh, size)))


def wrench(e: Ellipsoids) -> Array:
    """Torque and force (n, 6) of the fluid."""
    w, v, rho = e.turn, e.move, e.density
    blunt, slender, _, _, magnus = e.coefficients()
    flow, body = _flow(e), _body(e)
    spin, carried = rho * e.added[:, :3] * w, rho * e.added[:, 3:] * v
    torque = spatial.cross(carried, v) + spatial.cross(spin, w)
    moment = spatial.safe_norm(body.resistance * w)[:, None]
    torque = torque - (e.viscosity * body.viscous[:, :1] + rho * moment) * w
    drag = e.viscosity * body.viscous[:, 1:] + rho * flow.speed * (
        blunt * flow.area + slender * (body.largest - flow.area)
    )
    lift = _lift(e, flow) * flow.speed**2 * flow.across + magnus * rho * body.volume * spatial.cross(w, v)
    return jnp.concatenate([torque, spatial.cross(carried, w) + lift - drag * v], -1)


def slope(e: Ellipsoids) -> Array:
    """∂(torque, force)/∂(ω, v) (n, 6, 6), in closed form."""
    w, v, rho = e.turn, e.move, e.density
    magnus = e.coefficients()[4]
    inertia, mass = rho * e.added[:, :3], rho * e.added[:, 3:]
    spinning, moving = spatial.skew(w), spatial.skew(v)
    carried = spatial.skew(mass * v)
    stir = (rho * magnus * _body(e).volume)[..., None]
    corners = [
        [spatial.skew(inertia * w) - spinning * inertia[:, None] + _turning_slope(e), carried - moving * mass[:, None]],
        [carried - stir * moving, stir * spinning - spinning * mass[:, None] + _drag_slope(e) + _kutta_slope(e)],
    ]
    return jnp.concatenate([jnp.concatenate(row, -1) for row in corners], -2)


class _Flow(NamedTuple):
    """What the projection along the velocity says: with p_i = (r_j r_k)² over the largest of them, and along the unit
    vector u, n = p ∘ u is normal to the plane of the outline.
    """

    speed: Array  # (n, 1) |v|
    u: Array  # (n, 3) v / |v|; any where |v| is zero
    p: Array  # (n, 3)
    normal: Array  # (n, 3)
    N: Array  # (n, 1) n · u
    Q: Array  # (n, 1) n · n
    widest: Array  # (n, 1) area of the ellipse of the two larger semi-axes [m²]
    area: Array  # (n, 1) projected along v [m²]
    across: Array  # (n, 3) (n × u) × u


def _flow(e: Ellipsoids) -> _Flow:
    speed = spatial.safe_norm(e.move)[:, None]
    still = speed == 0
    u = jnp.where(still, np.array([1.0, 0, 0], speed.dtype), e.move / jnp.where(still, 1.0, speed))
    side = jnp.roll(e.axes, -1, -1) * jnp.roll(e.axes, 1, -1)
    most = side.max(-1, keepdims=True)
    p = (side / most) ** 2
    normal = p * u
    N, Q = (normal * u).sum(-1, keepdims=True), (normal * normal).sum(-1, keepdims=True)
    area = np.pi * most
    return _Flow(speed, u, p, normal, N, Q, area, area * jnp.sqrt(Q / N), u * spatial.apply(_spread(p), u * u))


class _Body(NamedTuple):
    """What the shape alone says."""

    volume: Array  # (n, 1) [m³]
    largest: Array  # (n, 1) area of the largest projection [m²]
    viscous: Array  # (n, 2) Stokes' resistance of the sphere of mean size to turning [m³] and to moving [m]
    resistance: Array  # (n, 3) to turning about each axis at high speed [m⁵]


def _body(e: Ellipsoids) -> _Body:
    r = e.axes
    _, slender, angular, *_ = e.coefficients()
    most, least, total = r.max(-1, keepdims=True), r.min(-1, keepdims=True), r.sum(-1, keepdims=True)
    middle, mean = total - most - least, 2 / 3 * total
    outer = jnp.maximum(jnp.roll(r, -1, -1), jnp.roll(r, 1, -1))
    moments = 8 / 15 * np.pi * r * outer**4  # of the disc that turns about each axis
    limit = 8 / 15 * np.pi * middle * most**4
    return _Body(
        4 / 3 * np.pi * r.prod(-1, keepdims=True),
        np.pi * most * middle,
        np.pi * jnp.concatenate([mean**3, 3 * mean], -1),
        angular * moments + slender * (limit - moments),
    )


def _turning_slope(e: Ellipsoids) -> Array:
    """∂/∂ω (n, 3, 3) of −(β c + ρ |k ∘ ω|) ω."""
    w, body = e.turn, _body(e)
    k = body.resistance
    moment = spatial.safe_norm(k * w)[:, None]
    straight = e.viscosity * body.viscous[:, :1] + e.density * moment
    unit = k * k * w / jnp.where(moment == 0, 1.0, moment)
    return -straight[..., None] * np.eye(3, dtype=w.dtype) - e.density * _outer(w, unit)


def _drag_slope(e: Ellipsoids) -> Array:
    """∂/∂v (n, 3, 3) of −(β c + ρ |v| a) v, a = C_blunt A + C_slender (A_max − A) of the area A projected."""
    flow, body = _flow(e), _body(e)
    blunt, slender, *_ = e.coefficients()
    met = blunt * flow.area + slender * (body.largest - flow.area)
    # |v| ∂A/∂v = A (p ∘ n / Q − n / N)
    turned = -flow.area / (flow.N * flow.Q) * flow.normal * spatial.apply(_spread(flow.p), flow.normal * flow.u)
    quick = e.density * flow.speed
    straight = e.viscosity * body.viscous[:, 1:] + quick * met
    pull = quick * (met * flow.u + (blunt - slender) * turned)
    return -straight[..., None] * np.eye(3, dtype=pull.dtype) - _outer(flow.u, pull)


def _kutta_slope(e: Ellipsoids) -> Array:
    """∂/∂v (n, 3, 3) of C ρ A √(N / (Q V)) w, with w = (n × v) × v = N v − V n, here of unit v times |v|."""
    flow = _flow(e)
    n, u, p = flow.normal, flow.u, flow.p
    bent = 2 * (_outer(u, n) - _outer(n, u)) + spatial.apply(_spread(p), u * u)[..., None] * np.eye(3, dtype=u.dtype)
    by_root = n / flow.N - p * n / flow.Q - u
    return _lift(e, flow)[..., None] * flow.speed[..., None] * (bent + _outer(flow.across, by_root))


def _lift(e: Ellipsoids, flow: _Flow) -> Array:
    """Kutta's lift (n, 1) over |v|² and (n × u) × u: C ρ cos α A / |n|."""
    return e.coefficients()[3] * e.density * flow.widest * jnp.sqrt(flow.N / flow.Q)


def _spread(p: Array) -> Array:
    """p_j − p_i (n, 3, 3): zero of spheres, to the last bit."""
    return p[:, None, :] - p[:, :, None]


def _outer(a: Array, b: Array) -> Array:
    return a[:, :, None] * b[:, None, :]
