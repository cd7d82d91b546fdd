"""From simulated states to what the replay, the plot and the summary need."""

from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax import Array

import ukemi as uk
from ukemi.errors import InputError
from ukemi.laws.memory import blank_cache
from ukemi.maths import spatial
from ukemi.mechanics import kinematics
from ukemi.model.records import Model, State, as_input
from ukemi.model.tree import BALL, FREE, HINGE, SLIDE
from ukemi.status import Status
from ukemi.view.plot import Trace
from ukemi.view.scene import Frames, Scene, drawn, scene_of

_RATE = 240.0  # poses kept per simulated second; numbers are kept of every step


def record(model: Model, states: State, method, *, ctrls=None) -> tuple[Scene, Frames]:
    """Scene and frames of a rollout, ready for `write_replay`.

    Args:
        model: the model that was simulated.
        states: a trajectory, every leaf with a leading T axis, as `uk.rollout` returns it.
        method: the method that made it; contact forces are those of its law.
        ctrls: (T, nu) controls that act at `states`, for the forces; zero if left out.
    """
    if states.time.ndim != 1:
        raise InputError(f"record needs a trajectory with one leading axis; states.time has shape {states.time.shape}.")
    ctrls = jnp.zeros((len(states.time), model.nu)) if ctrls is None else jnp.asarray(ctrls)
    seen = jax.jit(lambda states, ctrls: observe(model, states, ctrls, method))(states, ctrls)
    return scene_of_model(model), _frames(np.asarray(states.time), jax.tree.map(np.asarray, seen))


def scene_of_model(model: Model) -> Scene:
    """The scene of a loaded model."""
    layout = model.geoms.layout
    names = tuple(name or f"geom {g}" for g, name in enumerate(layout.names))
    return drawn(layout.type, np.asarray(model.geoms.size), names, model.name, layout.looks, model.heights)


def observe(model: Model, states: State, ctrls: Array, method) -> dict[str, Array]:
    """Poses, energies and contacts at every state of a trajectory (T, ...); one state after another.

    Not vmap: these are many small factorisations, and on a CPU a loop over them is as fast and needs less memory.
    """

    def look(moment):
        state, ctrl = moment
        kin = kinematics.of_state(model, state, as_input(model, ctrl))
        pos, quat = geom_poses(model, kin)
        energy = uk.energy(model, state)
        return {"geom_pos": pos, "geom_quat": quat, "kinetic": energy.kinetic,
                "potential": energy.potential, **_contacts(model, state, ctrl, method)}  # fmt: skip

    return jax.lax.map(look, (states, ctrls))


def geom_poses(model: Model, kin: kinematics.Kinematics) -> tuple[Array, Array]:
    """Where geoms (ng, 3) are in the world, and how they are turned (ng, 4)."""
    pos, mat = kinematics.geom_frames(model, kin)
    return pos, spatial.mat_to_quat(mat)


def _contacts(model: Model, state: State, ctrl: Array, method) -> dict[str, Array]:
    """Active contacts: points and forces on the second body in world axes, NaN where there is none."""
    found = uk.contacts(model, state, ctrl, method)
    active = found.active[:, None]
    normal = (found.frame[:, 0] * found.force).sum(-1)
    return {
        "contact_point": jnp.where(active, found.point, jnp.nan),
        "contact_force": jnp.where(active, found.force, jnp.nan),
        "contacts": found.active.sum(),
        "normal_force": jnp.where(found.active, normal, 0.0).sum(),
    }


def _frames(time: np.ndarray, seen: dict[str, np.ndarray]) -> Frames:
    names = ("geom_pos", "geom_quat", "contact_point", "contact_force")
    return Frames(time, *(seen[name] for name in names))


