"""How far contacts of curved shapes are from the truth, Ukemi's and MuJoCo's.

    python bench/curved.py [WORD...] [--states N]

At random states of robots of `bench/elements.py`, for every pair of spheres, capsules, ellipsoids and cylinders that is
searched for what touches, and touches in both: the deepest contact's distance, normal and point beside those that
Newton's method finds in 80-bit floats for the conditions of the largest separation. What it finds needs no belief: the
separation along its normal is a lower bound of the signed distance, two points of the shapes lie that far apart along
the same line (*gap* is what is left), and no other direction of a grid separates more (*better*).
"""

import argparse
import collections

import jax
import mujoco
import numpy as np
from elements import compiled, files

import ukemi as uk
from tests.scenes.agreement import CONVERGED, QUICK
from tests.scenes.given import Giver
from tests.scenes.states import GEOM, converged, load_sample, random_states, stack

LONG = np.longdouble
WHAT = ("distance", "normal", "point")
KINDS = ("sphere", "capsule", "ellipsoid", "cylinder")


def summands(kind: str, size: np.ndarray, mat: np.ndarray) -> tuple[list[np.ndarray], np.longdouble]:
    """A shape as a sum: matrices A, of unit balls' images Aᵀ y, and a ball's radius."""
    axes, size = mat.reshape(3, 3).T.astype(LONG), size.astype(LONG)
    return {
        "sphere": lambda: ([], size[0]),
        "capsule": lambda: ([size[1] * axes[2:]], size[0]),
        "ellipsoid": lambda: ([size[:, None] * axes], LONG(0)),
        "cylinder": lambda: ([size[0] * axes[:2], size[1] * axes[2:]], LONG(0)),
    }[kind]()


def norm(x: np.ndarray) -> np.longdouble:
    return np.sqrt((x * x).sum())


def optimum(d: np.ndarray, parts: list[np.ndarray], n: np.ndarray):
    """The normal n (3,) near a given one with the largest n·d − Σ|A n|, and y: d − Σ Aᵀ y = λ n, y |A n| = A n."""
    scale = norm(d) + sum(norm(A) for A in parts)
    d, parts, n = d / scale, [A / scale for A in parts], n.astype(LONG) / norm(n)
    rows, own = np.vstack(parts), np.repeat(np.arange(len(parts)), [len(A) for A in parts])
    k, same = len(rows), own[:, None] == own
    y = None
    for soft in LONG(10) ** -np.arange(5, 18):  # |A n| is rounded by less and less
        for _ in range(12):
            x = rows @ n
            length = np.sqrt(same @ (x * x) + soft**2)
            y = x / length if y is None else y
            along = n @ (d - rows.T @ y)
            left = np.concatenate([d - rows.T @ y - along * n, y * length - x])
            if np.abs(left).max() < 1e-18:
                break
            J = np.zeros((k + 4, k + 4))
            J[:3, :3], J[:3, 3:-1], J[:3, -1], J[-1, :3] = -along * np.eye(3), -rows.T, -n, n
            J[3:-1, :3] = (y / length)[:, None] * ((same * x) @ rows) - rows
            J[3:-1, 3:-1] = np.diag(length.astype(float))
            step = np.linalg.solve(J, -np.append(left, 0).astype(float)).astype(LONG)
            step *= min(1.0, 0.3 / np.abs(step[:3]).max())
            n, y = n + step[:3], y + step[3:-1]
            n, y = n / norm(n), y / np.maximum(1, np.sqrt(same @ (y * y)))
    return n, y


def truth(m: mujoco.MjModel, d: mujoco.MjData, pair: tuple[int, int], n: np.ndarray, grid: np.ndarray):
    """(distance, normal, point) of a pair, found from a normal n, and how far it might be untrue: gap, better."""
    (first, r), (second, s) = (summands(GEOM[m.geom_type[g]], m.geom_size[g], d.geom_xmat[g]) for g in pair)
    here, there = d.geom_xpos[list(pair)].astype(LONG)
    parts = first + second
    n, y = optimum(there - here, parts, n)
    k = sum(len(A) for A in first)
    a = here + r * n + (np.vstack(first).T @ y[:k] if first else 0)
    b = there - s * n - (np.vstack(second).T @ y[k:] if second else 0)

    def apart(n):
        return n @ (there - here) - r - s - sum(np.sqrt(((n @ A.T) ** 2).sum(-1)) for A in parts)

    distance = apart(n)
    return (distance, n, 0.5 * (a + b)), (norm(b - a - distance * n), float(apart(grid).max() - distance))


def survey(m: mujoco.MjModel, states: int) -> None:
    """Print the worst of all pairs, by kinds."""
    model, m = uk.load(m), converged(m)
    m.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_MULTICCD  # its several contacts are not always at the deepest
    samples = random_states(m, states, 3)
    found = jax.jit(
        lambda model, s: jax.lax.map(lambda s: CONVERGED.forward(model, *s).contacts, s), compiler_options=QUICK
    )
    contacts = jax.tree.map(np.asarray, found(model, stack(model, samples)))
    grid = np.random.default_rng(0).normal(size=(4000, 3))
    grid /= np.linalg.norm(grid, axis=1, keepdims=True)
    d, geoms, worst = mujoco.MjData(m), Giver(m, model).geoms, collections.defaultdict(list)
    for k, sample in enumerate(samples):
        load_sample(d, sample)
        mujoco.mj_forward(m, d)
        mine, theirs = {}, {}
        on = np.flatnonzero(contacts.active[k])
        for i in on[np.argsort(-contacts.distance[k][on])]:
            at = contacts.distance[k][i], contacts.frame[k][i, 0], contacts.point[k][i]
            mine[tuple(geoms[contacts.pair[k][i]].tolist())] = at
        for c in sorted(d.contact, key=lambda c: -c.dist):
            theirs[tuple(c.geom.tolist())] = c.dist, c.frame[:3], c.pos
        for pair in mine.keys() & theirs.keys():
            kinds = tuple(GEOM.get(m.geom_type[g], "") for g in pair)
            if not set(kinds) <= set(KINDS) or not {"ellipsoid", "cylinder"} & set(kinds) or kinds == KINDS[::3]:
                continue
            true, doubt = truth(m, d, pair, mine[pair][1], grid)
            off = [np.abs(x - y).max() for at in (mine, theirs) for x, y in zip(at[pair], true, strict=True)]
            worst[kinds].append([*off, *doubt])
    for kinds, rows in sorted(worst.items()):
        ours, mujocos, doubt = np.split(np.array(rows, float).max(0), [3, 6])
        cells = " | ".join(" / ".join(f"{x:.0e}" for x in part) for part in (ours, mujocos, doubt))
        print(f"| {'-'.join(kinds)} | {len(rows)} | {cells} |", flush=True)


def main() -> None:
    """Survey robots."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("words", nargs="*", metavar="WORD", default=["fruitfly_v2/fruitfly"])
    parser.add_argument("--states", type=int, default=200)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    three = " / ".join(WHAT)
    for name, path in files().items():
        if any(word in name for word in given.words):
            print(f"{name}\n| kinds | pairs | Ukemi: {three} | MuJoCo: {three} | gap / better |")
            survey(compiled(path), given.states)


if __name__ == "__main__":
    main()
