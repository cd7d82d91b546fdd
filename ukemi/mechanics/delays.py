"""Controls that arrive late, as MuJoCo's history buffers have them.

The past is one control for each of the last time steps, held or interpolated in between. It is part of the state, since
what it holds will act: `State.act` is the activations, and behind them the past.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths.gathers import placed, taken
from ukemi.maths.ramps import clamp
from ukemi.model.records import Model

ON_STEP = 1e-4  # share of a time step by which a delay may miss a whole number of steps, so that rounding does not


def present(model: Model, act: Array) -> Array:
    """Activations alone (n,) of all that `State.act` (na,) holds."""
    n = len(model.actuators.layout.owner)
    return act if n == model.na else act[:n]


def past(model: Model, act: Array) -> Array:
    """The past alone."""
    n = len(model.actuators.layout.owner)
    return act[n : n + model.delays.layout.size]


def joined(*parts: Array) -> Array:
    """Activations, the past, and where springs rest (na,)."""
    present = [part for part in parts if len(part)]
    return jnp.concatenate(present) if len(present) > 1 else (present or parts)[0]


def arriving(model: Model, act: Array, ctrl: Array, ahead: float = 0.0) -> Array:
    """Controls (nu,) that act a share `ahead` of a time step from now: late ones are those of the past, whatever is
    given now.
    """
    layout = model.delays.layout
    if not layout.size:
        return ctrl
    late = (_weights(model, ahead) * taken(past(model, act), layout.slot)).sum(1)
    return placed(ctrl, layout.control, late)


def remembered(model: Model, act: Array, ctrl: Array) -> Array:
    """The past a time step later: the control that was given now before all others, of which the oldest is lost."""
    layout = model.delays.layout
    if not layout.size:
        return jnp.zeros(0, act.dtype)
    kept = taken(past(model, act), layout.slot)
    later = jnp.concatenate([ctrl[layout.control][:, None], kept[:, :-1]], 1)
    return later[layout.slot >= 0]


def foreseen(model: Model, act: Array, ahead: float) -> Array:
    """A past from which always that arrives which will have arrived a share `ahead` of a time step from now."""
    layout = model.delays.layout
    if not layout.size:
        return jnp.zeros(0, act.dtype)
    late = (_weights(model, ahead) * taken(past(model, act), layout.slot)).sum(1)
    return jnp.broadcast_to(late[:, None], layout.slot.shape)[layout.slot >= 0]


def late_slopes(model: Model, per_ctrl: Array) -> tuple[Array, Array]:
    """Slopes (n, past) and (n, nu) in the past and in what controls are given, of those in what arrives (n, nu)."""
    layout = model.delays.layout
    if not layout.size:
        return jnp.zeros((len(per_ctrl), 0), per_ctrl.dtype), per_ctrl
    weights = _weights(model, 0.0)[layout.slot >= 0]
    own = np.repeat(layout.control, layout.kept)
    return per_ctrl[:, own] * weights, placed(per_ctrl, layout.control, jnp.zeros(()))


def delay_pieces(model: Model) -> Array:
    """Between which past steps one reads, where readings jump or have kinks in the delay: integers (n,)."""
    before = _steps_back(model, 0.0)
    return jnp.stack([jnp.ceil(before - ON_STEP), jnp.floor(before + ON_STEP), jnp.round(before)], -1).astype(int)


def _steps_back(model: Model, ahead: float) -> Array:
    """How many steps (n,) before the last one what arrives was given, within what is kept."""
    layout = model.delays.layout
    back = model.delays.time[layout.owner] / model.options.timestep - 1.0 - ahead
    return clamp(back, 0.0, layout.kept - 1.0)


def _weights(model: Model, ahead: float) -> Array:
    """Weights (n, most) of the past values in what arrives."""
    layout, back = model.delays.layout, _steps_back(model, ahead)[:, None]
    order, kept = layout.order[:, None], layout.kept[:, None]
    k = np.arange(layout.slot.shape[1])
    held = (k == jnp.ceil(back - ON_STEP)).astype(back.dtype)
    linear = jnp.maximum(0.0, 1 - jnp.abs(k - back))
    # Hermite's cubic from the older sample to the newer, slopes by differences of neighbours, none at either end
    newer = jnp.clip(jnp.floor(back), 0, np.maximum(kept - 2, 0))
    x = 1 - (back - newer)

    def at(place):
        return (k == place).astype(back.dtype)

    older = newer + 1
    from_older = jnp.where(older + 1 < kept, 0.5 * (at(newer) - at(older + 1)), 0.0)
    to_newer = jnp.where(newer > 0, 0.5 * (at(newer - 1) - at(older)), 0.0)
    cubic = (2 * x**3 - 3 * x**2 + 1) * at(older) + (3 * x**2 - 2 * x**3) * at(newer)
    cubic = cubic + (x**3 - 2 * x**2 + x) * from_older + (x**3 - x**2) * to_newer
    cubic = jnp.where(kept == 1, at(0), cubic)
    return jnp.where(order == 0, held, jnp.where(order == 1, linear, cubic))
