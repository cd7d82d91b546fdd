"""The Python blocks of docs/tutorial.md run, in order, and reach what they are after."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tutorial.md"


def test_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        exec(compile(block, str(PAGE), "exec"), names)
    end = names["planned"]
    assert abs(end.q[-1, 0] - 0.4) < 2e-3 and abs(end.v[-1, 0]) < 2e-2
    assert abs(names["mu"] - 0.22) < 1e-3
    assert "a planned stop" in Path("out/sled.html").read_text()
