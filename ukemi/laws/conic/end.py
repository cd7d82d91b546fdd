"""Where a step of given velocities ends."""

from jax import Array

from ukemi.constraints.block import Block, Frame
from ukemi.constraints.rows import scalar_blocks
from ukemi.laws.here import Here
from ukemi.mechanics.kinematics import integrate, kinematics, velocities


def frame_after(here: Here, v: Array, duration: Array, contacts_at) -> Frame:
    """What rows are made from at q ⊕ h v; contacts_at: function of the kinematics there."""
    model, inputs = here.model, here.inputs
    q = integrate(model.tree, here.q, v, duration)
    kin = kinematics(model, q, inputs.mocap_pos, inputs.mocap_quat)
    return Frame(model, kin, velocities(model.tree, kin.S, v), q, v, contacts_at(kin))


def blocks_of(frame: Frame) -> list[Block]:
    """The rows that are not contacts, kind by kind."""
    return scalar_blocks(frame, together=True)
