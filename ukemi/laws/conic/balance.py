"""The balance of a step with hard contact at its end: the residual that its solution brings to zero (Dojo, eq. 26).

With everything that touches taken at q⁺ = q ⊕ h v⁺,

    φ(q⁺) + o(φ(q)) + δ γ = s,     μ J⁺ v⁺ = u,     g(q⁺) + h ε f = g(q),

the impulses that v⁺ needs (`laws.conic.mechanics`), and γ s = κ, ξ ∘ η = κ e (`laws.conic.cones`). What was inside at
the start, o, is not thrown out, but taken back (`laws.conic.restore`). What bounces leaves at J⁺ v⁺ = −e J v instead.
J⁺ is ∂φ(q ⊕ h v)/∂(h v): it goes through the turn of a body within the step, too. Without ε, equalities that all but
say what others say would stop what rounding makes of that, with impulses beyond measure.
"""

from typing import NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.constraints.block import Block, Frame, Side
from ukemi.constraints.contacts import contact_parameters
from ukemi.constraints.rows import RowKinds, row_map
from ukemi.laws.conic import cones
from ukemi.laws.conic.cones import Layout, Products, layout, of_cones, of_heads, owned, to_rows, two_sided
from ukemi.laws.conic.end import blocks_of
from ukemi.laws.conic.unknowns import Asked, Imbalance, Path, Point
from ukemi.laws.here import Here, frame_of
from ukemi.maths.gathers import pick
from ukemi.maths.ramps import clamp, smooth_step

SOFT = 1e-7  # δ: metres per second that heads give per impulse, relative to the inverse weight of what they move
YIELDING = 1e-8  # ε: the same of equalities
SHALLOW = 1e-6  # overlap that is not taken back, half of which a step leaves by itself [m]


class Rows(NamedTuple):
    """What constrains a motion, at a pose."""

    phi: Array  # (H,) φ [m] or [rad]
    mu: Array  # (K, 2)
    weight: Array  # (H,)
    held: Array  # (hold,) g
    light: Array  # (hold,) inverse weights of what equalities move
    restitution: Array  # (H,)


class Start(NamedTuple):
    """What rows ask for that is known at the start of a step, of limits and of the contacts that there are then."""

    inside: Array  # (H,) o(φ(q)) [m]
    leaving: Array  # (H,) −∂o/∂φ
    rebound: Array  # (H,) velocity at which a bouncing contact leaves
    held: Array  # (hold,) g(q)
    dry: Array  # (dry,) largest impulse of dry friction


def rows_at(frame: Frame, kinds: RowKinds, blocks: list[Block]) -> Rows:
    """What rows ask for at a frame."""
    own, empty = layout(frame.model, kinds), jnp.zeros(0, frame.v.dtype)
    pushes = [block for block in blocks if block.side is Side.PUSH]
    holds = [block for block in blocks if block.side is Side.HOLD]
    held = [block.residual for block in holds]
    light = [block.weight for block in holds]
    phi, weight = [block.residual - block.margin for block in pushes], [block.weight for block in pushes]
    other = two_sided(frame.model)
    if len(other):
        ends, limits = frame.model.joints.range[frame.model.joints.layout.limit_rows[other, 0]], pushes[0]
        phi.append(ends[:, 1] - ends[:, 0] - pick(limits.residual, other) - pick(limits.margin, other))
        weight.append(pick(limits.weight, other))
    mu, bounce = [jnp.ones((own.dry, 2), frame.v.dtype)], [jnp.zeros(own.limits, frame.v.dtype)]
    if kinds.contacts:
        prm = contact_parameters(frame.model, frame.contacts.pair)
        # slots without a contact have a distance that is not one
        phi.append(jnp.where(frame.contacts.active, frame.contacts.distance - prm.margin, 1.0))
        weight.append(prm.weight)
        bounce.append(prm.restitution)
        present = np.arange(kinds.dim) < frame.model.pairs.layout.condim[:, None]
        friction = jnp.pad(prm.friction[:, : kinds.dim - 1], ((0, 0), (1, 0)))
        friction = jnp.where(jnp.asarray(present)[frame.contacts.pair], friction, 0.0).reshape(-1)
        mu.append(of_cones(own, jnp.concatenate([jnp.zeros(kinds.scalar, friction.dtype), friction]))[own.dry :])
    parts = ([empty, *phi], mu, [empty, *weight], [empty, *held], [empty, *light], bounce)
    rows = Rows(*(jnp.concatenate(part) for part in parts))
    return rows._replace(weight=_as_light(rows.weight), light=_as_light(rows.light))


def _as_light(weight: Array) -> Array:
    """Inverse weights; MuJoCo's of a body that turns about its centre of mass is none, and then one of 1 kg."""
    return jnp.where(weight <= 0, 1.0, weight)


def start_of(here: Here, kinds: RowKinds, duration: Array) -> Start:
    """What is known at the start."""
    frame = frame_of(here)
    blocks = blocks_of(frame)
    rows = rows_at(frame, kinds, blocks)
    closing = of_heads(layout(here.model, kinds), row_map(frame, kinds, blocks).motion(here.v))
    return _start(rows, blocks, duration, _rebound(rows, closing))


def _rebound(rows: Rows, closing: Array) -> Array:
    return rows.restitution * jnp.maximum(-closing, 0.0)


