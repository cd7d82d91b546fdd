"""`uk.refresh`: what a compiler derives from other fields, computed again, and its derivatives."""

import os
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.slow import few
from ukemi.files.source import builtin_names
from ukemi.maths import spatial
from ukemi.mechanics import dynamics, kinematics

# Every solid, alone and together, tilted and off the centre; given masses, a slide, a ball, a static body, a loop of
# joints in one body, an inertia of its own, a geom outside the group range.
SCENE = """
<mujoco>
  <compiler inertiagrouprange="0 3" {compiler}/>
  <option {option}/>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body name="fixed" pos="0 0 3"><geom type="box" size=".1 .1 .1" pos=".1 0 0"/>
      <body name="swing"><joint axis="1 1 0"/><geom name="swing" type="box" size="{side} .1 .1" pos="0 0 -.3"/></body>
    </body>
    <body name="ball" pos="0 0 1">
      <freejoint/><geom name="ball" size="{radius}" density="{density}"/>
      <body name="arm" pos=".2 {lean} .1" euler="20 30 0">
        <joint name="h" axis=".6 0 .8" armature=".01" pos="0 .1 0"/>
        <geom name="rod" type="capsule" fromto="0 0 0 .1 .2 .3" size=".04"/>
        <geom name="brick" type="box" size=".1 .05 .2" pos="{shift} .1 0" euler="10 20 30" mass="2"/>
        <geom name="outside" type="box" size=".2 .2 .2" group="4"/>
        <body name="hand" pos=".1 .2 .3">
          <joint type="ball"/><joint type="slide" axis="0 1 0"/>
          <geom name="drum" type="cylinder" size=".05 .1" euler="30 0 0"/>
          <geom name="egg" type="ellipsoid" size=".05 .1 .08" pos="0 0 .2" density="700"/>
          <geom name="paint" size=".1" mass="0"/>
        </body>
      </body>
    </body>
    <body name="cart"><joint type="slide" axis="0 1 0" armature=".3"/><geom size=".1"/></body>
    <body name="tray"><joint type="slide" axis="0 1 1"/><geom type="box" size=".1 .2 .3" euler="0 0 20"/></body>
    <body name="bob" pos="1 0 1"><joint type="hinge" axis="0 1 0"/>
      <inertial pos="0 .02 -.5" mass="{mass}" diaginertia=".1 .1 .1"/><geom size=".1" density="100"/>
    </body>
    <body name="die" pos="2 0 1"><freejoint/>
      <geom type="box" size=".1 .1 .1"/><geom size=".15" density="300"/>
    </body>
  </worldbody>
</mujoco>
"""
PLAIN = dict(compiler="", option="", side=".1", radius=".1", density="500", lean="0", shift=".1", mass="1")


def scene(**parts) -> uk.Model:
    return uk.load(SCENE.format(**{**PLAIN, **{key: str(value) for key, value in parts.items()}}))


def body(model: uk.Model, name: str) -> int:
    return model.tree.body_names.index(name)


def geom(model: uk.Model, name: str) -> int:
    return model.geoms.layout.names.index(name)


def tensors(model: uk.Model) -> np.ndarray:
    """Inertia tensors (nb, 3, 3) in the body frames."""
    bodies = model.bodies
    local = np.zeros((model.tree.nb, 3, 3))
    local[:, [0, 1, 2], [0, 1, 2]] = bodies.inertia
    for k, (i, j) in enumerate([(0, 1), (0, 2), (1, 2)]):
        local[:, i, j] = local[:, j, i] = bodies.products[:, k]
    axes = np.asarray(spatial.quat_to_mat(bodies.iquat))
    return axes @ local @ axes.mT


def assert_derived_equal(found: uk.Model, expected: uk.Model, rtol: float = 1e-10) -> None:
    for value, other in zip(derived(found), derived(expected), strict=True):
        scale = np.abs(other).reshape(len(other), -1).max(1, initial=0).reshape(-1, *[1] * (other.ndim - 1))
        assert np.all(np.abs(value - other) <= rtol * scale + 1e-14)


