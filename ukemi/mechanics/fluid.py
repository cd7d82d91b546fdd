"""Forces of a surrounding fluid: on ellipsoids where the file's geoms are to be such, else MuJoCo's inertia-box model.

A body without ellipsoids stands for the box of equal mass and inertia. Viscosity resists the box as it would a sphere
of its mean size (Stokes); density resists each face in proportion to its area and the square of its speed. Force and
torque act at the centre of mass and are diagonal in the box's axes: component k depends on velocity component k alone.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial
from ukemi.maths.gathers import mix, pick_rows
from ukemi.mechanics import ellipsoids
from ukemi.mechanics.ellipsoids import Ellipsoids
from ukemi.mechanics.kinematics import Kinematics, geom_frames
from ukemi.model.records import Model

TINY = 1e-15  # lightest body that feels the fluid [kg], and least squared size of its box


def fluid_force(model: Model, kin: Kinematics, v: Array) -> Array:
    """Generalised force (nv,) of the fluid at velocity v (nv,)."""
    at = _places(model, kin, v)
    wrench = -_box_drag(model, at)[0] * at.boxes
    if len(at.geom):
        own = ellipsoids.wrench(_ellipsoids(model, at))
        wrench = jnp.concatenate([wrench, jnp.where(_solid(model, at)[:, None], own, 0.0)])
    torque, force = spatial.apply(at.turn, wrench[:, :3]), spatial.apply(at.turn, wrench[:, 3:])
    about = jnp.concatenate([torque + spatial.cross(at.arm, force), force], -1)
    return (kin.S * mix(model.tree.moves[at.body].T, about)).sum(-1)


def fluid_slope(model: Model, kin: Kinematics, v: Array, *, symmetric: bool = False) -> Array:
    """∂fluid_force/∂v (nv, nv) in closed form; of boxes it is symmetric and negative semidefinite.

    symmetric: of ellipsoids its symmetric part alone, but for bodies that float alone, as MuJoCo's implicitfast.
    """
    tree, S, at = model.tree, kin.S, _places(model, kin, v)
    # rows: local axes as wrenches about the tree's reference point
    axes, boxes = at.turn.mT, len(at.boxes)
    pushes = jnp.concatenate([spatial.cross(at.arm[:, None, :], axes), axes], -1)
    wrenches = jnp.concatenate([jnp.concatenate([axes, jnp.zeros_like(axes)], -1), pushes], 1)
    drag = jnp.einsum("bk,bki,bkj->bij", -_box_drag(model, at)[1], wrenches[:boxes], wrenches[:boxes])
    if len(at.geom):
        own = jnp.where(_solid(model, at)[:, None, None], ellipsoids.slope(_ellipsoids(model, at)), 0.0)
        if symmetric:
            alone = np.any(tree.moves[at.body[boxes:]] & np.isin(tree.dof_body, model.bodies.layout.free), axis=1)
            own = jnp.where(alone[:, None, None], own, (own + own.mT) / 2)
        drag = jnp.concatenate([drag, spatial.compose(wrenches[boxes:].mT, spatial.compose(own, wrenches[boxes:]))])
    composite = jnp.tensordot(tree.moves[at.body].T.astype(v.dtype), drag, 1)
    # the lower one of two dofs moves all that both move
    below = spatial.apply(composite, S) @ S.T
    above = spatial.apply(composite.mT, S) @ S.T if len(at.geom) else below
    return jnp.asarray(tree.anc * above + (tree.strict * below).T)


def fluid_pieces(model: Model, kin: Kinematics, v: Array) -> Array:
    """Which piece (n,) of the force's definition holds: where boxes move along each axis, 0 for at rest."""
    at = _places(model, kin, v)
    return jnp.where(jnp.abs(at.boxes) > 1e-9, jnp.sign(at.boxes), 0).astype(int).ravel()


class _Places(NamedTuple):
    """Where the fluid acts: at the centres of mass of bodies that are boxes, then at geoms that are ellipsoids."""

    body: np.ndarray  # (n,)
    geom: np.ndarray  # those of the ellipsoids
    turn: Array  # (n, 3, 3) own axes in the world
    arm: Array  # (n, 3) from the tree's reference point [m]
    velocity: Array  # (n, 6) [angular; linear] relative to the fluid, in own axes

    @property
    def boxes(self) -> Array:
        """Velocities of the boxes."""
        return self.velocity[: len(self.body) - len(self.geom)]


def _places(model: Model, kin: Kinematics, v: Array) -> _Places:
    geom = model.geoms.layout.ellipsoids
    of_geom = model.geoms.layout.body[geom]
    box = np.setdiff1d(np.arange(model.tree.nb), of_geom)
    turn = pick_rows(spatial.compose(kin.mat, spatial.quat_to_mat(model.bodies.iquat)), box)
    point = pick_rows(kin.com, box)
    if len(geom):
        pos, mat = geom_frames(model, kin)
        turn, point = jnp.concatenate([turn, pick_rows(mat, geom)]), jnp.concatenate([point, pick_rows(pos, geom)])
    body = np.concatenate([box, of_geom])
    V = mix(model.tree.moves[body], kin.S * v[:, None])
    arm = point - pick_rows(kin.ref, model.tree.body_tree[body])
    linear = V[:, 3:] + spatial.cross(V[:, :3], arm) - model.options.wind
    local = jnp.concatenate([spatial.apply(turn.mT, V[:, :3]), spatial.apply(turn.mT, linear)], -1)
    return _Places(body, geom, turn, arm, local)


def _ellipsoids(model: Model, at: _Places) -> Ellipsoids:
    geoms, options, local = model.geoms, model.options, at.velocity[len(at.boxes) :]
    size, of_mesh = pick_rows(geoms.size, at.geom), pick_rows(geoms.fluid_axes, at.geom)
    axes = ellipsoids.semi_axes(tuple(geoms.layout.type[k] for k in at.geom), size, of_mesh)
    fluid, added = pick_rows(geoms.fluid, at.geom), pick_rows(geoms.fluid_inertia, at.geom)
    return Ellipsoids(axes, fluid, added, options.density, options.viscosity, local[:, :3], local[:, 3:])


def _solid(model: Model, at: _Places) -> Array:
    """Ellipsoids (n,) whose bodies have mass."""
    return pick_rows(model.bodies.mass, at.body[len(at.boxes) :]) >= TINY


def _box_drag(model: Model, at: _Places) -> tuple[Array, Array]:
    """Drag of the boxes (n, 6) per component of their local velocity, torques first, and the slope of its force."""
    box = at.body[: len(at.boxes)]
    mass, inertia, options = pick_rows(model.bodies.mass, box), pick_rows(model.bodies.inertia, box), model.options
    solid = mass >= TINY
    rest = jnp.maximum(inertia @ (1 - 2 * np.eye(3)), TINY)  # twice the mass times the mean square along each axis
    size = jnp.sqrt(6 * rest / jnp.where(solid, mass, 1.0)[:, None])
    size = jnp.where(solid[:, None], size, 0.0)
    mean = size.mean(-1, keepdims=True)
    viscous = np.pi * options.viscosity * jnp.repeat(jnp.concatenate([mean**3, 3 * mean], -1), 3, -1)
    after, before = jnp.roll(size, -1, -1), jnp.roll(size, 1, -1)  # the two other sides
    turning = size * (after**4 + before**4) / 64
    quick = at.boxes * jnp.sign(at.boxes)  # whose slope at rest is 0; that of jnp.abs is 1
    quadratic = options.density * jnp.concatenate([turning, 0.5 * after * before], -1) * quick
    return viscous + quadratic, viscous + 2 * quadratic
