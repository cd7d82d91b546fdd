"""Tendons of a model."""

import dataclasses

import equinox as eqx
import numpy as np
from jax import Array
from jaxtyping import Float

from ukemi.model.tree import Static


class Tendons(eqx.Module):
    """Strings from site to site, and sums of joints; SI units if the coefficients of a sum make it a length [m]."""

    stiffness: Float[Array, " nt"]  # [N/m]
    stiffness_poly: Float[Array, "nt 2"]  # and what it grows by, per stretch and per stretch squared
    spring: Float[Array, "nt 2"]  # lengths between which the spring is at rest [m]
    springyield: Float[Array, " nt"]  # stretch that a spring bears which yields [m]
    damping: Float[Array, " nt"]  # [N s/m]
    damping_poly: Float[Array, "nt 2"]  # and what it grows by, per speed and per speed squared
    armature: Float[Array, " nt"]  # inertia along the tendon [kg]
    frictionloss: Float[Array, " nt"]  # dry friction [N]
    range: Float[Array, "nt 2"]  # [m]
    margin: Float[Array, " nt"]  # distance at which a limit awakes [m]
    solref_limit: Float[Array, "nt 2"]
    solimp_limit: Float[Array, "nt 5"]
    solref_friction: Float[Array, "nt 2"]
    solimp_friction: Float[Array, "nt 5"]
    length0: Float[Array, " nt"]  # at qpos0 [m]
    invweight: Float[Array, " nt"]  # inverse weight at qpos0 [1/kg]
    actuator_range: Float[Array, "nt 2"]  # limit of the total actuator force [N]
    coefficient: Float[Array, " nterm"]  # of each joint in a sum
    divisor: Float[Array, " npulley"]  # by which what follows a pulley is divided
    layout: "TendonLayout" = eqx.field(static=True)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TendonLayout(Static):
    """What tendons are made of, and which need work in a step."""

    terms: np.ndarray  # (nterm, 2) tendon and joint of each term of a sum
    spans: np.ndarray  # (n, 6) tendon, two sites, geom that it may wrap or -1, its side site or -1, pulley or -1
    limit_rows: np.ndarray  # (n, 2) tendon and side (−1 lower, 1 upper, 0 the nearer) of each limit
    force_limited: np.ndarray  # (nt,) bool: actuator_range applies
    dry: np.ndarray  # tendons with friction loss
    springs: bool
    plastic: np.ndarray  # (nt, 2) place of each of `spring` among what yields, -1 of springs that do not
    damped: bool
    heavy: bool  # some have armature
    width: np.ndarray  # (nt,) for pictures only [m]
    rgba: np.ndarray  # (nt, 4) for pictures only
    names: tuple[str, ...]
