"""Meshes that are not convex, split into convex parts when they load."""

import mujoco
import numpy as np
import pytest

import ukemi as uk

coacd = pytest.importorskip("coacd", reason="CoACD, an extra, is not installed")

# A bent bar, 1 by 1 m and 0.2 m thick, and a ball in the bend, which is inside of the bar's hull.
BAR = """
<mujoco>
  <asset><mesh name="bar" vertex="0 0 0  1 0 0  1 .2 0  .2 .2 0  .2 1 0  0 1 0
                                  0 0 .2  1 0 .2  1 .2 .2  .2 .2 .2  .2 1 .2  0 1 .2"
    face="0 2 1  0 3 2  0 4 3  0 5 4  6 7 8  6 8 9  6 9 10  6 10 11  0 1 7  0 7 6
          1 2 8  1 8 7  2 3 9  2 9 8  3 4 10  3 10 9  4 5 11  4 11 10  5 0 6  5 6 11"/></asset>
  <worldbody>
    <body name="bar" pos="0 0 1"><freejoint/>
      <frame euler="10 20 30"><geom name="bar" type="mesh" mesh="bar" pos=".1 .2 .3" friction=".4 .01 .01"/></frame>
    </body>
    <body name="ball"><freejoint/><geom name="ball" size=".05"/></body>
  </worldbody>
  {more}
</mujoco>
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UKEMI_CACHE", str(tmp_path))
    return tmp_path


def state_with_ball(model: uk.Model, local) -> uk.State:
    """The ball at a place of the bar's own frame, which the file turns and shifts."""
    turn = np.zeros(4)
    spec = mujoco.MjSpec.from_string(BAR.format(more=""))
    mujoco.mju_euler2Quat(turn, np.deg2rad([10, 20, 30]), "xyz")
    assert len(spec.geoms) == 2
    place, q = np.zeros(3), np.array(model.joints.qpos0)
    mujoco.mju_rotVecQuat(place, np.array(local) + [0.1, 0.2, 0.3], turn)
    q[7:10] = place + [0, 0, 1]
    return uk.initial_state(model, q=q)


def test_a_ball_in_the_bend_touches_only_what_is_there():
    whole, split = uk.load(BAR.format(more="")), uk.load(BAR.format(more=""), decompose=True)
    inside = [0.4, 0.4, 0.1]  # 0.2 m from both legs
    assert np.asarray(uk.contacts(whole, state_with_ball(whole, inside)).active).any()
    assert not np.asarray(uk.contacts(split, state_with_ball(split, inside)).active).any()
    near = uk.contacts(split, state_with_ball(split, [0.6, 0.24, 0.1]))  # a centimetre in one leg
    found = np.asarray(near.distance)[np.asarray(near.active)]
    np.testing.assert_allclose(found, -0.01, atol=2e-4)  # CoACD moves surfaces by some 1e-4 of the size
    np.testing.assert_allclose(split.bodies.mass, whole.bodies.mass, rtol=1e-6)
    np.testing.assert_allclose(split.bodies.inertia, whole.bodies.inertia, rtol=1e-6)
    parts = [k for k, name in enumerate(split.geoms.layout.names) if "part" in name]
    assert len(parts) > 1
    np.testing.assert_allclose(np.asarray(split.geoms.friction)[parts], [[0.4, 0.01, 0.01]] * len(parts))


def test_parts_are_found_once(own_cache, monkeypatch):
    first = uk.load(BAR.format(more=""), decompose=0.1)
    assert len(list(own_cache.glob("convex-parts/*.npz"))) == 1
    monkeypatch.setattr(coacd, "run_coacd", lambda *_, **__: pytest.fail("the parts were known"))
    again = uk.load(BAR.format(more=""), decompose=0.1)
    np.testing.assert_array_equal(first.geoms.vertices, again.geoms.vertices)
    next(own_cache.glob("convex-parts/*.npz")).write_bytes(b"torn")
    with pytest.raises(pytest.fail.Exception, match="known"):
        uk.load(BAR.format(more=""), decompose=0.1)


def test_what_is_convex_stays_and_the_users_description_too():
    box = BAR.replace('type="mesh" mesh="bar"', 'type="box" size=".1 .1 .1"').format(more="")
    assert uk.load(box, decompose=True).geoms.layout.names == uk.load(box).geoms.layout.names
    spec = mujoco.MjSpec.from_string(BAR.format(more=""))
    uk.load(spec, decompose=True)
    assert len(spec.geoms) == 2


@pytest.mark.parametrize("source, decompose, error, said", [
    (BAR.format(more="<contact><pair geom1='bar' geom2='ball'/></contact>"), True, uk.ModelFileError, "a pair refers"),
    (BAR.format(more="<sensor><distance geom1='ball' geom2='bar'/></sensor>"), True, uk.ModelFileError, "a sensor"),
    (mujoco.MjModel.from_xml_string(BAR.format(more="")), True, uk.ModelFileError, "is compiled"),
    (BAR.format(more=""), 0.0, uk.InputError, "between 0.01 and 1"),
    (BAR.format(more=""), "yes", uk.InputError, "between 0.01 and 1"),
])  # fmt: skip
def test_what_cannot_be_is_refused(source, decompose, error, said):
    with pytest.raises(error, match=said):
        uk.load(source, decompose=decompose)


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "coacd", None)
    with pytest.raises(uk.InputError, match=r"pip install 'ukemi\[decompose\]'"):
        uk.load(BAR.format(more=""), decompose=0.2)
