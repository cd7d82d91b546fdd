"""Frames of contacts, and how they turn: two tangents complete a normal, so that its change says how all three turn."""

import jax
import jax.numpy as jnp
from jax import Array

from ukemi.collide.geometry import contact_frame, contact_frame_along, dot
from ukemi.collide.shapes import Hit


def _frames(normal: Array, along: Array | None) -> Array:
    """Frames (..., 3, 3) with rows normal, tangent, tangent."""
    if along is None:
        return contact_frame(normal)
    return jnp.vectorize(contact_frame_along, signature="(i),(i)->(j,i)")(normal, along)


def width(axial: bool) -> int:
    """Numbers of a row of `row_of`."""
    return 9 if axial else 6


def row_of(hit: Hit, axial: bool) -> Array:
    """Point, normal and, if `axial`, what the first tangent follows, or zero, in a row (..., k, 6 or 9)."""
    assert axial or hit.along is None
    parts = [hit.point, hit.normal]
    if axial:
        parts.append(jnp.zeros_like(hit.normal) if hit.along is None else hit.along)
    return jnp.concatenate([jnp.broadcast_to(x, hit.point.shape) for x in parts], -1)


def of_rows(rows: Array) -> tuple[Array, Array]:
    """Points (n, 3) and frames (n, 3, 3) of rows of `row_of`."""
    point, normal, along = jnp.split(rows, (3, 6), -1)
    frame = _frames(normal, None)
    if along.shape[-1]:
        frame = jnp.where((along != 0).any(-1)[:, None, None], _frames(normal, along), frame)
    return point, frame


def spin(hit: Hit, change: Hit) -> Array:
    """The rotation (..., k, 3) in world axes by which frames turn as contacts change.

    Their rows turn by δe = ω × e, so that ω = (δt₁·t₂) n + (δt₂·n) t₁ + (δn·t₁) t₂ with δt₂·n = −δn·t₂.
    """
    frame = _frames(hit.normal, hit.along)
    n, t1, t2 = (frame[..., k, :] for k in range(3))
    first, second = dot(change.normal, t1), dot(change.normal, t2)
    if hit.along is None:
        about = -_lean(frame) * second
    else:
        turned = jax.jvp(_frames, (hit.normal, hit.along), (change.normal, change.along))[1]
        about = dot(turned[..., 1, :], t2)
    turn = about[..., None] * n - second[..., None] * t1 + first[..., None] * t2
    return jnp.broadcast_to(turn, hit.point.shape)


def pulled(hit: Hit, turn: Array) -> tuple[Array, Array | None]:
    """What a pull (..., k, 3) on the rotation, in the frames' own axes, is on normals, and on what tangents follow: the
    transpose of `spin`. Both as many as there are of them.
    """
    turn = turn.sum(-2, keepdims=True) if hit.normal.shape[-2] < turn.shape[-2] else turn
    about, first, second = (turn[..., k, None] for k in range(3))
    if hit.along is None:
        frame = contact_frame(hit.normal)
        n, t1, t2 = (frame[..., k, :] for k in range(3))
        return second * t1 - (first + _lean(frame)[..., None] * about) * t2, None
    frame, back = jax.vjp(_frames, hit.normal, hit.along)
    n, t1, t2 = (frame[..., k, :] for k in range(3))
    return back(jnp.stack([second * t1, about * t2, first * n], -2))


def _lean(frame: Array) -> Array:
    """−δt₁·t₂ for δn = t₂ (...): of the axis e that a tangent t₁ = (e − n (n·e)) / L is made from it is (n·e) / L, and
    t₁·e = L. See `contact_frame`.
    """
    n, t1 = frame[..., 0, :], frame[..., 1, :]
    y = jnp.abs(n[..., 1]) < 0.5
    return jnp.where(y, n[..., 1], n[..., 2]) / jnp.where(y, t1[..., 1], t1[..., 2])
