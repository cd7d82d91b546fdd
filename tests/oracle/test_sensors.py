"""Sensors of every type against MuJoCo's, at random states, and their derivatives against differences."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.sensing import SENSED
from tests.scenes.states import converged, load_sample, random_states, stack
from tests.scenes.tendons import STRINGS
from ukemi.files.sensing import READ
from ukemi.observe.sensors import READERS

GAPS = ("geomdist", "geomnormal", "geomfromto")  # MuJoCo searches for them; where shapes almost touch, normals cancel


def one(batch):
    return jax.tree.map(lambda x: x[0], batch)


def compare(m: mujoco.MjModel, samples, tolerance: float = 1e-9) -> uk.Model:
    """Readings are `sensordata`, relative to the largest number of each sensor, or to one."""
    d, model = mujoco.MjData(m), uk.load(m)
    layout, largest = model.sensors.layout, np.zeros(m.nsensordata)
    for sample in samples:
        load_sample(d, sample)
        mujoco.mj_forward(m, d)
        state, inputs = one(stack(model, [sample]))
        read = uk.sensors(model, state, inputs)
        largest = np.maximum(largest, np.abs(read.flat))
        for k, name in enumerate(layout.names):
            expected = d.sensordata[m.sensor_adr[k] : m.sensor_adr[k] + m.sensor_dim[k]]
            allowed = (1e-5 if layout.type[k] in GAPS else tolerance) * max(1, np.abs(expected).max())
            np.testing.assert_allclose(read[name], expected, rtol=0, atol=allowed, err_msg=f"{layout.type[k]} {name}")
    seen = {layout.type[k] for k in range(m.nsensor) if largest[m.sensor_adr[k] :][: m.sensor_dim[k]].any()}
    assert set(layout.type) <= seen | {"clock"}, "a type reads nothing anywhere"
    return model


def test_every_type_agrees_with_mujoco():
    m = converged(mujoco.MjModel.from_xml_string(SENSED))
    model = compare(m, random_states(m, 20))
    assert set(model.sensors.layout.type) == READ == set(READERS)
    assert not any(model.sensors.layout.unread)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hopper", "walker", "humanoid"])
def test_robots_of_dm_control_agree(name):
    """The same on real files, with pyramidal cones."""
    common = pytest.importorskip("dm_control.suite.common")
    assets = {key: value for key, value in common.ASSETS.items()}
    m = converged(mujoco.MjModel.from_xml_string(common.read_model(f"{name}.xml").decode(), assets))
    assert m.nsensor
    compare(m, random_states(m, 10))


@pytest.mark.slow
def test_strings_pull_on_what_force_sensors_hold():
    """Springs, limits, friction, couplings and actuators of tendons that wrap and have pulleys."""
    text = STRINGS.format(integrator="Euler", cone="elliptic")
    names = ("s0", "e0", "s1", "e1", "f", "g")
    sensors = "".join(f'<force site="{name}"/><torque site="{name}"/>' for name in names)
    m = converged(mujoco.MjModel.from_xml_string(text.replace("</mujoco>", f"<sensor>{sensors}</sensor></mujoco>")))
    compare(m, random_states(m, 10))


# ---- derivatives ---------------------------------------------------------------------------------------------------

ARM = """
<mujoco><compiler angle="radian"/><option cone="elliptic" magnetic=".1 -.5 .2"/><worldbody>
  <geom name="floor" type="plane" size="0 0 .1"/>
  <body name="a" pos="0 0 .3"><joint name="j" axis="0 1 0" range="-.5 .05" limited="true"/>
    <geom type="capsule" fromto="0 0 0 .3 0 0" size=".03" contype="0" conaffinity="0"/><site name="s" pos=".1 0 .05" quat=".1 .95 .2 .1"/>
    <body name="b" pos=".3 0 0"><joint name="k" axis="0 1 0" pos="0 0 .02" damping=".1"/>
      <geom name="foot" size=".08" pos=".2 0 -.197"/><site name="t" pos=".2 0 -.23" size=".1" quat=".8 .1 -.4 .2"/></body></body>
  </worldbody><actuator><motor name="m" joint="k" gear="2"/></actuator><sensor>
  <accelerometer site="t"/><gyro site="t"/><velocimeter site="s"/><force site="s"/><torque site="s"/><touch site="t"/>
  <rangefinder site="s" data="dist dir origin point normal depth"/><magnetometer site="t"/><jointlimitpos joint="j"/>
  <jointlimitvel joint="j"/><jointlimitfrc joint="j"/><framequat objtype="site" objname="t" reftype="site" refname="s"/>
  <framelinvel objtype="site" objname="t" reftype="site" refname="s"/><framelinacc objtype="geom" objname="foot"/>
  <subtreelinvel body="a"/><subtreeangmom body="a"/><distance geom1="foot" geom2="floor" cutoff="1"/>
  <fromto geom1="floor" geom2="foot" cutoff="1"/><contact data="found force torque dist pos normal tangent linvel"/>
  <e_kinetic/><e_potential/><actuatorfrc actuator="m"/></sensor></mujoco>"""  # noqa: E501


def moved(model: uk.Model, x):
    """Readings where state, controls, masses and sizes are moved by x (12,)."""
    state = uk.initial_state(model, q=jnp.array([0.06, -0.03]) + x[:2], v=jnp.array([0.4, -0.3]) + x[2:4])
    bodies = dataclasses.replace(model.bodies, mass=model.bodies.mass + x[5:8])
    geoms = dataclasses.replace(model.geoms, size=model.geoms.size + jnp.zeros((3, 3)).at[1:, 0].set(x[8:10]))
    sites = dataclasses.replace(model.sites, pos=model.sites.pos + x[10:12, None])
    changed = dataclasses.replace(model, bodies=bodies, geoms=geoms, sites=sites)
    method = uk.Soft(tolerance=1e-14, iterations=300, line_search_iterations=200)
    return uk.sensors(changed, state, x[4:5] + 0.3, method)


def test_derivatives_are_those_of_differences():
    model, h, zero = uk.load(ARM), 1e-5, jnp.zeros(12)
    read = moved(model, zero)
    assert read["sensor5"] > 1 and read["sensor10"] > 1 and read["sensor6"][0] > 0  # it stands, and leans on its limit
    flat = jax.jit(functools.partial(lambda model, x: moved(model, x).flat, model))
    forward = jax.jit(jax.jacfwd(flat))(zero)
    steps = h * np.eye(12)
    near, far = (np.stack([(flat(k * s) - flat(-k * s)) / (2 * k * h) for s in steps], -1) for k in (1, 2))
    expected = (4 * near - far) / 3
    scale = 1 + np.abs(expected).max(1, keepdims=True)
    np.testing.assert_allclose(forward / scale, expected / scale, atol=1e-6)
    weights = jnp.asarray(np.random.default_rng(0).normal(size=len(read.flat)))
    reverse = jax.jit(jax.grad(lambda x: weights @ flat(x)))(zero)
    np.testing.assert_allclose(reverse, weights @ forward, atol=1e-9 * np.abs(weights @ forward).max())
    still = {name for name, where in zip(read.keys(), np.split(forward, read.layout.start[1:])) if not where.any()}
    assert not still
