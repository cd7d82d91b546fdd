"""Where a step arrives: the next state, with what failed on the way, the same for every law."""

from jax import Array

from ukemi.implicit.rule import apart
from ukemi.laws.integrators import Moved
from ukemi.model.records import Cache, State
from ukemi.status import Status, bit, is_finite


def arrive(state: State, moved: Moved, duration: Array, solved, cache: Cache, failed: dict[Status, Array]) -> State:
    """The state a duration later.

    solved: whether all that was sought was found; cache: what is left for the next step; failed: what else may have.
    """
    # computed once, whoever looks at it: a rollout that stores it for its gradient must not round it differently
    q, v, act = apart(moved)
    finite = is_finite(q, v, act)
    status = state.status | bit(Status.NOT_FINITE, ~finite) | bit(Status.NOT_CONVERGED, ~solved & finite)
    for flag, happened in failed.items():
        status = status | bit(flag, happened)
    return State(q, v, act, state.time + duration, status, cache)
