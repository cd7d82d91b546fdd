"""Compiled programs are kept between processes."""

import subprocess
import sys
from pathlib import Path

import pytest

import ukemi as uk

CODE = """
import sys, jax, ukemi as uk
from jax._src import monitoring
hits = []
monitoring.register_event_listener(lambda name, **_: hits.append(name) if name.endswith("cache_hits") else None)
print(uk.enable_cache(sys.argv[1]))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)  # on a fast machine this program takes less
model = uk.load("cartpole")
state = jax.jit(uk.step)(model, uk.initial_state(model))
print(state.q.tolist(), len(hits))
"""


def run(folder: Path) -> list[str]:
    code = [sys.executable, "-c", CODE, str(folder)]
    return subprocess.run(code, capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_second_process_finds_what_the_first_compiled(tmp_path):
    place, first = run(tmp_path / "cache")
    kept = {path.name for path in Path(place).iterdir()}
    again, second = run(tmp_path / "cache")
    assert again == place and kept
    assert first.rpartition(" ")[0] == second.rpartition(" ")[0]
    assert int(first.rpartition(" ")[2]) == 0 < int(second.rpartition(" ")[2])


@pytest.fixture
def settings(monkeypatch):
    """What JAX would be told."""
    told = {}
    monkeypatch.setattr("jax.config.update", told.__setitem__)
    return told


def test_where_programs_are_kept(tmp_path, monkeypatch, settings):
    monkeypatch.setenv("UKEMI_CACHE", str(tmp_path / "own"))
    assert uk.enable_cache().parent == tmp_path / "own"
    assert uk.enable_cache(tmp_path / "given").parent == tmp_path / "given"
    monkeypatch.setenv("UKEMI_CACHE", "off")
    settings.clear()
    assert uk.enable_cache() is None and not settings
    monkeypatch.delenv("UKEMI_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert uk.enable_cache().parent == tmp_path / "home" / "ukemi"


def test_a_folder_that_cannot_be_made_is_refused(tmp_path, settings):
    (tmp_path / "file").write_text("")
    with pytest.raises(uk.InputError, match="file.*cannot be made.*UKEMI_CACHE=off"):
        uk.enable_cache(tmp_path / "file")
    assert not settings
