"""Facts of what never changes, found once."""

import functools
import weakref
from collections.abc import Callable
from typing import TypeVar

Thing = TypeVar("Thing")
Fact = TypeVar("Fact")


def once(function: Callable[[Thing], Fact]) -> Callable[[Thing], Fact]:
    """`function` of models or programs, which is evaluated once for each while it lives, by identity."""
    known: dict[int, tuple[weakref.ref, Fact]] = {}

    @functools.wraps(function)
    def recalled(thing: Thing) -> Fact:
        key = id(thing)
        found = known.get(key)
        if found is not None and found[0]() is thing:
            return found[1]
        fact = function(thing)
        known[key] = weakref.ref(thing, lambda _: known.pop(key, None)), fact
        return fact

    return recalled
