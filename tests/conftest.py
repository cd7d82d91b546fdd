"""Shared set-up of all tests."""

import os

# Most of the tests' time goes into compiling programs that run for milliseconds. Tests marked `optimized` are about
# rounding, and run in a process of their own with XLA as users have it.
if os.environ.get("UKEMI_TEST_OPTIMIZED") != "1":
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"

import jax
import pytest

# Before any array is made: hard contact and comparisons to 1e-10 need it.
jax.config.update("jax_enable_x64", True)


MAPS = 20_000  # of the 65,530 memory maps that Linux allows a process by default


@pytest.fixture(autouse=True, scope="module")
def few_memory_maps():
    """Forget compiled programs in time: each holds up to hundreds of memory maps, and without any XLA crashes."""
    yield
    try:
        with open("/proc/self/maps", "rb") as maps:
            held = sum(1 for _ in maps)
    except FileNotFoundError:  # not on Linux
        return
    if held > MAPS:
        jax.clear_caches()
