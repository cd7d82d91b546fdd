"""On a GPU, where worlds run in lockstep: what the processor makes of them. Skipped where JAX finds none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk

pytestmark = pytest.mark.skipif(jax.default_backend() != "gpu", reason="JAX finds no GPU")

LAWS = [uk.Soft(), uk.LCP(), uk.Impact(), uk.NCP(), uk.Maximal(), uk.Adaptive()]


@pytest.fixture(scope="module")
def worlds():
    """A hopper that has fallen over, with several speeds."""
    with jax.default_device(jax.devices("cpu")[0]):
        model = uk.load("hopper")
        state = jax.tree.map(lambda x: x[-1], uk.rollout(model, uk.initial_state(model), jnp.zeros((300, model.nu))))
    model, state = jax.device_get((model, state))
    speeds = state.v + 0.1 * np.random.default_rng(0).normal(size=(3, model.nv))
    return model, state, speeds


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
@pytest.mark.parametrize("what", ["step", "gradient", "linearize"])
def test_worlds_in_lockstep_are_those_of_the_processor(worlds, law, what):
    model, state, speeds = worlds

    def at(v):
        return uk.State(state.q, v, state.act, state.time, state.status, state.cache)

    def step(v):
        after = uk.step(model, at(v), method=law)
        return after.q, after.v, after.status

    def gradient(v):
        return jax.grad(lambda v: (uk.rollout(model, at(v), jnp.zeros((3, model.nu)), law).q[-1] ** 2).sum())(v)

    def linearize(v):
        found = uk.linearize(model, at(v), method=law)
        return found.A, found.B

    run = jax.vmap({"step": step, "gradient": gradient, "linearize": linearize}[what])
    here = jax.jit(run)(speeds)
    with jax.default_device(jax.devices("cpu")[0]):
        there = jax.jit(run)(speeds)
    for a, b in zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-7 * abs(b).max())


def test_tensors_on_the_gpu_stay_there():
    torch, ut = pytest.importorskip("torch"), pytest.importorskip("ukemi.torch")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")
    model = uk.load("cartpole")
    found = []
    for device in ("cuda", "cpu"):
        state = ut.initial_state(model, batch=3, device=device)
        ctrls = torch.linspace(-1, 1, 12 * model.nu, dtype=state.q.dtype, device=device).reshape(3, 4, -1)
        ctrls.requires_grad_()
        out = ut.rollout(model, state, ctrls)
        out.q.square().sum().backward()
        assert out.q.device.type == ctrls.grad.device.type == device
        found.append([x.detach().cpu().numpy() for x in (out.q, out.v, ctrls.grad)])
    assert ut.initial_state(model).q.device.type == "cuda"
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
