"""A derivative that cannot be given raises; it is never a zero or a guess."""

import jax
import jax.numpy as jnp
import pytest

import ukemi as uk
from ukemi.errors import GradientError
from ukemi.model.records import as_input

BALL = """
<mujoco><worldbody>
  <geom type="plane" size="1 1 1"/>
  <body pos="0 0 .1"><freejoint/><geom size=".1"/></body>
</worldbody></mujoco>"""


@pytest.mark.parametrize("transform", [jax.grad, jax.jacfwd])
def test_differentiating_what_a_solver_did_raises(transform):
    model = uk.load(BALL)
    state = uk.initial_state(model)

    def push(z):
        there = uk.initial_state(model, q=state.q.at[2].set(z))
        return uk.Soft().forward(model, there, as_input(model, None)).solution.pull[2]

    with pytest.raises(GradientError, match="implicit rule"):
        transform(push)(jnp.asarray(0.099))
    assert jnp.isfinite(push(0.099))
