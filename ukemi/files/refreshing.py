"""What a compiler derives from a model's other fields, computed again and differentiably."""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.scipy.linalg import cho_solve

from ukemi import values
from ukemi.errors import UnsupportedModelError
from ukemi.files import solids
from ukemi.maths import spatial
from ukemi.mechanics.dynamics import smooth
from ukemi.mechanics.kinematics import kinematics, point_jacobian
from ukemi.mechanics.tendons.paths import tendon_lengths
from ukemi.mechanics.transmissions import transmission
from ukemi.model.checks import check_model
from ukemi.model.geoms import Geoms
from ukemi.model.records import Bodies, Model
from ukemi.model.tree import BALL, FREE
from ukemi.xla.entry import compiled

TINY = 1e-15  # MuJoCo's least mass in a division [kg]


def refresh(model: Model, *, inertias: bool = True) -> Model:
    """The model with its derived fields computed anew from the others, differentiably.

    Bodies that `model.bodies.layout.inferred` marks get mass [kg], centre of mass `ipos` [m], `inertia` and `products`
    [kg m²] from the density [kg/m³], size, pos and quat of their geoms: change those, since changes of such a body's
    own mass are overwritten. All other bodies (inertia given in the file, from a mesh, or loaded from a
    `mujoco.MjModel`) keep mass and inertia as they are, and so do all with `inertias=False`. Then
    `bodies.invweight`, `joints.invweight` and `tendons.invweight`, which scale the softness of constraints, follow from
    the mass matrix at qpos0, as do `actuators.acc0` of muscles, and `tendons.length0` from the way that tendons take
    there. Frames, qpos0, anchors of equality constraints, and `geoms.fluid_axes` and `geoms.fluid_inertia`, which
    derive from shapes, are not touched.

    Args:
        model: the robot, some of whose fields have changed.
        inertias: whether masses and inertias follow from shapes; if not, inverse weights alone are computed.

    Raises:
        UnsupportedModelError: a fluid drags on bodies whose principal axes turn, or would turn with geoms that are
            traced; the drag needs those axes, and they have no derivative where moments are equal.
    """
    check_model(model)
    values.check_flag("refresh", "inertias", inertias)
    if inertias and model.bodies.layout.inferred.any():
        if model.options.layout.fluid:
            _check_drag(model)
        new = _from_geoms(model.geoms, model.bodies)
        model = dataclasses.replace(model, bodies=dataclasses.replace(model.bodies, **new._asdict()))
    found = _inverse_weights(model)
    return dataclasses.replace(
        model,
        bodies=dataclasses.replace(model.bodies, invweight=found.bodies),
        joints=dataclasses.replace(model.joints, invweight=found.joints),
        tendons=dataclasses.replace(model.tendons, invweight=found.tendons, length0=found.lengths),
        actuators=dataclasses.replace(model.actuators, acc0=found.actuators),
    )


# ---- mass and inertia ------------------------------------------------------------------------------------------


class _Inertias(NamedTuple):
    """The fields of `Bodies` that geoms decide on."""

    mass: Array
    ipos: Array
    iquat: Array
    inertia: Array
    products: Array


@compiled
def _from_geoms(geoms: Geoms, bodies: Bodies) -> _Inertias:
    """Inertias of all bodies, the inferred ones from their geoms.

    The axes stay where they are, so that no eigenvectors need differentiating: what the tensor has beside its
    diagonal goes to `products`. A body of one geom has that geom's axes.
    """
    layout, inferred = geoms.layout, bodies.layout.inferred[:, None]
    only = _only_geom(geoms, bodies)
    turn = spatial.quat_normalize(geoms.quat)
    member = solids.membership(layout.body, len(inferred))
    mass, center, second = solids.composed(
        layout.type, member, geoms.size, geoms.pos, spatial.quat_to_mat(turn), geoms.density
    )
    alone = (only >= 0)[:, None]
    iquat = jnp.where(alone, turn[only], bodies.iquat)
    axes = spatial.quat_to_mat(spatial.quat_normalize(iquat))
    local = spatial.compose(spatial.compose(axes.mT, second), axes)
    square = local[:, [0, 1, 2], [0, 1, 2]]
    inertia = square.sum(-1, keepdims=True) - square
    products = jnp.where(alone, 0.0, -local[:, [0, 0, 1], [1, 2, 2]])
    return _Inertias(
        jnp.where(inferred[:, 0], mass, bodies.mass),
        jnp.where(inferred, center, bodies.ipos),
        iquat,
        jnp.where(inferred, inertia, bodies.inertia),
        jnp.where(inferred, products, bodies.products),
    )


