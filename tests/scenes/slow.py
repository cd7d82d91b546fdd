"""What `make test` leaves to `make test-all`: tests and parameters marked slow, and nothing else."""

import pytest


def few(values, *quick):
    """Parameters of which only `quick` run in `make test`."""
    assert set(quick) <= set(values), quick
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]