def derived(model: uk.Model) -> list[np.ndarray]:
    bodies = model.bodies
    leaves = [bodies.mass, bodies.ipos, tensors(model), bodies.invweight[:, 0], bodies.invweight[:, 1]]
    return [np.asarray(leaf) for leaf in (*leaves, model.joints.invweight)]


def assert_same(found: uk.Model, expected: uk.Model) -> None:
    """All leaves agree, in place."""
    for (path, value), other in zip(jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(expected)):
        scale = np.abs(other).max(initial=0)
        np.testing.assert_allclose(value, other, rtol=1e-10, atol=1e-12 * scale + 1e-16, err_msg=f"{path}")


# ---- at load ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", few(builtin_names(), "quadruped", "humanoid", "ant", "arm"))
def test_refresh_changes_nothing_in_a_built_in_model(name):
    model = uk.load(name)
    assert model.bodies.layout.inferred[1:].all() and not model.bodies.products.any()
    assert_same(uk.refresh(model), model)


COMPILERS = ["", "fusestatic='true'", "settotalmass='7'", "inertiafromgeom='true'", "alignfree='true'"]


@pytest.mark.filterwarnings("ignore:compiler attribute")
@pytest.mark.parametrize("compiler", COMPILERS)
def test_refresh_changes_nothing_in_a_scene(compiler):
    model = scene(compiler=compiler)
    kept = {"world"} if "inertiafromgeom" in compiler else {"world", "bob"}
    names = np.array(model.tree.body_names)
    assert set(names[~model.bodies.layout.inferred]) == kept
    assert_same(uk.refresh(model), model)


def test_densities_are_what_the_file_says_or_amounts_to():
    model = scene()
    found = dict(zip(model.geoms.layout.names, np.asarray(model.geoms.density), strict=True))
    expected = dict(ball=500, rod=1000, brick=2 / (8 * 0.1 * 0.05 * 0.2), outside=0, drum=1000, egg=700, paint=0)
    assert found == pytest.approx(found | expected, rel=1e-14)
    assert found["geom0"] == 0 and not model.geoms.density[model.geoms.layout.body == body(model, "bob")].any()


TETRA = "<asset><mesh name='m' vertex='0 0 0 1 0 0 0 1 0 0 0 1'/></asset>"
KEPT = {
    "mesh": (TETRA, "", "<geom size='.1'/><geom type='mesh' mesh='m' contype='0' conaffinity='0'/>"),
    "shell": ("", "", "<geom size='.1' shellinertia='true'/>"),
    "boundmass": ("", "boundmass='50'", "<geom size='.1'/>"),
    "boundinertia": ("", "boundinertia='5'", "<geom size='.1'/>"),
    "given": ("", "", "<inertial pos='0 0 0' mass='1' diaginertia='1 1 1'/><geom size='.1'/>"),
    "never": ("", "inertiafromgeom='false'", "<inertial pos='0 0 0' mass='1' diaginertia='1 1 1'/><geom size='.1'/>"),
    "discarded": ("", "discardvisual='true'", "<geom size='.1'/><geom size='.2' contype='0' conaffinity='0'/>"),
}


@pytest.mark.parametrize("reason", KEPT)
def test_inertia_that_is_no_sum_over_the_geoms_is_left_alone(reason):
    head, compiler, parts = KEPT[reason]
    text = (
        f"<mujoco>{head}<compiler {compiler}/><worldbody><body><joint/>{parts}</body>"
        "<body pos='3 0 0'><joint/><inertial pos='0 0 0' mass='2' diaginertia='1 1 1'/></body></worldbody></mujoco>"
    )
    model = uk.load(text)
    assert not model.bodies.layout.inferred.any() and not model.geoms.density.any()
    bigger = eqx.tree_at(lambda m: (m.geoms.size, m.geoms.density), model, (2 * model.geoms.size, model.geoms.density))
    assert_same(uk.refresh(bigger).bodies, model.bodies)


