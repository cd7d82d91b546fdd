"""What was inside at the start is not thrown out, but taken back after the step, without velocity.

Along the rows J⁺ of what is deep, and of equalities, that ask for a displacement w of which a share s is taken back,

    M̂ x − J⁺ᵀ λ = 0,     J⁺ x + Y λ = s w,

with the impulses λ of it; Y is small, and lets rows agree that ask for different things. Without λ,

    W x = J⁺ᵀ Y⁻¹ s w,     W = M̂ + J⁺ᵀ Y⁻¹ J⁺.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.constraints.block import Frame
from ukemi.constraints.rows import RowKinds, row_matrix
from ukemi.laws.conic.balance import SHALLOW, rows_at
from ukemi.laws.conic.balance_slopes import OfJoints
from ukemi.laws.conic.cones import Layout, layout, of_heads, to_rows
from ukemi.laws.conic.end import blocks_of
from ukemi.laws.conic.end_slopes import at_end
from ukemi.laws.conic.mechanics import End
from ukemi.laws.here import Here
from ukemi.laws.momentum import damping_varies
from ukemi.laws.momentum_slopes import damped_slopes
from ukemi.maths.systems import inverse, solve
from ukemi.mechanics.dynamics import inertial_slope
from ukemi.mechanics.turns import integrate_slopes

YIELD = 1e-4  # relative to inverse weights


class Asking(NamedTuple):
    """The rows that ask, equalities and then heads; those that do not are zero."""

    firm: Array  # (n,) which do
    J: Array  # (n, nv)
    stiff: Array  # (n,) Y⁻¹
    W: Array  # (nv, nv)
    wanted: Array  # (n,) s w

    @property
    def push(self) -> Array:
        """J⁺ᵀ Y⁻¹ (nv, n)."""
        return self.J.T * self.stiff


def asking(frame: Frame, kinds: RowKinds, deep: Array, M: Array, share: float) -> Asking:
    """What heads `deep` (H,) and equalities ask for; M: M̂ (nv, nv)."""
    own, blocks = layout(frame.model, kinds), blocks_of(frame)
    rows, J = rows_at(frame, kinds, blocks), row_matrix(frame, kinds, blocks)
    firm = jnp.concatenate([np.ones(kinds.hold, bool), deep])
    wanted = jnp.concatenate([-rows.held, -rows.phi - SHALLOW])
    weights = jnp.where(firm, jnp.concatenate([rows.light, rows.weight]), 1.0)
    J, stiff = jnp.where(firm[:, None], _that_ask(own, kinds, J), 0.0), 1 / (YIELD * weights)
    return Asking(firm, J, stiff, M + (J.T * stiff) @ J, jnp.where(firm, share * wanted, 0.0))


def _that_ask(own: Layout, kinds: RowKinds, rows: Array) -> Array:
    """Of all rows (total, ...)."""
    return jnp.concatenate([rows[kinds.holding], of_heads(own, rows)])


def restoring(frame: Frame, kinds: RowKinds, deep: Array, M: Array, share: float) -> Array:
    """The displacement x (nv,)."""
    asked = asking(frame, kinds, deep, M, share)
    return solve(asked.W, asked.push @ asked.wanted)


def restoring_slopes(
    here: Here, end: End, M: Array, deep: Array, share: float, ahead, duration: Array
) -> tuple[Array, Array, Array]:
    """x, its slopes (nv, 2nv + na + nu) in the start and controls at a given v⁺, and those (nv, nv) in v⁺.

    M̂ dx − J⁺ᵀ dλ = d(J⁺ᵀ) λ − dM̂ x and J⁺ dx + Y dλ = s dw − dJ⁺ x, where dw is −J⁺ δ⁺ of equalities, else −∂φ⁺/∂q⁺ δ⁺,
    with δ⁺ as `laws.conic.slopes` has it.
    """
    model, kinds, nv = here.model, end.kinds, here.model.nv
    own, asked = layout(model, kinds), asking(end.frame, kinds, deep, M, share)
    yielding = inverse(asked.W, definite=True)
    moves = yielding @ asked.push
    x = moves @ asked.wanted
    pushed = asked.stiff * (asked.wanted - asked.J @ x)
    still = jnp.zeros((len(own.cones), 2), x.dtype)
    f = jnp.concatenate([pushed[: kinds.hold], to_rows(own, kinds.total, pushed[kinds.hold :], still)[kinds.hold :]])
    at = at_end(here, end._replace(frame=end.frame._replace(v=x)), f, ahead, OfJoints().ride)
    sought = share * jnp.concatenate([at.J[kinds.holding], at.nearer])
    less = jnp.where(asked.firm[:, None], sought + _that_ask(own, kinds, at.turn), 0.0)
    by_end = yielding @ sum(at.contacts, at.scalars) - moves @ less
    C, T = integrate_slopes(model.tree, end.frame.v, duration)
    lost = jnp.pad(inertial_slope(model, here.kin, x), ((0, 0), (0, nv + len(here.act) + model.nu)))
    if damping_varies(model):
        lost = lost + duration * damped_slopes(x, here)
    start = jnp.pad(C.rows(by_end), ((0, 0), (0, lost.shape[1] - nv))) - yielding @ lost
    return x, start, duration * T.rows(by_end)
