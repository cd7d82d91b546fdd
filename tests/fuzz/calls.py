"""Wrong calls of the public interface, drawn at random: each must be refused in a sentence, or turn out to be right.

A call starts from good arguments, of which one or two are replaced: by anything at all, or by something nearly right,
such as a state with one array too long. What is accepted is traced, which compiles nothing, and must have the shapes
that the interface promises.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import ukemi as uk
from tests.fuzz.findings import Finding
from tests.fuzz.wrong import (
    LAWS,
    SCENE,
    STEPS,
    Constructing,
    Draw,
    anything,
    bodies,
    folder,
    motion,
    pick,
    world,
    wrong_bodies,
    wrong_input,
    wrong_law,
    wrong_model,
    wrong_motion,
    wrong_path,
    wrong_state,
    wrong_states,
)
from ukemi.model.records import as_input

# ---- functions and what they promise ---------------------------------------------------------------------------------


class Function(NamedTuple):
    """A public function: good arguments, how each may go wrong, and what its results must look like."""

    name: str
    call: Callable
    good: dict[str, Any]
    wrong: dict[str, Callable[[np.random.Generator], Draw]]
    check: Callable[[dict, Any], None] | None = None  # of (arguments, result), if it is traced

    @property
    def traced(self) -> bool:
        """Whether a call that is accepted is traced, rather than run."""
        return self.check is not None


def _like(result: Any, wanted: Any, lead: tuple[int, ...] = ()) -> None:
    shapes = [(*lead, *np.shape(x)) for x in jax.tree.leaves(wanted)]
    assert [x.shape for x in jax.tree.leaves(result)] == shapes, f"shapes {[x.shape for x in jax.tree.leaves(result)]}"


def _check_rollout(args: dict, states: Any) -> None:
    if args["observe"] is not None:
        return _like(states[0], world().state)
    times = getattr(args["method"], "saveat", None)
    ctrls = args["ctrls"]
    ctrls = next(x for x in vars(ctrls).values() if x is not None) if isinstance(ctrls, uk.Input) else ctrls
    _like(states, world().state, (len(ctrls if times is None else times),))


def _check_linearization(args: dict, lin: Any) -> None:
    assert (lin.A.shape, lin.B.shape) == ((15, 15), (15, 1)), f"shapes {lin.A.shape}, {lin.B.shape}"
    _like(lin.next, world().state)


def _check_readings(_: dict, found: Any) -> None:
    _like(found.flat, jnp.zeros(sum({"angle": 1, "felt": 3}[name] for name in found)))


def _check_frames(_: dict, found: Any) -> None:
    assert found.bodies.pos.shape == (4, 3) and found.com.shape == (3,), f"shapes {found.bodies.pos.shape}"


def _check_rates(args: dict, rates: Any) -> None:
    assert [x.shape for x in rates] == [(8,), (7,), (1,)], f"shapes {[x.shape for x in rates]}"


@functools.cache
def functions() -> list[Function]:
    """The public functions."""
    model, state, _ = world()
    here: dict[str, Any] = {"model": model, "state": state}
    moving = here | {"ctrl": None, "method": None}
    lawful, law = here | {"method": None}, {"method": wrong_law}
    start: dict[str, Any] = {"model": wrong_model, "state": wrong_state}
    acting = start | {"ctrl": wrong_input} | law
    ctrls = jnp.zeros((STEPS, 1))
    report = {"model": model, "method": uk.Impact(), "samples": 1, "seed": 0, "progress": None}  # refused in the end
    return [
        Function("step", uk.step, moving, acting, lambda _, after: _like(after, state)),
        Function(
            "rollout",
            uk.rollout,
            here | {"ctrls": ctrls, "method": None, "checkpoint": None, "observe": None},
            start | {"ctrls": wrong_input, "method": wrong_law, "checkpoint": anything, "observe": anything},
            _check_rollout,
        ),
        Function("linearize", uk.linearize, moving | {"wrt": ()}, acting | {"wrt": anything}, _check_linearization),
        Function("vector_field", uk.vector_field, moving, acting, _check_rates),
        Function(
            "inverse",
            uk.inverse,
            here | {"qacc": jnp.zeros(7), "method": None},
            start | {"qacc": anything, "method": wrong_law},
            lambda _, force: _like(force, jnp.zeros(7)),
        ),
        Function("contacts", uk.contacts, moving, acting, _like_contacts),
        Function("energy", uk.energy, lawful, start | law, lambda _, found: _like(found, (0.0, 0.0))),
        Function("momentum", uk.momentum, lawful, start | law, lambda _, found: _like(found, (jnp.zeros(3),) * 2)),
        Function("sensors", uk.sensors, moving | {"names": None}, acting | {"names": anything}, _check_readings),
        Function("frames", uk.frames, here | {"ctrl": None}, start | {"ctrl": wrong_input}, _check_frames),
        Function(
            "frames(...).jacobian",
            lambda **given: uk.frames(model, state).jacobian(**given),
            {"body": "arm", "point": None},
            {"body": anything, "point": anything, "site": anything},
            lambda _, J: _like(J, (jnp.zeros((3, 7)),) * 2),
        ),
        Function("maximal_state", uk.maximal_state, here, start, lambda _, found: _like(found, bodies())),
        Function(
            "minimal_state",
            uk.minimal_state,
            {"model": model, "bodies": bodies(), "near": None},
            {"model": wrong_model, "bodies": wrong_bodies, "near": wrong_state},
            lambda _, found: _like(found, state),
        ),
        Function(
            "NCP().search",
            uk.NCP().search,
            here | {"ctrl": None},
            start | {"ctrl": wrong_input, "turns": anything, "whole": anything},
            lambda _, found: None,
        ),
        *(
            Function(
                call.__name__,
                call,
                {"model": model, "states": motion(), "path": f"{folder()}/motion{suffix}"},
                {"model": wrong_model, "states": wrong_motion, "path": wrong_path, **more},
            )
            for call, suffix, more in (
                (uk.plot, ".png", {"title": anything}),
                (uk.save_replay, ".html", {"ctrls": anything}),
            )
        ),
        Function("refresh", uk.refresh, {"model": model}, {"model": wrong_model, "inertias": anything}, _like_model),
        Function(
            "initial_state",
            uk.initial_state,
            {"model": model},
            {"model": wrong_model, "keyframe": anything, "q": anything, "v": anything, "act": anything},
            lambda _, found: _like(found, state),
        ),
        Function(
            "smooth_collisions",
            uk.smooth_collisions,
            {"model": model, "width": 1e-3},
            {"model": wrong_model, "width": anything},
            _like_model,
        ),
        Function("smooth_onset", uk.smooth_onset, {"model": model}, {"model": wrong_model}, _like_model),
        Function("raise_if_failed", uk.raise_if_failed, {"states": state}, {"states": wrong_states}),
        Function("load", uk.load, {"source": SCENE.format(meets="")}, {"contacts": anything}),
        Function(
            "check_gradients",
            uk.check_gradients,
            report,
            {"model": wrong_model, "samples": anything, "seed": anything, "progress": anything},
        ),
        Function("as_input", as_input, {"model": model, "ctrl": None}, {"ctrl": wrong_input}, lambda _, found: None),
    ]


def _like_contacts(_: dict, found: Any) -> None:
    _like(found.active, world().state.cache.laws["rigid"].contacts)


def _like_model(_: dict, model: Any) -> None:
    _like(model, world().model)


# ---- the run ---------------------------------------------------------------------------------------------------------


def run(seed: int, count: int) -> list[Finding]:
    """Findings of so many wrong calls."""
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [attempt(rng) for _ in range(count)]
    return [finding for finding in found if finding is not None]


def attempt(rng: np.random.Generator, outcome: Callable[[str], None] = lambda _: None) -> Finding | None:
    """One wrong call, and what is wrong with how it ended; outcome: is told "refused" or "accepted"."""
    function = pick(rng, functions())
    args, shown = dict(function.good), []
    if "method" in function.wrong and rng.random() < 0.5:
        law = pick(rng, list(LAWS))
        args["method"] = law()
        shown.append(f"method=uk.{law.__name__}()")
    try:
        names = list(function.wrong)
        for name in rng.choice(names, size=min(len(names), 1 + int(rng.random() < 0.3)), replace=False):
            draw = function.wrong[name](rng)
            args[name] = draw.value
            shown.append(f"{name}={draw.shown}")
        result = jax.eval_shape(lambda: function.call(**args)) if function.traced else function.call(**args)
        if function.check:
            function.check(args, result)
    except Constructing as error:
        return _judge(str(error), error.__cause__, outcome)
    except Exception as error:
        return _judge(f"uk.{function.name}({', '.join(shown)})", error, outcome)
    outcome("accepted")
    return None


def _judge(call: str, error: BaseException | None, outcome: Callable[[str], None]) -> Finding | None:
    """What is wrong with an error: it is raw, or no sentence."""
    outcome("refused")
    text = str(error)
    if not isinstance(error, uk.UkemiError):
        return Finding(call, f"{type(error).__name__}: {text[:200]}")
    if not text.endswith(".") or len(text.split()) < 4:
        return Finding(call, f"no sentence: {text[:200]}")
    return None
