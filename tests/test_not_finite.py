"""NaN and infinity are never dropped: wherever they act, the next state is not finite and says so."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.slow import few
from ukemi.collide.detect import detect
from ukemi.mechanics.kinematics import kinematics
from ukemi.model.records import as_input

# a ball on the floor, at a limit, driven by a servo that is clamped, and touched by one that is moved by hand; with
# friction of one no impulses would make it leave both floor and ball
SCENE = """
<mujoco>
  <option timestep="0.005" density="1.2" viscosity="1e-3" wind="1 0 0"/>
  <custom><numeric name="restitution" data="0.5"/></custom>
  <default><geom friction=".5"/></default>
  <worldbody>
    <geom type="plane" size="1 1 .1" margin=".001"/>
    <body pos="0 0 .09" gravcomp=".1">
      <joint name="x" type="slide" axis="1 0 0" limited="true" range="-1 .01" damping=".1" stiffness="1"/>
      <joint name="z" type="slide" axis="0 0 1" frictionloss=".1"/>
      <geom type="sphere" size=".1" solref="-900 -20"/>
    </body>
    <body mocap="true" pos=".18 0 .1"><geom type="sphere" size=".1"/></body>
  </worldbody>
  <actuator>
    <position joint="x" kp="10" ctrlrange="-1 .1"/>
    <general joint="x" dyntype="filter" dynprm=".1" gear="2" gainprm="3"/>
    <general joint="z" dyntype="integrator" actlimited="true" actrange="-.3 .3"/>
    <motor joint="x" forcerange="-1 1"/>
  </actuator>
</mujoco>
"""
# a muscle along a sum of joints with a spring, a motor whose bristles rub at a spring that yields, a fin in a stream,
# and a rod that reaches from a crank to a slider
DRIVEN = """
<mujoco>
  <option timestep="0.005" density="50" viscosity=".1"/>
  <asset><mesh name="fin" vertex="0 0 0 .3 .02 0 0 .2 .01 .05 0 .1"/></asset>
  <worldbody>
    <body><joint name="a" axis="0 1 0" damping=".1"/>
      <geom type="mesh" mesh="fin" fluidshape="ellipsoid" contype="0" conaffinity="0"/>
      <body pos=".3 0 0"><joint name="b" axis="0 1 0" stiffness="2" springyield=".02"/>
        <geom size=".05" pos=".1 0 0" contype="0"/><site name="crank"/>
      </body>
    </body>
    <site name="rail" pos=".1 0 .1"/>
  </worldbody>
  <tendon>
    <fixed name="sum" stiffness="5" damping=".2" springlength="-.1 .1" frictionloss=".01" limited="true" range="-2 .3">
      <joint joint="a" coef="1"/><joint joint="b" coef="-.5"/>
    </fixed>
  </tendon>
  <actuator><muscle tendon="sum" lengthrange="-1 1" force="5" tausmooth=".2"/><motor tendon="sum"/>
    <general cranksite="crank" slidersite="rail" cranklength=".5"/>
    <dcmotor joint="b" motorconst=".1 0" resistance="1" lugre="4 .02 .05 .08 .3"/>
  </actuator>
