"""Contacts of every robot in `shared/models`, meshes included, against MuJoCo.

    python bench/robots.py [WORD...] [--states N] [--trace]

Robots without a floor get one. At random states, in float64: how many contacts act, in how many states and of how many
pairs of geoms their number is MuJoCo's, the worst difference of distances and normals of contacts that are paired by
geoms and place, in how many states all of them are at MuJoCo's place, and the next state there. Contacts pair with what
is nearest of the same two geoms. MuJoCo's solver and its search run to convergence. With `--trace`, a second table says
why contacts differ.
"""

import argparse
import time
from collections import Counter
from typing import NamedTuple

import jax
import mujoco
import numpy as np

import ukemi as uk
from bench.tracing import CLASSES, FAULTS, Contact, Finding, differs, pairs_of, trace
from tests.scenes.agreement import CONVERGED, QUICK
from tests.scenes.robots import SHARED, shared_robot
from tests.scenes.states import converged, load_sample, random_states, stack
from ukemi.laws.here import here_of

ROOM = 200  # contacts of a state: robots that are pushed into themselves have more than they have room for
FAR, SAME = 1e-3, 1e-11  # [m] beyond which two contacts are different ones, and up to which they are the same


class Counted(NamedTuple):
    """What was found over all states."""

    contacts: int  # MuJoCo's
    meshes: int  # of which are of meshes
    states: int  # with contacts
    equal: int  # of which have as many
    distance: list  # differences of those that pair up [m]
    normal: list
    alone: int  # contacts of either side without a partner
    same: int  # states with all contacts at the same place
    after: list  # differences of the next state, relative to one, of those
    touching: int = 0  # pairs of geoms with contacts
    alike: int = 0  # of which have as many
    pairs: int = 0  # of shapes with contacts, of which neither is a plane
    traced: tuple[Finding, ...] = ()  # of those whose contacts differ


def files() -> dict[str, str]:
    """Robot files by name."""
    folder = SHARED / "models"
    paths = [path.relative_to(folder) for path in sorted(folder.glob("*/*.xml"))]
    return {str(path.with_suffix("")): str(path) for path in paths if path.stem not in ("keyframes", "myomuscle")}


def _one(model, state, inputs):
    after = uk.step(model, state, inputs, CONVERGED)
    return after, here_of(model, state, inputs).contacts


_all = jax.jit(lambda model, samples: jax.lax.map(lambda s: _one(model, *s), samples), compiler_options=QUICK)


def compare(m: mujoco.MjModel, states: int, traced: bool) -> Counted:
    """Over random states."""
    model, m = uk.load(m, contacts=ROOM), converged(m)
    samples = random_states(m, states, 5)
    out = jax.tree.map(np.asarray, _all(model, stack(model, samples)))
    d, found = mujoco.MjData(m), Counted(0, 0, 0, 0, [], [], 0, 0, [])
    for k, sample in enumerate(samples):
        load_sample(d, sample)
        mujoco.mj_forward(m, d)
        now = jax.tree.map(lambda x, k=k: x[k], out)
        found = _traced(m, d, model, now[1], found) if traced else found
        found = _counted(m, d, model, now, found)
    return found


def _traced(m, d, model, contacts, total: Counted) -> Counted:
    geoms = np.asarray(model.pairs.layout.geoms).reshape(-1, 2)
    now = zip(contacts.pair, contacts.distance, contacts.point, contacts.frame[:, 0], contacts.active, strict=True)
    mine = [(tuple(geoms[pair].tolist()), Contact(*rest)) for pair, *rest, active in now if active]
    pairs = pairs_of(m, d, mine)
    more = tuple(trace(pair) for pair in pairs if differs(pair))
    return total._replace(pairs=total.pairs + len(pairs), traced=total.traced + more)


