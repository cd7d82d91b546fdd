"""The table of shapes: one record for each kind, which is all that collision has to know of it.

How two kinds touch is the table of pairs (`primitives`). Inertia is a table with the same keys where files are read
(`files/solids`), pictures are one where they are drawn (`view/scene`). No other place lists kinds of shapes.
"""

from ukemi.collide.pairs.manifold import cylinder_part, face_part, line_part
from ukemi.collide.shapes import Convex, ShapeKind

KINDS = {
    kind.name: kind
    for kind in (  # in MuJoCo's order, which is that of the two shapes of a pair
        ShapeKind("plane", ("half width to be drawn", "half length to be drawn"), contacts=0, endless=True),
        ShapeKind("sphere", ("radius",), contacts=1, convex=Convex((), ball=True)),
        ShapeKind(
            "capsule",
            ("radius", "half length"),
            contacts=2,
            convex=Convex(((2, 1, 0),), ball=True),
            facing=line_part,
            ends=2,
        ),
        ShapeKind(
            "ellipsoid",
            ("radius", "radius", "radius"),
            contacts=1,
            convex=Convex(((0, 0, 0), (1, 1, 0), (2, 2, 0)), ball=False),
        ),
        ShapeKind(
            "cylinder",
            ("radius", "half length"),
            contacts=3,
            convex=Convex(((0, 0, 0), (1, 0, 0), (2, 1, 1)), ball=False),
            facing=cylinder_part,
            ends=4,
        ),
        ShapeKind(
            "box",
            ("half size", "half size", "half size"),
            contacts=6,
            convex=Convex(((0, 0, 0), (1, 1, 1), (2, 2, 2)), ball=False),
            facing=face_part,
            ends=4,
        ),
        ShapeKind("mesh", (), contacts=0),
    )
}
# All that MuJoCo has and this table has not (height fields, signed distance fields) is treated as this kind: it
# touches nothing, and is refused where it might.
OTHER = KINDS["mesh"]
