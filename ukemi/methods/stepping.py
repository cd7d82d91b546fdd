"""Explicit Runge–Kutta steps whose size a controller chooses: coefficients and controllers are Diffrax's.

`search` finds the steps and owns no derivative. Steps that are known, `advance` takes again: that is what derivatives
see, and all that they see. The search threads a memory through all evaluations, for warm starts and for failures, which
an interface to a bare vector field would lose.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

# Field: function (y (n,), memory) -> (rate (n,), memory).
Field = Callable[[Array, Any], tuple[Array, Any]]


class Path(NamedTuple):
    """The accepted steps of an interval, the first `accepted` rows; the others hold zeros."""

    end: Array  # (n,) where the interval ends
    states: Array  # (max_steps, n) where each step begins
    shares: Array  # (max_steps,) of the interval that each step takes


class Effort(NamedTuple):
    """How a search fared."""

    accepted: Array  # () steps
    tried: Array  # () steps, accepted or not
    complete: Array  # () bool: the end of the interval was reached


class _Walk(NamedTuple):
    """A search under way: `y` at `time`, and the step to `next` that is to be tried."""

    y: Array
    rate: Array  # at y, if known
    known: Array
    time: Array
    next: Array
    memory: Any
    control: Any  # the controller's state
    states: Array
    shares: Array
    accepted: Array
    tried: Array
    stuck: Array  # bool: the controller gave up


def search(
    field: Field, y: Array, memory, length: Array, solver, controller, max_steps: int
) -> tuple[Path, Any, Effort]:
    """Integrate y' = field(y) over `length` seconds; the first step tried is the whole interval."""
    order = solver.order(None)
    start = jnp.zeros_like(length)
    first, control = controller.init(None, start, length, y, length, None, None, order)
    tableau = _Tableau.of(solver, y.dtype)

    def ahead(walk: _Walk):
        return (walk.time < length) & (walk.tried < max_steps) & ~walk.stuck

    def attempt(walk: _Walk) -> _Walk:
        h = walk.next - walk.time
        K, memory = tableau.stages(field, walk.y, h, walk.rate, walk.known, walk.memory)
        moved = walk.y + h * (tableau.weights @ K)
        error = h * (tableau.error @ K)
        error = jnp.where(jnp.isnan(error), jnp.inf, error)
        keep, time, after, _, control, result = controller.adapt_step_size(
            walk.time, walk.next, walk.y, moved, None, error, order, walk.control
        )
        k = walk.accepted
        last = after > length * (1 - 1e-12 if y.dtype == jnp.float64 else 1 - 1e-6)
        return _Walk(
            y=jnp.where(keep, moved, walk.y),
            rate=jnp.where(keep, K[-1], K[0]),
            known=jnp.logical_not(keep) | tableau.reuses_last,
            time=time,
            next=jnp.where(last, length, after),
            memory=jax.tree.map(lambda new, old: jnp.where(keep, new, old), memory, walk.memory),
            control=_arrays(control),
            states=jnp.where(keep, lax.dynamic_update_index_in_dim(walk.states, walk.y, k, 0), walk.states),
            shares=walk.shares.at[k].set(jnp.where(keep, h / length, 0.0)),
            accepted=k + keep,
            tried=walk.tried + 1,
            stuck=~diffrax.is_successful(result),
        )

    none, no = jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    states, shares = jnp.zeros((max_steps, len(y)), y.dtype), jnp.zeros(max_steps, y.dtype)
    first = jnp.minimum(jnp.asarray(first, y.dtype), length)
    begin = _Walk(y, jnp.zeros_like(y), no, start, first, memory, _arrays(control), states, shares, none, none, no)
    walk = lax.while_loop(ahead, attempt, begin)
    return (
        Path(walk.y, walk.states, walk.shares),
        walk.memory,
        Effort(walk.accepted, walk.tried, walk.time >= length),
    )


def advance(field: Field, y: Array, memory, h: Array, solver) -> Array:
    """One step of given size h; differentiable if the field is."""
    tableau = _Tableau.of(solver, y.dtype)
    return y + h * (tableau.weights @ tableau.traced_stages(field, y, h, memory))


def _arrays(tree):
    return jax.tree.map(jnp.asarray, tree)


class _Tableau(NamedTuple):
    """Coefficients of a method with s stages."""

    lower: np.ndarray  # (s, s) strictly lower triangular
    weights: np.ndarray  # (s,)
    error: np.ndarray  # (s,)
    reuses_last: bool  # the last stage is the first of the next step

    @staticmethod
    def of(solver, dtype) -> "_Tableau":
        given = solver.tableau
        s = given.num_stages
        lower = np.zeros((s, s), dtype)
        for k, row in enumerate(given.a_lower):
            lower[k + 1, : k + 1] = row
        return _Tableau(lower, given.b_sol.astype(dtype), given.b_error.astype(dtype), bool(given.fsal))

    def stages(self, field: Field, y: Array, h: Array, first: Array, known: Array, memory):
        """Rates (s, n) at the stages; the first is given if known."""
        lower = jnp.asarray(self.lower)

        def stage(i, carry):
            K, memory = carry
            rate, memory = field(y + h * (lower[i] @ K), memory)
            return lax.dynamic_update_index_in_dim(K, rate, i, 0), memory

        K = jnp.zeros((len(self.weights), len(y)), y.dtype).at[0].set(first)
        return lax.fori_loop(jnp.where(known, 1, 0), len(self.weights), stage, (K, memory))

    def traced_stages(self, field: Field, y: Array, h: Array, memory) -> Array:
        """The same for derivatives: a scan, over the stages that have a weight."""
        used = int(np.nonzero(self.weights)[0][-1]) + 1
        slots = np.eye(len(self.weights), dtype=y.dtype)

        def stage(carry, row):
            K, memory = carry
            lower, slot = row
            rate, memory = field(y + h * (lower @ K), memory)
            return (K + slot[:, None] * rate, memory), None

        none = jnp.zeros((len(self.weights), len(y)), y.dtype)
        (K, _), _ = lax.scan(stage, (none, memory), (self.lower[:used], slots[:used]))
        return K
