"""What Dojo's own tests ask of its simulator, of `uk.NCP` and `uk.Maximal`: the same scenes, starts and bounds."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukemi as uk
from tests.scenes import robots
from tests.scenes.slow import few
from ukemi.files import source
from ukemi.mechanics.kinematics import difference

LAWS = {"ncp": uk.NCP(), "maximal": uk.Maximal()}
CHUNK = 50  # steps of one program, which serves all lengths


@eqx.filter_jit
def roll(model, state, ctrls, method):
    return uk.rollout(model, state, ctrls, method)


def rolled(model, state, seconds: float, method, torque=()) -> uk.State:
    """All states of some seconds; joints have a torque [N m] for the first of them."""
    parts, steps = [], round(seconds / float(model.options.timestep))
    push = jnp.tile(jnp.asarray(torque if len(torque) else np.zeros(model.nv)), (CHUNK, 1))
    for k in range(0, steps, CHUNK):
        on = k * float(model.options.timestep) < 1.0
        parts.append(roll(model, state, uk.Input(ctrl=jnp.zeros((CHUNK, model.nu)), qfrc=push * on), method))
        state = jax.tree.map(lambda x: x[-1], parts[-1])
    assert int(state.status) == 0
    return jax.tree.map(lambda *x: jnp.concatenate(x), *parts)


def at(model, h: float):
    return eqx.tree_at(lambda m: m.options.timestep, model, jnp.asarray(h))


BOX = """<mujoco><worldbody><geom type="plane" size="50 50 1" friction=".1"/>
<body pos="0 0 .5"><freejoint/><geom type="box" size=".25 .25 .25" mass="1" friction=".1"/></body>
</worldbody></mujoco>"""


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("h", few([0.1, 0.05, 0.01, 0.005], 0.1, 0.05))
def test_a_box_that_is_tossed_comes_to_rest(law, h):
    model = at(uk.load(BOX), h)
    start = uk.initial_state(model, v=np.array([1, 1.5, 1, *(h * np.array([5, 4, 2]))]))
    states = rolled(model, start, 5.0, LAWS[law])
    assert abs(states.v[-1]).max() < 1e-8 and abs(states.q[-1, 2] - 0.25) < 1e-3
    assert lowest_corner(states.q).min() > -1e-7


def lowest_corner(q) -> np.ndarray:
    """Heights (T,) of the box's lowest corner."""
    w, x, y, z = np.moveaxis(np.asarray(q[:, 3:]), -1, 0)
    third = np.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1)
    return np.asarray(q[:, 2]) - 0.25 * abs(third).sum(-1)


@pytest.mark.slow  # the box above, with joints
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("stiffness, damping", [(0.0, 0.3), (30.0, 1000.0)], ids=["limp", "stiff"])
def test_a_quadruped_stays_above_the_floor(law, stiffness, damping):
    """At 20 Hz, with springs and dampers as Dojo's test has them, and as it comes but without its servos."""
    m = source.read("quadruped")
    m.qpos_spring[:], m.jnt_stiffness[1:], m.dof_damping[6:] = m.key_qpos[0], stiffness, damping
    m.actuator_gainprm[:], m.actuator_biasprm[:] = 0, 0
    model = at(uk.load(m), 0.05)
    start = uk.initial_state(model, 0)
    start = eqx.tree_at(lambda s: s.q, start, start.q.at[2].add(0.01))  # whose feet are half a millimetre inside
    states = rolled(model, start, 5.0, LAWS[law])
    found = jax.jit(jax.vmap(lambda state: uk.contacts(model, state)))(states)
    assert np.asarray(jnp.where(found.active, found.distance, 0.0)).min() >= -1e-7
    assert np.asarray(found.active).any(1)[-1]


@pytest.mark.parametrize("law", LAWS)
def test_a_pendulum_rests_on_its_limit(law):
    model = uk.load(f"""<mujoco><compiler angle="radian"/><option timestep=".01"/><worldbody><body pos="0 0 1.1">
    <joint axis="1 0 0" limited="true" range="{np.pi / 4} {np.pi}"/>
    <geom type="box" size=".05 .05 .5" pos="0 0 -.5" mass="1"/></body></worldbody></mujoco>""")
    states = rolled(model, uk.initial_state(model, q=[0.4 * np.pi]), 1.0, LAWS[law])
    assert abs(states.q[-1, 0] - np.pi / 4) < 1e-3
    assert states.q.min() > np.pi / 4 - 1e-7 and states.q[0] > 0.3 * np.pi


