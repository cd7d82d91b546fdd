"""How the pose q ⊕ h v moves, as a tangent vector there, with q and with h v: one, but for what turns freely.

δ⁺ = C δ + T δ(h v)    with blocks R(h ω)ᵀ in C and J_r(h ω) in T
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.maths import spatial
from ukemi.model.tree import Tree


class Turns(NamedTuple):
    """A matrix (nv, nv) that turns the tangent vectors of what turns freely, and leaves all others."""

    tree: Tree
    turn: Array | None  # (n, 3, 3); None: leaves these, too

    @staticmethod
    def of_start(tree: Tree, v: Array, duration: Array) -> "Turns":
        """C."""
        return Turns(tree, spatial.quat_to_mat(spatial.quat_conj(spatial.quat_exp(duration * v[tree.quat_dof]))))

    @staticmethod
    def of_velocity(tree: Tree, v: Array, duration: Array) -> "Turns":
        """T."""
        return Turns(tree, spatial.right_jacobian(duration * v[tree.quat_dof]))

    def rows(self, J: Array) -> Array:
        """J X of rows J (..., nv) and this matrix X."""
        if self.turn is None or not len(self.turn):
            return J
        parts, end = [], 0
        for k, (first, *_) in enumerate(self.tree.quat_dof.tolist()):
            turned = spatial.materialize((J[..., first : first + 3, None] * self.turn[k]).sum(-2))
            parts, end = [*parts, J[..., end:first], turned], first + 3
        return jnp.concatenate([*parts, J[..., end:]], -1)

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
