"""The PyTorch interface: memory, programs, states and errors are safe."""

import dataclasses
import importlib.util
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.tensors import assert_same, leaf, single, torch, touching, ut
from ukemi.errors import GradientError, InputError

# ---- memory and compilation --------------------------------------------------------------------------------------


def test_memory_is_shared_with_nobody_else():
    model, state, ctrl = touching("cartpole")
    state = jax.tree.map(lambda x: x.clone(), state)
    ctrl.requires_grad_()
    weights = torch.ones(model.nv, dtype=torch.float64)
    (wanted,) = torch.autograd.grad((ut.step(model, state, ctrl).v * weights).sum(), ctrl)

    after = ut.step(model, state, ctrl)
    tensors = [t for t in (*jax.tree.leaves((state, after)), ctrl) if t.numel()]
    assert len({t.data_ptr() for t in tensors}) == len(tensors)
    loss = (after.v * weights).sum()
    with torch.no_grad():  # between forward and backward, and nothing notices
        state.q.fill_(9.0)
        state.cache.acceleration.fill_(9.0)
        after.q.fill_(9.0)
        after.status.fill_(9)
    np.testing.assert_array_equal(torch.autograd.grad(loss, ctrl)[0], wanted)
    assert after.v.abs().max() < 9 and float(uk.initial_state(model).q[0]) == 0.0


def test_results_are_not_copied():
    array = jnp.arange(5.0)
    assert ut._to_torch(array, torch.device("cpu")).data_ptr() == array.unsafe_buffer_pointer()


def test_any_layout_of_memory_and_copies_give_the_same(monkeypatch):
    model, state, ctrl = touching("cartpole")
    wanted = jax.tree.map(lambda x: x.numpy(), ut.step(model, state, ctrl))
    strided = torch.stack([state.q, state.q], -1)[:, 0]
    crooked = torch.cat([state.v[:1], state.v])[1:]
    assert not strided.is_contiguous()
    assert_same(ut.step(model, dataclasses.replace(state, q=strided, v=crooked), ctrl), wanted)
    monkeypatch.setattr(ut, "_same_device", lambda here, there: False)
    assert_same(ut.step(model, state, ctrl), wanted)


def test_gradients_of_every_layout_reach_backward():
    model, state, ctrl = touching("cartpole")
    ctrl.requires_grad_()
    after = ut.step(model, state, ctrl)
    one = torch.ones((), dtype=torch.float64)
    (expanded,) = torch.autograd.grad(after.v, ctrl, one.expand(model.nv), retain_graph=True)
    (plain,) = torch.autograd.grad(after.v, ctrl, torch.ones_like(after.v))
    np.testing.assert_array_equal(expanded, plain)


def test_one_program_per_set_of_inputs_that_need_gradients():
    model, state, ctrl = touching("cartpole")
    ut.step(model, state, ctrl)
    ut.step(model, state, ctrl.clone().requires_grad_()).v.sum().backward()
    programs = ut._advance._cache_size(), ut._pull._cache_size()
    again = uk.load("cartpole")
    for k in range(3):
        later = ut.step(again, state, ctrl / (k + 2))
        ut.step(again, later, (ctrl / (k + 2)).requires_grad_()).q.sum().backward()
    with torch.no_grad():
        assert not ut.step(model, state, ctrl.clone().requires_grad_()).q.requires_grad
    assert (ut._advance._cache_size(), ut._pull._cache_size()) == programs


def test_flags_and_memory_have_no_gradients():
    model, state, ctrl = touching("cartpole")
    after = ut.step(model, state, ctrl.requires_grad_())
    assert after.q.requires_grad and after.time.requires_grad
    assert not any(x.requires_grad for x in (after.status, after.cache.acceleration, after.cache.iterations))
    assert not any(x.requires_grad for x in jax.tree.leaves(after.detach()))


# ---- states and errors -------------------------------------------------------------------------------------------


def test_initial_states():
    model = uk.load("ball")
    assert_same(ut.initial_state(model, "rolling"), uk.initial_state(model, "rolling"))
    states = ut.initial_state(model, "rolling", batch=3)
    alone = jax.tree.leaves(uk.initial_state(model, "rolling"))
    assert [tuple(x.shape) for x in jax.tree.leaves(states)] == [(3, *x.shape) for x in alone]
    v = leaf(np.arange(6.0))
    moved = ut.initial_state(model, batch=2, v=v)
    moved.v[0].sum().backward()
    np.testing.assert_array_equal(v.grad, np.ones(6))
    with pytest.raises(InputError, match=r"v has shape \(2, 6\), but batch=3"):
        ut.initial_state(model, batch=3, v=torch.zeros(2, 6, dtype=torch.float64))
    with pytest.raises(InputError, match="batch=None"):
        ut.initial_state(model, v=torch.zeros(2, 6, dtype=torch.float64))
    with pytest.raises(InputError, match=r"q has shape \(6,\).*needs \(7,\), or a batch of them, \(B, 7\)"):
        ut.initial_state(model, q=np.zeros(6))


