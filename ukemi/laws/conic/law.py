"""Laws with hard contact at the end of the step and the exact friction cone (Dojo, eq. 26)."""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from ukemi import values
from ukemi.collide.detect import Contacts, detect
from ukemi.collide.sweep.motion import covered
from ukemi.constraints.block import Frame
from ukemi.constraints.rows import RowKinds, row_kinds
from ukemi.implicit import rules
from ukemi.implicit.rule import root, straight_through
from ukemi.laws.arrival import arrive
from ukemi.laws.conic import derivative
from ukemi.laws.conic.balance import bounces, impulses, restoring, rows_at, start_of
from ukemi.laws.conic.cones import layout
from ukemi.laws.conic.end import blocks_of
from ukemi.laws.conic.interior_point import Settings, Solution, Task, solve
from ukemi.laws.conic.mechanics import Mechanics
from ukemi.laws.conic.memory import NAME, Pushes, recalled
from ukemi.laws.conic.unknowns import Known, Path, Point
from ukemi.laws.here import Here, here_at
from ukemi.laws.integrators import Moved, moved_activation
from ukemi.laws.memory import remember
from ukemi.laws.method import Method
from ukemi.laws.momentum import free_motion
from ukemi.mechanics.kinematics import integrate, of_state
from ukemi.model.records import Input, Model, State
from ukemi.status import Status
from ukemi.xla.stages import compact


class Precision(NamedTuple):
    """What a floating type can hold."""

    kappa: float
    tolerance: float  # of residuals, relative to the velocities at hand
    near: float  # distance from the central path, relative to κ, that counts as on it


PRECISE = {"float64": Precision(1e-8, 1e-9, 1e-4), "float32": Precision(1e-5, 1e-3, 3e-2)}


class Guide(NamedTuple):
    """What helps to find a solution, and does not change it."""

    ahead: Array | None  # (pairs,) distance from which on contacts are looked at [m]
    recalled: Pushes


