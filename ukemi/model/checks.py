"""What every public function asks of a model before anything is traced, and what states of it look like.

An array of the wrong length would broadcast, and a state of another model would be stepped; both are refused here.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ukemi import values
from ukemi.errors import InputError
from ukemi.model.records import Cache, Model, State
from ukemi.model.tree import Tree
from ukemi.values import Expected
from ukemi.xla.once import once

Shapes = tuple[Expected, ...]
FIELDS: dict[str, Any] = Model.__annotations__
GROUPS = {name: record for name, record in FIELDS.items() if name not in ("tree", "name")}


def check_model(model: Model) -> None:
    """Refuse what is not a model, and one whose leaves were replaced by what does not fit its topology."""
    shapes(model)


@once
def shapes(model: Model) -> tuple[Shapes, Shapes]:
    """What the fields of a state and of its cache must hold."""
    dtype, sizes = _check_leaves(model), _sizes(model)
    return values.expected(State, sizes, dtype), values.expected(Cache, sizes, dtype)


def _check_leaves(model: Model) -> np.dtype:
    """The dtype of a model, all of whose leaves must fit its topology."""
    if not isinstance(model, Model):
        raise InputError(f"model is {values.kind(model)}; uk.load(source) makes a model. It comes before the state.")
    if not isinstance(model.tree, Tree):
        raise InputError(f"model.tree is {values.kind(model.tree)}; a model keeps the topology that it came with.")
    for name, record in GROUPS.items():
        group = getattr(model, name)
        if not isinstance(group, record):
            raise InputError(f"model.{name} is {values.kind(group)}; it must be of type {record.__name__}.")
    step = model.options.timestep
    if not hasattr(step, "dtype") or not jnp.issubdtype(step.dtype, jnp.floating):
        raise InputError(f"model.options.timestep is {values.shown(step)}; it must be an array of floats.")
    dtype, sizes = jax.dtypes.canonicalize_dtype(step.dtype), _sizes(model)
    for name, record in GROUPS.items():
        needed = values.expected(record, sizes, dtype)
        values.check_fields(getattr(model, name), needed, f"model.{name}", f"the model {model.name!r}")
    return dtype


def _sizes(model: Model) -> tuple[tuple[str, int], ...]:
    """What the letters in the annotations of `ukemi.model.records` stand for."""
    tree = model.tree
    sizes = {
        "nb": tree.nb,
        "nj": tree.nj,
        "nq": tree.nq,
        "nv": tree.nv,
        "ng": len(model.geoms.layout.type),
        "nvert": (*np.shape(model.geoms.vertices), 0)[0],
        "nheight": int(model.heights.layout.first[-1]),
        "nfield": len(model.heights.layout.names),
        "ns": len(model.sites.layout.body),
        "np": (*np.shape(model.pairs.margin), 0)[0],  # no layout knows it: the fields must agree
        "ne": len(model.equalities.layout.type),
        "nt": len(model.tendons.layout.names),
        "nterm": len(model.tendons.layout.terms),
        "npulley": (*np.shape(model.tendons.divisor), 0)[0],
        "nact": model.actuators.layout.count,
        "nservo": len(model.servos.layout.actuator),
        "ndelay": int(model.delays.layout.owner.max(initial=-1)) + 1,
        "nu": model.nu,
        "na": model.na,
        "nm": model.nmocap,
        "nk": len(model.keyframes.names),
        "nsen": len(model.sensors.layout.names),
    }
    return tuple(sizes.items())
