"""Newton's step on many imbalances at once, of the rows that count alone, which mostly are few of those there are."""

from typing import cast

import jax
import jax.numpy as jnp
from jax import Array, lax

from ukemi.laws.conic.newton import System, at_rest
from ukemi.laws.conic.unknowns import Imbalance
from ukemi.maths.gathers import rows_at, rows_where
from ukemi.maths.systems import factored
from ukemi.xla.batches import one_by_one

FEW = 16  # heads, and as many cones, for which there is a smaller program where a model has twice as many


def velocities(system: System, off: Imbalance) -> Array:
    """Changes of velocities (nv, n) that imbalances (..., n) make, refined as in `newton.solver`."""
    if not off.force.size:  # nothing moves
        return off.force
    every = tuple(map(len, system.on))
    few, layout = tuple(min(FEW, n) for n in every), system.layout

    def of(rooms: tuple[int, ...]):
        return lambda system, off: _velocities(system._replace(layout=layout), off, rooms)

    def choose(system: System, off: Imbalance) -> Array:
        heads, rubs = (on.sum() <= room for on, room in zip(system.on, few, strict=True))
        return lax.cond(heads & rubs, of(few), of(every), system, off)

    if max(every) < 2 * FEW:
        return _velocities(system, off, every)
    # without what is static, since all that goes into a branch is traced
    return one_by_one(choose, in_lockstep=of(every))(system._replace(layout=None), off)


def _velocities(system: System, off: Imbalance, rooms: tuple[int, ...]) -> Array:
    solve, slopes, M, nv = factored(cast(Array, system.matrix)), system.slopes, cast(Array, system.M), len(off.force)
    firsts = [_first(on, room) for on, room in zip(system.on, rooms, strict=True)]

    def packed(*parts: Array) -> Array:
        """Rows (heads and twice cones, n) of those that count."""
        own = [rows_where(there, rows_at(x, k)) for x, (k, there) in zip(parts, firsts, strict=True)]
        return jnp.concatenate([x.reshape(-1, x.shape[-1]) for x in own])

    given = packed(*jax.vmap(at_rest, in_axes=(None, -1), out_axes=-1)(system, off))
    moves, pulls = packed(system.given, system.rub), packed(slopes.heads, slopes.rubs).T
    out = solve(jnp.concatenate([pulls @ given - off.force, -off.held]))
    dv, held = out[:nv], out[nv:]
    left = off.force + M @ dv - pulls @ (given - moves @ dv) - slopes.holds.T @ held
    held_left = off.held + slopes.held @ dv + system.asked.yields[:, None] * held
    return dv - solve(jnp.concatenate([left, held_left]))[:nv]


def _first(on: Array, room: int) -> tuple[Array, Array]:
    """Where the first (room,) are that count, and which of these there are."""
    so_far, places = jnp.cumsum(on), jnp.arange(room)
    there = places < on.sum()
    return jnp.where(there, (so_far <= places[:, None]).sum(-1), 0), there
