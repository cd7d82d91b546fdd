"""Worlds that run together choose their steps by themselves (Paulus et al., Fig. 20).

Balls start at different heights with the same speed towards a floor, without gravity. Each takes small steps around its
own impact only.
"""

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from scenes import arguments, save  # noqa: E402

import ukemi as uk  # noqa: E402
from ukemi.model.records import as_input  # noqa: E402

SCENE = """<mujoco><option gravity="0 0 0" timestep=".02"><flag refsafe="disable"/></option>
  <default><geom solref=".005 1" solimp="0 .95 .001 .5 2"/></default><worldbody><geom type="plane" size="1 1 .1"/>
  <body><joint type="slide" axis="0 0 1"/><geom size=".05" condim="1"/></body></worldbody></mujoco>"""


def main() -> None:
    """Drop the balls, print how many steps each took, and plot the sizes over time."""
    uk.enable_cache()
    parser = arguments(__doc__, "step_sizes.png")
    parser.add_argument("--worlds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=25, help="time steps of 0.02 s")
    options = parser.parse_args()
    model, method = uk.load(SCENE), uk.Adaptive()
    inputs = as_input(model, None)

    def drop(height):
        def step(state, _):
            path, effort = method.path(model, state, inputs)
            return method.step(model, state, inputs), (path.shares, effort.accepted)

        start = uk.initial_state(model, q=height[None], v=jnp.array([-1.0]))
        return jax.lax.scan(step, start, length=options.steps)[1]

    shares, accepted = jax.jit(jax.vmap(drop))(jnp.linspace(0.1, 0.45, options.worlds))
    taken = np.asarray(accepted).sum(1)
    print(f"{options.worlds} worlds, {options.steps} time steps: {taken.min()} to {taken.max()} steps each")

    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 4), constrained_layout=True)
    h = float(model.options.timestep)
    for world in np.asarray(shares):
        sizes = h * world[world > 0]
        axis.step(np.cumsum(sizes), sizes, where="pre", linewidth=1)
    axis.set(yscale="log", xlabel="time [s]", ylabel="step size [s]", title="Steps of each world; one impact in each")
    save(figure, options.out)


if __name__ == "__main__":
    main()
