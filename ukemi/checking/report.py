"""Compare the derivatives of a step with differences, for every input and every parameter of a model.

Derivatives are taken in the coordinates of `perturbing`.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.checking.contact_states import QUICK, random_states
from ukemi.checking.modes import has_modes, step_with_mode, tightly
from ukemi.checking.perturbations import CLOSED, Point, coordinates, draw_directions, move
from ukemi.collide.detect import detect
from ukemi.errors import InputError
from ukemi.implicit.rules import Exact
from ukemi.laws.checks import check_method
from ukemi.laws.conic.law import Conic
from ukemi.laws.method import Method
from ukemi.laws.soft.law import SOFT, Soft
from ukemi.mechanics.kinematics import difference, of_state
from ukemi.model.checks import check_model
from ukemi.model.records import Model, State
from ukemi.status import Status
from ukemi.values import check_count, is_count, require

BOUND = 1e-6  # largest relative error that passes
FLOOR = 1e-2  # derivatives of velocities that are smaller count as this, per relative change of a parameter
ROUNDING = 1e-14  # of an outcome, at least
ROUGH = 1e-7  # differences that disagree among themselves by this much, on the same scale, are no reference
RUNGS = 2e-3 * 0.5 ** np.arange(10)  # steps of the differences, relative to the scale of what is perturbed
LIGHTLY = {"xla_backend_optimization_level": 1}  # for thousands of steps, whose small loops crawl with none (`QUICK`)
NOTHING = ROUNDING / RUNGS[0]  # derivatives below this change no outcome, not by the longest of the steps


# ---- differences and derivatives -----------------------------------------------------------------------------------


def _reference(method: Method) -> Method:
    """The same law solved as tightly as can be: differences divide what the solver leaves over by small steps."""
    if not isinstance(method, Soft):
        return method
    return dataclasses.replace(method, solver="Newton", iterations=300, line_search_iterations=200, tolerance=1e-14)


def outcome(state: State, reference: Array, h: Array, tree) -> Array:
    """What is differentiated (2 nv + na,): how far q is from the reference over one time step, v, and act."""
    return jnp.concatenate([difference(tree, state.q, reference) / h, state.v, state.act])


def differences(method: Method, point: Point, directions: dict) -> tuple[Array, Array, Array]:
    """Central differences (directions, rungs, outputs), and which rungs (directions, rungs) stay in one mode.

    Then whether the step has a derivative at all.
    """
    tree, h = point.model.tree, point.model.options.timestep
    method = _reference(method)
    base, mode = step_with_mode(method, *point)
    # what a law remembers says where it starts to look, not what it finds: where this step ended is near
    point = point._replace(state=dataclasses.replace(point.state, cache=base.cache))

    def one(direction):
        def rung(t):
            def side(sign):
                moved, own = step_with_mode(method, *move(point, jax.tree.map(lambda d: sign * t * d, direction)))
                return outcome(moved, base.q, h, tree), (own[:-1] == mode[:-1]).all()

            values, same = lax.map(side, jnp.array([1.0, -1.0]))
            return (values[0] - values[1]) / (2 * t), same.all() & jnp.isfinite(values).all()

        return lax.map(rung, jnp.asarray(RUNGS))

    return *lax.map(one, directions), mode[-1] >= 0


def derivatives(
    method: Method, point: Point, directions: dict, cotangents: Array, first: int
) -> tuple[Array, Array, Array]:
    """Derivatives (directions, outputs) in forward mode; those of cotangents · outputs (directions, n) in reverse.

    Then whether the step's solver converged. The first directions are those of `CLOSED` groups, along which the soft
    law has derivatives of its own as long as nothing else moves.
    """
    tree, h = point.model.tree, point.model.options.timestep

    def after(along):
        state = method.step(*move(point, along))
        return outcome(state, lax.stop_gradient(state.q), lax.stop_gradient(h), tree), state.status

    forward, reverse, status = [], [], None
    shapes = coordinates(point)
    alone = [name for name in shapes if name in CLOSED and isinstance(method, Soft)]
    together = [name for name in shapes if name not in alone]
    for names, rows in ((alone, slice(first)), (together, slice(first if alone else 0, None))):
        if not names:
            continue
        zero = {name: jnp.zeros(shapes[name]) for name in names}
        own = {name: directions[name][rows] for name in names}
        _, push, status = jax.linearize(after, zero, has_aux=True)
        pull = jax.linear_transpose(push, zero)
        gradients = lax.map(lambda w, pull=pull: pull(w)[0], cotangents)
        forward.append(lax.map(push, own))
        flat = [(own[k].reshape(len(own[k]), -1), g.reshape(len(cotangents), -1)) for k, g in gradients.items()]
        reverse.append(sum(d @ g.T for d, g in flat))
    return jnp.concatenate(forward), jnp.concatenate(reverse), status & Status.NOT_CONVERGED == 0


def extrapolate(D: np.ndarray, same: np.ndarray, rungs: np.ndarray = RUNGS) -> tuple[np.ndarray, float] | None:
    """Richardson's limit (outputs,) of central differences D (rungs, outputs) at halving steps, and its error.

    Only the smallest steps that all stay in one mode count; None where there are fewer than three.
    """
    first = len(same) - int(np.argmin(same[::-1])) if not same.all() else 0
    if len(D) - first < 3:
        return None
    best, error, last = D[-1], np.inf, []
    noise = max(ROUNDING, np.abs(D[-1] - D[-2]).max() * rungs[-1])  # of an outcome: it shows where steps are smallest
    for row, t in zip(D[first:], rungs[first:], strict=True):
        current, rounding = [row], noise / t
        for order, coarse in enumerate(last, 1):
            current.append(current[-1] + (current[-1] - coarse) / (4**order - 1))
        for k in range(1, len(current)):
            spread = max(np.abs(current[k] - current[k - 1]).max(), np.abs(current[k] - last[k - 1]).max())
            if spread + rounding < error:  # two noisy numbers may agree by chance
                best, error = current[k], float(spread + rounding)
        last = current
    return best, error


# ---- the report ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class GroupResult:
    """How the derivatives of one group compare."""

    group: str
    samples: int = 0  # directions at states that were compared
    boundary: int = 0  # left out: the mode changes within the differences
    rough: int = 0  # left out: differences of different steps disagree
    error: float = 0.0  # worst, relative
    modes: float = 0.0  # worst disagreement of forward and reverse mode, relative
    effect: bool = False  # something changes when this does
    stray: bool = False  # a derivative that is not zero where nothing changes

    @property
    def failed(self) -> bool:
        """Whether a derivative is wrong."""
        return self.stray or not max(self.error, self.modes) <= BOUND

    @property
    def verdict(self) -> str:
        """One or two words."""
        if self.failed:
            return "WRONG"
        if not self.effect:
            return "no effect" if self.samples else "not compared"
        return "ok" if self.samples else "not compared"


@dataclasses.dataclass
class GradientReport:
    """Derivatives of a step against central differences, group by group; printed as a table."""

    title: str
    states: int
    touching: int  # states with an active contact
    undetermined: int  # states left out: the step has no derivative
    unsolved: int  # states left out: the solver did not converge
    groups: list[GroupResult]

    @property
    def failed(self) -> list[str]:
        """Groups whose derivatives are wrong."""
        return [group.group for group in self.groups if group.failed]

    @property
    def compared(self) -> bool:
        """Whether any derivative was compared."""
        return any(group.samples for group in self.groups)

    def __str__(self):
        table = [("group", "compared", "mode edge", "rough", "worst error", "fwd − rev", "")]
        for g in self.groups:
            shown = g.samples and (g.effect or g.failed)
            errors = [f"{value:.1e}" if shown else "" for value in (g.error, g.modes)]
            table.append((g.group, str(g.samples), str(g.boundary), str(g.rough), errors[0], errors[1], g.verdict))
        widths = [max(len(row[k]) for row in table) for k in range(6)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:6], widths[1:6])), row[6]]).rstrip()
            for row in table
        ]
        wrong = ", ".join(self.failed)
        end = f"WRONG: {wrong}" if wrong else f"All derivatives agree with differences to {BOUND:.0e} or better."
        if not self.compared:
            end = "Nothing could be compared."
        title = f"{self.title}: {self.states} states, {self.touching} in contact"
        if self.undetermined:
            title += f", {self.undetermined} left out, where the step has no derivative that rounding leaves"
        if self.unsolved:
            title += f", {self.unsolved} left out, where the solver did not converge (see Soft.iterations and solver)"
        return "\n".join([title, *lines, end])


def check_gradients(
    model: Model,
    method: Method | None = None,
    *,
    samples: int = 10,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> GradientReport:
    """Compare derivatives of `uk.step` with central differences at random contact states of a model.

    Every coordinate of the state, every input and every parameter takes part, in random directions. A direction
    counts at a state only where all points of the differences share one discrete mode (which contacts act, stick or
    slip, which limits are reached) and where the differences agree among themselves; how many do not is in the report.
    So is the number of states where a rigid law leaves the velocities open or rounding shows in derivatives (overlaps
    and limits pressed by thousands of times the weight make stiff steps), and where the solver that the model or the
    method asks for did not converge: there derivatives are those of a nearby step. It needs float64.

    Args:
        model: the robot.
        method: the contact law, `Soft()` with the file's own options if left out.
        samples: number of states.
        seed: of the random states and directions.
        progress: called with (states done, all states).
    """
    check_model(model)
    if method is not None:
        check_method(method)
    check_count("check_gradients", "samples", samples)
    require(is_count(seed, 0), "check_gradients", "seed", seed, "must be an integer that is not negative")
    good = progress is None or callable(progress)
    require(good, "check_gradients", "progress", progress, "must be a function of (states done, all states)")
    if not model.nv:
        raise InputError(f"check_gradients: {model!r} has no degrees of freedom, so that there is nothing to compare.")
    method = method or SOFT
    if not has_modes(method):
        raise InputError(f"check_gradients does not cover uk.{type(method).__name__} yet: its modes are not known.")
    if not isinstance(method.gradient, Exact):
        raise InputError(f"check_gradients compares Exact derivatives; those of {method.gradient!r} differ on purpose.")
    if model.options.timestep.dtype != jnp.float64:
        raise InputError("check_gradients needs float64: set JAX_ENABLE_X64=1 before the model is loaded.")
    title = f"{model.name or 'model'}, {type(method).__name__}"
    if isinstance(method, Conic):
        method = tightly(method)
    states = random_states(model, samples, seed, method)
    results = {name: GroupResult(name) for name in coordinates(Point(model, *states[0]))}
    touching = undetermined = unsolved = 0
    for k, (touches, comparison) in enumerate(_comparisons(model, method, states, seed)):
        touching += touches
        undetermined += not comparison.determined
        unsolved += comparison.determined and not comparison.solved
        if comparison.determined and comparison.solved:
            _note(results, comparison)
        if progress:
            progress(k + 1, samples)
    return GradientReport(title, samples, touching, undetermined, unsolved, list(results.values()))


class Comparison(NamedTuple):
    """Derivatives at one state."""

    owners: list[str]  # group of every direction
    D: np.ndarray  # (directions, rungs, outputs)
    same: np.ndarray  # (directions, rungs)
    forward: np.ndarray  # (directions, outputs)
    reverse: np.ndarray  # (directions, n)
    cotangents: np.ndarray  # (n, outputs)
    determined: bool  # the step has a derivative
    solved: bool  # and its solver converged


def _comparisons(model: Model, method: Method, states: list, seed: int) -> Iterator[tuple[bool, Comparison]]:
    """Whether each state touches, and its derivatives: one program for the differences, one for the derivatives."""
    rng = np.random.default_rng(seed)
    differ = jax.jit(lambda *args: differences(method, Point(*args[:3]), args[3]), compiler_options=LIGHTLY)
    derive = jax.jit(
        lambda *args: derivatives(method, Point(*args[:3]), *args[3:]), static_argnums=5, compiler_options=QUICK
    )
    touch = jax.jit(lambda *args: detect(args[0], of_state(*args)).active.any(), compiler_options=QUICK)
    for state, inputs in states:
        point = Point(model, state, inputs)
        owners, directions = draw_directions(point, rng, states=6, each=3)
        cotangents = rng.normal(size=(2, 2 * model.nv + model.na))
        first = sum(name in CLOSED for name in owners)
        values = differ(*point, directions), derive(*point, directions, cotangents, first)
        (D, same, good), (forward, reverse, solved) = jax.tree.map(np.asarray, values)
        touches = bool(touch(*point)) if model.pairs.layout.groups else False
        yield touches, Comparison(owners, D, same, forward, reverse, cotangents, bool(good), bool(solved))


def _note(results: dict[str, GroupResult], c: Comparison) -> None:
    """Add what one state says."""
    owners = np.array(c.owners)
    for name, result in results.items():
        own = np.flatnonzero(owners == name)
        limits = {k: extrapolate(c.D[k], c.same[k]) for k in own}
        kept = {k: limit for k, limit in limits.items() if limit is not None}
        result.boundary += len(own) - len(kept)
        size = max((float(np.abs(value).max(initial=0)) for value, _ in kept.values()), default=0.0)
        size = max(size, FLOOR)
        least = max(0.01 * size, FLOOR)
        smooth = {k: value for k, (value, error) in kept.items() if error <= ROUGH * least}
        result.rough += len(kept) - len(smooth)
        result.effect |= bool(c.D[own].any())
        if not c.D[own].any():  # rounding aside, derivatives must vanish, too
            result.stray |= not max(np.abs(x[own]).max(initial=0.0) for x in (c.forward, c.reverse)) < NOTHING
        scale = np.full(c.forward.shape[1], least)
        for value in smooth.values():
            scale = np.maximum(scale, np.abs(value))
        for k, value in smooth.items():
            result.samples += 1
            result.error = _worse(result.error, np.abs(c.forward[k] - value) / scale)
        across = c.cotangents @ c.forward[own].T
        apart = np.abs(across.T - c.reverse[own]) / max(size, float(np.abs(across).max(initial=0)))
        result.modes = _worse(result.modes, apart)


def _worse(before: float, errors: np.ndarray) -> float:
    """The larger error; NaN counts as infinite."""
    return max(before, float(np.where(np.isnan(errors), np.inf, errors).max(initial=0.0)))
