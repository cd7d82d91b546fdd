"""What sensors are read from: each part of a state's mechanics is made once, when a sensor first asks for it."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.collide.detect import Contacts, detect
from ukemi.constraints.adhesion import grips
from ukemi.constraints.block import Block, Frame, RowKind
from ukemi.constraints.rows import present, row_kinds
from ukemi.constraints.tendons import TENDON_LIMITS
from ukemi.laws.method import Loads, Method
from ukemi.maths import spatial
from ukemi.maths.gathers import pick_rows
from ukemi.mechanics.dynamics import gravity
from ukemi.mechanics.forces import Actuation, actuation, passive
from ukemi.mechanics.kinematics import Kinematics, Velocities, accumulate, of_state, velocities
from ukemi.mechanics.tendons.paths import Lengths, tendon_lengths
from ukemi.mechanics.transmissions import gripping
from ukemi.model.records import Input, Model, State
from ukemi.observe.frames import Frames, frames_at

KINDS = {"xbody": "bodies", "body": "centers", "geom": "geoms", "site": "sites"}  # MuJoCo's words, and ours


class Placed(NamedTuple):
    """Frames of several sensors' objects."""

    body: np.ndarray  # (n,) that they are fixed to
    pos: Array  # (n, 3)
    mat: Array  # (n, 3, 3)
    quat: Array  # (n, 4)


