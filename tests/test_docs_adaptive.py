"""The Python blocks of docs/adaptive.md run, in order, and give what the page says."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.scenes.pages import run

pytestmark = pytest.mark.slow  # a page compiles what other tests check


def test_page():
    names = run("adaptive.md")
    height, h = names["height"], 1e-3  # far above where a rounding decides whether a step is accepted
    expected = (height(jnp.array([-1 + h])) - height(jnp.array([-1 - h]))) / (2 * h)
    np.testing.assert_allclose(names["slope"][0], expected, rtol=0.02)
    assert names["exact"].A[1, 1] == 1 > names["ahead"].A[1, 1] > 0
    assert names["rocking"][0] > 0.03 > 1e-4 > names["rocking"][1]
    np.testing.assert_array_equal(names["exact"].next.q, names["ahead"].next.q)
