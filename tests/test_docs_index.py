"""The Python block of docs/index.md runs, and its slope is that of the motion."""

from tests.scenes.pages import blocks_of, run


def test_page():
    (block,) = blocks_of("index.md")
    names = run("index.md", [block])
    ctrls, slope, reach = names["ctrls"], names["slope"], names["reach"]
    assert slope.shape == (50, 1)
    h = 1e-4
    assert abs((reach(ctrls + h) - reach(ctrls - h)) / (2 * h) - slope.sum()) < 1e-6 * abs(slope.sum())
