"""An operation of one world: every transformation gives what it gives of the plain function."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from ukemi.implicit.rule import keep, without_derivative
from ukemi.implicit.worlds import of_one_world
from ukemi.xla.batches import one_by_one


def plain(parameters, x, count):
    """Shared parameters, a search, integers in and out, a result that nothing moves, an argument that nothing needs."""
    scale, unused = parameters
    found = keep(jnp.argmax(x))
    y = jnp.sin(x * scale) + x[found] * scale.sum()
    return {"y": y, "count": count + 1, "still": jnp.ones(2), "z": (y * y).sum() * jnp.exp(-scale[0])}, unused * 0


P = (jnp.array([0.3, -0.5, 0.8]), jnp.zeros(4))
X, COUNT = jnp.array([0.2, 1.0, -0.4]), jnp.array(3)
XS, COUNTS = jnp.stack([X, -X, 2 * X]), jnp.arange(3)


def loss(function):
    def of(parameters, x, count=COUNT):
        out, _ = function(parameters, x, count)
        return (out["y"] ** 2).sum() + out["z"] * out["still"].sum()

    return of


def shared(function):
    return lambda parameters, xs: jax.vmap(loss(function), (None, 0, 0))(parameters, xs, COUNTS).sum()


def repeated(function):
    return lambda x: jax.lax.scan(lambda x, _: (function(P, x, COUNT)[0]["y"], None), x, length=4)[0].sum()


TRANSFORMED = {
    "value": lambda f: f(P, X, COUNT),
    "jvp": lambda f: jax.jvp(lambda p, x: f(p, x, COUNT)[0]["y"], (P, X), (P, X)),
    "grad": lambda f: jax.grad(loss(f), argnums=(0, 1))(P, X),
    "jacfwd": lambda f: jax.jacfwd(loss(f), argnums=(0, 1))(P, X),
    "hessian": lambda f: jax.hessian(loss(f), argnums=(0, 1))(P, X),
    "reverse of reverse": lambda f: jax.jacrev(jax.jacrev(loss(f)))(P, X),
    "batch": lambda f: jax.vmap(f, (None, 0, 0))(P, XS, COUNTS),
    "batch along another axis": lambda f: jax.vmap(f, (None, 1, None), 0)(P, XS.T, COUNT),
    "batch of batches": lambda f: jax.vmap(jax.vmap(f, (None, 0, 0)), (None, 0, None))(P, jnp.stack([XS, -XS]), COUNTS),
    "gradients of a batch": lambda f: jax.vmap(jax.grad(loss(f), (0, 1)), (None, 0, 0))(P, XS, COUNTS),
    "hessians of a batch": lambda f: jax.vmap(jax.hessian(loss(f)), (None, 0, 0))(P, XS, COUNTS),
    "gradient of a batch": lambda f: jax.grad(shared(f), argnums=(0, 1))(P, XS),
    "hessian of a batch": lambda f: jax.hessian(shared(f))(P, XS),
    "in a checkpoint": lambda f: jax.grad(jax.checkpoint(loss(f)))(P, X),
    "in a scan": lambda f: jax.grad(repeated(f))(X),
    "in another": lambda f: jax.grad(loss(of_one_world(f)))(P, X),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMED)
@pytest.mark.parametrize("compiled", [False, True])
def test_transformations_are_those_of_the_plain_function(name, compiled):
    expected = TRANSFORMED[name](plain)

    def of_the_operation(_):
        return TRANSFORMED[name](of_one_world(plain))

    found = (jax.jit(of_the_operation) if compiled else of_the_operation)(0.0)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)


def test_what_is_captured_is_differentiated():
    found = jax.grad(lambda s: of_one_world(lambda x: s * x**2)(X).sum())(2.0)
    np.testing.assert_allclose(found, (X**2).sum(), rtol=1e-14)


def test_a_result_that_does_not_move_has_no_tangent():
    """What comes after it is not differentiated, whether or not that has a derivative."""
    after = without_derivative(lambda x: x, "reached")
    still = of_one_world(lambda x: (x, jnp.ones(2) * 2))
    np.testing.assert_array_equal(jax.grad(lambda x: still(x)[0].sum() + after(still(x)[1]).sum())(X), 1)
    with pytest.raises(uk.GradientError, match="reached"):
        jax.grad(lambda x: after(still(x)[0]).sum())(X)
    out = jax.linearize(lambda x: of_one_world(lambda x: (x, jnp.ones(2)))(x)[1], X)[1]
    assert not np.any(out(X))


@pytest.mark.parametrize("lockstep", [False, True])
def test_what_runs_one_by_one_may_capture_what_comes_in_batches(lockstep, monkeypatch):
    """And may hold another of its kind; in lockstep, as on a GPU, too."""
    if lockstep:
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")

    def function(x):
        inner = one_by_one(lambda y: (jnp.argmax(y * x), y * x.sum()))
        outer = one_by_one(lambda y: inner(jnp.sin(y) + x), in_lockstep=lambda y: inner(jnp.sin(y) + x))
        return outer(x)[1].sum() + jnp.sin(X)[outer(x)[0]]

    def written_out(x):
        y = jnp.sin(x) + x
        return (y * x.sum()).sum() + jnp.sin(X)[jnp.argmax(y * x)]

    for change in (jax.vmap, lambda f: jax.vmap(jax.jacfwd(f)), lambda f: jax.vmap(lambda x: jax.vmap(f)(x + XS))):
        program = jax.jit(change(function)).trace(XS)
        np.testing.assert_allclose(program.lower().compile()(XS), change(written_out)(XS), rtol=1e-13)
        loops = [program.lower(lowering_platforms=(name,)).as_text().count("while") for name in ("cpu", "cuda")]
        assert loops[0] > loops[1] == 0


@pytest.fixture(scope="module")
def worlds():
    model = uk.load("hopper")
    state = jax.tree.map(lambda x: x[-1], uk.rollout(model, uk.initial_state(model), jnp.zeros((200, model.nu))))
    speeds = state.v + 0.05 * np.random.default_rng(0).normal(size=(6, model.nv))
    return model, state, speeds


@pytest.mark.optimized
def test_a_batch_is_bitwise_its_worlds(worlds):
    """The states and the gradients of each world are those that it has alone; on other devices to rounding."""
    model, state, speeds = worlds

    def ahead(v):
        there = uk.State(state.q, v, state.act, state.time, state.status, state.cache)
        states = uk.rollout(model, there, jnp.zeros((3, model.nu)))
        return (states.q**2).sum() + (states.v**2).sum(), states

    of = jax.value_and_grad(ahead, has_aux=True)
    alone, batch = jax.jit(of), jax.jit(jax.vmap(of))(speeds)
    for k, v in enumerate(speeds):
        for a, b in zip(jax.tree.leaves(alone(v)), jax.tree.leaves(batch), strict=True):
            np.testing.assert_array_equal(a, b[k]) if jax.default_backend() == "cpu" else np.testing.assert_allclose(
                a, b[k], rtol=1e-10, atol=1e-10
            )


SHARED = """
import jax
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
import ukemi as uk

model = uk.load("hopper")
state = uk.initial_state(model)
mesh = jax.make_mesh((2,), ("worlds",), (jax.sharding.AxisType.Auto,))
share = jax.P("worlds")

def slope(v):
    there = uk.State(state.q, v, state.act, state.time, state.status, state.cache)
    return jax.value_and_grad(lambda c: uk.rollout(model, there, c).q[-1, 0])(jnp.zeros((40, model.nu)))

speeds = state.v - np.linspace(0, 2, 8)[:, None]
shared = jax.jit(jax.shard_map(jax.vmap(slope), mesh=mesh, in_specs=share, out_specs=share, check_vma=False))
alone = jax.jit(slope)
for _ in range(5):
    found = shared(speeds)
for k, v in enumerate(speeds):
    for a, b in zip(found, alone(v)):
        np.testing.assert_allclose(a[k], b, rtol=1e-12, atol=1e-12)
print("the same")
"""


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="shares a batch among CPU devices")
def test_a_batch_can_be_shared_among_cpu_devices():
    """Batched factorisations on two devices once hung; now there are none."""
    done = subprocess.run([sys.executable, "-c", SHARED], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == "the same", done.stderr
