"""Explicit Runge–Kutta steps whose size a controller chooses: coefficients and controllers are Diffrax's.

`search` finds the steps and owns no derivative. `retrace` takes steps that are known again: that is what derivatives
see, and all that they see. The search threads a memory through all evaluations, for warm starts and for failures, which
an interface to a bare vector field would lose.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

# Field: function (y (n,), memory) -> (rate (n,), memory).
Field = Callable[[Array, Any], tuple[Array, Any]]


BLOCK = 16  # steps that a reverse pass skips together where they were not needed


class Path(NamedTuple):
    """Where an interval ends, and the accepted steps that lead there."""

    end: Array  # (n,)
    shares: Array  # (max_steps,) of the interval that each step takes; zero for those that were not needed


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
        lost = ~jnp.isfinite(K[0]).all()  # there is no rate here: no step is short enough
        keep, time, after, _, control, result = controller.adapt_step_size(
            walk.time, walk.next, walk.y, moved, None, error, order, walk.control
        )
        k = walk.accepted
        last = after > length * (1 - 1e-12 if y.dtype == jnp.float64 else 1 - 1e-6)
        return _Walk(
            y=jnp.where(lost, jnp.nan, jnp.where(keep, moved, walk.y)),
            rate=jnp.where(keep, K[-1], K[0]),
            known=jnp.logical_not(keep) | tableau.reuses_last,
            time=time,
            next=jnp.where(last, length, after),
            memory=jax.tree.map(lambda new, old: jnp.where(keep, new, old), memory, walk.memory),
            control=_arrays(control),
            shares=walk.shares.at[k].set(jnp.where(keep, h / length, 0.0)),
            accepted=k + keep,
            tried=walk.tried + 1,
            stuck=lost | ~diffrax.is_successful(result),
        )

    none, no = jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    shares = jnp.zeros(max_steps, y.dtype)
    first = jnp.minimum(jnp.asarray(first, y.dtype), length)
    y = jnp.where(jnp.isnan(length), jnp.nan, y)  # an end that is never before or behind
    begin = _Walk(y, jnp.zeros_like(y), no, start, first, memory, _arrays(control), shares, none, none, no)
    walk = lax.while_loop(ahead, attempt, begin)
    return Path(walk.y, walk.shares), walk.memory, Effort(walk.accepted, walk.tried, walk.time >= length)


def retrace(field: Field, y: Array, memory, steps: Array, solver) -> Array:
    """Take known steps (max_steps,) again, up to the first of size zero; differentiable in forward mode."""

    def ahead(carry):
        _, k = carry
        return (k < len(steps)) & (steps[jnp.minimum(k, len(steps) - 1)] > 0)

    def step(carry):
        y, k = carry
        return _advance(field, y, memory, steps[k], solver), k + 1

    return lax.while_loop(ahead, step, (y, jnp.zeros((), jnp.int32)))[0]


def retrace_reversibly(field: Field, y: Array, memory, steps: Array, solver) -> Array:
    """The same, also differentiable in reverse mode, which recomputes one step at a time."""

    @partial(jax.checkpoint, prevent_cse=False)
    def step(y, h):
        return lax.cond(h > 0, lambda y: _advance(field, y, memory, h, solver), lambda y: y, y), None

    @partial(jax.checkpoint, prevent_cse=False)
    def block(y, steps):
        return lax.cond(steps[0] > 0, lambda y: lax.scan(step, y, steps)[0], lambda y: y, y), None

    steps = jnp.pad(steps, (0, -len(steps) % BLOCK)).reshape(-1, BLOCK)
    return lax.scan(block, y, steps)[0]


def _advance(field: Field, y: Array, memory, h: Array, solver) -> Array:
    tableau = _Tableau.of(solver, y.dtype)
    return y + h * jnp.tensordot(tableau.weights, tableau.traced_stages(field, y, h, memory), 1)


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
            rate, memory = field(y + h * jnp.tensordot(lower, K, 1), memory)
            return (K + jnp.multiply.outer(slot, rate), memory), None

        none = jnp.zeros((len(self.weights), *y.shape), y.dtype)
        (K, _), _ = lax.scan(stage, (none, memory), (self.lower[:used], slots[:used]))
        return K
