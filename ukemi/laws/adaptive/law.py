"""DiffMJX's adaptive integration: the soft law as an ordinary differential equation, integrated under error control.

x' = F(x), x = (q, v, act), over one model time step with controls held (Paulus et al., section 3.1). Quaternions move
in R⁴, where kinematics normalises them, and are made unit again at the end of the step. What derivatives see of the
search for step sizes are the accepted steps alone: they are taken again as shares of the time step, and differentiated.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, cast

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer
from jax.custom_derivatives import CustomVJPPrimal
from jax.flatten_util import ravel_pytree

from ukemi import values
from ukemi.collide.detect import Contacts
from ukemi.errors import GradientError, InputError
from ukemi.implicit.rule import filled, is_zero, isolated, pushforward, root, without_derivative
from ukemi.implicit.rules import Exact, FromDistance, Rule, require
from ukemi.laws.adaptive.search import Effort, Path, retrace, retrace_reversibly, search
from ukemi.laws.arrival import arrive
from ukemi.laws.integrators import Moved, rates
from ukemi.laws.memory import blank_cache, remember
from ukemi.laws.method import Loads, Method, columns, rows
from ukemi.laws.soft.law import Motion, Soft
from ukemi.maths import spatial
from ukemi.maths.gathers import pick
from ukemi.mechanics.activations import clamp_activation
from ukemi.mechanics.delays import joined, past, present, remembered
from ukemi.mechanics.kinematics import of_state
from ukemi.mechanics.plasticity import rests, settled, yields
from ukemi.model.records import Input, Model, State
from ukemi.status import Status, bit, is_finite
from ukemi.xla.batches import one_by_one
from ukemi.xla.programs import replaced

ADJOINTS = ("checkpointed", "backsolve")
ROUNDING = 1e-6  # share of a time step by which a time may miss its end
_CONSTANT = "times in uk.Adaptive(saveat=...) are constants; they have no derivative."
MANY = 64  # parameters beyond which a reverse pass through the steps is cheaper than their columns


class Memory(NamedTuple):
    """What passes from one evaluation of F to the next; it does not change what they converge to."""

    warm: Array  # (nv,) the last acceleration
    iterations: Array  # () of the solver, so far
    converged: Array  # () bool: of all accepted steps
    overflow: Array  # () bool: of any accepted step
    far_overflow: Array  # () bool


class Problem(NamedTuple):
    """Everything that a step depends on."""

    model: Model
    inputs: Input
    start: Array  # (nq + nv + na,)
    length: Array  # () [s]
    warm: Array  # (nv,)
    control: diffrax.AbstractStepSizeController  # its arrays, which may be traced: one program for many tolerances


def _times(given) -> Array | None:
    return None if given is None else values.array("Adaptive's saveat", given, float)


class Adaptive(Method):
    """The soft law in continuous time, integrated over each model time step with error control.

    Args:
        rtol: relative tolerance of a step's error, by default 1e-6.
        atol: absolute tolerance of a step's error, by default 1e-8.
        solver: one of Diffrax's explicit Runge–Kutta methods.
        controller: one of Diffrax's step-size controllers, in place of a PI controller of these tolerances.
        adjoint: "checkpointed", the derivative of the accepted steps, or "backsolve", the continuous adjoint under
            error control of its own, in reverse mode only.
        max_steps: bound on the steps tried per model time step, beyond which `Status.STEPS_EXHAUSTED` is set.
        saveat: times (n,) [s] since its start at which `uk.rollout` returns states, in any order, in place of the ends
            of the time steps; `uk.step` does not heed it.
        gradient: `Exact()` or `FromDistance(...)`.
        soft: the contact law, whose integrator is not used.
    """

    rtol: float | None = eqx.field(converter=values.plain, static=True, default=None)
    atol: float | None = eqx.field(converter=values.plain, static=True, default=None)
    solver: diffrax.AbstractERK = diffrax.Tsit5()
    controller: diffrax.AbstractStepSizeController | None = None
    adjoint: str = eqx.field(static=True, default="checkpointed")
    max_steps: int = eqx.field(converter=values.plain, static=True, default=256)
    saveat: Array | None = eqx.field(converter=_times, default=None)
    gradient: Rule = Exact()
    soft: Soft = Soft()

    def __check_init__(self):
        if not isinstance(self.solver, diffrax.AbstractERK):
            raise InputError(
                f"Adaptive(solver={self.solver!r}): choose one of Diffrax's explicit Runge–Kutta methods, such as "
                "diffrax.Tsit5(), diffrax.Dopri8() or diffrax.Bosh3()."
            )
        require("Adaptive", self.gradient, (Exact, FromDistance))
        values.check_choice("Adaptive", "adjoint", self.adjoint, ADJOINTS)
        for name in ("rtol", "atol"):
            if getattr(self, name) is not None:
                values.check_number("Adaptive", name, getattr(self, name), lambda x: x > 0, "must be positive")
        values.check_count("Adaptive", "max_steps", self.max_steps)
        controller = self.controller is None or isinstance(self.controller, diffrax.AbstractStepSizeController)
        meaning = "must be one of Diffrax's step-size controllers, such as diffrax.PIDController(rtol=..., atol=...)"
        values.require(controller, "Adaptive", "controller", self.controller, meaning)
        values.require(isinstance(self.soft, Soft), "Adaptive", "soft", self.soft, "must be a uk.Soft(...)")
        if self.controller is not None and (self.rtol is not None or self.atol is not None):
            raise InputError("Adaptive: a controller has tolerances of its own; give either it or rtol and atol.")
        if self.saveat is not None and (self.saveat.ndim != 1 or not self.saveat.size):
            raise InputError(f"Adaptive(saveat=...): one or more times (n,), not of shape {self.saveat.shape}.")

    def jacobian(self, model: Model, state: State, inputs: Input) -> tuple[State, Array]:
        """The next state and its derivative (2nv + na, 2nv + na + nu) in state (tangent space) and controls."""
        if self.adjoint == "backsolve":
            return rows(self.step, model, state, inputs)
        return columns(self.step, model, state, inputs)

    def check_forward(self) -> None:
        """Refuse derivatives in forward mode where the law has none."""
        if self.adjoint == "backsolve":
            raise GradientError(
                "uk.Adaptive(adjoint='backsolve') has derivatives in reverse mode alone, and uk.linearize(wrt=...) "
                "takes forward mode. Use adjoint='checkpointed', or jax.grad or jax.vjp of uk.step."
            )

    def accelerate(self, model: Model, state: State, inputs: Input) -> Motion:
        """The motion in continuous time, of the soft law."""
        return self._law().accelerate(model, state, inputs)

    def contact_forces(self, model: Model, state: State, inputs: Input) -> tuple[Contacts, Array]:
        """Contacts, and their forces (nc, dim) in the contacts' frames, of the soft law."""
        return self._law().contact_forces(model, state, inputs)

    def acceleration(self, model: Model, state: State, inputs: Input) -> Array:
        """Acceleration (nv,) at this instant, of the soft law."""
        return self._law().acceleration(model, state, inputs)

    def loads(self, model: Model, state: State, inputs: Input) -> Loads:
        """The same with the forces of all rows."""
        return self._law().loads(model, state, inputs)

    def path(self, model: Model, state: State, inputs: Input) -> tuple[Path, Effort]:
        """The steps that one model time step is made of; to look inside, not to differentiate."""
        path, (_, effort) = self._search(self._problem(model, state, inputs, model.options.timestep))
        return path, effort

    def step(self, model: Model, state: State, inputs: Input) -> State:
        """The state one model time step later."""
        after = self._advance(model, state, inputs, model.options.timestep)
        if not (model.delays.layout.size or yields(model)):
            return after
        given = remembered(model, state.act, cast(Array, inputs.ctrl))
        rest = settled(model, rests(model, state.act), of_state(model, state, inputs), state.q, after.q)
        act = joined(present(model, after.act), given, rest)
        return dataclasses.replace(after, act=act, status=after.status | bit(Status.NOT_FINITE, ~is_finite(act)))

    def check_times(self, model: Model, steps: int) -> None:
        """Refuse times that a rollout of so many steps does not reach, where they are known."""
        if self.saveat is not None and (model.delays.layout.size or yields(model)):
            raise InputError(
                f"Adaptive(saveat=...): '{model.name}' has controls that arrive late or springs that yield, which "
                "states know at the ends of time steps alone; leave out saveat."
            )
        end = steps * model.options.timestep
        if self.saveat is None or isinstance(self.saveat, Tracer) or isinstance(end, Tracer):
            return
        if not _within(np.asarray(self.saveat), np.asarray(end)).all():
            raise InputError(f"Adaptive(saveat=...): times lie between 0 and the rollout's end at {float(end):g} s.")

    @property
    def ends_steps(self) -> bool:
        """Whether the states of a rollout are the ends of its time steps."""
        return self.saveat is None

    def saved(self, model: Model, state: State, states: State, inputs: Input) -> State:
        """The states at the times `saveat`, each by a shorter step from the last end of a time step before it."""
        if self.saveat is None:
            return states
        steps, h = len(states.time), model.options.timestep
        times = without_derivative(lambda times: times, _CONSTANT)(self.saveat.astype(h.dtype))
        k = jnp.clip(jnp.ceil(times / h - ROUNDING) - 1, 0, steps - 1).astype(jnp.int32)
        before = jax.tree.map(lambda first, later: jnp.concatenate([first[None], later])[k], state, states)
        during = jax.tree.map(lambda x: x[k], inputs)
        lost = ~_within(times, steps * h)  # reported as not finite
        before = dataclasses.replace(before, v=jnp.where(lost[:, None], jnp.nan, before.v))
        return jax.vmap(partial(self._advance, model))(before, during, times - k * h)

    def _advance(self, model: Model, state: State, inputs: Input, length: Array) -> State:
        solve = root(self._search, self._derivative) if self.adjoint == "checkpointed" else self._backsolved()
        path, (memory, effort) = solve(self._problem(model, state, inputs, length))
        moved, finite = _split(model, isolated(_settled)(model, path.end)), jnp.isfinite(path.end).all()
        failed = {
            Status.NOT_FINITE: ~finite,  # before activations are held within their ranges
            Status.CONTACT_OVERFLOW: memory.overflow,
            Status.FAR_OVERFLOW: memory.far_overflow,
            Status.STEPS_EXHAUSTED: ~effort.complete & finite,
        }
        cache = remember(state, memory.warm, memory.iterations)
        return arrive(state, Moved(*moved), length, memory.converged, cache, failed)

    def _law(self) -> Soft:
        return self.soft if isinstance(self.gradient, Exact) else dataclasses.replace(self.soft, gradient=self.gradient)

    def _controller(self):
        # the coefficients that Diffrax recommends for mildly stiff problems, as DiffMJX's authors use (Fig. 17)
        return self.controller or diffrax.PIDController(self.rtol or 1e-6, self.atol or 1e-8, pcoeff=0.2, icoeff=0.4)

    def _problem(self, model: Model, state: State, inputs: Input, length: Array) -> Problem:
        control = lax.stop_gradient(eqx.filter(self._controller(), eqx.is_array))
        start, warm = _join(state.q, state.v, state.act), lax.stop_gradient(state.cache.acceleration)
        return Problem(model, inputs, start, length, warm, control)

    def _search(self, problem: Problem) -> tuple[Path, tuple[Memory, Effort]]:
        def find(problem: Problem):
            controller = eqx.combine(problem.control, self._controller())
            field = partial(self._field, problem)
            path, memory, effort = search(
                field, problem.start, _memory(problem.warm), problem.length, self.solver, controller, self.max_steps
            )
            return path, (memory, effort)

        return one_by_one(find)(problem)

    def _field(self, problem: Problem, x: Array, memory: Memory) -> tuple[Array, Memory]:
        """F: rates of coordinates, velocities and activations."""
        model, inputs = problem.model, problem.inputs
        q, v, act = _split(model, x)
        zero = jnp.zeros((), jnp.int32)
        cache = dataclasses.replace(blank_cache(model), acceleration=memory.warm)
        state = State(q, v, act, jnp.zeros((), x.dtype), zero, cache)
        motion = self._law().accelerate(model, state, inputs)
        after = Memory(
            warm=lax.stop_gradient(motion.acceleration),
            iterations=memory.iterations + motion.iterations,
            converged=memory.converged & motion.converged & ~motion.contacts.failed,
            overflow=memory.overflow | motion.contacts.overflow,
            far_overflow=memory.far_overflow | motion.far_overflow,
        )
        return _join(*rates(model, state, motion, inputs)), after

    def _derivative(self, path: Path, problem: Problem, along: Problem) -> Path | None:
        """Derivative of the accepted steps, whose shares of the time step are constant."""
        tangents = jax.tree.leaves(_parameters(along), is_leaf=is_zero)
        which = tuple(k for k, t in enumerate(tangents) if not is_zero(t))
        if not which and is_zero(along.start):
            return None
        if len(_opened(problem, which)[0]) > MANY:
            change = pushforward(partial(self._replay, path), problem, along)
        else:
            matrix = one_by_one(partial(self._transition, which))(path, problem)
            theta = [tangents[k].ravel() for k in which]
            change = matrix @ jnp.concatenate([filled(along.start, problem.start), *theta])
        return Path(change, jnp.zeros_like(path.shares))

    def _replay(self, path: Path, problem: Problem) -> Array:
        steps = path.shares * problem.length
        field = partial(self._field, problem)
        return retrace_reversibly(field, problem.start, _memory(problem.warm), steps, self.solver)

    def _transition(self, which: tuple[int, ...], path: Path, problem: Problem) -> Array:
        """∂x(h) (n, n + p) in x and the parameters θ (p,) that are `which`, along the steps: X' = F_x X + F_θ."""
        theta, given = _opened(problem, which)
        n, p = len(problem.start), len(theta)

        def field(Y: Array, memory: Memory):
            def rates(x, theta):
                there = given(theta)
                rate, after = self._field(there, x, memory)
                return there.length * rate, after

            rate, push, memory = jax.linearize(rates, Y[:, 0], theta, has_aux=True)
            change = jax.vmap(push, in_axes=(1, 1), out_axes=1)(Y[:, 1:], jnp.eye(p, n + p, n, dtype=Y.dtype))
            return jnp.concatenate([rate[:, None], change], -1), memory

        Y = jnp.concatenate([problem.start[:, None], jnp.eye(n, n + p, dtype=problem.start.dtype)], -1)
        return retrace(field, Y, _memory(problem.warm), path.shares, self.solver)[:, 1:]

    def _backsolved(self):
        """`_search` with the continuous adjoint (Paulus et al., eq. 6 and 7), solved from the end back to the start.

        λ' = −λ F_x and θ̄' = −λ F_θ, together with x itself, under the same error control as the motion.
        """

        @jax.custom_vjp
        def solve(problem: Problem):
            return self._search(problem)

        def forward(problem):
            leaves = jax.tree.leaves(_parameters(problem), is_leaf=_marked)
            live = [jnp.zeros(()) if leaf.perturbed else None for leaf in leaves]
            problem = jax.tree.map(lambda leaf: leaf.value, problem, is_leaf=_marked)
            found = solve(problem)
            return found, (problem, live, found[0].end)

        def backward(residual, cotangents):
            problem, live, end = residual
            final = cotangents[0].end
            if is_zero(final):
                return (jax.tree.map(jnp.zeros_like, problem),)
            which = tuple(k for k, mark in enumerate(live) if mark is not None)
            return (self._adjoint(problem, which, end, final),)

        solve.defvjp(forward, backward, symbolic_zeros=True)
        return solve

    def _adjoint(self, problem: Problem, which: tuple[int, ...], end: Array, final: Array) -> Problem:
        """Cotangents of the problem for the cotangent `final` (n,) of where it ends."""
        (theta, given), n, length = _opened(problem, which), len(end), problem.length

        def field(Y: Array, memory: Memory):
            def rates(x, theta):
                return self._field(given(theta), x, memory)

            rate, pull, memory = jax.vjp(rates, Y[:n], theta, has_aux=True)
            return jnp.concatenate([-rate, *pull(Y[n : 2 * n])]), memory

        Y = jnp.concatenate([end, final, jnp.zeros_like(theta)])
        controller = eqx.combine(problem.control, self._controller())
        path, _, effort = search(field, Y, _memory(problem.warm), length, self.solver, controller, self.max_steps)
        Y = jnp.where(effort.complete, path.end, jnp.nan)  # no gradient is better than a wrong one
        _, filled_in = _opened(jax.tree.map(jnp.zeros_like, problem), which)
        out = filled_in(Y[2 * n :])._replace(start=Y[n : 2 * n])
        later = final @ self._field(problem, end, _memory(problem.warm))[0]  # a longer step goes on from the end
        return out._replace(length=out.length + later)


