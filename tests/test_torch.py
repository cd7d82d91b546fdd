"""The PyTorch interface: the numbers are JAX's, and the gradients pass torch's own check."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.tensors import PUSHED, assert_same, in_jax, leaf, torch, touching, ut

# ---- numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["ball", "cartpole", pytest.param("hopper", marks=pytest.mark.slow)])
def test_steps_are_those_of_ukemi_bitwise(source):
    model, state, ctrl = touching(source)
    first = ut.step(model, state, ctrl)
    second = ut.step(model, first, ctrl)  # the warm start went along
    wanted = uk.step(model, in_jax(state), ctrl.numpy())
    assert_same(first, wanted)
    assert_same(second, uk.step(model, wanted, ctrl.numpy()))
    assert int(second.cache.iterations) >= 0 and float(second.cache.acceleration.abs().max()) > 0.1
    uk.raise_if_failed(second)


def test_batches_and_rollouts_are_those_of_ukemi_bitwise():
    model, states, _ = touching("cartpole", batch=3)
    ctrls = torch.linspace(-1, 1, 3 * 4 * model.nu, dtype=torch.float64).reshape(3, 4, model.nu)
    found = ut.rollout(model, states, ctrls)
    wanted = jax.jit(jax.vmap(uk.rollout, (None, 0, 0)))(model, in_jax(states), jnp.asarray(ctrls.numpy()))
    assert found.q.shape == (3, 4, model.nq) and found.status.shape == (3, 4)
    assert_same(found, wanted)
    assert found[:, -1].v.shape == (3, model.nv)
    single = ut.rollout(model, states[1], ctrls[1])
    np.testing.assert_allclose(single.q, found.q[1], atol=1e-13)
    assert_same(single, uk.rollout(model, in_jax(states[1]), ctrls[1].numpy()))


def test_what_is_not_batched_holds_for_the_whole_batch():
    model, state, ctrl = touching("cartpole")
    masses = torch.tensor(np.array(model.bodies.mass)) * torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    heavier = ut.step(model, state, ctrl, parameters={"bodies.mass": masses})
    assert heavier.q.shape == (2, model.nq) and heavier.cache.acceleration.shape == (2, model.nv)
    same = ut.step(model, state, torch.stack([ctrl, ctrl]))
    np.testing.assert_allclose(heavier.v[0], same.v[1], atol=1e-13)
    assert (heavier.v[0] - heavier.v[1]).abs().max() > 1e-4


def test_controls_may_be_arrays_dicts_and_inputs():
    model, state, ctrl = touching("cartpole")
    wanted = ut.step(model, state, ctrl)
    for given in (ctrl.numpy(), ctrl.tolist(), {"ctrl": ctrl}, uk.Input(ctrl=ctrl)):
        assert_same(ut.step(model, state, given), jax.tree.map(lambda x: x.numpy(), wanted))
    assert_same(ut.step(model, state), uk.step(model, in_jax(state)))


# ---- gradients ---------------------------------------------------------------------------------------------------


def check(model, state, inputs, parameters, over=ut.step):
    """Gradients of a step or rollout in (q, v, act, time), the inputs and the parameters, by torch's own check."""
    tensors = {name: leaf(getattr(state, name).numpy()) for name in ut.MOVING}
    groups = tensors, {k: leaf(v) for k, v in inputs.items()}, {k: leaf(v) for k, v in parameters.items()}

    def function(*values):
        values = iter(values)
        moving, given, fields = ({name: next(values) for name in group} for group in groups)
        after = over(model, dataclasses.replace(state, **moving), given, parameters=fields)
        return after.q, after.v, after.act, after.time

    values = [value for group in groups for value in group.values() if value.numel()]
    assert len(values) == sum(map(len, groups)), "an empty input cannot be checked"
    assert torch.autograd.gradcheck(function, values, eps=1e-6, atol=2e-6, rtol=2e-5, nondet_tol=0.0)


