"""Step, roll out, look inside: the functions that users call."""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jaxtyping import Float

from ukemi import dynamics
from ukemi.errors import InputError
from ukemi.forces import activation_motion
from ukemi.kinematics import coordinate_rate
from ukemi.methods.base import Method
from ukemi.methods.soft import Soft
from ukemi.model import Input, Model, State, as_input
from ukemi.world import of_one_world


def step(model: Model, state: State, ctrl=None, method: Method | None = None) -> State:
    """The state one time step later.

    ctrl: controls (nu,), or `Input` when more acts, or None for zero controls; method: the contact law, `Soft()`
    with the file's own options if left out.
    """
    _check_finite(ctrl)
    return _step(model, state, as_input(model, ctrl), method or Soft())


def rollout(model: Model, state: State, ctrls, method: Method | None = None, *, checkpoint: int | None = None) -> State:
    """The T states that follow `state` under ctrls (T, nu), or under an `Input` whose fields lead with T.

    checkpoint: how many steps a backward pass recomputes at a time, which bounds its memory to T / checkpoint states
    and `checkpoint` steps. Left out, it keeps of every step the state, the contacts and the solution, a few kilobytes,
    and solves nothing twice.
    """
    _check_finite(ctrls)
    if checkpoint is not None and checkpoint < 1:
        raise InputError(f"rollout(checkpoint={checkpoint}): must be a positive number of steps.")
    inputs = ctrls if isinstance(ctrls, Input) else Input(jnp.asarray(ctrls, model.options.timestep.dtype))
    leaves = jax.tree.leaves(inputs)
    lengths = {leaf.shape[0] if leaf.ndim else None for leaf in leaves}
    if len(lengths) != 1 or None in lengths:
        raise InputError("rollout needs controls with one leading time axis, (T, nu); its inputs disagree on T.")
    as_input(model, jax.tree.map(lambda x: x[0], inputs) if leaves[0].shape[0] else Input())
    method = method or Soft()
    method.check_times(model, leaves[0].shape[0])
    return _rollout(model, state, inputs, method, checkpoint)


@eqx.filter_jit
def _step(model: Model, state: State, inputs: Input, method: Method) -> State:
    return of_one_world(method.step)(model, state, inputs)


@eqx.filter_jit
def _rollout(model: Model, state: State, inputs: Input, method: Method, checkpoint: int | None) -> State:
    @of_one_world
    def body(model, state, inputs):
        after = method.step(model, state, as_input(model, inputs))
        return after, after

    def steps(state, inputs):
        return jax.lax.scan(partial(body, model), state, inputs)

    states = _ends(steps, state, inputs, checkpoint)
    return method.saved(model, state, states, inputs)


def _ends(steps: Callable, state: State, inputs: Input, checkpoint: int | None) -> State:
    length = jax.tree.leaves(inputs)[0].shape[0]
    if checkpoint is None or checkpoint >= length:
        return steps(state, inputs)[1]
    whole = length - length % checkpoint
    parts = jax.tree.map(lambda x: x[:whole].reshape(whole // checkpoint, checkpoint, *x.shape[1:]), inputs)
    state, states = jax.lax.scan(jax.checkpoint(steps, prevent_cse=False), state, parts)
    states = jax.tree.map(lambda x: x.reshape(whole, *x.shape[2:]), states)
    rest = steps(state, jax.tree.map(lambda x: x[whole:], inputs))[1]
    return jax.tree.map(lambda *x: jnp.concatenate(x), states, rest)


def _check_finite(ctrl) -> None:
    """Refuse NaN and infinite inputs where their values are known."""
    for leaf in jax.tree.leaves(ctrl):
        if not isinstance(leaf, Tracer) and not np.isfinite(leaf).all():
            raise InputError("the controls or forces hold NaN or infinity.")


def inverse(model: Model, state: State, qacc, method: Soft | None = None) -> Float[Array, " nv"]:
    """Generalised force (nv,) that yields the acceleration qacc (nv,), contacts and passive forces included."""
    qacc = jnp.asarray(qacc, state.v.dtype)
    if qacc.shape != state.v.shape:
        raise InputError(f"qacc has shape {qacc.shape}; {model!r} needs {state.v.shape}.")
    return _inverse(model, state, qacc, method or Soft())


@eqx.filter_jit
def _inverse(model, state, qacc, method):
    return of_one_world(method.inverse)(model, state, qacc, as_input(model, None))


def vector_field(model: Model, state: State, ctrl=None, method: Soft | None = None) -> tuple[Array, Array, Array]:
    """Continuous time: (q̇ (nq,), v̇ (nv,), activation rates (na,)); quaternions as elements of R⁴."""
    _check_finite(ctrl)
    return _vector_field(model, state, as_input(model, ctrl), method or Soft())


@eqx.filter_jit
def _vector_field(model, state, inputs, method):
    def rates(model, state, inputs):
        motion = method.accelerate(model, state, inputs)
        rate, _ = activation_motion(model, motion.kin, state.q, state.act, inputs.ctrl)
        return coordinate_rate(model.tree, state.q, state.v), motion.acceleration, rate

    return of_one_world(rates)(model, state, inputs)


@eqx.filter_jit
def energy(model: Model, state: State) -> dynamics.Energy:
    """Kinetic and potential energy [J] of a state."""
    return dynamics.energy(model, state)


class ContactReport(eqx.Module):
    """Contacts of a state at the model's fixed capacity; rows where `active` is false mean nothing."""

    active: Array  # (nc,) bool
    distance: Array  # (nc,) [m], negative in penetration
    point: Array  # (nc, 3) [m]
    frame: Array  # (nc, 3, 3) rows: normal from the first geom to the second, two tangents
    geoms: Array  # (nc, 2)
    force: Array  # (nc, 3) force on the second geom, world axes [N]
    torque: Array  # (nc, 3) torsional and rolling friction torque on the second geom, world axes [N m]


def contacts(model: Model, state: State, ctrl=None, method: Soft | None = None) -> ContactReport:
    """Contact points of a state, and the forces that act there under `ctrl`."""
    _check_finite(ctrl)
    return _contacts(model, state, as_input(model, ctrl), method or Soft())


@eqx.filter_jit
def _contacts(model, state, inputs, method):
    found, local = of_one_world(method.contact_forces)(model, state, inputs)
    local = jnp.pad(local, ((0, 0), (0, 6 - local.shape[1])))
    geoms = jnp.asarray(model.pairs.layout.geoms)[found.pair]
    turned = jnp.einsum("nsk,nkd->nsd", local.reshape(-1, 2, 3), found.frame)
    return ContactReport(found.active, found.distance, found.point, found.frame, geoms, turned[:, 0], turned[:, 1])
