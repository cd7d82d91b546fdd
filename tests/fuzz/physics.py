"""Extremes under every law: no unnoticed NaN, the soft law stays MuJoCo's, the rigid ones make nothing worse.

Mass ratios of a million, time steps from a microsecond to a tenth of a second, a kilometre away, 10 km/s, bodies inside
one another, more contacts than fit, and numbers that are not finite in states, inputs (in mid-run) and parameters.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import ukemi as uk
from tests.fuzz.findings import Finding
from tests.fuzz.gradients import LAWS, QUICK, refuses
from tests.fuzz.models import EXTREMES, extreme, family
from tests.scenes.states import converged
from ukemi.files.source import read
from ukemi.model.records import as_input

STEPS = 4
LATE = 2  # step from which an input is bad
LANES = 64  # runs of a batch
CLOSE = 1e-6  # to MuJoCo, relative
GENTLE = 0.02  # motion in a step up to which rigid contact is held to its geometry [m, rad]
GROWTH = 1e-3  # of a penetration or of an open equality in such a step [m, rad]
TOLD = uk.Status.NOT_FINITE | uk.Status.SEARCH_UNFINISHED  # the latter where corners are nowhere


class Count(NamedTuple):
    """How much was looked at."""

    physics: int = 0  # models and states
    swapped: int = 0  # numbers replaced by NaN or infinity
    idle: int = 0  # of these, those of which a finite change changes nothing
    beside: int = 0  # states compared with MuJoCo's
    unsettled: int = 0  # left out: MuJoCo warns, or its result depends on where its solver starts or on rounding
    failing: int = 0  # left out: status names a failure
    held: int = 0  # steps of rigid laws that were held to energy and geometry


class Case(NamedTuple):
    """A model in a state."""

    kind: str
    text: str
    m: mujoco.MjModel
    given: tuple  # model, state, inputs over time


def texts(seed: int) -> list[str]:
    """One structure with each kind of extreme numbers."""
    rng = np.random.default_rng([seed, 7])
    siblings = family(rng, seed, len(EXTREMES))
    return [extreme(text, kind, rng) for text, kind in zip(siblings, EXTREMES, strict=True)]


def cases(seed: int) -> list[Case]:
    """The models of a seed, each in a random state; every third seed holds fewer contacts than arise."""
    rng, out = np.random.default_rng([seed, 8]), []
    for kind, text in zip(EXTREMES, texts(seed), strict=True):
        model = uk.load(text, contacts=3 if seed % 3 == 0 else 16)
        v = rng.normal(size=model.nv) * (1e4 if kind == "fast" else 1.0)
        m = converged(read(text))
        # behind the activations `act` holds past controls and where springs have yielded to, here as MuJoCo starts
        act = np.asarray(uk.initial_state(model).act).copy()
        act[: m.na] = 0.3 * rng.normal(size=m.na)
        state = uk.initial_state(model, v=v, act=act)
        still = {"qfrc": jnp.zeros(model.nv), "xfrc": jnp.zeros((model.tree.nb, 6))}
        d = mujoco.MjData(m)
        poses = {"mocap_pos": jnp.asarray(d.mocap_pos.copy()), "mocap_quat": jnp.asarray(d.mocap_quat.copy())}
        given = uk.Input(ctrl=jnp.asarray(rng.normal(size=model.nu)), **still, **poses)
        inputs = jax.tree.map(lambda x: jnp.stack([x] * STEPS), given)
        out.append(Case(kind, text, m, (eqx.tree_at(lambda m: m.keyframes, model, None), state, inputs)))
    return out


def program(law, keyframes):
    """Runs of a batch of (model, state, inputs): the states of each step."""

    def run(given):
        model, state, inputs = given
        model = eqx.tree_at(lambda m: m.keyframes, model, keyframes, is_leaf=lambda x: x is None)

        def one(state, now):
            after = law.step(model, state, as_input(model, now))
            return after, after

        return jax.lax.scan(one, state, inputs)[1]

    together = jax.jit(lambda batch: jax.lax.map(run, batch), compiler_options=QUICK)

    def runs(given: list) -> list[uk.State]:
        out = []
        for start in range(0, len(given), LANES):
            part = given[start : start + LANES]
            filled = part + [part[-1]] * (LANES - len(part))
            states = jax.tree.map(np.asarray, together(jax.tree.map(lambda *x: np.stack(x), *filled)))
            out += [jax.tree.map(lambda x, k=k: x[k], states) for k in range(len(part))]
        return out

    return runs


# ---- what is not finite ----------------------------------------------------------------------------------------------


class Swap(NamedTuple):
    """A number that is replaced, and by what."""

    name: str
    bad: float
    runs: tuple  # with the bad number, then with finite changes of it


def swaps(given: tuple, rng: np.random.Generator, count: int) -> list[Swap]:
    """Some numbers of parameters, state and inputs; a leaf is drawn first, so that small ones have their turn."""
    leaves, tree = jax.tree_util.tree_flatten_with_path(given)
    paths = [jax.tree_util.keystr(path) for path, _ in leaves]
    values = [np.asarray(leaf) for _, leaf in leaves]
    usable = [k for k, x in enumerate(values) if x.dtype.kind == "f" and x.size and "cache" not in paths[k]]
    inputs, out = [k for k in usable if paths[k].startswith("[2]")], []
    for _ in range(count):
        k = int(rng.choice(inputs if rng.random() < 0.5 else usable))
        late = paths[k].startswith("[2]")
        index = tuple(int(rng.integers(n)) for n in values[k].shape)
        where = (slice(LATE, None), *index[1:]) if late else index
        bad = float(rng.choice([np.nan, np.inf, -np.inf])) if late else np.nan

        def replaced(change, k=k, where=where):
            new = values[k].copy()
            new[where] = change(new[where])
            return jax.tree_util.tree_unflatten(tree, [*values[:k], new, *values[k + 1 :]])

        changes = (lambda x, bad=bad: bad, lambda x: 1.1 * x + 0.013, lambda x: 0.9 * x - 0.013)
        out.append(Swap(f"{paths[k]}{list(index)}", bad, tuple(replaced(change) for change in changes)))
    return out


def same(a: uk.State, b: uk.State) -> bool:
    """Whether two runs moved bitwise alike."""
    return all(np.array_equal(getattr(a, x), getattr(b, x), equal_nan=True) for x in ("q", "v", "act"))


def unnoticed(after: uk.State) -> bool:
    """Whether a run holds what is not finite at a step whose status does not say so."""
    finite = np.logical_and.reduce([np.isfinite(x).all(-1) for x in (after.q, after.v, after.act)])
    return bool((~finite & ((after.status & uk.Status.NOT_FINITE) == 0)).any())


# ---- beside MuJoCo ---------------------------------------------------------------------------------------------------


def data(case: Case, q, v, act) -> mujoco.MjData:
    """MuJoCo's data of a state under the first inputs, with no past of late controls."""
    m, d = case.m, mujoco.MjData(case.m)
    d.qpos[:], d.qvel[:], d.act[:], d.ctrl[:] = q, v, act[: m.na], case.given[2].ctrl[0]
    d.plastic[:] = act[len(act) - m.nplastic :]
    return d


