"""Smoothed changes of case: contacts move with continuous derivatives, and are MuJoCo's as the width goes to zero."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from ukemi.collide.detect import detect
from ukemi.collide.primitives import PAIRS, pair_function
from ukemi.collide.shapes import Shape
from ukemi.mechanics.kinematics import kinematics

WIDTH = 0.01
FLAT = Shape(jnp.zeros(3), jnp.eye(3), jnp.zeros(3))


def about(axis: int, angle):
    """Rotation about a world axis."""
    x, y = (axis + 1) % 3, (axis + 2) % 3
    turn = jnp.zeros((3, 3)).at[axis, axis].set(1.0).at[x, x].set(jnp.cos(angle)).at[y, y].set(jnp.cos(angle))
    return turn.at[x, y].set(-jnp.sin(angle)).at[y, x].set(jnp.sin(angle))


def shape(pos, turn, *size):
    return Shape(jnp.stack([jnp.asarray(x, float) for x in pos]), turn, jnp.array(size, float))


# Motions (a, b) of s through a change of case at s = 0, and how far to go to either side.
MOTIONS = {
    ("sphere", "capsule"): ("end", 0.02, lambda s: (
        shape((0.1 + s, 0, 0.08), jnp.eye(3), 0.05, 0, 0), shape((0, 0, 0), about(1, jnp.pi / 2), 0.04, 0.1, 0))),
    ("capsule", "capsule"): ("parallel", 0.2, lambda s: (
        shape((0, 0, 0), about(1, jnp.pi / 2), 0.04, 0.1, 0),
        shape((0.02, 0, 0.07), about(2, s) @ about(1, jnp.pi / 2), 0.04, 0.1, 0))),
    ("plane", "cylinder"): ("upright", 0.3, lambda s: (
        FLAT, shape((0, 0, 0.1), about(1, s) @ about(0, 0.05), 0.08, 0.1, 0))),
    ("plane", "cylinder", "lying"): ("lying", 0.2, lambda s: (
        FLAT, shape((0, 0, 0.08), about(1, jnp.pi / 2 + s), 0.08, 0.1, 0))),
    ("plane", "box"): ("level corner", 0.3, lambda s: (
        FLAT, shape((0, 0, 0.05), about(1, jnp.pi / 4 + s) @ about(0, 0.1), 0.1, 0.1, 0.1))),
}  # fmt: skip
IDS = ["-".join((*pair[:2], MOTIONS[pair][0])) for pair in MOTIONS]


def outcome(pair, width):
    """Function s -> (k, 4) distances and points of the slots."""
    function = partial(PAIRS[pair[:2]].smooth, width=width) if width else PAIRS[pair[:2]].function

    def find(s):
        hit = function(*MOTIONS[pair][2](s), jnp.asarray(1.0))
        return jnp.concatenate([hit.distance[:, None], hit.point], -1)

    return jax.jit(jax.vmap(lambda s: jax.jvp(find, (s,), (jnp.ones_like(s),))))


@pytest.mark.parametrize("pair", MOTIONS, ids=IDS)
def test_derivatives_are_continuous_and_right(pair):
    find, reach = outcome(pair, WIDTH), MOTIONS[pair][1]
    jumps = []
    for n in (2000, 20000):
        s = np.linspace(-reach, reach, n + 1) + 1e-5
        value, slope = map(np.asarray, find(s))
        ahead, behind = (np.asarray(find(s + d)[0]) for d in (1e-6, -1e-6))
        real = (np.abs(value[:, :, 0]) < 0.15)[:, :, None] & np.ones_like(value, bool)
        np.testing.assert_allclose(slope[real], ((ahead - behind) / 2e-6)[real], rtol=1e-5, atol=1e-6)
        both = real[1:] & real[:-1]
        jumps.append(np.abs(np.diff(slope, axis=0))[both].max())
    assert jumps[1] < 0.2 * jumps[0], jumps  # of a continuous function, a tenth on a grid ten times as fine


def as_set(values):
    """The slots in the order of their distance and place: which slot holds a contact has no meaning."""
    return np.array([sorted(map(tuple, np.round(row, 9))) for row in np.asarray(values)])


@pytest.mark.parametrize("pair", MOTIONS, ids=IDS)
def test_narrow_smoothing_is_none(pair):
    """Off the change of case, what comes out approaches MuJoCo's contacts as fast as the width goes to zero."""
    reach = MOTIONS[pair][1]
    s = reach * np.array([-0.9, -0.53, 0.57, 0.95])
    plain = as_set(outcome(pair, 0.0)(s)[0])
    off = [np.abs(as_set(outcome(pair, width)(s)[0]) - plain).max() for width in (1e-2, 1e-4)]
    assert off[1] <= 1e-4 and off[1] <= 0.02 * off[0] + 1e-8, off


def test_models_choose_and_by_default_do_not():
    """Contacts of a smoothed model follow the smoothed functions, derivative included; others keep MuJoCo's."""
    model = uk.load("""<mujoco><worldbody><geom type="plane" size="1 1 1" margin=".05"/>
      <body pos="0 0 .099"><freejoint/><geom type="cylinder" size=".08 .1"/></body></worldbody></mujoco>""")
    (group,), smooth = model.pairs.layout.groups, uk.smooth_collisions(model, WIDTH)
    assert pair_function(model.pairs.layout, group) is PAIRS[group.types].function
    assert jax.tree.structure(dataclasses.replace(smooth, pairs=model.pairs)) == jax.tree.structure(model)

    def points(model, angle):
        quat = jnp.stack([jnp.cos(angle / 2), 0.0 * angle, jnp.sin(angle / 2), 0.0 * angle])
        found = detect(model, kinematics(model, jnp.concatenate([jnp.array([0, 0, 0.099]), quat])))
        values = jnp.concatenate([found.distance[:, None], found.point], -1)
        return jnp.where(found.active[:, None], values, 0.0)[jnp.argsort(found.which)]

    def jump(model):
        find = jax.jit(lambda angle: jax.jvp(partial(points, model), (angle,), (jnp.ones_like(angle),)))
        (left, _), (right, slope), (ahead, _) = (find(jnp.asarray(x)) for x in (-1e-6, 1e-6, 3e-6))
        np.testing.assert_allclose(slope, (ahead - right) / 2e-6, atol=1e-4)
        return float(jnp.abs(right - left).max())

    assert jump(model) > 0.1 and jump(smooth) < 1e-6
    with pytest.raises(uk.InputError, match="width"):
        uk.smooth_collisions(model, 0.0)