def _start(rows: Rows, blocks: list[Block], duration: Array, rebound: Array) -> Start:
    dry = [duration * cast(Array, block.bound) for block in blocks if block.side is Side.RUB]
    return Start(*overlap(rows.phi), rebound, rows.held, jnp.concatenate([jnp.zeros(0, rows.phi.dtype), *dry]))


def overlap(phi: Array) -> tuple[Array, Array]:
    """What was inside, o(φ), and −∂o/∂φ: nothing up to half of what is shallow, and −φ from there on where it is deep.

    A contact that presses ends δ γ inside in each step: was that kept, it would sink a little more each time.
    """
    inside = -phi
    o = jnp.maximum(jnp.minimum(2 * inside - SHALLOW, inside), 0.0)
    return o, jnp.where(inside > SHALLOW, 1.0, jnp.where(o > 0, 2.0, 0.0))


def start_and_bounces(here: Here, kinds: RowKinds, duration: Array, free: Array) -> tuple[Start, Array]:
    """The same, and which heads (H,) at the start bounce within the step: those that a motion `free` (nv,) would take
    inside. A speed of NaN is one. How fast they move is not looked at where no head bounces.
    """
    frame = frame_of(here)
    blocks = blocks_of(frame)
    rows, own = rows_at(frame, kinds, blocks), layout(here.model, kinds)

    def looked_at():
        J = row_map(frame, kinds, blocks)
        closing, falling = (of_heads(own, J.motion(v)) for v in (here.v, free))
        rebound = _rebound(rows, closing)
        return rebound, ~(rebound <= 0) & (rows.phi + duration * falling < 0)

    def none():
        return jnp.zeros_like(rows.phi), jnp.zeros_like(rows.phi, bool)

    rebound, bounces = lax.cond((~(rows.restitution <= 0)).any(), looked_at, none)
    return _start(rows, blocks, duration, rebound), bounces


def matched(own: Layout, start: Start, origin: Array) -> Start:
    """The same of contacts at the end, which were contacts `origin` (nc,) at the start, −1: none."""
    inside, rebound = (of_origin(own, x, origin) for x in (start.inside, start.rebound))
    return start._replace(inside=inside, rebound=rebound)


def of_origin(own: Layout, heads: Array, origin: Array) -> Array:
    """Values (H, ...) of the start's heads for those at the end; zero of new contacts."""
    place = jnp.concatenate([np.arange(own.limits), own.limits + jnp.maximum(origin, 0)])
    known = jnp.concatenate([np.ones(own.limits, bool), origin >= 0])
    return jnp.where(known.reshape(-1, *(1 for _ in heads.shape[1:])), heads[place], 0.0)


# ---- what is asked, and what is left of it ---------------------------------------------------------------------------


def faded(phi: Array, width: Array) -> Array:
    """Share of κ at distances φ: twice differentiable, so that no impulse jumps where contacts begin to count, nor in
    the middle of what a ball joint's limit allows, where it would push every way.
    """
    return 1 - smooth_step(2 * phi / width - 1)


def fading(phi: Array, width: Array) -> Array:
    """Its derivative."""
    t = clamp(2 * phi / width - 1, 0.0, 1.0)
    return -60 / width * t**2 * (1 - t) ** 2


def asked(own: Layout, rows: Rows, start: Start, moved: Array, bounce: Array, duration: Array, path: Path) -> Asked:
    """What is asked of a motion with rows at its end that move at `moved` = J⁺ v⁺ (total,); start: as `matched`."""
    gap = jnp.where(bounce, duration * (of_heads(own, moved) - start.rebound), rows.phi + start.inside)
    share = jnp.where(bounce, 1.0, faded(rows.phi, path.width))
    fade = jnp.where(bounce, 0.0, path.kappa * fading(rows.phi, path.width))
    aims = path.kappa * share, path.kappa * owned(own, share, 1.0)
    slip, held = rows.mu * of_cones(own, moved), (rows.held - start.held) / duration
    delta, yields = SOFT * duration * rows.weight, YIELDING * rows.light
    return Asked(gap, slip, held, rows.mu, start.dry, rows.weight, delta, yields, aims, fade)


def residual(own: Layout, z: Point, asked: Asked, on, force: Array) -> Imbalance:
    """What z leaves; on: heads and cones that count; force: impulse (nv,) that is missing."""
    heads, rubs = on
    made = cones.products(z.cones, cone_heads(own, z, asked, rubs))
    return Imbalance(
        force,
        asked.held + asked.yields * z.held,
        jnp.where(heads, asked.gap + asked.delta * z.cones.gamma - z.cones.s, 0.0),
        jnp.where(rubs[:, None], asked.slip - z.cones.u, 0.0),
        Products(
            jnp.where(heads, made.heads - asked.aims[0], 0.0),
            jnp.where(rubs, made.first - asked.aims[1], 0.0),
            jnp.where(rubs[:, None], made.rest, 0.0),
        ),
    )


def cone_heads(own: Layout, z: Point, asked: Asked, rubs: Array) -> Array:
    """ξ₀ (K,), one where a cone does not count."""
    return jnp.where(rubs, cones.bounds(own, z.cones.gamma, asked.dry), 1.0)


def impulses(own: Layout, kinds: RowKinds, z: Point, mu: Array, on) -> Array:
    """Impulses (total,) of all rows."""
    heads, rubs = on
    f = to_rows(own, kinds.total, jnp.where(heads, z.cones.gamma, 0.0), jnp.where(rubs[:, None], mu * z.cones.y, 0.0))
    return jnp.concatenate([z.held, f[kinds.hold :]])
