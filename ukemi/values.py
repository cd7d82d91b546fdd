"""What a user may pass: plain values and arrays, each refused by name where it is wrong.

Types, shapes and dtypes are known when a program is traced, so that looking at them costs a running program nothing;
numbers are looked at where they are known.
"""

import functools
import math
import numbers
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from ukemi.errors import InputError

REAL = jnp.floating, jnp.integer, np.bool_
SHOWN = 80  # characters of a wrong value that a message shows


def require(good: bool, call: str, name: str, value, meaning: str) -> None:
    """Refuse an argument of a call that is not good; meaning: what it must be."""
    if not good:
        raise InputError(f"{call}({name}={shown(value)}): {meaning}.")


def shown(value) -> str:
    """A wrong value as a message shows it."""
    text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def kind(value) -> str:
    """What a wrong value is, in a message."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "None" if value is None else f"of type {type(value).__name__}"


def check_number(call: str, name: str, value, good: Callable[[Any], bool], meaning: str) -> None:
    """Refuse an option that is no finite number, or not a good one."""
    require(is_number(value) and good(value), call, name, value, meaning)


def check_count(call: str, name: str, value, meaning: str = "must be a positive integer") -> None:
    """Refuse an option that is no positive integer, or does not fit into an int32."""
    require(is_count(value) and value < 2**31, call, name, value, meaning)


def check_choice(call: str, name: str, value, choices: tuple[str, ...]) -> None:
    """Refuse an option that is none of the words to choose from."""
    good = isinstance(value, str) and value in choices
    require(good, call, name, value, f"choose one of {', '.join(map(repr, choices))}")


def check_flag(call: str, name: str, value) -> None:
    """Refuse an option that is neither True nor False."""
    require(isinstance(value, bool | np.bool_), call, name, value, "must be True or False")


def check_suffix(call: str, path: Path, suffixes: tuple[str, ...]) -> None:
    """Refuse a file to write of a kind that cannot be written."""
    if path.suffix.lower() not in suffixes:
        raise InputError(f"{call} writes {', '.join(suffixes)} files; '{path}' has another suffix.")


def plain(value: Any) -> Any:
    """A number, such as one of NumPy, as Python's own, which has no dtype; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return value
    try:
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    except OverflowError:
        return value


def number_or_array(value: Any) -> Any:
    """A number as Python's own; of arrays, NumPy's as JAX's, so that they are traced; anything else as it is."""
    value = plain(value)
    return jnp.asarray(value) if isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.number) else value


def check_positive(call: str, name: str, value) -> None:
    """Refuse an option that is no positive number and no array of one; a traced one is not looked at."""
    if isinstance(value, Array):
        single = value.shape == () and jnp.issubdtype(value.dtype, jnp.floating)
        good = single and (isinstance(value, Tracer) or (bool(jnp.isfinite(value)) and bool(value > 0)))
    else:
        good = is_number(value) and value > 0
    require(good, call, name, value, "must be a positive number, or an array () of one")


def is_number(value) -> bool:
    """Whether it is a finite real number, not an array."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def is_count(value, least: int = 1) -> bool:
    """Whether it is an integer, not below the least."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= least


def array(name: str, value, dtype) -> Array:
    """Numbers, in an array or a list, as an array of the dtype.

    What is none, and where values are known NaN and infinity, is refused.
    """
    given = value
    try:
        if not isinstance(value, Array | np.ndarray):
            value = jnp.asarray(value)
        if value.dtype != dtype and not any(jnp.issubdtype(value.dtype, real) for real in REAL):
            raise InputError(f"{name} holds {value.dtype}; it must hold real numbers.")
        if not isinstance(value, Tracer) and not np.isfinite(_cast(value, dtype)).all():
            raise InputError(f"{name} holds NaN or infinity.")
        # a copy of NumPy's: JAX would share its memory, which may be written to before a step has read it
        return jnp.array(value, dtype) if isinstance(value, np.ndarray) else jnp.asarray(value, dtype)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise InputError(f"{name} is {kind(given)}, {shown(given)}; it must be an array of real numbers.") from error


