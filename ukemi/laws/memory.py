"""What laws remember from one step to the next: a state carries it without knowing it.

A law that remembers more than `Cache` has for all of them names a record of arrays, and how it looks before the first
step. Every state has one of each kind, so that any law may step it, and so that loops keep the structure of states.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ukemi.model.records import Cache, Model, State
from ukemi.values import Expected
from ukemi.xla.once import once


class _Kind(NamedTuple):
    """One law's memory."""

    blank: Callable[[Model], Any]
    shapes: Callable[[Model], tuple[Expected, ...]]  # what the fields of the record must hold


_kinds: dict[str, _Kind] = {}


def remembers(name: str, blank: Callable[[Model], eqx.Module]) -> None:
    """Give every state a memory of this name: `blank(model)` before the first step."""

    def shapes(model: Model) -> tuple[Expected, ...]:
        return _fields(jax.eval_shape(lambda: blank(model)))

    _kinds[name] = _Kind(blank, once(shapes))


def remember(state: State, acceleration, iterations, **laws) -> Cache:
    """The cache after a step: what all laws leave, and what one remembers by name."""
    return Cache(jax.lax.stop_gradient(acceleration), iterations, state.cache.laws | laws)


def same_names(now: Array, before: Array) -> Array:
    """Which contacts (nc, nb) bear the same name; −1 names none."""
    return (now[:, None] == before) & (now >= 0)[:, None]


def blank_cache(model: Model) -> Cache:
    """The cache of a state that no law has stepped yet."""
    return Cache(
        acceleration=jnp.zeros(model.nv, model.options.timestep.dtype),
        iterations=jnp.zeros((), jnp.int32),
        laws={name: kind.blank(model) for name, kind in _kinds.items()},
    )


def memory_shapes(model: Model) -> dict[str, tuple[Expected, ...]]:
    """What the fields of each law's memory must hold."""
    return {name: kind.shapes(model) for name, kind in _kinds.items()}


def _fields(record) -> tuple[Expected, ...]:
    given = [(field.name, getattr(record, field.name)) for field in dataclasses.fields(record)]
    return tuple(Expected(name, value.shape, value.dtype) for name, value in given)
