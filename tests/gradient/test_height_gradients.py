"""Contacts of height fields against central differences: in poses, sizes, elevations and the field's base."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes import terrain
from tests.scenes.slow import few
from ukemi.collide.detect import detect
from ukemi.errors import InputError
from ukemi.mechanics.kinematics import integrate, kinematics


def shifted(model, q, shift, size, data, base):
    heights = dataclasses.replace(model.heights, data=model.heights.data + data, base=model.heights.base + base)
    geoms = dataclasses.replace(model.geoms, size=model.geoms.size + size)
    model = dataclasses.replace(model, geoms=geoms, heights=heights)
    found = detect(model, kinematics(model, integrate(model.tree, q, shift, 1.0)))
    values = jnp.concatenate([found.distance[:, None], found.point, found.frame.reshape(-1, 9)], -1)
    return jnp.where(found.active[:, None], values, 0.0), (found.names, found.features)


known = jax.jit(shifted)


@jax.jit
def backward(model, q, on, along):
    zero = jax.tree.map(jnp.zeros_like, along)
    return jax.vjp(lambda *shift: shifted(model, q, *shift)[0], *zero)[1](on)


@pytest.mark.parametrize("kind", few(terrain.SHAPES, "box"))
def test_contacts_follow_the_ground(kind):
    """What contacts pull on, where the features that touch stay the same."""
    rng, h, compared = np.random.default_rng(3), 1e-5, 0
    m, model = terrain.scene((kind,))
    shapes = (model.nv,), model.geoms.size.shape, model.heights.data.shape, model.heights.base.shape
    for _ in range(40):
        q = jnp.asarray(terrain.above(rng, m, kind))
        q = q.at[2].add(-0.1 * (rng.random() < 0.2))  # deep ones, too
        along = tuple(jnp.asarray(rng.normal(size=shape)) for shape in shapes)
        at = [known(model, q, *(k * h * x for x in along)) for k in (-2, -1, 0, 1, 2)]
        if any(not all((x == y).all() for x, y in zip(each[1], at[2][1])) for each in at):
            continue  # what touches changes
        slope = (8 * (at[3][0] - at[1][0]) - (at[4][0] - at[0][0])) / (12 * h)
        on = jnp.asarray(rng.normal(size=slope.shape)) * (jnp.abs(at[2][0]) > 0)
        pulled = backward(model, q, on, along)
        for x in pulled:
            assert jnp.isfinite(x).all()
        dot = sum((x * y).sum() for x, y in zip(pulled, along, strict=True))
        np.testing.assert_allclose(dot, (on * slope).sum(), atol=1e-6 * (1 + float(jnp.abs(slope).max())))
        compared += int(jnp.abs(slope).max() > 0)
    assert compared >= 8


LAWS = {
    "Soft": uk.Soft(),
    "Soft elliptic": uk.Soft(cone="elliptic"),
    "LCP": uk.LCP(),
    "NCP": uk.NCP(),
    "Maximal": uk.Maximal(),
    "Adaptive": uk.Adaptive(),
}


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_elevations_have_the_derivative_of_a_step(law):
    """A ball that touches hills: ∂v⁺ along elevations, forwards, backwards and by differences."""
    m, model = terrain.scene(("sphere",))
    rng = np.random.default_rng(5)
    q = terrain.resting(rng, m, model, "sphere", 1e-4)
    state = uk.initial_state(model, q=q, v=[0.3, 0.1, -0.2, 1, 0, 0])
    way = jnp.asarray(rng.normal(size=model.heights.data.shape))

    def after(shift):
        heights = dataclasses.replace(model.heights, data=model.heights.data + shift * way)
        return uk.step(dataclasses.replace(model, heights=heights), state, None, LAWS[law]).v

    look = jax.jit(after)
    h = 1e-6
    slope = (look(h) - look(-h)) / (2 * h)
    forward = jax.jit(jax.jacfwd(after))(0.0)
    assert jnp.abs(slope).max() > 0.1
    scale = float(jnp.abs(slope).max())
    np.testing.assert_allclose(forward, slope, atol=2e-6 * scale)
    on = jnp.asarray(rng.normal(size=model.nv))
    pulled = jax.jit(jax.grad(lambda shift: (on * after(shift)).sum()))(0.0)
    np.testing.assert_allclose(pulled, on @ forward, atol=1e-8 * scale)


@pytest.mark.slow
def test_contacts_from_a_distance_feel_the_hills():
    """`uk.FromDistance`: a ball above hills has a derivative in the elevations beneath it."""
    m, model = terrain.scene(("sphere",))
    q = terrain.resting(np.random.default_rng(5), m, model, "sphere", 1e-3)
    frame = np.asarray(terrain.contacts(model, q).frame)[0, 0]
    while terrain.contacts(model, q).active.any():
        q[:3] += 0.005 * frame
    state = uk.initial_state(model, q=q)

    @jax.jit
    def after(data):
        new = dataclasses.replace(model, heights=dataclasses.replace(model.heights, data=data))
        return uk.step(new, state, None, uk.Soft(gradient=uk.FromDistance(width=0.02))).v[2]

    slope = jax.grad(after)(model.heights.data)
    assert jnp.isfinite(slope).all() and (slope != 0).any()


def test_what_has_no_height_fields_says_so():
    _, model = terrain.scene(("sphere",))
    with pytest.raises(InputError, match="Impact.*height field"):
        uk.step(model, uk.initial_state(model), None, uk.Impact())
    with pytest.raises(InputError, match="smooth_collisions.*height field"):
        uk.smooth_collisions(model, 0.01)
