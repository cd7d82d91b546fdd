"""The derivative of a step with cones: one more Newton step, on the change of the residual along what it depends on."""

import jax
from jax import Array

from ukemi.collide.detect import attached
from ukemi.constraints.block import Frame
from ukemi.constraints.rows import RowKinds, row_map, row_matrix
from ukemi.implicit.rule import pushforward, zero_tangent
from ukemi.laws.conic import newton
from ukemi.laws.conic.balance import (
    Across,
    asked,
    blocks_of,
    cone_heads,
    frame_after,
    matched,
    residual,
    rows_at,
    start_of,
)
from ukemi.laws.conic.cones import layout, of_cones, of_heads
from ukemi.laws.conic.newton import Slopes
from ukemi.laws.conic.unknowns import Asked, Imbalance, Known, Path, Point
from ukemi.laws.here import Here
from ukemi.laws.momentum import missing_impulse


def rule(kinds: RowKinds, found: tuple[Point, Known], args, tangents):
    """How the unknowns move along tangents of args (here, duration, path, guide), whose leaves may be SymbolicZero."""
    (z, known), (*moving, guide) = found, args
    change = pushforward(lambda moved: _left(kinds, z, known, guide.ahead, *moved)[0], tuple(moving), tangents[:3])
    if change is None:
        return None
    return newton.solver(_system(kinds, z, known, guide.ahead, *moving))(change)[0], zero_tangent(known)


def end_of(here: Here, v: Array, duration: Array, known: Known, ahead: Array | None) -> Frame:
    """What rows are made from at the end, with contacts that stay the same and follow their shapes."""
    return frame_after(here, v, duration, lambda kin: attached(here.model, kin, known.contacts, ahead))


def _left(kinds: RowKinds, z: Point, known: Known, ahead, here: Here, duration: Array, path: Path):
    """The residual at z, and what is asked there."""
    own, frame = layout(here.model, kinds), end_of(here, z.v, duration, known, ahead)
    blocks, across = blocks_of(frame), Across.of(here.model.tree, z.v, duration)
    J, start = row_map(frame, kinds, blocks), matched(own, start_of(here, kinds, duration), known.origin)
    wants = asked(own, rows_at(frame, kinds, blocks), start, J.motion(across.rates(z.v)), known.bounce, duration, path)
    missing = missing_impulse(here, z.v, duration)
    return residual(own, kinds, z, wants, known.on, missing, lambda f: across.rows(J.pull(f))), wants


def _system(kinds: RowKinds, z: Point, known: Known, ahead, here: Here, duration: Array, path: Path) -> newton.System:
    """The residual's slope at a solution, in the unknowns."""
    own, wants = layout(here.model, kinds), _left(kinds, z, known, ahead, here, duration, path)[1]

    def moved(v: Array) -> tuple[Imbalance, Asked]:
        return _left(kinds, z._replace(v=v), known, ahead, here, duration, path)

    by = jax.jacfwd(lambda v: moved(v)[0])(z.v)
    frame = end_of(here, z.v, duration, known, ahead)
    J = Across.of(here.model.tree, z.v, duration).rows(row_matrix(frame, kinds, blocks_of(frame)))
    rubs = wants.mu[:, :, None] * of_cones(own, J)
    slopes = Slopes(by.slack, by.slip, by.held, of_heads(own, J), rubs, J[kinds.holding])
    return newton.system(own, z.cones, cone_heads(own, z, wants, known.on[1]), wants, known.on, by.force, slopes)
