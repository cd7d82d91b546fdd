"""The Python blocks of docs/gradients.md run, in order, and give what the page says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.pages import blocks_of, run, text_of
from ukemi.model.records import as_input

BLOCKS = blocks_of("gradients.md")

pytestmark = pytest.mark.slow  # a page compiles what other tests check


@pytest.fixture(scope="module")
def page():
    """All names of the page, after its blocks have run; the one for PyTorch has a test of its own."""
    jax.config.update("jax_disable_most_optimizations", True)  # compiling is what takes time here
    yield run("gradients.md", [block for block in BLOCKS if "import torch" not in block])
    jax.config.update("jax_disable_most_optimizations", False)


def test_gradients_are_those_of_differences(page):
    model, ctrls, h = page["model"], page["ctrls"], 1e-5
    along = jnp.asarray(np.random.default_rng(0).normal(size=ctrls.shape))
    loss, misfit, damping = page["loss"], page["misfit"], model.joints.damping + 0.1
    expected = (loss(ctrls + h * along) - loss(ctrls - h * along)) / (2 * h)
    np.testing.assert_allclose((page["slope"] * along).sum(), expected, rtol=1e-6)
    expected = (misfit(damping + h) - misfit(damping - h)) / (2 * h)
    np.testing.assert_allclose(page["toward"].sum(), expected, rtol=1e-6)
    assert page["everything"].bodies.mass.shape == (model.tree.nb,)
    assert page["checkpointed"].shape == (200, model.nu) and page["hessian"].shape == (3, 1, 3, 1)


def test_numbers_on_the_page(page):
    model, lin, lins = page["model"], page["lin"], page["lins"]
    assert lin.A.shape == (4, 4) and lin.B.shape == (4, model.nu) and lins.A.shape == (3, 4, 4)
    assert lin.parameters["bodies.mass"].shape == (4, model.tree.nb)
    for mine, theirs in zip(jax.tree.leaves(lin.next), jax.tree.leaves(uk.step(model, page["start"], jnp.zeros(1)))):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_allclose(jax.grad(page["mass"])(0.1), 4 * np.pi * 0.1**2 * 500, rtol=1e-12)
    assert "62.8" in text_of("gradients.md")
    before, after = page["jump"](page["falling"]), page["jump"](uk.smooth_onset(page["falling"]))
    assert f"{before:.2f} and {after:.5f} m/s" in text_of("gradients.md")


def test_what_raises_on_the_page(page):
    model, start = page["model"], page["start"]
    with pytest.raises(uk.InputError, match="bodies.weight"):
        uk.linearize(model, start, wrt="bodies.weight")
    inputs = as_input(model, None)
    with pytest.raises(uk.GradientError, match="iterations"):
        inside = jax.grad(lambda v: uk.Soft().forward(model, uk.initial_state(model, v=v), inputs).tau.sum())
        jax.eval_shape(inside, start.v)


def test_the_block_of_pytorch(page):
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'ukemi[torch]'")
    (block,) = (block for block in BLOCKS if "import torch" in block)
    names = run("gradients.md", [block], dict(page))
    assert bool((names["effort"].grad != 0).any()) and bool((names["weights"].grad != 0).any())