def _cast(value, dtype):
    if value.dtype == dtype:
        return value
    with np.errstate(over="ignore"):  # to infinity
        return np.asarray(value, dtype)


def check_shape(name: str, shape: tuple, needed: tuple, whose) -> None:
    """Refuse an array's shape; letters in the one that is needed stand for any length."""
    same = len(shape) == len(needed) and all(isinstance(b, str) or a == b for a, b in zip(shape, needed, strict=True))
    if not same:
        hint = " Batches go through jax.vmap." if len(shape) > len(needed) else ""
        sizes = str(needed).replace("'", "")
        raise InputError(f"{name} has shape {tuple(shape)}; {whose} needs {sizes}.{hint}")


def check_turns(quats: Array, where: Callable[[int], str]) -> None:
    """Refuse quaternions (..., n, 4) of length zero where they are known; where: the place of the k-th."""
    if isinstance(quats, Tracer):
        return
    zero = ~np.asarray(quats).any(-1)
    if zero.any():
        k = int(np.nonzero(zero)[-1][0])
        raise InputError(f"{where(k)} is a zero quaternion, which is no rotation; 1 0 0 0 turns nothing.")


# ---- records of arrays, whose annotations say what they hold ---------------------------------------------------------


class Declared(typing.NamedTuple):
    """What an annotation such as Float[Array, "nb 3"] says of a field."""

    name: str
    dims: tuple[str, ...]
    dtypes: tuple[str, ...]


@functools.cache
def declared(record: type) -> tuple[Declared, ...]:
    """The fields of a record that hold arrays."""
    annotated: dict[str, Any] = record.__annotations__
    return tuple(
        Declared(name, tuple(hint.dim_str.split()), tuple(hint.dtypes))
        for name, hint in annotated.items()
        if hasattr(hint, "dim_str")
    )


class Expected(typing.NamedTuple):
    """What a field must hold."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype


@functools.lru_cache(1024)
def expected(record: type, sizes: tuple[tuple[str, int], ...], dtype: np.dtype) -> tuple[Expected, ...]:
    """What the fields of a record must hold, given what letters stand for; floats have the dtype."""
    size = dict(sizes)
    return tuple(
        Expected(
            field.name,
            tuple(int(d) if d.isdigit() else size[d] for d in field.dims),
            np.dtype(field.dtypes[0]) if len(field.dtypes) == 1 else dtype,
        )
        for field in declared(record)
    )


def check_fields(record, needed: tuple[Expected, ...], where: str, whose, remedy: str = "") -> None:
    """Refuse a record whose fields do not hold what is needed; remedy: a sentence that says what to do."""
    for name, shape, dtype in needed:
        value = getattr(record, name)
        try:
            if value.shape == shape and value.dtype == dtype:
                continue
        except AttributeError:
            pass
        _refuse_field(f"{where}.{name}", value, shape, dtype, whose, remedy)


def _refuse_field(name: str, value, shape: tuple, dtype: np.dtype, whose, remedy: str) -> None:
    if not eqx.is_array(value) and not isinstance(value, np.ndarray | np.generic):
        raise InputError(f"{name} is {kind(value)}; it must be an array {shape} of {dtype}.{remedy}")
    if value.shape != shape:
        many = len(value.shape) > len(shape) and value.shape[len(value.shape) - len(shape) :] == shape
        advice = " Batches go through jax.vmap, as in jax.vmap(uk.step, (None, 0, 0))." if many else remedy
        raise InputError(f"{name} has shape {value.shape}; {whose} needs {shape}.{advice}")
    if jax.dtypes.canonicalize_dtype(value.dtype) != dtype:
        raise InputError(f"{name} is {value.dtype}; {whose} needs {dtype}, and nothing is cast silently.{remedy}")
