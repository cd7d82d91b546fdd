"""A derivative that is not there yet raises; it is never a zero or a guess."""

import jax
import jax.numpy as jnp
import pytest

import ukemi as uk
from ukemi.errors import GradientError

BALL = """
<mujoco><worldbody>
  <geom type="plane" size="1 1 1"/>
  <body pos="0 0 .1"><freejoint/><geom size=".1"/></body>
</worldbody></mujoco>"""


@pytest.mark.parametrize("transform", [jax.grad, jax.jacfwd])
def test_differentiating_a_step_raises(transform):
    model = uk.load(BALL)
    state = uk.initial_state(model)

    def height(z):
        return uk.step(model, uk.initial_state(model, q=state.q.at[2].set(z))).q[2]

    with pytest.raises(GradientError, match="not there yet"):
        transform(height)(jnp.asarray(0.099))
    assert jnp.isfinite(height(0.099))
