"""Ukemi: a differentiable rigid-body physics engine for robotics, on JAX.

Public names are imported when they are first used (PEP 562), so that `ukemi --help` need not wait for JAX.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING

from ukemi.xla.flags import set_xla_flags as _set_xla_flags

_set_xla_flags()

if TYPE_CHECKING:
    from ukemi.checking.report import GradientReport, check_gradients
    from ukemi.errors import (
        GradientError,
        InputError,
        ModelFileError,
        StepError,
        UkemiError,
        UnsupportedModelError,
    )
    from ukemi.files.loading import load
    from ukemi.files.refreshing import refresh
    from ukemi.implicit.rules import Bounce, CentralPath, ComplementarityAware, Exact, FromDistance
    from ukemi.laws.adaptive.law import Adaptive
    from ukemi.laws.conic.maximal import Maximal
    from ukemi.laws.conic.ncp import NCP
    from ukemi.laws.rigid.impact import Impact
    from ukemi.laws.rigid.lcp import LCP
    from ukemi.laws.soft.law import Soft
    from ukemi.mechanics.maximal import MaximalState
    from ukemi.model.records import Input, Model, State
    from ukemi.observe.frames import Frames, frames
    from ukemi.observe.readings import Readings
    from ukemi.observe.sensors import sensors
    from ukemi.simulate.coordinates import maximal_state, minimal_state
    from ukemi.simulate.linearization import Linearization, linearize
    from ukemi.simulate.smoothing import smooth_collisions, smooth_onset
    from ukemi.simulate.stepping import contacts, energy, initial_state, inverse, momentum, rollout, step, vector_field
    from ukemi.status import Status, raise_if_failed
    from ukemi.view.motion import plot, save_replay
    from ukemi.xla.cache import enable_cache

__all__ = [
    "LCP",
    "NCP",
    "Adaptive",
    "Bounce",
    "CentralPath",
    "ComplementarityAware",
    "Exact",
    "Frames",
    "FromDistance",
    "Impact",
    "GradientError",
    "GradientReport",
    "Input",
    "InputError",
    "Linearization",
    "Maximal",
    "MaximalState",
    "Model",
    "ModelFileError",
    "Readings",
    "Soft",
    "State",
    "Status",
    "StepError",
    "UkemiError",
    "UnsupportedModelError",
    "check_gradients",
    "contacts",
    "enable_cache",
    "energy",
    "frames",
    "initial_state",
    "inverse",
    "linearize",
    "load",
    "maximal_state",
    "minimal_state",
    "momentum",
    "plot",
    "raise_if_failed",
    "refresh",
    "rollout",
    "save_replay",
    "sensors",
    "smooth_collisions",
    "smooth_onset",
    "step",
    "vector_field",
]

_HOMES = {
    "ukemi.files.refreshing": ("refresh",),
    "ukemi.errors": (
        "GradientError",
        "InputError",
        "ModelFileError",
        "StepError",
        "UkemiError",
        "UnsupportedModelError",
    ),
    "ukemi.checking.report": ("GradientReport", "check_gradients"),
    "ukemi.simulate.linearization": ("Linearization", "linearize"),
    "ukemi.files.loading": ("load",),
    "ukemi.laws.adaptive.law": ("Adaptive",),
    "ukemi.laws.conic.maximal": ("Maximal",),
    "ukemi.laws.conic.ncp": ("NCP",),
    "ukemi.laws.rigid.impact": ("Impact",),
    "ukemi.laws.rigid.lcp": ("LCP",),
    "ukemi.laws.soft.law": ("Soft",),
    "ukemi.mechanics.maximal": ("MaximalState",),
    "ukemi.model.records": ("Input", "Model", "State"),
    "ukemi.observe.frames": ("Frames", "frames"),
    "ukemi.observe.readings": ("Readings",),
    "ukemi.observe.sensors": ("sensors",),
    "ukemi.implicit.rules": ("Bounce", "CentralPath", "ComplementarityAware", "Exact", "FromDistance"),
    "ukemi.simulate.coordinates": ("maximal_state", "minimal_state"),
    "ukemi.simulate.stepping": (
        "contacts",
        "energy",
        "initial_state",
        "inverse",
        "momentum",
        "rollout",
        "step",
        "vector_field",
    ),
    "ukemi.simulate.smoothing": ("smooth_collisions", "smooth_onset"),
    "ukemi.status": ("Status", "raise_if_failed"),
    "ukemi.view.motion": ("plot", "save_replay"),
    "ukemi.xla.cache": ("enable_cache",),
}
# A name must not be that of a module of this package: importing the module would put it in the name's place.
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str):
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value  # found at once from now on
        return value
    if name == "__version__":
        from importlib import metadata

        return metadata.version(__name__)
    module = f"{__name__}.{name}"
    if not name.startswith("_") and importlib.util.find_spec(module):
        return importlib.import_module(module)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
