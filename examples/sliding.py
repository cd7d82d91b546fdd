"""Boxes that slide to a stop in all directions: how far friction pulls them off their line, law by law.

    python examples/sliding.py [--out sliding.png]

A box is pushed along the floor at 4.1 m/s (1 kg, μ = 0.25, time steps of 0.01 s). Friction opposes the motion, so that
it should end v²/2μg further on the same line, whatever way that goes. Friction that is bounded in each of two
directions apart is stronger on the diagonal, and turns boxes towards the axes (Dojo, Fig. 5).
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

jax.config.update("jax_enable_x64", True)

import ukemi as uk  # noqa: E402

H, MU, SPEED = 0.01, 0.25, float(np.hypot(4, 0.8))
BOX = f"""<mujoco><option timestep="{H}"/><worldbody><geom type="plane" size="5 5 1" friction="{MU}"/>
<body pos="0 0 .25"><freejoint/><geom type="box" size=".25 .25 .25" mass="1" friction="{MU}"/></body>
</worldbody></mujoco>"""
LAWS = {
    "NCP": uk.NCP(),
    "Maximal": uk.Maximal(),
    "NCP, pyramidal": uk.NCP(cone="pyramidal"),
    "LCP": uk.LCP(),
    "Soft, elliptic": uk.Soft(cone="elliptic"),
    "Soft, pyramidal": uk.Soft(cone="pyramidal"),
}


def paths(model: uk.Model, law, angles) -> np.ndarray:
    """Positions (n, T, 3) of boxes that were pushed at these angles [rad]."""
    steps = round(1.2 * SPEED / (MU * 9.81) / H)

    @jax.jit
    def slide(angles):
        def one(angle):
            v = SPEED * jnp.array([jnp.cos(angle), jnp.sin(angle), 0, 0, 0, 0])
            return uk.rollout(model, uk.initial_state(model, v=v), jnp.zeros((steps, 0)), law)

        return jax.lax.map(one, angles)

    states = slide(jnp.asarray(angles))
    uk.raise_if_failed(states)
    return np.asarray(states.q[..., :3])


def aside(path: np.ndarray, angles) -> np.ndarray:
    """How far (n,) from their lines boxes ended [m]."""
    return abs(np.cos(angles) * path[:, -1, 1] - np.sin(angles) * path[:, -1, 0])


def draw(angles) -> Figure:
    """The picture: where boxes went, and how far from their lines they ended."""
    model, figure = uk.load(BOX), Figure(figsize=(11, 4.4), layout="constrained")
    above, off = figure.subplots(1, 2, width_ratios=(1, 1.25))
    far = SPEED**2 / (2 * MU * 9.81) - SPEED * H / 2
    for k, (name, law) in enumerate(LAWS.items()):
        path = paths(model, law, angles)
        line = {"color": f"C{k}", "linestyle": "--" if "Soft" in name else "-"}
        if name in ("NCP", "NCP, pyramidal"):
            for i, each in enumerate(path):
                above.plot(each[:, 0], each[:, 1], linewidth=1.0, label=name if i == 0 else None, **line)
        off.plot(np.degrees(angles), np.maximum(aside(path, angles), 1e-12), marker=".", label=name, **line)
        reach = np.linalg.norm(path[:, -1, :2], axis=-1)
        print(f"{name:16s} off its line by up to {aside(path, angles).max():.1e} m; ends {reach.min():.4f} to "
              f"{reach.max():.4f} m away, formula {far:.4f} m")  # fmt: skip
    above.set(xlabel="x [m]", ylabel="y [m]", aspect="equal", title="from above")
    off.set(xlabel="direction of the push [°]", ylabel="end, off the line [m]", yscale="log", title="drift aside")
    off.axhline(1e-6, color="black", linewidth=0.6)
    for axes in (above, off):
        axes.spines[["top", "right"]].set_visible(False)
    above.legend(frameon=False, fontsize="small")
    off.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="sliding.png", help="picture to write")
    parser.add_argument("--count", type=int, default=13, help="directions from 0 to 90 degrees")
    options = parser.parse_args()
    draw(np.linspace(0, np.pi / 2, options.count)).savefig(options.out, dpi=150)
    print(f"wrote {options.out}")
