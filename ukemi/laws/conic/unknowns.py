"""What a step with cones seeks, what is asked of it, and what is left of that (Dojo, eqs. 26–28)."""

from typing import NamedTuple

from jax import Array

from ukemi.collide.detect import Contacts
from ukemi.laws.conic.cones import Cones, Products
from ukemi.laws.conic.marks import Marks


class Point(NamedTuple):
    """What a step finds, and changes of it."""

    v: Array  # (nv,) v⁺
    held: Array  # (hold,) impulses of equalities
    cones: Cones


class Known(NamedTuple):
    """What a step's residual takes as given: contacts at its end and what they were, which count, which bounce."""

    contacts: Contacts
    marks: Marks  # what these are known by
    origin: Array  # (nc,) which contact of the start each is; −1: none
    on: tuple[Array, Array]  # heads (H,) and cones (K,)
    bounce: Array  # (H,)
    deep: Array  # (H,) whose overlap is to be taken back
    pushed: Array  # (nv,) velocity that impulses made


class Path(NamedTuple):
    """Which point of the central path a step is."""

    kappa: Array  # () κ
    width: Array  # () distance [m] or [rad] from half of which on κ falls to nothing


class Asked(NamedTuple):
    """What variables in cones have to agree with, at a velocity."""

    gap: Array  # (H,) what slacks should be, but for δ γ
    slip: Array  # (K, 2) what slips should be
    held: Array  # (hold,) how fast equalities part, which is what they yield
    mu: Array  # (K, 2) coefficients of friction; 1 of dry friction
    dry: Array  # (dry,) largest impulses of dry friction
    weight: Array  # (H,) inverse weights of what heads move [1/kg]
    delta: Array  # (H,) what slacks gain per impulse
    yields: Array  # (hold,) velocity at which equalities yield per impulse
    aims: tuple[Array, Array]  # κ of heads (H,) and of cones (K,)
    fade: Array  # (H,) ∂κ/∂φ


class Imbalance(NamedTuple):
    """What a step brings to zero."""

    force: Array  # (nv,) M̂ (v⁺ − v) − h (τ − c) − impulses
    held: Array  # (hold,)
    slack: Array  # (H,) gaps less slacks
    slip: Array  # (K, 2) slips of points less those of cones
    products: Products  # cone products less κ
