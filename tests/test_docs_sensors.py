"""The Python blocks of docs/sensors.md run, in order, and give what the page says."""

import numpy as np
import pytest

from tests.scenes.pages import run

pytestmark = pytest.mark.slow  # a page compiles what other tests check


def test_page():
    names = run("sensors.md")
    assert names["readings"].flat.shape == (8,) and names["seen"]["height"].shape == (100, 1)
    np.testing.assert_allclose(names["readings"]["height"], 0.0, atol=1e-9)
    assert np.isfinite(names["rigid"].flat).all()
