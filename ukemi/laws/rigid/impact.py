"""Rigid contact resolved in time: bodies stop where they meet, rebound, and go on (Jade, IV-B).

A step first finds velocities under all forces with what touches already, as `LCP` does. It then moves at those
velocities up to the first time of impact, finds the impulses of the impact, which act on everything in touch at once,
and goes on with what is left of the step. Nothing is stepped over and nothing overlaps, however thin or fast.
All that is one loop over what may happen, since contacts and impulses take long to compile.
"""

import dataclasses
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from ukemi import values
from ukemi.collide.detect import Contacts, detect, unsound
from ukemi.collide.primitives import is_ground
from ukemi.collide.sweep.impacts import first_impact
from ukemi.constraints.adhesion import with_hair
from ukemi.constraints.contacts import contact_lever
from ukemi.constraints.rows import row_kinds
from ukemi.errors import InputError
from ukemi.implicit import rules
from ukemi.implicit.rule import apart, keep, pushforward
from ukemi.laws.here import Here, here_of
from ukemi.laws.integrators import Moved, moved_activation
from ukemi.laws.method import Method
from ukemi.laws.rigid import conditions, derivative
from ukemi.laws.rigid.conditions import Stepping
from ukemi.laws.rigid.lcp import arrive_with, report_forces
from ukemi.laws.rigid.memory import Sides, recalled, unknown
from ukemi.mechanics.kinematics import Kinematics, integrate, kinematics, of_state
from ukemi.model.records import Input, Model, State
from ukemi.status import Status

TOUCH = 1e-7  # distance up to which contacts take part in an impact [m]; impacts are found at 1e-10
ALLOWED = 2e-10  # penetration that is left alone [m]
NEARBY = 1e-4  # distance up to which they take part when penetration is taken back [m]
PLACINGS = 4  # displacements that may follow each other to take penetration back
STEPPING = Stepping(correction=0.0, explicit=False)
GRAZING = 1e-9  # closing speed below which an impact has no time that could be differentiated [m/s]


class Impact(Method):
    """Rigid contact without intersection: times of impact, restitution, several impacts in a step.

    The rules of margins and of soft parameters do not apply: shapes touch where they touch.

    Args:
        gradient: `Exact()`.
        impacts: how many a step may hold; the motion stops at the next one, with a status bit.
    """

    gradient: rules.Rule = rules.Exact()
    impacts: int = eqx.field(converter=values.plain, static=True, default=8)

    def __check_init__(self):
        rules.require("Impact", self.gradient, (rules.Exact,))
        values.check_count("Impact", "impacts", self.impacts)

    def step(self, model: Model, state: State, inputs: Input) -> State:
        """The state one model time step later."""
        model = _bare(model)
        end = _fly(self.impacts, model, state, inputs)
        act = moved_activation(model, state, of_state(model, state, inputs), inputs, end.q)
        failed = {**end.unsound, Status.TOO_MANY_IMPACTS: end.left > 0}
        return arrive_with(model, state, Moved(end.q, end.v, act), end.sides, (end.rounds, end.solved), failed)

    def contact_forces(self, model: Model, state: State, inputs: Input) -> tuple[Contacts, Array]:
        """Contacts, and the forces (nc, dim) in their frames that act on them when the step begins."""
        model = _bare(model)
        here = here_of(model, state, inputs, jnp.asarray(TOUCH, state.q.dtype))
        touching = here._replace(contacts=_touching(model, here.contacts, TOUCH))
        args = touching, model.options.timestep, recalled(state)
        return here.contacts, report_forces(touching, derivative.solve(STEPPING, args)[0])[1]


def _bare(model: Model) -> Model:
    """The model without margins: shapes touch where they touch. Those that adhere keep gaps, in which they pull."""
    fields = [group.geoms[0, 0] for group in model.pairs.layout.groups if is_ground(group)]
    if fields:
        raise InputError(
            f"method=Impact() cannot step a model with a height field that shapes may touch "
            f"('{model.geoms.layout.names[fields[0]]}'): its search for times of impact is one among convex shapes. "
            "Take uk.LCP(), which looks ahead of a step"
        )

    def bare(group):
        return dataclasses.replace(group, margin=0 * group.margin, gap=adheres * group.gap)

    adheres = int(model.pairs.layout.adheres)
    return with_hair(dataclasses.replace(model, geoms=bare(model.geoms), pairs=bare(model.pairs)))


