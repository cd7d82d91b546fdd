"""Which discrete mode a step is in: where two states share it, the step is one smooth function between them.

A step is smooth piece by piece. The pieces are told apart by the contacts and limits that are active, by the part of
its penalty or the side of its box that each row is in, by controls and forces that are clamped, and by the parameters
of which a maximum is taken. Of what a narrow phase decides inside one contact (which edges cross) the mode knows only
whether its normal turned round.
"""

import dataclasses
from dataclasses import replace
from functools import singledispatch
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.collide.detect import NAMES, Contacts
from ukemi.collide.near import reach_of_pairs
from ukemi.collide.primitives import is_ground, points_of
from ukemi.constraints.block import Frame, Side
from ukemi.constraints.contacts import contact_parameters, mixing_code
from ukemi.constraints.rows import placed, row_kinds, scalar_blocks
from ukemi.constraints.softness import softness_code
from ukemi.errors import InputError
from ukemi.laws.conic.balance import of_origin, start_of
from ukemi.laws.conic.cones import layout
from ukemi.laws.conic.derivative import system_at
from ukemi.laws.conic.law import Conic
from ukemi.laws.conic.newton import condition
from ukemi.laws.method import Method
from ukemi.laws.momentum import free_motion
from ukemi.laws.rigid import boxes, impulses
from ukemi.laws.rigid.lcp import LCP
from ukemi.laws.rigid.memory import recalled
from ukemi.laws.soft.law import Motion, Soft
from ukemi.laws.soft.penalty import penalty_pieces
from ukemi.laws.soft.rows import constraint_rows
from ukemi.maths import spatial
from ukemi.maths.codes import between, pack
from ukemi.maths.gathers import taken
from ukemi.mechanics.activations import next_activation, period
from ukemi.mechanics.delays import arriving, delay_pieces, present
from ukemi.mechanics.fluid import fluid_pieces
from ukemi.mechanics.forces import actuation, passive
from ukemi.mechanics.kinematics import Kinematics, velocities
from ukemi.mechanics.orientations import headings_code, orienting, outputs_of
from ukemi.mechanics.plasticity import rests
from ukemi.mechanics.servos import servo_of, servo_pieces
from ukemi.mechanics.transmissions import gripping
from ukemi.model.records import Input, Model, State
from ukemi.model.tree import BALL

BLURRED = 1e12  # condition of a conic step from which on rounding is seen in derivatives
DEGENERATE = 1e-7  # singular values of a scaled system that are zero but for rounding
ASKEW = np.array([0.36, 0.55, 0.75])  # a direction that no geometry singles out


@singledispatch
def step_with_mode(method: Method, model: Model, state: State, inputs: Input) -> tuple[State, Array]:
    """The next state, and the mode (n,) of integers that the step is in; the last one is −1 if it has no derivative."""
    raise InputError(f"{type(method).__name__} has no modes to compare yet.")


def has_modes(method: Method) -> bool:
    """Whether `step_with_mode` knows the modes of a law."""
    return step_with_mode.dispatch(type(method)) is not step_with_mode.dispatch(object)


@step_with_mode.register
def _(method: Soft, model: Model, state: State, inputs: Input) -> tuple[State, Array]:
    codes: list[Array] = []  # of all stages of the integrator

    class Watched(Soft):
        def accelerate(self, model, state, inputs, *args, **options):
            motion = super().accelerate(model, state, inputs, *args, **options)
            codes.append(_mode(self, model, state, inputs, motion))
            return motion

    fields = {name: getattr(method, name) for name in method.__dataclass_fields__}
    moved = Watched(**fields).step(model, state, inputs)
    return moved, jnp.concatenate([*codes, _moved_code(model, state, moved), jnp.zeros(1, int)])


