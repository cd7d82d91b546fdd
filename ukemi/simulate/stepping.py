"""Start, step, roll out, look inside: the functions that users call."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ukemi import values
from ukemi.errors import InputError
from ukemi.implicit.worlds import of_one_world
from ukemi.laws.checks import check
from ukemi.laws.integrators import rates
from ukemi.laws.memory import blank_cache
from ukemi.laws.method import Method
from ukemi.laws.soft.law import SOFT
from ukemi.mechanics.energy import Energy, Momentum
from ukemi.mechanics.plasticity import first_rests
from ukemi.model.checks import check_model
from ukemi.model.records import Input, Model, State, as_input
from ukemi.xla.entry import compiled


def initial_state(model: Model, keyframe: str | int | None = None, *, q=None, v=None, act=None) -> State:
    """State at qpos0 or at a keyframe, parts of which may be replaced.

    Args:
        model: the robot.
        keyframe: name or index of a stored configuration; qpos0 at rest if left out.
        q: positions (nq,) in its place; quaternions w x y z.
        v: velocities (nv,) in its place.
        act: activations (na,) in its place.
    """
    check_model(model)
    dtype = model.options.timestep.dtype
    base = {
        "q": model.joints.qpos0,
        "v": jnp.zeros(model.nv, dtype),
        "act": jnp.concatenate([jnp.zeros(model.na - model.nplastic, dtype), first_rests(model)]),
        "time": jnp.zeros((), dtype),
    }
    if keyframe is not None:
        k = keyframe_index(model, keyframe)
        keys = model.keyframes
        base = {"q": keys.q[k], "v": keys.v[k], "act": keys.act[k], "time": keys.time[k]}
    for name, value in {"q": q, "v": v, "act": act}.items():
        if value is None:
            continue
        value = values.array(name, value, dtype)
        values.check_shape(name, value.shape, base[name].shape, model)
        base[name] = value
    if q is not None:
        tree = model.tree
        turns, first = [tree.joint_names[j] for j in tree.quat_joints], tree.quat_qpos[:, 0]
        values.check_turns(base["q"][tree.quat_qpos], lambda k: f"q[{first[k]}:{first[k] + 4}] of joint {turns[k]!r}")
    return State(**base, status=jnp.zeros((), jnp.int32), cache=blank_cache(model))


def keyframe_index(model: Model, keyframe: str | int) -> int:
    """Row of a keyframe given by name or index."""
    names = model.keyframes.names
    if isinstance(keyframe, str):
        if keyframe in names:
            return names.index(keyframe)
    elif values.is_count(keyframe, 0) and keyframe < len(names):
        return int(keyframe)
    listing = ", ".join(repr(n) for n in names) or "none"
    raise InputError(f"No keyframe {values.shown(keyframe)} in {model!r}; keyframes: {listing}.")


def step(model: Model, state: State, ctrl=None, method: Method | None = None) -> State:
    """The state one time step later.

    Args:
        model: the robot.
        state: where it is.
        ctrl: controls (nu,), or `Input` when more acts, or None for zero controls.
        method: the contact law, `Soft()` with the file's own options if left out.
    """
    check(model, state, method)
    return _step(model, state, as_input(model, ctrl), method or SOFT)


def rollout(
    model: Model,
    state: State,
    ctrls,
    method: Method | None = None,
    *,
    checkpoint: int | None = None,
    observe: Callable[[Model, State], Any] | None = None,
) -> Any:
    """The T states that follow `state`, whose arrays lead with T; with `observe` what it makes of them instead.

    Args:
        model: the robot.
        state: where it starts; this state is not among the results.
        ctrls: controls (T, nu), or an `Input` whose fields lead with T.
        method: the contact law, `Soft()` with the file's own options if left out.
        checkpoint: how many steps a backward pass recomputes at a time, which bounds its memory to T / checkpoint
            states and `checkpoint` steps. Left out, it keeps of every step the state, the contacts and the solution, a
            few kilobytes, and solves nothing twice.
        observe: function (model, state) of a pytree of arrays, such as `uk.sensors`, called at each of the T states.
            The result is then (last state, observations that lead with T), and no other state is kept. A function that
            is new is compiled anew, so name it outside of loops.
    """
    check(model, state, method)
    if observe is not None:
        values.require(callable(observe), "rollout", "observe", observe, "must be a function (model, state)")
    if checkpoint is not None:
        values.check_count("rollout", "checkpoint", checkpoint, "must be a positive number of steps")
    inputs = as_input(model, ctrls, over_time=True)
    lengths = {len(leaf) for leaf in jax.tree.leaves(inputs)}
    if len(lengths) != 1:
        raise InputError("rollout needs controls with one leading time axis, (T, nu); its inputs disagree on T.")
    method = method or SOFT
    method.check_times(model, *lengths)
    if observe is None:
        return _rollout(model, state, inputs, method, values.plain(checkpoint))
    if not method.ends_steps:
        raise InputError("rollout(observe=...) looks at ends of time steps: leave out the law's saveat.")
    return _observed(model, state, inputs, method, values.plain(checkpoint), observe)


@compiled
def _step(model: Model, state: State, inputs: Input, method: Method) -> State:
    return of_one_world(method.step)(model, state, inputs)


@compiled
def _rollout(model: Model, state: State, inputs: Input, method: Method, checkpoint: int | None) -> State:
    @of_one_world
    def body(model, state, inputs):
        after = method.step(model, state, as_input(model, inputs))
        return after, after

    states = _in_parts(partial(body, model), state, inputs, checkpoint)[1]
    return method.saved(model, state, states, inputs)


@compiled
def _observed(model: Model, state: State, inputs: Input, method: Method, checkpoint: int | None, observe: Callable):
    @of_one_world
    def step(model, state, inputs):
        return method.step(model, state, as_input(model, inputs))

    def body(state, inputs):
        after = step(model, state, inputs)
        return after, observe(model, after)

    return _in_parts(body, state, inputs, checkpoint)


def _in_parts(body: Callable, state: State, inputs: Input, checkpoint: int | None) -> tuple[State, Any]:
    """The last state and what every step tells; a backward pass recomputes `checkpoint` steps at a time."""

    def steps(state, inputs):
        return jax.lax.scan(body, state, inputs)

    length = jax.tree.leaves(inputs)[0].shape[0]
    if checkpoint is None or checkpoint >= length:
        return steps(state, inputs)
    whole = length - length % checkpoint
    parts = jax.tree.map(lambda x: x[:whole].reshape(whole // checkpoint, checkpoint, *x.shape[1:]), inputs)
    state, told = jax.lax.scan(jax.checkpoint(steps, prevent_cse=False), state, parts)
    told = jax.tree.map(lambda x: x.reshape(whole, *x.shape[2:]), told)
    last, rest = steps(state, jax.tree.map(lambda x: x[whole:], inputs))
    return last, jax.tree.map(lambda *x: jnp.concatenate(x), told, rest)


def inverse(model: Model, state: State, qacc, method: Method | None = None) -> Float[Array, " nv"]:
    """Generalised force (nv,) that yields an acceleration, contacts and passive forces included.

    Args:
        model: the robot.
        state: where it is.
        qacc: the acceleration (nv,).
        method: the contact law, `Soft()` with the file's own options if left out; others may not offer this.
    """
    check(model, state, method)
    qacc = values.array("qacc", qacc, state.v.dtype)
    values.check_shape("qacc", qacc.shape, state.v.shape, model)
    return _inverse(model, state, qacc, method or SOFT)


@compiled
def _inverse(model, state, qacc, method):
    return of_one_world(method.inverse)(model, state, qacc, as_input(model, None))


def vector_field(model: Model, state: State, ctrl=None, method: Method | None = None) -> tuple[Array, Array, Array]:
    """Continuous time: (q̇ (nq,), v̇ (nv,), activation rates (na,)); quaternions as elements of R⁴.

    Args:
        model: the robot.
        state: where it is.
        ctrl: controls (nu,), or `Input` when more acts, or None for zero controls.
        method: the contact law, `Soft()` with the file's own options if left out; rigid ones do not offer this.
    """
    check(model, state, method)
    return _vector_field(model, state, as_input(model, ctrl), method or SOFT)


@compiled
def _vector_field(model, state, inputs, method):
    def field(model, state, inputs):
        return rates(model, state, method.accelerate(model, state, inputs), inputs)

    return of_one_world(field)(model, state, inputs)


def energy(model: Model, state: State, method: Method | None = None) -> Energy:
    """Kinetic energy, and potential energy of gravity and joint springs [J], of a state.

    Args:
        model: the robot.
        state: where it is.
        method: the contact law that led there; `Maximal` has the energy of the way there, which does not drift.
    """
    check(model, state, method)
    return _energy(model, state, method or SOFT)


@compiled
def _energy(model, state, method):
    return method.energy(model, state)


def momentum(model: Model, state: State, method: Method | None = None) -> Momentum:
    """Linear [N s] and angular momentum [N m s] of all bodies, in world axes about the origin.

    Args:
        model: the robot.
        state: where it is.
        method: the contact law that led there; `Maximal` has the momentum of the way there, which is kept exactly.
    """
    check(model, state, method)
    return _momentum(model, state, method or SOFT)


@compiled
def _momentum(model, state, method):
    return method.momentum(model, state)


class ContactReport(eqx.Module):
    """Contacts of a state at the model's fixed capacity; rows where `active` is false mean nothing."""

    active: Array  # (nc,) bool
    distance: Array  # (nc,) [m], negative in penetration
    point: Array  # (nc, 3) [m]
    frame: Array  # (nc, 3, 3) rows: normal from the first geom to the second, two tangents
    geoms: Array  # (nc, 2)
    force: Array  # (nc, 3) force on the second geom, world axes [N]
    torque: Array  # (nc, 3) torsional and rolling friction torque on the second geom, world axes [N m]


def contacts(model: Model, state: State, ctrl=None, method: Method | None = None) -> ContactReport:
    """Contact points of a state, and the forces that act there.

    Args:
        model: the robot.
        state: where it is.
        ctrl: controls (nu,), or `Input` when more acts, or None for zero controls.
        method: the contact law, `Soft()` with the file's own options if left out; rigid ones report means over a step.
    """
    check(model, state, method)
    return _contacts(model, state, as_input(model, ctrl), method or SOFT)


@compiled
def _contacts(model, state, inputs, method):
    found, local = of_one_world(method.contact_forces)(model, state, inputs)
    local = jnp.pad(local, ((0, 0), (0, 6 - local.shape[1])))
    geoms = jnp.asarray(model.pairs.layout.geoms)[found.pair]
    turned = jnp.einsum("nsk,nkd->nsd", local.reshape(-1, 2, 3), found.frame)
    return ContactReport(found.active, found.distance, found.point, found.frame, geoms, turned[:, 0], turned[:, 1])