def _touching(model: Model, contacts: Contacts, ahead: Array | float) -> Contacts:
    """Contacts of which those act that touch, and not those that pull from afar."""
    if not model.pairs.layout.adheres:
        return contacts
    return contacts._replace(active=contacts.active & ~(contacts.distance >= ahead))


class _Flight(NamedTuple):
    """Where the motion through a step stands."""

    q: Array
    v: Array
    left: Array  # () time left of the step [s]
    rounds: Array  # () linear systems solved so far
    solved: Array  # () bool: each found a solution
    placed: Array  # () bool: nothing overlaps and nothing has drifted, at the end
    sides: Sides  # which the next step remembers: those of the step, not of impacts
    unsound: dict[Status, Array]  # why contacts should not be trusted


class _Turn(NamedTuple):
    """What may happen next."""

    begins: Array  # () bool: the step's velocities are found, nothing moves yet
    ends: Array  # () bool: the motion stops at the next impact
    places: Array  # () bool: no motion, but penetration and drift are taken back
    first: Array  # () bool: for the first time


def _turns(impacts: int, placings: int) -> _Turn:
    """The start, impacts, and displacements after the last one."""
    k = jnp.arange(1 + impacts + 1 + placings)
    return _Turn(k == 0, k == impacts + 1, k > impacts + 1, k == impacts + 2)


def _fly(impacts: int, model: Model, state: State, inputs: Input) -> _Flight:
    """The motion through a step from impact to impact, and where it ends with penetration and drift taken back.

    Contact points that move on curved paths, as those of a body that tips over, sink by the square of the step.
    Equalities are placed once even where they are met: they would be, whichever way the start was moved.
    """
    hits = bool(model.pairs.layout.groups)

    def go_on(at: _Flight, turn: _Turn):
        moves = (at.left > 0) & ~(turn.begins | turn.places)
        leg = partial(_leg if hits else _free_leg, model, inputs)
        at, hit = lax.cond(moves, leg, lambda at, turn: (at, jnp.zeros((), bool)), at, turn)
        resolve = partial(_resolve, model, state, inputs)
        needed = hit | turn.begins | (turn.places & ~at.placed)
        return lax.cond(needed, resolve, lambda at, turn: at, at, turn), None

    no, none = jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    flags = {Status.CONTACT_OVERFLOW: no, Status.SEARCH_UNFINISHED: no}
    start = _Flight(state.q, state.v, model.options.timestep, none, ~no, no, unknown(model), flags)
    turns = _turns(impacts if hits else 0, PLACINGS if row_kinds(model).total else 0)
    return lax.scan(go_on, start, turns)[0]


def _free_leg(model: Model, inputs: Input, at: _Flight, turn: _Turn) -> tuple[_Flight, Array]:
    """The whole motion of what cannot touch."""
    q = integrate(model.tree, at.q, at.v, at.left)
    return at._replace(q=q, left=jnp.zeros_like(at.left)), jnp.zeros((), bool)


def _leg(model: Model, inputs: Input, at: _Flight, turn: _Turn) -> tuple[_Flight, Array]:
    """The motion up to the next impact, and whether there is one that the step goes on after."""
    args = lax.stop_gradient((model, at.q, at.v, at.left, inputs))
    found = keep(_search(*args))
    time = jnp.where(found.found, _time_of_impact((model, at.q, at.v, inputs), (found.time, found.pair)), at.left)
    time = jnp.where(found.exhausted, lax.stop_gradient(found.time), time)
    q = integrate(model.tree, at.q, at.v, time)
    left = jnp.where(found.found | found.exhausted, at.left - time, 0.0)
    return at._replace(q=q, left=left), found.found & ~turn.ends


def _search(model: Model, q: Array, v: Array, duration: Array, inputs: Input):
    return first_impact(model, q, v, duration, touch=TOUCH, mocap_pos=inputs.mocap_pos, mocap_quat=inputs.mocap_quat)


