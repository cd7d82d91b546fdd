"""One test per trap that derivatives of other engines have fallen into."""

# ruff: noqa: E501  XML reads better unbroken

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from ukemi.errors import GradientError
from ukemi.mechanics.kinematics import difference, integrate
from ukemi.model.records import as_input

# compiling is what takes time here, so leave the optimiser out
quick = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
PRECISE = {"iterations": 300, "line_search_iterations": 200, "tolerance": 1e-14}
# Things are let 0.4 mm into each other: half a millimetre is where the impedance has a kink in its slope.
FLOOR = '<geom name="floor" type="plane" size="5 5 .1" friction="{}" condim="6"/>'


def parametrized(names, slow):
    """Parameters of which some are for the slow run."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in slow else name for name in names]


def scene(body: str, option: str = "", more: str = "") -> str:
    return f"<mujoco><option {option}/><worldbody>{body}</worldbody>{more}</mujoco>"


def place(model: uk.Model, at: uk.State, x) -> uk.State:
    """The state moved by x (2 nv,): positions in the tangent space, then velocities."""
    return uk.initial_state(model, q=integrate(model.tree, at.q, x[: model.nv], 1.0), v=at.v + x[model.nv :])


def outcome(model: uk.Model, state: uk.State, base) -> jax.Array:
    return jnp.concatenate([difference(model.tree, state.q, base), state.v])


def jacobians(model: uk.Model, at: uk.State, ctrl=None, method: uk.Soft | None = None, h: float = 1e-5):
    """Derivative of a step in positions and velocities: forward mode, reverse mode, central differences."""
    method = dataclasses.replace(method or uk.Soft(), **PRECISE)

    def after(x, base):
        return outcome(model, uk.step(model, place(model, at, x), ctrl, method), base)

    def all_three(zero):
        base = uk.step(model, at, ctrl, method).q
        f = functools.partial(after, base=base)
        shifts = h * jnp.eye(len(zero))

        def central(d):
            ahead, behind, far_ahead, far_behind = jax.lax.map(lambda t: f(t * d), jnp.array([1.0, -1.0, 2.0, -2.0]))  # compiled once
            return (8 * (ahead - behind) - (far_ahead - far_behind)) / (12 * h)

        return jax.jacfwd(f)(zero), jax.jacrev(f)(zero), jax.lax.map(central, shifts).T

    return jax.tree.map(np.asarray, quick(all_three)(jnp.zeros(2 * model.nv)))


def assert_exact(model, at, ctrl=None, method=None, tolerance=1e-6, h: float = 1e-5):
    """Both modes agree with each other and with differences; returns the derivative."""
    forward, reverse, expected = jacobians(model, at, ctrl, method, h)
    assert np.isfinite(forward).all() and np.isfinite(reverse).all()
    np.testing.assert_allclose(reverse, forward, atol=1e-11 * (1 + np.abs(forward).max()))
    np.testing.assert_allclose(forward, expected, atol=tolerance * np.abs(expected).max())
    return forward


def gradient(f, x):
    """Gradient in reverse mode, checked to be finite and that of forward mode."""
    reverse, forward = quick(jax.grad(f))(x), quick(jax.jacfwd(f))(x)
    assert np.isfinite(reverse).all() and np.isfinite(forward).all()
    np.testing.assert_allclose(reverse, forward, atol=1e-11 * (1 + np.abs(forward).max()))
    return np.asarray(reverse)


# ---- signs and factors -----------------------------------------------------------------------------------------------

SPINNER = """
<body pos="0 0 1"><freejoint/><geom type="box" size=".1 .2 .3" pos=".1 .05 .2" euler="10 20 30"/>
  <body pos=".2 .1 0"><joint type="ball" damping=".3"/><geom type="box" size=".1 .05 .2" pos=".1 0 .1"/>
    <body pos=".2 0 0"><joint axis="0 1 .3" damping=".2"/><geom type="capsule" size=".04 .1" pos=".1 0 0"/></body></body></body>"""


@pytest.mark.parametrize("integrator", ["RK4", "implicit", "implicitfast", "Euler"])
def test_integrators_are_not_off_by_factors(integrator):
    """Large steps, large velocities: an integrator whose derivative forgets a stage or a slope is off by per cents."""
    model = uk.load(scene(SPINNER, f'integrator="{integrator}" timestep=".02"'))
    rng = np.random.default_rng(1)
    q = integrate(model.tree, model.joints.qpos0, jnp.asarray(0.5 * rng.normal(size=model.nv)), 1.0)
    at = uk.initial_state(model, q=q, v=3 * rng.normal(size=model.nv))
    assert_exact(model, at, tolerance=1e-8)


ARMS = """
<body name="a" pos="0 0 1"><joint name="a0" axis="0 1 0"/><geom size=".05" pos=".1 0 0"/>
  <body name="b" pos=".3 0 0" quat=".9 .1 0 .2"><joint axis="1 0 .3"/><geom size=".05" pos=".1 .1 0"/></body></body>
