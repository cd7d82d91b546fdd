"""The PyTorch interface: the numbers are JAX's, the gradients pass torch's own check, memory and errors are safe."""

import dataclasses
import importlib.util
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from ukemi.errors import GradientError, InputError

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'ukemi[torch]'")
ut = uk.torch

# Everything an input can be: a slider with an activation, on a floor and against a body that is moved by hand.
PUSHED = """
<mujoco>
  <option timestep="0.004"/>
  <worldbody>
    <geom type="plane" size="2 2 0.1"/>
    <body name="hand" mocap="true" pos="0.19 0 0.1"><geom type="sphere" size="0.1"/></body>
    <body pos="0 0 0.098">
      <joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>
      <geom type="sphere" size="0.1" mass="0.5" friction="0.7"/>
    </body>
  </worldbody>
  <actuator><general joint="x" dyntype="filter" dynprm="0.05" gainprm="3"/></actuator>
</mujoco>
"""
# Configurations in which something touches: a ball on the floor, a foot on the floor, a cart at the end of its rail.
TOUCHING = {
    "ball": [0, 0, 0.098, 0.8, 0.1, 0.5, -0.2],
    "hopper": [0, 0.97, 0.05, 0.45, 0.9, 0.45],
    "cartpole": [1.81, 0.3],
    PUSHED: [0.01, -0.001],
}


def touching(source, batch=None):
    """Model, state that touches something and controls, of the given batch; quaternions of length other than 1."""
    model, rng = uk.load(source), np.random.default_rng(7)
    lead = () if batch is None else (batch,)
    q = np.asarray(TOUCHING[source]) + 1e-3 * rng.normal(size=(*lead, model.nq))
    state = ut.initial_state(
        model,
        batch=batch,
        q=torch.tensor(q),
        v=torch.tensor(rng.normal(size=(*lead, model.nv))),
        act=torch.tensor(rng.normal(size=(*lead, model.na))),
    )
    return model, state, torch.tensor(rng.uniform(-0.9, 0.9, (*lead, model.nu)))


def in_jax(state) -> uk.State:
    """The same state with JAX arrays."""
    return uk.State(**vars(jax.tree.map(lambda x: jnp.array(x.detach().numpy()), state)))


def assert_same(found, wanted):
    """Bitwise equality of all leaves."""
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(mine.detach().numpy(), np.asarray(theirs))


def leaf(value):
    """A tensor of which a gradient is wanted."""
    return torch.tensor(np.asarray(value)).requires_grad_()


def single(script):
    """Run a script in single precision: JAX has one precision per process."""
    code = "import jax; jax.config.update('jax_enable_x64', False)\n" + script
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]


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
