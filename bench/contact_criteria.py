"""Criteria of contact benchmarks on the problems of ContactBench, for the forces that `uk.LCP`'s solver finds.

    python bench/contact_criteria.py [FOLDER]

A problem is w = G λ + g with three rows per contact: two tangents, then the normal. The law of `LCP` is friction in a
box, so that it meets the criteria of a box to rounding; those of the round cone show how far a box is from one.
"""

import os
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ukemi.constraints.rows import RowKinds
from ukemi.laws.rigid import boxes
from ukemi.laws.rigid import solve as rigid

FOLDER = Path(os.environ.get("UKEMI_SHARED", Path(__file__).parents[2] / "shared")) / "data" / "contactbench"


class Criteria(NamedTuple):
    """Violations, in the units of the problem; zero where a criterion holds."""

    signorini: float  # normal forces and velocities are complementary
    box: float  # friction within its box
    box_dissipation: float  # friction against slip, at the end of its box where it slips
    cone: float  # friction within the round cone
    cone_dissipation: float  # friction against slip, on the round cone where it slips
    ncp: float  # all of the round cone's in one: λ − proj(λ − w − μ |w_t| n)


def solve(G: np.ndarray, g: np.ndarray, mu: np.ndarray) -> tuple[np.ndarray, bool]:
    """Forces (3n,) in the problem's order, and whether the solver says that they solve it."""
    n = len(mu)
    own = boxes.roles(RowKinds(0, 0, 0, n, 3, "pyramidal", False, ()))
    order = (3 * np.arange(n)[:, None] + [2, 0, 1]).ravel()  # normals first
    bounds = jnp.asarray(np.stack([0 * mu, mu, mu], 1).ravel())
    b = jnp.asarray(g[order])
    p = boxes.boxed(jnp.asarray(G[np.ix_(order, order)]), b, 0 * b, bounds, jnp.ones(3 * n, bool), own)
    found = jax.jit(lambda p: rigid.solve(p, own, jnp.zeros(3 * n, jnp.int8)))(p)
    f = found.f * p.scale
    out = np.zeros(3 * n)
    out[order] = f
    return out, bool(found.solved)


def criteria(G: np.ndarray, g: np.ndarray, mu: np.ndarray, force: np.ndarray) -> Criteria:
    """The criteria of forces (3n,)."""
    f, w = force.reshape(-1, 3), (G @ force + g).reshape(-1, 3)
    (ft, fn), (wt, wn) = (f[:, :2], f[:, 2]), (w[:, :2], w[:, 2])
    slip, bound = np.linalg.norm(wt, axis=1), mu * fn
    shifted = np.column_stack([wt, wn + mu * slip])
    return Criteria(
        signorini=np.abs(np.minimum(fn, wn)).max(),
        box=np.maximum(np.abs(ft) - bound[:, None], 0).max(),
        box_dissipation=np.abs((bound[:, None] * np.abs(wt) + ft * wt).sum(1)).max(),
        cone=np.maximum(np.linalg.norm(ft, axis=1) - bound, 0).max(),
        cone_dissipation=np.abs(bound * slip + (ft * wt).sum(1)).max(),
        ncp=np.abs(f - np.stack([_onto_cone(x, m) for x, m in zip(f - shifted, mu, strict=True)])).max(),
    )


def _onto_cone(x: np.ndarray, mu: float) -> np.ndarray:
    """Nearest point of the friction cone |x_t| ≤ μ x_n."""
    size, normal = float(np.linalg.norm(x[:2])), float(x[2])
    if size <= mu * normal:
        return x
    if mu * size <= -normal:
        return np.zeros(3)
    height = (mu * size + normal) / (mu**2 + 1)
    return np.append(x[:2] * mu * height / size, height)


def problems(folder: Path = FOLDER):
    """(name, G, g, mu, a solution or None) of every problem in the folder."""
    for path in sorted(folder.glob("*.npz")):
        data = np.load(path)
        known = data["lam0"].ravel() if "lam0" in data else None
        yield path.stem, data["G"], data["g"].ravel(), data["mus"], known


def main() -> None:
    """Print a table."""
    jax.config.update("jax_enable_x64", True)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    print(f"{'problem':24}{'forces of':12}" + "".join(f"{name:>18}" for name in Criteria._fields))
    for name, G, g, mu, known in problems(folder):
        for by, force in (("uk.LCP", solve(G, g, mu)[0]), ("the file", known)):
            if force is not None:
                print(f"{name:24}{by:12}" + "".join(f"{x:18.1e}" for x in criteria(G, g, mu, force)))


if __name__ == "__main__":
    main()
