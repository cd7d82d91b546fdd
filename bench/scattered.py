"""Many geoms far apart: what detection and a step cost with 500 of them beside 20, both with ten contacts.

    python bench/scattered.py

Ten bodies (spheres, capsules, boxes) rest on a floor with the other geoms scattered above, as bodies of their own and
as parts of the world; float32, one world, least of many runs.
"""

import time

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import ukemi as uk
from ukemi.collide.detect import detect
from ukemi.mechanics.kinematics import of_state

SHAPES = ("sphere", 'type="sphere" size=".1"'), ("capsule", 'type="capsule" size=".1 .1"')


def scene(geoms: int, free: bool, resting: int = 10) -> mujoco.MjModel:
    """A floor, bodies at rest on it, and others where they meet nothing."""
    rng, side = np.random.default_rng(0), 10.0
    cells = np.array([(x, y, z) for x in range(10) for y in range(10) for z in range(10)])
    places = (cells[rng.permutation(len(cells))[:geoms]] + rng.uniform(0.2, 0.8, (geoms, 3))) * (side / 10) + [0, 0, 1]
    parts = ['<geom type="plane" size="1 1 1"/>']
    for k in range(geoms - 1):
        x, y, z = places[k]
        _, size = SHAPES[k % 2]
        if k < resting:
            parts.append(f'<body pos="{x} {-y - 1} .0999"><freejoint/><geom type="sphere" size=".1"/></body>')
        elif free:
            parts.append(f'<body pos="{x} {y} {z}"><freejoint/><geom {size}/></body>')
        else:
            parts.append(f'<geom pos="{x} {y} {z}" {size}/>')
    return mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{''.join(parts)}</worldbody></mujoco>")


def least(function, state, steps: int = 20, rounds: int = 40) -> tuple[float, float]:
    """Least time of a call within a loop [µs], and that of the first call [s]."""

    def roll(state):
        def one(state, _):
            return function(state), None

        return jax.lax.scan(one, state, None, length=steps)[0]

    start = time.perf_counter()
    run = jax.jit(roll).lower(state).compile()
    first = time.perf_counter() - start
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        jax.block_until_ready(run(state))
        times.append(time.perf_counter() - start)
    return 1e6 * min(times) / steps, first


def main() -> None:
    """Both kinds of scenes; a step only where the others are parts of the world, since free bodies cost their own."""
    for free in (False, True):
        for geoms in (20, 500):
            start = time.perf_counter()
            model = uk.load(scene(geoms, free))
            loading = time.perf_counter() - start
            state = uk.initial_state(model)

            def look(q, model=model, state=state):
                kin = of_state(model, uk.initial_state(model, q=q), uk.Input(ctrl=jnp.zeros(0)))
                found = detect(model, kin)
                return q + 0.0 * jnp.where(jnp.isfinite(found.distance), found.distance, 0.0).sum()

            def pose(q, model=model):
                kin = of_state(model, uk.initial_state(model, q=q), uk.Input(ctrl=jnp.zeros(0)))
                return q + 0.0 * kin.X.sum()

            seen = detect(model, of_state(model, state, uk.Input(ctrl=jnp.zeros(0))))
            posed, _ = least(pose, state.q)
            looked, first = least(look, state.q)
            name = "bodies" if free else "world"
            line = f"{name:7} geoms {geoms:4} pairs {len(model.pairs.layout.geoms):6} contacts {int(seen.active.sum())}"
            line += f"  detection {looked - posed:6.0f} µs (poses {posed:5.0f})  first call {first:4.1f} s"
            if not free:
                stepped, first = least(lambda s, model=model: uk.step(model, s), state)
                line += f"  step {stepped:6.0f} µs  first call {first:4.1f} s"
            print(line + f"  load {loading:4.1f} s", flush=True)


if __name__ == "__main__":
    main()
