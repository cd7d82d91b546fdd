"""Newton's step on many imbalances at once against the same on one after the other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ukemi.laws.conic import newton, packed
from ukemi.laws.conic.cones import Cones, Layout, Products
from ukemi.laws.conic.unknowns import Asked, Imbalance

H, NV, HOLD, MANY = 40, 9, 2, 7


def scene(counting: int):
    """A system of H heads that bound a cone each, of which `counting` count, wherever these are; and imbalances."""
    rng = np.random.default_rng(counting)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape))  # noqa: E731
    size = lambda *shape: jnp.asarray(rng.uniform(0.5, 2.0, shape))  # noqa: E731
    rows = np.arange(3 * H).reshape(H, 3)
    layout = Layout(rows[:, 0], np.ones(H), rows[:, 1:], np.arange(H), 0, 0, True)
    gamma, on = size(H), jnp.asarray(rng.permutation(H) < counting)
    inner = lambda x: 0.5 * x / (1 + jnp.linalg.norm(x, axis=-1, keepdims=True))  # noqa: E731
    cones = Cones(gamma, size(H), gamma[:, None] * inner(draw(H, 2)), jnp.ones(H), inner(draw(H, 2)))
    asked = Asked(*(jnp.zeros(H) for _ in range(6)), 1e-3 * size(H), 1e-3 * size(HOLD), (gamma, gamma), -1e-3 * size(H))
    gap, slip, held = draw(H, NV), draw(H, 2, NV), draw(HOLD, NV)
    slopes = newton.Slopes(gap, slip, held, gap, slip, held)
    root = draw(NV, NV)
    system = newton.system(layout, cones, gamma, asked, (on, on), root @ root.T + jnp.eye(NV), slopes)
    there = on[:, None]
    slack, first = (jnp.where(there, draw(H, MANY), 0.0) for _ in range(2))
    slip = jnp.where(there[:, None], draw(H, 2, MANY), 0.0)
    off = Imbalance(draw(NV, MANY), draw(HOLD, MANY), slack, slip, Products(first, slack, jnp.zeros_like(slip)))
    return system, off


@pytest.mark.parametrize("counting", [0, 5, packed.FEW, packed.FEW + 1, H])
def test_rows_that_count_are_all_there_is(counting):
    system, off = scene(counting)
    one = newton.solver(system, refined=True)
    expected = jax.vmap(lambda off: one(off)[0].v, in_axes=-1, out_axes=-1)(off)
    found = packed.velocities(system, off)
    np.testing.assert_allclose(found, expected, atol=1e-12 * (1 + np.abs(expected).max()))


@pytest.mark.slow
def test_worlds_in_a_batch():
    scenes = [scene(counting) for counting in (5, 20)]
    layout = scenes[0][0].layout
    systems, offs = jax.tree.map(lambda *x: jnp.stack(x), *((s._replace(layout=None), off) for s, off in scenes))
    batch = jax.vmap(lambda s, off: packed.velocities(s._replace(layout=layout), off))(systems, offs)
    alone = [packed.velocities(*scene) for scene in scenes]
    np.testing.assert_allclose(batch, alone, atol=1e-12)
