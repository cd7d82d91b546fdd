"""Failure bits of `State.status`, each a sentence for the user."""

import enum
import functools

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from ukemi.errors import InputError, StepError
from ukemi.values import kind


class Status(enum.IntFlag):
    """Why a simulated state should not be trusted.

    Attributes:
        OK: nothing is wrong.
        NOT_CONVERGED: the constraint solver did not converge.
        CONTACT_OVERFLOW: more contacts arose than the model can hold, and the farthest were dropped.
        NOT_FINITE: a position, velocity or activation is infinite or NaN.
        TOO_MANY_IMPACTS: more impacts followed each other in a step than `uk.Impact` resolves; the motion stopped.
        STEPS_EXHAUSTED: `uk.Adaptive` ran out of steps before the end of a time step; the motion is cut short.
        FAR_OVERFLOW: more contacts lay within the width of `uk.FromDistance` than the model can hold; gradients see
            only the nearest.
        SEARCH_UNFINISHED: which features of two meshes touch was not found in as many turns as there may be.
    """

    OK = 0
    NOT_CONVERGED = 1
    CONTACT_OVERFLOW = 2
    NOT_FINITE = 4
    TOO_MANY_IMPACTS = 16
    STEPS_EXHAUSTED = 256
    FAR_OVERFLOW = 512
    SEARCH_UNFINISHED = 1024


SENTENCES = {
    Status.NOT_CONVERGED: "the constraint solver did not converge; raise its iterations, soften the contacts or keep "
    "closed loops from singular configurations",
    Status.CONTACT_OVERFLOW: "more contacts arose than the model can hold and the farthest were dropped; "
    "load it with a larger `contacts=`",
    Status.TOO_MANY_IMPACTS: "more impacts followed each other in a step than the law resolves, and the motion stopped "
    "at the last; reduce the time step or raise `impacts=`",
    Status.FAR_OVERFLOW: "more contacts lay within the width of FromDistance than the model can hold, so gradients see "
    "only the nearest; load the model with a larger `contacts=` or lessen the width",
    Status.STEPS_EXHAUSTED: "the adaptive integrator ran out of steps before the end of a time step, and the motion is "
    "cut short; raise its max_steps or its tolerances, shorten the time step or soften the contacts",
    Status.SEARCH_UNFINISHED: "a search for what of two meshes touches did not end, and a contact may be off; look for "
    "meshes that are much too large, or flat and deep in others",
    Status.NOT_FINITE: "a position, velocity or activation is infinite or NaN; look for NaN and negative masses among "
    "parameters and for NaN in controls, reduce the time step or the forces",
}


def bit(flag: Status, failed: Array | bool) -> Array:
    """The bit as an int32 where `failed` is true."""
    return jnp.where(failed, jnp.int32(flag.value), jnp.int32(0))


def is_finite(*parts: Array) -> Array:
    """Whether all numbers of some arrays are finite."""
    return functools.reduce(jnp.logical_and, [jnp.isfinite(x).all() for x in parts])


def explain(status) -> list[str]:
    """Sentences for the bits that are set anywhere in an array of status values."""
    bits = int(np.bitwise_or.reduce(np.asarray(status).ravel(), initial=0))
    return [sentence for flag, sentence in SENTENCES.items() if bits & flag]


def raise_if_failed(states) -> None:
    """Raise one StepError that names every failure in the states (any leading axes), and when it first happened."""
    status, time = (getattr(states, name, None) for name in ("status", "time"))
    if isinstance(status, Tracer):
        raise InputError("raise_if_failed reads the values of a finished simulation: call it outside jax.jit and vmap.")
    status, time = np.asarray(status), np.asarray(time)
    if status.dtype.kind not in "iu" or time.dtype.kind != "f" or time.shape not in ((), status.shape):
        raise InputError(f"raise_if_failed needs states, as uk.step makes them; given is an object {kind(states)}.")
    reasons = explain(status)
    if not reasons:
        return
    flat, times = status.ravel(), np.broadcast_to(time, status.shape).ravel()
    first = times[np.nonzero(flat)[0]].min()
    share = f" in {np.count_nonzero(flat)} of {flat.size} states" if flat.size > 1 else ""
    raise StepError(f"The simulation failed{share}, first at t = {first:.6g} s: " + "; ".join(reasons) + ".")
