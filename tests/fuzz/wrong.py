"""Good arguments of the public interface, and wrong ones by what they are, for `tests.fuzz.calls`."""

import dataclasses
import decimal
import fractions
import functools
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import ukemi as uk

SCENE = """<mujoco model="scene"><option timestep="0.01"/><worldbody>
<geom type="plane" size="1 1 1"/>
<body name="ball" pos="0 0 1"><freejoint name="root"/><geom type="sphere" size="0.1" {meets}/><site name="eye"/></body>
<body name="hand" mocap="true"><site/></body>
<body name="arm" pos="1 0 1"><joint name="hinge" axis="0 1 0"/>
<geom type="capsule" fromto="0 0 0 0 0 0.3" size="0.02" contype="0" conaffinity="0"/></body></worldbody>
<actuator><general joint="hinge" dyntype="filter" dynprm="0.1"/></actuator>
<sensor><jointpos name="angle" joint="hinge"/><accelerometer name="felt" site="eye"/></sensor>
<keyframe><key name="up" qpos="0 0 2 1 0 0 0 0.1"/></keyframe></mujoco>"""
LAWS = uk.Soft, uk.LCP, uk.Impact, uk.Adaptive, uk.NCP, uk.Maximal
STEPS = 3  # of a rollout
BATCH = 4


class World(NamedTuple):
    """Good arguments."""

    model: uk.Model
    state: uk.State
    others: tuple[uk.State, ...]  # states of other models, some of the same nq, nv and na


class Draw(NamedTuple):
    """An argument, and how the record of a call shows it."""

    value: Any
    shown: str


@functools.cache
def world() -> World:
    """A ball that may touch the floor, a driven arm and a mocap body."""
    model, apart = uk.load(SCENE.format(meets="")), uk.load(SCENE.format(meets='contype="0" conaffinity="0"'))
    others = uk.initial_state(apart), uk.initial_state(uk.load("pendulum"))
    return World(model, uk.initial_state(model), others)


# ---- wrong values ----------------------------------------------------------------------------------------------------


@functools.cache
def bodies() -> uk.MaximalState:
    """Where the bodies are."""
    return uk.maximal_state(*world()[:2])


@functools.cache
def folder() -> str:
    """Where files may be written."""
    return tempfile.mkdtemp()


def stacked(tree: Any, n: int = BATCH) -> Any:
    """A batch of n that are all the same."""
    return jax.tree.map(lambda x: jnp.stack([x] * n), tree)


@functools.cache
def motion() -> uk.State:
    """A trajectory that stands still."""
    return stacked(world().state, STEPS)


class _Odd:
    """What no function knows."""


@functools.cache
def objects() -> list[Draw]:
    """Values of all kinds but arrays."""
    model, state, others = world()
    plain: list[Any] = [
        None, True, False, 0, 1, 2, 3, -1, 10**400, 1.5, 0.0, -0.5, math.nan, math.inf, 1j, "", "lcp", "up", "nonsense",
        "bodies.mass", "bodies.layout", "tree.nv", ".", b"up", (), [], {}, set(), [None], ["a"], [1, [2, 3]], [1j],
        ("bodies.mass", 3), {"ctrl": 0.0}, range(3), slice(2), Ellipsis, NotImplemented, ValueError("no"), object(),
        _Odd, _Odd(), uk, len, decimal.Decimal("0.5"), fractions.Fraction(1, 3), np.float32(0.5), np.int64(2),
        np.bool_(True), np.datetime64("2020-01-01"), memoryview(b"12"), *LAWS, *(law() for law in LAWS), uk.Exact,
        uk.Exact(), uk.Bounce(), uk.ComplementarityAware(), uk.FromDistance(), uk.CentralPath(), uk.Model, uk.State,
        uk.Status.OK,
    ]  # fmt: skip
    named = [Draw(model, "model"), Draw(state, "state"), Draw(others[0], "state of another model")]
    named += [Draw(uk.Input(), "Input()"), Draw(uk.energy, "uk.energy"), Draw(jax.random.key(0), "a random key")]
    return [Draw(value, repr(value)[:60]) for value in plain] + named


