"""Traps that derivatives of other engines have fallen into: divisions by zero, edges of modes, contacts lost."""

# ruff: noqa: E501  XML reads better unbroken

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.derivatives import (
    FLOOR,
    PRECISE,
    SLIDER,
    assert_exact,
    outcome,
    place,
    quick,
    scene,
)
from tests.scenes.slow import few

# ---- places where a formula divides by zero ----------------------------------------------------------------------------


COINCIDENT = {
    "spheres at one centre": ('<geom size=".1"/>', '<geom size=".08"/>', [0, 0, 0, 1, 0, 0, 0]),
    "sphere on a capsule's axis": ('<geom size=".1"/>', '<geom type="capsule" size=".1 .2"/>', [0, 0, 0.05, 1, 0, 0, 0]),
    "sphere in the middle of a box": ('<geom size=".1"/>', '<geom type="box" size=".1 .1 .1"/>', [0, 0, 0, 1, 0, 0, 0]),
    "sphere on a cylinder's axis": ('<geom size=".1"/>', '<geom type="cylinder" size=".1 .2"/>', [0, 0, 0, 1, 0, 0, 0]),
    "capsules on one axis": ('<geom type="capsule" size=".1 .2"/>', '<geom type="capsule" size=".1 .2"/>', [0, 0, 0, 1, 0, 0, 0]),
    "parallel capsules": ('<geom type="capsule" size=".1 .2"/>', '<geom type="capsule" size=".1 .2"/>', [0.1997, 0, 0.1, 1, 0, 0, 0]),
    "crossed capsules": ('<geom type="capsule" size=".1 .2"/>', '<geom type="capsule" size=".1 .2"/>', [0, 0, 0, 0.5**0.5, 0.5**0.5, 0, 0]),
    "boxes face on": ('<geom type="box" size=".1 .1 .1"/>', '<geom type="box" size=".1 .1 .1"/>', [0, 0, 0.1997, 1, 0, 0, 0]),
    "boxes one in the other": ('<geom type="box" size=".1 .1 .1"/>', '<geom type="box" size=".1 .1 .1"/>', [0, 0, 0, 1, 0, 0, 0]),
    "boxes edge on edge": ('<geom type="box" size=".1 .1 .1"/>', '<geom type="box" size=".1 .1 .1"/>', [0.1999, 0, 0.1999, 1, 0, 0, 0]),
    "ellipsoids at one centre": ('<geom type="ellipsoid" size=".1 .1 .1"/>', '<geom type="ellipsoid" size=".1 .15 .2"/>', [0, 0, 0, 1, 0, 0, 0]),
    "spheres that just touch": ('<geom size=".1"/>', '<geom size=".1"/>', [0.2, 0, 0, 1, 0, 0, 0]),
}  # fmt: skip


