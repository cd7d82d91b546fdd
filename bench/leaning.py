"""How many steps of a box that lands on another one, leaning, each law says it did not solve.

    python bench/leaning.py [--draws 60] [--laws NCP,Maximal,LCP]
"""

import argparse

import jax

import ukemi as uk
from tests.scenes.leaning import SCENE, leaning

LEANS = 1.0, 3.0, 10.0  # degrees


def main() -> None:
    """A line for each law, time step and lean."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--laws", default="NCP,Maximal,LCP")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    for name in given.laws.split(","):
        law = getattr(uk, name)()
        for h in (0.002, 0.005):
            model = uk.load(SCENE.format(h=h))
            steps = jax.jit(lambda batch: jax.lax.map(lambda state: uk.step(model, state, None, law), batch))  # noqa: B023
            for lean in LEANS:
                after = steps(leaning(model, lean, given.draws))
                lost, turns = int((after.status != 0).sum()), float(after.cache.iterations.mean())
                scene = f"{name:8s} h {h:.3f} s, leaning {lean:4.1f} deg"
                print(f"{scene}: {lost:3d} of {given.draws} not solved, {turns:5.1f} turns", flush=True)


if __name__ == "__main__":
    main()
