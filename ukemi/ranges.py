"""Values that a robot file may hold but that mean nothing, such as a mass of NaN or a negative friction.

Most would step, to numbers that look like a motion. What MuJoCo gives a meaning is left alone: negative solref and
stiffness, damping that drives, ranges without an end.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import mujoco
import numpy as np


class Range(NamedTuple):
    """Values that make sense, and what to say of others."""

    holds: Callable[[np.ndarray], np.ndarray]
    meaning: str


FINITE = Range(np.isfinite, "must be finite")
POSITIVE = Range(lambda x: np.isfinite(x) & (x > 0), "must be finite and positive")
NOT_NEGATIVE = Range(lambda x: np.isfinite(x) & (x >= 0), "must be finite and not negative")
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
        {"pos": FINITE, "axis": FINITE, "stiffness": FINITE, "margin": FINITE, "range": A_NUMBER}
        | {"actfrcrange": A_NUMBER, **SOFTNESS},
    ),
    "geom": (
        "geom",
        {"pos": FINITE, "quat": FINITE, "size": NOT_NEGATIVE, "friction": NOT_NEGATIVE, "solmix": NOT_NEGATIVE}
        | {"margin": FINITE, "gap": FINITE, **SOFTNESS},
    ),
    "site": ("site", {"pos": FINITE, "quat": FINITE}),
    "pair": ("pair", {"friction": NOT_NEGATIVE, "margin": FINITE, "gap": FINITE, "solreffriction": FINITE, **SOFTNESS}),
    "equality": ("eq", {"data": FINITE, **SOFTNESS}),
    "actuator": (
        "actuator",
        {"gear": FINITE, "gainprm": FINITE, "biasprm": FINITE, "dynprm": FINITE}
        | {"ctrlrange": A_NUMBER, "forcerange": A_NUMBER, "actrange": A_NUMBER},
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
}


def meaningless(m: mujoco.MjModel) -> list[str]:
    """Every attribute of a compiled model whose value means nothing, with its element."""
    return [*dict.fromkeys([*_options(m), *_coordinates(m), *_elements(m)])]


def _options(m) -> Iterator[str]:
    for name, allowed in OPTIONS.items():
        yield from _refused("option", name, np.atleast_1d(getattr(m.opt, name)), allowed)


def _elements(m) -> Iterator[str]:
    for element, (prefix, attributes) in ELEMENTS.items():
        for attribute, allowed in attributes.items():
            values = np.asarray(getattr(m, f"{prefix}_{attribute}"), float)
            values = values.reshape(len(values), int(np.prod(values.shape[1:])))
            for k in np.nonzero(~allowed.holds(values).all(-1))[0]:
                yield from _refused(_name(m, element, k), attribute, values[k], allowed)


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


def _refused(element: str, attribute: str, values: np.ndarray, allowed: Range) -> Iterator[str]:
    wrong = values[~allowed.holds(values)]
    if len(wrong):
        yield f"{element}: {attribute} is {wrong[0]:g}; it {allowed.meaning}"


def _name(m, element: str, k) -> str:
    name = mujoco.mj_id2name(m, getattr(mujoco.mjtObj, f"mjOBJ_{element.upper()}"), int(k))
    return f"{element} '{name}'" if name else f"{element} {int(k)}"