FOURBAR = """<mujoco><compiler angle="radian"/><option timestep=".01"/>
<default><geom type="box" size=".05 .05 .5" pos="0 0 -.5" mass="1" contype="0" conaffinity="0"/></default><worldbody>
<body pos="0 0 2.1"><joint axis="1 0 0"/><geom/>
  <body pos="0 0 -1"><joint axis="1 0 0"/><geom/><site name="a" pos="0 0 -1"/></body></body>
<body pos="0 0 2.1"><joint axis="1 0 0"/><geom/>
  <body pos="0 0 -1"><joint axis="1 0 0"/><geom/><site name="b" pos="0 0 -1"/></body></body>
</worldbody><equality><connect site1="a" site2="b"/></equality></mujoco>"""


@pytest.mark.parametrize("law", LAWS)
def test_a_four_bar_linkage_stays_closed(law):
    """Under random torques. Its bars are of one length, so that opposite ones are parallel, or, once it has come
    through the pose in which all lie in one line and either way is open, those side by side.
    """
    model, rng, base, inner = uk.load(FOURBAR), np.random.default_rng(0), np.pi / 4, 0.25
    start = uk.initial_state(model, q=[base + inner, -2 * inner, base - inner, 2 * inner])
    ends = jax.jit(jax.vmap(lambda state: uk.frames(model, state).sites.pos))
    for h in (0.1, 0.05, 0.01, 0.005):
        moved, state = at(model, h), start
        for _ in range(round(5 / h / CHUNK)):
            torque = np.array([1, -1, 0, 0]) * rng.uniform(size=(CHUNK, 4))
            states = roll(moved, state, uk.Input(ctrl=jnp.zeros((CHUNK, 0)), qfrc=jnp.asarray(torque)), LAWS[law])
            assert abs(np.diff(ends(states), axis=1)).max() < 1e-7
            state = jax.tree.map(lambda x: x[-1], states)
        q = np.asarray(state.q)
        parallel = max(abs(q[0] + q[1] - q[2]), abs(q[1] + q[3]))
        assert int(state.status) == 0 and abs(q[0] - np.pi / 4) > 0.01
        assert min(parallel, max(abs(q[0] - q[2]), abs(q[1] - q[3]))) < 1e-5


@pytest.mark.parametrize("law", LAWS)
def test_a_spinning_t_turns_over(law):
    """Dzhanibekov's effect: about its middle axis of inertia it cannot spin for long."""
    model = uk.load("""<mujoco><option timestep=".01" gravity="0 0 0"/><worldbody><body pos="0 0 1"><freejoint/>
    <geom type="capsule" euler="90 0 0" size=".05 .45" mass="1"/>
    <body pos=".25 0 0"><geom type="capsule" euler="0 90 0" size=".05 .175" mass=".5"/></body></body>
    </worldbody></mujoco>""")
    states = rolled(model, uk.initial_state(model, v=[0, 0, 0, 15, 0.01, 0]), 4.0, LAWS[law])
    side = jax.vmap(lambda state: uk.maximal_state(model, state).pos[-1, 0])(states)
    assert side.min() < -0.05 and side[:20].min() > 0.05


# What Dojo joins two bodies of a snake with: slides along x, y, z as far as they go, then turns.
TURNS = {"": [], "revolute": ["1 0 0"], "orbital": ["0 1 0", "0 0 1"], "spherical": ["ball"]}
SNAKES = {f"{slides} slides, {turn or 'fixed'}": (slides, turn) for turn in TURNS for slides in range(4)}


def snake(slides: int, turn: str, links: int = 5) -> str:
    """A snake of boxes, in free space."""
    joints = "".join(f'<joint type="slide" axis="{axis}"/>' for axis in ("1 0 0", "0 1 0", "0 0 1")[:slides])
    for axis in TURNS[turn]:
        joints += '<joint type="ball"/>' if axis == "ball" else f'<joint axis="{axis}"/>'
    inner = ""
    for k in reversed(range(links)):
        held = joints.replace("<joint ", '<joint pos=".5 0 0" ') if k else "<freejoint/>"
        inner = f'<body pos="{-1 if k else 0} 0 0">{held}<geom type="box" size=".5 .075 .05" mass="1"/>{inner}</body>'
    return f'<mujoco><option timestep=".01"/><worldbody>{inner}</worldbody></mujoco>'


PENDULUM = """<mujoco><option timestep=".01"/><worldbody><body><joint axis="1 0 0"/>
<geom type="box" size=".05 .05 .5" pos="0 0 -.5" mass="1"/></body></worldbody></mujoco>"""
SLIDER = PENDULUM.replace('axis="1 0 0"', 'type="slide"').replace("-.5", "1")
FREE = BOX.replace("<mujoco>", '<mujoco><option timestep=".01"/>')