def coordinates(m: mujoco.MjModel, q, v, act) -> np.ndarray:
    """Positions, velocities and those of `act` that MuJoCo has for activations."""
    return np.concatenate([q, v, act[: m.na]])


def theirs(case: Case, warm=None, shift: float = 0.0) -> tuple[np.ndarray, mujoco.MjData] | None:
    """MuJoCo's next state, or None where it warns; with a start for its solver, and a nudge of the state."""
    m, state = case.m, case.given[1]
    d = data(case, state.q, state.v, state.act)
    if warm is not None:
        d.qacc_warmstart[:] = warm
    if shift:
        way = np.random.default_rng(0).normal(size=m.nv)
        mujoco.mj_integratePos(m, d.qpos, way, shift)
        d.qvel[:] *= 1 + shift * way
    mujoco.mj_step(m, d)
    if any(d.warning[k].number for k in range(len(d.warning))):
        return None
    return coordinates(m, d.qpos, d.qvel, d.act), d


def beside(case: Case, after: uk.State) -> tuple[str, Count]:
    """How the first step differs from MuJoCo's."""
    state = case.given[1]
    start = coordinates(case.m, state.q, state.v, state.act)
    first = theirs(case)
    if first is None:
        return "", Count(unsettled=1)
    if after.status[0]:
        return "", Count(failing=1)
    other, d = first
    shaking = [theirs(case, warm=d.qacc.copy()), theirs(case, shift=1e-13), theirs(case, shift=-1e-13)]
    scale = np.maximum(1.0, np.maximum(np.abs(other), np.abs(other - start).max(initial=0.0)))

    def apart(x) -> float:
        return float((np.abs(x - other) / scale).max(initial=0.0))

    if any(x is None or apart(x[0]) > 0.1 * CLOSE for x in shaking):
        return "", Count(unsettled=1)
    capacity = case.given[0].pairs.layout.capacity
    held = sum(contact.exclude == 0 for contact in d.contact)
    ours = coordinates(case.m, after.q[0], after.v[0], after.act[0])
    fault = ""
    if held > capacity and case.m.opt.integrator != mujoco.mjtIntegrator.mjINT_RK4:
        fault = f"{held} contacts in room for {capacity} without a word"
    elif apart(ours) > CLOSE:
        fault = f"off MuJoCo's by {apart(ours):.2e} with {d.ncon} contacts"
    return fault, Count(beside=1)


