"""Random trees and scenes: they load, run, agree with MuJoCo, have right derivatives and never fail silently.

`bench/random_scenes.py` goes over many more.
"""

import numpy as np
import pytest

from tests.scenes.random_scenes import check_slopes, follow
from tests.scenes.slow import few
from tests.scenes.structures import draw_structure


@pytest.mark.parametrize("seed", few(range(3), 0))
def test_random_scenes(seed):
    follow(draw_structure(np.random.default_rng(seed)), seed, 4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_slopes_of_random_scenes(seed):
    compared, whole = check_slopes(draw_structure(np.random.default_rng(seed)), seed, 5)
    assert compared > 0.5 * whole


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 50))
def test_a_thousand_random_scenes(seed):
    follow(draw_structure(np.random.default_rng(seed)), seed, 20)
