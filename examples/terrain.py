"""A hillside that is graded until a ball which rolls down it ends where it should.

The ground is a height field of 8 × 8 elevations, all of which are parameters: the derivative of where the ball ends in
all of them comes from one backward pass, and is compared with central differences in those that matter most.
"""

import dataclasses

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from scenes import arguments, save, say  # noqa: E402

import ukemi as uk  # noqa: E402

STEPS, GRID = 160, 8
TARGET = np.array([0.5, 0.35])
HILLSIDE = """
<mujoco>
  <option timestep="0.005"/>
  <asset><hfield name="hillside" nrow="{n}" ncol="{n}" size="1 1 0.5 0.1" elevation="{elevation}"/></asset>
  <worldbody>
    <geom type="hfield" hfield="hillside"/>
    <body pos="-0.6 0 {height}"><freejoint/><geom size="0.12" mass="1"/></body>
  </worldbody>
</mujoco>"""


def hillside() -> str:
    """A slope with bumps, and a ball at its upper end; elevations from 0 to 1, so that loading leaves them."""
    x = np.linspace(0, 1, GRID)
    slope = np.tile(0.8 - 0.6 * x, (GRID, 1)) + 0.05 * np.random.default_rng(2).normal(size=(GRID, GRID))
    slope[0, 0], slope[-1, -1] = 1, 0
    rows = "  ".join(" ".join(f"{z:.4f}" for z in row) for row in slope[::-1])
    return HILLSIDE.format(n=GRID, elevation=rows, height=0.5 * 0.7 + 0.13)


def end(model):
    """Where the ball is after its way, and the way (T, 3), as a function of the elevations."""
    start = uk.initial_state(model)

    def roll(elevations):
        ground = dataclasses.replace(model, heights=dataclasses.replace(model.heights, data=elevations))
        states = uk.rollout(ground, start, jnp.zeros((STEPS, 0)))
        return ((states.q[-1, :2] - TARGET) ** 2).sum(), (states.q[:, :3], states.status[-1])

    return roll


def main() -> None:
    """Compare derivatives, grade the hillside, and plot the ball's ways."""
    uk.enable_cache()
    parser = arguments(__doc__, "terrain.png")
    parser.add_argument("--iterations", type=int, default=60)
    options = parser.parse_args()
    model = uk.load(hillside())
    look = jax.jit(jax.value_and_grad(end(model), has_aux=True))
    elevations = model.heights.data
    say("Rolling …")
    (loss, (way, _)), slope = look(elevations)
    most, step = np.argsort(-np.abs(np.asarray(slope)))[:3], 1e-6
    for k in most:
        ends = [float(look(elevations.at[k].add(side * step))[0][0]) for side in (1, -1)]
        print(f"elevation {k}: gradient {slope[k]:.6f}, by differences {(ends[0] - ends[1]) / (2 * step):.6f}")
    adam = optax.adam(0.01)
    memory, grounds, ways, losses = adam.init(elevations), [elevations], [way], [float(loss)]
    for _ in range(options.iterations):
        change, memory = adam.update(slope, memory)
        elevations = elevations + change
        (loss, (way, status)), slope = look(elevations)
        losses.append(float(loss))
        ways.append(way)
        grounds.append(elevations)
        assert status == 0
    best = int(np.argmin(losses))
    print(f"distance from the target: {losses[0] ** 0.5:.3f} m -> {losses[best] ** 0.5:.3f} m")
    print(f"elevations moved by up to {0.5 * float(jnp.abs(grounds[best] - model.heights.data).max()):.3f} m")
    plot(options.out, grounds[best], (ways[0], ways[best]), losses)


def plot(path, elevations, ways, losses) -> None:
    """The ways over the graded ground, and the loss."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    line = np.linspace(-1, 1, GRID)
    ground = left.contourf(line, line, 0.5 * np.asarray(elevations).reshape(GRID, GRID), 16, cmap="Greens_r")
    figure.colorbar(ground, label="elevation [m]")
    for way, label in zip(ways, ("before", "after"), strict=True):
        left.plot(way[:, 0], way[:, 1], label=label)
    left.plot(*TARGET, "kx", label="target")
    left.set(aspect="equal", xlabel="x [m]", ylabel="y [m]")
    left.legend(frameon=False)
    right.semilogy(losses)
    right.set(xlabel="Adam iteration", ylabel="loss [m²]")
    save(figure, path)


if __name__ == "__main__":
    main()
