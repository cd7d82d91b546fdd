"""Values that a robot file may hold but that mean nothing, such as a mass of NaN or a negative friction.

Most would step, to numbers that look like a motion. What MuJoCo gives a meaning is left alone: negative solref and
stiffness, damping that drives, ranges without an end.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import mujoco
import numpy as np

from ukemi.model.tree import BALL, FREE


class Range(NamedTuple):
    """Values that make sense, and what to say of others."""

    holds: Callable[[np.ndarray], np.ndarray]
    meaning: str


FINITE = Range(np.isfinite, "must be finite")
POSITIVE = Range(lambda x: np.isfinite(x) & (x > 0), "must be finite and positive")
NOT_NEGATIVE = Range(lambda x: np.isfinite(x) & (x >= 0), "must be finite and not negative")
COUNT = Range(lambda x: x >= 0, "must not be negative")
A_NUMBER = Range(lambda x: ~np.isnan(x), "must be a number")
SOFTNESS = {"solref": FINITE, "solimp": FINITE}

# by element: prefix in MjModel, and the range of each attribute
ELEMENTS: dict[str, tuple[str, dict[str, Range]]] = {
    "body": (
        "body",
        {"pos": FINITE, "quat": FINITE, "ipos": FINITE, "iquat": FINITE, "gravcomp": FINITE}
        | {"mass": NOT_NEGATIVE, "inertia": NOT_NEGATIVE},
    ),
    "joint": (
        "jnt",
        {"pos": FINITE, "axis": FINITE, "stiffness": FINITE, "springyield": NOT_NEGATIVE, "margin": FINITE}
        | {"range": A_NUMBER, "actfrcrange": A_NUMBER, **SOFTNESS},
    ),
    "geom": (
        "geom",
        {"pos": FINITE, "quat": FINITE, "size": NOT_NEGATIVE, "friction": NOT_NEGATIVE, "solmix": NOT_NEGATIVE}
        | {"margin": FINITE, "gap": NOT_NEGATIVE, "adhesion": NOT_NEGATIVE, "surfacevel": FINITE, "fluid": FINITE}
        | SOFTNESS,
    ),
    "site": ("site", {"pos": FINITE, "quat": FINITE}),
    "pair": (
        "pair",
        {"friction": NOT_NEGATIVE, "margin": FINITE, "gap": NOT_NEGATIVE, "adhesion": NOT_NEGATIVE}
        | {"solreffriction": FINITE, **SOFTNESS},
    ),
    "equality": ("eq", {"data": FINITE, **SOFTNESS}),
    "tendon": ("tendon", {"springyield": NOT_NEGATIVE}),
    "actuator": (
        "actuator",
        {"gear": FINITE, "gainprm": FINITE, "biasprm": FINITE, "dynprm": FINITE}
        | {"ctrlrange": A_NUMBER, "forcerange": A_NUMBER, "actrange": A_NUMBER, "delay": NOT_NEGATIVE},
    ),
    "key": (
        "key",
        {"qpos": FINITE, "qvel": FINITE, "act": FINITE, "ctrl": FINITE}
        | {"mpos": FINITE, "mquat": FINITE, "time": FINITE},
    ),
}
DOFS = {"armature": NOT_NEGATIVE, "damping": FINITE, "frictionloss": NOT_NEGATIVE, **SOFTNESS}
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
OVERRIDE = {"o_margin": FINITE, "o_solref": FINITE, "o_solimp": FINITE, "o_friction": NOT_NEGATIVE}
LIMITS = {"jnt_range": "jnt_limited", "jnt_actfrcrange": "jnt_actfrclimited"}
LIMITS |= {f"actuator_{name}range": f"actuator_{name}limited" for name in ("ctrl", "force", "act")}


def meaningless(m: mujoco.MjModel) -> list[str]:
    """Every attribute of a compiled model whose value means nothing, with its element."""
    found = [*_options(m), *_coordinates(m), *_elements(m), *_limits(m), *_directions(m), *_filters(m), *_heights(m)]
    return [*dict.fromkeys(found or _derived(m))]


def _options(m) -> Iterator[str]:
    override = m.opt.enableflags & int(mujoco.mjtEnableBit.mjENBL_OVERRIDE)
    for name, allowed in (OPTIONS | OVERRIDE if override else OPTIONS).items():
        yield from _refused("option", name, np.atleast_1d(getattr(m.opt, name)), allowed)


def _elements(m) -> Iterator[str]:
    for element, (prefix, attributes) in ELEMENTS.items():
        for attribute, allowed in attributes.items():
            values = np.asarray(getattr(m, f"{prefix}_{attribute}"), float)
            values = values.reshape(len(values), int(np.prod(values.shape[1:])))
            for k in np.nonzero(~allowed.holds(values).all(-1))[0]:
                yield from _refused(_name(m, element, _owner(m, element, attribute, k)), attribute, values[k], allowed)


def _owner(m, element: str, attribute: str, k) -> int:
    """The element of a row: controls and outputs have rows of their own."""
    number = {"ctrlrange": m.actuator_ctrlnum, "gear": m.actuator_outnum}.get(attribute)
    return k if element != "actuator" or number is None else int(np.repeat(np.arange(m.nactuator), number)[k])


def _coordinates(m) -> Iterator[str]:
    """What belongs to degrees of freedom and to coordinates, by their joint."""
    for attribute, allowed in DOFS.items():
        values = np.asarray(getattr(m, f"dof_{attribute}"), float).reshape(m.nv, -1 if m.nv else 0)
        for k in np.nonzero(~allowed.holds(values).all(-1))[0]:
            yield from _refused(_name(m, "joint", m.dof_jntid[k]), attribute, values[k], allowed)
    for attribute, values in (("ref", m.qpos0), ("springref", m.qpos_spring)):
        for k in np.nonzero(~np.isfinite(values))[0]:
            joint = np.nonzero(m.jnt_qposadr <= k)[0][-1]
            yield from _refused(_name(m, "joint", joint), attribute, values[k : k + 1], FINITE)


def _limits(m) -> Iterator[str]:
    """Limits leave room between them; an end may be missing, which is infinite."""
    for field, flag in LIMITS.items():
        prefix, _, attribute = field.partition("_")
        low, high = np.array(getattr(m, field), float).reshape(-1, 2).T
        wrong = (low > high) | (low == np.inf) | (high == -np.inf)
        for k in np.nonzero(wrong & np.array(getattr(m, flag), bool))[0]:
            element = "joint" if prefix == "jnt" else "actuator"
            owner = _owner(m, element, attribute, k)
            yield f"{_name(m, element, owner)}: {attribute} goes from {low[k]:g} to {high[k]:g}; it must rise"


def _filters(m) -> Iterator[str]:
    """Time constants of activations that filter; one that steps towards its input by Euler's rule may not be zero."""
    ranges = {mujoco.mjtDyn.mjDYN_FILTER: POSITIVE, mujoco.mjtDyn.mjDYN_FILTEREXACT: NOT_NEGATIVE}
    for kind, allowed in ranges.items():
        for k in np.nonzero(m.actuator_dyntype == int(kind))[0]:
            yield from _refused(_name(m, "actuator", k), "time constant (dynprm)", m.actuator_dynprm[k, :1], allowed)
    for k in np.nonzero(m.actuator_gaintype == int(mujoco.mjtGain.mjGAIN_DCMOTOR))[0]:
        yield from _refused(_name(m, "actuator", k), "resistance (gainprm)", m.actuator_gainprm[k, :1], POSITIVE)