</mujoco>
"""
SLOW = pytest.mark.slow
LAWS = [
    pytest.param(uk.Soft(integrator="RK4"), id="newton"),
    pytest.param(uk.Soft(solver="CG", cone="elliptic", integrator="implicitfast"), id="cg"),
    pytest.param(uk.Soft(solver="PGS", iterations=2000), id="pgs", marks=SLOW),
    pytest.param(uk.LCP(), id="lcp"),
    pytest.param(uk.Impact(), id="impact", marks=SLOW),
    pytest.param(uk.Adaptive(), id="adaptive"),
    pytest.param(uk.NCP(), id="ncp"),
    pytest.param(uk.Maximal(), id="maximal", marks=SLOW),
]


@pytest.fixture(scope="module")
def scene():
    model = uk.load(SCENE)
    state = uk.initial_state(model, q=[0.02, 0.0], v=[0.1, -0.2])
    pos, quat = jnp.asarray([[0.18, 0.0, 0.1]]), jnp.asarray([[1.0, 0.0, 0.0, 0.0]])
    given = uk.Input(jnp.asarray([0.05, 0.1, 0.2, 0.3]), jnp.zeros(2), jnp.zeros((model.tree.nb, 6)), pos, quat)
    return model, state, given


@pytest.fixture(scope="module", params=LAWS)
def step(request):
    return jax.jit(partial(uk.step, method=request.param))


DRIVE = jax.jit(partial(uk.step, method=uk.Soft()))


def moved(a, b) -> bool:
    return not all(jnp.array_equal(getattr(a, name), getattr(b, name)) for name in ("q", "v", "act"))


def entries(tree):
    """Every number of a pytree, as (name, function that replaces it)."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    values = [leaf for _, leaf in leaves]
    for k, (path, leaf) in enumerate(leaves):
        if not jnp.issubdtype(leaf.dtype, jnp.floating) or "keyframes" in str(path) or "cache" in str(path):
            continue
        for i in range(leaf.size):

            def replace(change, k=k, i=i, leaf=leaf):
                flat = np.array(leaf).ravel()
                flat[i] = change(flat[i])
                new = [*values[:k], jnp.asarray(flat.reshape(leaf.shape)), *values[k + 1 :]]
                return jax.tree_util.tree_unflatten(structure, new)

            yield f"{jax.tree_util.keystr(path)}[{i}]", replace


def failures(step, scene, which: int, bad: float):
    """Numbers that act, but that are taken for something else when they are not finite."""
    before = step(*scene)
    assert int(before.status) == 0
    changes = (lambda x: 1.1 * x + 0.013), (lambda x: 0.9 * x - 0.013)
    for name, replace in entries(scene[which]):
        given = list(scene)
        acts = False
        for change in changes:
            given[which] = replace(change)
            acts = acts or moved(step(*given), before)
        given[which] = replace(lambda x: bad)
        if acts and step(*given).status == 0:
            yield name


def test_parameters_that_are_no_number_are_not_dropped(step, scene):
    assert list(failures(step, scene, 0, np.nan)) == []


@pytest.mark.parametrize("q", [-0.3, 0.02, 0.4])
def test_muscles_motors_tendons_fins_and_cranks(q):
    """On either side of the band in which the tendon's spring rests, and within."""
    model, still = uk.load(DRIVEN), jnp.zeros(2)
    state = uk.initial_state(model, q=[q, 0.05], v=[0.3, -0.2])
    state = eqx.tree_at(lambda s: s.act, state, state.act.at[:2].set(jnp.asarray([0.4, 0.01])))
    given = uk.Input(jnp.asarray([0.5, 0.1, 0.2, 0.3]), still, jnp.zeros((model.tree.nb, 6)))
    assert list(failures(DRIVE, (model, state, given), 0, np.nan)) == []


@pytest.mark.parametrize("ground", few(["plane", "box", "sphere", "cylinder", "mesh", "hfield"], "plane", "hfield"))
def test_corners_of_meshes(ground):
    """A corner that touches is not passed over for another one of any shape."""
    shape = {"mesh": 'mesh="slab"', "hfield": 'hfield="flat"'}.get(ground, 'size=".5 .1 .1"')
    pos = {"plane": 0, "sphere": -0.5, "hfield": -0.1}.get(ground, -0.1)
    slab = " ".join(f"{x} {y} {z}" for x in (-1, 1) for y in (-1, 1) for z in (-0.1, 0.1))
    model = uk.load(f"""<mujoco><asset><mesh name="slab" vertex="{slab}"/>
      <mesh name="rock" vertex="0 0 0 .2 .03 .01 -.1 .15 .02 -.1 -.14 .03 .02 .01 .2"/>
      <hfield name="flat" nrow="3" ncol="3" size="1 1 .1 .1" elevation="0 1 1 1 1 1 1 1 .9"/></asset>
      <worldbody><geom type="{ground}" {shape} pos="0 0 {pos}"/>
      <body pos=".05 .02 -.005"><freejoint/><geom type="mesh" mesh="rock"/></body></worldbody></mujoco>""")
    given = uk.Input(jnp.zeros(0), jnp.zeros(6), jnp.zeros((2, 6)))
    scene = model, uk.initial_state(model, v=[0.1, 0.2, -0.3, 0.1, 0.2, 0.1]), given
    assert uk.contacts(model, scene[1]).active.any()
    assert list(failures(DRIVE, scene, 0, np.nan)) == []


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_inputs_that_are_not_finite_are_not_dropped(step, scene, bad):
    assert list(failures(step, scene, 2, bad)) == []


