"""Compare forward dynamics and next states with MuJoCo's, stage by stage, over random states.

As a script it surveys models: python -m tests.scenes.agreement MODEL...
"""

import copy
import dataclasses
import functools
from typing import NamedTuple

import jax
import mujoco
import numpy as np

import ukemi as uk
from tests.scenes.states import GEOM, Sample, converged, load_sample, random_states, stack
from ukemi.collide.primitives import PAIRS
from ukemi.files import source
from ukemi.laws.here import Here
from ukemi.laws.integrators import INTEGRATORS, advance
from ukemi.laws.soft.law import Motion, Soft, effective
from ukemi.mechanics.kinematics import geom_frames
from ukemi.model.records import Input, State

# Compiling is what takes time here, not running; and every optimisation left out is one that cannot hide an error.
QUICK = {"xla_backend_optimization_level": 0}
CONVERGED = Soft(iterations=300, line_search_iterations=200, tolerance=1e-13)


# ---- ours --------------------------------------------------------------------------------------------------------


def ours(model: uk.Model, samples: list[Sample], method: Soft = CONVERGED):
    """Next states, forward dynamics and poses (xpos, xquat, xipos, geom_xpos, geom_xmat) of the samples."""
    return jax.tree.map(np.asarray, _ours(method, model, stack(model, samples)))


@functools.partial(jax.jit, static_argnums=0, compiler_options=QUICK)
def _ours(method: Soft, model: uk.Model, samples: tuple[State, Input]):
    """One program for all models of a layout."""

    def one(sample):
        now = method.forward(model, *sample)
        moved = _moved(model, method, *sample, now)
        pos, mat = geom_frames(model, now.kin)
        return moved, now, (now.kin.pos, now.kin.quat, now.kin.com, pos, mat)

    return jax.lax.map(one, samples)


def _moved(model: uk.Model, method: Soft, state: State, inputs: Input, now):
    """The next state, as `step` makes it of forward dynamics; RK4 needs the step itself."""
    integrator = INTEGRATORS[method.integrator or model.options.layout.integrator]
    if integrator.stages > 1:
        return method.step(model, state, inputs)
    warm = state.cache.acceleration  # which nothing below looks at
    here = Here(model, now.kin, now.contacts, state.q, state.v, state.act, warm, inputs, None)
    a = now.solution.acceleration
    e = effective(integrator.implicit(model), here, now)
    motion = Motion(now.kin, now.contacts, a, e, now.solution.iterations, now.solution.converged)
    return advance(model, state, motion, inputs)


# ---- comparison ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Report:
    """Worst relative errors by stage over the states of a model, and what the states were like."""

    errors: dict[str, float] = dataclasses.field(default_factory=dict)
    states: int = 0
    active: int = 0  # states with an active contact, limit or equality
    contacts: int = 0  # contacts of exact pairs compared
    lost: int = 0  # contacts of exact pairs without a partner
    inexact: int = 0  # states with contacts of pairs whose points differ from MuJoCo's by design: J to next left out
    overflow: int = 0  # states with more contacts than the model holds
    unsolved: int = 0  # states where our solver says that it did not converge
    worst: dict[str, int] = dataclasses.field(default_factory=dict)  # the state with the worst error, by stage

    def note(self, stage: str, k: int, error: float) -> None:
        """Record an error of state k."""
        if not error <= self.errors.setdefault(stage, 0.0):  # NaN too
            self.errors[stage], self.worst[stage] = error, k

    def __str__(self):
        errors = " ".join(f"{name} {value:.0e}" for name, value in self.errors.items())
        words = [f"{getattr(self, n)} {n}" for n in ("lost", "inexact", "overflow", "unsolved") if getattr(self, n)]
        return ", ".join([f"{errors}: {self.active}/{self.states} active, {self.contacts} contacts", *words])


# The bounds that hold for every model, relative to the largest entry.
BOUNDS = {
    "poses": 1e-10, "M": 1e-10, "bias": 1e-10, "passive": 1e-10, "actuator": 1e-10,
    "J": 1e-10, "aref": 1e-10, "R": 1e-10, "qacc": 1e-8, "constraint": 1e-8, "next": 1e-9,
}  # fmt: skip


FLOORS = {"J": 1e-2, "aref": 1.0, "R": 0.0}  # what the rows' errors are at least relative to


def relative(a, b, floor: float = 1e-2) -> float:
    """Largest difference relative to the largest entry (or `floor`)."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return np.inf
    return float(np.abs(a - b).max(initial=0.0) / max(floor, np.abs(b).max(initial=0.0)))


class Row(NamedTuple):
    """Constraint rows in MuJoCo's form."""

    J: np.ndarray
    aref: np.ndarray
    R: np.ndarray


