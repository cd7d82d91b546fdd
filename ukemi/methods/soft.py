"""MuJoCo's soft contact: the acceleration minimises Gauss' principle plus a penalty on the constraints (eq. 8)."""

from functools import partial
from typing import NamedTuple, cast

import equinox as eqx
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import Array, lax

from ukemi import forces as f_
from ukemi.collide.detect import Contacts, detect
from ukemi.constraint import Rows, constraint_force, constraint_rows, row_kinds
from ukemi.dynamics import Smooth, inertial_force, motion_force, smooth
from ukemi.errors import InputError
from ukemi.gradient import root
from ukemi.kinematics import Kinematics, Velocities, of_state, velocities
from ukemi.methods import integrators as i_
from ukemi.methods.base import Method
from ukemi.model import Cache, Input, Model, State
from ukemi.penalty import RowKinds
from ukemi.solvers import SOLVERS, hessian_active, solve_active
from ukemi.solvers.problem import Solution
from ukemi.status import Status, bit

CONES = ("pyramidal", "elliptic")


class Here(NamedTuple):
    """Everything that the acceleration depends on."""

    model: Model
    kin: Kinematics
    contacts: Contacts
    q: Array
    v: Array
    act: Array
    warm: Array  # (nv,) where the solver starts; it does not change what the solver finds
    inputs: Input


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


class Motion(NamedTuple):
    """What a step needs to move on; floats here carry derivatives."""

    kin: Kinematics
    contacts: Contacts
    acceleration: Array  # (nv,) a: of the soft law
    effective: Array  # (nv,) e: what the integrator makes of it
    iterations: Array
    converged: Array


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
        allowed = {"cone": CONES, "solver": tuple(SOLVERS), "integrator": i_.NAMES}
        for name, values in allowed.items():
            given = getattr(self, name)
            if given is not None and given not in values:
                raise InputError(f"Soft({name}={given!r}): choose one of {', '.join(map(repr, values))}.")
        for name in ("iterations", "line_search_iterations", "tolerance"):
            given = getattr(self, name)
            if given is not None and not given > 0:
                raise InputError(f"Soft({name}={given!r}): must be positive.")

    def step(self, model: Model, state: State, inputs: Input) -> State:
        """The state one model time step later."""
        integrator = self.integrator or model.options.layout.integrator
        if integrator == "RK4":
            moved, motion = i_.runge_kutta(self.accelerate, model, state, inputs)
        else:
            motion = self.accelerate(model, state, inputs, integrator)
            moved = i_.advance(model, state, motion, inputs)
        finite = jnp.isfinite(moved.q).all() & jnp.isfinite(moved.v).all()
        status = (
            state.status
            | bit(Status.NOT_FINITE, ~finite)
            | bit(Status.NOT_CONVERGED, ~motion.converged & finite)
            | bit(Status.CONTACT_OVERFLOW, motion.contacts.overflow)
        )
        cache = Cache(acceleration=lax.stop_gradient(motion.acceleration), iterations=motion.iterations)
        return State(moved.q, moved.v, moved.act, state.time + model.options.timestep, status, cache)

    def kinds(self, model: Model) -> RowKinds:
        """Number and kinds of the constraint rows."""
        return row_kinds(model, self.cone or model.options.layout.cone)

    def accelerate(self, model: Model, state: State, inputs: Input, integrator: str | None = None) -> Motion:
        """Acceleration of the soft law, and the one that `integrator` makes of it, by the implicit rule.

        The residuals are M a + c − τ − Jᵀ f(J a − a_ref), whose Jacobian is H = M + Jᵀ H[s] J, and M̂ e − M a.
        """
        here = _here(model, state, inputs)
        implicit = integrator if integrator and i_.takes_slope(integrator, model) else None

        def find(here: Here):
            now = self._forward(here)
            a = e = now.solution.acceleration
            if implicit:
                slope = i_.implicit_slope(implicit, here.model, here.kin, now.smooth.velocity, here.v, now.actuation)
                e = i_.solve_implicit(implicit, here.model, now.smooth.M, slope, now.tau + now.solution.pull)
            return (a, e), (now.solution.iterations, now.solution.converged)

        (a, e), facts = root(find, partial(self._derivative, implicit))(here)
        return Motion(here.kin, here.contacts, a, e, *facts)

    def _derivative(self, implicit: str | None, z, here: Here, push):
        """(da, de) by the implicit rule."""
        a, e = z
        dr = push(partial(_imbalance, self.kinds(here.model), a))
        if dr is None:
            return None
        dyn = smooth(here.model, here.kin, here.v)
        scene = _scene(here, dyn, jnp.zeros_like(a))
        H = hessian_active(scene_rows, self.kinds(here.model), scene, a)
        da = -jsl.cho_solve((lax.linalg.cholesky(H, symmetrize_input=False), True), dr)
        if not implicit:
            return da, da
        dr = push(lambda here: i_.implicit_residual(here.model, here.kin, _slope(implicit, here), a, e))
        force = inertial_force(here.model, here.kin, da) - dr
        return da, i_.solve_implicit(implicit, here.model, dyn.M, _slope(implicit, here), force)

    def forward(self, model: Model, state: State, inputs: Input) -> Forward:
        """Forward dynamics in continuous time, stage by stage; to look inside, not to differentiate."""
        return self._forward(_here(model, state, inputs))

    def _forward(self, here: Here) -> Forward:
        model, kin, contacts, q, v, act, _, inputs = here
        dyn = smooth(model, kin, v)
        rest, drive = _forces(here)
        tau = rest.qfrc + drive.qfrc + f_.applied(model, kin, inputs, v) - dyn.bias
        scene = _scene(here, dyn, tau)
        # all rows, for those who look inside: a step uses only what the solver made of them
        rows = scene_rows(scene, self.kinds(model))
        return Forward(kin, dyn, drive, rest, contacts, rows, tau, self._solve(scene))

    def _solve(self, scene: Scene) -> Solution:
        layout = scene.model.options.layout
        precise = 1e-12 if scene.v.dtype == jnp.float64 else 1e-6
        solver = partial(
            SOLVERS[self.solver or layout.solver],
            iterations=self.iterations or layout.iterations,
            searches=self.line_search_iterations or layout.line_search_iterations,
            tolerance=self.tolerance or precise,
        )
        return solve_active(solver, scene_rows, self.kinds(scene.model), scene)

    def inverse(self, model: Model, state: State, acceleration: Array, inputs: Input) -> Array:
        """Generalised force (nv,) that yields the acceleration: everything but passive and constraint forces."""
        here = _here(model, state, inputs)
        rest = f_.passive(model, here.kin, state.q, state.v)
        inertial = motion_force(model, here.kin, velocities(model.tree, here.kin.S, state.v), state.v, acceleration)
        return inertial - rest.qfrc - rest.held - self._constraint(here, acceleration)[1]

    def contact_forces(self, model: Model, state: State, inputs: Input) -> tuple[Contacts, Array]:
        """Contacts, and their forces (nc, dim) in the contacts' frames."""
        here, kinds = _here(model, state, inputs), self.kinds(model)
        force = self._constraint(here, self.accelerate(model, state, inputs).acceleration)[0]
        return here.contacts, force[kinds.scalar :].reshape(kinds.contacts, kinds.dim)

    def _constraint(self, here: Here, a: Array) -> tuple[Array, Array]:
        return _constraint_force(self.kinds(here.model), here, a)


