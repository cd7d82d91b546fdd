"""Shared set-up of all tests."""

import gc
import os
from pathlib import Path

# Most of the tests' time goes into compiling programs that run for milliseconds. Tests marked `optimized` are about
# rounding, and run in a process of their own with XLA as users have it.
if os.environ.get("UKEMI_TEST_OPTIMIZED") != "1":
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"

# What one process compiled, another finds, and a later run, too; a user's own folder is left alone.
os.environ.setdefault("UKEMI_CACHE", str(Path(__file__).resolve().parents[1] / "out" / "cache"))

import jax
import pytest

import ukemi as uk

# Before any array is made: hard contact and comparisons to 1e-10 need it.
jax.config.update("jax_enable_x64", True)
uk.enable_cache()


# Tracing makes millions of small objects, of which hardly any are garbage: looking for that took a tenth of the time.
gc.set_threshold(100_000, 20, 100)

MAPS = 20_000  # of the 65,530 memory maps that Linux allows a process by default
PAGES = 3 << 18  # 3 GB


def held(name: str, read) -> int:
    try:
        with open(f"/proc/self/{name}", "rb") as file:
            return read(file)
    except FileNotFoundError:  # not on Linux
        return 0


# Compiled programs hold memory and up to hundreds of maps of it each, without which XLA crashes.


@pytest.fixture(autouse=True)
def leave_maps():
    yield
    if held("maps", lambda file: sum(1 for _ in file)) > MAPS:
        jax.clear_caches()


@pytest.fixture(autouse=True, scope="module")
def leave_memory():
    """Between modules alone: what is freed does not always leave the process, and tests of a module share programs."""
    yield
    if held("statm", lambda file: int(file.read().split()[1])) > PAGES:
        jax.clear_caches()