def test_a_visual_mesh_does_not_hinder():
    mesh = "<geom size='.1'/><geom type='mesh' mesh='m' contype='0' conaffinity='0' mass='0'/>"
    model = uk.load(f"<mujoco>{TETRA}<worldbody><body><joint/>{mesh}</body></worldbody></mujoco>")
    assert model.bodies.layout.inferred[1]
    assert_same(uk.refresh(model), model)


def test_a_compiled_model_tells_no_densities():
    compiled = mujoco.MjModel.from_xml_string(SCENE.format(**PLAIN))
    model = uk.load(compiled)
    assert not model.bodies.layout.inferred.any() and not model.geoms.density.any()
    assert_same(uk.refresh(model), model)


def test_a_spec_tells_as_much_as_its_text():
    text = SCENE.format(**PLAIN)
    assert_same(uk.load(mujoco.MjSpec.from_string(text)), uk.load(text))


def test_nothing_to_move():
    model = uk.load("<mujoco><worldbody><geom size='.1'/><body><geom size='.1'/></body></worldbody></mujoco>")
    assert_same(uk.refresh(model), model)
    empty = uk.load("<mujoco/>")
    assert_same(uk.refresh(empty), empty)


# ---- against the compiler --------------------------------------------------------------------------------------


def changed(model: uk.Model, where, index, value) -> uk.Model:
    return eqx.tree_at(where, model, where(model).at[index].set(value))


def changes(model: uk.Model):
    """(change of the file, the same change of the model)"""
    size, pos, bodies = (lambda m: m.geoms.size), (lambda m: m.geoms.pos), (lambda m: m.bodies.pos)
    yield dict(density=900), changed(model, lambda m: m.geoms.density, geom(model, "ball"), 900)
    yield dict(side=0.2), changed(model, size, (geom(model, "swing"), 0), 0.2)
    yield dict(radius=0.3), changed(model, size, (geom(model, "ball"), 0), 0.3)
    yield dict(shift=-0.2), changed(model, pos, (geom(model, "brick"), 0), -0.2)
    yield dict(lean=0.4), changed(model, bodies, (body(model, "arm"), 1), 0.4)
    yield dict(mass=3), changed(model, lambda m: m.bodies.mass, body(model, "bob"), 3.0)


@pytest.mark.parametrize("which", range(6))
def test_refresh_after_a_change_equals_compiling_the_changed_file(which):
    model = scene()
    parts, ours = list(changes(model))[which]
    expected = scene(**parts)
    assert any(not np.allclose(a, b) for a, b in zip(derived(expected), derived(model)))
    assert_derived_equal(uk.refresh(ours), expected)


def test_products_of_inertia_count_in_the_motion():
    model = scene()
    ours = uk.refresh(changed(model, lambda m: m.geoms.pos, (geom(model, "brick"), 0), -0.2))
    theirs = scene(shift=-0.2)
    assert np.abs(ours.bodies.products).max() > 0.01
    rng = np.random.default_rng(0)
    q = kinematics.integrate(model.tree, model.joints.qpos0, rng.normal(size=model.nv), 1.0)
    v = jnp.asarray(rng.normal(size=model.nv))

    @jax.jit
    def motion(m):
        kin = kinematics.kinematics(m, q)
        now = dynamics.smooth(m, kin, v)
        return now.M, now.bias, dynamics.bias_slope(m, kin, now.velocity), dynamics.inverse_dynamics(m, q, v, v)

    for found, expected in zip(motion(ours), motion(theirs)):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())
    assert not np.allclose(motion(model)[0], motion(theirs)[0])


