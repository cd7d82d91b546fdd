"""Compiled programs on disk, so that a robot that was compiled once starts at once from then on."""

import hashlib
import os
import platform
import sys
from pathlib import Path

from ukemi.errors import InputError

VARIABLE = "UKEMI_CACHE"  # a folder, or "off"
SHORTEST = 0.3  # seconds of compiling that are worth a file


def enable_cache(folder: str | os.PathLike | None = None) -> Path | None:
    """Keep compiled programs in a folder, for this process and all later ones; return where they are.

    Programs are kept by what they compute, the versions of JAX and XLA, its flags and the processor, so that none is
    used where it does not fit. UKEMI_CACHE=off switches this off, and nothing is returned. The folder may be deleted
    at any time.

    Args:
        folder: where; left out, what the variable UKEMI_CACHE says, else `ukemi` in the user's folder for caches.
    """
    import jax

    chosen = cache_folder(folder)
    if chosen is None:
        return None
    place = chosen / _processor()
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remedy = f"give a folder that can be written, or set {VARIABLE}=off"
        raise InputError(f"enable_cache: {place} cannot be made ({error.strerror}); {remedy}.") from error
    jax.config.update("jax_compilation_cache_dir", str(place))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", SHORTEST)
    return place


def cache_folder(folder: str | os.PathLike | None = None) -> Path | None:
    """Where what can be made again is kept, which may not be there yet; None if nothing is to be kept."""
    chosen = os.environ.get(VARIABLE, "") if folder is None else os.fspath(folder)
    if folder is None and chosen.lower() in ("off", "0", "no"):
        return None
    return Path(chosen).expanduser() if chosen else _user_folder() / "ukemi"


def _user_folder() -> Path:
    """Where this system keeps what may be deleted."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _processor() -> str:
    """A name for the processor: programs use what it can do, and home folders are shared between machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        facts = sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    except OSError:  # not on Linux
        facts = [platform.processor()]
    digest = hashlib.sha256("\n".join([platform.machine(), *facts]).encode()).hexdigest()
    return f"{platform.machine() or 'cpu'}-{digest[:12]}"
