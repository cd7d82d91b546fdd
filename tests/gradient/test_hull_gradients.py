"""Contacts of meshes against central differences: in poses, in sizes, and in the meshes' own corners."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes import hulls as scenes
from tests.scenes.slow import few
from ukemi.collide.detect import detect
from ukemi.collide.hulls import features
from ukemi.collide.hulls.contact import Posed, contact
from ukemi.mechanics.kinematics import integrate, kinematics

# unlike a cube's, faces whose corners need not stay in one plane
CORNERS = scenes.cloud(np.random.default_rng(3), 30)
FEW = ("cylinder", "mesh")


@functools.cache
def scene(few: bool):
    """Of a few kinds or all; MuJoCo's model and ours."""
    m = scenes.scene(np.random.default_rng(1), CORNERS, FEW if few else tuple(scenes.SHAPES))
    return m, uk.load(m)


def shifted(model, q, shift, size, vertices):
    geoms = dataclasses.replace(model.geoms, size=model.geoms.size + size, vertices=model.geoms.vertices + vertices)
    model = dataclasses.replace(model, geoms=geoms)
    return detect(model, kinematics(model, integrate(model.tree, q, shift, 1.0)))


@jax.jit
def known(model, q, *shift):
    found = shifted(model, q, *shift)
    values = jnp.concatenate([found.distance[:, None], found.point, found.frame.reshape(-1, 9)], -1)
    return jnp.where(found.active[:, None], values, 0.0), found.names, found.features


@jax.jit
def backward(model, q, on, along):
    zero = jax.tree.map(jnp.zeros_like, along)
    return jax.vjp(lambda *shift: known(model, q, *shift)[0], *zero)[1](on)


def directions(rng, model, which: str):
    shapes = [(model.nv,), model.geoms.size.shape, model.geoms.vertices.shape]
    names = ("pose", "size", "vertices")
    scale = (1.0, 1.0, 0.1)
    made = (rng.normal(size=s) * k if which == n else np.zeros(s) for s, n, k in zip(shapes, names, scale))
    return tuple(jnp.asarray(x) for x in made)


@pytest.mark.parametrize("which", ["pose", "size", "vertices"])
@pytest.mark.parametrize("kind", few(scenes.SHAPES, *FEW))
def test_contacts_follow_their_shapes(kind, which):
    """What contacts pull on, where the features that touch stay the same."""
    rng, h, compared = np.random.default_rng(len(kind)), 1e-5, 0
    m, model = scene(kind in FEW)
    for _ in range(30):
        q = jnp.asarray(scenes.meeting(rng, m, kind, rng.random() < 0.6))
        along = directions(rng, model, which)
        at = [known(model, q, *(k * h * x for x in along)) for k in (-2, -1, 0, 1, 2)]
        if any(not (x[1] == at[2][1]).all() or not (x[2] == at[2][2]).all() for x in at):
            continue  # what touches changes
        slope = (8 * (at[3][0] - at[1][0]) - (at[4][0] - at[0][0])) / (12 * h)
        on = jnp.asarray(rng.normal(size=slope.shape)) * (jnp.abs(at[2][0]) > 0)
        pulled = backward(model, q, on, along)
        dot = sum((x * y).sum() for x, y in zip(pulled, along, strict=True))
        np.testing.assert_allclose(dot, (on * slope).sum(), atol=1e-5 * (1 + float(jnp.abs(slope).max())))
        compared += int((jnp.abs(slope).max(-1) > 0).any())
        if compared == 6:
            return
    assert compared >= 4


@pytest.mark.slow
def test_forwards_and_backwards_agree():
    rng = np.random.default_rng(0)
    m, model = scene(False)

    @jax.jit
    def push(model, q, along):
        zero = jax.tree.map(jnp.zeros_like, along)
        return jax.jvp(lambda *shift: known(model, q, *shift)[0], zero, along)[1]

    for kind in scenes.SHAPES:
        q = jnp.asarray(scenes.meeting(rng, m, kind, False))
        along = tuple(sum(x) for x in zip(*(directions(rng, model, which) for which in ("pose", "size", "vertices"))))
        pushed = push(model, q, along)
        on = jnp.asarray(rng.normal(size=pushed.shape)) * (jnp.abs(pushed) > 0)
        dot = sum((x * y).sum() for x, y in zip(backward(model, q, on, along), along, strict=True))
        np.testing.assert_allclose(dot, (on * pushed).sum(), rtol=1e-9)


@pytest.mark.parametrize("case", [features.POINT_ON_A, features.EDGES])
@pytest.mark.parametrize("size", [1.0, 1e-4])
def test_normals_of_small_faces_turn_in_single_precision(case, size):
    """A face with edges of a tenth of a millimetre, and two such edges that cross, turn with their shape."""
    face = size * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], np.float32)
    other = size * np.array([[0.5, -1, 0.01], [0.5, 1, 0.01], [0.5, 1, 0.01]], np.float32)
    none, up = jnp.zeros(3, jnp.float32), jnp.array([0.0, 0, 1], jnp.float32)

    def normal(turn):
        A = face + jnp.cross(turn * jnp.array([0.0, 1, 0], jnp.float32), face)
        sides = (Posed(x, none, x[0], jnp.float32(0)) for x in (A, jnp.asarray(other)))
        return contact(jnp.int32(case), *sides, up)[2]

    np.testing.assert_allclose(jax.jacfwd(normal)(jnp.float32(0)), [1, 0, 0], atol=1e-5)
