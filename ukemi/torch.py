"""PyTorch interface: `step` and `rollout` on tensors, differentiated by torch's autograd.

Each call is one program that JAX compiles once per model structure, shapes, method and set of inputs that need
gradients; backward is a second one. On the same device results share memory with JAX instead of being copied, and
inputs are read where they lie. Nothing else holds that memory: inputs and results may be written to in place after a
call, and backward uses the values that the inputs had at the call.

First derivatives only: differentiating a gradient raises `GradientError`. torch.func, torch.vmap and torch.compile do
not see inside; batches are a leading axis of the tensors.
"""

import dataclasses
import difflib
import functools
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ukemi.errors import GradientError, InputError
from ukemi.laws.checks import check_method
from ukemi.laws.memory import memory_shapes
from ukemi.laws.method import Method
from ukemi.laws.soft.law import SOFT
from ukemi.model import records
from ukemi.model.checks import check_model, shapes
from ukemi.model.records import Input, Model, input_shapes
from ukemi.simulate import stepping as simulate
from ukemi.values import array, check_count, kind, require, shown

try:
    import torch  # pyright: ignore[reportMissingModuleSource]
except ImportError as error:
    raise ImportError("ukemi.torch needs PyTorch: pip install 'ukemi[torch]'.") from error


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """Where robots are, as tensors; each may have a batch axis in front. `jax.tree.map` sees the tensors."""

    q: torch.Tensor  # (nq,) positions; quaternions w x y z
    v: torch.Tensor  # (nv,)
    act: torch.Tensor  # (na,) activations
    time: torch.Tensor  # () [s]
    status: torch.Tensor  # () bit mask of failures, accumulates; `uk.raise_if_failed` reads it on the CPU
    cache: Any  # tensors of the method's memory, without gradients; batched where `status` is

    def __getitem__(self, index) -> "State":
        """The same index of every tensor: `states[-1]` ends a rollout, `states[:, -1]` a batch of them."""
        return jax.tree.map(lambda x: x[index], self)

    def detach(self) -> "State":
        """The same state, where gradients stop."""
        return jax.tree.map(lambda x: x.detach(), self)


MOVING = ("q", "v", "act", "time")  # the fields that have derivatives


def initial_state(
    model: Model, keyframe: str | int | None = None, *, batch: int | None = None, q=None, v=None, act=None, device=None
) -> State:
    """State at qpos0 or at a keyframe, parts of which may be replaced by tensors, with their gradients.

    Args:
        model: the robot.
        keyframe: name or index of a stored configuration; qpos0 at rest if left out.
        batch: number of equal robots along a leading axis, along which q, v and act may differ.
        q: positions (nq,) in its place.
        v: velocities (nv,) in its place.
        act: activations (na,) in its place.
        device: torch's, the model's own if left out.
    """
    check_model(model)
    if batch is not None:
        check_count("ukemi.torch.initial_state", "batch", batch)
    if device is None:
        home = _home(model)
        device = "cpu" if home.platform == "cpu" or not torch.cuda.is_available() else f"cuda:{home.local_hardware_id}"
    lead = () if batch is None else (batch,)

    def fill(x):
        return torch.from_numpy(np.array(np.broadcast_to(x, (*lead, *x.shape)))).to(device)

    device = _device(device)
    base = simulate.initial_state(model, keyframe)
    filled = {field.name: jax.tree.map(fill, getattr(base, field.name)) for field in dataclasses.fields(State)}
    for name, given in {"q": q, "v": v, "act": act}.items():
        if given is None:
            continue
        value, shape = _tensor(given, model, device, name).to(device), getattr(base, name).shape
        if _batched(name, value, shape, model) and value.shape[:1] != lead:
            raise InputError(f"{name} has shape {tuple(value.shape)}, but batch={batch}.")
        filled[name] = value.expand(*lead, *shape).clone()
    return State(**filled)