def _resolve(model: Model, state: State, inputs: Input, at: _Flight, turn: _Turn) -> _Flight:
    """Velocities under all forces; or after the impulses of an impact, in which everything in touch takes part (Jade,
    eq. 7 and 8); or the place without overlaps.
    """
    dtype = at.q.dtype
    kin, contacts = _poses(model, inputs, at.q, jnp.where(turn.places, NEARBY, TOUCH).astype(dtype))
    v, touch = jnp.where(turn.places, 0.0, at.v), jnp.asarray(TOUCH, dtype)
    here = Here(model, kin, contacts, at.q, v, state.act, jnp.zeros_like(v), inputs, touch)
    at = at._replace(unsound={why: at.unsound[why] | yes for why, yes in unsound(contacts).items()})
    needed = ~turn.places | _misplaced(here)
    if row_kinds(model).hold:
        needed = needed | turn.first
    at = at._replace(placed=~needed)

    def solve(at: _Flight) -> _Flight:
        duration = jnp.where(turn.places, 1.0, at.left)
        known = jax.tree.map(partial(jnp.where, turn.begins), recalled(state), unknown(model))
        event = conditions.Event(turn.begins, turn.places)
        z, (rounds, solved) = derivative.solve(STEPPING, (here, duration, known, event))
        q, v = integrate(model.tree, at.q, z.v, jnp.ones_like(duration)), z.v
        q, v = jnp.where(turn.places, q, at.q), jnp.where(turn.places, at.v, v)
        rounds = at.rounds + jnp.where(turn.places, 0, rounds)
        sides = jax.tree.map(partial(jnp.where, turn.begins), Sides(contacts.names, z.side), at.sides)
        return at._replace(q=q, v=v, rounds=rounds, solved=at.solved & solved, sides=sides)

    return lax.cond(needed, solve, lambda at: at, at)


def _poses(
    model: Model, inputs: Input, q: Array, ahead: Array, early: Array | None = None
) -> tuple[Kinematics, Contacts]:
    kin = kinematics(model, q, inputs.mocap_pos, inputs.mocap_quat)
    return kin, _touching(model, detect(model, kin, ahead, early=early), ahead)


# ---- the time of impact ----------------------------------------------------------------------------------------------


@jax.custom_jvp
def _time_of_impact(args, found: tuple[Array, Array]) -> Array:
    """The time of impact that a search found, with the derivative of φ(q ⊕ t v) = slop (Jade, eq. 9 and 10)."""
    return found[0]


def _differentiate_time(primals, tangents):
    (args, found), (along, _) = primals, tangents
    time = _time_of_impact(args, found)  # second derivatives see that it moves
    args, then = apart((args, time))

    def distance(args):
        model, q, v, inputs = args
        return _closest(model, inputs, integrate(model.tree, q, v, then), v, found[1])

    moved = pushforward(lambda args: distance(args)[0], args, along)
    if moved is None:
        return time, jnp.zeros_like(time)
    closing = distance(args)[1]
    real = closing < -GRAZING
    return time, jnp.where(real, -moved / jnp.where(real, closing, 1.0), 0.0)


_time_of_impact.defjvp(_differentiate_time, symbolic_zeros=True)


def _closest(model: Model, inputs: Input, q: Array, v: Array, pair: Array) -> tuple[Array, Array]:
    """Distance of a pair's nearest contact that closes, and the rate at which it closes."""
    # the nearest points that the search goes by: of several contacts each has its height over a face, which may tilt
    kin, contacts = _poses(model, inputs, q, jnp.asarray(TOUCH, q.dtype), early=jnp.zeros((), q.dtype))
    rate = contact_lever(model, kin, contacts, 1).motion(v)[:, 0]
    score = jnp.where(contacts.active & (contacts.pair == pair), jnp.minimum(rate, 0.0), 1.0)
    nearest = jnp.argmin(lax.stop_gradient(score))
    return contacts.distance[nearest], rate[nearest]


# ---- where the step ends ---------------------------------------------------------------------------------------------


def _misplaced(here: Here) -> Array:
    """Whether something overlaps or has drifted apart."""
    deepest = jnp.where(here.contacts.active, here.contacts.distance, 0.0).min(initial=0.0)
    drift = conditions.drift(here)
    return (deepest < -ALLOWED) | (drift > ALLOWED)