class Contact(NamedTuple):
    """A contact with its rows."""

    geoms: tuple[int, int]
    point: np.ndarray
    row: Row


def our_rows(model: uk.Model, method: Soft, now, k: int) -> tuple[Row, Row, list[Contact]]:
    """Equality rows, dry friction and limits, and contacts of state k."""
    kinds, rows, found = method.kinds(model), now.rows, now.contacts
    J, aref, D = rows.J[k], rows.aref[k], rows.penalty.D[k]
    scalar = np.arange(kinds.hold, kinds.scalar)
    scalar = scalar[D[scalar] > 0]
    contacts = []
    for c in np.flatnonzero(found.active[k]) if kinds.contacts else ():
        at = kinds.scalar + c * kinds.dim
        dim = int(model.pairs.layout.condim[found.pair[k, c]])
        Jc, ac = J[at : at + dim], aref[at : at + dim]
        mu = rows.penalty.friction[k, c, : dim - 1]
        if dim > 1 and kinds.cone == "pyramidal":
            Jc = np.concatenate([[Jc[0] + m * Jc[1 + i], Jc[0] - m * Jc[1 + i]] for i, m in enumerate(mu)])
            ac = np.concatenate([[ac[0] + m * ac[1 + i], ac[0] - m * ac[1 + i]] for i, m in enumerate(mu)])
            R = np.full(2 * (dim - 1), 1 / rows.penalty.D_edge[k, c])
        else:
            R = 1 / rows.penalty.D_frame[k, c, :dim]
        pair = tuple(model.pairs.layout.geoms[found.pair[k, c]].tolist())
        contacts.append(Contact(pair, found.point[k, c], Row(Jc, ac, R)))
    equality = kinds.holding
    return Row(J[equality], aref[equality], 1 / D[equality]), Row(J[scalar], aref[scalar], 1 / D[scalar]), contacts


def their_rows(m: mujoco.MjModel, d: mujoco.MjData) -> tuple[Row, Row, list[Contact]]:
    """The same of MuJoCo; equality rows in our order: points of connects, of welds, rotations of welds, joints."""
    J = d.efc_J.reshape(d.nefc, m.nv) if d.nefc else np.zeros((0, m.nv))

    def rows(at) -> Row:
        return Row(np.array(J[at]), np.array(d.efc_aref[at]), np.array(d.efc_R[at]))

    number, ids = np.zeros(d.ne, int), d.efc_id[: d.ne]  # number of a row within its constraint
    for r in range(1, d.ne):
        number[r] = number[r - 1] + 1 if ids[r] == ids[r - 1] else 0
    kinds = m.eq_type[ids] if d.ne else np.zeros(0, int)
    weld = kinds == mujoco.mjtEq.mjEQ_WELD
    connect, joint = kinds == mujoco.mjtEq.mjEQ_CONNECT, kinds == mujoco.mjtEq.mjEQ_JOINT
    groups = (connect, weld & (number < 3), weld & (number >= 3), joint)
    order = np.concatenate([np.flatnonzero(group) for group in groups])
    contacts = []
    for c in d.contact:
        if c.efc_address >= 0:
            n = c.dim if m.opt.cone == 1 or c.dim == 1 else 2 * (c.dim - 1)
            at = slice(c.efc_address, c.efc_address + n)
            contacts.append(Contact(tuple(c.geom.tolist()), np.array(c.pos), rows(at)))
    return rows(order), rows(slice(d.ne, d.ne + d.nf + d.nl)), contacts


def match(ours: list[Contact], theirs: list[Contact]) -> tuple[list[tuple[Contact, Contact]], int]:
    """Partners by pair of geoms and point, and how many have none."""
    left, partners = list(ours), []
    for contact in theirs:
        apart = [np.abs(c.point - contact.point).max() if c.geoms == contact.geoms else np.inf for c in left]
        if min(apart, default=np.inf) < 1e-6:
            partners.append((left.pop(int(np.argmin(apart))), contact))
    return partners, len(theirs) - len(partners) + len(left)


def compare(m: mujoco.MjModel, n: int = 200, seed: int = 0, method: Soft = CONVERGED) -> Report:
    """Compare n random states of a model."""
    m = converged(copy.copy(m))
    return compare_states(m, uk.load(m), random_states(m, n, seed), method)


