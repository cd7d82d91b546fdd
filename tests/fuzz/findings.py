"""What the fuzzer reports."""

from typing import NamedTuple


class Finding(NamedTuple):
    """Something wrong that nothing told of."""

    where: str  # model, law and state, or the call: enough to make it again
    fault: str