def step(model: Model, state: State, ctrl=None, method: Method | None = None, *, parameters=None) -> State:
    """The state one time step later, differentiable in state, controls and parameters.

    Any of the tensors may have a batch axis in front; the others then hold for the whole batch, and every result has
    it.

    Args:
        model: the robot.
        state: where it is.
        ctrl: tensor (nu,), or `Input` or dict of tensors (ctrl (nu,), qfrc (nv,) [N, N m], xfrc (nb, 6) [N, N m],
            mocap_pos (nm, 3) [m], mocap_quat (nm, 4)), or None for zero controls.
        method: the contact law, `Soft()` if left out.
        parameters: tensors that replace fields of the model, by name, as `{"bodies.mass": (nb,) [kg]}`; what
            `uk.refresh` would derive from them stays as it is.
    """
    return _call(simulate.step, model, state, ctrl, method, parameters)


def rollout(model: Model, state: State, ctrls, method: Method | None = None, *, parameters=None) -> State:
    """The T states that follow `state`, each tensor with a T axis: (T, nq), in a batch (B, T, nq).

    Args:
        model: the robot.
        state: where it starts.
        ctrls: tensor (T, nu) or (B, T, nu), or `Input` or dict of tensors with that T axis.
        method: the contact law, `Soft()` if left out.
        parameters: as in `step`.
    """
    return _call(simulate.rollout, model, state, ctrls, method, parameters)


# ---- from torch's call to JAX's, and back ------------------------------------------------------------------------


class _Task(NamedTuple):
    """What a compiled program depends on beside model, method and shapes."""

    function: Callable  # simulate.step or simulate.rollout
    structure: Any  # of (State, inputs by name, parameters by name), whose leaves are the arguments
    axes: tuple[int | None, ...]  # batch axis of each argument
    live: tuple[int, ...]  # arguments that need gradients


def _call(function: Callable, model: Model, state: State, ctrl, method: Method | None, parameters) -> State:
    if not isinstance(state, State):
        raise InputError(f"state is {kind(state)}; make one with ukemi.torch.initial_state.")
    check_model(model)
    if method is not None:
        check_method(method)
    good = parameters is None or isinstance(parameters, Mapping) and all(isinstance(name, str) for name in parameters)
    require(good, "ukemi.torch", "parameters", parameters, "must be a dict such as {'bodies.mass': tensor}")
    given = vars(ctrl) if isinstance(ctrl, Input) else ctrl if isinstance(ctrl, Mapping) else {"ctrl": ctrl}
    inputs, values = (
        {name: _tensor(value, model, _device_of(state), name) for name, value in group.items() if value is not None}
        for group in (given, parameters or {})
    )
    coordinates = {"q": (model.nq,), "v": (model.nv,), "act": (model.na,), "time": ()}
    moving = {name: _batched(name, getattr(state, name), shape, model) for name, shape in coordinates.items()}
    memory = _batched_memory(state, model)
    batched = (
        State(**moving, status=memory, cache=jax.tree.map(lambda _: memory, state.cache)),
        _batched_inputs(inputs, model, over_time=function is simulate.rollout),
        {name: _batched(name, value, _field(model, name).shape, model) for name, value in values.items()},
    )
    tensors, structure = jax.tree.flatten((state, inputs, values))
    axes = tuple(0 if each else None for each in jax.tree.leaves(batched))
    sizes = {tensor.shape[0] for tensor, axis in zip(tensors, axes, strict=True) if axis == 0}
    if len(sizes) > 1:
        raise InputError(f"state, controls and parameters have different batch sizes: {sorted(sizes)}.")
    live = tuple(k for k, tensor in enumerate(tensors) if tensor.requires_grad and torch.is_grad_enabled())
    call = (_Task(function, structure, axes, live), model, method or SOFT)
    results = _Differentiable.apply(*call, *tensors) if live else _compute(*call, tensors)[0]
    return jax.tree.unflatten(jax.tree.structure(state), results)


def _compute(task: _Task, model: Model, method: Method, tensors) -> tuple[list, Any]:
    """Tensors of the next state (or states), and the pullback to the live arguments."""
    home = _home(model)
    moved, pullback = _advance(task, model, method, [_to_jax(tensor, home) for tensor in tensors])
    jax.block_until_ready(moved)  # from here on nobody reads the tensors that came in
    return [_to_torch(x, tensors[0].device) for x in moved], pullback