<body name="c" pos=".32 .01 1.01"><freejoint/><geom type="box" size=".1 .05 .07"/></body>"""


@pytest.mark.parametrize("solver", ["Newton", "CG", "PGS"])
@pytest.mark.parametrize("kind", parametrized(["connect", "weld"], ["connect"]))
def test_equalities_have_the_right_sign_under_every_solver(kind, solver):
    anchor = ' anchor=".1 .05 .02"' if kind == "connect" else ""
    off = scene(ARMS.replace("<geom", '<geom contype="0" conaffinity="0"'), more=f'<equality><{kind} body1="b" body2="c"{anchor}/></equality>')
    model = uk.load(off)
    rng = np.random.default_rng(2)
    at = uk.initial_state(model, v=0.3 * rng.normal(size=model.nv))
    J = assert_exact(model, at, method=uk.Soft(solver=solver), tolerance=1e-6 if solver == "Newton" else 1e-5)
    if kind == "weld":  # the two move as one: what one is given, the other takes over
        assert J[model.nv + 2, model.nv] * J[model.nv, model.nv + 2] > 0


SLIDER = FLOOR.format(".5 .01 .01") + """
<body pos="0 0 .0996"><freejoint/><geom type="box" size=".1 .1 .1" condim="{}" friction=".5 .01 .01" mass="1"/></body>"""


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_friction_in_the_velocity(cone):
    """A box that slides keeps its speed but for a constant; one that sticks loses what it is given."""
    model = uk.load(scene(SLIDER.format(3), f'cone="{cone}"'))
    slides = assert_exact(model, uk.initial_state(model, v=[1.0, 0.05, 0, 0, 0, 0]))
    assert abs(slides[6, 6] - 1) < 0.05
    sticks = assert_exact(model, uk.initial_state(model, v=[1e-5, 0, 0, 0, 0, 0]))
    assert abs(sticks[6, 6]) < 0.9 < slides[6, 6]


def test_a_box_on_a_plane_is_pushed_back_where_it_came_from():
    model = uk.load(scene(SLIDER.format(3)))
    J = assert_exact(model, uk.initial_state(model))
    assert J[8, 2] < 0 and J[8, 8] < 1  # deeper means faster up, a push down is braked
    assert (np.diag(J[9:11, 3:5]) < 0).all()  # a tilt is righted


def test_applied_wrenches_have_a_gradient():
    model = uk.load("humanoid")
    state = uk.initial_state(model)
    body, h = 5, float(model.options.timestep)

    def after(xfrc):
        return uk.step(model, state, uk.Input(xfrc=jnp.zeros((model.tree.nb, 6)).at[body].set(xfrc))).v

    J = np.asarray(quick(jax.jacrev(after))(jnp.zeros(6)))
    M = jax.jit(lambda s: uk.Soft().forward(model, s, as_input(model, None)).smooth.M)(state)
    assert np.abs(J).max(0).min() > 1e-4 and np.abs(J).max() < 10 * h * np.abs(np.linalg.inv(M)).max()
    d = 1e-3
    column = (after(jnp.zeros(6).at[4].set(d)) - after(jnp.zeros(6).at[4].set(-d))) / (2 * d)
    np.testing.assert_allclose(J[:, 4], column, atol=1e-7 * np.abs(J).max())


# ---- places where a formula divides by zero ----------------------------------------------------------------------------


def two(first: str, second: str, option: str = "") -> str:
    """Two floating bodies, with their geoms; the second one's joint comes last."""
    return scene(f"<body><freejoint/>{first}</body><body><freejoint/>{second}</body>", f'gravity="0 0 0" {option}')


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


