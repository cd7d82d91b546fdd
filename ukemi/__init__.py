"""Ukemi: a differentiable rigid-body physics engine for robotics, on JAX."""

from ukemi.platform import set_xla_flags as _set_xla_flags

_set_xla_flags()

from ukemi.errors import (  # noqa: E402
    InputError,
    ModelFileError,
    StepError,
    UkemiError,
    UnsupportedModelError,
)
from ukemi.load import load  # noqa: E402
from ukemi.methods.soft import Soft  # noqa: E402
from ukemi.model import Input, Model, State, initial_state  # noqa: E402
from ukemi.simulate import contacts, energy, inverse, rollout, step, vector_field  # noqa: E402
from ukemi.status import Status, raise_if_failed  # noqa: E402

__all__ = [
    "Input",
    "InputError",
    "Model",
    "ModelFileError",
    "Soft",
    "State",
    "Status",
    "StepError",
    "UkemiError",
    "UnsupportedModelError",
    "contacts",
    "energy",
    "initial_state",
    "inverse",
    "load",
    "raise_if_failed",
    "rollout",
    "step",
    "vector_field",
]
