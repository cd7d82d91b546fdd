"""Pictures of planar scenes."""

import jax
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

import ukemi as uk
from ukemi.mechanics import kinematics


def poses(model: uk.Model, states: uk.State, *, moments: int, losses, path_of: str, mark=None) -> Figure:
    """The boxes of a scene in the x–z plane at some moments, early ones pale, and the losses of the optimiser.

    path_of: geom whose path is drawn; mark: a point (2,) to be drawn.
    """
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    pos, mat = _frames(model, states)
    for k, t in enumerate(np.linspace(0, len(pos) - 1, moments).astype(int)):
        for g in np.flatnonzero(np.array(model.geoms.layout.type) == "box"):
            half, colour = np.asarray(model.geoms.size[g]), model.geoms.layout.rgba[g][:3]
            corners = [(x * half[0], 0, z * half[2]) for x, z in ((1, 1), (1, -1), (-1, -1), (-1, 1))]
            outline = pos[t, g] + np.asarray(corners) @ mat[t, g].T
            left.add_patch(Polygon(outline[:, [0, 2]], facecolor=colour, alpha=0.15 + 0.85 * (k / (moments - 1)) ** 2))
    path = pos[:, model.geoms.layout.names.index(path_of)]
    left.plot(path[:, 0], path[:, 2], color="black", linewidth=0.8)
    left.axhline(-0.7, color="black", linewidth=1.5)
    if mark is not None:
        left.plot(*mark, marker="x", color="black", markersize=10, linestyle="none", label="target")
        left.legend(frameon=False)
    left.set(xlabel="x [m]", ylabel="z [m]", aspect="equal")
    right.plot(losses)
    right.set(xlabel="iteration", ylabel="loss")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _frames(model: uk.Model, states: uk.State):
    """Positions (T, ng, 3) and rotations (T, ng, 3, 3) of the geoms."""

    def look(q):
        return kinematics.geom_frames(model, kinematics.kinematics(model, q))

    return jax.tree.map(np.asarray, jax.jit(lambda q: jax.lax.map(look, q))(states.q))