@pytest.mark.parametrize("cone", few(["pyramidal", "elliptic"], "elliptic"))
def test_degenerate_poses_have_finite_gradients(cone):
    """All side by side, each pair seeing only itself; at rest, so that relative velocities are zero, too."""
    bodies, poses = "", []
    for k, (first, second, pose) in enumerate(COINCIDENT.values()):
        alone = f'<geom contype="{1 << k}" conaffinity="{1 << k}" '
        bodies += "".join(f"<body><freejoint/>{geom.replace('<geom ', alone)}</body>" for geom in (first, second))
        poses += [3.0 * k, 0, 0, 1, 0, 0, 0, 3.0 * k + pose[0], *pose[1:]]
    model = uk.load(scene(bodies, f'gravity="0 0 0" cone="{cone}"'))
    at = uk.initial_state(model, q=poses)

    def after(x, model):
        return (outcome(model, uk.step(model, place(model, at, x)), at.q) ** 2).sum()

    def both(x, model):
        return jax.grad(after, argnums=(0, 1))(x, model), jax.jacfwd(after)(x, model)

    (reverse, parameters), forward = quick(both)(jnp.zeros(2 * model.nv), model)
    touching = np.asarray(uk.contacts(model, at).geoms)[np.asarray(uk.contacts(model, at).active)]
    assert {pair // 2 for pair in touching.min(1)} >= set(range(len(COINCIDENT) - 1))
    per_pair = (np.asarray(x).reshape(2, len(COINCIDENT), 12) for x in (reverse, forward))
    for name, *found in zip(COINCIDENT, *(x.swapaxes(0, 1) for x in per_pair), strict=True):
        assert np.isfinite(found).all(), name
        np.testing.assert_allclose(*found, atol=1e-10 * (1 + np.abs(found[1]).max()), err_msg=name)
    for leaf in jax.tree.leaves(parameters):
        assert np.isfinite(leaf).all()


@pytest.mark.parametrize("name", ["parallel capsules", "boxes face on"])
def test_rank_deficient_contacts_push_along_their_normal(name):
    """Contacts that determine each other's force only together still have the derivative of what they do."""
    first, second, pose = COINCIDENT[name]
    model = uk.load(scene(f"<body><freejoint/>{first}</body><body><freejoint/>{second}</body>", 'gravity="0 0 0"'))
    normal = int(np.argmax(pose[:3]))
    at = uk.initial_state(model, q=[0, 0, 0, 1, 0, 0, 0, *pose])
    f = lambda x: uk.step(model, place(model, at, jnp.zeros(24).at[6 + normal].set(x)), None, uk.Soft(**PRECISE)).v[6 + normal]  # noqa: E731
    both = quick(jax.value_and_grad(f))
    slope = float(both(0.0)[1])
    assert slope < 0
    np.testing.assert_allclose(slope, (both(1e-6)[0] - both(-1e-6)[0]) / 2e-6, rtol=1e-6)


@pytest.mark.parametrize("cone", few(["pyramidal", "elliptic"], "pyramidal"))
@pytest.mark.parametrize("dim", few([3, 4, 6], 3))
def test_friction_at_zero_slip(dim, cone):
    """At rest on the floor, without any relative velocity: sticking, with the derivative of sticking."""
    model = uk.load(scene(SLIDER.format(dim), f'cone="{cone}"'))
    J = assert_exact(model, uk.initial_state(model), h=1e-6)
    assert np.abs(J[6:8, 6:8]).max() < 1


@pytest.mark.parametrize("cone", few(["pyramidal", "elliptic"], "pyramidal"))
def test_all_six_dimensions_of_a_contact(cone):
    """Sliding, turning and rolling at once, each against its own friction."""
    ball = FLOOR.format(".8 .03 .02") + '<body pos="0 0 .0996"><freejoint/><geom size=".1" condim="6" friction=".8 .03 .02" mass="1"/></body>'
    model = uk.load(scene(ball, f'cone="{cone}"'))
    for v in ([0.5, 0.2, 0, 1, -2, 3], [1e-4, 0, 0, 0, 1e-4, 1e-4]):
        J = assert_exact(model, uk.initial_state(model, v=v))
        assert np.abs(J[9:, 9:]).max() > 0.1


# ---- edges of modes ------------------------------------------------------------------------------------------------------


SOLIMP = pytest.mark.parametrize("solimp", ["0 .95 .01 .5 2", ".9 .95 .001 .5 2"])


@quick
def speed_and_slopes(model: uk.Model, q, v):
    """Derivatives of the next speed of a single joint: (reverse mode in q and v), forward mode in q."""

    def speed(q, v):
        return uk.step(model, uk.initial_state(model, q=q[None], v=v[None]), None, uk.Soft(**PRECISE)).v[0]

    return jax.grad(speed, (0, 1))(q, v), jax.jacfwd(speed)(q, v)


@SOLIMP
def test_a_joint_exactly_at_its_limit(solimp):
    """The derivative of one side: none within the limit, that of the limit's spring beyond it."""
    model = uk.load(scene(f'<body><joint axis="0 1 0" limited="true" range="-30 30" solimplimit="{solimp}"/><geom size=".1" pos=".3 0 0"/></body>'))
    limit = float(model.joints.range[0, 1])
    at, inside, outside = (speed_and_slopes(model, limit + d, 0.1) for d in (0.0, -1e-9, 1e-9))
    for found in (at, inside, outside):
        assert np.isfinite(jax.tree.leaves(found)).all()
        np.testing.assert_allclose(found[0][0], found[1], rtol=1e-9)
    assert min(abs(at[0][1] - side[0][1]) for side in (inside, outside)) < 1e-6


@SOLIMP
@pytest.mark.parametrize("speed", [-0.5, 0.0, 0.5])
def test_contact_just_opening_and_closing(solimp, speed):
    """At distance zero the derivative is finite and that of one of the two sides."""
    body = FLOOR.format(1).replace("/>", f' solimp="{solimp}"/>') + f'<body><joint type="slide" axis="0 0 1"/><geom size=".1" solimp="{solimp}"/></body>'
    model = uk.load(scene(body))
    at, above, below = (np.array(speed_and_slopes(model, 0.1 + d, speed)[0]) for d in (0.0, 1e-10, -1e-10))
    assert np.isfinite([at, above, below]).all()
    sides = [np.abs(at - side).max() / (1 + np.abs(side).max()) for side in (above, below)]
    assert min(sides) < 1e-3


# ---- contacts that other engines lose --------------------------------------------------------------------------------------

TOUCHING = {
    "plane": '<geom type="plane" size="1 1 1"/>',
    "sphere": '<geom size=".1" pos="0 0 -.1"/>',
    "capsule": '<geom type="capsule" size=".1 .2" pos="0 0 -.1" euler="0 90 0"/>',
    "cylinder": '<geom type="cylinder" size=".2 .1" pos="0 0 -.1"/>',
    "ellipsoid": '<geom type="ellipsoid" size=".2 .3 .1" pos="0 0 -.1"/>',
    "box": '<geom type="box" size=".2 .2 .1" pos="0 0 -.1"/>',
}
UPPER = {
    "sphere": '<geom size=".1"/>',
    "capsule": '<geom type="capsule" size=".1 .2" euler="0 90 0"/>',
    "cylinder": '<geom type="cylinder" size=".2 .1"/>',
    "ellipsoid": '<geom type="ellipsoid" size=".2 .3 .1"/>',
    "box": '<geom type="box" size=".2 .2 .1"/>',
}


@pytest.mark.slow  # pair by pair in test_collide_gradients.py
def test_every_contact_answers_to_its_distance_and_sizes():
    """No pair of shapes gives a contact whose distance does not change when a shape moves or grows."""
    pairs, below, above = list(itertools.product(TOUCHING, UPPER)), "", ""
    for k, (lower, upper) in enumerate(pairs):  # side by side, each pair seeing only itself
        alone = f'<geom contype="{1 << k}" conaffinity="{1 << k}" '
        below += TOUCHING[lower].replace("<geom ", alone)
        above += f'<body pos="0 0 .0998"><joint type="slide" axis="0 0 1"/>{UPPER[upper].replace("<geom ", alone)}</body>'
    model = uk.load(scene(below + above))

    @quick
    def slopes(model, z, size):
        def after(z, size):
            grown = dataclasses.replace(model, geoms=dataclasses.replace(model.geoms, size=size))
            return uk.step(grown, uk.initial_state(grown, q=z)).v.sum()

        return jax.grad(after, (0, 1))(z, size)

    lift, growth = map(np.asarray, slopes(model, jnp.zeros(model.nq), model.geoms.size))
    for k, pair in enumerate(pairs):
        assert lift[k] < -0.01, pair  # deeper: pushed up faster
        under, over = growth[k], growth[len(pairs) + k]
        assert over[np.argmax(np.abs(over))] > 0.01, pair
        assert pair[0] == "plane" or np.abs(under).max() > 0.01, pair


def test_gradients_drop_no_contact():
    """Status, contacts and next state are those of the plain step, also where contacts are many."""
    balls = "".join(f'<body pos="{0.1997 * k} {0.1997 * j} .0996"><freejoint/><geom size=".1"/></body>' for k in range(4) for j in range(3))
    model = uk.load(scene(FLOOR.format(1) + balls), contacts=40)
    at = uk.initial_state(model)
    plain = uk.step(model, at)
    report = uk.contacts(model, at)
    assert int(report.active.sum()) == 12 + 17 and not int(plain.status)

    def after(v):
        moved = uk.step(model, uk.initial_state(model, v=v))
        return moved.v, moved

    J, moved = quick(jax.jacrev(after, has_aux=True))(at.v)
    assert int(moved.status) == 0
    np.testing.assert_allclose(moved.v, plain.v, atol=1e-12)
    coupled = np.abs(J) > 1e-9
    # every ball feels each neighbour that it touches
    pairs = np.asarray(model.geoms.layout.body)[np.asarray(report.geoms)[np.asarray(report.active)]]
    for a, b in pairs[pairs[:, 0] > 0] - 1:
        assert coupled[6 * a : 6 * a + 6, 6 * b : 6 * b + 6].any()
