"""The Python blocks of docs/contact.md run, in order, and give what the page says."""

import numpy as np
import pytest

import ukemi as uk
from tests.scenes.pages import run, text_of

pytestmark = pytest.mark.slow  # a page compiles what other tests check


@pytest.fixture(scope="module")
def page():
    """All names of the page, after its blocks have run."""
    return run("contact.md")


def test_states_on_the_page(page):
    assert not page["states"].status.any() and np.abs(page["states"].v[-1]).max() < 0.1
    heights = np.asarray(page["fall"].q)[:, [2, 9]]
    assert heights.min() > 0.1 - 1e-9
    np.testing.assert_allclose(heights[40:].max(0) - 0.1, 0.5 * np.array([0.9, 0.3]) ** 2, atol=0.02)
    np.testing.assert_allclose(page["shot"].q[:, 2].min(), 0.0505, atol=1e-9)
    np.testing.assert_array_equal(page["balls"].geoms.restitution, [0.3, 0.9, 0.3])


def test_gradients_on_the_page(page):
    assert page["stuck"] == 0
    h = float(page["drone"].options.timestep)
    np.testing.assert_allclose(page["aware"], -(h**2) * 50 * 51 / 2, rtol=1e-9)  # of free flight


def test_fields_on_the_page():
    """The table of fields names every field with its default."""
    for name, value in vars(uk.LCP()).items():
        shown = {"gradient": "`uk.Exact()`", "ahead": "0.005 m", "explicit": "`False`"}.get(name, str(value))
        assert f"| `{name}` | {shown} |" in text_of("contact.md")
