"""How many steps of a box that lands on another one, leaning, each law says it did not solve.

    python bench/leaning.py [--draws 60] [--laws NCP,Maximal,LCP]
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import ukemi as uk

SCENE = """<mujoco><option timestep="{h}"/><worldbody><geom type="box" size=".2 .1 .1" pos="-.15 -.03 -.15"/>
  <body><freejoint/><geom type="box" size=".2 .1 .05"/></body></worldbody></mujoco>"""
LEANS = 1.0, 3.0, 10.0  # degrees


def states(model: uk.Model, lean: float, draws: int):
    """Random poses across the edge of the lower box, leaning by some degrees, and velocities."""
    rng = np.random.default_rng(0)
    for _ in range(draws):
        turn = np.array([*np.deg2rad(lean) * rng.normal(size=2), rng.uniform(-0.6, 0.6)])
        angle = np.linalg.norm(turn)
        quat = [np.cos(angle / 2), *np.sin(angle / 2) * turn / angle]
        place = [*0.02 * rng.normal(size=2), rng.uniform(-0.002, 0.008)]
        yield uk.initial_state(model, q=[*place, *quat], v=0.5 * rng.normal(size=6))


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
                batch = jax.tree.map(lambda *x: jnp.stack(x), *states(model, lean, given.draws))
                after = steps(batch)
                lost, turns = int((after.status != 0).sum()), float(after.cache.iterations.mean())
                scene = f"{name:8s} h {h:.3f} s, leaning {lean:4.1f} deg"
                print(f"{scene}: {lost:3d} of {given.draws} not solved, {turns:5.1f} turns", flush=True)


if __name__ == "__main__":
    main()
