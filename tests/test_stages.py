"""Compact stages: the same values, derivatives and batches as without, whatever operations are among them."""

import os
import re
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from ukemi.maths.spatial import materialize
from ukemi.maths.systems import SMALL, solve
from ukemi.xla import flags, programs, stages
from ukemi.xla.stages import compact


def calls(function, *args) -> int:
    """How many compact calls a compiled program makes."""
    return jax.jit(function).lower(*args).as_text().count('xla_cpu_small_call = "true"')


def smooth(x, y):
    return {"a": jnp.sin(x) @ y + jnp.cos(y) ** 2, "b": (x * y).sum() / (1 + (y * y).sum())}


def with_library(x, y):
    """Operations that no call can hold: a sort, a factorisation, a scatter, and eigenvalues inside a branch."""
    order = jnp.argsort(x[0])
    matrix = x @ x.T + 3 * jnp.eye(3)
    solved = jnp.linalg.solve(matrix, y[order]) + jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(matrix), True), y)
    values = jax.lax.cond(y[0] > 0, lambda m: jnp.linalg.eigvalsh(m), lambda m: m[0] * 2 + m[1], matrix)
    return {"a": solved * values + 1 / (1 + y * y), "b": jnp.asarray(y).at[order].add(x[1]).sum()}


def with_loops(x, y):
    def body(k, z):
        return jnp.tanh(z + 0.1 * x @ z) + k

    swept = jax.lax.fori_loop(0, 3, body, y)
    _, partial = jax.lax.scan(lambda c, row: (c + row @ y, c * 2), 0.5, x)
    counted = jax.lax.while_loop(lambda z: z < 20, lambda z: z * 1.5 + 1, 1 + (y * y).sum())
    return {"a": swept + partial, "b": counted + jax.lax.switch(1, [jnp.sum, jnp.max], y)}


def with_constants(x, y):
    """Constants of all sizes, arguments that nothing needs, results that are arguments, integers and empty arrays."""
    table = jnp.asarray(np.linspace(0, 1, 300).reshape(100, 3))
    return {"a": (table @ y)[:3] + 0 * x[0], "b": y, "c": x.shape[0] + jnp.argmax(x @ y), "d": jnp.sin(x[:0]) * 2}


def with_walls(x, y):
    """Values that are written down, in a loop and a branch too; of several types, of which some have no derivative."""
    z, largest, flags = materialize((jnp.sin(x) @ y, jnp.argmax(y), x > 0))
    z = jax.lax.fori_loop(0, 3, lambda k, z: materialize(jnp.cos(z) * y[largest]) + k, z)
    chosen = jax.lax.cond(flags.any(), lambda z: materialize((z, x[:0]))[0] ** 2, lambda z: z, z)
    return {"a": jnp.where(flags[0], chosen, y), "b": materialize(jnp.ones(2) * 3)[0] * z.sum()}


def with_stages(x, y):
    """Loops of stages, and stages of loops."""
    turned = compact(lambda x, z: jnp.tanh(x @ z + 0.1) - materialize(jnp.cos(z)) * z)
    swept = compact(lambda x, z: jax.lax.fori_loop(0, 3, lambda k, z: turned(x, z) + k, z))
    z = jax.lax.fori_loop(0, 2, lambda k, z: swept(x, z) * 2 - 1, y)
    return {"a": z, "b": jax.lax.cond(z[0] > 0, lambda z: turned(x, z).sum(), lambda z: swept(x, z)[0], z)}


def with_systems(x, y):
    """Small systems, in a loop too: JAX knows them as an operation that holds programs."""
    matrix = x @ x.T + 3 * jnp.eye(3)
    return jax.lax.fori_loop(0, 4, lambda k, z: solve(matrix, jnp.cos(z) + k), jnp.sin(solve(matrix, y)))


FUNCTIONS = [smooth, with_library, with_loops, with_constants, with_walls, with_stages, with_systems]
X, Y = np.random.default_rng(0).normal(size=(3, 3)), np.array([0.3, -0.7, 1.1])


def same(a, b, tolerance=1e-13):
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert jnp.result_type(one) == jnp.result_type(other)
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_values_derivatives_and_batches_are_those_without(function):
    held = compact(function)
    same(held(X, Y), function(X, Y))
    same(jax.jit(held)(X, Y), function(X, Y))
    if jax.default_backend() == "cpu":
        assert calls(held, X, Y) >= 1

    def floats(f):
        return lambda x, y: [v for v in jax.tree.leaves(f(x, y)) if jnp.issubdtype(v.dtype, jnp.floating)]

    forward = [jax.jit(jax.jacfwd(floats(f), argnums=(0, 1)))(X, Y) for f in (held, function)]
    same(*forward)
    if function is not with_loops:  # a `while_loop` has no reverse mode, with or without
        same(*[jax.jit(jax.jacrev(floats(f), argnums=(0, 1)))(X, Y) for f in (held, function)])
    same(*[jax.jit(jax.jacfwd(jax.jacfwd(floats(f))))(X, Y) for f in (held, function)], tolerance=1e-12)
    same(*[jax.jit(jax.vmap(f, (None, 0)))(X, np.stack([Y, 2 * Y, -Y])) for f in (held, function)])


