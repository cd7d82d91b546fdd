"""Derivatives of robots with tendons, muscles and whatever else files hold, against central differences.

    python bench/element_gradients.py WORD... [--states N] [--seed S] [--groups]

Takes the files of `bench/elements.py` whose name holds a WORD. At random states, in float64, under the file's own soft
law solved until nothing changes: A and B of `uk.linearize`, and reverse derivatives of a random linear functional of
the next state in every group of parameters, along one random direction each, against differences of `uk.step` at
several widths, extrapolated. A column, or a direction, is left out where these disagree by more than a tenth of the
bound: there a contact or a string takes off, a limit opens or friction slips within the widths, or rounding shows. And
where the slopes to both sides do not approach each other as the width shrinks, for the state is at a kink itself: where
a gripper moves in a plane, its faces are parallel until a body turns. Errors are relative to the scale of their block:
the largest entry there, at least a hundredth of the largest in these columns.
"""

import argparse
import dataclasses
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from elements import compiled, files

import ukemi as uk
from tests.scenes.agreement import QUICK
from tests.scenes.states import random_states, stack
from ukemi.checking.perturbations import CLOSED, Point, coordinates, draw_directions, move
from ukemi.checking.report import BOUND, FLOOR, LIGHTLY, extrapolate, outcome
from ukemi.mechanics.dynamics import smooth
from ukemi.mechanics.kinematics import of_state

TIGHT = {"solver": "Newton", "iterations": 300, "line_search_iterations": 200, "tolerance": 1e-14}
RUNGS = 4e-4 * 0.5 ** np.arange(6)  # of parameters, relative to their size
NARROW = RUNGS[3:]  # of coordinates and controls
ROUGH = 0.1 * BOUND


class Programs(NamedTuple):
    """What is compiled once for a model."""

    linear: Callable  # point -> A, B, status
    sides: Callable  # (point, ways of parameters, columns (n, size), codes (n,), widths (n,)) -> outcomes, status
    pull: Callable  # (point, weights) -> gradient by group
    inertia: Callable  # point -> mass matrix


def programs(model: uk.Model, like: Point) -> tuple[Programs, dict[str, int], list[str]]:
    """The programs, sizes of the coordinates of states and controls, and the groups of parameters."""
    law = dataclasses.replace(uk.Soft(), **TIGHT)
    shapes = coordinates(like)
    own = {name: int(np.prod(shapes[name])) for name in CLOSED if name in shapes}
    groups = [name for name in shapes if name not in own]
    ends = np.cumsum(list(own.values()))[:-1]

    def after(point, base, along):
        moved = law.step(*move(point, along))
        return outcome(moved, base.q, point.model.options.timestep, model.tree), moved.status

    def linear(point):
        found = uk.linearize(*point[:2], point.inputs, law)
        return found.A, found.B, found.next.status

    def sides(point, ways, columns, codes, widths):
        base = law.step(*point)

        def one(given):
            column, code, width = given
            along = dict(zip(own, jnp.split(width * column, ends), strict=True))
            along |= {name: jnp.where(code == k, width, 0.0) * ways[name] for k, name in enumerate(groups)}
            return after(point, base, along)

        return jax.lax.map(one, (columns, codes, widths))

    def pull(point, weights):
        base = law.step(*point)
        zero = {name: jnp.zeros(shapes[name]) for name in shapes}
        return jax.vjp(lambda along: after(point, base, along)[0], zero)[1](weights)[0]

    def inertia(point):
        return smooth(point.model, of_state(*point), point.state.v).M

    linear, pull, inertia = (jax.jit(f, compiler_options=QUICK) for f in (linear, pull, inertia))
    return Programs(linear, jax.jit(sides, compiler_options=LIGHTLY), pull, inertia), own, groups


