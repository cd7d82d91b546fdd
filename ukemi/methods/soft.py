"""MuJoCo's soft contact: the acceleration minimises Gauss' principle plus a penalty on the constraints (eq. 8)."""

from functools import partial
from typing import NamedTuple, cast

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from ukemi import forces as f_
from ukemi import penalty
from ukemi.collide.detect import Contacts, detect
from ukemi.constraint import Rows, constraint_rows, row_kinds
from ukemi.dynamics import Smooth, smooth
from ukemi.errors import InputError
from ukemi.kinematics import Kinematics, Velocities, of_state
from ukemi.methods.base import Method
from ukemi.methods.integrators import INTEGRATORS
from ukemi.model import Cache, Input, Model, State
from ukemi.penalty import RowKinds
from ukemi.solvers import SOLVERS, solve_active
from ukemi.solvers.problem import Solution
from ukemi.status import Status, bit

CONES = ("pyramidal", "elliptic")


class Forward(NamedTuple):
    """Everything that forward dynamics computes at one state."""

    kin: Kinematics
    smooth: Smooth
    actuation: f_.Actuation
    passive: f_.Passive
    contacts: Contacts
    rows: Rows
    tau: Array  # (nv,) all forces but constraints, less the bias
    solution: Solution


class Scene(NamedTuple):
    """What the constraint rows and their solver are made from."""

    model: Model
    kin: Kinematics
    velocity: Velocities
    q: Array
    v: Array
    contacts: Contacts
    M: Array
    tau: Array
    warm: Array  # (nv,) where the solver starts


def scene_rows(scene: Scene, kinds: RowKinds) -> Rows:
    """Constraint rows of a scene."""
    return constraint_rows(scene.model, scene.kin, scene.velocity, scene.q, scene.v, scene.contacts, kinds)


class Soft(Method):
    """MuJoCo's soft contact law; what is left None comes from the model file's <option>.

    cone: "pyramidal" or "elliptic"; solver: "Newton", "CG" or "PGS";
    integrator: "Euler", "implicitfast", "implicit" or "RK4";
    iterations, line_search_iterations: bounds on the solver's work;
    tolerance: norm of the residual force, relative to the forces that balance, at which the solver stops.
    """

    cone: str | None = eqx.field(static=True, default=None)
    solver: str | None = eqx.field(static=True, default=None)
    integrator: str | None = eqx.field(static=True, default=None)
    iterations: int | None = eqx.field(static=True, default=None)
    line_search_iterations: int | None = eqx.field(static=True, default=None)
    tolerance: float | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        allowed = {"cone": CONES, "solver": tuple(SOLVERS), "integrator": tuple(INTEGRATORS)}
        for name, values in allowed.items():
            given = getattr(self, name)
            if given is not None and given not in values:
                raise InputError(f"Soft({name}={given!r}): choose one of {', '.join(map(repr, values))}.")
        for name in ("iterations", "line_search_iterations", "tolerance"):
            given = getattr(self, name)
            if given is not None and not given > 0:
                raise InputError(f"Soft({name}={given!r}): must be positive.")

    def step(self, model: Model, state: State, inputs: Input) -> State:
        """The state one time step later."""
        integrate = INTEGRATORS[self.integrator or model.options.layout.integrator]
        moved, forward = integrate(self.forward, model, state, inputs)
        finite = jnp.isfinite(moved.q).all() & jnp.isfinite(moved.v).all()
        status = (
            state.status
            | bit(Status.NOT_FINITE, ~finite)
            | bit(Status.NOT_CONVERGED, ~forward.solution.converged & finite)
            | bit(Status.CONTACT_OVERFLOW, forward.contacts.overflow)
        )
        cache = Cache(acceleration=forward.solution.acceleration, iterations=forward.solution.iterations)
        return State(moved.q, moved.v, moved.act, state.time + model.options.timestep, status, cache)

    def kinds(self, model: Model) -> RowKinds:
        """Number and kinds of the constraint rows."""
        return row_kinds(model, self.cone or model.options.layout.cone)

    def forward(self, model: Model, state: State, inputs: Input) -> Forward:
        """Forward dynamics in continuous time: from positions, velocities and inputs to the acceleration."""
        q, v = state.q, state.v
        kinds = self.kinds(model)
        kin = of_state(model, state, inputs)
        dyn = smooth(model, kin, v)
        rest = f_.passive(model, kin, q, v)
        ctrl = cast(Array, inputs.ctrl)  # `as_input` fills it
        drive = f_.actuation(model, kin, q, v, state.act, ctrl, rest.held)
        contacts = detect(model, kin)
        tau = rest.qfrc + drive.qfrc + f_.applied(model, kin, inputs, v) - dyn.bias
        warm = state.cache.acceleration
        if "warmstart" in model.options.layout.disabled:
            warm = jnp.zeros_like(warm)
        scene = Scene(model, kin, dyn.velocity, q, v, contacts, dyn.M, tau, warm)
        # all rows, for those who look inside: a step uses only what the solver made of them
        rows = scene_rows(scene, kinds)
        return Forward(kin, dyn, drive, rest, contacts, rows, tau, self._solve(kinds, scene))

    def _solve(self, kinds: RowKinds, scene: Scene) -> Solution:
        layout = scene.model.options.layout
        precise = 1e-12 if scene.v.dtype == jnp.float64 else 1e-6
        solver = partial(
            SOLVERS[self.solver or layout.solver],
            iterations=self.iterations or layout.iterations,
            searches=self.line_search_iterations or layout.line_search_iterations,
            tolerance=self.tolerance or precise,
        )
        return solve_active(solver, scene_rows, kinds, scene)

    def inverse(self, model: Model, state: State, acceleration: Array, inputs: Input) -> Array:
        """Generalised force (nv,) that yields the acceleration: everything but passive and constraint forces."""
        q, v, kinds = state.q, state.v, self.kinds(model)
        kin = of_state(model, state, inputs)
        dyn = smooth(model, kin, v)
        rows = constraint_rows(model, kin, dyn.velocity, q, v, detect(model, kin), kinds)
        force = penalty.force(kinds, rows.penalty, rows.J @ acceleration - rows.aref)
        rest = f_.passive(model, kin, q, v)
        return dyn.M @ acceleration + dyn.bias - rest.qfrc - rest.held - force @ rows.J
