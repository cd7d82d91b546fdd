"""Mutated robot files: each is refused in words or loads, and what loads steps as in MuJoCo.

Files are loaded in a process of their own, so that one that brings it down, or never ends, is a finding, too.
"""

import functools
import multiprocessing
import re
import warnings
from typing import NamedTuple

import numpy as np

from tests.fuzz.findings import Finding
from tests.fuzz.mutate import mutated
from tests.fuzz.robots import STEPPED, seeds

PATIENCE = 120.0  # seconds that a file may take
NEW = 0.03  # share of the files with other elements than their origin's that are stepped: each is compiled
CLOSE = 1e-6


class Tally(NamedTuple):
    """What became of the files."""

    refused: int
    loaded: int
    stepped: int


@functools.cache
def _seeds() -> dict[str, str]:
    return seeds()


def text(seed: int, index: int, stepped: bool = False) -> str:
    """The file of a number; stepped: one that starts from a small model."""
    rng = np.random.default_rng([seed, index])
    texts = STEPPED if stepped else _seeds()
    return mutated(texts[rng.choice(sorted(texts))], rng)


def run(seed: int, count: int, steps: int = 0) -> list[Finding]:
    """Load `count` files, then load others until `steps` of them have been stepped."""
    return tally(seed, count, steps)[0]


def tally(seed: int, count: int, steps: int = 0) -> tuple[list[Finding], Tally]:
    """`run`, and what became of the files."""
    findings, counts = [], np.zeros(3, int)
    start = 0
    while start is not None:
        found, number, start = _batch(seed, start, count, steps - int(counts[2]))
        findings += found
        counts += number
    return findings, Tally(*counts.tolist())


def _batch(seed: int, start: int, count: int, steps: int) -> tuple[list[Finding], np.ndarray, int | None]:
    """Findings and counts of one process, and the file to go on with if it died."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    worker = context.Process(target=_work, args=(there, seed, start, count, steps), daemon=True)
    worker.start()
    there.close()
    findings, counts, index, stepped = [], np.zeros(3, int), start, False
    try:
        while here.poll(PATIENCE):
            kind, value = here.recv()
            if kind == "at":
                index, stepped = value
            elif kind == "found":
                findings.append(value)
            elif kind == "counts":
                counts += value
            else:
                worker.join()
                return findings, counts, None
        what = f"took more than {PATIENCE:g} s"
    except EOFError:
        what = "brought the process down"
    worker.kill()
    worker.join()
    findings.append(_finding(seed, index, stepped, what, f"exit code {worker.exitcode}"))
    return findings, counts, index + 1


def _finding(seed: int, index: int, stepped: bool, what: str, detail: str) -> Finding:
    return Finding(f"fuzz.files.text({seed}, {index}, {stepped})", f"{what}: {detail}")


def _work(pipe, seed: int, start: int, count: int, steps: int) -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")
    index = start
    while index < count or steps > 0:
        stepped = index >= count
        pipe.send(("at", (index, stepped)))
        what, detail, done = examine(text(seed, index, stepped), np.random.default_rng([seed, index, 1]), stepped)
        if what:
            pipe.send(("found", _finding(seed, index, stepped, what, detail)))
        pipe.send(("counts", np.array([done == 0, done >= 1, done == 2], int)))
        steps -= done == 2
        index += 1
    pipe.send(("end", None))


def examine(xml: str, rng: np.random.Generator, stepped: bool = False) -> tuple[str, str, int]:
    """What is wrong, in how far, and what became of the file: 0 refused, 1 loaded, 2 stepped."""
    import ukemi as uk

    try:
        model = uk.load(xml)
    except uk.UkemiError as error:
        said = str(error)
        vague = (
            len(said) < 20
            or len(said) > 20_000
            or not re.search(r"['\"<>]|line \d|option|Line number|XML|; it must", said)
        )
        return ("refused in words that name nothing" if vague else ""), said, 0
    except BaseException as error:  # any other is what is looked for
        return f"{type(error).__name__} from uk.load", str(error), 0
    if not stepped or not (_key(model) in _familiar() or rng.random() < NEW):
        return "", "", 1
    try:
        return *_compare(xml, model, rng), 2
    except Exception as error:
        return f"{type(error).__name__} from uk.step", str(error), 2


def _key(model):
    import jax

    return jax.tree.structure(model)


@functools.cache
def _familiar() -> set:
    import ukemi as uk

    return {_key(uk.load(xml)) for xml in STEPPED.values()}


@functools.cache
def _step():
    import jax

    import ukemi as uk

    return jax.jit(lambda model, state, ctrl: uk.step(model, state, ctrl, uk.Soft(solver="Newton", iterations=300)))


def _uncoupled(m) -> bool:
    """Whether MuJoCo takes parallel slides of one body for independent, as it does where all are along its axes."""
    for b in np.flatnonzero(m.body_simple == 2):
        axes = m.jnt_axis[m.body_jntadr[b] : m.body_jntadr[b] + m.body_jntnum[b]]
        if np.abs(axes @ axes.T - np.eye(len(axes))).max(initial=0.0) > 1e-9:
            return True
    return False


def _compare(xml: str, model, rng) -> tuple[str, str]:
    """How a step differs from MuJoCo's."""
    import mujoco

    import ukemi as uk
    from ukemi.files.source import read

    m = read(xml)
    m.opt.solver, m.opt.iterations, m.opt.tolerance = mujoco.mjtSolver.mjSOL_NEWTON, 300, 0.0
    m.opt.ls_iterations, m.opt.ls_tolerance = 100, 1e-9
    d = mujoco.MjData(m)
    d.qvel[:] = 0.3 * rng.normal(size=m.nv)
    d.ctrl[:] = rng.normal(size=m.nu)
    state = uk.initial_state(model, v=d.qvel.copy())
    end = _step()(model, state, d.ctrl.copy())
    mujoco.mj_step(m, d)
    ours, theirs = (np.concatenate(x) for x in ((end.q, end.v, end.act), (d.qpos, d.qvel, d.act)))
    if not np.isfinite(ours).all():
        return ("not finite without a status" if not end.status else ""), str(ours)
    unstable = any(d.warning[k].number for k in range(len(d.warning)))
    if end.status or unstable or _uncoupled(m):  # MuJoCo starts afresh when it becomes unstable
        return "", ""
    change = np.abs(theirs - np.concatenate([state.q, state.v, state.act]))
    scale = np.maximum(1.0, np.maximum(np.abs(theirs), change.max(initial=0.0)))
    apart = float((np.abs(ours - theirs) / scale).max(initial=0.0))
    return ("" if apart <= CLOSE else "steps apart from MuJoCo"), f"{apart:g}: {ours} and {theirs}"