@functools.cache
def free(name: str, stiffness: float, damping: float, gravity: float = 0.0) -> uk.Model:
    """A model that touches nothing, without limits and servos, with springs and dampers of its joints."""
    if name == "atlas":
        m = robots.shared_robot("atlas/atlas_v5_lite.xml")
    else:
        own = {"box": FREE, "pendulum": PENDULUM, "slider": SLIDER}
        text = snake(*SNAKES[name]) if name in SNAKES else own.get(name)
        m = mujoco.MjModel.from_xml_string(text) if text else source.read(name)
    m.opt.timestep, m.opt.gravity[:] = 0.01, [0, 0, gravity]
    m.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_LIMIT
    moving = m.jnt_type != mujoco.mjtJoint.mjJNT_FREE
    m.jnt_stiffness[moving] = stiffness
    m.dof_damping[moving[m.dof_jntid]], m.dof_frictionloss[:] = damping, 0
    if m.nu:
        m.actuator_gainprm[:], m.actuator_biasprm[:] = 0, 0
    return uk.load(m)


def joints_of(model) -> np.ndarray:
    """Degrees of freedom (nv,) that are no free root's."""
    return np.arange(model.nv) >= (6 if model.nq > model.nv and model.nv >= 6 else 0)


# name: springs, dampers, torque of every joint for a second, seconds, and the velocity at the start
MOMENTA = {
    "box": (0, 0, 0, 5, [1, 2, 3, 10, 10, 10]),
    "pendulum": (0, 0, 0, 5, [5]),
    "humanoid": (1, 1, 0.5, 10, None),
    "quadruped": (0.3, 0.1, 0.5, 5, None),
    "atlas": (10, 1, 0.5, 5, None),
    **{name: (0, 0, 0.05, 1.5, "snake") for name in SNAKES},
}


def thrown(model, v, still: float = 1.0) -> uk.State:
    if v is None:
        v = still * np.random.default_rng(0).uniform(size=model.nv) * (np.arange(model.nv) >= 3)
    elif isinstance(v, str):
        v = np.concatenate([[0.1, 0.2, 0.3, 0.1, 0.2, 0.3], np.zeros(model.nv - 6)])
    return uk.initial_state(model, v=v)


@pytest.mark.parametrize("name", few(list(MOMENTA), "box", "pendulum"))
def test_momentum_is_kept(name):
    """Of bodies that joints hold together with springs, dampers and motors; about the pivot of a pendulum."""
    stiffness, damping, torque, seconds, v = MOMENTA[name]
    model = free(name, stiffness, damping)
    states = rolled(model, thrown(model, v), seconds, LAWS["maximal"], torque * joints_of(model))
    kept = jax.jit(jax.vmap(lambda state: uk.momentum(model, state, LAWS["maximal"])))(states)
    assert abs(difference(model.tree, states.q[-1], states.q[0])).max() > 0.05
    for each in [kept.angular] if name == "pendulum" else kept:
        assert abs(each - each[0]).max() < 1e-8


# name: springs, gravity, torque for a second, seconds, velocity (None: random), position, bound
ENERGIES = {
    "box": (0, -10, 0, 5, [1, 2, 3, 1, 1, 1], None, 1e-8),
    "slider with a spring": (10, 0, 0, 5, [0], [0.5], 1e-3),
    "slider that falls": (0, -9.81, 0, 1.5, [0], [0.5], 1e-6),
    "slider with both": (1, -9.81, 0, 10, [0], [0.1], 1e-3),
    "pendulum": (1, 0, 0.5, 25, [0], [np.pi / 2], 1e-2),
    "humanoid": (1, 0, 0.05, 3, None, None, 2e-3),
    "quadruped": (1, 0, 0.05, 5, [0] * 18, None, 1e-2),
    "atlas": (1, 0, 0.05, 5, None, None, 3e-3),
    **{name: (0.01, 0, 0.05, 3, "snake", None, 1e-2) for name in SNAKES},
}


QUICK = ["box", "slider with a spring", "slider that falls", "slider with both", "pendulum"]


@pytest.mark.parametrize("name", few(list(ENERGIES), *QUICK))
def test_energy_is_kept(name):
    """From when nothing pushes any more, relative to its mean; a step's velocity is that of its middle."""
    stiffness, gravity, torque, seconds, v, q, bound = ENERGIES[name]
    model = free(name.split(" with")[0].split(" that")[0], stiffness, 0.0, gravity)
    state = thrown(model, v, 0.5)
    state = state if q is None else eqx.tree_at(lambda s: s.q, state, jnp.asarray(q, float))
    states = rolled(model, state, seconds, LAWS["maximal"], torque * joints_of(model))
    energy = jax.jit(jax.vmap(lambda state: uk.energy(model, state, LAWS["maximal"]).total))(states)[101:]
    print(f"\n{name}: {abs(energy - energy[0]).max() / abs(energy.mean()):.1e} of {energy.mean():.3g} J")
    assert abs(energy - energy[0]).max() < bound * abs(energy.mean())
