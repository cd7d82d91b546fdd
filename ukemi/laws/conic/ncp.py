"""Hard contact at the end of the step, with the exact friction cone, in joint coordinates."""

from ukemi.laws.conic.law import Conic
from ukemi.laws.conic.mechanics import Joints


class NCP(Conic):
    """Hard contact at the end of the step, friction within the exact cone, in joint coordinates.

    Args:
        kappa: κ, how hard contact is [N s m]: what is at a distance φ is pushed by an impulse κ/φ. An array, too, so
            that programs which differ in it alone are compiled once; left None it is 1e-8 in float64 and 1e-5 in
            float32, which cannot tell smaller distances.
        cone: "elliptic", or "pyramidal" for a bound on each direction of friction alone.
        gradient: `Exact()`, or `CentralPath(...)` for that of a softer law.
        correction: share of a penetration, or of an equality's drift, that a step takes back.
        ahead: distance beyond a step's motion, and what gravity does to it, within which contacts are looked for [m].
            Nothing pushes beyond this, nor beyond 10 √κ [m] if that is less (1 mm at 1e-8), and less than κ/φ from half
            of it on.
        iterations: bound on those of each of the solver's starts.
        starts: points to start from in turn while a step is not solved, of which the first takes up the last step's
            impulses. Few of them bound the time of a step that none solves.
    """

    mechanics = Joints()
