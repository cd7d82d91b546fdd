"""The Python block of docs/index.md runs, and its slope is that of the motion."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "index.md"


def test_page():
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    names: dict = {}
    exec(compile(block, str(PAGE), "exec"), names)
    ctrls, slope, reach = names["ctrls"], names["slope"], names["reach"]
    assert slope.shape == (50, 1)
    h = 1e-4
    assert abs((reach(ctrls + h) - reach(ctrls - h)) / (2 * h) - slope.sum()) < 1e-6 * abs(slope.sum())
