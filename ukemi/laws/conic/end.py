"""Where a step of given velocities ends."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ukemi.constraints.block import Block, Frame
from ukemi.constraints.rows import scalar_blocks
from ukemi.laws.here import Here
from ukemi.maths import spatial
from ukemi.mechanics.kinematics import integrate, kinematics, velocities
from ukemi.model.tree import Tree


def frame_after(here: Here, v: Array, duration: Array, contacts_at) -> Frame:
    """What rows are made from at q ⊕ h v; contacts_at: function of the kinematics there."""
    model, inputs = here.model, here.inputs
    q = integrate(model.tree, here.q, v, duration)
    kin = kinematics(model, q, inputs.mocap_pos, inputs.mocap_quat)
    return Frame(model, kin, velocities(model.tree, kin.S, v), q, v, contacts_at(kin))


def blocks_of(frame: Frame) -> list[Block]:
    """The rows that are not contacts, kind by kind."""
    return scalar_blocks(frame, together=True)


class Across(NamedTuple):
    """∂(tangent at q ⊕ h v)/∂(h v): J_r of rotations, else one."""

    tree: Tree
    turn: Array | None  # (n, 3, 3) J_r of the joints that turn freely; None: one

    @staticmethod
    def of(tree: Tree, v: Array, duration: Array) -> "Across":
        """Over a step at v."""
        return Across(tree, spatial.right_jacobian(duration * v[tree.quat_dof]))

    def rows(self, J: Array) -> Array:
        """Rows (..., nv) of Jacobians at the end as those of velocities."""
        if self.turn is None:
            return J
        dofs = self.tree.quat_dof
        for k in range(len(dofs)):
            first = int(dofs[k, 0])
            part = spatial.materialize((J[..., first : first + 3, None] * self.turn[k]).sum(-2))
            J = jnp.concatenate([J[..., :first], part, J[..., first + 3 :]], -1)
        return J

    def rates(self, v: Array) -> Array:
        """Velocities (nv,) as seen at the end."""
        return v if self.turn is None else Across(self.tree, self.turn.mT).rows(v)
