"""Ranks by counting are those of a stable sort."""

import jax.numpy as jnp
import numpy as np
import pytest

from ukemi.maths import ranking
from ukemi.maths.ranking import FEW, ascending, parts, places, row_and_column, smallest, wrapped


@pytest.mark.parametrize("n", [1, 2, 35, FEW, FEW + 1])
def test_the_smallest_come_in_rising_order_and_equal_ones_in_theirs(n):
    rng = np.random.default_rng(n)
    few, ends = rng.integers(0, 4, n).astype(float), rng.choice([0.0, np.inf], n)
    for x in (rng.normal(size=n), few, ends, np.full(n, np.inf)):
        for k in {0, 1, n // 2, n}:
            np.testing.assert_array_equal(smallest(jnp.asarray(x), k), np.argsort(x, kind="stable")[:k])


def test_places_exist_even_among_numbers_that_are_not_numbers():
    places = np.asarray(smallest(jnp.array([jnp.nan, 1.0, jnp.nan, 0.0]), 4))
    assert ((places >= 0) & (places < 4)).all()


@pytest.mark.parametrize("turns", [True, False])
def test_places_of_what_is_true_and_the_last_one_beyond(turns, monkeypatch):
    monkeypatch.setattr(ranking, "takes_turns", lambda: turns)
    for mask in (*(np.random.default_rng(0).random((5, 9)) < 0.5), np.ones(9, bool), np.zeros(9, bool)):
        for k in (1, 4, 9, 12):
            want = [*np.flatnonzero(mask), *[8] * k][:k]
            np.testing.assert_array_equal(places(jnp.asarray(mask), k), want)


def test_parts_that_hold_a_count():
    for size in (1, 4):
        for count in range(10):
            assert parts(jnp.int32(count), size) == -(-count // size)


def test_three_numbers_in_rising_order():
    x = np.random.default_rng(0).integers(0, 3, (50, 3)).astype(float)
    np.testing.assert_array_equal(ascending(jnp.asarray(x)), np.sort(x, -1))


def test_places_in_a_ring_and_in_a_table():
    k = np.arange(24, dtype=np.int32)
    np.testing.assert_array_equal(wrapped(jnp.asarray(k), jnp.int32(5)), k % 5)
    places = np.stack([row_and_column(jnp.asarray(x), 6) for x in k], -1)
    np.testing.assert_array_equal(places, np.unravel_index(k, (4, 6)))