@pytest.mark.parametrize("law", [uk.Soft(), uk.Adaptive(), uk.LCP()], ids=["soft", "adaptive", "lcp"])
def test_controls_that_arrive_late_are_not_finite_at_once(law):
    """States hold them, of which status speaks."""
    late = '<position joint="a" kp="1" nsample="5" delay=".02"/>'
    model = uk.load(DRIVEN.replace("</actuator>", f"{late}</actuator>"))
    ctrls = jnp.zeros((4, model.nu)).at[2, -1].set(jnp.nan)
    states = jax.jit(partial(uk.rollout, method=law))(model, uk.initial_state(model), ctrls)
    assert not jnp.isfinite(states.act[2]).all() and jnp.isfinite(states.q[2]).all()
    assert np.array_equal(states.status & uk.Status.NOT_FINITE > 0, [False, False, True, True])


@pytest.mark.parametrize("kind", ["sphere", "capsule", "cylinder", "ellipsoid", "box"])
def test_shapes_that_are_nowhere_are_not_off_the_floor(kind):
    text = f"<geom type='plane' size='1 1 .1'/><body><freejoint/><geom type='{kind}' size='.1 .1 .1'/></body>"
    model = uk.load(f"<mujoco><worldbody>{text}</worldbody></mujoco>")
    q = model.joints.qpos0

    @jax.jit
    def look(model):
        return detect(model, kinematics(model, q))

    assert not jnp.isnan(look(model).distance).any()
    for place in (lambda m: m.geoms.quat, lambda m: m.geoms.pos, lambda m: m.geoms.size):
        off = eqx.tree_at(place, model, place(model).at[1, 0].set(jnp.nan))
        found = look(off)
        assert found.active.all() and jnp.isnan(found.distance).all() and jnp.isnan(found.frame).all()


@pytest.mark.parametrize("q", [[-1.1], [1.2]])
@pytest.mark.parametrize("end", [0, 1])
def test_limits_that_are_no_number_are_not_dropped(q, end):
    text = '<joint name="j" limited="true" range="-1 1"/><geom size=".1"/>'
    model = uk.load(f"<mujoco><compiler angle='radian'/><worldbody><body>{text}</body></worldbody></mujoco>")
    beyond = eqx.tree_at(lambda m: m.joints.range, model, model.joints.range.at[0, end].set(jnp.nan))
    state = uk.initial_state(model, q=q)
    assert uk.step(model, state).status == 0
    assert uk.step(beyond, state).status & uk.Status.NOT_FINITE


def test_states_that_are_not_finite_say_so(step, scene):
    model, state, given = scene
    for name in ("q", "v", "act"):
        there = eqx.tree_at(lambda s, name=name: getattr(s, name), state, getattr(state, name).at[0].set(jnp.nan))
        after = step(model, there, given)
        assert after.status & uk.Status.NOT_FINITE
        assert not all(jnp.isfinite(getattr(after, part)).all() for part in ("q", "v", "act"))


def test_a_rollout_under_jit_does_not_hang_in_the_air():
    model = uk.load("quadrotor")
    state = uk.initial_state(model)
    ctrls = jnp.zeros((12, model.nu)).at[6:].set(jnp.nan)
    states = jax.jit(uk.rollout)(model, state, ctrls)
    assert np.array_equal(states.status == 0, np.arange(12) < 6)
    assert jnp.isnan(states.v[6:]).any(-1).all()


@pytest.mark.parametrize("law", [uk.Soft(), uk.LCP()], ids=["soft", "lcp"])
def test_masses_below_zero_say_so(law):
    model = uk.load('<mujoco><worldbody><body><freejoint/><geom size=".1"/></body></worldbody></mujoco>')
    state = uk.initial_state(model)
    lighter = eqx.tree_at(lambda m: m.bodies.mass, model, -model.bodies.mass)
    assert jax.jit(law.step)(lighter, state, as_input(model, None)).status & uk.Status.NOT_FINITE