@pytest.mark.parametrize("batch", [pytest.param(None, marks=pytest.mark.slow), 2])
def test_gradcheck_in_state_inputs_and_parameters(batch):
    model, state, ctrl = touching(PUSHED, batch)
    lead, rng = ctrl.shape[:-1], np.random.default_rng(3)
    inputs = {
        "ctrl": ctrl.numpy(),
        "qfrc": rng.normal(size=(*lead, model.nv)),
        "xfrc": rng.normal(size=(model.tree.nb, 6)),  # shared by the batch
        "mocap_pos": [[0.19, 0.01, 0.1]] + np.zeros((*lead, 1, 1)),
        "mocap_quat": [[1.0, 0, 0, 0]] + np.zeros((*lead, 1, 1)),
    }
    mass = np.asarray(model.bodies.mass) * np.ones((*lead, 1))
    check(model, state, inputs, {"bodies.mass": mass, "geoms.friction": model.geoms.friction})


@pytest.mark.slow
@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("source", ["ball", "hopper"])
def test_gradcheck_on_robots_in_contact(source, batch):
    model, state, ctrl = touching(source, batch)
    tensors = {"q": state.q, "v": state.v, "mass": leaf(model.bodies.mass), "size": leaf(model.geoms.size)}
    if model.nu:
        tensors["ctrl"] = ctrl

    def function(*values):
        given = dict(zip(tensors, values, strict=True))
        moved = dataclasses.replace(state, q=given["q"], v=given["v"])
        parameters = {"bodies.mass": given["mass"], "geoms.size": given["size"]}
        after = ut.step(model, moved, given.get("ctrl"), parameters=parameters)
        return after.q, after.v

    values = [value.detach().clone().requires_grad_() for value in tensors.values()]
    assert torch.autograd.gradcheck(function, values, eps=1e-6, atol=5e-6, rtol=5e-5)


@pytest.mark.parametrize("batch", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_gradients_of_rollouts_are_those_of_jax(batch):
    model, state, _ = touching("cartpole", batch)
    lead = () if batch is None else (batch,)
    ctrls = np.random.default_rng(5).uniform(-1, 1, (*lead, 6, model.nu))

    def loss(states):
        return (states.q[..., -1, :] ** 2).sum() + (states.v**3).sum()

    def of(q, ctrls, mass):
        changed = dataclasses.replace(model, bodies=dataclasses.replace(model.bodies, mass=mass))
        start = dataclasses.replace(in_jax(state), q=q)
        roll = uk.rollout if batch is None else jax.vmap(uk.rollout, (None, 0, 0))
        return loss(roll(changed, start, ctrls))

    given = (state.q.numpy(), ctrls, np.asarray(model.bodies.mass))
    wanted = jax.jit(jax.grad(of, (0, 1, 2)))(*given)
    q, controls, mass = map(leaf, given)
    states = ut.rollout(model, dataclasses.replace(state, q=q), controls, parameters={"bodies.mass": mass})
    loss(states).backward()
    for tensor, gradient in zip((q, controls, mass), wanted, strict=True):
        assert gradient.shape == tensor.grad.shape
        np.testing.assert_allclose(tensor.grad, gradient, rtol=1e-10, atol=1e-12)
    assert_same(states, jax.tree.map(lambda x: x.numpy(), ut.rollout(model, state, ctrls)))


def test_a_policy_learns():
    torch.manual_seed(0)
    model = uk.load("cartpole")
    policy = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.05)
    starts = 0.2 * torch.randn(4, 2, dtype=torch.float64)
    losses = []
    for _ in range(12):
        state = ut.initial_state(model, batch=4, q=starts)
        for _ in range(10):
            state = ut.step(model, state, policy(torch.cat([state.q, state.v], -1)))
        loss = ((state.v[:, 0] - 0.2) ** 2).sum()  # the cart is to run at 0.2 m/s
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in policy.parameters())
    assert losses[-1] < 0.2 * losses[0]
