"""The Python blocks of docs/tutorial.md run, in order, and reach what they are after."""

from pathlib import Path

import pytest

from tests.scenes.pages import run

pytestmark = pytest.mark.slow  # a page compiles what other tests check


def test_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run("tutorial.md")
    end = names["planned"]
    assert abs(end.q[-1, 0] - 0.4) < 2e-3 and abs(end.v[-1, 0]) < 2e-2
    assert abs(names["mu"] - 0.22) < 1e-3
    assert f"<title>{names['model'].name} · " in Path("out/sled.html").read_text()
