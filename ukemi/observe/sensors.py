"""The sensors of a model's file, read at a state: a table of types, and one vector of readings."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi import values
from ukemi.constraints.joints import LIMITS
from ukemi.constraints.tendons import TENDON_LIMITS
from ukemi.errors import InputError, UnsupportedModelError
from ukemi.implicit.worlds import of_one_world
from ukemi.laws.checks import check
from ukemi.laws.method import Method
from ukemi.laws.soft.law import SOFT
from ukemi.maths.gathers import pick
from ukemi.model.records import Input, Model, State, as_input
from ukemi.model.sensing import SensorLayout
from ukemi.observe import acceleration, position, ranges, touching, velocity
from ukemi.observe.readings import ReadingLayout, Readings
from ukemi.observe.scene import Scene
from ukemi.xla.entry import compiled

# Each reads sensors of one type: (scene, rows (n,)) -> (n, dim), or one array for each sensor. A type that is new goes
# here, and into the list of those that are read in `ukemi.files.sensing`.
READERS: dict[str, Callable[[Scene, np.ndarray], Array | list[Array]]] = {
    "touch": touching.touch,
    "accelerometer": acceleration.accelerometer,
    "velocimeter": velocity.velocimeter,
    "gyro": velocity.gyro,
    "force": acceleration.force,
    "torque": acceleration.torque,
    "magnetometer": position.magnetometer,
    "rangefinder": ranges.rangefinder,
    "jointpos": position.joint_position,
    "jointvel": velocity.joint_velocity,
    "actuatorpos": position.actuator_position,
    "actuatorvel": velocity.actuator_velocity,
    "actuatorfrc": acceleration.actuator_force,
    "jointactfrc": acceleration.joint_actuator_force,
    "ballquat": position.ball_quaternion,
    "ballangvel": velocity.ball_velocity,
    "jointlimitpos": position.limit_position(LIMITS),
    "jointlimitvel": velocity.limit_velocity(LIMITS),
    "jointlimitfrc": acceleration.limit_force(LIMITS),
    "tendonpos": position.tendon_position,
    "tendonvel": velocity.tendon_velocity,
    "tendonactfrc": acceleration.tendon_actuator_force,
    "tendonlimitpos": position.limit_position(TENDON_LIMITS),
    "tendonlimitvel": velocity.limit_velocity(TENDON_LIMITS),
    "tendonlimitfrc": acceleration.limit_force(TENDON_LIMITS),
    "framepos": position.frame_position,
    "framequat": position.frame_quaternion,
    "framexaxis": position.frame_axis(0),
    "frameyaxis": position.frame_axis(1),
    "framezaxis": position.frame_axis(2),
    "framelinvel": velocity.frame_linear,
    "frameangvel": velocity.frame_angular,
    "framelinacc": acceleration.frame_linear,
    "frameangacc": acceleration.frame_angular,
    "subtreecom": position.subtree_center,
    "subtreelinvel": velocity.subtree_linear,
    "subtreeangmom": velocity.subtree_angular,
    "insidesite": position.inside_site,
    "geomdist": ranges.gaps("distance"),
    "geomnormal": ranges.gaps("normal"),
    "geomfromto": ranges.gaps("fromto"),
    "contact": touching.contact,
    "e_potential": position.energy_of_position,
    "e_kinetic": velocity.energy_of_motion,
    "clock": position.clock,
}
FORCES = (
    "touch",
    "force",
    "torque",
    "jointlimitfrc",
    "tendonlimitfrc",
)  # types that always need the forces of constraints
UNCUT = ("contact", "geomfromto")  # types that know no cutoff of readings


def sensors(
    model: Model, state: State, ctrl=None, method: Method | None = None, *, names: tuple[str, ...] | str | None = None
) -> Readings:
    """What the file's sensors read, by name: `sensors(...)["gyro"]`, or all of them in `.flat`.

    Readings of accelerations and forces are those of the contact law: of `Soft` and `Adaptive` at this instant, as in
    MuJoCo, of laws of impulses the means over the step that begins here, (v⁺ − v)/h. Noise is not added.

    Args:
        model: the robot.
        state: where it is.
        ctrl: controls (nu,), or `Input` when more acts, or None for zero controls.
        method: the contact law, `Soft()` with the file's own options if left out.
        names: the sensors to read, all if left out. Others cost nothing, and take no part in derivatives.

    Raises:
        UnsupportedModelError: a sensor that is named, or later taken from the readings, cannot be read.
    """
    check(model, state, method)
    rows, layout = _chosen(model, names)
    if not len(rows):
        return Readings(jnp.zeros(0, state.q.dtype), layout)
    data = _sensors(model, state, as_input(model, ctrl), method or SOFT, tuple(rows.tolist()))
    return Readings(data, layout)


def _chosen(model: Model, names) -> tuple[np.ndarray, ReadingLayout]:
    """Rows of the sensors to read, in the file's order, and where their readings will stand."""
    layout = model.sensors.layout
    if names is None:
        wanted = np.ones(len(layout.names), bool)
    else:
        names = (names,) if isinstance(names, str) else names
        values.require(isinstance(names, tuple | list), "sensors", "names", names, "must be a tuple of names")
        for name in names:
            if name not in layout.names:
                listing = ", ".join(map(repr, layout.names)) or "none"
                raise InputError(f"No sensor {values.shown(name)} in {model!r}; sensors: {listing}.")
        wanted = np.isin(layout.names, list(names))
    lost = [k for k in np.flatnonzero(wanted) if layout.unread[k]]
    missing = tuple(f"sensor '{layout.names[k]}': {layout.unread[k]}" for k in lost)
    if missing and names is not None:
        raise UnsupportedModelError(list(missing), source=f"uk.sensors of '{model.name}'")
    rows = np.array([k for k in np.flatnonzero(wanted) if not layout.unread[k]], int)
    dim = layout.dim[rows]
    start = np.cumsum(dim) - dim
    found = tuple(layout.names[k] for k in rows)
    return rows, ReadingLayout(found, start, dim, missing, tuple(layout.names[k] for k in lost))