# ---- rigid laws ------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """What MuJoCo says of positions and velocities."""

    M: np.ndarray
    free: np.ndarray  # acceleration without constraints
    depth: float  # of the deepest penetration
    drift: float  # of the equality or limit that is open widest


def place(case: Case, q, v, act) -> Place:
    """MuJoCo's view of a state."""
    m, d, types = case.m, data(case, q, v, act), mujoco.mjtConstraint
    limits = types.mjCNSTR_LIMIT_JOINT, types.mjCNSTR_LIMIT_TENDON
    mujoco.mj_forward(m, d)
    M = np.zeros((m.nv, m.nv))
    mujoco.mj_fullM(m, d, M)
    held, pushed = d.efc_type == types.mjCNSTR_EQUALITY, np.isin(d.efc_type, limits)
    drift = max(np.abs(d.efc_pos[held]).max(initial=0.0), (-d.efc_pos[pushed]).max(initial=0.0))
    depth = max([-contact.dist for contact in d.contact], default=0.0)
    return Place(M, d.qacc_smooth.copy(), max(depth, 0.0), float(drift))


def rigid(case: Case, after: uk.State) -> tuple[list[str], Count]:
    """Energy that came from nowhere; penetration and drift that grew in steps that moved little."""
    state, m = case.given[1], case.m
    if m.actuator_delay.any():  # `place` knows nothing of the past
        return [], Count()
    h, faults, held = m.opt.timestep, [], 0
    before = place(case, state.q, state.v, state.act)
    bounces = float(np.max(case.given[0].geoms.restitution, initial=0.0)) > 0
    for k in range(STEPS):
        if after.status[k]:
            return faults, Count(held=held, failing=1)
        v0, v1 = (np.asarray(state.v) if k == 0 else after.v[k - 1]), after.v[k]
        there = place(case, after.q[k], v1, after.act[k])
        had, has = (np.sqrt(max(v @ before.M @ v, 0.0)) for v in (v0, v1))
        gained = h * np.sqrt(max(before.free @ before.M @ before.free, 0.0))
        held += 1
        ratio = np.linalg.eigvals(np.linalg.solve(before.M, there.M)).real.max(initial=1.0)
        if not bounces and has > (had + gained) * np.sqrt(max(ratio, 1.0)) * (1 + 1e-6) + 1e-9:
            faults.append(f"step {k}: speed in the norm of energy {has:.4g}, from {had:.4g} and forces' {gained:.4g}")
        if h * max(np.abs(v0).max(initial=0), np.abs(v1).max(initial=0)) < GENTLE:
            # to take back a penetration that an equality or a limit holds is asked of no law
            for name in ("depth", "drift") if before.drift + before.depth < GROWTH else ():
                was, now = getattr(before, name), getattr(there, name)
                if now > was + GROWTH:
                    faults.append(f"step {k}: {name} grew from {was:.4g} to {now:.4g}")
        before = there
    return faults, Count(held=held)


# ---- all of it -------------------------------------------------------------------------------------------------------


def examine(seed: int, law: str, *, count: int = 12) -> tuple[list[Finding], Count]:
    """Findings of one structure with each kind of extremes under one law; `count` numbers of each are replaced."""
    rng, findings, total = np.random.default_rng([seed, 9]), [], Count()
    given = [c for c in cases(seed) if not refuses(law, c.text)]
    if not given:
        return findings, total
    given = [c for c in given if jax.tree.structure(c.given) == jax.tree.structure(given[0].given)]
    runs = program(LAWS[law], uk.load(given[0].text).keyframes)
    replaced = [swaps(c.given, rng, count) for c in given]
    wanted = [c.given for c in given] + [run for some in replaced for swap in some for run in swap.runs]
    done = runs(wanted)
    bases, rest = done[: len(given)], iter(done[len(given) :])
    for case, after, some in zip(given, bases, replaced, strict=True):
        where = f"fuzz.physics.examine({seed}, {law!r}), {case.kind}"
        faults, counts = [], [Count(physics=1)]
        if unnoticed(after):
            faults.append("not finite without a status")
        elif law in ("LCP", "Impact", "NCP"):
            wrong, counted = rigid(case, after)
            faults, counts = faults + wrong, [*counts, counted]
        elif law == "Soft":
            wrong, counted = beside(case, after)
            faults, counts = faults + [wrong] * bool(wrong), [*counts, counted]
        for swap in some:
            bad, *finite = (next(rest) for _ in swap.runs)
            acts = not all(same(x, after) for x in finite)
            counts.append(Count(swapped=1, idle=int(not acts)))
            if unnoticed(bad) or (acts and not bad.status[-1] & TOLD):
                faults.append(f"{swap.bad} in {swap.name} is dropped, status {bad.status[-1]}")
        total = Count(*(sum(column) for column in zip(total, *counts, strict=True)))
        findings += [Finding(where, fault) for fault in faults]
    return findings, total
