"""A page or a picture of a motion that somebody has computed."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import ukemi as uk
from ukemi import values
from ukemi.errors import InputError
from ukemi.mechanics import kinematics
from ukemi.model.checks import check_model
from ukemi.model.records import Model, State
from ukemi.view.plot import Trace, plot_run
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
    path = _file("save_replay", path, ".html")
    states = trajectory("save_replay", model, states)
    if method is not None:
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
    alone = not isinstance(states, State)
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
    if isinstance(states, State):
        if np.ndim(states.time) != 1:
            raise InputError(
                f"{who} needs a trajectory with one leading axis; states.time has shape {np.shape(states.time)}. "
                "uk.rollout(...) returns one."
            )
        return states
    first = uk.initial_state(model)
    q = values.array(f"{who}: positions", states, first.q.dtype)
    if q.ndim != 2 or q.shape[1] != model.tree.nq:
        raise InputError(f"{who} got positions of shape {q.shape}; they need (T, {model.tree.nq}), or give states.")
    times = jnp.arange(len(q)) * model.options.timestep
    still = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(q), *jnp.shape(x))), first)
    return dataclasses.replace(still, q=q, time=times)


def _file(who: str, path, suffix: str) -> Path:
    path = Path(path)
    if path.suffix.lower() != suffix:
        raise InputError(f"{who} writes {suffix} files; '{path}' has another suffix.")
    return path