def test_inertias_can_be_left_alone():
    model = scene()
    heavy = eqx.tree_at(lambda m: m.bodies.mass, model, 2 * model.bodies.mass)
    heavy = eqx.tree_at(lambda m: m.bodies.inertia, heavy, 2 * model.bodies.inertia)
    heavy = eqx.tree_at(lambda m: m.joints.armature, heavy, 2 * model.joints.armature)
    found = uk.refresh(heavy, inertias=False)
    assert_same(found.bodies.mass, heavy.bodies.mass)
    np.testing.assert_allclose(found.bodies.invweight, model.bodies.invweight / 2, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found.joints.invweight, model.joints.invweight / 2, rtol=1e-12)
    assert_same(uk.refresh(heavy).bodies.mass[1:7], model.bodies.mass[1:7])


# ---- fluids ----------------------------------------------------------------------------------------------------


def test_fluid_drag_refuses_principal_axes_that_turn():
    model = scene(option="density='1000'")
    assert_same(uk.refresh(model), model)
    turned = changed(model, lambda m: m.geoms.pos, (geom(model, "brick"), 0), -0.2)
    with pytest.raises(uk.UnsupportedModelError, match="body 'arm': the fluid drags") as error:
        uk.refresh(turned)
    assert len(error.value.elements) == 1
    uk.refresh(turned, inertias=False)
    with pytest.raises(uk.UnsupportedModelError, match="body 'hand'"):
        jax.grad(lambda x: uk.refresh(eqx.tree_at(lambda m: m.geoms.density, model, x)).bodies.mass.sum())(
            model.geoms.density
        )
    heavier = jax.jit(lambda mass: uk.refresh(changed(model, lambda m: m.bodies.mass, body(model, "bob"), mass)))(3.0)
    assert_derived_equal(heavier, scene(option="density='1000'", mass=3))


def test_fluid_drag_follows_the_axes_of_a_single_geom():
    text = "<mujoco><option density='1000'/><worldbody><body><freejoint/><geom type='box' size='.1 .2 .3' {}/></body></worldbody></mujoco>"  # noqa: E501
    model, turned = uk.load(text.format("")), uk.load(text.format("quat='.5 .1 -.7 .3' density='400'"))
    leaves = (turned.geoms.quat, turned.geoms.density)
    found = jax.jit(lambda x: uk.refresh(eqx.tree_at(lambda m: (m.geoms.quat, m.geoms.density), model, x)))(leaves)
    assert_same(found.bodies, turned.bodies)


# ---- derivatives -----------------------------------------------------------------------------------------------

LEAVES = {
    "density": lambda m: m.geoms.density,
    "size": lambda m: m.geoms.size,
    "geom pos": lambda m: m.geoms.pos,
    "geom quat": lambda m: m.geoms.quat,
    "mass": lambda m: m.bodies.mass,
    "body pos": lambda m: m.bodies.pos,
    "axis": lambda m: m.joints.axis,
    "armature": lambda m: m.joints.armature,
    "qpos0": lambda m: m.joints.qpos0,
}


@pytest.fixture(scope="module")
def probe():
    """A model and a scalar of what refresh makes of it, every derived leaf with random weights of its own scale."""
    model = scene()
    rng = np.random.default_rng(0)
    bodies = model.bodies
    scales = [bodies.mass, bodies.ipos, bodies.inertia, bodies.inertia, bodies.invweight, model.joints.invweight]
    weights = [rng.normal(size=s.shape) / np.where(np.abs(s) > 1e-12, np.abs(s), 1.0) for s in scales]

    def scalar(m):
        new = uk.refresh(m)
        b = new.bodies
        leaves = (b.mass, b.ipos, b.inertia, b.products, b.invweight, new.joints.invweight)
        return sum((w * x).sum() for w, x in zip(weights, leaves, strict=True))

    return model, jax.jit(scalar), jax.jit(jax.grad(scalar))


