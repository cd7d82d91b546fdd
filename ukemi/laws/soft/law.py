"""MuJoCo's soft contact: the acceleration minimises Gauss' principle plus a penalty on the constraints (eq. 8)."""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi import values
from ukemi.collide.detect import Contacts, detect, unsound
from ukemi.constraints.rows import RowKinds, row_kinds
from ukemi.errors import GradientError
from ukemi.implicit.rule import dense, root, straight_through
from ukemi.implicit.rules import Exact, FromDistance, Rule, require
from ukemi.laws.arrival import arrive
from ukemi.laws.here import Here, applied, forces, here_of, net_forces, with_adhesion
from ukemi.laws.integrators import (
    INTEGRATORS,
    Integrator,
    Moved,
    advance,
    advance_slopes,
    runge_kutta,
)
from ukemi.laws.memory import remember
from ukemi.laws.method import Loads, Method, columns
from ukemi.laws.soft import balance, derivative, noslip
from ukemi.laws.soft.problem import Problem, Solution
from ukemi.laws.soft.rows import Rows, constraint_rows
from ukemi.laws.soft.solve import SOLVERS, solve_active
from ukemi.mechanics.dynamics import Smooth, motion_force, smooth
from ukemi.mechanics.forces import Actuation, Passive, passive
from ukemi.mechanics.forces import applied as applied_wrenches
from ukemi.mechanics.kinematics import Kinematics, velocities
from ukemi.mechanics.plasticity import yields
from ukemi.model.records import Input, Model, State
from ukemi.status import Status
from ukemi.xla.entry import compiled

CONES = ("pyramidal", "elliptic")


class Forward(NamedTuple):
    """Everything that forward dynamics computes at one state."""

    kin: Kinematics
    smooth: Smooth
    actuation: Actuation
    passive: Passive
    contacts: Contacts
    rows: Rows | None  # for those who look inside: a step uses only what the solver made of them
    tau: Array  # (nv,) all forces but constraints, less the bias
    solution: Solution


class Motion(NamedTuple):
    """What a step needs to move on; floats here carry derivatives."""

    kin: Kinematics
    contacts: Contacts
    acceleration: Array  # (nv,) a: of the soft law
    effective: Array  # (nv,) e: what the integrator makes of it
    iterations: Array
    converged: Array
    far_overflow: bool | Array = False  # a gradient rule saw more contacts than the model can hold


