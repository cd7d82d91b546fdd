"""A page or a picture of a motion that somebody has computed."""

import dataclasses
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import ukemi as uk
from ukemi import values
from ukemi.errors import InputError
from ukemi.laws.checks import check_method
from ukemi.mechanics import kinematics
from ukemi.model.checks import check_model
from ukemi.model.records import Model, State
from ukemi.view.plot import Trace, plot_run, supported
from ukemi.view.recorder import geom_poses, joint_columns, record, scene_of_model
from ukemi.view.replay import write_replay
from ukemi.view.scene import Frames


def save_replay(model: Model, states, path, *, method=None, ctrls=None) -> Path:
    """Write a page that replays a motion in any browser, and return its path.

    Args:
        model: whose motion it is.
        states: a trajectory as `uk.rollout` returns it, every leaf with a leading axis of T moments; or positions
            (T, nq) alone, one time step apart.
        path: file to write, `.html`; its folder is made if needed.
        method: a contact law; with it the page shows contact points and the forces that the law has there.
        ctrls: (T, nu) controls that act at the states, for these forces; zero if left out.
    """
    path = _file("save_replay", path, (".html",))
    states = trajectory("save_replay", model, states)
    if method is not None:
        check_method(method)
        if ctrls is not None:
            ctrls = values.array("ctrls", ctrls, states.v.dtype)
            values.check_shape("ctrls", ctrls.shape, (len(states.time), model.nu), model)
        scene, frames = record(model, states, method, ctrls=ctrls)
        return write_replay(path, scene, frames, subtitle=type(method).__name__)
    if ctrls is not None:
        raise InputError("save_replay has ctrls but no method: they are for the contact forces of a law.")

    def look(q):
        return geom_poses(model, kinematics.kinematics(model, q))

    pos, quat = map(np.asarray, jax.jit(lambda q: jax.lax.map(look, q))(states.q))
    none = np.zeros((len(states.time), 0, 3))
    frames = Frames(np.asarray(states.time), pos, quat, none, none)
    return write_replay(path, scene_of_model(model), frames)


def plot(model: Model, states, path, *, title: str = "") -> Path:
    """Draw a motion over time, joint positions and energies, and return the picture's path.

    Args:
        model: whose motion it is.
        states: a trajectory as `uk.rollout` returns it, or positions (T, nq) alone, one time step apart.
        path: file to write, such as `run.png`.
        title: over the panels; the model's name if left out.

    Raises:
        InputError: matplotlib is not installed, or the motion is not one of this model.
    """
    path, alone = _file("plot", path, supported()), not isinstance(states, State)
    values.require(isinstance(title, str), "plot", "title", title, "must be a text")
    states = trajectory("plot", model, states)
    numbers = np.asarray(states.time), *joint_columns(model, np.asarray(states.q))
    if alone:
        return plot_run(path, Trace(*numbers), title=title or model.name)
    energy = jax.jit(lambda states: jax.lax.map(lambda state: uk.energy(model, state), states))(states)
    trace = Trace(*numbers, np.asarray(energy.kinetic), np.asarray(energy.potential))
    return plot_run(path, trace, title=title or model.name)


def trajectory(who: str, model: Model, states) -> State:
    """States with one leading axis, of positions alone at rest."""
    check_model(model)
    first = uk.initial_state(model)
    if isinstance(states, State):
        _check_trajectory(who, model, states, first)
        return states
    q = values.array(f"{who}: positions", states, first.q.dtype)
    if q.ndim != 2 or q.shape[1] != model.tree.nq or not len(q):
        raise InputError(f"{who} got positions of shape {q.shape}; they need (T, {model.tree.nq}), or give states.")
    times = jnp.arange(len(q)) * model.options.timestep
    still = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(q), *jnp.shape(x))), first)
    return dataclasses.replace(still, q=q, time=times)


def _check_trajectory(who: str, model: Model, states: State, first: State) -> None:
    """Refuse what is not one state of the model after the other; of what type its floats are does not matter."""
    leaves = jax.tree.leaves(states)
    numbers = all(isinstance(x, Array | np.ndarray) and x.dtype.kind in "biuf" for x in leaves)
    if not numbers or np.ndim(states.time) != 1 or len({np.shape(x)[:1] for x in leaves}) != 1 or not len(states.time):
        raise InputError(
            f"{who} needs a trajectory, all arrays of which have one leading axis; states.time has shape "
            f"{np.shape(states.time)}. uk.rollout(...) returns one."
        )
    for name in ("q", "v", "act", "time"):
        values.check_shape(f"states.{name}", getattr(states, name).shape, ("T", *getattr(first, name).shape), model)


def _file(who: str, path, suffixes: tuple[str, ...]) -> Path:
    """Where to write, with a suffix that can be written."""
    values.require(isinstance(path, str | os.PathLike), who, "path", path, "must be the path of a file")
    path = Path(path)
    values.check_suffix(who, path, suffixes)
    return path