@functools.cache
def arrays() -> list[Draw]:
    """Arrays of many shapes, dtypes and contents."""
    draws = []
    for shape in [(), (0,), (1,), (7,), (8,), (9,), (1, 8), (BATCH, 7), (BATCH, 8), (STEPS, 1), (2, STEPS, 1), (4, 6)]:
        for dtype in ("float64", "float32", "int32", "complex128", "bool", "object", "U3"):
            fill = {"object": _Odd(), "U3": "abc"}.get(dtype, 1)
            draws.append(Draw(np.full(shape, fill, dtype), f"np {dtype}{list(shape)}"))
            if dtype not in ("object", "U3"):
                draws.append(Draw(jnp.full(shape, fill, dtype), f"jnp {dtype}{list(shape)}"))
        draws.append(Draw(jnp.full(shape, jnp.nan), f"NaN{list(shape)}"))
        draws.append(Draw(np.zeros(shape).tolist(), f"list{list(shape)}"))
        draws.append(Draw(jax.ShapeDtypeStruct(shape, jnp.float64), f"ShapeDtypeStruct{list(shape)}"))
    return draws


def spoiled(rng: np.random.Generator, leaf: Any) -> Draw:
    """Something like an array, but of another shape or dtype."""
    x = np.asarray(leaf)
    changes: dict[str, Callable] = {
        "longer": lambda: jnp.zeros((x.size + 1,), x.dtype),
        "shorter": lambda: jnp.zeros((max(x.size - 1, 0),), x.dtype),
        "batched": lambda: jnp.broadcast_to(leaf, (BATCH, *x.shape)),
        "of one": lambda: jnp.asarray(leaf)[None],
        "first": lambda: jnp.zeros(x.shape[1:], x.dtype),
        "float32": lambda: x.astype("float32"),
        "int64": lambda: jnp.zeros(x.shape, "int64"),
        "complex": lambda: jnp.zeros(x.shape, complex),
        "object": lambda: x.astype(object),
        "list": x.tolist,
        "as NumPy": lambda: x,
        "anything": lambda: anything(rng).value,
    }
    name = pick(rng, list(changes))
    return Draw(changes[name](), name)


def anything(rng: np.random.Generator) -> Draw:
    """A value that may stand anywhere, and is wrong nearly everywhere."""
    return pick(rng, objects() if rng.random() < 0.6 else arrays())


def pick(rng: np.random.Generator, options: list) -> Any:
    """One of a list."""
    return options[int(rng.integers(len(options)))]


# ---- arguments by what they are --------------------------------------------------------------------------------------


def _replaced(rng: np.random.Generator, tree: Any) -> Draw:
    """A model or state of which one leaf is spoiled."""
    paths = jax.tree_util.tree_flatten_with_path(tree)[0]
    path, leaf = pick(rng, paths)
    change = spoiled(rng, leaf)
    shown = jax.tree_util.keystr(path, simple=True, separator=".")
    return Draw(_put(tree, path, change.value), f"{shown} {change.shown}")


def _put(tree: Any, path, value: Any) -> Any:
    """A tree of records and dicts with another value where a path leads."""
    if not path:
        return value
    key = path[0]
    if isinstance(key, jax.tree_util.DictKey):
        return tree | {key.key: _put(tree[key.key], path[1:], value)}
    return dataclasses.replace(tree, **{key.name: _put(getattr(tree, key.name), path[1:], value)})


def wrong_model(rng: np.random.Generator) -> Draw:
    """What is no model, or one with a leaf replaced."""
    model = world().model
    kind = rng.random()
    if kind < 0.3:
        return anything(rng)
    if kind < 0.4:
        return Draw(stacked(model), "batch of models")
    if kind < 0.5:
        group = pick(rng, ["bodies", "joints", "geoms", "pairs", "options", "keyframes", "tree"])
        return Draw(dataclasses.replace(model, **{group: anything(rng).value}), f"model, {group} replaced")
    return _replaced(rng, model)


