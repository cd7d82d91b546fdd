"""What the search for a step with cones knows, and where it is."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jax import Array

from ukemi.constraints.rows import RowKinds
from ukemi.laws.conic.balance import Start
from ukemi.laws.conic.cones import Layout
from ukemi.laws.conic.marks import Marks
from ukemi.laws.conic.mechanics import Arrival, Mechanics
from ukemi.laws.conic.memory import Pushes
from ukemi.laws.conic.newton import Slopes
from ukemi.laws.conic.unknowns import Asked, Imbalance, Known, Path, Point
from ukemi.laws.here import Here
from ukemi.laws.momentum import FreeMotion
from ukemi.mechanics.articulated import Articulated


class Settings(NamedTuple):
    """What bounds the search; static."""

    iterations: int  # of each start
    starts: int
    tolerance: float  # of residuals, relative to the velocities at hand
    near: float  # distance from the central path, relative to κ, that counts as on it
    exact: float  # relative residual from which on a solution is not improved once more
    rooms: tuple[int, ...] = ()  # numbers of contacts for which a turn is compiled beside all


class Task(NamedTuple):
    """What is to be solved."""

    kinds: RowKinds
    layout: Layout
    here: Here
    start: Start
    marks: Marks  # of the contacts at the start
    free: FreeMotion
    duration: Array
    path: Path
    mechanics: Mechanics
    begun: Any  # what the mechanics take from the start
    bounce: Array  # (H,) heads at the start that bounce
    recalled: Pushes
    detect: Callable  # contacts of kinematics, and of whether these are to be `steady`


class Landing(NamedTuple):
    """Where a step of some velocities ends, whichever of the contacts there count."""

    end: Arrival
    missing: Array  # (nv,) impulse that the velocities need
    M: Array | Articulated  # (nv, nv) its slope


class Found(NamedTuple):
    """A point that was looked at, in the order of its own contacts."""

    point: Point
    known: Known
    asked: Asked
    head: Array  # (K,) ξ₀
    off: Imbalance
    slopes: Slopes
    M: Array | Articulated  # (nv, nv) slope of the impulse that v⁺ needs
    residual: Array  # () relative to the velocities at hand
    place: Array  # (nc,) where contacts were at the last point; −1: they are new
    kept: tuple[Array, Array]  # which heads (H,) and cones (K,) counted there, too


class Progress(NamedTuple):
    """How far the search is."""

    alpha: Array  # () how far it goes, at the next try
    last: Array  # () how far it went
    tries: Array
    creeping: Array  # () short steps in a row
    residual: Array
    off_path: Array  # () distance from `excess`
    excess: Array  # () how far above κ products should be after this iteration, those of slips
    speed: Array  # () velocities at hand [√J]
    start: Array  # () which start
    fresh: Array  # () bool: at a starting point
    ease: Array  # () masses added to Newton's matrix, as a share of all: steps that end at a wall become shorter ones
    probe: Array  # () which direction slopes are measured in next, from 1 on; 0: none
    room: Array  # () which of `Settings.rooms`
    rounds: Array  # () iterations of this start
    total: Array  # () of all
    close: Array  # () bool: at a point that counts as a solution
    solved: Array
    stuck: Array


class Bent(NamedTuple):
    """What steps so far have told of how force and slips bend, by Broyden's updates."""

    force: Array  # (nv, nv) slope beyond what the system says
    slip: Array  # (K, 2, nv)
    force_left: Array  # (nv,) what was left at the last point
    slip_left: Array  # (K, 2)


class Carry(NamedTuple):
    """Where the search is, and where it goes."""

    point: Point
    known: Known
    change: Point
    progress: Progress
    bent: Bent


class Solution(NamedTuple):
    """What the search found."""

    point: Point
    known: Known
    iterations: Array
    solved: Array
    start: Array  # () from which start


class Way(NamedTuple):
    """Where to go next."""

    change: Point
    alpha: Array  # () how far it may go
    excess: Array  # () over κ
