"""Laws with hard contact at the end of the step and the exact friction cone (Dojo, eq. 26)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from ukemi import values
from ukemi.collide.detect import Contacts, detect, unsound
from ukemi.collide.near import restitution_of_pairs
from ukemi.collide.shapes import EMPTY
from ukemi.collide.sweep.motion import approached
from ukemi.constraints.adhesion import adhesion_at, with_hair
from ukemi.constraints.rows import RowKinds, row_kinds
from ukemi.implicit import rules
from ukemi.implicit.rule import dense, isolated, root, straight_through
from ukemi.laws.active_contacts import fewer_slots
from ukemi.laws.arrival import arrive
from ukemi.laws.checks import check
from ukemi.laws.conic import derivative
from ukemi.laws.conic.balance import impulses, rows_at, start_and_bounces
from ukemi.laws.conic.cones import layout
from ukemi.laws.conic.end import blocks_of
from ukemi.laws.conic.interior_point import STARTS, solve
from ukemi.laws.conic.marks import marks
from ukemi.laws.conic.mechanics import Mechanics
from ukemi.laws.conic.memory import NAME, Pushes, recalled
from ukemi.laws.conic.progress import Settings, Solution, Task
from ukemi.laws.conic.record import Search, record
from ukemi.laws.conic.restore import restoring, restoring_slopes
from ukemi.laws.conic.room import acts_near, lacks
from ukemi.laws.conic.slopes import jacobian
from ukemi.laws.conic.unknowns import Known, Path, Point
from ukemi.laws.here import Here, here_at, net_forces
from ukemi.laws.integrators import Moved, advance_slopes, moved_activation
from ukemi.laws.memory import remember
from ukemi.laws.method import Loads, Method, columns
from ukemi.laws.momentum import free_motion
from ukemi.maths import spatial
from ukemi.mechanics.kinematics import Kinematics, integrate, of_state
from ukemi.mechanics.plasticity import yields
from ukemi.mechanics.turns import integrate_slopes
from ukemi.model.records import Input, Model, State, as_input
from ukemi.status import Status
from ukemi.xla.batches import one_by_one
from ukemi.xla.entry import compiled
from ukemi.xla.stages import compact


class Precision(NamedTuple):
    """What a floating type can hold."""

    kappa: float
    tolerance: float  # of residuals, relative to the velocities at hand
    near: float  # distance from the central path, relative to κ, that counts as on it
    exact: float  # residual from which on a solution is not improved once more: differences see what is left


PRECISE = {"float64": Precision(1e-8, 1e-9, 1e-4, 1e-11), "float32": Precision(1e-5, 1e-3, 3e-2, np.inf)}
EARLY = 1e-3  # distance from which on meshes have several contacts, at most: more of them take longer [m]
FADING = 10.0  # distance beyond which contacts do not push, relative to √κ [m/√J]
EXACT = 1e-12  # residual, relative, that adds up to nothing in what a law keeps; below what single precision has


class Guide(NamedTuple):
    """What helps to find a solution, and does not change it."""

    ahead: Array | None  # (pairs,) distance from which on contacts are looked at [m]
    recalled: Pushes


class Solved(NamedTuple):
    """A point that was found, and of what."""

    found: tuple[Point, Known]
    here: Here
    guide: Guide
    path: Path


def path_of(rule: rules.CentralPath, dtype) -> Path:
    """The point of the central path that a rule asks for."""
    return Path(jnp.asarray(rule.kappa, dtype), jnp.asarray(rule.width, dtype))


def _early(model: Model, path: Path) -> Array | None:
    """Distances (pairs,) from which on meshes have several contacts: what bounces ends its step apart."""
    if model.pairs.layout.hulls.idle:
        return None
    bounces = lax.stop_gradient(restitution_of_pairs(model)) > 0
    return jnp.where(bounces, EMPTY, jnp.minimum(path.width, EARLY))


class Conic(Method):
    """What the laws share; they differ in how velocities and impulses balance (`laws.conic.mechanics`)."""

    mechanics: ClassVar[Mechanics]
    reach: ClassVar[Callable] = staticmethod(approached)  # how far pairs come nearer, of which contacts are looked at

    kappa: ArrayLike | None = eqx.field(converter=values.number_or_array, default=None)
    cone: str = eqx.field(static=True, default="elliptic")
    gradient: rules.Rule = rules.Exact()
    correction: float = eqx.field(converter=values.plain, static=True, default=0.2)
    ahead: float = eqx.field(converter=values.plain, static=True, default=0.01)
    iterations: int = eqx.field(converter=values.plain, static=True, default=60)
    starts: int = eqx.field(converter=values.plain, static=True, default=len(STARTS))

    def __check_init__(self):
        name, between = type(self).__name__, "must be between 0 and 1"
        rules.require(name, self.gradient, (rules.Exact, rules.CentralPath))
        values.check_choice(name, "cone", self.cone, ("elliptic", "pyramidal"))
        if self.kappa is not None:
            values.check_positive(name, "kappa", self.kappa)
        values.check_number(name, "correction", self.correction, lambda x: 0 <= x <= 1, between)
        values.check_number(name, "ahead", self.ahead, lambda x: x > 0, "must be positive")
        values.check_count(name, "iterations", self.iterations)
        few = values.is_count(self.starts) and self.starts <= len(STARTS)
        values.require(few, name, "starts", self.starts, f"must be an integer from 1 to {len(STARTS)}")

    def step(self, model: Model, state: State, inputs: Input) -> State:
        """The state one model time step later."""
        here, guide = self.start(model, state, inputs)
        (z, known), facts, far = self._motion(here, guide)
        return self._after(state, inputs, here, guide, (z, known), facts, far)

    def _after(self, state: State, inputs: Input, here: Here, guide: Guide, found, facts, far) -> State:
        (z, known), (rounds, solved), model = found, facts, here.model
        moved = self._moved(model, state, here, guide, inputs, z.v, known)
        names, h = known.contacts.names[: self._kinds(model).contacts], model.options.timestep
        gamma, made = lax.stop_gradient((jnp.where(known.on[0], z.cones.gamma, 0.0), known.pushed))
        pushes = Pushes(names, gamma, made, jnp.ones((), bool))
        cache = remember(state, (moved.v - state.v) / h, rounds, **{NAME: pushes})
        path = self.path(here.v.dtype)
        lost = self._misses(model, here.contacts, path, guide) | self._misses(model, known.contacts, path, guide)
        failed = {**unsound(here.contacts), Status.CONTACT_OVERFLOW: lost, Status.FAR_OVERFLOW: far & ~lost}
        return arrive(state, moved, h, solved, cache, failed)

    def jacobian(self, model: Model, state: State, inputs: Input) -> tuple[State, Array]:
        """The next state and its derivative (2nv + na, 2nv + na + nu) in state (tangent space) and controls."""
        # of these closed forms know nothing here
        unknown = model.geoms.layout.conveys or model.pairs.layout.adheres or yields(model)
        if unknown or not self.mechanics.dense:
            return columns(self.step, model, state, inputs)
        here, guide = self.start(model, state, inputs)
        path = self.path(here.v.dtype)
        found, facts = self.solved(here, guide, path)
        at, sound, far = Solved(found, here, guide, path), True, False
        if isinstance(self.gradient, rules.CentralPath):
            at, sound, far = self._relaxed(self.gradient, here, guide)

        def slopes(found, args):
            (z, known), (here, guide, path) = found, args
            at = self._kinds(model), z, known, guide.ahead, here, model.options.timestep, path
            return jacobian(self.mechanics, *at)

        dv = dense(slopes, at.found, (at.here, at.guide, at.path)) * jnp.where(sound, 1.0, jnp.nan)
        out = advance_slopes(model, state, inputs, found[0].v, dv, dv)
        out = self._with_displacement(here, guide, found, out)
        return self._after(state, inputs, here, guide, found, facts, far), out

    def _with_displacement(self, here: Here, guide: Guide, found, slopes: Array) -> Array:
        """Slopes of a step with what takes overlaps back."""
        (z, known), nv, h = found, here.model.nv, here.model.options.timestep
        kinds = self._kinds(here.model)

        def more(slopes: Array) -> Array:
            end = self.mechanics.ending(here, kinds, z.v, h, derivative.follower(here, known, guide.ahead))
            at = here, end, free_motion(here, h).M, known.deep, self.correction, guide.ahead, h
            back, by_start, by_v = restoring_slopes(*at)
            carried, turned = integrate_slopes(here.model.tree, back, 1.0)
            change = by_start + by_v @ slopes[nv : 2 * nv]
            return jnp.concatenate([carried.columns(slopes[:nv]) + turned.columns(change), slopes[nv:]])

        if kinds.hold:
            return compact(more)(slopes)
        return lax.cond(known.deep.any(), more, lambda slopes: slopes, slopes) if len(known.deep) else slopes

    def contact_forces(self, model: Model, state: State, inputs: Input) -> tuple[Contacts, Array]:
        """Contacts at the end of the step, and their mean forces (nc, dim) over it in the contacts' frames."""
        here, guide = self.start(model, state, inputs)
        found = self.solved(here, guide, self.path(here.v.dtype))[0]
        contacts, force, _ = self._mean_force(here, guide, found)
        return contacts, self._kinds(model).of_contacts(force)

    def loads(self, model: Model, state: State, inputs: Input) -> Loads:
        """Acceleration and forces of all rows, means over the step, and contacts at its end."""
        here, guide = self.start(model, state, inputs)
        found = self.solved(here, guide, self.path(here.v.dtype))[0]
        if isinstance(self.gradient, rules.CentralPath):  # whose forces have their own derivative
            a = self.acceleration(model, state, inputs)
        else:
            a = (found[0].v - state.v) / model.options.timestep
        return Loads(a, *self._mean_force(here, guide, found), True)

    def _mean_force(self, here: Here, guide: Guide, found: tuple[Point, Known]) -> tuple[Contacts, Array, Kinematics]:
        """Contacts at the end of a step, mean forces (total,) of rows over it, and where those of equalities pull."""
        (z, known), kinds, h = found, self._kinds(here.model), here.model.options.timestep
        frame = derivative.end_of(here, z.v, h, known, guide.ahead)
        mu = rows_at(frame, kinds, blocks_of(frame)).mu
        force = impulses(layout(here.model, kinds), kinds, z, mu, known.on) / h
        pull = adhesion_at(here.model, here.contacts)  # at the start, when it acts
        pull = jnp.where(known.origin >= 0, pull[jnp.maximum(known.origin, 0)], 0.0) if len(pull) else pull
        kin = here.kin if self.mechanics.holds_as_begun else frame.kin
        return frame.contacts, net_forces(here, kinds, force, pull), kin

    def _kinds(self, model: Model) -> RowKinds:
        return row_kinds(model, self.cone)

    def path(self, dtype) -> Path:
        """The law's own point of the central path. Pushes of contacts that are far are noise: these jump from corner to
        corner where shapes are parallel, and no motion balances what jumps (docs/decisions/conic.md).
        """
        kappa = jnp.asarray(PRECISE[dtype.name].kappa if self.kappa is None else self.kappa, dtype)
        width = FADING * jnp.sqrt(kappa)
        return Path(kappa, jnp.where(width < self.ahead, width, self.ahead))

    def start(self, model: Model, state: State, inputs: Input) -> tuple[Here, Guide]:
        """Where a step starts, and what helps it."""
        model, kin = with_hair(model), of_state(model, state, inputs)
        ahead = early = None
        if model.pairs.layout.groups:
            # a point that is tried without a contact, beyond what gravity takes back, would know of none
            fall = model.options.timestep**2 * spatial.safe_norm(model.options.gravity)
            ahead = lax.stop_gradient(compact(self.reach)(model, kin, state.v) + fall + self.ahead)
            early = _early(model, self.path(state.v.dtype))
        here = here_at(model, state, inputs, kin, ahead, early)
        return here, Guide(ahead, recalled(state))

    def _motion(self, here: Here, guide: Guide) -> tuple[tuple[Point, Known], tuple[Array, Array], Array | bool]:
        """What the step finds, how, and whether its gradient rule sees too few contacts."""
        if not isinstance(self.gradient, rules.CentralPath):
            return *self.solved(here, guide, self.path(here.v.dtype)), False
        (z, known), facts = self.solved(*lax.stop_gradient((here, guide, self.path(here.v.dtype))))
        soft, solved, far = self._relaxed(self.gradient, here, guide)
        v = soft.found[0].v * jnp.where(solved, 1.0, jnp.nan)
        return (z._replace(v=straight_through(z.v, v)), known), facts, far

    def _relaxed(self, rule: rules.CentralPath, here: Here, guide: Guide) -> tuple[Solved, Array, Array | bool]:
        """The point of the central path at the rule's κ, whether that is a solution, and whether contacts overflow."""
        path, far = path_of(rule, here.v.dtype), False
        if guide.ahead is not None:
            guide = guide._replace(ahead=guide.ahead + rule.width)
            contacts = detect(here.model, here.kin, guide.ahead, early=_early(here.model, path))
            far = self._misses(here.model, contacts, path, guide)
            here = here._replace(contacts=contacts, ahead=guide.ahead)
        found, (_, solved) = self.solved(here, guide, path)
        return Solved(found, here, guide, path), solved, far

    def solved(self, here: Here, guide: Guide, path: Path) -> tuple[tuple[Point, Known], tuple[Array, Array]]:
        """The point of a central path, by the implicit rule, and (iterations, whether that is a solution)."""

        def find(args) -> tuple[tuple[Point, Known], tuple[Array, Array]]:
            def within(rooms: Sequence[int]):
                return lambda here, *more: solve(
                    self._settings(here)._replace(rooms=tuple(rooms)), self._task(here, *more)
                )

            rooms = fewer_slots(self._kinds(args[0].model).contacts)
            search = one_by_one(within(rooms), in_lockstep=within(())) if rooms else within(())
            found: Solution = search(*args)
            return (found.point, found.known), (found.iterations, found.solved)

        derive = partial(derivative.rule, self.mechanics, self._kinds(here.model))
        return root(find, derive)((here, here.model.options.timestep, path, guide))

    def _misses(self, model: Model, contacts: Contacts, path: Path, guide: Guide) -> Array:
        """Whether contacts that may act were left out: what bounces or adheres does so from afar."""
        every = (restitution_of_pairs(model) > 0).any() if acts_near(self.mechanics, model) else True
        return lacks(contacts, guide.ahead, path.width, every)

    def _settings(self, here: Here) -> Settings:
        precise = PRECISE[here.v.dtype.name]
        exact = EXACT if self.mechanics.keeps else precise.exact
        return Settings(self.iterations, self.starts, precise.tolerance, precise.near, exact)

    def _task(self, here: Here, duration: Array, path: Path, guide: Guide) -> Task:
        model, kinds = here.model, self._kinds(here.model)
        free, early = free_motion(here, duration), _early(model, path)
        start, bounce = start_and_bounces(here, kinds, duration, free.v)
        return Task(
            kinds,
            layout(model, kinds),
            here,
            start,
            marks(model, here.kin, here.contacts, kinds.contacts),
            free,
            duration,
            path,
            self.mechanics,
            self.mechanics.begin(here, kinds, duration, free),
            bounce,
            guide.recalled,
            lambda kin, steady: detect(model, kin, guide.ahead, steady, early),
        )

    def search(self, model: Model, state: State, ctrl=None, *, turns: int = 60, whole: bool = False) -> Search:
        """What the solver does in a step, turn by turn: residual, distance from the path, condition, start.

        Args:
            model: the robot.
            state: where it is.
            ctrl: controls (nu,), or `Input` when more acts, or None for zero controls.
            turns: how many are looked at; a turn takes a point, or goes back half way.
            whole: whether the condition is that of the system with all its unknowns, instead of the one of the size of
                the velocities that is solved.
        """
        check(model, state, self)
        values.check_count("search", "turns", turns)
        return _search(self, model, state, as_input(model, ctrl), turns, whole)

    def _moved(self, model: Model, state: State, here: Here, guide: Guide, inputs: Input, v: Array, known) -> Moved:
        """Positions at the end, with what was inside before taken back."""

        def move(model, state, here, inputs, v):
            q = integrate(model.tree, state.q, v, model.options.timestep)
            return Moved(q, v, moved_activation(model, state, here.kin, inputs, q))

        moved, kinds = compact(move)(model, state, here, inputs, v), self._kinds(model)
        if not (kinds.hold or len(known.deep)):
            return moved

        def taken_back(here, guide, v, known):
            if kinds.hold:
                return self._displacement(here, guide, v, known)
            shift = lambda v: self._displacement(here, guide, v, known)  # noqa: E731
            return lax.cond(known.deep.any(), shift, jnp.zeros_like, v)

        back = isolated(compact(taken_back))(here, guide, v, known)
        return moved._replace(q=integrate(model.tree, moved.q, back, jnp.ones((), v.dtype)))

    def _displacement(self, here: Here, guide: Guide, v: Array, known: Known) -> Array:
        """What takes back, without velocity, what was inside before (nv,)."""
        kinds, h = self._kinds(here.model), here.model.options.timestep
        end = derivative.end_of(here, v, h, known, guide.ahead)
        return restoring(end, kinds, known.deep, free_motion(here, h).M, self.correction)


@compiled
def _search(law: Conic, model: Model, state: State, inputs: Input, turns: int, whole: bool) -> Search:
    here, guide = law.start(model, state, inputs)
    task = law._task(here, model.options.timestep, law.path(here.v.dtype), guide)
    return record(law._settings(here), task, turns, whole)
