"""Which numbers a robot file may hold: one table of attributes and their ranges, looked up in the compiled model.

MuJoCo's compiler refuses some nonsense and lets the rest through: a NaN anywhere, a time step of zero, negative
friction. What MuJoCo gives a meaning to passes: negative `solref` (stiffness and damping themselves), impedances beyond
their bounds (clipped), infinite ranges (no limit), negative margins, stiffness and damping (they push away and drive).
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax.numpy as jnp
import mujoco
import numpy as np

from ukemi.errors import ModelFileError
from ukemi.tree import BALL, FREE, SLIDE


class Rule(NamedTuple):
    """What numbers must be."""

    holds: Callable  # values (n, k) -> (n,) or (n, k) bool
    words: str


FINITE = Rule(np.isfinite, "must be finite")
POSITIVE = Rule(lambda x: np.isfinite(x) & (x > 0), "must be positive and finite")
NOT_NEGATIVE = Rule(lambda x: np.isfinite(x) & (x >= 0), "must be finite and not negative")
COUNT = Rule(lambda x: x >= 0, "must not be negative")
NOT_NAN = Rule(lambda x: ~np.isnan(x), "must be numbers or infinite")
DIRECTION = Rule(lambda x: np.isfinite(x).all(-1) & x.any(-1), "must be finite and not all zero")
SHARE = Rule(lambda x: (x >= 0) & (x <= 1), "must be between 0 and 1")
DIMENSION = Rule(lambda x: np.isin(x, (1, 3, 4, 6)), "must be 1, 3, 4 or 6")

# Element of the file, and for each field of the compiled model: its attribute and what its numbers must be.
OPTIONS = {
    "timestep": POSITIVE,
    "gravity": FINITE,
    "impratio": POSITIVE,
    "density": NOT_NEGATIVE,
    "viscosity": NOT_NEGATIVE,
    "wind": FINITE,
    "iterations": COUNT,
    "ls_iterations": COUNT,
}
FIELDS = {
    "body": {
        "body_pos": ("pos", FINITE),
        "body_quat": ("orientation (quat, euler, axisangle, xyaxes, zaxis)", DIRECTION),
        "body_ipos": ("inertial pos", FINITE),
        "body_iquat": ("inertial orientation", DIRECTION),
        "body_mass": ("mass", NOT_NEGATIVE),
        "body_inertia": ("inertia", NOT_NEGATIVE),
        "body_gravcomp": ("gravcomp", FINITE),
    },
    "joint": {
        "jnt_pos": ("pos", FINITE),
        "jnt_axis": ("axis", DIRECTION),
        "jnt_stiffness": ("stiffness", FINITE),
        "dof_damping": ("damping", FINITE),
        "dof_armature": ("armature", NOT_NEGATIVE),
        "dof_frictionloss": ("frictionloss", NOT_NEGATIVE),
        "jnt_range": ("range", NOT_NAN),
        "jnt_actfrcrange": ("actuatorfrcrange", NOT_NAN),
        "jnt_margin": ("margin", FINITE),
        "jnt_solref": ("solreflimit", FINITE),
        "jnt_solimp": ("solimplimit", FINITE),
        "dof_solref": ("solreffriction", FINITE),
        "dof_solimp": ("solimpfriction", FINITE),
    },
    "geom": {
        "geom_pos": ("pos", FINITE),
        "geom_quat": ("orientation (quat, euler, axisangle, xyaxes, zaxis)", DIRECTION),
        "geom_size": ("size", NOT_NEGATIVE),
        "geom_condim": ("condim", DIMENSION),
        "geom_friction": ("friction", NOT_NEGATIVE),
        "geom_solref": ("solref", FINITE),
        "geom_solimp": ("solimp", FINITE),
        "geom_solmix": ("solmix", NOT_NEGATIVE),
        "geom_margin": ("margin", FINITE),
        "geom_gap": ("gap", FINITE),
    },
    "site": {
        "site_pos": ("pos", FINITE),
        "site_quat": ("orientation (quat, euler, axisangle, xyaxes, zaxis)", DIRECTION),
    },
    "pair": {
        "pair_dim": ("condim", DIMENSION),
        "pair_friction": ("friction", NOT_NEGATIVE),
        "pair_solref": ("solref", FINITE),
        "pair_solreffriction": ("solreffriction", FINITE),
        "pair_solimp": ("solimp", FINITE),
        "pair_margin": ("margin", FINITE),
        "pair_gap": ("gap", FINITE),
    },
    "equality": {
        "eq_data": ("anchor, relpose, torquescale or polycoef", FINITE),
        "eq_solref": ("solref", FINITE),
        "eq_solimp": ("solimp", FINITE),
    },
    "actuator": {
        "actuator_gear": ("gear", FINITE),
        "actuator_gainprm": ("gainprm", FINITE),
        "actuator_biasprm": ("biasprm", FINITE),
        "actuator_dynprm": ("dynprm (timeconst)", NOT_NEGATIVE),
        "actuator_ctrlrange": ("ctrlrange", NOT_NAN),
        "actuator_forcerange": ("forcerange", NOT_NAN),
        "actuator_actrange": ("actrange", NOT_NAN),
    },
    "key": {
        "key_qpos": ("qpos", FINITE),
        "key_qvel": ("qvel", FINITE),
        "key_act": ("act", FINITE),
        "key_ctrl": ("ctrl", FINITE),
        "key_mpos": ("mpos", FINITE),
        "key_mquat": ("mquat", FINITE),
        "key_time": ("time", FINITE),
    },
}
# What the compiler derived from the rest: it overflows where the rest is finite but beyond all measure.
DERIVED = {
    "body": {"body_invweight0": ("inverse weight, which follows from the masses and places of bodies,", FINITE)},
    "joint": {"dof_invweight0": ("inverse weight, which follows from the masses and places of bodies,", FINITE)},
}
LENGTHS = {"dynprm": 1, "gainprm": 3, "biasprm": 3, "eq_data": 11}  # further numbers have no effect here
LIMITED = {
    "jnt_range": "jnt_limited",
    "jnt_actfrcrange": "jnt_actfrclimited",
    "actuator_ctrlrange": "actuator_ctrllimited",
    "actuator_forcerange": "actuator_forcelimited",
    "actuator_actrange": "actuator_actlimited",
}


def require(m: mujoco.MjModel, title: str, restitution: dict[str, np.ndarray]) -> None:
    """Raise one ModelFileError that names every element and attribute whose numbers make no sense.

    restitution: of each "geom" and "pair".
    """
    finders = _options(m), _fields(m, FIELDS), _ranges(m), _moving(m), _quaternions(m), _references(m)
    found = [line for finder in finders for line in finder]
    found += [line for kind, x in restitution.items() for line in _offences(m, kind, "restitution", SHARE, x)]
    found = list(dict.fromkeys(found or _fields(m, DERIVED)))  # the dofs of a joint share what the file says of it
    if not found:
        return
    listing = "\n".join(f"  - {line}" for line in found)
    raise ModelFileError(f"{title} holds {len(found)} value(s) without a meaning:\n{listing}\nCorrect them there.")


def _options(m) -> Iterator[str]:
    for name, rule in OPTIONS.items():
        values = _values(np.array(getattr(m.opt, name)).reshape(1, -1))
        if not rule.holds(values).all():
            yield f"option: {name} {rule.words}, not {_written(values[0])}"


def _fields(m, tables: dict) -> Iterator[str]:
    for kind, table in tables.items():
        for field, (attribute, rule) in table.items():
            owners = m.dof_jntid if field.startswith("dof_") else None
            yield from _offences(m, kind, attribute, rule, _field(m, field), owners)


def _field(m, field: str) -> np.ndarray:
    values = getattr(m, field)
    length = next((n for end, n in LENGTHS.items() if field.endswith(end)), None)
    if field == "jnt_axis":
        values = np.where((m.jnt_type >= SLIDE)[:, None], values, 1.0)  # others have none
    if field.startswith("eq_"):
        values = np.where(np.array(m.eq_active0, bool)[:, None], values, 0.0)  # the others never act
    return values if length is None else values[:, :length]


def _offences(m, kind: str, attribute: str, rule: Rule, values, owners=None) -> Iterator[str]:
    """Sentences about rows of values, which belong to the elements of that kind one by one or to the given owners."""
    values = np.asarray(values)
    values = _values(values.reshape(len(values), int(np.prod(values.shape[1:]))))
    holds = np.asarray(rule.holds(values)).reshape(len(values), -1) if values.size else np.ones((len(values), 1), bool)
    for k in np.flatnonzero(~holds.all(-1)).tolist():
        name = _name(m, kind, k if owners is None else owners[k])
        yield f"{name}: {attribute} {rule.words}, not {_written(values[k])}"


def _values(given) -> np.ndarray:
    """The numbers as the model will hold them: in float32 what is too large is infinite, what is too small is zero."""
    given = np.asarray(given)
    if given.dtype.kind != "f":
        return given
    with np.errstate(over="ignore"):
        return given.astype(jnp.zeros(()).dtype).astype(np.float64)


def _ranges(m) -> Iterator[str]:
    for field, flag in LIMITED.items():
        low, high = np.array(getattr(m, field), np.float64).reshape(-1, 2).T
        kind = "joint" if field.startswith("jnt") else "actuator"
        for k in np.flatnonzero(
            np.array(getattr(m, flag), bool) & ((low > high) | (low == np.inf) | (high == -np.inf))
        ).tolist():
            yield f"{_name(m, kind, k)}: {FIELDS[kind][field][0]} must rise, not go from {low[k]:g} to {high[k]:g}"


def _moving(m) -> Iterator[str]:
    """Bodies with joints need a mass and an inertia: their own, or those of a body that is fixed to them."""
    inert = _values(np.minimum(m.body_mass, m.body_inertia.min(-1)))
    for b in np.flatnonzero(m.body_dofnum).tolist():
        if np.isfinite(inert[m.body_weldid == b]).all() and not (inert[m.body_weldid == b] > 0).any():
            yield f"{_name(m, 'body', b)}: moves, so its mass and inertia must be positive"


def _quaternions(m) -> Iterator[str]:
    """Orientations of ball and free joints and of mocap bodies must not be zero."""
    first = m.jnt_qposadr + 3 * (m.jnt_type == FREE)
    for j in np.flatnonzero(m.jnt_type <= BALL).tolist():
        at = slice(first[j], first[j] + 4)
        if not m.qpos0[at].any():
            yield f"{_name(m, 'joint', j)}: its orientation in qpos0 must not be all zero"
        for k in range(m.nkey):
            if not m.key_qpos[k, at].any():
                yield f"{_name(m, 'key', k)}: qpos of {_name(m, 'joint', j)} must not hold an all zero quaternion"
    for b in np.flatnonzero(m.body_mocapid >= 0).tolist():
        at = slice(4 * m.body_mocapid[b], 4 * m.body_mocapid[b] + 4)
        for k in range(m.nkey):
            if not m.key_mquat[k, at].any():
                yield f"{_name(m, 'key', k)}: mquat of {_name(m, 'body', b)} must not be all zero"


def _references(m) -> Iterator[str]:
    """Coordinates of the initial pose and of springs at rest."""
    for field, attribute in (("qpos0", "ref"), ("qpos_spring", "springref")):
        values = _values(getattr(m, field))
        for j in range(m.njnt):
            end = m.jnt_qposadr[j + 1] if j + 1 < m.njnt else m.nq
            own = values[m.jnt_qposadr[j] : end]
            if not np.isfinite(own).all():
                yield f"{_name(m, 'joint', j)}: {attribute} must be finite, not {_written(own)}"


def _written(values) -> str:
    return " ".join(f"{x:g}" for x in values)


def _name(m, kind: str, k: int) -> str:
    """ "kind 'name'", or the number of a nameless element."""
    name = mujoco.mj_id2name(m, getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}"), int(k))
    return f"{kind} '{name}'" if name else f"{kind} {k}"
