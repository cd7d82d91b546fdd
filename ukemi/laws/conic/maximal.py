"""The same hard contact with a variational integrator of bodies that joints hold together (Dojo, III)."""

from ukemi.laws.conic.law import Conic
from ukemi.laws.conic.mechanics import Variational
from ukemi.mechanics.energy import Energy, Momentum
from ukemi.mechanics.variational import chord_energy, chord_momentum
from ukemi.model.records import Model, State


class Maximal(Conic):
    """Hard contact as in `NCP`, with Dojo's variational integrator: momentum is kept, and energy does not drift.

    Poses of all bodies are stepped, along what their joints allow, so that joints hold exactly and the state is that of
    the other laws. A state's velocity is the mean one of the step that led there, which is that half a step before.

    Args:
        kappa: κ, how hard contact is [N s m], as in `NCP`.
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

    mechanics = Variational()

    def energy(self, model: Model, state: State) -> Energy:
        """Of the step that led to the state: of bodies on their way, and the mean potential of its two ends."""
        return chord_energy(model, state)

    def momentum(self, model: Model, state: State) -> Momentum:
        """Of the step that led to the state."""
        return chord_momentum(model, state)