def _within(times, end):
    return (times >= 0) & (times <= end * (1 + ROUNDING))


def _opened(problem: Problem, which: tuple[int, ...]) -> tuple[Array, Callable[[Array], Problem]]:
    """The parameters that are `which` leaves of them all, as one vector θ, and the problem as its function."""
    leaves, structure = jax.tree.flatten(_parameters(problem))
    start = jnp.zeros(0, problem.start.dtype)
    theta, unravel = ravel_pytree([leaves[k] for k in which]) if which else (start, lambda _: [])

    def given(theta: Array) -> Problem:
        model, inputs, length = jax.tree.unflatten(structure, replaced(leaves, which, unravel(theta)))
        return problem._replace(model=model, inputs=inputs, length=length)

    return theta, given


def _parameters(problem: Problem):
    return problem.model, problem.inputs, problem.length


def _marked(leaf) -> bool:
    return isinstance(leaf, CustomVJPPrimal)


def _settled(model: Model, x: Array) -> Array:
    """The state with quaternions of unit length and activations within their ranges."""
    q, v, act = _split(model, x)
    tree = model.tree
    if len(tree.quat_joints):
        unit = spatial.quat_normalize(pick(q, tree.quat_qpos))
        order = np.argsort(np.concatenate([tree.linear_qpos, tree.quat_qpos.ravel()]))
        q = pick(jnp.concatenate([pick(q, tree.linear_qpos), unit.ravel()]), order)
    held = clamp_activation(model, present(model, act))
    return _join(q, v, joined(held, past(model, act), rests(model, act)))


def _memory(warm: Array) -> Memory:
    no = jnp.zeros((), bool)
    return Memory(warm, jnp.zeros((), jnp.int32), converged=~no, overflow=no, far_overflow=no)


def _join(q: Array, v: Array, act: Array) -> Array:
    return jnp.concatenate([q, v, act] if len(act) else [q, v])


def _split(model: Model, x: Array) -> tuple[Array, Array, Array]:
    # An empty slice of a loop's result makes XLA's importer drop attributes of the LAPACK calls inside the loop.
    act = x[model.nq + model.nv :] if model.na else jnp.zeros(0, x.dtype)
    return x[: model.nq], x[model.nq : model.nq + model.nv], act
