"""The Python blocks of docs/hard_contact.md run, in order, and give what the page says."""

import re
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "hard_contact.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def page():
    """All names of the page, after its blocks have run."""
    names: dict = {}
    for block in BLOCKS:
        exec(compile(block, str(PAGE), "exec"), names)
    return names


def test_the_box_goes_the_way_that_it_was_pushed(page):
    assert not page["states"].status.any()
    np.testing.assert_allclose(page["y"] / page["x"], 0.2, atol=1e-6)


def test_gradients_of_what_is_not_moved_grow_with_kappa(page):
    slopes = np.asarray(page["slopes"])
    assert 1e-7 < slopes[0] < 3e-7 and (np.diff(slopes) > 0).all() and slopes[-1] < 1e-4