class Conic(Method):
    """What the laws share; they differ in how velocities and impulses balance (`laws.conic.mechanics`)."""

    mechanics: eqx.AbstractClassVar[Mechanics]

    kappa: ArrayLike | None = eqx.field(converter=values.number_or_array, default=None)
    cone: str = eqx.field(static=True, default="elliptic")
    gradient: rules.Rule = rules.Exact()
    correction: float = eqx.field(converter=values.plain, static=True, default=0.2)
    ahead: float = eqx.field(converter=values.plain, static=True, default=0.01)
    iterations: int = eqx.field(converter=values.plain, static=True, default=30)

    def __check_init__(self):
        name, between = type(self).__name__, "must be between 0 and 1"
        rules.require(name, self.gradient, (rules.Exact, rules.CentralPath))
        values.check_choice(name, "cone", self.cone, ("elliptic", "pyramidal"))
        if self.kappa is not None:
            values.check_positive(name, "kappa", self.kappa)
        values.check_number(name, "correction", self.correction, lambda x: 0 <= x <= 1, between)
        values.check_number(name, "ahead", self.ahead, lambda x: x > 0, "must be positive")
        values.check_count(name, "iterations", self.iterations)

    def step(self, model: Model, state: State, inputs: Input) -> State:
        """The state one model time step later."""
        here, guide = self._here(model, state, inputs)
        (z, known), (rounds, solved), far = self._motion(here, guide)
        moved = self._moved(model, state, here, guide, inputs, z.v, known)
        names, h = known.contacts.names[: self._kinds(model).contacts], model.options.timestep
        pushes = Pushes(names, lax.stop_gradient(jnp.where(known.on[0], z.cones.gamma, 0.0)), jnp.ones((), bool))
        cache = remember(state, (moved.v - state.v) / h, rounds, **{NAME: pushes})
        lost = known.contacts.overflow | here.contacts.overflow
        return arrive(state, moved, h, solved, cache, {Status.CONTACT_OVERFLOW: lost, Status.FAR_OVERFLOW: far & ~lost})

    def contact_forces(self, model: Model, state: State, inputs: Input) -> tuple[Contacts, Array]:
        """Contacts at the end of the step, and their mean forces (nc, dim) over it in the contacts' frames."""
        here, guide = self._here(model, state, inputs)
        kinds, h = self._kinds(model), model.options.timestep
        z, known = self._solved(here, guide, self._path(here.v.dtype))[0]
        frame = derivative.end_of(here, z.v, h, known, guide.ahead)
        mu = rows_at(frame, kinds, blocks_of(frame)).mu
        force = impulses(layout(model, kinds), kinds, z, mu, known.on) / h
        return frame.contacts, kinds.of_contacts(force)

    def _kinds(self, model: Model) -> RowKinds:
        return row_kinds(model, self.cone)

    def _path(self, dtype) -> Path:
        kappa = PRECISE[dtype.name].kappa if self.kappa is None else self.kappa
        return Path(jnp.asarray(kappa, dtype), jnp.asarray(self.ahead, dtype))

    def _here(self, model: Model, state: State, inputs: Input) -> tuple[Here, Guide]:
        """Where a step starts, and what helps it."""
        kin = of_state(model, state, inputs)
        ahead = None
        if model.pairs.layout.groups:
            ahead = lax.stop_gradient(compact(covered)(model, kin, state.v) + self.ahead)
        here = here_at(model, state, inputs, kin, detect(model, kin, ahead))
        return here, Guide(ahead, recalled(state))

    def _motion(self, here: Here, guide: Guide) -> tuple[tuple[Point, Known], tuple[Array, Array], Array | bool]:
        """What the step finds, how, and whether its gradient rule sees too few contacts."""
        if not isinstance(self.gradient, rules.CentralPath):
            return *self._solved(here, guide, self._path(here.v.dtype)), False
        (z, known), facts = self._solved(*lax.stop_gradient((here, guide, self._path(here.v.dtype))))
        soft, far = self._relaxed(self.gradient, here, guide)
        return (z._replace(v=straight_through(z.v, soft.v)), known), facts, far

    def _relaxed(self, rule: rules.CentralPath, here: Here, guide: Guide) -> tuple[Point, Array | bool]:
        """The point of the central path at the rule's κ; NaN where that is not found. And whether contacts overflow."""
        dtype, far = here.v.dtype, False
        if guide.ahead is not None:
            guide = guide._replace(ahead=guide.ahead + rule.width)
            here = here._replace(contacts=detect(here.model, here.kin, guide.ahead))
            far = here.contacts.overflow
        path = Path(jnp.asarray(rule.kappa, dtype), jnp.asarray(rule.width, dtype))
        (soft, _), (_, solved) = self._solved(here, guide, path)
        return jax.tree.map(lambda x: x * jnp.where(solved, 1.0, jnp.nan), soft), far

    def _solved(self, here: Here, guide: Guide, path: Path) -> tuple[tuple[Point, Known], tuple[Array, Array]]:
        """The point of a central path, by the implicit rule, and (iterations, whether that is a solution)."""
        kinds = self._kinds(here.model)
        precise = PRECISE[here.v.dtype.name]
        settings = Settings(self.iterations, precise.tolerance, precise.near, self.mechanics.keeps)

        def find(args) -> tuple[tuple[Point, Known], tuple[Array, Array]]:
            here, duration, path, guide = args
            model = here.model
            start, free = start_of(here, kinds, duration), free_motion(here, duration)
            found: Solution = solve(
                settings,
                Task(
                    kinds, layout(model, kinds), here, start, free, duration, path,
                    self.mechanics, self.mechanics.begin(here, kinds, duration, free),
                    bounces(here, kinds, duration, start, free.v), guide.recalled,
                    lambda kin: detect(model, kin, guide.ahead),
                ),
            )  # fmt: skip
            return (found.point, found.known), (found.iterations, found.solved)

        derive = partial(derivative.rule, self.mechanics, kinds)
        return root(find, derive)((here, here.model.options.timestep, path, guide))

    def _moved(self, model: Model, state: State, here: Here, guide: Guide, inputs: Input, v: Array, known) -> Moved:
        """Positions at the end, with what was inside before taken back."""

        def move(model, state, here, inputs, v):
            q = integrate(model.tree, state.q, v, model.options.timestep)
            return Moved(q, v, moved_activation(model, state, here.kin, inputs))

        moved, kinds = compact(move)(model, state, here, inputs, v), self._kinds(model)

        def shift(v: Array) -> Array:
            h = model.options.timestep
            frame: Frame = derivative.end_of(here, v, h, known, guide.ahead)
            return restoring(frame, kinds, known.deep, free_motion(here, h).inverse, self.correction)

        if kinds.hold:
            back = shift(v)
        elif len(known.deep):
            back = lax.cond(known.deep.any(), shift, jnp.zeros_like, v)
        else:
            return moved
        return moved._replace(q=integrate(model.tree, moved.q, back, jnp.ones((), v.dtype)))
