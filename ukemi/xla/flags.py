"""XLA flags that Ukemi needs on CPU, set before the backend starts."""

import functools
import importlib.util
import os
import sys
import warnings
from pathlib import Path

# Three or more batched LAPACK calls in flight at once hang XLA's thread pool on machines with few cores; the
# scheduler that launches them together is switched off. The older fusion emitters run our many small fused
# operations faster and compile them in about half the time. Products of matrices of tens of rows are done where they
# are needed, by Eigen: handing them to YNNPACK or to other threads costs more than they do, a quarter of a step. LLVM's
# search for loads that repeat others took a quarter of the time that derivatives compile, and is worth nothing here. It
# would unroll inner loops of some 17 to 30 turns, as long as our rows, before it looks for vectors, and find none.
FLAGS = {
    "--xla_cpu_enable_concurrency_optimized_scheduler": "false",
    "--xla_cpu_use_fusion_emitters": "false",
    "--xla_cpu_multi_thread_eigen": "false",
    "--xla_cpu_experimental_ynn_fusion_type": "",
    "--xla_backend_extra_options": "-enable-gvn-memdep=false,-unroll-full-max-count=24",
}

# Versions of jaxlib with which all tests of compiled stages passed, and which of FLAGS each has no more.
TESTED: dict[str, tuple[str, ...]] = {
    "0.10.2": (),
    "0.11.2": ("--xla_cpu_use_fusion_emitters",),
    "0.12.0.1": ("--xla_cpu_use_fusion_emitters",),
}


def set_xla_flags() -> None:
    """Add FLAGS to XLA_FLAGS where the user has not chosen; UKEMI_KEEP_XLA_FLAGS=1 leaves everything alone."""
    if os.environ.get("UKEMI_KEEP_XLA_FLAGS") == "1":
        return
    current = os.environ.get("XLA_FLAGS", "")
    missing = [f"{name}={value}" for name, value in known_flags().items() if name not in current]
    if not missing:
        return
    if _backend_is_up():
        warnings.warn(
            "JAX was already running when ukemi was imported, so the XLA flags that keep batched simulation on CPU "
            f"from hanging could not be set. Import ukemi first, or set XLA_FLAGS='{' '.join(missing)}'.",
            stacklevel=3,
        )
        return
    os.environ["XLA_FLAGS"] = " ".join([current, *missing]).strip()


@functools.cache
def known_flags() -> dict[str, str]:
    """FLAGS that this jaxlib has: XLA ends the process at one that it does not know."""
    gone = TESTED.get(_version())
    if gone is None:
        library = _library()
        gone = [name for name in FLAGS if f"\0{name.removeprefix('--')}\0".encode() not in library]
    return {name: value for name, value in FLAGS.items() if name not in gone}


def _version() -> str:
    """jaxlib's, as its own file has it: to import `importlib.metadata` would take longer than all else here."""
    spec = importlib.util.spec_from_file_location("version", _jaxlib() / "version.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.__version__


def _library() -> bytes:
    """What XLA is in, or nothing where it is not found."""
    found = sorted(_jaxlib().glob("*jax_common*"), key=lambda path: path.stat().st_size)
    return found[-1].read_bytes() if found else b""


def _jaxlib() -> Path:
    """Its folder; it need not be imported."""
    spec = importlib.util.find_spec("jaxlib")
    assert spec and spec.origin
    return Path(spec.origin).parent


def _backend_is_up() -> bool:
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bool(bridge and getattr(bridge, "_backends", None))


def compiles_calls() -> bool:
    """Whether stages compile to one function each: with a jaxlib in TESTED, and XLA has the FLAGS that they need.

    XLA cannot compile YNNPACK's fusions in a call, and may abort on what a version that we do not know makes of one.
    """
    current = os.environ.get("XLA_FLAGS", "").split()
    needed = {"--xla_cpu_use_fusion_emitters", "--xla_cpu_experimental_ynn_fusion_type"}.intersection(known_flags())
    return all(f"{name}={FLAGS[name]}" in current for name in needed) and _is_tested()


@functools.cache
def _is_tested() -> bool:
    """Whether this jaxlib is known to compile stages, or the user says so; told once where it is not."""
    chosen = os.environ.get("UKEMI_STAGES", "").lower()
    if chosen in ("on", "off"):
        return chosen == "on"
    version = _version()
    if version in TESTED:
        return True
    warnings.warn(
        f"Ukemi was tested with jaxlib {', '.join(TESTED)}; with {version} it leaves out compiled stages, "
        "which make steps of small robots faster. UKEMI_STAGES=on takes them all the same, UKEMI_STAGES=off is silent.",
        stacklevel=2,
    )
    return False
