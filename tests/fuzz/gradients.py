"""Derivatives of random models under every law, against differences of the step, at ordinary and at special states.

Nothing here knows of modes: differences at three steps and from both sides say where a step is smooth, and only there a
derivative is held against them. Where the status names a failure, it is no silent one.
"""

from collections.abc import Iterator
from typing import NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ukemi as uk
from tests.fuzz.findings import Finding
from tests.fuzz.models import family, loops
from ukemi.laws.method import tangent
from ukemi.mechanics.kinematics import integrate

QUICK = {"xla_backend_optimization_level": 0}
RUNGS = (1e-4, 5e-5, 2.5e-5, 2e-6)  # steps of differences; the last only sees what changes within the others
TOLERANCE = 1e-6  # of the largest change along a direction
PRECISE = {"iterations": 300, "line_search_iterations": 200, "tolerance": 1e-14}


class _Precise:
    """A law that improves every solution once more: what is left else, differences see."""

    def _settings(self, here):
        return super()._settings(here)._replace(exact=0.0)


class PreciseNCP(_Precise, uk.NCP):
    """Hard contact in joint coordinates."""


class PreciseMaximal(_Precise, uk.Maximal):
    """Hard contact in maximal coordinates."""


LAWS = {
    "Soft": uk.Soft(**PRECISE),
    "Soft CG": uk.Soft(solver="CG", integrator="implicitfast", **PRECISE | {"iterations": 2000}),
    "LCP": uk.LCP(),
    "Impact": uk.Impact(),
    "NCP": PreciseNCP(),
    "Maximal": PreciseMaximal(),
    # its derivative takes shares of the time step for constant: they are here
    "Adaptive": uk.Adaptive(soft=uk.Soft(**PRECISE), controller=diffrax.ConstantStepSize()),
}


def refuses(law: str, text: str) -> bool:
    """Whether a law says that it has no steps of a model."""
    return law == "Impact" and "<hfield" in text


class Count(NamedTuple):
    """How much was looked at."""

    models: int = 0
    compared: int = 0  # directions at states
    rough: int = 0  # left out, since differences do not agree among themselves
    failed: int = 0  # states left out, since their status names a failure


def texts(seed: int, count: int) -> list[str]:
    """Models that share one program: only their numbers differ. Every fourth seed has closed loops."""
    if seed % 4 == 0:
        shape = seed // 4
        return [loops(np.random.default_rng([shape, 0]), np.random.default_rng([seed, k])) for k in range(count)]
    return family(np.random.default_rng(seed), seed, count)


def states(model: uk.Model, rng: np.random.Generator, count: int) -> Iterator[tuple[jax.Array, jax.Array]]:
    """Positions and velocities: as the file has them, at rest and moving, then anywhere near, and all but closed."""
    q, nv = model.joints.qpos0, model.nv
    yield q, jnp.zeros(nv)
    yield q, jnp.asarray(rng.normal(size=nv))
    for k in range(count - 2):
        size = (0.3, 1e-6, 0.05)[k % 3]
        yield integrate(model.tree, q, jnp.asarray(rng.normal(size=nv)), size), jnp.asarray(rng.normal(size=nv))


class Programs(NamedTuple):
    """What is compiled once for all models and states of a structure."""

    steps: object  # (model, state, ctrl, changes (n, size)) -> outcomes (n, 2nv + na)
    push: object  # (model, state, ctrl, directions (n, size)) -> their derivatives
    pull: object  # (model, state, ctrl, weights) -> gradient (size,)
    linearize: object


def programs(like: uk.Model, law) -> tuple[Programs, list[tuple[str, int]]]:
    """Programs for models like one, and the names and sizes of what a change consists of."""
    frozen = eqx.tree_at(lambda m: m.keyframes, like, None)
    leaves, _ = jax.tree_util.tree_flatten_with_path(frozen)
    parameters = [(jax.tree_util.keystr(path), leaf.size) for path, leaf in leaves]
    parts = [("q", like.nv), ("v", like.nv), ("act", like.na), ("ctrl", like.nu), *parameters]
    ends = np.cumsum([size for _, size in parts])[:-1]

    def outcome(model, state, ctrl, base, change):
        dq, dv, dact, dctrl, *moved = jnp.split(change, ends)
        flat, tree = jax.tree.flatten(eqx.tree_at(lambda m: m.keyframes, model, None))
        moved = [x + d.reshape(x.shape) for x, d in zip(flat, moved, strict=True)]
        there = jax.tree.unflatten(tree, moved)
        there = eqx.tree_at(lambda m: m.keyframes, there, model.keyframes, is_leaf=lambda x: x is None)
        q = integrate(model.tree, state.q, dq, 1.0)
        start = eqx.tree_at(lambda s: (s.q, s.v, s.act), state, (q, state.v + dv, state.act + dact))
        after = uk.step(there, start, ctrl + dctrl, law)
        return tangent(model, base, eqx.tree_at(lambda s: s.q, after, after.q - base.q)), after.status

    def base_of(model, state, ctrl):
        return jax.lax.stop_gradient(uk.step(model, state, ctrl, law))

    def steps(model, state, ctrl, changes):
        base = base_of(model, state, ctrl)
        return jax.lax.map(lambda change: outcome(model, state, ctrl, base, change), changes)

    def still(model, state, ctrl):
        base = base_of(model, state, ctrl)
        return lambda change: outcome(model, state, ctrl, base, change)[0]

    def push(model, state, ctrl, directions):
        _, along = jax.linearize(still(model, state, ctrl), jnp.zeros(directions.shape[1]))
        return jax.lax.map(along, directions)

    def pull(model, state, ctrl, weights):
        size = sum(n for _, n in parts)
        return jax.vjp(still(model, state, ctrl), jnp.zeros(size))[1](weights)[0]

    def linear(model, state, ctrl):
        return uk.linearize(model, state, ctrl, law)

    return Programs(*(jax.jit(f, compiler_options=QUICK) for f in (steps, push, pull, linear))), parts


