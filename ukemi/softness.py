"""Choices of contact softness that suit derivatives."""

import dataclasses

from ukemi.constraint import MIN_IMPEDANCE
from ukemi.model import Model


def smooth_onset(model: Model) -> Model:
    """The model with contact and limit forces that set in from (nearly) zero.

    MuJoCo's default impedance is 0.9 already where bodies touch, so that the damping of a fast contact acts all at
    once and velocities have a kink in the state. Here the impedance d₀ at touching is the least that MuJoCo knows,
    1e-4: the force still jumps, by a ten-thousandth of what it did. It rises to its full value over the width in
    `solimp`, as before; steady penetration grows by a fraction of that width.
    """

    def lowered(solimp):
        return solimp.at[..., 0].set(MIN_IMPEDANCE)

    return dataclasses.replace(
        model,
        geoms=dataclasses.replace(model.geoms, solimp=lowered(model.geoms.solimp)),
        pairs=dataclasses.replace(model.pairs, solimp=lowered(model.pairs.solimp)),
        joints=dataclasses.replace(model.joints, solimp_limit=lowered(model.joints.solimp_limit)),
    )
