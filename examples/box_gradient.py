"""How far a push moves a block, and three derivatives of that: exact, of softer laws, and by randomised smoothing.

    python examples/box_gradient.py [--out box_gradient.png]

A block rests on the floor (1 kg, μ = 1, gravity 1 m/s², one step of 0.1 s: friction holds it up to 0.1 N s). The exact
derivative is zero below that and h/m above: it does not tell an optimiser that pushing harder helps. The derivative at
a larger κ of the central path does, for the cost of one more solve (Dojo, Fig. 4); randomised smoothing does so with
noise, for the cost of all its samples.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

jax.config.update("jax_enable_x64", True)

import ukemi as uk  # noqa: E402

H = 0.1
BLOCK = f"""<mujoco><option timestep="{H}" gravity="0 0 -1"/><worldbody>
<geom type="plane" size="5 5 1" friction="1"/>
<body pos="0 0 .25"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint axis="0 1 0"/>
<geom type="box" size=".25 .25 .25" mass="1" friction="1"/></body></worldbody></mujoco>"""
KAPPAS = (1e-2, 1e-3, 1e-4, 1e-6)
SPREADS, SAMPLES = (0.02, 0.1), 500  # of the randomised forces [N s]


def programs(model: uk.Model):
    """Functions of impulses (n,): how far they push the block, and the derivatives (n,) of the law at κ."""
    state = uk.initial_state(model)

    def reach(push, kappa):
        inputs = uk.Input(qfrc=jnp.array([1.0, 0.0, 0.0]) * push / H)
        return uk.step(model, state, inputs, uk.NCP(kappa=1e-10, gradient=uk.CentralPath(kappa, width=1.0))).q[0]

    def mapped(function):  # one after the other: a batch in step would wait for the slowest search of all
        each = jax.jit(lambda pushes, kappa: jax.lax.map(lambda push: function(push, kappa), pushes))
        return lambda pushes, kappa=1e-4: np.asarray(each(jnp.asarray(pushes), jnp.asarray(kappa)))

    return mapped(reach), mapped(jax.grad(reach))


def smoothed(reach, pushes, spread: float, rng) -> np.ndarray:
    """Derivatives (n,) by randomised smoothing: of the mean over normal forces, by their scores."""
    noise = rng.standard_normal((len(pushes), SAMPLES))
    moved = reach((pushes[:, None] + spread * noise).ravel()).reshape(noise.shape)
    still = reach(pushes)[:, None]
    return ((moved - still) * noise).mean(1) / spread


def draw(count: int = 41) -> Figure:
    """The picture."""
    (reach, slope), rng = programs(uk.load(BLOCK)), np.random.default_rng(0)
    pushes = np.linspace(0, 0.2, count)
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    far, path, noise = figure.subplots(1, 3)
    far.plot(pushes, reach(pushes), color="black")
    far.set(title="displacement [m]")
    exact = np.where(pushes < 0.1, 0.0, H)
    for axes in (path, noise):
        axes.plot(pushes, exact, color="black", drawstyle="steps-mid", label="exact")
    for k, kappa in enumerate(KAPPAS):
        path.plot(pushes, slope(pushes, kappa), color=(0.8, 0.1 + 0.2 * k, 0.7), label=f"κ = {kappa:.0e}")
    for spread, colour in zip(SPREADS, ("tab:orange", "tab:blue"), strict=True):
        label = f"{SAMPLES} samples, spread {spread} N s"
        noise.plot(pushes, smoothed(reach, pushes, spread, rng), color=colour, label=label)
    path.set(title="derivative, softer laws [m/(N s)]")
    noise.set(title="derivative, randomised [m/(N s)]")
    for axes in (far, path, noise):
        axes.set(xlabel="push [N s]")
        axes.spines[["top", "right"]].set_visible(False)
    for axes in (path, noise):
        axes.set(ylim=(-0.005, 0.16))
        axes.legend(frameon=False, loc="upper left", fontsize="small")
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="box_gradient.png", help="picture to write")
    options = parser.parse_args()
    draw().savefig(options.out, dpi=150)
    print(f"wrote {options.out}")
