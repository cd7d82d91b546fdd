"""How often hard contact is not solved in heaps of four free shapes that fall on each other.

    python bench/heaps.py [--shapes box,cylinder,mesh] [--heaps 5] [--seconds 1] [--laws NCP,Maximal]

A law goes on from what it did not solve. Meshes are bricks and hulls of twelve corners in turn. Reported are steps that
were not solved, and turns of the solver: their mean, that over the last 0.2 s, and the most.
"""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ukemi as uk

H, SHAPES = 0.002, 4
SIZE = np.array([0.06, 0.05, 0.04])
GEOMS = {
    "box": ('type="box" size=".06 .05 .04"',),
    "cylinder": ('type="cylinder" size=".04 .05"',),
    "mesh": ('type="mesh" mesh="brick"', 'type="mesh" mesh="hull"'),
}


def scene(shape: str, seed: int) -> uk.Model:
    """Shapes above each other, turned at random."""
    rng = np.random.default_rng(seed)
    around = np.random.default_rng(5).standard_normal((12, 3))  # one hull for all heaps: then they share a program
    meshes = {
        "brick": SIZE * (2 * np.indices((2, 2, 2)).reshape(3, 8).T - 1),
        "hull": SIZE * around / np.linalg.norm(around, axis=1, keepdims=True),
    }
    numbers = lambda x: " ".join(f"{value:.6g}" for value in np.ravel(x))  # noqa: E731
    bodies = ""
    for k in range(SHAPES):
        at, turn = [*0.03 * rng.standard_normal(2), 0.1 + 0.13 * k], rng.standard_normal(4)
        bodies += f"""<body pos="{numbers(at)}" quat="{numbers(turn)}"><freejoint/>
          <geom {GEOMS[shape][k % len(GEOMS[shape])]}/></body>"""
    assets = "".join(f'<mesh name="{name}" vertex="{numbers(corners)}"/>' for name, corners in meshes.items())
    text = f"""<mujoco><option timestep="{H}"/><asset>{assets if shape == "mesh" else ""}</asset><worldbody>
      <geom type="plane" size="1 1 1"/>{bodies}</worldbody></mujoco>"""
    return uk.load(text, contacts=12 * SHAPES)


@eqx.filter_jit
def fall(model: uk.Model, law, steps: int):
    """Status and turns (steps,) of each step."""

    def one(state, _):
        after = uk.step(model, state, None, law)
        cleared = eqx.tree_at(lambda s: s.status, after, jnp.zeros_like(after.status))
        return cleared, (after.status, after.cache.iterations)

    return jax.lax.scan(one, uk.initial_state(model), None, length=steps)[1]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--shapes", default="box,cylinder,mesh")
    parser.add_argument("--heaps", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--laws", default="NCP,Maximal")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    steps, last = round(given.seconds / H), round(0.2 / H)
    for law in given.laws.split(","):
        for shape in given.shapes.split(","):
            total = 0
            for seed in range(given.heaps):
                status, turns = map(np.asarray, fall(scene(shape, seed), getattr(uk, law)(), steps))
                total += (status != 0).sum()
                said = f"turns {turns.mean():.1f}, at last {turns[-last:].mean():.1f}, at most {turns.max()}"
                print(f"  {law} {shape} {seed}: not solved {(status != 0).sum()} of {steps}; {said}", flush=True)
            print(f"{law} {shape}: {total} of {given.heaps * steps} not solved", flush=True)


if __name__ == "__main__":
    main()
