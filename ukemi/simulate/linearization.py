"""Linearization of a step: the matrices that planners and controllers ask for."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi import values
from ukemi.errors import InputError
from ukemi.implicit.worlds import of_one_world
from ukemi.laws.checks import check
from ukemi.laws.method import Method, tangent
from ukemi.laws.soft.law import SOFT
from ukemi.model.records import Input, Model, State, as_input
from ukemi.xla.entry import compiled


class Linearization(eqx.Module):
    """δx⁺ = A δx + B δu around a step; x stacks positions in tangent space, velocities and activations."""

    A: Array  # (2nv + na, 2nv + na)
    B: Array  # (2nv + na, nu)
    parameters: dict[str, Array]  # by name (2nv + na, *shape of the leaf)
    next: State  # the step itself


def linearize(
    model: Model, state: State, ctrl=None, method: Method | None = None, *, wrt: tuple[str, ...] | str = ()
) -> Linearization:
    """Derivatives of a step in state and controls, and in the model's leaves that `wrt` names.

    Rotations are perturbed on the right, in the body frame, as by MuJoCo's `mjd_transitionFD`.

    Args:
        model: the robot.
        state: where it is.
        ctrl: controls (nu,), or `Input` when more acts, or None for zero controls.
        method: the contact law, `Soft()` with the file's own options if left out.
        wrt: names such as "bodies.mass" or "geoms.friction", each giving an array (2nv + na, *shape of the leaf).
    """
    check(model, state, method)
    meaning = "must be a name such as 'bodies.mass', or a tuple of them"
    values.require(isinstance(wrt, str | tuple | list), "linearize", "wrt", wrt, meaning)
    names = (wrt,) if isinstance(wrt, str) else tuple(wrt)
    for name in names:
        leaf(model, name)
    method = method or SOFT
    if names:
        method.check_forward()
    return _linearize(model, state, as_input(model, ctrl), method, names)


def leaf(model: Model, name: str) -> Array:
    """The float array that a name such as "bodies.mass" means."""
    group, _, field = name.partition(".") if isinstance(name, str) else ("", "", "")
    value = getattr(getattr(model, group, None), field, None) if field else None
    if not isinstance(value, Array | np.ndarray) or not jnp.issubdtype(value.dtype, jnp.floating):
        examples = "names look like 'bodies.mass', 'options.gravity'"
        raise InputError(f"{values.shown(name)} is not a parameter of the model; {examples}.")
    return jnp.asarray(value)


def replace_leaves(model: Model, leaves: dict[str, Array]) -> Model:
    """The model with the named leaves replaced."""
    names = list(leaves)

    def where(model):
        return [getattr(getattr(model, n.partition(".")[0]), n.partition(".")[2]) for n in names]

    return eqx.tree_at(where, model, [leaves[n] for n in names]) if names else model


@compiled
def _linearize(model: Model, state: State, inputs: Input, method: Method, names: tuple[str, ...]) -> Linearization:
    n = 2 * model.nv + model.na
    after, J = of_one_world(method.jacobian)(model, state, inputs)
    return Linearization(J[:, :n], J[:, n:], _parameters(model, state, inputs, method, names), after)


def _parameters(model: Model, state: State, inputs: Input, method: Method, names) -> dict[str, Array]:
    """Columns of the named leaves, by the vector form of the implicit rule."""
    if not names:
        return {}

    def step(leaves):
        return of_one_world(method.step)(replace_leaves(model, leaves), state, inputs)

    leaves = {name: leaf(model, name) for name in names}
    after, push = jax.linearize(step, leaves)
    zero = jax.tree.map(jnp.zeros_like, leaves)
    out = {}
    for name, value in leaves.items():
        basis = jnp.eye(value.size, dtype=value.dtype).reshape(value.size, *value.shape)
        columns = jax.vmap(lambda t, name=name: tangent(model, after, push(zero | {name: t})), out_axes=1)(basis)
        out[name] = columns.reshape(-1, *value.shape)
    return out