@dataclasses.dataclass
class Tally:
    """What came out, of one block or of one group of parameters."""

    compared: int = 0
    rough: int = 0
    error: float = 0.0
    state: int = -1  # of the worst error
    felt: bool = False  # something depends on it

    def note(self, k: int, off: float, scale: float, rough: bool, felt: bool) -> None:
        """Take one comparison into account."""
        self.felt |= felt
        self.rough += rough
        self.compared += not rough
        off = np.inf if np.isnan(off) else off / scale
        if not rough and off > self.error:
            self.error, self.state = off, k


def check(m: mujoco.MjModel, count: int, seed: int) -> tuple[dict, dict, int]:
    """Tallies of blocks and of groups of parameters, and how many states had a status."""
    begin, model = time.time(), uk.load(m)
    states, inputs = stack(model, random_states(m, count, seed))
    points = [Point(model, *jax.tree.map(lambda x, k=k: x[k], (states, inputs))) for k in range(count)]
    program, own, groups = programs(model, points[0])
    blocks, tallies, failed = {}, {name: Tally() for name in groups}, 0
    for k, point in enumerate(points):
        rng = np.random.default_rng([seed, k])
        A, B, status = jax.tree.map(np.asarray, program.linear(point))
        if status:
            failed += 1
            print(f"    state {k}: {uk.status.explain(status)}", flush=True)
            continue
        columns, along, ways = _differences(program, point, own, groups, rng)
        weights = rng.normal(size=2 * model.nv + model.na)
        gradient = {name: np.asarray(x) for name, x in program.pull(point, jnp.asarray(weights)).items()}
        _note_blocks(blocks, k, np.concatenate([A, B], 1), columns, own, model)
        for code, name in enumerate(groups):
            found = float(np.vdot(gradient[name], ways[name]))
            _note_group(tallies[name], k, found, along[code], weights)
        if k == 0 or (k + 1) % 10 == 0:
            worst = [max((t.error for t in of.values()), default=0.0) for of in (blocks, tallies)]
            print(f"    {k + 1} of {count}: {worst[0]:.1e}, {worst[1]:.1e}, {time.time() - begin:.0f} s", flush=True)
    return blocks, tallies, failed


class Ladder(NamedTuple):
    """A column's differences (rungs, outputs) at halving widths."""

    central: np.ndarray
    bend: np.ndarray  # how far the slopes to both sides are apart
    status: int  # of the steps beside

    def of(self, outputs: slice) -> "Ladder":
        """Of some outputs."""
        return Ladder(self.central[:, outputs], self.bend[:, outputs], self.status)

    def limit(self, scale: Callable[[np.ndarray], float]) -> tuple[np.ndarray, float, bool]:
        """Extrapolated (outputs,), its scale, and whether there is no such limit to `ROUGH` of this."""
        found = extrapolate(self.central, np.ones(len(self.central), bool), RUNGS[-len(self.central) :])
        assert found is not None
        size = scale(found[0])
        before, last = np.abs(self.bend[-2:]).max(1)
        rough = self.status or found[1] > ROUGH * size or last > 0.7 * before + BOUND * size
        return found[0], size, bool(rough)