@pytest.mark.parametrize("cone", parametrized(["pyramidal", "elliptic"], ["pyramidal"]))
@pytest.mark.parametrize("name", COINCIDENT)
def test_degenerate_poses_have_finite_gradients(name, cone):
    first, second, pose = COINCIDENT[name]
    model = uk.load(two(first, second, f'cone="{cone}"'))
    at = uk.initial_state(model, q=[0, 0, 0, 1, 0, 0, 0, *pose])  # at rest: zero relative velocity, too

    def after(x, model):
        return (outcome(model, uk.step(model, place(model, at, x)), at.q) ** 2).sum()

    def both(x, model):
        return jax.grad(after, argnums=(0, 1))(x, model), jax.jacfwd(after)(x, model)

    (state, parameters), forward = quick(both)(jnp.zeros(2 * model.nv), model)
    for leaf in jax.tree.leaves((state, parameters, forward)):
        assert np.isfinite(leaf).all()
    np.testing.assert_allclose(state, forward, atol=1e-10 * (1 + np.abs(forward).max()))


@pytest.mark.parametrize("name", ["parallel capsules", "boxes face on"])
def test_rank_deficient_contacts_push_along_their_normal(name):
    """Contacts that determine each other's force only together still have the derivative of what they do."""
    first, second, pose = COINCIDENT[name]
    model = uk.load(two(first, second))
    normal = int(np.argmax(pose[:3]))
    at = uk.initial_state(model, q=[0, 0, 0, 1, 0, 0, 0, *pose])
    f = lambda x: uk.step(model, place(model, at, jnp.zeros(24).at[6 + normal].set(x)), None, uk.Soft(**PRECISE)).v[6 + normal]  # noqa: E731
    slope = float(quick(jax.grad(f))(0.0))
    assert slope < 0
    f = quick(f)
    np.testing.assert_allclose(slope, (f(1e-6) - f(-1e-6)) / 2e-6, rtol=1e-6)


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
@pytest.mark.parametrize("dim", parametrized([3, 4, 6], [4]))
def test_friction_at_zero_slip(dim, cone):
    """At rest on the floor, without any relative velocity: sticking, with the derivative of sticking."""
    model = uk.load(scene(SLIDER.format(dim), f'cone="{cone}"'))
    J = assert_exact(model, uk.initial_state(model), h=1e-6)
    assert np.abs(J[6:8, 6:8]).max() < 1


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_all_six_dimensions_of_a_contact(cone):
    """Sliding, turning and rolling at once, each against its own friction."""
    ball = FLOOR.format(".8 .03 .02") + '<body pos="0 0 .0996"><freejoint/><geom size=".1" condim="6" friction=".8 .03 .02" mass="1"/></body>'
    model = uk.load(scene(ball, f'cone="{cone}"'))
    for v in ([0.5, 0.2, 0, 1, -2, 3], [1e-4, 0, 0, 0, 1e-4, 1e-4]):
        J = assert_exact(model, uk.initial_state(model, v=v))
        assert np.abs(J[9:, 9:]).max() > 0.1