def directions(model: uk.Model, parts, rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    """Every coordinate and control, and one direction for each group of parameters, relative to their sizes."""
    names, rows, size, start = [], [], sum(n for _, n in parts), 0
    values = iter(jax.tree.leaves(eqx.tree_at(lambda m: m.keyframes, model, None)))
    for name, n in parts:
        if name in ("q", "v", "act", "ctrl"):
            block = np.eye(size)[start : start + n]
        else:
            block, x = np.zeros((1, size)), np.asarray(next(values))
            way = x * rng.uniform(0.2, 1, x.shape)
            if name.endswith(("quat", ".axis")):  # off unit length derivatives mean nothing: see docs/gradients.md
                way -= x * (x * way).sum(-1, keepdims=True)
            block[0, start : start + n] = way.ravel()
        rows.append(block)
        names += [name] * len(block)
        start += n
    return names, np.concatenate(rows)


def compare(program: Programs, parts, model, state, rng, alike: float) -> tuple[list[tuple[str, str]], Count]:
    """Faults of the derivatives at one state, by what they are derivatives in; alike: how near each other modes are."""
    ctrl = jnp.asarray(rng.normal(size=model.nu))
    names, D = directions(model, parts, rng)
    changes = np.concatenate([np.zeros((1, D.shape[1])), *(s * h * D for h in RUNGS for s in (1, -1))])
    outcomes, status = (np.asarray(x) for x in program.steps(model, state, ctrl, jnp.asarray(changes)))
    if status[0]:
        return [], Count(failed=1)
    n = len(D)
    sides = outcomes[1:].reshape(len(RUNGS), 2, n, -1)
    central = [(sides[k, 0] - sides[k, 1]) / (2 * h) for k, h in enumerate(RUNGS)]
    first, second = (4 * central[1] - central[0]) / 3, (4 * central[2] - central[1]) / 3
    exact = np.asarray(program.push(model, state, ctrl, jnp.asarray(D)))
    scale = np.maximum(np.abs(second).max(-1), np.abs(exact).max(-1)) + 1e-3
    error = np.abs(first - second).max(-1)
    bend = [np.abs(sides[k, 0] + sides[k, 1] - 2 * outcomes[0]).max(-1) / h for k, h in enumerate(RUNGS)]
    within = np.abs(central[3] - second).max(-1) < TOLERANCE * scale
    smooth = within & (error < 3e-7 * scale) & (bend[2] < 0.7 * bend[1] + 1e-6 * scale)
    smooth &= ~status[1:].reshape(-1, n).any(0)
    # differences of states near 1 hold 1e-16 / h, so that nothing finer is asked
    wrong = smooth & (np.abs(exact - second).max(-1) > TOLERANCE * scale + 3 * error + 1e-10)
    off = np.abs(exact - second).max(-1)
    faults = [(names[k], f"off by {off[k]:.2e} of {scale[k]:.2e}") for k in np.nonzero(wrong)[0]]
    weights = rng.normal(size=exact.shape[1])
    gradient = np.asarray(program.pull(model, state, ctrl, jnp.asarray(weights)))
    apart = np.abs(D @ gradient - exact @ weights)
    uneven = apart > alike * (np.abs(exact).max(-1) * np.abs(weights).max() + np.abs(D * gradient).max(-1)) + 1e-10
    faults += [(names[k], f"reverse mode differs from forward mode by {apart[k]:.2e}") for k in np.nonzero(uneven)[0]]
    found = program.linearize(model, state, ctrl)
    own = sum(name in ("q", "v", "act", "ctrl") for name in names)
    closed = np.concatenate([found.A, found.B], 1).T
    apart = np.abs(closed - exact[:own]).max(-1)
    uneven = apart > alike * (np.abs(exact[:own]).max() + 1)
    faults += [(names[k], f"linearize differs from forward mode by {apart[k]:.2e}") for k in np.nonzero(uneven)[0]]
    return faults, Count(compared=int(smooth.sum()), rough=int((~smooth).sum()))


def examine(seed: int, law: str, *, models: int = 20, places: int = 5) -> tuple[list[Finding], Count]:
    """Findings of one structure under one law."""
    rng, findings, total = np.random.default_rng(seed), [], Count()
    given = [uk.load(text, contacts=12) for text in texts(seed, models) if not refuses(law, text)]
    if not given:
        return findings, total
    program, parts = programs(given[0], LAWS[law])
    # what takes back an overlap of decimetres under a law with cones is known to 1e-8
    alike = 1e-7 if isinstance(LAWS[law], _Precise) else 1e-8
    for k, model in enumerate(given):
        total = total._replace(models=total.models + 1)
        for i, (q, v) in enumerate(states(model, rng, places)):
            act = jnp.asarray(rng.normal(size=model.na))
            faults, count = compare(program, parts, model, uk.initial_state(model, q=q, v=v, act=act), rng, alike)
            total = Count(*(a + b for a, b in zip(total, count, strict=True)))
            where = f"fuzz.gradients.examine({seed}, {law!r}), model {k}, state {i}"
            findings += [Finding(where, f"∂/∂{name}: {fault}") for name, fault in faults]
    return findings, total