class Soft(Method):
    """MuJoCo's soft contact law; what is left None comes from the model file's `<option>`.

    Args:
        cone: "pyramidal" or "elliptic".
        solver: "Newton", "CG" or "PGS".
        integrator: "Euler", "implicitfast", "implicit" or "RK4".
        iterations: bound on the solver's iterations.
        line_search_iterations: bound on those of each line search.
        tolerance: norm of the residual force, relative to the forces that balance, at which the solver stops; left
            None it is 1e-12 in float64 and 1e-6 in float32, whatever the file says.
        gradient: `Exact()` or `FromDistance(...)`.
    """

    cone: str | None = eqx.field(static=True, default=None)
    solver: str | None = eqx.field(static=True, default=None)
    integrator: str | None = eqx.field(static=True, default=None)
    iterations: int | None = eqx.field(converter=values.plain, static=True, default=None)
    line_search_iterations: int | None = eqx.field(converter=values.plain, static=True, default=None)
    tolerance: float | None = eqx.field(converter=values.plain, static=True, default=None)
    gradient: Rule = Exact()

    def __check_init__(self):
        require("Soft", self.gradient, (Exact, FromDistance))
        for name, choices in {"cone": CONES, "solver": tuple(SOLVERS), "integrator": tuple(INTEGRATORS)}.items():
            if getattr(self, name) is not None:
                values.check_choice("Soft", name, getattr(self, name), choices)
        for name in ("iterations", "line_search_iterations"):
            if getattr(self, name) is not None:
                values.check_count("Soft", name, getattr(self, name))
        if self.tolerance is not None:
            values.check_number("Soft", "tolerance", self.tolerance, lambda x: x > 0, "must be positive")

    def step(self, model: Model, state: State, inputs: Input) -> State:
        """The state one model time step later."""
        integrator = self._integrator(model)
        if integrator.stages > 1:
            moved, motion = runge_kutta(self.accelerate, model, state, inputs)
        else:
            motion = self.accelerate(model, state, inputs, integrator)
            moved = advance(model, state, motion, inputs)
        return self._after(model, state, motion, moved)

    def jacobian(self, model: Model, state: State, inputs: Input) -> tuple[State, Array]:
        """The next state and its derivative (2nv + na, 2nv + na + nu) in state (tangent space) and controls."""
        integrator = self._integrator(model)
        if integrator.stages > 1 or sweeps(model) or yields(model):
            return columns(self.step, model, state, inputs)
        here = here_of(model, state, inputs)
        implicit = integrator.implicit(model)
        motion = self._motion(here, implicit)
        z, kinds = (motion.acceleration, motion.effective), self.kinds(model)
        if isinstance(self.gradient, FromDistance):
            (z, _), here, kinds = self._from_distance(self.gradient, here, z[0], implicit)
        _, E = dense(partial(derivative.jacobians, kinds, implicit), z, here)
        after = self._after(model, state, motion, advance(model, state, motion, inputs))
        velocity = model.options.timestep * E + np.eye(model.nv, E.shape[1], model.nv, dtype=E.dtype)
        return after, advance_slopes(model, state, inputs, after.v, velocity, velocity)

    def _integrator(self, model: Model) -> Integrator:
        return INTEGRATORS[self.integrator or model.options.layout.integrator]

    def _after(self, model: Model, state: State, motion: Motion, moved: Moved) -> State:
        failed = {**unsound(motion.contacts), Status.FAR_OVERFLOW: motion.far_overflow}
        cache = remember(state, motion.acceleration, motion.iterations)
        return arrive(state, moved, model.options.timestep, motion.converged, cache, failed)

    def kinds(self, model: Model) -> RowKinds:
        """Number and kinds of the constraint rows."""
        return row_kinds(model, self._cone(model))

    def _cone(self, model: Model) -> str:
        return self.cone or model.options.layout.cone

    def accelerate(self, model: Model, state: State, inputs: Input, integrator: Integrator | None = None) -> Motion:
        """Acceleration of the soft law, and the one that `integrator` makes of it, by the implicit rule."""
        here, implicit = here_of(model, state, inputs), integrator and integrator.implicit(model)
        return self._settled(here, implicit)[0] if sweeps(model) else self._motion(here, implicit)

    def _settled(self, here: Here, implicit: Integrator | None) -> tuple[Motion, Array]:
        """The motion after sweeps over friction, and the forces (total,) of all rows."""
        if isinstance(self.gradient, FromDistance):
            raise GradientError(
                f"'{here.model.name}' asks for noslip_iterations, of which {self.gradient} knows nothing; "
                "use gradient=uk.Exact(), or a file without them."
            )
        soft, kinds, dyn = self._motion(here, None), self.kinds(here.model), smooth(here.model, here.kin, here.v)
        tau = applied(here) - dyn.bias
        scene = balance.scene(here, dyn, tau)
        problem = Problem(dyn.M, tau, constraint_rows(scene.frame, kinds))
        a, force = noslip.settle(kinds, here.model, here.contacts, problem, soft.acceleration)
        e = a
        if implicit:
            slope = implicit.slope(here.model, here.kin, dyn.velocity, here.v, forces(here)[1])
            e = implicit.solve(here.model, dyn.M, slope, tau + force @ problem.rows.J)
        return soft._replace(acceleration=a, effective=e), force

    def _motion(self, here: Here, implicit: Integrator | None) -> Motion:
        if not isinstance(self.gradient, FromDistance):
            z, facts = self._balance(self.kinds(here.model), implicit, here)
            return Motion(here.kin, here.contacts, *z, *facts)
        z, facts = self._balance(self.kinds(here.model), implicit, lax.stop_gradient(here))
        (soft, _), far, _ = self._from_distance(self.gradient, here, z[0], implicit)
        a, e = straight_through(z, soft)
        return Motion(here.kin, here.contacts, a, e, *facts, far_overflow=far.contacts.overflow)

    def _from_distance(self, ahead: FromDistance, here: Here, a: Array, implicit: Integrator | None):
        """What the softened law finds, where, and its rows: the same state, but contacts act from a distance."""
        kinds = row_kinds(here.model, self._cone(here.model), ahead)
        width = jnp.asarray(ahead.width, a.dtype)
        near = detect(here.model, here.kin, width)
        far = here._replace(contacts=near, warm=lax.stop_gradient(a), ahead=width)
        return self._balance(kinds, implicit, far), far, kinds

    def _balance(self, kinds: RowKinds, implicit: Integrator | None, here: Here):
        """(a, e) and how the solver fared, by the implicit rule."""

        def find(here: Here):
            now = self._forward(kinds, here)
            z = now.solution.acceleration, effective(implicit, here, now)
            return z, (now.solution.iterations, now.solution.converged)

        return root(find, partial(derivative.rule, kinds, implicit))(here)

    def forward(self, model: Model, state: State, inputs: Input) -> Forward:
        """Forward dynamics in continuous time, stage by stage; to look inside, not to differentiate."""
        return _look_inside(self, model, state, inputs)

    def _forward(self, kinds: RowKinds, here: Here, inside: bool = False) -> Forward:
        model, kin, contacts, q, v, act, _, inputs, *_ = here
        dyn = smooth(model, kin, v)
        rest, drive = forces(here)
        rest = with_adhesion(here, rest)
        tau = rest.qfrc + drive.qfrc + applied_wrenches(model, kin, inputs, v) - dyn.bias
        scene = balance.scene(here, dyn, tau)
        rows = constraint_rows(scene.frame, kinds) if inside else None
        return Forward(kin, dyn, drive, rest, contacts, rows, tau, self._solve(kinds, scene))

    def _solve(self, kinds: RowKinds, scene: balance.Scene) -> Solution:
        layout = scene.frame.model.options.layout
        precise = 1e-12 if scene.tau.dtype == jnp.float64 else 1e-6
        solver = partial(
            SOLVERS[self.solver or layout.solver],
            iterations=self.iterations or layout.iterations,
            searches=self.line_search_iterations or layout.line_search_iterations,
            tolerance=self.tolerance or precise,
        )
        return solve_active(solver, kinds, scene)

    def inverse(self, model: Model, state: State, acceleration: Array, inputs: Input) -> Array:
        """Generalised force (nv,) that yields the acceleration: everything but passive and constraint forces."""
        here = here_of(model, state, inputs)
        rest = with_adhesion(here, passive(model, here.kin, state.q, state.v, state.act))
        inertial = motion_force(model, here.kin, acceleration, velocities(model.tree, here.kin.S, state.v))
        return inertial - rest.qfrc - rest.held - self._constraint(here, acceleration)[1]

    def contact_forces(self, model: Model, state: State, inputs: Input) -> tuple[Contacts, Array]:
        """Contacts, and their forces (nc, dim) in the contacts' frames."""
        found = self.loads(model, state, inputs)
        return found.contacts, self.kinds(model).of_contacts(found.force)

    def acceleration(self, model: Model, state: State, inputs: Input) -> Array:
        """Acceleration (nv,) at this instant."""
        return self.accelerate(model, state, inputs).acceleration

    def loads(self, model: Model, state: State, inputs: Input) -> Loads:
        """The same with the forces of all rows."""
        here = here_of(model, state, inputs)
        if sweeps(model):
            motion, force = self._settled(here, None)
            a = motion.acceleration
        else:
            a = self._motion(here, None).acceleration
            force = self._constraint(here, a)[0]
        return Loads(a, here.contacts, net_forces(here, self.kinds(model), force), here.kin, False)

    def _constraint(self, here: Here, a: Array) -> tuple[Array, Array]:
        return balance.constraint_pull(self.kinds(here.model), here, a)


SOFT = Soft()  # what is meant where no law is given


@compiled
def _look_inside(method: Soft, model: Model, state: State, inputs: Input) -> Forward:
    return method._forward(method.kinds(model), here_of(model, state, inputs), inside=True)


def sweeps(model: Model) -> bool:
    """Whether the file asks for sweeps over friction after the solver."""
    return model.options.layout.noslip[0] > 0


def effective(implicit: Integrator | None, here: Here, now: Forward) -> Array:
    """The acceleration (nv,) that an integrator makes of the soft law's: e with M̂ e = M a."""
    if not implicit:
        return now.solution.acceleration
    slope = implicit.slope(here.model, here.kin, now.smooth.velocity, here.v, now.actuation)
    return implicit.solve(here.model, now.smooth.M, slope, now.tau + now.solution.pull)