def _heights(m) -> Iterator[str]:
    """Height fields: sizes are a file's, but elevations may come from elsewhere."""
    for k in range(m.nhfield):
        first, name = m.hfield_adr[k], _name(m, "hfield", k)
        yield from _refused(name, "size", m.hfield_size[k], POSITIVE)
        data = np.asarray(m.hfield_data[first : first + m.hfield_nrow[k] * m.hfield_ncol[k]])
        yield from _refused(name, "elevation", data, FINITE)


def _directions(m) -> Iterator[str]:
    """Axes and quaternions have a direction. The compiler sees to that, but a compiled model may have been edited."""
    first = m.jnt_qposadr + 3 * (m.jnt_type == FREE)
    rows = [("body", "quat", m.body_quat), ("body", "iquat", m.body_iquat), ("geom", "quat", m.geom_quat)]
    rows += [("site", "quat", m.site_quat), ("joint", "axis", m.jnt_axis + (m.jnt_type <= BALL)[:, None])]
    for j in np.nonzero(m.jnt_type <= BALL)[0]:
        rows.append(("key", f"qpos of {_name(m, 'joint', j)}", m.key_qpos[:, first[j] : first[j] + 4]))
    for b in np.nonzero(m.body_mocapid >= 0)[0]:
        at = 4 * m.body_mocapid[b]
        rows.append(("key", f"mquat of {_name(m, 'body', b)}", m.key_mquat[:, at : at + 4]))
    for element, attribute, vectors in rows:
        for k in np.nonzero(~np.any(vectors, -1))[0]:
            yield f"{_name(m, element, k)}: {attribute} is zero; it must have a direction"


def _derived(m) -> Iterator[str]:
    """What the compiler computes from values that are finite: it overflows if they are beyond all measure."""
    inert = np.minimum(m.body_mass, m.body_inertia.min(-1))
    for b in np.nonzero(m.body_dofnum)[0]:
        if not (inert[m.body_weldid == b] > 0).any():
            yield f"{_name(m, 'body', b)}: mass or inertia is 0; of a body with joints they must be positive"
    for k in np.nonzero(~np.isfinite(m.dof_invweight0))[0]:
        joint = _name(m, "joint", m.dof_jntid[k])
        yield f"{joint}: its inverse weight is {m.dof_invweight0[k]:g}; masses, sizes and places must be of this world"
    for k in np.nonzero(~np.isfinite(m.body_invweight0).all(-1))[0]:
        yield f"{_name(m, 'body', k)}: its inverse weight is not finite; masses, sizes and places must be of this world"


def _refused(element: str, attribute: str, values: np.ndarray, allowed: Range) -> Iterator[str]:
    wrong = values[~allowed.holds(values)]
    if len(wrong):
        yield f"{element}: {attribute} is {wrong[0]:g}; it {allowed.meaning}"


def _name(m, element: str, k) -> str:
    name = mujoco.mj_id2name(m, getattr(mujoco.mjtObj, f"mjOBJ_{element.upper()}"), int(k))
    return f"{element} '{name}'" if name else f"{element} {int(k)}"