@pytest.mark.parametrize("name", LEAVES)
def test_gradients_agree_with_central_differences(probe, name):
    model, scalar, gradient = probe
    where = LEAVES[name]
    x, found = np.asarray(where(model)), np.asarray(where(gradient(model)))
    expected = np.zeros_like(x)
    for k in np.ndindex(x.shape):
        h = 2e-5 * (abs(x[k]) if abs(x[k]) > 1e-3 else 1.0)
        at = [x.copy() for _ in range(4)]
        for other, step in zip(at, (h, -h, 2 * h, -2 * h), strict=True):
            other[k] += step
        one, two, three, four = (float(scalar(eqx.tree_at(where, model, other))) for other in at)
        expected[k] = (8 * (one - two) - (three - four)) / (12 * h)  # of fourth order
    assert np.isfinite(found).all() and np.abs(found).max() > 0
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(found).max()
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7 * np.abs(found).max())


@pytest.mark.slow
def test_forward_mode_agrees_with_reverse_mode(probe):
    model, scalar, gradient = probe
    rng = np.random.default_rng(1)
    tangent = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), model)
    _, forward = jax.jvp(scalar, (model,), (tangent,))
    products = jax.tree.map(lambda a, b: (a * b).sum(), gradient(model), tangent)
    assert forward == pytest.approx(float(sum(jax.tree.leaves(products))), rel=1e-10)


SPHERE, CUBE = "<geom size='.1'/>", "<geom type='box' size='.1 .1 .1'/>"


def test_equal_moments_have_gradients():
    bodies = "".join(f"<body><freejoint/>{geoms}</body>" for geoms in (SPHERE, CUBE, SPHERE + CUBE))
    model = uk.load(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")

    def where(m):
        return m.geoms.density, m.geoms.size, m.geoms.pos, m.geoms.quat

    def derived(parts):
        new = uk.refresh(eqx.tree_at(where, model, parts)).bodies
        return new.inertia, new.products, new.invweight

    backward, forward = jax.jit(lambda x: (jax.jacrev(derived)(x), jax.jacfwd(derived)(x)))(where(model))
    for one, other in zip(jax.tree.leaves(backward), jax.tree.leaves(forward), strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10 * np.abs(one).max(initial=1e-10))
    density = np.asarray(forward[0][0]).sum(2)  # of all geoms of a body at once: inertia grows in proportion
    np.testing.assert_allclose(density, model.bodies.inertia / 1000, rtol=1e-12)


def test_a_batch_of_densities():
    model = scene()
    factors = jnp.array([0.5, 1.0, 2.0])

    def masses(factor):
        new = uk.refresh(eqx.tree_at(lambda m: m.geoms.density, model, factor * model.geoms.density))
        return new.bodies.mass, new.bodies.invweight

    mass, weight = jax.jit(jax.vmap(masses))(factors)
    assert_same(mass[1], model.bodies.mass)
    own = np.asarray(model.bodies.layout.inferred)
    np.testing.assert_allclose(mass[:, own], factors[:, None] * model.bodies.mass[own], rtol=1e-12)
    for k in range(3):
        np.testing.assert_allclose(weight[k], masses(factors[k])[1], rtol=1e-10, atol=1e-14)


SINGLE = """
import equinox as eqx, jax, jax.numpy as jnp, numpy as np
import ukemi as uk
model = uk.load("ant")
assert model.bodies.layout.inferred[1:].all()
loss = lambda size: uk.refresh(eqx.tree_at(lambda m: m.geoms.size, model, size)).bodies.invweight.sum()
slope = jax.jit(jax.grad(loss))(model.geoms.size)
for value, other in zip(jax.tree.leaves(uk.refresh(model)), jax.tree.leaves(model), strict=True):
    assert value.dtype == other.dtype
    np.testing.assert_allclose(value, other, rtol=2e-5, atol=1e-6 * np.abs(other).max(initial=1e-3))
assert slope.dtype == jnp.float32 and np.isfinite(slope).all() and slope.any()
"""


@pytest.mark.slow
def test_single_precision():
    environment = {**os.environ, "JAX_ENABLE_X64": "0"}
    done = subprocess.run([sys.executable, "-c", SINGLE], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