# ---- rotations -------------------------------------------------------------------------------------------------------

BALLS = """
<body pos="0 0 1"><joint type="ball" limited="true" range="0 {}" stiffness="2" damping=".1"/><geom type="capsule" fromto="0 0 0 .3 .1 0" size=".04"/>
  <body pos=".3 .1 0"><joint type="ball" stiffness="1"/><geom size=".05" pos=".1 0 .1"/></body></body>"""
BALL_SERVO = '<actuator><general joint="{}" gear="1 .5 .2" gainprm="3" biastype="affine" biasprm="0 -3 -.1"/></actuator>'


@pytest.mark.parametrize("turn", [0.0, 1e-9, 1e-5, np.pi - 1e-3, np.pi - 1e-9, np.pi, np.pi + 1e-3])
def test_rotations_at_the_identity_and_at_half_a_turn(turn):
    """Springs, limits and servos of balls use the logarithm, which has a kink at half a turn and 0/0 at none."""
    model = uk.load(scene(BALLS.format(60).replace('type="ball" l', 'name="b" type="ball" l'), more=BALL_SERVO.format("b")))
    axis = np.array([0.6, -0.48, 0.64])
    one = np.concatenate([[np.cos(turn / 2)], np.sin(turn / 2) * axis])
    at = uk.initial_state(model, q=np.concatenate([one, one]), v=0.1 * np.arange(6))
    forward, reverse, expected = jacobians(model, at, jnp.ones(1), h=1e-6)
    assert np.isfinite(forward).all() and np.isfinite(reverse).all()
    np.testing.assert_allclose(reverse, forward, atol=1e-11 * (1 + np.abs(forward).max()))
    # across half a turn the force jumps, and at no turn the limit's axis is undefined (though it does not act there)
    if abs(turn - np.pi) > 1e-4:
        np.testing.assert_allclose(forward, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("upright", [True, False])
def test_a_free_body_upright_and_upside_down(upright):
    model = uk.load(scene(FLOOR.format("1 .01 .01") + '<body pos="0 0 .0997"><freejoint/><geom type="box" size=".1 .2 .1"/></body>'))
    q = np.array([0, 0, 0.0997, *([1, 0, 0, 0] if upright else [0, 1, 0, 0])])
    assert_exact(model, uk.initial_state(model, q=q, v=[0.1, 0, 0, 0, 0.1, 0.2]))


# ---- edges of modes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solimp", ["0 .95 .01 .5 2", ".9 .95 .001 .5 2"])
def test_a_joint_exactly_at_its_limit(solimp):
    """The derivative of one side: none within the limit, that of the limit's spring beyond it."""
    model = uk.load(scene(f'<body><joint axis="0 1 0" limited="true" range="-30 30" solimplimit="{solimp}"/><geom size=".1" pos=".3 0 0"/></body>'))
    limit = float(model.joints.range[0, 1])

    def speed(q, v):
        return uk.step(model, uk.initial_state(model, q=q[None], v=v[None]), None, uk.Soft(**PRECISE)).v[0]

    slopes = quick(lambda q, v: (jax.grad(speed, (0, 1))(q, v), jax.jacfwd(speed)(q, v)))
    at, inside, outside = (slopes(jnp.asarray(limit + d), jnp.asarray(0.1)) for d in (0.0, -1e-9, 1e-9))
    for found in (at, inside, outside):
        assert np.isfinite(jax.tree.leaves(found)).all()
        np.testing.assert_allclose(found[0][0], found[1], rtol=1e-9)
    assert min(abs(at[0][1] - side[0][1]) for side in (inside, outside)) < 1e-6


@pytest.mark.parametrize("solimp", ["0 .95 .01 .5 2", ".9 .95 .001 .5 2"])
@pytest.mark.parametrize("speed", [-0.5, 0.0, 0.5])
def test_contact_just_opening_and_closing(solimp, speed):
    """At distance zero the derivative is finite and that of one of the two sides."""
    body = FLOOR.format(1).replace("/>", f' solimp="{solimp}"/>') + f'<body><joint type="slide" axis="0 0 1"/><geom size=".1" solimp="{solimp}"/></body>'
    model = uk.load(scene(body))

    def after(z, v):
        return uk.step(model, uk.initial_state(model, q=z[None], v=v[None]), None, uk.Soft(**PRECISE)).v[0]

    slopes = quick(jax.grad(after, (0, 1)))
    v = jnp.asarray(speed)
    at, above, below = (np.array(slopes(jnp.asarray(0.1 + d), v)) for d in (0.0, 1e-10, -1e-10))
    assert np.isfinite([at, above, below]).all()
    sides = [np.abs(at - side).max() / (1 + np.abs(side).max()) for side in (above, below)]
    assert min(sides) < 1e-3


# ---- numbers that are far apart ------------------------------------------------------------------------------------------


def test_unlimited_ranges_do_not_turn_into_nan():
    """Limits that do not apply are zero or infinite in the model; neither may reach a derivative."""
    model = uk.load(scene(ARMS, more='<actuator><motor joint="a0"/><position joint="a0" kp="3"/></actuator>'))
    huge = jnp.full_like(model.actuators.ctrl_range, jnp.inf) * jnp.array([-1.0, 1.0])
    actuators = dataclasses.replace(model.actuators, ctrl_range=huge, force_range=huge)
    endless = dataclasses.replace(model, actuators=actuators)
    state = uk.initial_state(model, v=0.1 * np.arange(model.nv))

    @quick
    def gradients(model, v, ctrl):
        def loss(model, v, ctrl):
            there = uk.initial_state(model, q=state.q, v=v)
            return (uk.step(model, there, ctrl).v ** 2).sum()

        return jax.grad(loss, (0, 1, 2))(model, v, ctrl)

    for variant in (model, endless):
        found = gradients(variant, state.v, jnp.array([0.3, -0.2]))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))
        assert np.abs(found[2]).min() > 0


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
@pytest.mark.parametrize("masses", parametrized([(1e3, 1e-3), (1e-3, 1e3)], [(1e-3, 1e3)]))
def test_mass_ratios_of_a_million(masses, cone):
    """A heavy ball on a light one on the floor, and the other way round."""
    body = FLOOR.format(".7 .01 .01") + "".join(
        f'<body pos=".003 0 {z}"><freejoint/><geom size=".1" mass="{mass}"/></body>' for z, mass in zip((0.0996, 0.2992), masses)
    )
    model = uk.load(scene(body, f'cone="{cone}"'))
    at = uk.initial_state(model, v=0.01 * np.random.default_rng(0).normal(size=12))
    assert_exact(model, at, tolerance=1e-5)


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


