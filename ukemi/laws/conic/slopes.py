"""Dense derivatives of a step with cones, in closed form: what `linearize` of `NCP` and `Maximal` is made of.

The residual depends on the pose at the end through a tangent vector δ⁺ = C δ + T h dv⁺, with C what carries a change of
the start along and T = J_r of the turn within the step (one, where nothing turns freely):

    of gaps             ∂φ⁺/∂q⁺ δ⁺,     of those that bounce    h (J⁺ dv⁺ + ∂(J⁺ v⁺)/∂q⁺ δ⁺ + d(e J v))
    of slips            μ (J⁺ dv⁺ + ∂(J⁺ v⁺)/∂q⁺ δ⁺)
    of equalities       (G⁺ δ⁺ − G δ)/h

and of the force as `laws.conic.balance_slopes` says.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax

from ukemi.collide.detect import attached
from ukemi.constraints.rows import RowKinds, row_matrix
from ukemi.laws.conic import newton
from ukemi.laws.conic.balance import asked, cone_heads, impulses, matched, of_origin, start_of
from ukemi.laws.conic.balance_slopes import SLOPES
from ukemi.laws.conic.cones import Products, layout, of_cones, of_heads, owned
from ukemi.laws.conic.derivative import follower
from ukemi.laws.conic.end import blocks_of
from ukemi.laws.conic.end_slopes import AtEnd, at_end
from ukemi.laws.conic.mechanics import Mechanics, without_contacts
from ukemi.laws.conic.newton import Slopes
from ukemi.laws.conic.packed import velocities
from ukemi.laws.conic.unknowns import Imbalance, Known, Path, Point
from ukemi.laws.here import Here, frame_of
from ukemi.laws.here_slopes import columns_of
from ukemi.mechanics.turns import Turns, integrate_slopes


def jacobian(
    mechanics: Mechanics, kinds: RowKinds, z: Point, known: Known, ahead, here: Here, duration: Array, path: Path
) -> Array:
    """∂v⁺ (nv, 2nv + na + nu) in position (tangent space), velocity, activation and control."""
    model, own, nv = here.model, layout(here.model, kinds), here.model.nv
    balance = SLOPES[type(mechanics)]
    end = mechanics.ending(here, kinds, z.v, duration, follower(here, known, ahead))
    start = start_of(here, kinds, duration)
    found = matched(own, start, known.origin)
    wants = asked(own, end.rows, found, end.motion(), known.bounce, duration, path)
    f = impulses(own, kinds, z, wants.mu, known.on)
    C, T = turned = integrate_slopes(model.tree, z.v, duration)
    at = at_end(here, end, balance.at_end(kinds, f), ahead, balance.ride)
    force = balance.of(here, end, at, f, turned, duration)
    # in v⁺
    closing, moves = T.rows(at.J), at.J + duration * T.rows(at.turn)
    slips, rubs = (wants.mu[:, :, None] * of_cones(own, x) for x in (moves, force.pulls))
    gaps = jnp.where(known.bounce[:, None], of_heads(own, moves), T.rows(at.nearer))
    heads, holds = of_heads(own, force.pulls), force.pulls[kinds.holding]
    slopes = Slopes(duration * gaps, slips, closing[kinds.holding], heads, rubs, holds)
    head = cone_heads(own, z, wants, known.on[1])
    system = newton.system(own, z.cones, head, wants, known.on, force.after, slopes)
    # in the state and the controls
    off = _of_start(kinds, here, known, start, at, C, duration, ahead, wants.fade)
    room = force.start.shape[1] - 2 * nv
    wide = jax.tree.map(lambda x: jnp.pad(x, ((0, 0),) * (x.ndim - 1) + ((0, room),)), off)
    heads, rubs = (on[:, None] for on in known.on)
    slack = jnp.where(heads, wide.slack, 0.0)
    slip = jnp.where(rubs[:, None], wants.mu[:, :, None] * wide.slip, 0.0)
    aims = jnp.where(heads, wide.products.heads, 0.0), jnp.where(rubs, wide.products.first, 0.0)
    products = Products(*aims, jnp.zeros_like(slip))
    whole = Imbalance(force.start, wide.held, slack, slip, products)
    return velocities(system, whole)


def _of_start(kinds: RowKinds, here: Here, known: Known, start, at: AtEnd, C: Turns, h: Array, ahead, fade: Array):
    """How what is asked changes with q and v at a given v⁺ (·, 2nv), but for the force; slips without coefficients."""
    own, scalar, nv = layout(here.model, kinds), without_contacts(kinds), here.model.nv
    frame = frame_of(here)
    J = row_matrix(frame, scalar, blocks_of(frame))
    closing, turned, nearer = C.rows(at.J), C.rows(at.turn), C.rows(at.nearer)

    def touching(_):
        def at_start(here: Here) -> Array:
            there = here._replace(contacts=attached(here.model, here.kin, here.contacts, ahead))
            found = start_of(there, kinds, h)
            return jnp.stack([found.inside, found.rebound])

        found = columns_of(at_start, here)
        return jnp.concatenate([found.q, found.v], -1)

    # of limits a closed form, of contacts none: it would take long to compile, and is rarely asked for
    limits = -start.leaving[: own.limits, None] * of_heads(layout(here.model, scalar), J)
    apart = lambda none: none.at[0, : own.limits, :nv].set(limits)  # noqa: E731
    touches = (start.rebound > 0).any() | (start.leaving[own.limits :] > 0).any()
    none = jnp.zeros((2, len(start.rebound), 2 * nv), J.dtype)
    inside, thrown = lax.cond(touches, touching, apart, none) if len(start.rebound) else none
    inside, thrown = (of_origin(own, x, known.origin) for x in (inside[:, :nv], thrown))
    bounce, room = known.bounce[:, None], ((0, 0), (0, nv))
    gap = jnp.where(bounce, 0.0, nearer + inside)
    leaves = jnp.pad(h * of_heads(own, turned), room) - h * thrown
    slack = jnp.where(bounce, leaves, jnp.pad(gap, room))
    aims = jnp.pad(-fade[:, None] * nearer, room)
    held = jnp.pad((closing[kinds.holding] - J[kinds.holding]) / h, room)
    slip = jnp.pad(of_cones(own, turned), ((0, 0), *room))
    empty = jnp.zeros((0, 2 * nv), J.dtype)
    return Imbalance(empty, held, slack, slip, Products(aims, owned(own, aims), empty))
