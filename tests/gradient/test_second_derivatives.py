"""Second derivatives: right on smooth scenes, and refused where they would be wrong."""

# ruff: noqa: E501  XML reads better unbroken


import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.derivatives import ARMS, BALLS, FLOOR, PRECISE, outcome, place, quick, scene
from tests.scenes.slow import few
from ukemi.errors import GradientError

SMOOTH = {
    "pendulum": ('<body pos="0 0 1"><joint axis="0 1 0" damping=".1"/><geom size=".1" pos=".3 0 .1"/><body pos=".3 0 .1"><joint axis="1 .3 0" stiffness="2"/><geom size=".05" pos=".1 .2 0"/></body></body>', None),
    "ball joint": (BALLS.format(170), None),
    "rolling sphere": (FLOOR.format(".9 .02 .01") + '<body pos="0 0 .0996"><freejoint/><geom size=".1" condim="6" friction=".9 .02 .01"/></body>', [0.1, 0.02, 0, 0, 1, 0]),
    "two joined bodies": (ARMS.replace("<geom", '<geom contype="0" conaffinity="0"'), None),
}  # fmt: skip


def short_loss(name: str, steps: int):
    """Loss of a short rollout as a function of positions (tangent) and velocities, and where to take it."""
    body, v = SMOOTH[name]
    more = '<equality><connect body1="b" body2="c" anchor=".1 .05 .02"/></equality>' if name == "two joined bodies" else ""
    model = uk.load(scene(body, more=more))
    at = uk.initial_state(model, v=v if v is not None else 0.3 * np.arange(1.0, model.nv + 1))
    target = np.random.default_rng(3).normal(size=2 * model.nv)

    def loss(x):
        states = uk.rollout(model, place(model, at, x), jnp.zeros((steps, 0)), uk.Soft(**PRECISE))
        last = jax.tree.map(lambda leaf: leaf[-1], states)
        return ((outcome(model, last, at.q) - target) ** 2).sum()

    return loss, jnp.zeros(2 * model.nv)


@pytest.mark.parametrize("name", few(SMOOTH, "pendulum"))
def test_hessian_on_smooth_scenes(name):
    """Forward over reverse against differences of the gradient."""
    loss, zero = short_loss(name, steps=4)
    slope = quick(jax.grad(loss))
    H = np.asarray(quick(jax.hessian(loss))(zero))
    assert np.isfinite(H).all()
    np.testing.assert_allclose(H, H.T, atol=1e-8 * np.abs(H).max())
    h = 1e-5
    columns = [
        (8 * (slope(d) - slope(-d)) - (slope(2 * d) - slope(-2 * d))) / (12 * h) for d in h * np.eye(len(zero))
    ]
    np.testing.assert_allclose(H, np.array(columns).T, atol=1e-5 * np.abs(H).max())


def test_reverse_over_reverse_is_refused_and_not_wrong():
    loss, zero = short_loss("rolling sphere", steps=2)
    with pytest.raises(GradientError, match="forward mode over reverse"):
        jax.eval_shape(jax.grad(lambda x: jax.grad(loss)(x).sum()), zero)