@pytest.mark.parametrize(
    "given, message",
    [
        ({"ctrl": torch.zeros(2).double()}, r"ctrl has shape \(2,\).*needs \(1,\)"),
        ({"ctrl": torch.zeros(1)}, "ctrl is torch.float32, but .* computes in float64"),
        ({"ctrl": torch.zeros(1).int()}, "ctrl is torch.int32"),
        ({"ctrl": torch.tensor([float("nan")]).double()}, "ctrl holds NaN"),
        ({"ctrl": {"force": torch.zeros(1)}}, "No input 'force'; inputs: ctrl, qfrc"),
        ({"ctrl": {"xfrc": torch.zeros(3, 3).double()}}, r"xfrc has shape \(3, 3\).*needs \(3, 6\)"),
        ({"ctrl": torch.zeros(3, 1).double(), "batch": 2}, r"different batch sizes: \[2, 3\]"),
        ({"parameters": {"bodies.weight": torch.zeros(3)}}, "No parameter 'bodies.weight'.*the nearest: "),
        ({"parameters": {"bodies.mas": torch.zeros(3)}}, "the nearest: .*bodies.mass"),
        ({"parameters": {"tree.nv": torch.zeros(())}}, "No parameter 'tree.nv'"),
        ({"parameters": {"bodies.layout": torch.zeros(())}}, "No parameter 'bodies.layout'"),
        ({"parameters": {"bodies.mass": torch.zeros(2).double()}}, r"bodies.mass has shape \(2,\).*needs \(3,\)"),
        ({"parameters": {"bodies.mass": torch.zeros(3)}}, "bodies.mass is torch.float32"),
    ],
)
def test_wrong_inputs_are_refused_by_name(given, message):
    model = uk.load("cartpole")
    state = ut.initial_state(model, batch=given.get("batch"))
    with pytest.raises(InputError, match=message):
        ut.step(model, state, given.get("ctrl"), parameters=given.get("parameters"))


def test_wrong_states_and_times_are_refused():
    model, state, ctrl = touching("cartpole")
    with pytest.raises(InputError, match=r"ukemi\.torch\.initial_state"):
        ut.step(model, uk.initial_state(model), ctrl)
    with pytest.raises(InputError, match="v is of type ndarray, not a torch tensor"):
        ut.step(model, dataclasses.replace(state, v=state.v.numpy()), ctrl)
    with pytest.raises(InputError, match=r"q has shape \(3,\)"):
        ut.step(model, dataclasses.replace(state, q=torch.zeros(3).double()), ctrl)
    with pytest.raises(InputError, match=r"ctrl has shape \(1,\).*needs \(T, 1\), or a batch of them, \(B, T, 1\)"):
        ut.rollout(model, state, ctrl)
    with pytest.raises(InputError, match="one leading time axis"):
        ut.rollout(model, state, None)
    with pytest.raises(InputError, match="disagree on T"):
        ut.rollout(model, state, {"ctrl": torch.zeros(4, 1).double(), "qfrc": torch.zeros(5, 2).double()})


def test_second_derivatives_are_refused_not_wrong():
    model, state, ctrl = touching("cartpole")
    ctrl.requires_grad_()
    (gradient,) = torch.autograd.grad(ut.step(model, state, ctrl).v.sum(), ctrl, create_graph=True)
    with pytest.raises(GradientError, match="first derivatives only"):
        # with the second term torch would find a gradient, though a wrong one, if the first counted as constant
        torch.autograd.grad((gradient**2).sum() + ctrl.sum(), ctrl)
    with pytest.raises(GradientError, match="first derivatives only"):
        torch.autograd.grad((ut.step(model, state, ctrl).v ** 2).sum(), ctrl, create_graph=True)[0].sum().backward()


def test_precisions_are_never_mixed_silently():
    model, state, ctrl = touching("cartpole")
    with jax.enable_x64(False), pytest.raises(InputError, match="JAX would cast torch.float64.*JAX_ENABLE_X64=1"):
        ut.step(model, state, ctrl)
    narrow = jax.tree.map(lambda x: x.astype(jnp.float32), model)
    with pytest.raises(InputError, match="q is torch.float64, but .* computes in float32.*JAX_ENABLE_X64=1"):
        ut.step(narrow, state, ctrl)
    assert ut.initial_state(narrow).q.dtype == torch.float32


@pytest.mark.slow
def test_single_precision():
    single("""
import torch
import ukemi as uk
model = uk.load("cartpole")
state = uk.torch.initial_state(model, q=[1.81, 0.3])
ctrl = torch.zeros(1, requires_grad=True)
after = uk.torch.step(model, state, ctrl)
after.v.sum().backward()
assert after.q.dtype == ctrl.grad.dtype == torch.float32 and ctrl.grad.abs() > 0
try:
    uk.torch.step(model, state, ctrl.double())
except uk.InputError as error:
    assert "JAX_ENABLE_X64=1" in str(error)
else:
    raise AssertionError("float64 was cast")
""")


def test_without_torch_the_import_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    spec = importlib.util.spec_from_file_location("without_torch", ut.__file__)
    with pytest.raises(ImportError, match=r"pip install 'ukemi\[torch\]'"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
