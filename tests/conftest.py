"""Shared set-up of all tests, and how they are chosen.

`make test` runs what is not marked `slow`, `make test-all` everything. The mark says it, at a test or at parameters
(`tests.scenes.slow.few` marks all but some), and nothing else does. A test is slow if it takes more than about ten
seconds and repeats, on more models or states, what another test checks; its docstring says which where that is not
plain. Compiling is most of the time, so tests share programs: functions that are compiled once take the model as an
argument, and cases that differ in numbers alone are models of one layout.

Tests marked `optimized` are about rounding, and run in a process of their own with XLA as users have it
(UKEMI_TEST_OPTIMIZED=1); all others leave optimisations out. What tests share is in `tests/scenes`; no test module
imports another.
"""

import gc
import os
from pathlib import Path

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
