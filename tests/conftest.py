"""Shared set-up of all tests, and how they are chosen.

`make test` runs what is not marked `slow`, `make test-all` everything. The mark says it, at a test or at parameters
(`tests.scenes.slow.few` marks all but some), and nothing else does. A test is slow if it takes more than about ten
seconds and repeats, on more models or states, what another test checks; its docstring says which where that is not
plain. Compiling is most of the time, so tests share programs: functions that are compiled once take the model as an
argument, and cases that differ in numbers alone are models of one layout.

Tests marked `optimized` are about rounding, and run in a process of their own with XLA as users have it
(UKEMI_TEST_OPTIMIZED=1); all others leave optimisations out. What tests share is in `tests/scenes`; none imports
another.
"""

import ctypes
import gc
import os
import sys
from pathlib import Path

# LAPACK's threads and those of a second test process wait for each other, ten times as long as they work.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
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

LINUX = sys.platform == "linux"
MAPS = 40_000  # of the 65,530 memory maps that Linux allows a process by default
# Of 4 kB each: 5 GB, or what leaves half of the memory to others beside two processes
PAGES = min(5 << 18, os.sysconf("SC_PHYS_PAGES") // 4) if LINUX else 0


def held(name: str, read) -> int:
    """What Linux says of this process; other systems say nothing."""
    if not LINUX:
        return 0
    with open(f"/proc/self/{name}", "rb") as file:
        return read(file)


def forget() -> None:
    """Drop all compiled programs, and give what they took back to the system, which glibc does only if told."""
    jax.clear_caches()
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)


# Compiled programs hold memory and up to hundreds of maps of it each, without which XLA crashes.


@pytest.fixture(autouse=True)
def leave_maps():
    yield
    if held("maps", lambda file: sum(1 for _ in file)) > MAPS:
        forget()


@pytest.fixture(autouse=True, scope="module")
def leave_memory():
    """Between modules alone, whose tests share programs."""
    yield
    if held("statm", lambda file: int(file.read().split()[1])) > PAGES:
        forget()