def _only_geom(geoms: Geoms, bodies: Bodies) -> np.ndarray:
    """(nb,) the solid geom of each inferred body that has one alone, -1 for the others."""
    solid = np.array([solids.SOLIDS[kind].volume > 0 for kind in geoms.layout.type])
    own = (np.arange(len(bodies.layout.inferred))[:, None] == geoms.layout.body) & solid
    return np.where(bodies.layout.inferred & (own.sum(1) == 1), own.argmax(1), -1)


def _check_drag(model: Model) -> None:
    """Refuse bodies in a fluid whose axes `iquat` are not, or may not stay, their principal axes."""
    geoms, bodies = model.geoms, model.bodies
    turned = bodies.layout.inferred & (_only_geom(geoms, bodies) < 0)
    turned[geoms.layout.body[geoms.layout.ellipsoids]] = False  # which the fluid presses on in their own axes
    leaves = (geoms.size, geoms.pos, geoms.quat, geoms.density, bodies.iquat)
    if not any(isinstance(leaf, Tracer) for leaf in leaves):
        size, pos, quat, density, axes = (np.asarray(leaf, np.float64) for leaf in leaves)
        second = solids.in_axes(geoms.layout.type, geoms.layout.body, size, pos, quat, density, axes)[2]
        turned &= ~solids.is_diagonal(second)
    if turned.any():
        raise UnsupportedModelError(
            [
                f"body '{model.tree.body_names[b]}': the fluid drags along its principal axes, which several geoms "
                "may turn; `refresh(model, inertias=False)` leaves all inertias alone"
                for b in np.nonzero(turned)[0]
            ],
            source=f"refresh of '{model.name}'",
        )


# ---- inverse weights -------------------------------------------------------------------------------------------


class _Weights(NamedTuple):
    """Inverse weights at qpos0, and what else is known there."""

    bodies: Array  # (nb, 2)
    joints: Array  # (nv,)
    tendons: Array  # (nt,)
    lengths: Array  # (nt,) of tendons
    actuators: Array  # (nu,) acceleration by a unit force


@compiled
def _inverse_weights(model: Model) -> _Weights:
    """Inverse weights as MuJoCo's mj_setConst has them at qpos0.

    Of a body: the mean over directions of J M⁻¹ Jᵀ at its centre of mass, for translation [1/kg] and rotation
    [1/(kg m²)]. Of a dof: the mean of M⁻¹'s diagonal over the translations or rotations of its joint. Of a tendon:
    J M⁻¹ Jᵀ. Of an actuator: |M⁻¹ Jᵀ|.
    """
    tree, q = model.tree, model.joints.qpos0
    if not tree.nv:
        still = model.tendons.invweight, model.tendons.length0, model.actuators.acc0
        return _Weights(jnp.zeros_like(model.bodies.invweight), jnp.zeros_like(model.joints.invweight), *still)
    kin = kinematics(model, q)
    factor = jnp.linalg.cholesky(smooth(model, kin, jnp.zeros(tree.nv, q.dtype)).M)
    inverse = cho_solve((factor, True), jnp.eye(tree.nv, dtype=q.dtype))
    J = point_jacobian(tree, kin, np.arange(tree.nb), kin.com)
    weight = ((J @ inverse) * J).sum(-1)
    bodies = jnp.stack([weight[:, 3:].mean(-1), weight[:, :3].mean(-1)], -1)
    joints = _joint_mean(model).astype(q.dtype) @ jnp.diagonal(inverse)
    # MuJoCo takes 1/mass where a body only slides along its own axes, and does not average over three directions.
    slides = model.bodies.layout.sliding
    plain = 1 / jnp.maximum(jnp.where(slides, model.bodies.mass, 1.0), TINY)
    bodies = jnp.where(slides[:, None], jnp.stack([plain, jnp.zeros_like(plain)], -1), bodies)
    joints = jnp.where(slides[tree.dof_body], plain[tree.dof_body], joints)
    length, moment = tendon_lengths(model, kin, q)
    acc0 = model.actuators.acc0
    if model.actuators.layout.count:
        moved = transmission(model, kin, q)[1][model.actuators.layout.output]
        acc0 = spatial.safe_norm(moved @ inverse)
    return _Weights(bodies, joints, ((moment @ inverse) * moment).sum(-1), length, acc0)


def _joint_mean(model: Model) -> np.ndarray:
    """Matrix (nv, nv) that averages over the translations or the rotations of each joint."""
    tree = model.tree
    joint, kind = tree.dof_joint, tree.joint_type[tree.dof_joint]
    turns = (kind == BALL) | ((kind == FREE) & (tree.dof_axis >= 3))
    same = (joint[:, None] == joint) & (turns[:, None] == turns)
    return same / same.sum(1, keepdims=True)
