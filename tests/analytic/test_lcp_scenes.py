"""Contact that an optimiser must break or use: scenes of Nimble's evaluation, by the scripts of examples/."""

import numpy as np
import pytest

from examples import drone


@pytest.mark.parametrize("name", ["drone", "platform"])
def test_complementarity_aware_gradients_take_off(name):
    """Nimble, VII-C, over 0.8 s: the exact gradient vanishes on the ground; the other lifts within 100 iterations."""
    scene = drone.SCENES[name]
    stuck = drone.descend(scene, drone.RULES["exact"], steps=80, iterations=3)
    assert stuck.slope < 1e-12 and np.abs(stuck.losses - stuck.losses[0]).max() < 1e-12
    lifted = drone.descend(scene, drone.RULES["complementarity-aware"], steps=80, iterations=100)
    assert lifted.slope > 0.01 and lifted.losses[0] == pytest.approx(stuck.losses[0])
    assert lifted.losses[-1] < 2.5e-3 and abs(lifted.heights[-1] - scene.targets[0]) < 0.05
