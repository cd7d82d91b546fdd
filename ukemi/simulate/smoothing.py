"""Models whose motion is smoother in the state than the file's, for those who plan or learn through contact."""

import dataclasses

import jax.numpy as jnp

from ukemi import values
from ukemi.collide.primitives import is_ground
from ukemi.constraints.softness import MIN_IMPEDANCE
from ukemi.errors import InputError
from ukemi.model.checks import check_model
from ukemi.model.records import Model


def smooth_collisions(model: Model, width: float) -> Model:
    """The model with contact points that move smoothly where collision detection changes from case to case.

    MuJoCo chooses: which corners of a box face a plane, which rim point of a cylinder is the lowest, whether capsules
    are parallel, whether a capsule's side or end is nearest. Within `width` [m] of such a change the points of both
    sides are interpolated, with two continuous derivatives; elsewhere they are MuJoCo's. This changes the motion, too:
    by less, the smaller the width. Meshes keep MuJoCo's choices, and models with height fields are refused. `uk.Impact`
    searches for impacts of the shapes themselves and does not use it.
    """
    check_model(model)
    if any(is_ground(group) for group in model.pairs.layout.groups):
        raise InputError(
            "smooth_collisions: this model has a height field that shapes may touch, whose contacts come and go with "
            "the cells beneath; there is no smooth form of them"
        )
    values.check_number("smooth_collisions", "width", width, lambda x: x > 0, "must be a positive distance [m]")
    pairs = dataclasses.replace(model.pairs.layout, smoothing=float(width))
    return dataclasses.replace(model, pairs=dataclasses.replace(model.pairs, layout=pairs))


def smooth_onset(model: Model) -> Model:
    """The model with contact and limit forces that set in from (nearly) zero.

    MuJoCo's default impedance is 0.9 already where bodies touch, so that the damping of a fast contact acts all at
    once and velocities have a kink in the state. Here the impedance d₀ at touching is the least that MuJoCo knows,
    1e-4: the force still jumps, by a ten-thousandth of what it did. It rises to its full value over the width in
    `solimp`, as before; steady penetration grows by a fraction of that width.
    """
    check_model(model)

    def lowered(solimp):
        return jnp.asarray(solimp).at[..., 0].set(MIN_IMPEDANCE)

    return dataclasses.replace(
        model,
        geoms=dataclasses.replace(model.geoms, solimp=lowered(model.geoms.solimp)),
        pairs=dataclasses.replace(model.pairs, solimp=lowered(model.pairs.solimp)),
        joints=dataclasses.replace(model.joints, solimp_limit=lowered(model.joints.solimp_limit)),
    )
