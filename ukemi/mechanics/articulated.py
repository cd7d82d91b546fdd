"""Mass matrices of long chains, solved along the tree by articulated inertias (Featherstone), in O(n).

Entries are Sᵢ · 𝕀 S⁺ⱼ with 𝕀 the sum over what both dofs move, as in `variational.chord_inertia`: two motion subspaces,
and inertias that need not be symmetric. Dofs of one joint follow each other like links without mass.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.maths import spatial
from ukemi.maths.gathers import mix, pick_rows
from ukemi.model.tree import Tree

LONG = 64  # dofs from which on this beats a dense system on XLA's CPU backend (docs/hard_contact.md)


class Articulated(NamedTuple):
    """Such a matrix."""

    tree: Tree
    S: Array  # (nv, 6) along which forces are taken
    ahead: Array  # (nv, 6) S⁺
    inertia: Array  # (nv, 6, 6) of the bodies that each dof is the last to move
    added: Array  # (nv,) what the diagonal has besides

    @staticmethod
    def of(tree: Tree, S: Array, ahead: Array, pseudo: Array, added: Array) -> "Articulated":
        """Of bodies whose Σ m x⁺ xᵀ are `pseudo` (nb, 16)."""
        own = [np.nonzero(tree.body_dof == k)[0] for k in range(tree.nv)]
        total = jnp.zeros((tree.nv, 16), pseudo.dtype)
        for turn in range(max(map(len, own), default=0)):  # mostly one body per dof, or none
            has = np.array([len(bodies) > turn for bodies in own])
            which = np.array([bodies[turn] if len(bodies) > turn else 0 for bodies in own])
            total = total + jnp.where(has[:, None], pick_rows(pseudo, which), 0.0)
        return Articulated(tree, S, ahead, spatial.spatial_inertia(spatial.materialize(total)), added)

    def plus(self, diagonal: Array) -> "Articulated":
        """With more (nv,) on the diagonal."""
        return self._replace(added=self.added + diagonal)

    def dense(self) -> Array:
        """All entries (nv, nv)."""
        tree, whole = self.tree, mix(_below(self.tree), self.inertia)
        back, momentum = spatial.apply(whole.mT, self.S), spatial.apply(whole, self.ahead)
        out = tree.anc * (back @ self.ahead.T) + tree.strict.T * (self.S @ momentum.T)
        return jnp.asarray(out) + jnp.diag(self.added)

    def factored(self) -> Callable[[Array], Array]:
        """b (nv,) ↦ M⁻¹ b."""
        above, n = _above(self.tree), self.tree.nv
        order, dtype = np.arange(n), self.S.dtype

        def inwards(whole, dof):
            k, up, s, ahead, own, added = dof
            here = whole[k] + own
            right, left = spatial.apply(here, ahead), spatial.apply(here.T, s)
            size = (s * right).sum() + added
            rest = whole[up] + here - right[:, None] * left / size
            return lax.dynamic_update_index_in_dim(whole, rest, up, 0), (left, right, size)

        links = order, above, self.S, self.ahead, self.inertia, self.added
        left, right, size = lax.scan(inwards, jnp.zeros((n + 1, 6, 6), dtype), links, reverse=True)[1]

        def solve(b: Array) -> Array:
            def gather(past, dof):
                k, up, s, right, size, b = dof
                rest = (b - (s * past[k]).sum()) / size
                return lax.dynamic_update_index_in_dim(past, past[up] + past[k] + right * rest, up, 0), rest

            def spread(motion, dof):
                k, up, ahead, left, size, rest = dof
                x = rest - (left * motion[up]).sum() / size
                return lax.dynamic_update_index_in_dim(motion, motion[up] + ahead * x, k, 0), x

            none = jnp.zeros((n + 1, 6), dtype)
            rest = lax.scan(gather, none, (order, above, self.S, right, size, b), reverse=True)[1]
            return lax.scan(spread, none, (order, above, self.ahead, left, size, rest))[1]

        return solve


def _above(tree: Tree) -> np.ndarray:
    """(nv,) the dof that each hangs on, one by one; nv: none."""
    before = [np.nonzero(row[:k])[0] for k, row in enumerate(tree.anc)]
    return np.array([dofs[-1] if len(dofs) else tree.nv for dofs in before], np.int32)


def _below(tree: Tree) -> np.ndarray:
    """(nv, nv) 0/1: the bodies that dof j is the last to move are among those that dof i moves."""
    last = np.where(tree.body_dof >= 0, tree.body_dof, 0)
    out = np.zeros((tree.nv, tree.nv), bool)
    for body in range(tree.nb):
        out[:, last[body]] |= tree.moves[body].astype(bool) & (tree.body_dof[body] >= 0)
    return out