@pytest.mark.parametrize("upper", parametrized(UPPER, ("cylinder", "ellipsoid", "box")))
def test_every_contact_answers_to_its_distance_and_sizes(upper):
    """No pair of shapes gives a contact whose distance does not change when a shape moves or grows."""
    for lower, below in TOUCHING.items():
        model = uk.load(scene(f'{below}<body pos="0 0 .0998"><joint type="slide" axis="0 0 1"/>{UPPER[upper]}</body>'))

        def after(z, size, model=model):
            grown = dataclasses.replace(model, geoms=dataclasses.replace(model.geoms, size=size))
            return uk.step(grown, uk.initial_state(grown, q=z[None])).v[0]

        lift, growth = quick(jax.grad(after, (0, 1)))(jnp.zeros(()), model.geoms.size)
        assert lift < -0.01, (lower, upper)  # deeper: pushed up faster
        top = int(np.argmax(np.abs(growth[1])))
        assert growth[1, top] > 0.01, (lower, upper)
        if lower != "plane":
            assert np.abs(growth[0]).max() > 0.01, (lower, upper)


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


# ---- second derivatives ---------------------------------------------------------------------------------------------------

SMOOTH = {
    "pendulum": ('<body pos="0 0 1"><joint axis="0 1 0" damping=".1"/><geom size=".1" pos=".3 0 .1"/><body pos=".3 0 .1"><joint axis="1 .3 0" stiffness="2"/><geom size=".05" pos=".1 .2 0"/></body></body>', None),
    "ball joint": (BALLS.format(170), None),
    "rolling sphere": (FLOOR.format(".9 .02 .01") + '<body pos="0 0 .0996"><freejoint/><geom size=".1" condim="6" friction=".9 .02 .01"/></body>', [0.1, 0.02, 0, 0, 1, 0]),
    "two joined bodies": (ARMS.replace("<geom", '<geom contype="0" conaffinity="0"'), None),
}  # fmt: skip


