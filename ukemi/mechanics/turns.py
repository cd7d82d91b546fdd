"""How the pose q ⊕ h v moves, as a tangent vector there, with q and with h v: one, but for what turns freely.

δ⁺ = C δ + T δ(h v)    with blocks R(h ω)ᵀ in C and J_r(h ω) in T
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial
from ukemi.maths.gathers import pick, placed
from ukemi.model.tree import Tree


class Turns(NamedTuple):
    """A matrix (nv, nv) that turns the tangent vectors of what turns freely, and leaves all others."""

    tree: Tree
    turn: Array | None  # (n, 3, 3); None: leaves these, too

    def rows(self, J: Array) -> Array:
        """J X of rows J (..., nv) and this matrix X."""
        if self.turn is None or not len(self.turn):
            return J
        dofs = self.tree.quat_dof
        turned = spatial.materialize((pick(J, dofs)[..., None] * self.turn).sum(-2))
        return placed(J, dofs, turned)

    def columns(self, J: Array) -> Array:
        """X J of columns J (nv, ...)."""
        return J if self.turn is None else jnp.moveaxis(self.transposed().rows(jnp.moveaxis(J, 0, -1)), -1, 0)

    def transposed(self) -> "Turns":
        """Xᵀ."""
        return self if self.turn is None else Turns(self.tree, self.turn.mT)

    def dense(self, dtype) -> Array:
        """X (nv, nv)."""
        eye = np.eye(self.tree.nv, dtype=dtype)
        if self.turn is None or not len(self.turn):
            return jnp.asarray(eye)
        return spatial.with_blocks(eye, self.tree.quat_dof, self.turn)


def integrate_slopes(tree: Tree, v: Array, h) -> tuple[Turns, Turns]:
    """C and T."""
    back = spatial.quat_conj(spatial.quat_exp(h * v[tree.quat_dof]))
    return Turns(tree, spatial.quat_to_mat(back)), slopes_in_velocity(tree, v, h)


def slopes_in_velocity(tree: Tree, v: Array, h) -> Turns:
    """T."""
    return Turns(tree, spatial.right_jacobian(h * v[tree.quat_dof]))