# ---- the pieces as functions of `Here` ----------------------------------------------------------------------------


def _here(model: Model, state: State, inputs: Input) -> Here:
    kin = of_state(model, state, inputs)
    warm = state.cache.acceleration
    if "warmstart" in model.options.layout.disabled:
        warm = jnp.zeros_like(warm)
    return Here(model, kin, detect(model, kin), state.q, state.v, state.act, lax.stop_gradient(warm), inputs)


def _forces(here: Here) -> tuple[f_.Passive, f_.Actuation]:
    model, kin, _, q, v, act, _, inputs = here
    rest = f_.passive(model, kin, q, v)
    return rest, f_.actuation(model, kin, q, v, act, cast(Array, inputs.ctrl), rest.held)  # `as_input` fills ctrl


def _scene(here: Here, dyn: Smooth, tau: Array) -> Scene:
    return Scene(here.model, here.kin, dyn.velocity, here.q, here.v, here.contacts, dyn.M, tau, here.warm)


def _constraint_force(kinds: RowKinds, here: Here, a: Array) -> tuple[Array, Array]:
    velocity = velocities(here.model.tree, here.kin.S, here.v)
    return constraint_force(here.model, here.kin, velocity, here.q, here.v, a, here.contacts, kinds)


def _imbalance(kinds: RowKinds, a: Array, here: Here) -> Array:
    """M a + c − τ − Jᵀ f (nv,): zero at the acceleration of the soft law."""
    model, kin, v = here.model, here.kin, here.v
    rest, drive = _forces(here)
    tau = rest.qfrc + drive.qfrc + f_.applied(model, kin, here.inputs, v)
    inertial = motion_force(model, kin, velocities(model.tree, kin.S, v), v, a)
    return inertial - tau - _constraint_force(kinds, here, a)[1]


def _slope(integrator: str, here: Here) -> i_.Slope:
    velocity = velocities(here.model.tree, here.kin.S, here.v)
    return i_.implicit_slope(integrator, here.model, here.kin, velocity, here.v, _forces(here)[1])