@functools.partial(jax.jit, static_argnums=0)
def _advance(task: _Task, model: Model, method: Method, args: list) -> tuple[list, Any]:
    """The compiled call: leaves of the next state, those that have derivatives first, and the pullback."""

    def one(args):
        state, inputs, values = jax.tree.unflatten(task.structure, args)
        places = [attrgetter(name) for name in values]
        changed = eqx.tree_at(lambda m: [place(m) for place in places], model, list(values.values()))
        after = task.function(changed, records.State(**vars(state)), Input(**inputs), method)
        return [getattr(after, name) for name in MOVING], jax.tree.leaves((after.status, after.cache))

    def of_live(live):
        full = dict(enumerate(args)) | dict(zip(task.live, live, strict=True))
        world = jax.vmap(one, in_axes=(list(task.axes),)) if 0 in task.axes else one
        return world(list(full.values()))

    if task.live:
        moving, pullback, rest = jax.vjp(of_live, [args[k] for k in task.live], has_aux=True)
    else:
        (moving, rest), pullback = of_live([]), None
    return [*moving, *rest], pullback


@jax.jit
def _pull(pullback, cotangents: list) -> list:
    return pullback(cotangents)[0]


class _Differentiable(torch.autograd.Function):
    """A step or rollout with its compiled pullback."""

    @staticmethod
    def forward(ctx, task, model, method, *tensors):
        results, ctx.pullback = _compute(task, model, method, tensors)
        ctx.task, ctx.home, ctx.tensors = task, _home(model), tensors
        ctx.mark_non_differentiable(*results[len(MOVING) :])
        return tuple(results)

    @staticmethod
    def backward(ctx, *grads):
        found = _pull(ctx.pullback, [_to_jax(grad, ctx.home) for grad in grads[: len(MOVING)]])
        jax.block_until_ready(found)
        live = [_to_torch(x, ctx.tensors[k].device) for k, x in zip(ctx.task.live, found, strict=True)]
        if torch.is_grad_enabled():  # create_graph
            live = _FirstOnly.apply(len(live), *live, *ctx.tensors, *grads)
        full = dict.fromkeys(range(len(ctx.tensors))) | dict(zip(ctx.task.live, live, strict=True))
        return None, None, None, *full.values()


class _FirstOnly(torch.autograd.Function):
    """Gradients that refuse to be differentiated in all that they depend on.

    Torch's `once_differentiable` would take them as constant where the gradients that came in are constant.
    """

    @staticmethod
    def forward(ctx, number, *tensors):
        return tensors[:number]

    @staticmethod
    def backward(ctx, *_):
        raise GradientError("ukemi.torch gives first derivatives only; for second ones differentiate uk.step in JAX.")


# ---- names, shapes and memory ------------------------------------------------------------------------------------


def _field(model: Model, name: str) -> Any:
    """The field of the model that a parameter's name, such as "bodies.mass", stands for."""
    group, _, field = name.partition(".")
    owner = getattr(model, group, None)
    leaf: Any = getattr(owner, field, None) if isinstance(owner, eqx.Module) else None
    if eqx.is_inexact_array(leaf):
        return leaf
    paths = jax.tree_util.tree_flatten_with_path(model)[0]
    names = [".".join(str(key.name) for key in path) for path, _ in paths]
    close = difflib.get_close_matches(name, names, 3, 0.3)
    raise InputError(f"No parameter {name!r} in {model!r}; the nearest: {', '.join(close) or ', '.join(names)}.")


def _batched_inputs(inputs: dict, model: Model, over_time: bool) -> dict[str, bool]:
    """Which inputs have a batch axis in front; raise where one is unknown, not finite or of the wrong shape."""
    shapes = input_shapes(model)
    batched = {}
    for name, value in inputs.items():
        if name not in shapes:
            raise InputError(f"No input {name!r}; inputs: {', '.join(shapes)}.")
        if not torch.isfinite(value).all():
            raise InputError(f"{name} holds NaN or infinity.")
        shape = shapes[name]
        if over_time:
            shape = (value.shape[-len(shape) - 1] if value.ndim > len(shape) else "T", *shape)
        batched[name] = _batched(name, value, shape, model)
    return batched


