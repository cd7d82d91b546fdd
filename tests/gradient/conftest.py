"""Each test of gradients runs once in the quick suite, with its first parameters; `make test-all` runs the rest."""

import pytest

QUICK = ("test_traps", "test_step_gradients")


def pytest_collection_modifyitems(items):
    seen = set()
    for item in items:
        if item.module.__name__.rpartition(".")[2] not in QUICK or item.get_closest_marker("slow"):
            continue
        test = item.module.__name__, item.originalname
        if test in seen:
            item.add_marker(pytest.mark.slow)
        seen.add(test)