def test_a_stage_may_hold_another_and_be_in_loops():
    inner = compact(lambda x: jnp.sin(x) * jnp.cos(x) + x**3)

    def step(x, _):
        return compact(lambda x: jnp.tanh(inner(x) + x * 2 - 1))(x), x.sum()

    same(jax.jit(lambda x: jax.lax.scan(step, x, length=5))(Y), jax.lax.scan(step, Y, length=5))


def entry(function, *args) -> str:
    """The operations of a compiled program that are not in a call, a loop or a branch."""
    return jax.jit(function).lower(*args).compile().as_text().split("\nENTRY ")[1]


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="calls are made on CPU")
def test_a_turn_of_a_loop_of_stages_is_one_call():
    """What it carries is packed: one thread runs its list of kernels. Large arrays are alone."""
    inner = compact(lambda z: jnp.sin(z) * jnp.cos(z) + z**3)

    def loop(z, many, step):
        def turn(now):
            z, many, *left, again = now
            z = jnp.abs(inner(z)) + jnp.sqrt(jnp.abs(z)) + step
            return z, many * 2 + z.sum(), *(x + 1 for x in left), ~again

        left = [jnp.arange(float(k)) for k in range(8)]
        return jax.lax.while_loop(lambda now: now[0][0] < 9, turn, (z, many, *left, jnp.zeros((), bool)))

    args = Y, jnp.ones(300), jnp.asarray(1.0)
    program = jax.jit(compact(loop)).lower(*args).compile().as_text()
    (body,) = re.findall(r" while\(.*body=%([^ ,]+)", program)
    turn = program.split(f"\n%{body} (")[1].split("\n}")[0]
    idle = r"get-tuple-element|tuple|parameter|constant|bitcast|copy"
    assert re.findall(rf" (?!{idle})([a-z-]+)\(", turn) == ["call"]
    assert len(re.findall(r" copy\(", turn)) == 3  # floats, one alone, and bools
    assert calls(compact(lambda z: (inner(z), inner(z + 1))), Y) == 2
    same(jax.jit(compact(loop))(*args), jax.jit(loop)(*args), tolerance=0)
    many = jnp.stack([Y, 2 * Y]), jnp.ones((2, 300)), jnp.asarray([1.0, 2.0])
    same(jax.jit(jax.vmap(compact(loop)))(*many), jax.jit(jax.vmap(loop))(*many))


def test_a_barrier_has_derivatives_where_some_of_its_values_are_constants():
    def function(x):
        one, *_ = materialize((x * 2, jnp.arange(3), jnp.cos(Y)))
        return one * jnp.arange(3), x.sum()

    found = jax.jit(jax.vmap(jax.linear_transpose(function, Y)))((X, jnp.ones(3)))[0]
    same(found, 2 * X * jnp.arange(3) + 1)
    same(jax.jacfwd(lambda x: function(x)[0])(Y), jnp.diag(2.0 * jnp.arange(3)))


def test_what_is_the_same_each_time_is_made_where_it_is_read():
    def function(x):
        places = jnp.arange(3) * 2
        taken = jax.jit(lambda x, k: jnp.sort(x)[k])(x, places)  # stays apart, and reads it
        return taken * jnp.cos(jnp.arange(3.0)) + 1, places  # so does a call, and it is a result

    same(jax.jit(compact(function))(X[0]), function(X[0]))


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="calls are made on CPU")
@pytest.mark.parametrize(("shape", "apart"), [((27, 70, 27), False), ((27, 48, 75), False), ((48, 27, 75), True)])
def test_products_that_would_be_plain_loops_are_a_librarys(shape, apart):
    m, k, n = shape
    a, b = np.random.default_rng(1).normal(size=(m, k)), np.random.default_rng(2).normal(size=(k, n))
    product = compact(lambda a, b: jnp.tanh(jnp.sin(a) @ jnp.cos(b)) * 2 + 1)
    same(jax.jit(product)(a, b), np.tanh(np.sin(a) @ np.cos(b)) * 2 + 1)
    assert (" dot(" in entry(product, a, b)) == apart


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="calls are made on CPU")
def test_small_systems_are_part_of_a_call():
    """Apart from it a loop around one is a list of kernels, which XLA hands to threads."""
    assert calls(compact(with_systems), X, Y) == 1
    many = np.eye(SMALL + 1) * 2
    assert "while" not in entry(compact(lambda y: solve(many[:SMALL, :SMALL], y)), np.ones(SMALL))
    assert calls(compact(lambda y: jnp.sin(solve(many, jnp.cos(y) * 2))), np.ones(SMALL + 1)) == 1  # LAPACK is after it


