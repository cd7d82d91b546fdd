"""Gathers at constant positions: numpy's values, and transposes that are those of products with masks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ukemi.maths.gathers import pick, pick_rows

RNG = np.random.default_rng(0)
PLACES = {"each once": [3, 0, 4], "some often": [2, 2, 2, 2, 0], "none": [], "tables": [[0, 4], [4, 1]]}


@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
def test_entries_and_their_transposes(places):
    index, a, batch = np.array(places, int), RNG.normal(size=(2, 5)), RNG.normal(size=(3, 2, 5))
    found, pull = jax.vjp(lambda a: pick(a, index), a)
    np.testing.assert_array_equal(found, a[:, index])
    np.testing.assert_array_equal(jax.vmap(lambda a: pick(a, index))(batch), batch[..., index])
    back = RNG.normal(size=found.shape)
    mask = (index.reshape(-1, 1) == np.arange(5)).astype(float)
    np.testing.assert_allclose(pull(jnp.asarray(back))[0], back.reshape(2, -1) @ mask, atol=1e-14)


@pytest.mark.parametrize("shape", [(5,), (5, 2), (5, 2, 3), (5, 0)], ids=str)
@pytest.mark.parametrize("places", [[3, 0, 4], [2, 2, 2, 2, 0], []], ids=str)
def test_rows_and_their_transposes(shape, places):
    index, a, batch = np.array(places, int), RNG.normal(size=shape), RNG.normal(size=(3, *shape))
    found, pull = jax.vjp(lambda a: pick_rows(a, index), a)
    np.testing.assert_array_equal(found, a[index])
    np.testing.assert_array_equal(jax.vmap(lambda a: pick_rows(a, index))(batch), batch[:, index])
    back, own = RNG.normal(size=found.shape), np.arange(5)[:, None] == index
    np.testing.assert_allclose(pull(jnp.asarray(back))[0], np.tensordot(own.astype(float), back, 1), atol=1e-14)


@pytest.mark.parametrize("place", [-1, 5])
@pytest.mark.parametrize("function", [pick, pick_rows])
def test_positions_that_are_not_there_are_refused(function, place):
    """XLA takes the nearest entry instead."""
    with pytest.raises(IndexError, match=f"{place}"):
        function(jnp.ones((5, 5)), np.array([0, place]))