def wrong_state(rng: np.random.Generator) -> Draw:
    """What is no state, one of another model, a batch, or one with a leaf replaced."""
    _, state, others = world()
    kind = rng.random()
    if kind < 0.25:
        return anything(rng)
    if kind < 0.35:
        return Draw(stacked(state), "batch of states")
    if kind < 0.45:
        return Draw(pick(rng, list(others)), "state of another model")
    if kind < 0.55:
        return Draw(jax.tree.map(lambda x: x.astype("float32") if x.dtype.kind == "f" else x, state), "float32 state")
    if kind < 0.6:
        return Draw(dataclasses.replace(state, cache=anything(rng).value), "state, cache replaced")
    return _replaced(rng, state)


def wrong_states(rng: np.random.Generator) -> Draw:
    """A wrong state, of which some have failed."""
    draw = wrong_state(rng)
    if isinstance(draw.value, uk.State) and rng.random() < 0.5:
        return Draw(dataclasses.replace(draw.value, status=jnp.int32(4)), f"failed {draw.shown}")
    return draw


def wrong_bodies(rng: np.random.Generator) -> Draw:
    """What is no state in maximal coordinates, or one with an array spoiled."""
    return anything(rng) if rng.random() < 0.4 else _replaced(rng, bodies())


def wrong_path(rng: np.random.Generator) -> Draw:
    """What is no path, one of another suffix, or beneath a file."""
    odd = anything(rng)
    if rng.random() < 0.5 and not isinstance(odd.value, str | bytes | Path):
        return odd
    name = pick(rng, ["no suffix", "motion.txt", ".html", "motion.mp4.", "deep/motion.exr"])
    return Draw(f"{folder()}/{name}", name)


def wrong_motion(rng: np.random.Generator) -> Draw:
    """What is no trajectory, or one with a leaf replaced."""
    return anything(rng) if rng.random() < 0.5 else _replaced(rng, motion())


def wrong_input(rng: np.random.Generator) -> Draw:
    """Anything as controls, or as a field of an `Input`."""
    if rng.random() < 0.5:
        return anything(rng)
    name = pick(rng, ["ctrl", "qfrc", "xfrc", "mocap_pos", "mocap_quat"])
    value = anything(rng)
    return Draw(uk.Input(**{name: value.value}), f"Input({name}={value.shown})")


OPTIONS = {
    uk.Soft: ["cone", "solver", "integrator", "iterations", "line_search_iterations", "tolerance", "gradient"],
    uk.LCP: ["gradient", "correction", "ahead", "explicit"],
    uk.Impact: ["gradient", "impacts"],
    uk.Adaptive: ["rtol", "atol", "solver", "controller", "adjoint", "max_steps", "saveat", "gradient", "soft"],
    uk.NCP: ["kappa", "cone", "gradient", "correction", "ahead", "iterations", "starts"],
    uk.Maximal: ["kappa", "cone", "gradient", "correction", "ahead", "iterations", "starts"],
    uk.FromDistance: ["width", "d_c", "d_0", "midpoint", "power", "onset"],
    uk.CentralPath: ["kappa", "width"],
}
RULES = {uk.FromDistance: uk.Soft, uk.CentralPath: uk.NCP}  # and a law that takes each


def wrong_law(rng: np.random.Generator) -> Draw:
    """Anything as a law, or a law or rule of which an option is anything; raises where its constructor refuses it."""
    if rng.random() < 0.3:
        return anything(rng)
    kind = pick(rng, list(OPTIONS))
    name, value = pick(rng, OPTIONS[kind]), anything(rng)
    shown = f"uk.{kind.__name__}({name}={value.shown})"
    try:
        made = kind(**{name: value.value})
    except Exception as error:
        raise Constructing(shown) from error
    return Draw(RULES[kind](gradient=made) if kind in RULES else made, shown)


class Constructing(Exception):
    """A constructor refused; its cause says how."""