class Recorder:
    """Takes the chunks of a running simulation and sums them up."""

    def __init__(self, model: Model, method, *, source: mujoco.MjModel, title: str):
        self.model, self.source, self.title = model, source, title
        self._observe = jax.jit(lambda state, states, ctrls: self._look(state, states, ctrls, method))
        self._chunks: list[dict] = []

    def _look(self, state: State, states: State, ctrls: Array, method) -> tuple[State, dict]:
        """States before each step, at which the controls of that step act, and what is seen there."""
        before = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest[:-1]]), state, states)
        return before, observe(self.model, before, ctrls, method)

    def lower(self, state: State, states: State, ctrls: Array):
        """What to compile for chunks of this shape; `states` may be shapes alone."""
        return self._observe.lower(state, states, ctrls)

    def use(self, compiled):
        """Take the compiled form of what `lower` gave."""
        self._observe = compiled

    def add(self, state: State, states: State, ctrls: Array, keep: int):
        """Record the first `keep` moments of a chunk that starts at `state` and steps to `states` (n, ...)."""
        before, seen = jax.tree.map(np.asarray, self._observe(state, states, ctrls))
        done = sum(len(chunk["time"]) for chunk in self._chunks)
        # Poses only of every few steps, in single precision: a long recording must fit into memory.
        stride = max(1, int(1 / (_RATE * float(self.model.options.timestep))))
        shown = np.flatnonzero((np.arange(done, done + keep) % stride) == 0)
        poses = ("geom_pos", "geom_quat", "contact_point", "contact_force")
        with np.errstate(over="ignore"):  # what is too large for single precision counts as infinite
            shown_values = {name: seen[name][shown].astype(np.float32) for name in poses}
        self._chunks.append({
            "time": before.time[:keep], "q": before.q[:keep], "v": before.v[:keep], "act": before.act[:keep],
            "status": before.status[:keep], "iterations": before.cache.iterations[:keep],
            "ctrl": np.asarray(ctrls)[:keep],
            "shown_time": before.time[shown],
            **shown_values,
            **{name: seen[name][:keep] for name in ("kinetic", "potential", "contacts", "normal_force")},
        })  # fmt: skip

    def column(self, name: str) -> np.ndarray:
        """One recorded quantity over all moments, (T, ...)."""
        return np.concatenate([chunk[name] for chunk in self._chunks])

    @property
    def seconds(self) -> float:
        """Simulated time [s]."""
        time = self.column("time")
        return float(time[-1] - time[0])

    def replay(self) -> tuple[Scene, Frames]:
        """Arguments for `write_replay`; a simulation that blew up is shown up to the moment before."""
        seen = {name: self.column(name) for name in ("geom_pos", "geom_quat", "contact_point", "contact_force")}
        finite = [np.isfinite(seen[name]).all((1, 2)) for name in ("geom_pos", "geom_quat")]
        good = slice(_length(np.all(finite, axis=0)))
        frames = _frames(self.column("shown_time")[good], {name: values[good] for name, values in seen.items()})
        return scene_of(self.source, self.title), frames

    def trace(self) -> Trace:
        """Argument for `plot_run`; a simulation that blew up is plotted up to the moment before."""
        names = ("time", "q", "kinetic", "potential", "contacts", "normal_force")
        columns = {name: self.column(name) for name in names}
        finite = [np.isfinite(values).reshape(len(values), -1).all(1) for values in columns.values()]
        good = slice(_length(np.all(finite, axis=0)))
        time, q, *rest = (values[good] for values in columns.values())
        return Trace(time, *joint_columns(self.model, q), *rest)

    def write_npz(self, path) -> Path:
        """Write the numbers of every step: time, q, v, act, ctrl, status, energies, contacts."""
        names = (
            "time",
            "q",
            "v",
            "act",
            "ctrl",
            "status",
            "iterations",
            "kinetic",
            "potential",
            "contacts",
            "normal_force",
        )
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, allow_pickle=False, **{name: self.column(name) for name in names})
        return path

    def summary(self) -> list[tuple[str, str]]:
        """What happened, as (name, text)."""
        total = self.column("kinetic") + self.column("potential")
        contacts, iterations = self.column("contacts"), self.column("iterations")[1:]
        steps = len(total) - 1
        return [
            ("model", f"{self.title}: {self.model.nv} degrees of freedom, {self.model.nu} controls"),
            ("simulated", f"{self.seconds:.4g} s in {steps} steps of {float(self.model.options.timestep):.4g} s"),
            ("energy", f"{total[0]:.6g} J → {total[-1]:.6g} J ({total[-1] - total[0]:+.3g} J)"),
            ("contacts", f"{contacts.mean():.1f} on average, at most {contacts.max()}"),
            ("solver", f"{iterations.mean():.1f} iterations on average, at most {iterations.max(initial=0)}"),
            ("status", _status(self.column("status"))),
        ]

    def raise_if_failed(self):
        """Raise `StepError` if any step failed."""
        moments = {name: jnp.asarray(self.column(name)) for name in ("q", "v", "act", "time", "status")}
        uk.raise_if_failed(State(**moments, cache=blank_cache(self.model)))


def _length(finite: np.ndarray) -> int:
    """How many moments come before the first that is not finite; at least one, so that errors stay readable."""
    return len(finite) if finite.all() else max(1, int(np.argmin(finite)))


def _status(status: np.ndarray) -> str:
    """In a word or two what failed; the sentences come with the error."""
    bits = Status(int(np.bitwise_or.reduce(status)))
    return ", ".join(str(flag.name).lower().replace("_", " ") for flag in bits) or "ok"


def joint_columns(model: Model, q: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Angles [rad] and positions [m] of the joints over time, each (T,); balls and free ones give a rotation angle."""
    angles, positions, tree = {}, {}, model.tree
    for j, kind in enumerate(tree.joint_type):
        name, first = tree.joint_names[j] or f"joint {j}", tree.joint_qpos[j]
        if kind == HINGE:
            angles[name] = q[:, first]
        elif kind == SLIDE:
            positions[name] = q[:, first]
        elif kind == FREE:
            positions |= {f"{name} {axis}": q[:, first + k] for k, axis in enumerate("xyz")}
            angles[f"{name} turn"] = _turn(q[:, first + 3 : first + 7])
        elif kind == BALL:
            angles[f"{name} turn"] = _turn(q[:, first : first + 4])
    return angles, positions


def _turn(quat: np.ndarray) -> np.ndarray:
    return 2 * np.arctan2(np.linalg.norm(quat[:, 1:], axis=1), np.abs(quat[:, 0]))