class Scene:
    """A state as sensors see it. It lives within one trace, and its parts are functions of its arguments alone."""

    def __init__(self, model: Model, state: State, inputs: Input, method: Method):
        self.model, self.state, self.inputs, self.method = model, state, inputs, method
        self.layout = model.sensors.layout
        self._limits: dict[str, Block] = {}

    # ---- position -------------------------------------------------------------------------------------------------

    @cached_property
    def kin(self) -> Kinematics:
        """Poses of the bodies."""
        return of_state(self.model, self.state, self.inputs)

    @cached_property
    def frames(self) -> Frames:
        """Everything that a sensor may be fixed to."""
        return frames_at(self.model, self.state, self.inputs, self.kin)

    @cached_property
    def _all(self) -> tuple[dict[str, int], Placed]:
        poses = {word: getattr(self.frames, name) for word, name in KINDS.items()}
        first = np.cumsum([0, *(len(p.names) for p in poses.values())])
        parts = ([getattr(p, part) for p in poses.values()] for part in ("pos", "mat", "quat"))
        owners = np.concatenate([np.array(p.owners, int) for p in poses.values()])
        return dict(zip(poses, first.tolist(), strict=False)), Placed(owners, *map(jnp.concatenate, parts))

    def objects(self, rows: np.ndarray) -> Placed:
        """Frames of what the sensors `rows` are about."""
        return self._at([self.layout.kind[k] for k in rows], self.layout.index[rows])

    def references(self, rows: np.ndarray) -> tuple[np.ndarray, Placed]:
        """Which of the sensors (n,) have a frame of reference, and these; where there is none, that of the world."""
        has = self.layout.reference[rows] >= 0
        kinds = [self.layout.reference_kind[k] if own else "xbody" for k, own in zip(rows, has, strict=True)]
        return has, self._at(kinds, np.where(has, self.layout.reference[rows], 0))

    def _at(self, kinds: list[str], index: np.ndarray) -> Placed:
        first, everything = self._all
        k = np.array([first[kind] for kind in kinds], int) + index
        body, *arrays = everything
        return Placed(body[k], *(pick_rows(x, k) for x in arrays))

    @cached_property
    def contacts(self) -> Contacts:
        """Contacts as they are now, whatever the law."""
        return detect(self.model, self.kin)

    @cached_property
    def tendons(self) -> Lengths:
        """Lengths and moment arms of the tendons."""
        return tendon_lengths(self.model, self.kin, self.state.q)

    def limits(self, kind: RowKind) -> Block | None:
        """Rows of the limits of joints or tendons, None where there are none."""
        if kind not in [each for each, _ in present(self.model)]:
            return None
        if kind.name not in self._limits:
            # limits do not look at contacts
            frame = Frame(self.model, self.kin, self.velocity, self.state.q, self.state.v, cast(Any, None))
            self._limits[kind.name] = kind.block(frame, False)
        return self._limits[kind.name]

    def first_limit(self, kind: RowKind, owners: np.ndarray, values: Callable[[Block], Array]) -> Array:
        """Of values of the limits' rows, those (n, 1) of each joint's or tendon's first row that acts, else zero."""
        out, block = jnp.zeros(len(owners), self.state.q.dtype), self.limits(kind)
        if block is None:
            return out[:, None]
        layout = self.model.tendons.layout if kind is TENDON_LIMITS else self.model.joints.layout
        found = values(block)
        for place in (1, 0):  # each has at most two
            own = [np.flatnonzero(layout.limit_rows[:, 0] == k)[place : place + 1] for k in owners]
            has = np.array([len(k) > 0 for k in own])
            k = np.array([k[0] if len(k) else 0 for k in own], int)
            out = jnp.where(block.active[k] & has, found[k], out)
        return out[:, None]

    # ---- velocity -------------------------------------------------------------------------------------------------

    @cached_property
    def velocity(self) -> Velocities:
        """Velocities of joints and bodies."""
        return velocities(self.model.tree, self.kin.S, self.state.v)

    def motion(self, at: Placed) -> tuple[Array, Array]:
        """Angular and linear velocity (n, 3) of frames."""
        V = pick_rows(self.velocity.body, at.body)
        return V[:, :3], V[:, 3:] + spatial.cross(V[:, :3], self._arm(at))

    def _arm(self, at: Placed) -> Array:
        return at.pos - pick_rows(self.kin.ref, self.model.tree.body_tree[at.body])

    @cached_property
    def actuation(self) -> Actuation:
        """What the actuators do."""
        model, state = self.model, self.state
        held = passive(model, self.kin, state.q, state.v, state.act).held
        ctrl, grip = cast(Array, self.inputs.ctrl), None
        if gripping(model.actuators.layout).any():
            grip = grips(model, self.kin, detect(model, self.kin))
        return actuation(model, self.kin, state.q, state.v, state.act, ctrl, held, grip)

    def of_outputs(self, rows: np.ndarray, values: Array) -> list[Array]:
        """What sensors `rows` of actuators read of values (nout,): those of one have several outputs."""
        first = self.model.actuators.layout.output[self.layout.index[rows]]
        return [values[k : k + n] for k, n in zip(first.tolist(), self.layout.dim[rows].tolist(), strict=True)]

    # ---- acceleration ---------------------------------------------------------------------------------------------

    @cached_property
    def loads(self) -> Loads:
        """Acceleration, contacts and forces of the law."""
        return self.method.loads(self.model, self.state, self.inputs)

    @cached_property
    def acceleration(self) -> Array:
        """Acceleration (nv,) of the law; it is had without forces, which may have no derivative."""
        if "loads" in self.__dict__:
            return self.loads.acceleration
        return self.method.acceleration(self.model, self.state, self.inputs)

    @cached_property
    def body_acceleration(self) -> Array:
        """Spatial accelerations (nb, 6) of the bodies about their trees' reference points, less gravity."""
        rates = self.kin.S * self.acceleration[:, None] + self.velocity.S_dot * self.state.v[:, None]
        return accumulate(self.model.tree, rates) - gravity(self.model)

    def felt(self, at: Placed) -> tuple[Array, Array]:
        """Angular and linear acceleration (n, 3) of frames, less gravity."""
        A, (turn, slide) = pick_rows(self.body_acceleration, at.body), self.motion(at)
        linear = A[:, 3:] + spatial.cross(A[:, :3], self._arm(at)) + spatial.cross(turn, slide)
        return A[:, :3], linear

    @cached_property
    def contact_force(self) -> Array:
        """Force and torque (nc, 6) of each contact in its frame, on the second geom."""
        rows = row_kinds(self.model).of_contacts(self.loads.force)
        return jnp.pad(rows, ((0, 0), (0, 6 - rows.shape[1])))

    def force_of(self, name: str) -> Array:
        """Forces (n,) of the rows of one kind."""
        start = 0
        for kind, moves in present(self.model):
            if kind.name == name:
                return self.loads.force[start : start + len(moves)]
            start += len(moves)
        return jnp.zeros(0, self.state.q.dtype)
