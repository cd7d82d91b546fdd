"""Height fields against MuJoCo: which prisms touch, how deep and along which normals, and the next state."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukemi as uk
from tests.scenes import terrain
from tests.scenes.slow import few


@pytest.mark.parametrize("margin", [terrain.LITTLE, 0.02])
@pytest.mark.parametrize("kind", few(terrain.SHAPES, "sphere", "box"))
def test_contacts_are_those_of_mujoco(kind, margin):
    """Numbers, order, distances and normals; where a face lies on a prism, any point of it will do."""
    m, model = terrain.scene((kind,), margin)
    d, rng, seen, odd = mujoco.MjData(m), np.random.default_rng(1), 0, 0
    for _ in range(100):
        d.qpos[:] = terrain.above(rng, m, kind)
        mujoco.mj_forward(m, d)
        mine = terrain.contacts(model, d.qpos.copy())
        assert not mine.overflow and not mine.failed
        active = np.asarray(mine.active)
        if active.sum() != d.ncon:
            odd += 1
            continue
        order = np.argsort(np.where(active, mine.which, np.iinfo(np.int32).max))[: d.ncon]
        np.testing.assert_allclose(mine.distance[order], d.contact.dist, atol=1e-6)
        unique = np.abs(np.asarray(mine.frame)[order, 0] - d.contact.frame[:, :3]).max(-1, initial=0) < 1e-4
        seen, odd = seen + d.ncon, odd + int((~unique).sum())
        if kind in ("sphere", "ellipsoid"):
            np.testing.assert_allclose(mine.point[order], d.contact.pos, atol=1e-5)
    assert seen > 100 and odd <= 2, (seen, odd)


def test_a_ball_steps_over_hills_as_in_mujoco():
    """Of balls whose centres are outside: of deeper ones MuJoCo knows points to some 1e-6 alone."""
    m, model = terrain.scene(("sphere",))
    d, rng, step, seen = mujoco.MjData(m), np.random.default_rng(2), jax.jit(uk.step), 0
    for _ in range(60):
        mujoco.mj_resetData(m, d)
        d.qpos[:], d.qvel[:] = terrain.resting(rng, m, model, "sphere", 0.002), rng.normal(size=m.nv)
        after = step(model, uk.initial_state(model, q=d.qpos, v=d.qvel))
        mujoco.mj_step(m, d)
        seen += d.ncon
        assert after.status == 0
        np.testing.assert_allclose(after.v, d.qvel, atol=1e-9)
    assert seen > 30


def test_rays_meet_hills_as_in_mujoco():
    """From above, beside, below and within; and their slope in elevations is that of differences."""
    rng = np.random.default_rng(0)
    m = mujoco.MjModel.from_xml_string(
        f"""<mujoco><asset>{terrain.field(rng)}</asset><worldbody>
        <geom type="hfield" hfield="hills" pos=".1 .2 .3" euler="10 -20 30"/>
        <body><freejoint/><site name="eye"/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/></body></worldbody>
        <sensor><rangefinder name="ray" site="eye" data="dist dir origin point normal depth"/></sensor></mujoco>"""
    )
    d, model, met = mujoco.MjData(m), uk.load(m), 0

    def look(q, data):
        heights = dataclasses.replace(model.heights, data=data)
        changed = dataclasses.replace(model, heights=heights)
        return uk.sensors(changed, uk.initial_state(model, q=q))["ray"]

    read, slope = jax.jit(look), jax.jit(lambda q, way: jax.jvp(partial(look, q), (model.heights.data,), (way,))[1])
    way = jnp.asarray(rng.normal(size=model.heights.data.shape))
    for _ in range(200):
        towards = m.geom_pos[0] + rng.uniform(-0.4, 0.4, 3)
        d.qpos[:3] = rng.normal(size=3) * rng.choice([0.3, 1])
        along = (towards - d.qpos[:3]) / np.linalg.norm(towards - d.qpos[:3])
        turn = np.array([1 + along[2], -along[1], along[0], 0])
        d.qpos[3:] = turn / np.linalg.norm(turn)
        mujoco.mj_forward(m, d)
        np.testing.assert_allclose(read(d.qpos.copy(), model.heights.data), d.sensordata, atol=1e-9)
        met += d.sensordata[0] >= 0
    assert met > 100
    ends = [read(d.qpos.copy(), model.heights.data + side * 1e-6 * way) for side in (1, -1)]
    np.testing.assert_allclose(slope(d.qpos.copy(), way), (ends[0] - ends[1]) / 2e-6, atol=1e-6)


def test_no_more_cells_are_looked_at_than_there_are_beneath():
    (group,) = terrain.scene(("sphere",))[1].pairs.layout.groups
    assert group.cells == (3, 3)  # a ball of 0.05 m over cells of 0.2 m: two each way, and one to look ahead


def test_contacts_beyond_the_room_are_reported():
    m, _ = terrain.scene(("sphere",))
    model = uk.load(m, contacts=1)
    d, rng, lost = mujoco.MjData(m), np.random.default_rng(1), []
    for _ in range(20):
        d.qpos[:] = terrain.above(rng, m, "sphere")
        mujoco.mj_forward(m, d)
        lost.append((bool(terrain.contacts(model, d.qpos.copy()).overflow), d.ncon > 1))
    assert any(more for _, more in lost) and all(told == more for told, more in lost)