def _differences(program: Programs, point: Point, own: dict, groups: list[str], rng):
    """Ladders of coordinates and controls, those along directions of groups, and these."""
    owners, drawn = draw_directions(point, rng, states=1, each=1)
    ways = {name: drawn[name][owners.index(name)] for name in groups}
    if "joints.armature" in ways and not np.asarray(point.model.joints.armature).any():  # nothing says how much is much
        ways["joints.armature"] *= 100 * float(np.linalg.eigvalsh(program.inertia(point)).min())
    size = sum(own.values())
    codes = np.arange(-size, len(groups))  # below zero: columns
    rungs = [NARROW if code < 0 else RUNGS for code in codes]
    widths = np.concatenate([np.zeros(1), *(np.outer(own, [1.0, -1.0]).ravel() for own in rungs)])
    which = np.concatenate([[0], np.repeat(np.arange(len(codes)), [2 * len(own) for own in rungs])])
    columns = np.concatenate([np.eye(size), np.zeros((len(groups), size))])
    ends, status = program.sides(point, ways, *(jnp.asarray(x) for x in (columns[which], codes[which], widths)))
    ends, base = np.asarray(ends)[1:], np.asarray(ends)[0]
    width = widths[1::2, None]
    central, bend = (ends[::2] - ends[1::2]) / (2 * width), (ends[::2] + ends[1::2] - 2 * base) / width
    first = np.cumsum([0, *(len(own) for own in rungs)])
    failed = np.bitwise_or.reduceat(np.asarray(status)[1:], 2 * first[:-1])
    ladders = [Ladder(central[a:b], bend[a:b], s) for a, b, s in zip(first[:-1], first[1:], failed, strict=True)]
    unsound = {groups[code] if code >= 0 else "column" for code in codes[failed > 0]}
    if unsound:
        print(f"    {uk.status.explain(np.bitwise_or.reduce(failed))}: {', '.join(sorted(unsound))}", flush=True)
    return ladders[:size], ladders[size:], ways


def _note_blocks(blocks: dict, k: int, slopes: np.ndarray, ladders: list[Ladder], own: dict, model: uk.Model) -> None:
    """Compare A and B: `outcome` has positions per time step."""
    nv, h = model.nv, float(model.options.timestep)
    rows = {"q": slice(nv), "v": slice(nv, 2 * nv), "act": slice(2 * nv, None)}
    slopes = np.concatenate([slopes[:nv] / h, slopes[nv:]]).T
    start = 0
    for column, n in own.items():
        part, found = ladders[start : start + n], slopes[start : start + n]
        largest = max(np.abs(ladder.central[-1]).max() for ladder in part)
        for row, at in rows.items():
            if not found[:, at].size:
                continue
            tally = blocks.setdefault(f"{row}' in {column}", Tally())
            block = max(np.abs(ladder.central[-1, at]).max() for ladder in part)
            scale = max(block, 0.01 * largest, FLOOR)
            for ladder, slope in zip(part, found, strict=True):
                limit, _, rough = ladder.of(at).limit(lambda _, scale=scale: scale)
                tally.note(k, float(np.abs(slope[at] - limit).max()), scale, rough, bool(ladder.central[:, at].any()))
        start += n


def _note_group(tally: Tally, k: int, found: float, ladder: Ladder, weights: np.ndarray) -> None:
    """Compare one derivative of the functional."""
    limit, scale, rough = ladder.limit(lambda limit: max(np.abs(limit).max(), FLOOR))
    off = abs(found - weights @ limit)
    tally.note(k, off, scale * np.abs(weights).max(), rough, bool(ladder.central.any()))


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("words", nargs="+", metavar="WORD")
    parser.add_argument("--states", type=int, default=50)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--groups", action="store_true", help="print all blocks and groups")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    uk.enable_cache()
    for name in [n for n in files() if any(word in n for word in given.words)]:
        begin = time.time()
        print(f"{name}:", flush=True)
        m = compiled(files()[name])
        blocks, tallies, failed = check(m, given.states, given.seed)
        felt = {group: t for group, t in tallies.items() if t.felt}
        if given.groups:
            for group, t in {**blocks, **felt}.items():
                print(f"    {group:32} {t.compared:6} {t.rough:5} {t.error:.1e}")
        cells = []
        for of in (blocks, felt):
            worst = max(of, key=lambda group, of=of: of[group].error, default="")
            done, left = sum(t.compared for t in of.values()), sum(t.rough for t in of.values())
            most = of[worst].error if worst else 0.0
            cells.append(f"{done} | {left} | {most:.0e} ({worst}, state {of[worst].state if worst else -1})")
        none = [group for group, t in felt.items() if not t.compared]
        print(f"| {name} | {given.states - failed} of {given.states} | {cells[0]} | {len(felt)} | {cells[1]} | "
              f"{time.time() - begin:.0f} s | never compared: {', '.join(none) or 'none'}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