@step_with_mode.register
def _(method: LCP, model: Model, state: State, inputs: Input) -> tuple[State, Array]:
    here = method.here(model, state, inputs)
    z, facts = method.impulses(here, state)
    moved, solved, model = method._after(state, inputs, here, z, facts), facts[1], here.model
    codes = _codes_of_forces(model, state, inputs, here.kin, here.contacts)
    if row_kinds(model).total:
        sides = replace(recalled(state), rows=z.side)
        scene = impulses.scene(here, model.options.timestep, sides)
        codes += _rigid_codes(method, scene, z)
        solved = solved & determined(method, scene)
    codes += [_moved_code(model, state, moved), jnp.where(solved, 0, -1)[None]]
    return moved, jnp.concatenate([code.astype(jnp.int64) for code in codes])


@step_with_mode.register
def _(method: Conic, model: Model, state: State, inputs: Input) -> tuple[State, Array]:
    """Which contacts and limits push is no mode here: κ joins them smoothly."""
    here, guide = method.start(model, state, inputs)
    found, facts, far = method._motion(here, guide)
    model = here.model
    moved, known = method._after(state, inputs, here, guide, found, facts, far), found[1]
    codes, kinds = _codes_of_forces(model, state, inputs, here.kin, here.contacts), method._kinds(model)
    leaving = start_of(here, kinds, model.options.timestep).leaving  # what is inside at the start is kept, or not
    inside = of_origin(layout(model, kinds), leaving, known.origin)
    heads, first = known.on[0] * pack(known.bounce, known.deep, inside), len(known.bounce) - len(known.origin)
    codes.append(heads[:first])
    if len(known.origin):
        near = jax.tree.map(lambda x: x[: len(known.origin)], known.contacts._replace(dropped=None, failed=None))
        near = near._replace(active=known.on[0][first:])
        codes.append(_by_pair(model, near, heads[first:], mixing_code(model)[near.pair]))
    at, (z, _) = (method.mechanics, kinds), found
    system = system_at(at, z, known, guide.ahead, here, model.options.timestep, method.path(z.v.dtype))
    sharp = condition(system, free_motion(here, model.options.timestep).M) < BLURRED
    codes += [_moved_code(model, state, moved), jnp.where(facts[1] & sharp, 0, -1)[None]]
    return moved, jnp.concatenate([code.astype(jnp.int64) for code in codes])


def tightly(method: Conic) -> Conic:
    """The same law, solved to rounding.

    Within 1e-4 κ of the path and 1e-9 of the velocities at hand, where its steps end, slopes are off by 1e-6: what is
    left of a small change is a share of it, the same at every size of the differences.
    """

    class Tightly(type(method)):
        def _settings(self, here):
            settings = super()._settings(here)
            return settings._replace(iterations=2 * settings.iterations, near=1e-7, exact=0.0, tolerance=1e-12)

    return Tightly(**{field.name: getattr(method, field.name) for field in dataclasses.fields(method)})


def _mode(method: Soft, model: Model, state: State, inputs: Input, motion: Motion) -> Array:
    """Mode of one evaluation of the acceleration."""
    kin, contacts, q, v, kinds = motion.kin, motion.contacts, state.q, state.v, method.kinds(model)
    velocity = velocities(model.tree, kin.S, v)
    frame = Frame(model, kin, velocity, q, v, contacts)
    rows = constraint_rows(frame, kinds)
    x = rows.J @ motion.acceleration - rows.aref
    codes = _codes_of_forces(model, state, inputs, kin, contacts)
    pieces, of_contacts = penalty_pieces(kinds, rows.penalty, x)
    for block, own in placed(scalar_blocks(frame)):
        soft = softness_code(model, block.solref, block.solimp, block.depth - block.margin)
        # which side of a joint is nearer shows in the sign of its row
        side = jnp.sign(block.J).sum(-1) if block.side is Side.PUSH else jnp.zeros(len(block))
        piece = pieces[own] + 3 * side.astype(int)
        codes += [jnp.where(block.active, code, -1) for code in (soft, piece)]
    if kinds.contacts:
        codes.append(_contact_code(model, contacts, of_contacts))
    return jnp.concatenate([code.astype(jnp.int64) for code in codes])


# ---- rows ----------------------------------------------------------------------------------------------------------


