"""What a fuzzer found."""

from typing import NamedTuple


class Finding(NamedTuple):
    """One failure, and how to see it again."""

    part: str
    seed: int
    what: str
    detail: str
    repro: str
