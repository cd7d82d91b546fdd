"""Shapes of a model."""

import dataclasses

import equinox as eqx
import numpy as np
from jax import Array
from jaxtyping import Float

from ukemi.model.looks import Looks
from ukemi.model.tree import Static


class Geoms(eqx.Module):
    """Shapes. What `size` means, the table of kinds says (`ukemi.collide.kinds`), as MuJoCo does. An array that says
    more of some kind goes here and, by the same name, into `ukemi.collide.shapes.Shape`.
    """

    pos: Float[Array, "ng 3"]  # in the body frame [m]
    quat: Float[Array, "ng 4"]
    size: Float[Array, "ng 3"]  # [m]
    vertices: Float[Array, "nvert 3"]  # of the hulls of meshes (`PairLayout.hulls`), before `size` [m]
    density: Float[Array, " ng"]  # of what adds to the mass of a body in `BodyLayout.inferred`, else 0 [kg/m³]
    friction: Float[Array, "ng 3"]  # sliding [-], torsional [m], rolling [m]
    restitution: Float[Array, " ng"]  # of rigid contact laws, 0 to 1; a pair has the larger of the two
    fluid: Float[Array, "ng 5"]  # of ellipsoids: drag blunt, slender, angular; lift of Kutta, of Magnus [-]
    fluid_axes: Float[Array, "ng 3"]  # semi-axes of the ellipsoids that meshes are to a fluid, before `size` [m]
    fluid_inertia: Float[Array, "ng 6"]  # of the fluid that goes along, per density: turning [m⁵], moving [m³]
    solref: Float[Array, "ng 2"]
    solimp: Float[Array, "ng 5"]
    solmix: Float[Array, " ng"]
    margin: Float[Array, " ng"]  # [m]
    gap: Float[Array, " ng"]  # [m]
    adhesion: Float[Array, " ng"]  # by which contacts may pull; a pair has the sum of the two [N]
    surface_velocity: Float[Array, "ng 6"]  # as of a belt: along the axes of the shape [m/s], about them [rad/s]
    layout: "GeomLayout" = eqx.field(static=True)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class GeomLayout(Static):
    """Types, owners and collision parameters of the shapes."""

    type: tuple[str, ...]  # kinds
    body: np.ndarray  # (ng,)
    condim: np.ndarray  # (ng,)
    priority: np.ndarray  # (ng,)
    ellipsoids: np.ndarray  # geoms that a fluid presses on as on ellipsoids, and not on their bodies as boxes
    conveys: bool  # the file gives some geom a surface velocity: without, no surface runs
    looks: Looks  # for pictures only
    names: tuple[str, ...]