@compiled
def _sensors(model: Model, state: State, inputs: Input, method: Method, rows: tuple[int, ...]) -> Array:
    def read(model, state, inputs):
        scene = Scene(model, state, inputs, method)
        return _cut(model, np.array(rows), _read(scene, np.array(rows)))

    return of_one_world(read)(model, state, inputs)


class _Group(NamedTuple):
    """Sensors of one type, and where they stand among all that are read."""

    type: str
    places: np.ndarray
    forces: bool


def _groups(layout: SensorLayout, rows: np.ndarray) -> list[_Group]:
    """All types, those that need forces first: one solution serves the accelerations, too."""
    types = np.array([layout.type[k] for k in rows])
    found = []
    for word in dict.fromkeys(types.tolist()):
        places = np.flatnonzero(types == word)
        specs = layout.spec[rows[places]].tolist() if word == "contact" else []
        forces = word in FORCES or any(touching.needs_forces(*spec) for spec in specs)
        found.append(_Group(word, places, forces))
    return sorted(found, key=lambda group: not group.forces)


def _read(scene: Scene, rows: np.ndarray) -> Array:
    """Readings (n,) of sensors, in their order."""
    parts, where = [], []
    ends = np.cumsum(scene.layout.dim[rows])
    groups = _groups(scene.layout, rows)
    if any(group.forces for group in groups):
        _ = scene.loads
    for group in groups:
        read = READERS[group.type](scene, rows[group.places])
        for k, values_ in zip(group.places, read, strict=True) if isinstance(read, list) else ():
            parts.append(values_)
            where.append(int(ends[k]) + np.arange(-len(values_), 0))
        if not isinstance(read, list):
            width = read.shape[1]
            parts.append(read.reshape(-1))
            where.append((ends[group.places][:, None] - width + np.arange(width)).ravel())
    return pick(jnp.concatenate(parts), np.argsort(np.concatenate(where)))


def _cut(model: Model, rows: np.ndarray, data: Array) -> Array:
    """Readings within the cutoffs: real ones on both sides, positive ones from above."""
    layout = model.sensors.layout
    owner = np.repeat(rows, layout.dim[rows])
    real, positive = (
        np.array([layout.data[k] == word and layout.type[k] not in UNCUT for k in owner], bool)
        for word in ("real", "positive")
    )
    bound = model.sensors.cutoff[owner]
    cuts = bound > 0
    data = jnp.where(cuts & real & (data < -bound), -bound, data)
    return jnp.where(cuts & (real | positive) & (data > bound), bound, data)
