"""What a step depends on, in coordinates that a user would perturb, and random directions in these.

Rotations turn in their own frame, unit axes turn, everything else is added to. So quaternions stay of unit length, off
which a step means nothing.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.constraints.softness import MAX_IMPEDANCE, MIN_IMPEDANCE
from ukemi.maths import spatial
from ukemi.mechanics.kinematics import integrate
from ukemi.model.records import Input, Model, State

ROTATIONS = ("bodies.quat", "bodies.iquat", "geoms.quat", "sites.quat", "mocap_quat")
AXES = ("joints.axis",)
TIED = ("geoms.friction", "geoms.restitution", "geoms.solref")  # of two, one is taken: equal values move together
POSITIVE = (
    "bodies.mass", "bodies.inertia", "bodies.invweight", "joints.invweight", "geoms.size", "geoms.density",
    "geoms.solmix", "geoms.friction", "pairs.friction", "geoms.adhesion", "pairs.adhesion",
    "actuators.time_constant", "options.timestep",
)  # fmt: skip
UNFELT = ("keyframes.", "sensors.", "sites.size")
CLOSED = ("q", "v", "act", "ctrl")
STATE = (*CLOSED, "qfrc", "xfrc", "mocap_pos", "mocap_quat")


class Point(NamedTuple):
    """Everything that a step depends on."""

    model: Model
    state: State
    inputs: Input


def parameters(model: Model) -> dict[str, Array]:
    """Every array of the model by its name, such as `bodies.mass`, but for those that no step depends on."""
    named = {_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(model)}
    return {name: leaf for name, leaf in named.items() if not name.startswith(UNFELT)}


def _name(path) -> str:
    return ".".join(key.name for key in path)


def coordinates(point: Point) -> dict[str, tuple[int, ...]]:
    """Shapes of the coordinates of every group, empty groups left out."""
    state, inputs, tree = point.state, point.inputs, point.model.tree
    values = {"v": state.v, "act": state.act, **{name: getattr(inputs, name) for name in STATE[3:]}}
    values = {name: value for name, value in values.items() if value is not None} | parameters(point.model)
    shapes = {"q": (tree.nv,)} | {
        name: (*value.shape[:-1], 3) if name in ROTATIONS else value.shape for name, value in values.items()
    }
    return {name: shape for name, shape in shapes.items() if np.prod(shape)}


def move(point: Point, along: dict[str, Array]) -> Point:
    """The point moved by coordinates of `coordinates`."""

    def moved(name: str, value):
        if value is None or name not in along:
            return value
        shift = along[name]
        if name in ROTATIONS:
            return spatial.quat_integrate(value, shift)
        if name in AXES:
            return spatial.rotate(spatial.quat_exp(shift), value)
        return value + shift

    model, state, inputs = point
    model = jax.tree_util.tree_map_with_path(lambda path, leaf: moved(_name(path), leaf), model)
    q = integrate(model.tree, state.q, along["q"], 1.0) if "q" in along else state.q
    fresh = jnp.zeros_like(state.status)
    state = State(q, moved("v", state.v), moved("act", state.act), state.time, fresh, state.cache)
    fields = {name: moved(name, getattr(inputs, name)) for name in STATE[3:]}
    return Point(model, state, Input(**fields))


def draw_directions(point: Point, rng: np.random.Generator, states: int, each: int) -> tuple[list[str], dict]:
    """The group of every direction, and the directions (n, ...) of every group, zero outside of the own one."""
    shapes, values, owners = coordinates(point), parameters(point.model), []
    rows: dict[str, list[np.ndarray]] = {name: [] for name in shapes}
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        for k in range(min(size, states if name in STATE else each)):
            d = rng.normal(size=shape)
            if k % 2 and size > 2:  # one coordinate, or some
                keep = rng.permutation(size) < (1 if name in STATE else max(1, size // 3))
                d = d * keep.reshape(shape)
            if name not in STATE and name not in ROTATIONS + AXES:
                d = _scaled(name, d, np.asarray(values[name]), point.model)
            owners.append(name)
            rows[name].append(d)
    full, count = {}, 0
    for name, own in rows.items():
        full[name] = np.zeros((len(owners), *shapes[name]))
        full[name][count : count + len(own)] = own
        count += len(own)
    return owners, full


def _scaled(name: str, d: np.ndarray, value: np.ndarray, model: Model) -> np.ndarray:
    """A random direction in the units of a parameter, away from the bounds that the engine keeps it in."""
    used = np.abs(value[np.isfinite(value) & (value != 0)])
    size = float(np.sqrt(np.mean(used**2))) if len(used) else 1.0
    if name in TIED:  # one number for all entries of equal value, column by column
        for given, column in zip(value.reshape(len(value), -1).T, d.reshape(len(d), -1).T, strict=True):
            _, same = np.unique(given, return_inverse=True)
            column[:] = column[: same.max(initial=-1) + 1][same]
    if name == "bodies.products":
        d = d * np.asarray(model.bodies.inertia).min(-1, keepdims=True)
    else:
        d = d * np.where(np.isfinite(value), np.abs(value) + (0.0 if name in POSITIVE else 0.01 * size), 0.0)
    if "solimp" in name:
        bound = (value[..., :5] <= [MIN_IMPEDANCE, MIN_IMPEDANCE, 0, MIN_IMPEDANCE, 1]) | (
            value[..., :5] >= [MAX_IMPEDANCE, MAX_IMPEDANCE, np.inf, MAX_IMPEDANCE, np.inf]
        )
        d = np.where(bound, 0.0, d)
    if "solref" in name:  # at the least time constant that refsafe allows
        d = np.where(value == 2 * float(model.options.timestep), 0.0, d)
    return d