def test_every_operation_of_arrays_compiles_in_a_call():
    """XLA's message for one that does not is of no help: `Failed to materialize symbols`."""
    arrays = [np.array(x) for x in ([0.3, -0.7, 1.1], [True, False, True], [0, 1, 5])]
    tried = set()
    for name in sorted(stages.NATIVE & stages.LAX - {"optimization_barrier"}):
        for args in [(x,) * k for k in (1, 2) for x in arrays]:
            try:
                operation = getattr(jax.lax, name)
                expected = jax.jit(operation)(*args)
            except Exception:  # no function of this name, or not of these arguments
                continue
            held = compact(lambda *xs: [operation(*xs) for _ in range(3)])  # noqa: B023
            assert calls(held, *args) == 1, name
            for found in jax.jit(held)(*args):
                same(found, expected, tolerance=1e-15)
            tried.add(name)
    assert len(tried) > 60


def test_off_where_users_keep_their_own_flags(monkeypatch):
    monkeypatch.setattr(stages, "compiles_calls", lambda: False)
    assert calls(compact(smooth), X, Y) == 0


def test_large_arrays_stay_outside():
    big = np.ones((600, 600))
    assert calls(compact(lambda x: jnp.sin(x) * jnp.cos(x) + x**2), big) == 0
    assert calls(compact(lambda x: jnp.sin(x) * jnp.cos(x) + x**2), Y) == 1


def test_a_step_is_made_of_calls():
    model = uk.load("hopper")
    assert calls(lambda s: uk.step(model, s), uk.initial_state(model)) > 3


@pytest.fixture
def other_jaxlib(monkeypatch):
    """One that nobody has tested."""
    assert flags.compiles_calls()
    decided = flags._is_tested, flags.known_flags
    for function in decided:
        function.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(flags, "_version", lambda: "99.0")
        yield
    for function in decided:
        function.cache_clear()


def test_flags_that_a_jaxlib_does_not_know_are_not_set(other_jaxlib, monkeypatch):
    """XLA ends the process at one, at the first array that anybody makes."""
    known = flags.known_flags()
    assert "--xla_cpu_multi_thread_eigen" in known
    flags.known_flags.cache_clear()
    monkeypatch.setitem(flags.FLAGS, "--xla_cpu_of_ukemi", "false")
    assert flags.known_flags() == known
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr(flags, "_backend_is_up", lambda: False)
    flags.set_xla_flags()
    assert os.environ["XLA_FLAGS"].split() == [f"{name}={value}" for name, value in known.items()]


def test_a_jaxlib_that_was_not_tested_takes_the_plain_path_and_says_so_once(other_jaxlib, monkeypatch):
    with pytest.warns(UserWarning, match=r"with 99\.0 it leaves out compiled stages.*UKEMI_STAGES=on"):
        assert not flags.compiles_calls()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not flags.compiles_calls()
        for chosen, taken in (("on", True), ("off", False)):
            monkeypatch.setenv("UKEMI_STAGES", chosen)
            flags._is_tested.cache_clear()
            assert flags.compiles_calls() == taken


def test_what_was_traced_lately_is_not_traced_again():
    traced = []

    def function(x):
        traced.append(1)
        return jnp.sin(x)

    captured = []

    def nested(x):
        captured.extend(programs.trace(lambda y: y * x, (Y,))[0].consts)
        return x

    first = programs.trace(function, (X,))[0]
    assert programs.trace(function, (2 * X,))[0] is first and len(traced) == 1
    programs.trace(function, (X[0],))  # another shape
    with jax.default_matmul_precision("highest"):  # another setting
        programs.trace(function, (X,))
    assert len(traced) == 3
    # what a function captures of an outer trace is gone after it
    before = list(programs._recent)
    jax.make_jaxpr(nested)(Y)
    assert captured and list(programs._recent) == before
    for k in range(2 * programs.RECENT):
        programs.trace(lambda x, k=k: x + k, (X,))
    assert len(programs._recent) == programs.RECENT


@pytest.mark.parametrize("looped", [False, True])
def test_barriers_hold_within_a_stage(looped):
    """Of six short expressions, each of the one before, XLA makes one, in which parts are computed again and again."""

    def chain(barrier, x):
        def one(x):
            return barrier(jnp.stack([x[0] * x[1] - x[2] * x[0], x[1] * x[2] - x[0], x[2] * x[0] - x[1] * x[2]]))

        def six(x):
            for _ in range(6):
                x = one(x)
            return x

        return jax.lax.fori_loop(0, 3, lambda k, x: six(x), x) if looped else six(x)

    def expressions(barrier) -> int:
        return jax.jit(compact(partial(chain, barrier))).lower(X[0]).compile().as_text().count(" fusion(")

    assert expressions(materialize) >= 6 > expressions(lambda x: x)
    batch = jax.jit(jax.vmap(compact(partial(chain, materialize)))).lower(X).as_text()
    assert "inlineable" not in batch and "optimization_barrier" in batch  # which is no stage
