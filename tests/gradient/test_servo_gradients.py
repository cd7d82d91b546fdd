"""Derivatives through controllers, motors and servos of orientations against central differences."""

import dataclasses

import diffrax
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.derivatives import linearized
from tests.scenes.forces import actuators, build
from tests.scenes.reports import check
from tests.scenes.servos import LATE, MOTORS, PIDS
from tests.scenes.slow import few

STATES = 8
ARM = """<mujoco><option timestep="0.01" integrator="implicitfast"/><worldbody>
<body pos="0 0 1"><joint name="a" axis="0 1 0" damping=".1"/><geom type="capsule" fromto="0 0 0 .3 0 .1" size=".04"/>
<body pos=".3 0 .1"><joint name="b" axis="0 1 .2"/><geom type="capsule" fromto="0 0 0 .2 .1 0" size=".03"/></body>
</body>
</worldbody><tendon><fixed name="t"><joint joint="a" coef="1"/><joint joint="b" coef="-.7"/></fixed></tendon>
<actuator>{}</actuator></mujoco>"""


def arm() -> mujoco.MjModel:
    """Every controller and motor, and late ones, on hinges and a tendon, where slopes have a closed form."""
    places = ["joint='a' gear='1.5'", "joint='b'", "tendon='t' gear='.8'"]
    kinds = [*PIDS.values(), *MOTORS.values(), *LATE.values()]
    return mujoco.MjModel.from_xml_string(
        ARM.format("\n".join(kind.format(places[k % 3]) for k, kind in enumerate(kinds)))
    )


LAWS = {
    "Soft": uk.Soft(), "Soft RK4": uk.Soft(integrator="RK4"), "LCP": uk.LCP(), "NCP": uk.NCP(), "Impact": uk.Impact(),
    # one step, whatever the error: differences see step sizes change, of which derivatives along a motion know nothing
    "Adaptive": uk.Adaptive(controller=diffrax.ConstantStepSize()),
}  # fmt: skip


@pytest.mark.parametrize("name", few(LAWS))
def test_a_step_in_state_and_controls(name):
    """Where slopes have a closed form, and under laws that have them by other ways."""
    m, rng = arm(), np.random.default_rng(0)
    model = uk.load(m)
    sizes = {"q": m.nq, "v": m.nv, "act": model.na, "ctrl": m.nu}
    given = {key: rng.normal(size=(STATES, n)) for key, n in sizes.items()}
    off, told = linearized(model, LAWS[name], given)
    assert told.all()
    assert off.max() < 1e-6, np.sort(off)[-5:]


@pytest.mark.slow
def test_a_rollout_in_late_controls_and_their_delay():
    """What is told acts steps later, and a delay has a slope where one reads between steps."""
    m = mujoco.MjModel.from_xml_string(
        ARM.format("\n".join(LATE[k].format("joint='a'") for k in ("zoh between", "linear", "cubic")))
    )
    model, ctrls = uk.load(m), jnp.asarray(np.random.default_rng(0).normal(size=(9, m.nu)))
    start = uk.initial_state(model, v=[0.3, -0.2])

    @jax.jit
    def loss(ctrls, time):
        late = dataclasses.replace(model, delays=dataclasses.replace(model.delays, time=time))
        last = jax.tree.map(lambda x: x[-1], uk.rollout(late, start, ctrls))
        return last.q @ jnp.array([1.0, 2.0]) + last.v.sum()

    found = jax.grad(loss, argnums=(0, 1))(ctrls, model.delays.time)
    h, times = 1e-5, model.delays.time
    for k in range(9):
        way = jnp.zeros_like(ctrls).at[k].set(1.0)
        expected = (loss(ctrls + h * way, times) - loss(ctrls - h * way, times)) / (2 * h)
        np.testing.assert_allclose(found[0][k].sum(), expected, rtol=1e-6, atol=1e-9)
    for k in range(3):
        way = h * jnp.eye(3)[k]
        expected = (loss(ctrls, times + way) - loss(ctrls, times - way)) / (2 * h)
        np.testing.assert_allclose(found[1][k], expected, rtol=1e-5, atol=1e-9)
    assert found[1][0] == 0 and np.abs(found[1][1:]).min() > 1e-3  # held between steps, it does not matter
    assert np.abs(found[0]).max(1)[:5].min() > 1e-4


SERVOS = ("servos.control", "servos.winding", "servos.thermal", "servos.cogging", "servos.bristle")


@pytest.mark.slow
def test_a_step_in_every_parameter():
    """Of servos of orientations, and of controllers and motors whose lengths live on a circle or do not."""
    parts = [
        actuators(["ball"], ["slew and integral", "all inputs"]),
        actuators(["hinge"], ["warm coil", "everything", "controlled", "inductance", "free integral"]),
        actuators(["ball joint"], ["quaternion", "stored early"]),
        actuators(["site in trunk"], ["expmap", "stored"]),
    ]
    m = build(integrator="implicitfast", actuator="\n".join(parts))
    effects = "act", "ctrl", "actuators.gain", "actuators.bias", "actuators.force_range", "sites.quat"
    check(m, *effects, *SERVOS, share=0.3)
