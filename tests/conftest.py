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
PAGES = 3 << 18  # 3 GB


@pytest.fixture(autouse=True)
def forget_programs():
    """Drop compiled programs in time: each holds memory and up to hundreds of maps of it, without which XLA crashes."""
    yield
    try:
        with open("/proc/self/maps", "rb") as maps, open("/proc/self/statm") as sizes:
            maps, pages = sum(1 for _ in maps), int(sizes.read().split()[1])
    except FileNotFoundError:  # not on Linux
        return
    if maps > MAPS or pages > PAGES:
        jax.clear_caches()