def short_loss(name: str, steps: int):
    """Loss of a short rollout as a function of positions (tangent) and velocities, and where to take it."""
    body, v = SMOOTH[name]
    more = '<equality><connect body1="b" body2="c" anchor=".1 .05 .02"/></equality>' if name == "two joined bodies" else ""
    model = uk.load(scene(body, more=more))
    at = uk.initial_state(model, v=v if v is not None else 0.3 * np.arange(1.0, model.nv + 1))
    target = np.random.default_rng(3).normal(size=2 * model.nv)

    def loss(x):
        states = uk.rollout(model, place(model, at, x), jnp.zeros((steps, 0)), uk.Soft(**PRECISE))
        last = jax.tree.map(lambda leaf: leaf[-1], states)
        return ((outcome(model, last, at.q) - target) ** 2).sum()

    return loss, jnp.zeros(2 * model.nv)


@pytest.mark.parametrize("name", SMOOTH)
def test_hessian_on_smooth_scenes(name):
    """Forward over reverse against differences of the gradient."""
    loss, zero = short_loss(name, steps=4)
    slope = quick(jax.grad(loss))
    H = np.asarray(quick(jax.hessian(loss))(zero))
    assert np.isfinite(H).all()
    np.testing.assert_allclose(H, H.T, atol=1e-8 * np.abs(H).max())
    h = 1e-5
    columns = [
        (8 * (slope(d) - slope(-d)) - (slope(2 * d) - slope(-2 * d))) / (12 * h) for d in h * np.eye(len(zero))
    ]
    np.testing.assert_allclose(H, np.array(columns).T, atol=1e-5 * np.abs(H).max())


def test_reverse_over_reverse_is_refused_and_not_wrong():
    loss, zero = short_loss("rolling sphere", steps=2)
    with pytest.raises(GradientError, match="forward mode over reverse"):
        jax.grad(lambda x: jax.grad(loss)(x).sum())(zero)


def test_parameters_of_a_free_body_in_a_fluid_have_reverse_mode():
    """An integrator that treats its rotation implicitly wrote its part of the solution where that had no transpose."""
    model = uk.load(
        """<mujoco><option integrator="implicitfast" density="1000" viscosity=".01"/>
        <worldbody><body><freejoint/><geom type="capsule" fromto="0 0 0 .3 0 0" size=".05"/></body></worldbody></mujoco>"""
    )
    state = uk.initial_state(model, v=np.linspace(0.1, 1, 6))

    def loss(x):
        there = eqx.tree_at(lambda m: (m.bodies.mass, m.options.gravity), model, (x[0] * model.bodies.mass, x[1:]))
        after = uk.step(there, state)
        return after.q.sum() + after.v.sum()

    both = jax.jit(jax.value_and_grad(loss))
    x = jnp.asarray([1.0, 0.1, 0.2, -9.81])
    steps = 1e-4 * np.eye(4)
    differences = [(both(x + h)[0] - both(x - h)[0]) / 2e-4 for h in steps]
    np.testing.assert_allclose(both(x)[1], differences, rtol=1e-6, atol=1e-9)