def _contact_code(model: Model, contacts: Contacts, piece: Array) -> Array:
    """Codes of all contacts that there could be, whatever order they come in; 0 where a contact is not active."""
    prm = contact_parameters(model, contacts.pair)
    soft = softness_code(model, prm.solref, prm.solimp, contacts.distance - prm.margin)
    return _by_pair(model, contacts, soft, piece, mixing_code(model)[contacts.pair])


def _by_pair(model: Model, contacts: Contacts, *codes: Array) -> Array:
    """Codes (nc,) of contacts, each at an address that its pair of geoms and its number there decide.

    And on which side each normal is: it turns round where the axes of capsules cross, a kink even of deep contacts.
    """
    layout = model.pairs.layout
    codes = *codes, 1 + (contacts.frame[:, 0] @ ASKEW > 0)
    slots = NAMES if any(is_ground(group) for group in layout.groups) else max(map(points_of, layout.groups))
    where = contacts.pair * slots + contacts.which % slots
    table = jnp.zeros((len(layout.geoms) * slots, len(codes)), int)
    values = jnp.where(contacts.active[:, None], jnp.stack([code.astype(int) for code in codes], -1), 0)
    # slots that hold no contact share their address with the first pair: adding zeros there is harmless
    return table.at[where].add(values).ravel()


# ---- rows of rigid laws ----------------------------------------------------------------------------------------------


def _rigid_codes(method: LCP, scene: impulses.Scene, z: impulses.Impulses) -> list[Array]:
    """Sides of rows, which of them bounce, and pieces of what they ask for."""
    model, contacts = scene.frame.model, scene.frame.contacts
    kinds = row_kinds(model)
    given = impulses.problem(scene, kinds, method._stepping)
    law, p, own = given.law, given.boxed, boxes.roles(kinds)
    # the side of a box without width says nothing, that of a friction without a normal force neither
    apart = own.push[own.owner] & (z.side[own.owner] == boxes.LOW)
    side = jnp.where(apart, boxes.LOW, z.side)
    boxed = own.push | own.hold | (law.fixed > 0) | ((p.mu > 0) & ~apart)
    reach, restore = jnp.sign(law.reach), jnp.sign(law.restore)
    code = pack(side, z.bounce, reach, jnp.where(own.hold, 0, restore))
    code = jnp.where(p.on & boxed, code, 0)
    scalar = jnp.sign(given.J[: kinds.scalar]).sum(-1)  # which side of a joint is nearer
    codes = [code[: kinds.scalar], jnp.where(np.arange(kinds.scalar) >= kinds.pushing.start, scalar, 0)]
    if kinds.contacts:
        rows = kinds.of_contacts(code)
        mixing = mixing_code(model)[contacts.pair]
        codes.append(_by_pair(model, contacts, *rows.T, mixing))
    return codes


def determined(method: LCP, scene: impulses.Scene) -> Array:
    """Whether the sides leave one v⁺ only.

    Where normals outnumber what they act on, and frictions at the ends of their boxes follow them, impulses can be
    shifted between contacts so that other rows do not see it but the bodies do.
    """
    kinds = row_kinds(scene.frame.model)
    given, own = impulses.problem(scene, kinds, method._stepping), boxes.roles(kinds)
    _, size, axes = jnp.linalg.svd(boxes.system(given.boxed, own, scene.sides.rows, 0.0))
    seen = jnp.abs((given.X * given.boxed.scale) @ axes.T).max(0)
    return ~((size < DEGENERATE) & (seen > DEGENERATE)).any()


# ---- forces that are not constraints ---------------------------------------------------------------------------------


def _codes_of_forces(model: Model, state: State, inputs: Input, kin: Kinematics, contacts: Contacts) -> list[Array]:
    """Pieces of actuators, rotations and the fluid, and what is gripped or adheres."""
    codes = [_quaternion_code(model, state.q), _actuator_code(model, state, inputs, kin)]
    if model.options.layout.fluid:
        codes.append(fluid_pieces(model, kin, state.v))
    pulled = gripping(model.actuators.layout).any() or model.pairs.layout.adheres
    if pulled and model.pairs.layout.groups:
        margin, gap = reach_of_pairs(model)
        near = contacts.distance < (margin + gap)[contacts.pair]
        codes.append(_by_pair(model, contacts._replace(active=near), near))
    return codes


