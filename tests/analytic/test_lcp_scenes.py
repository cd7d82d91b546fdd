"""Contact that an optimiser must break or use: scenes of Nimble's evaluation, by the scripts of examples/."""

import numpy as np
import pytest

import catapult
import drone
import jump_worm
import ukemi as uk
from tests.scenes.rigid import last


@pytest.mark.slow
@pytest.mark.parametrize("name", ["drone", "platform"])
def test_complementarity_aware_gradients_take_off(name):
    """Nimble, VII-C, over 0.8 s: the exact gradient vanishes on the ground; the other lifts within 100 iterations."""
    scene = drone.SCENES[name]
    stuck = drone.descend(scene, drone.RULES["exact"], steps=80, iterations=3)
    assert stuck.slope < 1e-12 and np.abs(stuck.losses - stuck.losses[0]).max() < 1e-12
    lifted = drone.descend(scene, drone.RULES["complementarity-aware"], steps=80, iterations=100)
    assert lifted.slope > 0.01 and lifted.losses[0] == pytest.approx(stuck.losses[0])
    assert lifted.losses[-1] < 2.5e-3 and abs(lifted.heights[-1] - scene.targets[0]) < 0.05


@pytest.mark.slow
def test_a_catapult_hits_its_target():
    """Nimble, VII-D: 1 cm after a throw over 3 m, from random starts that miss it by more than 1 m."""
    states, shot = catapult.throw(iterations=100)
    uk.raise_if_failed(states)
    assert shot.losses[0] > 1 and shot.value < 1e-4
    cube = catapult.START + np.asarray(states.q[:, 3:5])
    assert np.linalg.norm(cube[-1] - catapult.TARGET) < 0.01 and cube[:, 1].min() > -0.65


@pytest.mark.slow
def test_a_worm_jumps():
    """Nimble, VII-D: above the 0.05 m that it reaches by stretching, and off the ground."""
    states, shot = jump_worm.jump(iterations=80)
    uk.raise_if_failed(states)
    assert shot.value < -0.2
    model = uk.load(jump_worm.FILE)
    lowest = uk.contacts(model, last(states), None, uk.LCP())
    assert not (lowest.active & (lowest.distance < 0.05)).any()