def compare_states(m: mujoco.MjModel, model: uk.Model, samples: list[Sample], method: Soft = CONVERGED) -> Report:
    """Compare the given states."""
    moved, now, poses = ours(model, samples, method)
    d, report = mujoco.MjData(m), Report(states=len(samples))
    for k, sample in enumerate(samples):
        load_sample(d, sample)
        mujoco.mj_forward(m, d)
        note = functools.partial(report.note, k=k)
        _compare_smooth(m, d, now, poses, k, note)
        report.active += bool(d.nefc > d.nf)
        if now.contacts.overflow[k]:
            report.overflow += 1
            continue
        report.unsolved += not now.solution.converged[k]
        if not _compare_rows(m, d, our_rows(model, method, now, k), report, note):
            continue
        note("qacc", error=relative(now.solution.acceleration[k], d.qacc, floor=1.0))
        note("constraint", error=relative(now.solution.force[k] @ now.rows.J[k], d.qfrc_constraint, floor=1.0))
        load_sample(d, sample)
        mujoco.mj_step(m, d)
        for mine, theirs in ((moved.q[k], d.qpos), (moved.v[k], d.qvel), (moved.act[k], d.act)):
            note("next", error=relative(mine, theirs, floor=1.0))
    return report


def _compare_smooth(m: mujoco.MjModel, d: mujoco.MjData, now, poses, k: int, note) -> None:
    full = np.zeros((m.nv, m.nv))
    mujoco.mj_fullM(m, d, full)
    theirs = (d.xpos, d.xquat, d.xipos, d.geom_xpos, d.geom_xmat.reshape(-1, 3, 3))
    for mine, other in zip(poses, theirs, strict=True):
        mine = mine[k]
        if other is d.xquat:
            mine = mine * np.sign((mine * other).sum(-1, keepdims=True))
        note("poses", error=relative(mine, other))
    note("M", error=relative(now.smooth.M[k], full, floor=0.0) if m.nv else 0.0)
    note("bias", error=relative(now.smooth.bias[k], d.qfrc_bias))
    note("passive", error=relative(now.passive.qfrc[k], d.qfrc_passive))
    note("actuator", error=relative(now.actuation.force[k], d.actuator_force))
    note("actuator", error=relative(now.actuation.qfrc[k], d.qfrc_actuator))


def _compare_rows(m: mujoco.MjModel, d: mujoco.MjData, mine, report: Report, note) -> bool:
    """Note the errors of the rows; true where all contacts are those of MuJoCo."""

    def note_rows(a: Row, b: Row) -> None:
        for stage, x, y in zip(Row._fields, a, b, strict=True):
            note(stage, error=relative(x, y, floor=FLOORS[stage]) if x.size or y.size else 0.0)

    theirs = their_rows(m, d)
    # a quaternion and its negative are one rotation: rows of welds are equal up to sign, which changes nothing
    same = np.ones(len(theirs[0].aref))
    if mine[0].J.shape == theirs[0].J.shape:
        same = np.where((mine[0].J * theirs[0].J).sum(1) + mine[0].aref * theirs[0].aref < 0, -1.0, 1.0)
        assert (same > 0).all() or (m.eq_type == mujoco.mjtEq.mjEQ_WELD).any()
    note_rows(mine[0], Row(same[:, None] * theirs[0].J, same * theirs[0].aref, theirs[0].R))
    note_rows(mine[1], theirs[1])

    def exact(c: Contact) -> bool:
        return PAIRS[GEOM[m.geom_type[c.geoms[0]]], GEOM[m.geom_type[c.geoms[1]]]].exact

    partners, lost = match(*([c for c in side[2] if exact(c)] for side in (mine, theirs)))
    report.lost += lost
    report.contacts += len(partners)
    for a, b in partners:
        note_rows(a.row, b.row)
    inexact = not all(exact(c) for side in (mine, theirs) for c in side[2])
    report.inexact += inexact
    return not lost and not inexact


def assert_agrees(report: Report, bounds: dict[str, float] | None = None) -> None:
    """All bounds hold, every contact has its partner, every solve converged."""
    over = {name: error for name, error in report.errors.items() if not error <= (bounds or BOUNDS)[name]}
    assert not over, f"{over} at states {report.worst}: {report}"
    assert report.lost == 0 and report.unsolved == 0, str(report)


if __name__ == "__main__":
    import sys
    import time

    jax.config.update("jax_enable_x64", True)
    for name in sys.argv[1:]:
        start = time.time()
        try:
            found = compare(source.read(name), n=100)
        except Exception as error:  # noqa: BLE001  a survey goes on
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}")
            continue
        print(f"{name.split('/')[-1]} ({time.time() - start:.0f}s): {found}", flush=True)
