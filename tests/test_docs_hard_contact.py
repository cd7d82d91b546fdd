"""The Python blocks of docs/hard_contact.md run, in order, and give what the page says."""

import numpy as np
import pytest

from tests.scenes.pages import run

pytestmark = pytest.mark.slow  # a page compiles what other tests check


@pytest.fixture(scope="module")
def page():
    """All names of the page, after its blocks have run."""
    return run("hard_contact.md")


def test_the_box_goes_the_way_that_it_was_pushed(page):
    assert not page["states"].status.any()
    np.testing.assert_allclose(page["y"] / page["x"], 0.2, atol=1e-6)


def test_gradients_of_what_is_not_moved_grow_with_kappa(page):
    slopes = np.asarray(page["slopes"])
    assert 1e-7 < slopes[0] < 3e-7 and (np.diff(slopes) > 0).all() and slopes[-1] < 1e-4


def test_momentum_is_kept_and_energy_oscillates(page):
    assert not page["flight"].status.any()
    momentum, energies = page["kept"].angular, page["energies"]
    assert page["spread"].max() < 1e-9 * np.linalg.norm(momentum[0])
    assert 1e-8 < np.ptp(energies) / energies[0] < 1e-2


def test_bodies_and_joints_say_the_same(page):
    again, thrown = page["again"], page["thrown"]
    np.testing.assert_allclose(again.q, thrown.q, atol=1e-10)
    np.testing.assert_allclose(again.v, thrown.v, atol=1e-10)
    assert not again.status