def _quaternion_code(model: Model, q: Array) -> Array:
    """On which side of half a turn each ball joint is, from rest and from its spring's rest."""
    tree = model.tree
    if not len(tree.quat_joints):
        return jnp.zeros(0, int)
    quat, rest = q[tree.quat_qpos], model.joints.qpos_spring[tree.quat_qpos]
    ball = tree.joint_type[tree.quat_joints] == BALL
    return jnp.where(ball, jnp.sign(quat[:, 0]), 0).astype(int) + 3 * jnp.sign((quat * rest).sum(-1)).astype(int)


def _actuator_code(model: Model, state: State, inputs: Input, kin: Kinematics) -> Array:
    """Clamped controls, forces and joint torques, on which turn a wrapping servo is, and what bounds of servos do."""
    if not model.actuators.layout.count or "actuation" in model.options.layout.disabled:
        return jnp.zeros(0, int)
    actuators, layout = model.actuators, model.actuators.layout
    q, v, ctrl = state.q, state.v, arriving(model, state.act, cast(Array, inputs.ctrl))
    rest, act = passive(model, kin, q, v, state.act), present(model, state.act)
    drive = actuation(model, kin, q, v, state.act, ctrl, rest.held)
    codes = [
        jnp.where(layout.ctrl_limited, between(ctrl, *actuators.ctrl_range.T), 0),
        jnp.where(layout.force_limited, between(drive.force[layout.output], *actuators.force_range.T), 0),
    ]
    joint = model.tree.dof_joint
    limited = model.joints.layout.force_limited[joint]
    codes.append(jnp.where(limited, between(drive.qfrc, *model.joints.actuator_range[joint].T), 0))
    after = next_activation(model, act, drive.act_dot, drive.length, drive.velocity)
    codes.append(_clamp_code(model, after))
    if layout.wraps.any():
        given, length = taken(ctrl, layout.ctrl), drive.length[layout.output]
        setpoint = jnp.where(layout.act >= 0, taken(act, layout.act), given)
        codes += [_turns(model, a, b) for a, b in ((setpoint, length), (given, setpoint))]
    if len(orienting(layout)):
        own = drive.force[outputs_of(layout)]
        most = actuators.force_range[orienting(layout), 1]
        over = spatial.safe_norm(own) >= most * (1 - 1e-9)
        codes.append(headings_code(model, drive.length, jnp.where(layout.early[layout.owner], after, act), ctrl))
        codes.append(jnp.where(layout.force_limited[orienting(layout)], over, False))
    if len(model.servos.layout.actuator):
        at = servo_of(model, drive.length, drive.velocity, act, ctrl, period(model))
        codes.append(servo_pieces(model, at).ravel())
    if model.delays.layout.size:
        codes.append(delay_pieces(model).ravel())
    return jnp.concatenate([code.astype(int) for code in codes])


def _turns(model: Model, setpoint: Array, reference: Array) -> Array:
    """How many turns (n,) the setpoints of wrapping servos are from a reference."""
    turn = period(model)
    return jnp.where(turn > 0, jnp.round((setpoint - reference) / jnp.where(turn == 0, 1.0, turn)), 0)


def _moved_code(model: Model, state: State, moved: State) -> Array:
    """What holds at the end of a step: activations at a bound, and which springs have yielded."""
    slip = jnp.sign(rests(model, moved.act) - rests(model, state.act)).astype(jnp.int64)
    return jnp.concatenate([_clamp_code(model, moved.act), slip])


def _clamp_code(model: Model, act: Array) -> Array:
    """Activations that are held at a bound, after the clamp."""
    owner, act = model.actuators.layout.owner, present(model, act)
    bounds = model.actuators.act_range[owner].T
    return jnp.where(model.actuators.layout.act_limited[owner], between(act, *bounds), 0).astype(jnp.int64)
