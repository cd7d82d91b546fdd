"""Shared set-up of all tests."""

import os

# Most of the tests' time goes into compiling programs that run for milliseconds. Tests marked `optimized` are about
# rounding, and run in a process of their own with XLA as users have it.
if os.environ.get("UKEMI_TEST_OPTIMIZED") != "1":
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"

import jax

# Before any array is made: hard contact and comparisons to 1e-10 need it.
jax.config.update("jax_enable_x64", True)
