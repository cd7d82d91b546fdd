"""The derivative of a step with cones: one more Newton step, on the change of the residual along what it depends on."""

import jax
from jax import Array

from ukemi.collide.detect import attached
from ukemi.constraints.block import Frame
from ukemi.constraints.rows import RowKinds
from ukemi.implicit.rule import pushforward, zero_tangent
from ukemi.laws.conic import newton
from ukemi.laws.conic.balance import asked, cone_heads, impulses, matched, residual, start_of
from ukemi.laws.conic.cones import layout, of_cones, of_heads
from ukemi.laws.conic.end import frame_after
from ukemi.laws.conic.mechanics import Mechanics
from ukemi.laws.conic.newton import Slopes
from ukemi.laws.conic.unknowns import Known, Path, Point
from ukemi.laws.here import Here
from ukemi.laws.momentum import free_motion


def rule(mechanics: Mechanics, kinds: RowKinds, found: tuple[Point, Known], args, tangents):
    """How the unknowns move along tangents of args (here, duration, path, guide), whose leaves may be SymbolicZero."""
    (z, known), (*moving, guide) = found, args
    at = mechanics, kinds
    change = pushforward(lambda moved: _left(at, z, known, guide.ahead, *moved)[0], tuple(moving), tangents[:3])
    if change is None:
        return None
    return newton.solver(system_at(at, z, known, guide.ahead, *moving), refined=True)(change)[0], zero_tangent(known)


def end_of(here: Here, v: Array, duration: Array, known: Known, ahead: Array | None) -> Frame:
    """What rows are made from at the end, with contacts that stay the same and follow their shapes."""
    return frame_after(here, v, duration, follower(here, known, ahead))


def follower(here: Here, known: Known, ahead: Array | None):
    """The contacts of a solution as a function of kinematics: they stay the same and follow their shapes."""
    return lambda kin: attached(here.model, kin, known.contacts, ahead)


def _left(at: tuple[Mechanics, RowKinds], z: Point, known: Known, ahead, here: Here, duration: Array, path: Path):
    """The residual at z, and what is asked there."""
    (mechanics, kinds), own = at, layout(here.model, at[1])
    end = mechanics.ending(here, kinds, z.v, duration, follower(here, known, ahead))
    start = matched(own, start_of(here, kinds, duration), known.origin)
    wants = asked(own, end.rows, start, end.motion(), known.bounce, duration, path)
    f = impulses(own, kinds, z, wants.mu, known.on)
    return residual(own, z, wants, known.on, mechanics.left(here, end, duration, f)), wants


def system_at(at, z: Point, known: Known, ahead, here: Here, duration: Array, path: Path) -> newton.System:
    """The residual's slope at a solution, in the unknowns."""
    (mechanics, kinds), wants = at, _left(at, z, known, ahead, here, duration, path)[1]
    own = layout(here.model, kinds)

    by = jax.jacfwd(lambda v: _left(at, z._replace(v=v), known, ahead, here, duration, path)[0])(z.v)
    end = mechanics.ending(here, kinds, z.v, duration, follower(here, known, ahead))
    begun = mechanics.begin(here, kinds, duration, free_motion(here, duration))
    pulls = mechanics.pulls(begun, here, end, end.moves())
    rubs = wants.mu[:, :, None] * of_cones(own, pulls)
    slopes = Slopes(by.slack, by.slip, by.held, of_heads(own, pulls), rubs, pulls[kinds.holding])
    return newton.system(own, z.cones, cone_heads(own, z, wants, known.on[1]), wants, known.on, by.force, slopes)