def _batched(name: str, value, shape: tuple, model: Model, dtype=None) -> Any:
    """Whether a tensor has a batch axis in front of `shape`; raise if it has neither shape or the wrong dtype."""
    if not isinstance(value, torch.Tensor):
        raise InputError(f"{name} is {kind(value)}, not a torch tensor.")
    dtype = (dtype or model.options.timestep.dtype).name
    if str(value.dtype) != f"torch.{dtype}":
        wide = " Models loaded with JAX_ENABLE_X64=1 are float64." if dtype == "float32" else ""
        raise InputError(f"{name} is {value.dtype}, but {model!r} computes in {dtype}; nothing is cast silently.{wide}")
    if tuple(value.shape) == shape or tuple(value.shape[1:]) == shape:
        return value.ndim > len(shape)
    needed, batch = (str(sizes).replace("'", "") for sizes in (shape, ("B", *shape)))
    raise InputError(f"{name} has shape {tuple(value.shape)}; {model!r} needs {needed}, or a batch of them, {batch}.")


def _batched_memory(state: State, model: Model) -> Any:
    """Whether status and cache have a batch axis in front; raise where they are another model's."""
    (*_, status), common = shapes(model)
    batched = {_batched("status", state.status, status.shape, model, status.dtype)}
    laws = memory_shapes(model).items()
    parts = [("cache", state.cache, common)]
    parts += [(f"cache.laws[{law!r}]", state.cache.laws.get(law), fields) for law, fields in laws]
    for where, record, fields in parts:
        for name, shape, dtype in fields:
            batched.add(_batched(f"{where}.{name}", getattr(record, name, None), shape, model, dtype))
    if len(batched) > 1:
        raise InputError("Of the state's status and cache some have a batch axis and some have none.")
    return batched.pop()


def _tensor(value, model: Model, device, name: str):
    """A tensor as it is; what is none (numbers, lists, arrays) in the model's dtype."""
    if isinstance(value, torch.Tensor):
        return value
    return torch.from_numpy(np.array(array(name, value, model.options.timestep.dtype))).to(device)


def _device(device):
    """Torch's device of a name."""
    try:
        torch.empty(0, device=device)
        return torch.device(device)
    except (RuntimeError, TypeError, AssertionError) as error:
        raise InputError(f"device={shown(device)}: must be a device of torch, such as 'cpu' or 'cuda:0'.") from error


def _device_of(state: State):
    """Where a state's tensors are."""
    return state.q.device if isinstance(state.q, torch.Tensor) else "cpu"


def _home(model: Model):
    """The JAX device that holds the model."""
    return next(iter(jnp.asarray(model.options.timestep).devices()))


def _same_device(here, there) -> bool:
    """Whether a torch device and a JAX device are the same memory."""
    if here.type == "cuda":
        return there.platform != "cpu" and here.index == there.local_hardware_id
    return here.type == there.platform


def _to_jax(tensor, home):
    """A tensor as an argument of a compiled function, in shared memory where possible."""
    dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise InputError(f"JAX would cast {tensor.dtype} to a smaller type here: set JAX_ENABLE_X64=1.")
    tensor = tensor.detach().resolve_neg().contiguous()
    if tensor.device.type != "cpu" and _same_device(tensor.device, home):
        return jax.dlpack.from_dlpack(tensor)
    # On the CPU a NumPy view shares memory as DLPack does, and JAX takes it up many times faster.
    array = tensor.cpu().numpy()
    return array if home.platform == "cpu" else jax.device_put(array, home)


def _to_torch(array: jax.Array, device):
    """A computed array as a tensor on a torch device, in shared memory where possible."""
    if _same_device(device, next(iter(array.devices()))):
        return torch.from_dlpack(array)
    return torch.from_numpy(np.array(array)).to(device)
