"""The implicit rule: derivatives of what a solver finds, from the residual that it brought to zero.

A step is the root z of R(z; args) = 0. Whatever algorithm found z, its derivative is
dz = −(∂R/∂z)⁻¹ (∂R/∂args · dargs). The rule is written in forward mode from a transposable linear solve, so that
JAX derives reverse mode, and second derivatives by differentiating the rule.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.custom_derivatives import SymbolicZero

from ukemi.errors import GradientError
from ukemi.xla.programs import is_smooth, of_some
from ukemi.xla.stages import compact
from ukemi.xla.walls import barrier


def is_zero(tangent) -> bool:
    """Whether JAX knows a leaf of the tangents to be zero."""
    return isinstance(tangent, SymbolicZero)


def unmoved(tangents) -> bool:
    """Whether all leaves of the tangents are SymbolicZero."""
    return all(map(is_zero, jax.tree.leaves(tangents, is_leaf=is_zero)))


def pushforward(function: Callable, primals, tangents) -> Any:
    """Derivative of `function(primals)` along `tangents`, whose leaves may be SymbolicZero; None if all are."""
    leaves, structure = jax.tree.flatten(primals)
    along = jax.tree.leaves(tangents, is_leaf=is_zero)
    live = [k for k, t in enumerate(along) if not is_zero(t) and is_smooth(leaves[k])]
    if not live:
        return None

    def of_leaves(*leaves):
        return function(jax.tree.unflatten(structure, leaves))

    return jax.jvp(of_some(of_leaves, leaves, live), [leaves[k] for k in live], [along[k] for k in live])[1]


def zero_tangent(value):
    """Tangents of outputs that do not depend on the inputs, float0 for integers."""
    return jax.tree.map(lambda x: jnp.zeros_like(x) if is_smooth(x) else _float0(x), value)


def _float0(x):
    return np.zeros(jnp.shape(x), jax.dtypes.float0)


def add_tangents(*tangents) -> Any:
    """Sum of tangents, of which any may be None."""
    present = [t for t in tangents if t is not None]
    return jax.tree.map(lambda *parts: sum(parts[1:], parts[0]), *present) if present else None


def filled(tangent, like):
    """The tangent as an array, zero where it is a SymbolicZero."""
    return jnp.zeros_like(like) if is_zero(tangent) else tangent


# What a rollout keeps of each step for the backward pass: what only a search can find again. All else is recomputed.
KEPT = "found by search"


def keep(found):
    """Mark what a solver or a collision routine found as worth keeping for the backward pass."""
    return checkpoint_name(found, KEPT)


def recomputing(step: Callable) -> Callable:
    """`step`, whose backward pass keeps its inputs and what was found by search, and recomputes the rest."""
    return jax.checkpoint(step, policy=jax.checkpoint_policies.save_only_these_names(KEPT), prevent_cse=False)


def apart(values):
    """The same values, of which nothing is shared with what was made from them before.

    Sharing would let the compiler fuse, and so round, the forward pass differently where derivatives are wanted.
    """
    return barrier(values)


def isolated(function: Callable) -> Callable:
    """`function`, whose derivative is made apart from it."""
    plain = jax.custom_jvp(function)

    def rule(primals, tangents):
        along = pushforward(lambda args: function(*args), apart(primals), tangents)
        out = plain(*primals)
        return out, zero_tangent(out) if along is None else along

    plain.defjvp(rule, symbolic_zeros=True)
    return plain


@jax.custom_jvp
def straight_through(value, surrogate):
    """`value` (a pytree of floats), with the derivative of `surrogate`."""
    return value


@straight_through.defjvp
def _of_surrogate(primals, tangents):
    return primals[0], tangents[1]


def root(find: Callable, derivative: Callable) -> Callable:
    """`find(args) -> (z, facts)` with the implicit rule.

    derivative: function (z, args, along) -> dz, where `along` are the tangents of args, whose leaves may be
    SymbolicZero; None if z does not move. facts: integers and flags, which have no derivative.
    """

    @jax.custom_jvp
    def solve(args) -> tuple[Any, Any]:
        return compact(find)(args)

    def rule(primals, tangents):
        (args,), (along,) = primals, tangents
        z, facts = keep(solve(args))
        dz = derivative(*apart((z, args)), along)
        return (z, facts), (zero_tangent(z) if dz is None else dz, zero_tangent(facts))

    solve.defjvp(rule, symbolic_zeros=True)
    return solve


def dense(jacobians: Callable, z, args) -> Any:
    """`jacobians(z, args)` of a root, as one stage apart from the step itself."""
    return compact(jacobians)(*apart((z, args)))


def without_derivative(function: Callable, reason: str) -> Callable:
    """`function`, which raises `GradientError` when it is differentiated."""
    guarded = jax.custom_jvp(function)

    @guarded.defjvp
    def refuse(primals, tangents):
        raise GradientError(reason)

    return guarded
