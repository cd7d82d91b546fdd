"""The balance of forces of the soft law: the residual that its solver brings to zero.

R(a) = M a + c − τ − Jᵀ f(J a − a_ref), with Jacobian H = M + Jᵀ H[s] J; and, for integrators that take a slope D
implicitly, M̂ e − M a with M̂ = M − h D. Their derivatives are in `laws.soft.derivative`.
"""

from typing import NamedTuple

from jax import Array

from ukemi.constraints.block import Frame
from ukemi.constraints.rows import RowKinds
from ukemi.laws.here import Here, applied, forces, frame_of
from ukemi.laws.integrators import Integrator, Slope
from ukemi.laws.soft.rows import RowParts, constraint_force
from ukemi.mechanics.dynamics import Smooth, motion_force
from ukemi.mechanics.kinematics import velocities


class Scene(NamedTuple):
    """What the solver of the constraints is given."""

    frame: Frame
    M: Array
    tau: Array
    warm: Array  # (nv,) where the solver starts
    parts: RowParts | None = None  # its rows, once they are known


def scene(here: Here, dyn: Smooth, tau: Array) -> Scene:
    """The solver's problem at `here`, with the sum τ (nv,) of all forces but constraints."""
    return Scene(frame_of(here, dyn.velocity), dyn.M, tau, here.warm)


def constraint_pull(kinds: RowKinds, here: Here, a: Array) -> tuple[Array, Array]:
    """Constraint forces f and Jᵀ f at acceleration a."""
    return constraint_force(frame_of(here), a, kinds)


# ---- residuals ------------------------------------------------------------------------------------------------------


def imbalance(kinds: RowKinds, a: Array, here: Here) -> Array:
    """M a + c − τ − Jᵀ f (nv,): zero at the acceleration of the soft law."""
    inertial = motion_force(here.model, here.kin, a, velocities(here.model.tree, here.kin.S, here.v))
    return inertial - applied(here) - constraint_pull(kinds, here, a)[1]


def lag(integrator: Integrator, a: Array, e: Array, here: Here) -> Array:
    """M̂ e − M a (nv,): zero at the acceleration that the integrator uses."""
    return motion_force(here.model, here.kin, e - a) - here.model.options.timestep * taken(integrator, e, here)


def taken(integrator: Integrator, e: Array, here: Here) -> Array:
    """The part of the forces at acceleration e that the integrator takes implicitly: (D − C) e."""
    velocity = velocities(here.model.tree, here.kin.S, here.v)
    return integrator.product(here.model, here.kin, velocity, here.v, forces(here)[1], e)


def slope(integrator: Integrator, here: Here) -> Slope:
    """What the integrator takes implicitly."""
    velocity = velocities(here.model.tree, here.kin.S, here.v)
    return integrator.slope(here.model, here.kin, velocity, here.v, forces(here)[1])
