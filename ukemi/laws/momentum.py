"""The balance of momentum over a time step, as laws of impulses have it: M̂ (v⁺ − v) = h (τ − c) + impulses.

M̂ = M + h D takes the joints' damping implicitly, as MuJoCo's Euler does, and that of servos where the file asks for an
implicit integrator.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ukemi.laws.here import Here, applied, forces
from ukemi.laws.integrators import INTEGRATORS, damps_joints
from ukemi.maths.systems import SMALL, inverse, solve
from ukemi.mechanics.dynamics import motion_force, smooth
from ukemi.mechanics.kinematics import Velocities, velocities
from ukemi.mechanics.springs import joint_resistance, thickens
from ukemi.mechanics.transmissions import on_joints
from ukemi.model.records import Model


class FreeMotion(NamedTuple):
    """How a robot moves that nothing stops."""

    M: Array  # (nv, nv) M̂
    inverse: Array  # (nv, nv) of M̂
    v: Array  # (nv,) velocity without impulses
    velocity: Velocities  # before


def free_motion(here: Here, duration: Array, lasts: Array | None = None) -> FreeMotion:
    """The motion over a duration [s]; where it does not last, an instant in which no force acts."""
    model = here.model
    dyn = smooth(model, here.kin, here.v)

    def acting(here: Here) -> tuple[Array, Array]:
        return damping(here), applied(here) - dyn.bias

    def idle(here: Here) -> tuple[Array, Array]:
        return jnp.zeros_like(dyn.M), jnp.zeros_like(dyn.bias)

    D, force = acting(here) if lasts is None else lax.cond(lasts, acting, idle, here)
    M = dyn.M + duration * D
    inverted = inverse(M, definite=True)
    # who does not ask for the inverse of a large matrix does not wait for it
    change = inverted @ force if model.nv <= SMALL else solve(M, force)
    return FreeMotion(M, inverted, here.v + duration * change, dyn.velocity)


def missing_impulse(here: Here, after: Array, duration: Array) -> Array:
    """Impulse (nv,) that changes the velocity to `after` over a duration: M̂ (v⁺ − v) − h (τ − c)."""
    model = here.model
    e = (after - here.v) / duration
    inertial = motion_force(model, here.kin, e, velocities(model.tree, here.kin.S, here.v))
    return duration * (inertial + duration * damped(e, here) - applied(here))


def damps_by_servos(model: Model) -> bool:
    """Whether M̂ takes the servos' damping."""
    layout, drives = model.options.layout, model.actuators.layout.count > 0
    return INTEGRATORS[layout.integrator].takes_forces and drives and "actuation" not in layout.disabled


def damping(here: Here) -> Array:
    """D (nv, nv), of joints and servos. What fluids damp is not symmetric and stays explicit."""
    model = here.model
    D = jnp.diag(joint_resistance(model, here.v) if damps_joints(model) else jnp.zeros_like(here.v))
    if not damps_by_servos(model):
        return D
    drive = forces(here)[1]
    return D - on_joints(model, drive.moment, drive.slope)


def damped(x: Array, here: Here) -> Array:
    """D x (..., nv)."""
    model = here.model
    out = joint_resistance(model, here.v) * x if damps_joints(model) else jnp.zeros_like(x)
    return out - forces(here)[1].resistance(x) if damps_by_servos(model) else out


def damping_varies(model: Model) -> bool:
    """Whether D follows the state: that of servos, and of joints whose damping grows with speed."""
    return damps_by_servos(model) or (damps_joints(model) and thickens(model))
