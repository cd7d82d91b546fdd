"""Maximal coordinates: the poses and velocities of all bodies, to and from those of the joints (Dojo, III).

A velocity is the mean one of the step that led to a pose, so that the pose before, and with it the state of the joints,
is found again exactly.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from ukemi.maths import spatial
from ukemi.maths.gathers import pick_rows
from ukemi.mechanics.kinematics import difference, integrate, kinematics, relative_poses
from ukemi.mechanics.variational import before
from ukemi.model.records import Model

ROUNDS = 30  # of Newton's method; one joint per body needs one
CLOSE = {"float64": 1e-10, "float32": 1e-4}  # [m] and [rad] by which poses may miss those that the joints allow


class MaximalState(eqx.Module):
    """Poses and velocities of all bodies."""

    pos: Float[Array, "nb 3"]  # centres of mass [m]
    quat: Float[Array, "nb 4"]  # orientations
    velocity: Float[Array, "nb 3"]  # of the centres of mass, mean over the step that led here [m/s]
    spin: Float[Array, "nb 3"]  # turn of that step per time, in the body's axes [rad/s]


def to_maximal(model: Model, q: Array, v: Array) -> MaximalState:
    """Bodies at joint coordinates q that were reached at v."""
    h = model.options.timestep
    now, then = kinematics(model, q), before(model, q, v, h, None)
    turn = spatial.quat_log(spatial.mat_to_quat(spatial.compose(then.mat.mT, now.mat)))
    return MaximalState(now.com, now.quat, (now.com - then.com) / h, turn / h)


def to_minimal(model: Model, bodies: MaximalState, near: Array) -> tuple[Array, Array, Array]:
    """Joint coordinates q (nq,), on the branch nearest to `near`, velocities v (nv,), and whether joints allow them."""
    h = model.options.timestep
    quat = spatial.quat_normalize(bodies.quat)
    earlier = spatial.quat_mul(quat, spatial.quat_exp(-h * bodies.spin))
    q, fits = _coordinates(model, bodies.pos, quat, near)
    then, fitted = _coordinates(model, bodies.pos - h * bodies.velocity, earlier, lax.stop_gradient(q))
    return q, difference(model.tree, q, then) / h, fits & fitted


def _coordinates(model: Model, com: Array, quat: Array, near: Array) -> tuple[Array, Array]:
    """q (nq,) at which the bodies are at these poses, by Newton's method on each body against its parent."""
    mat = spatial.quat_to_mat(quat)
    X = spatial.pose(mat, com - spatial.apply(mat, model.bodies.ipos))
    up = pick_rows(X, model.tree.body_parent)
    back = spatial.apply(up[:, :3, :3].mT, X[:, :3, 3] - up[:, :3, 3])
    wanted = spatial.pose(spatial.compose(up[:, :3, :3].mT, mat), back)
    placed = (model.tree.body_mocap < 0)[:, None] & (np.arange(model.tree.nb) > 0)[:, None]

    def off(wanted: Array, q: Array) -> Array:
        """How far bodies are from where they should be (nb, 6), in their own axes."""
        L = relative_poses(model, q, None, None)[-1]
        turn = spatial.quat_log(spatial.mat_to_quat(spatial.compose(L[:, :3, :3].mT, wanted[:, :3, :3])))
        shift = spatial.apply(L[:, :3, :3].mT, wanted[:, :3, 3] - L[:, :3, 3])
        return jnp.where(placed, jnp.concatenate([turn, shift], -1), 0.0)

    def improved(wanted: Array, q: Array) -> Array:
        slope = jax.jacfwd(lambda d: off(wanted, integrate(model.tree, q, d, 1.0)))(jnp.zeros(model.nv, q.dtype))
        J = slope.reshape(-1, model.nv)
        return integrate(model.tree, q, -jnp.linalg.solve(J.T @ J, J.T @ off(wanted, q).ravel()), 1.0)

    held, close = lax.stop_gradient(wanted), CLOSE[near.dtype.name]

    def far(q: Array) -> Array:
        return jnp.abs(off(held, q)).max(initial=0.0)

    _, q = lax.while_loop(
        lambda carry: (carry[0] < ROUNDS) & (far(carry[1]) > 1e-3 * close),
        lambda carry: (carry[0] + 1, improved(held, carry[1])),
        (np.int32(0), lax.stop_gradient(near)),
    )
    # once more, as a function of the poses: at a solution that is the derivative of the solution
    return improved(wanted, q), far(q) < close
