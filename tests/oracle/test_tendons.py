"""Tendons, and muscles that pull on them, against MuJoCo."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukemi as uk
from tests.scenes import tendons
from tests.scenes.slow import few
from ukemi.mechanics.kinematics import integrate, kinematics
from ukemi.mechanics.tendons.paths import moved_dofs, tendon_lengths


@jax.jit
def ours(model, given):
    """The same from Ukemi."""

    def one(c):
        state = uk.initial_state(model, q=c["qpos"], v=c["qvel"], act=c["act"])
        inputs, law = uk.Input(c["ctrl"]), uk.Soft()
        now, after = law.forward(model, state, inputs), law.step(model, state, inputs)
        found = tendon_lengths(model, kinematics(model, state.q), state.q)
        return {
            "length": found.length, "moment": found.moment, "force": now.actuation.force,
            "act_dot": now.actuation.act_dot, "passive": now.passive.qfrc, "qacc": now.solution.acceleration,
            "q": after.q, "v": after.v, "a": after.act,
        }

    return jax.lax.map(one, given)


@pytest.mark.parametrize("integrator", few(["Euler", "implicitfast", "implicit", "RK4"], "implicitfast"))
def test_strings_and_muscles(integrator):
    m = tendons.compiled(integrator)
    model, given = uk.load(m), tendons.cases(m, 300)
    found, expected = ours(model, jax.tree.map(jnp.asarray, given)), tendons.theirs(m, given)
    # through a ring MuJoCo looks for the bend until an angle is right to 1e-6
    loose = [m.tendon(name).id for name in ("inside", "ring")]
    assert np.abs(found["moment"][:, loose] - expected["moment"][:, loose]).max() < 2e-8
    exact = {name: np.delete(values["moment"], loose, 1) for name, values in (("ours", found), ("theirs", expected))}
    np.testing.assert_allclose(exact["ours"], exact["theirs"], atol=1e-10, rtol=1e-10)
    for name in ("length", "force", "passive", "act_dot"):
        np.testing.assert_allclose(found[name], expected[name], atol=1e-10, rtol=1e-10, err_msg=name)
    for name in ("q", "v", "a"):
        np.testing.assert_allclose(found[name], expected[name], atol=1e-9, rtol=1e-9, err_msg=name)
    moves = np.abs(expected["moment"]).max(0) > 1e-12
    assert (moved_dofs(model) >= moves).all()


WAYS = """<mujoco><worldbody><geom name="sphere" size="1" contype="0" conaffinity="0"/>
<geom name="cylinder" type="cylinder" size="1 1" contype="0" conaffinity="0"/>{ends}</worldbody>
<tendon>{strings}</tendon></mujoco>"""


def test_every_way_round():
    """Ends and side site anywhere, many of the ends on opposite sides of the centre, inside, or near the circle."""
    slides = "".join(f'<joint type="slide" axis="{axis}"/>' for axis in ("1 0 0", "0 1 0", "0 0 1"))
    body = '<body>{}<geom size=".01" contype="0" conaffinity="0"/><site name="{}"/></body>'
    wrap = '<spatial><site site="a"/><geom geom="{}"{}/><site site="b"/></spatial>'
    kinds = [(shape, side) for shape in ("sphere", "cylinder") for side in ("", ' sidesite="s"')]
    ends, strings = (body.format(slides, name) for name in "abs"), (wrap.format(*kind) for kind in kinds)
    m = mujoco.MjModel.from_xml_string(WAYS.format(ends="".join(ends), strings="".join(strings)))
    n, rng, d = 4000, np.random.default_rng(0), mujoco.MjData(m)
    points = rng.normal(size=(n, 3, 3))
    points *= np.exp(0.4 + 0.6 * rng.normal(size=(n, 3, 1))) / np.linalg.norm(points, axis=2, keepdims=True)
    points[: n // 2, 1] = 0.3 * points[: n // 2, 1] - points[: n // 2, 0]
    found = np.asarray(lengths(uk.load(m), jnp.asarray(points.reshape(n, 9))))
    for q, length in zip(points.reshape(n, 9), found, strict=True):
        d.qpos[:] = q
        mujoco.mj_fwdPosition(m, d)
        np.testing.assert_allclose(length, d.ten_length, atol=1e-9, err_msg=str(q))


@jax.jit
def lengths(model, qs):
    """Of all tendons."""
    return jax.lax.map(lambda q: tendon_lengths(model, kinematics(model, q), q).length, qs)


@jax.jit
def moments(model, qs):
    """Moment arms, and differences of lengths along every dof."""
    along, h = jnp.eye(model.nv), 1e-5

    def one(q):
        def length(x):
            q_ = integrate(model.tree, q, x, 1.0)
            return tendon_lengths(model, kinematics(model, q_), q_).length

        ahead = jax.vmap(lambda x: (length(h * x) - length(-h * x)) / (2 * h))(along).T
        further = jax.vmap(lambda x: (length(2 * h * x) - length(-2 * h * x)) / (4 * h))(along).T
        return tendon_lengths(model, kinematics(model, q), q).moment, (4 * ahead - further) / 3

    return jax.lax.map(one, qs)


def test_moment_arms_are_the_slopes_of_lengths():
    m = tendons.compiled()
    found, expected = moments(uk.load(m), jnp.asarray(tendons.cases(m, 300, seed=1)["qpos"]))
    off = np.abs(found - expected).max((1, 2))
    assert np.quantile(off, 0.97) < 1e-8, np.sort(off)[-20:]  # the rest is where a string takes off or comes to rest
