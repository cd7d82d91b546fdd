"""What every public function asks of a model before anything is traced, and what states of it look like.

An array of the wrong length would broadcast, and a state of another model would be stepped; both are refused here.
"""

import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ukemi import values
from ukemi.errors import InputError
from ukemi.model.records import Cache, Model, State
from ukemi.model.tree import Tree
from ukemi.values import Expected

Shapes = tuple[Expected, ...]
FIELDS: dict[str, Any] = Model.__annotations__
GROUPS = {name: record for name, record in FIELDS.items() if name not in ("tree", "name")}


def check_model(model: Model) -> None:
    """Refuse what is not a model, and one whose leaves were replaced by what does not fit its topology."""
    shapes(model)


# What states of a model look like, by the identity of models that were found good: no model ever changes.
_known: dict[int, tuple[weakref.ref, tuple[Shapes, Shapes]]] = {}


def shapes(model: Model) -> tuple[Shapes, Shapes]:
    """What the fields of a state and of its cache must hold."""
    key = id(model)
    found = _known.get(key)
    if found is not None and found[0]() is model:
        return found[1]
    dtype = _check_leaves(model)
    sizes = _sizes(model)
    needed = values.expected(State, sizes, dtype), values.expected(Cache, sizes, dtype)
    _known[key] = weakref.ref(model, lambda _: _known.pop(key, None)), needed
    return needed


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
        "ns": len(model.sites.layout.body),
        "np": (*np.shape(model.pairs.margin), 0)[0],  # no layout knows it: the fields must agree
        "ne": len(model.equalities.layout.type),
        "nu": model.nu,
        "na": model.na,
        "nm": model.nmocap,
        "nk": len(model.keyframes.names),
    }
    return tuple(sizes.items())