def _counted(m, d, model, out, total: Counted) -> Counted:
    after, contacts = out
    pairs = np.asarray(model.pairs.layout.geoms).reshape(-1, 2)
    mine = [(tuple(pairs[contacts.pair[c]]), c) for c in np.flatnonzero(contacts.active)]
    theirs = [c for c in d.contact if c.efc_address >= 0]
    if not mine and not theirs:
        return total
    distance, normal, alone, furthest = list(total.distance), list(total.normal), 0, 0.0
    equal, left = len(mine) == len(theirs), list(mine)
    numbers = [Counter(geoms) for geoms in ([g for g, _ in mine], [tuple(c.geom) for c in theirs])]
    touching = {*numbers[0], *numbers[1]}
    alike = sum(numbers[0][geoms] == numbers[1][geoms] for geoms in touching)
    for c in theirs:
        gaps = [np.abs(contacts.point[k] - c.pos).max() if g == tuple(c.geom) else np.inf for g, k in left]
        if min(gaps, default=np.inf) > FAR:
            alone += 1
            continue
        _, k = left.pop(int(np.argmin(gaps)))
        furthest = max(furthest, min(gaps), abs(contacts.distance[k] - c.dist))
        distance.append(abs(contacts.distance[k] - c.dist))
        normal.append(np.abs(contacts.frame[k, 0] - c.frame[:3]).max())
    # before the step, which writes over MuJoCo's contacts
    mesh = [mujoco.mjtGeom.mjGEOM_MESH in m.geom_type[list(c.geom)] for c in theirs]
    same, next_off = equal and not alone and not left and furthest < SAME, list(total.after)
    if same and m.nv:
        mujoco.mj_step(m, d)
        both = ((after.q, d.qpos), (after.v, d.qvel), (after.act, d.act))
        next_off.append(max(np.abs(x - y).max(initial=0) / max(1.0, np.abs(y).max(initial=0)) for x, y in both))
    return Counted(
        total.contacts + len(theirs), total.meshes + sum(mesh), total.states + 1, total.equal + equal,
        distance, normal, total.alone + alone + len(left), total.same + same, next_off,
        total.touching + len(touching), total.alike + alike, total.pairs, total.traced,
    )  # fmt: skip


def most(values: list) -> str:
    """The median, the 99th percentile and the largest of some numbers."""
    return " / ".join(f"{x:.0e}" for x in np.quantile(values, [0.5, 0.99, 1.0])) if values else "-"


def print_traced(found: dict[str, Counted]) -> None:
    """Why contacts differ, robot by robot."""
    seen = {x.kind for counted in found.values() for x in counted.traced}
    names = [name for name in CLASSES if name not in FAULTS or name in seen]
    print("\n| robot | pairs | differ | " + " | ".join(names) + " | search | only one | surface |")
    print("|---|" + "---|" * (len(names) + 5))
    for robot, counted in found.items():
        kinds, worst = [x.kind for x in counted.traced], ["-"] * 3
        if kinds:
            worst = [f"{max(getattr(x, part) for x in counted.traced):.0e}" for part in ("search", "mine", "surface")]
        cells = [counted.pairs, len(kinds), *(kinds.count(name) or "" for name in names), *worst]
        print(f"| {robot} | " + " | ".join(map(str, cells)) + " |")
    print()
    for name in names:
        print(f"- *{name}*: {CLASSES[name]}")


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--states", type=int, default=200)
    parser.add_argument("--trace", action="store_true", help="say why contacts differ")
    given, traced = parser.parse_args(), {}
    jax.config.update("jax_enable_x64", True)
    heads = "robot, contacts, of meshes, equal numbers, by pair, distance, normal, alone, same place, next, s"
    heads = heads.split(", ")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, path in files().items():
        if given.words and not any(word in name for word in given.words):
            continue
        begin = time.time()
        try:
            found = traced[name] = compare(shared_robot(path), given.states, given.trace)
        except Exception as error:  # noqa: BLE001  a survey goes on
            print(f"| {name} | {type(error).__name__}: {' '.join(str(error).split())[:300]} |", flush=True)
            continue
        equal, same = (f"{x} of {found.states}" for x in (found.equal, found.same))
        alike = f"{found.alike} of {found.touching}"
        cells = f"{found.contacts} | {found.meshes} | {equal} | {alike} | {most(found.distance)} | {most(found.normal)}"
        cells += f" | {found.alone} | {same} | {most(found.after)} | {time.time() - begin:.0f}"
        print(f"| {name} | {cells} |", flush=True)
    if given.trace:
        print_traced(traced)


if __name__ == "__main__":
    main()
