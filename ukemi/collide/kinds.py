"""The table of shapes: one record for each kind, which is all that collision has to know of it.

How two kinds touch is the table of pairs (`primitives`). Inertia is a table with the same keys where files are read
(`files/solids`), pictures are one where they are drawn (`view/scene`). No other place lists kinds of shapes.
"""

import jax.numpy as jnp
import numpy as np

from ukemi.collide import bounds
from ukemi.collide.pairs.manifold import cylinder_part, face_part, line_part
from ukemi.collide.pairs.plane import CORNERS
from ukemi.collide.shapes import Convex, ShapeKind, Side

_ENDS = ((0.0, 0.0, 1.0), (0.0, 0.0, -1.0))

KINDS = {
    kind.name: kind
    for kind in (  # in MuJoCo's order, which is that of the two shapes of a pair
        ShapeKind(
            name="plane",
            sizes=("half width of its picture", "half length of its picture"),
            contacts=0,
            endless=True,
        ),
        ShapeKind(
            name="hfield",
            sizes=("half size along x", "along y", "unit of elevations"),
            contacts=0,
            bounds=bounds.of_field,
            side=Side(lambda size: (size, 0.0 * size[0])),
            ground=True,
        ),
        ShapeKind(
            name="sphere",
            sizes=("radius",),
            contacts=1,
            bounds=bounds.of_ball,
            convex=Convex((), ball=True),
            side=Side(lambda size: (0.0 * size, size[0])),
        ),
        ShapeKind(
            name="capsule",
            sizes=("radius", "half length"),
            contacts=2,
            bounds=bounds.of_rod,
            convex=Convex(((2, 1, 0),), ball=True, corners=_ENDS),
            facing=line_part,
            ends=2,
            side=Side(lambda size: (jnp.stack([size[1]] * 3), size[0]), line=True),
        ),
        ShapeKind(
            name="ellipsoid",
            sizes=("radius along x", "along y", "along z"),
            contacts=1,
            bounds=bounds.of_ellipsoid,
            convex=Convex(((0, 0, 0), (1, 1, 0), (2, 2, 0)), ball=False),
            side=Side(lambda size: (0.0 * size, 0.0 * size[0]), core=lambda size: size),
        ),
        ShapeKind(
            name="cylinder",
            sizes=("radius", "half length"),
            contacts=3,
            bounds=bounds.of_rod,
            convex=Convex(((0, 0, 0), (1, 0, 0), (2, 1, 1)), ball=False, corners=_ENDS),
            facing=cylinder_part,
            ends=4,
            side=Side(
                lambda size: (size[np.array([0, 0, 1])], 0.0 * size[0]),
                core=lambda size: size[0] * np.array([1.0, 1.0, 0.0], size.dtype),
                line=True,
            ),
        ),
        ShapeKind(
            name="box",
            sizes=("half size along x", "along y", "along z"),
            contacts=6,
            bounds=bounds.of_box,
            convex=Convex(((0, 0, 0), (1, 1, 1), (2, 2, 2)), ball=False, corners=CORNERS),
            facing=face_part,
            ends=4,
            side=Side(lambda size: (size, 0.0 * size[0]), flat=True),
        ),
        ShapeKind(
            name="mesh",
            sizes=("scale along x", "along y", "along z"),
            contacts=4,
            side=Side(lambda size: (size, 0.0 * size[0]), flat=True),
        ),
        ShapeKind(name="other", sizes=(), contacts=0),
    )
}
# All that MuJoCo has and this table has not, such as signed distance fields. It touches nothing, and is refused where
# it might.
OTHER = KINDS["other"]
