"""What a file may contain: everything unsupported is refused by name, everything else loads."""

import mujoco
import numpy as np
import pytest

from ukemi.errors import UnsupportedModelError
from ukemi.files import source, support

# A floor, a free ball 'ball' on it, and an arm of a hinge 'h', a slide 's' and a ball joint 'b'.
SCENE = """
<mujoco>
  {head}
  <option {option}><flag {flags}/></option>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 0.1" {floor}/>
    <site name="world"/>
    <body name="ball" pos="0 0 1"><freejoint name="root"/><geom name="ball" size="0.1" {ball}/></body>
    <body name="upper" pos="2 0 1" {body}>
      <joint name="h" {joint}/><geom name="upper" type="capsule" size="0.05 0.2"/>
      <body name="lower" pos="0.3 0 0">
        <joint name="s" type="slide"/><geom name="lower" type="cylinder" size="0.05 0.2"/>
        <body name="hand" pos="0.3 0 0">
          <joint name="b" type="ball"/><geom type="ellipsoid" size="0.05 0.1 0.2"/><site name="tip"/>
        </body>
      </body>
    </body>
    {world}
  </worldbody>
  <actuator>{actuator}</actuator>
  <tendon>{tendon}</tendon>
  <equality>{equality}</equality>
  <contact>{contact}</contact>
  <sensor>{sensor}</sensor>
</mujoco>
"""
PLACES = "head option flags floor ball body joint world actuator tendon equality contact sensor".split()
TETRAHEDRON = "<asset><mesh name='tetra' vertex='0 0 0  1 0 0  0 1 0  0 0 1'/></asset>"
STONE = "<body><freejoint/><geom type='mesh' mesh='tetra'/></body>"
MESH = "<body name='rock'><freejoint/><geom name='rock' type='mesh' mesh='tetra' {}/></body>"
FIXED = "<fixed name='t' {}><joint joint='h' coef='1'/></fixed>"
SWING = "<body><joint name='w'/><geom size='.1'/></body>"
BRANCHING = "<fixed name='t' {}><joint joint='h' coef='1'/><joint joint='w' coef='1'/></fixed>"
HFIELD = "<asset><hfield name='f' nrow='3' ncol='3' size='1 1 1 1'/></asset>"
FLEX = (
    "<flexcomp name='cloth' type='grid' count='3 3 1' spacing='.1 .1 .1' dim='2' radius='.01' mass='1'>"
    "<elasticity young='1e4'/></flexcomp>"
)


def scene(**parts: str) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(SCENE.format(**{place: parts.get(place, "") for place in PLACES}))


UNSUPPORTED = [
    ("integrator 'discrete'", dict(option="integrator='discrete'")),
    ("flag 'sleep'", dict(flags="sleep='enable'")),
    ("flag 'diagexact'", dict(flags="diagexact='enable'")),
    ("flag 'speculative'", dict(flags="speculative='enable'")),
    ("flag 'nativeccd'", dict(flags="nativeccd='disable'")),
    ("flag 'multiccd'", dict(flags="multiccd='disable'", world="<geom type='box' size='.1 .1 .1'/>")),
    ("actuator 'a': a DC motor in parts", dict(actuator="<general name='a' joint='h' biastype='dcmotor'/>")),
    (
        "actuator 'a': a quaternion that arrives late",
        dict(
            actuator="<orientation name='a' joint='turn' kp='1' input='quat' nsample='3' delay='.02' interp='linear'/>",
            world="<body><joint name='turn' type='ball'/><geom size='.1' mass='1'/></body>",
        ),
    ),
    ("dynamics type 'user'", dict(actuator="<general name='a' joint='h' dyntype='user' actdim='1'/>")),
    ("gain type 'user'", dict(actuator="<general name='a' joint='h' gaintype='user'/>")),
    ("bias type 'user'", dict(actuator="<general name='a' joint='h' biastype='user'/>")),
    ("tendon 't': armature", dict(tendon=BRANCHING.format("armature='1'"), world=SWING)),
    (
        "tendon 't': armature",
        dict(tendon=BRANCHING.format(""), world=SWING, actuator="<motor tendon='t' armature='1'/>"),
    ),
    ("flex 'cloth'", dict(world=FLEX)),
    ("'nativeccd' disabled", dict(head=TETRAHEDRON, world=MESH.format(""), flags="nativeccd='disable'")),
    ("'multiccd' disabled", dict(head=TETRAHEDRON, world=MESH.format("") + STONE, flags="multiccd='disable'")),
    ("'nativeccd' disabled", dict(head=HFIELD, world="<geom type='hfield' hfield='f'/>", flags="nativeccd='disable'")),
    ("flags 'spring' and 'damper'", dict(ball="adhesion='1'", flags="spring='disable' damper='disable'")),
]


@pytest.mark.parametrize("said, parts", UNSUPPORTED, ids=[f"{i} {said}" for i, (said, _) in enumerate(UNSUPPORTED)])
def test_each_unsupported_element_is_named(said, parts):
    found = support.unsupported(scene(**parts))
    assert any(said in line for line in found), found


def test_edge_equality_of_a_flex_is_named():
    flex = FLEX.replace("<elasticity young='1e4'/>", "<edge equality='true'/>")
    found = support.unsupported(scene(world=flex))
    assert any("type 'flex'" in line for line in found), found


def test_plugins_that_move_bodies_are_named():
    m = scene(actuator="<motor name='a' joint='h'/>")
    m.body_plugin[m.body("upper").id] = 0  # loading a real plugin would need its library
    m.actuator_plugin[0] = 0
    m.geom_type[m.geom("ball").id] = mujoco.mjtGeom.mjGEOM_SDF
    found = support.unsupported(m)
    assert "body 'upper': plugin" in found and "actuator 'a': plugin" in found
    assert "geom 'ball': signed distance field that may collide" in found


def test_flags_of_a_newer_mujoco_are_refused():
    m = scene()
    m.opt.disableflags |= 1 << 25
    m.opt.enableflags |= 1 << 26
    found = support.unsupported(m)
    assert any("unknown disable bits 0x2000000" in line for line in found)
    assert any("unknown enable bits 0x4000000" in line for line in found)


def test_all_offenders_are_listed_at_once_and_the_error_shows_them():
    m = scene(
        option="density='1' integrator='discrete'",
        ball="fluidshape='ellipsoid'",
        world=FLEX + SWING,
        tendon=BRANCHING.format("armature='1'"),
        actuator="<general name='a' joint='h' biastype='dcmotor'/><general name='c' joint='s' gaintype='user'/>",
    )
    found = support.unsupported(m)
    for said in ("discrete", "flex 'cloth'", "tendon 't'", "actuator 'a'", "actuator 'c'"):
        assert sum(said in line for line in found) == 1, (said, found)
    text = str(UnsupportedModelError(found, source="'robot.xml'"))
    assert text.startswith("'robot.xml'") and all(line in text for line in found)


def test_a_share_of_the_fluid_is_refused():
    m = scene(option="density='1'", ball="fluidshape='ellipsoid'")
    m.geom_fluid[m.geom("ball").id, 0] = 0.5
    assert support.unsupported(m) == ["geom 'ball': interaction with the fluid of 0.5, neither 0 nor 1"]


SUPPORTED = [
    dict(),
    dict(option="noslip_iterations='3'"),
    dict(joint="stiffness='1 2' damping='0 2' springyield='1'", tendon=FIXED.format("stiffness='1' springyield='1'")),
    dict(actuator="<orientation joint='b' kp='1'/><orientation site='tip' refsite='world' input='quat'/>"),
    dict(actuator="<dcmotor joint='h' motorconst='1 1' resistance='1'/><pid joint='h' nsample='9' delay='.01'/>"),
    dict(actuator="<motor cranksite='tip' slidersite='world' cranklength='1'/>"),
    dict(tendon=FIXED.format("armature='1' stiffness='1 2' damping='1 2'")),
    dict(tendon=BRANCHING.format(""), world=SWING, actuator="<motor joint='w' armature='1'/>"),
    dict(actuator="<adhesion name='a' body='ball' ctrlrange='0 1'/>"),
    *(dict(option=f"integrator='{name}'") for name in ("Euler", "RK4", "implicit", "implicitfast")),
    *(dict(option=f"solver='{name}'") for name in ("PGS", "CG", "Newton")),
    *(dict(option=f"cone='{name}' impratio='3' jacobian='sparse'") for name in ("pyramidal", "elliptic")),
    *(
        dict(flags=f"{name}='disable'")
        for name in "constraint equality frictionloss limit contact spring damper gravity clampctrl warmstart "
        "filterparent actuation refsafe sensor midphase eulerdamp autoreset island".split()
    ),
    *(dict(flags=f"{name}='enable'") for name in ("energy", "fwdinv", "invdiscrete")),
    dict(option="density='1.2' viscosity='0.1' wind='1 0 0'"),
    dict(option="density='1' wind='1 0 0' magnetic='1 0 0'", ball="fluidshape='ellipsoid'"),
    dict(flags="override='enable'", option="o_margin='.1' actuatorgroupdisable='2'",
         actuator="<motor joint='h' group='2'/>"),
    dict(joint="armature='1' damping='1' stiffness='2' springref='1' frictionloss='1' limited='true' range='0 1' "
         "actuatorfrcrange='-1 1' actuatorgravcomp='true' ref='1' margin='.1'", body="gravcomp='1'"),
    *(
        dict(actuator=f"<{kind} {target}/>")
        for kind in ("motor", "position kp='2' kv='1' timeconst='.1'", "velocity", "intvelocity actrange='-1 1'",
                     "damper ctrlrange='0 1'", "cylinder timeconst='1' area='2'", "motor ctrlrange='-1 1' gear='2'",
                     "general dyntype='filter' gaintype='affine' biastype='affine' actlimited='true' "
                     "actrange='-1 1' actearly='true' forcerange='-2 2' forcelimited='true'",
                     "general dyntype='filterexact' nsample='3'")
        for target in ("joint='h'", "jointinparent='b'", "site='tip'", "site='tip' refsite='world'")
    ),
    dict(equality="<connect body1='ball' body2='hand' anchor='0 0 0'/><weld body1='ball' body2='upper'/>"
         "<joint joint1='h'/><joint joint1='h' joint2='s' polycoef='0 1 2 3 4'/><weld site1='tip' site2='world'/>"),
    dict(floor="condim='6' priority='1' solmix='2' solref='-100 -10' margin='.1' gap='.05'",
         contact="<pair geom1='ball' geom2='upper' condim='4' solreffriction='.1 1'/>"
         "<exclude body1='ball' body2='lower'/>"),
    dict(world="<body name='hook' mocap='true'><geom type='box' size='.1 .1 .1'/></body>"),
    dict(tendon=FIXED.format("stiffness='1' damping='1' frictionloss='1' limited='true' range='0 1'"),
         equality="<tendon name='e' tendon1='t'/>", actuator="<motor name='a' tendon='t'/>"),
    dict(tendon="<spatial stiffness='1'><site site='tip'/><site site='world'/></spatial>",
         actuator="<muscle joint='h' lengthrange='0 1'/>"),
    # What cannot change the motion, for its own reason each time.
    dict(tendon=FIXED.format("")),
    dict(tendon=FIXED.format(""), equality="<tendon tendon1='t' active='false'/>"),
    dict(option="actuatorgroupdisable='3'", actuator="<motor joint='h' group='2'/>"),
    dict(head=TETRAHEDRON, world=MESH.format("")),
    dict(head=HFIELD, world="<geom name='hill' type='hfield' hfield='f'/>"),
    dict(head=TETRAHEDRON, world=MESH.format("contype='0' conaffinity='0'")),
    dict(head=TETRAHEDRON, world=MESH.format("contype='4' conaffinity='8'")),
    dict(head=TETRAHEDRON, world=MESH.format(""), flags="contact='disable'"),
    dict(head=TETRAHEDRON, world="<geom type='mesh' mesh='tetra' contype='2' conaffinity='4'/>"),
    dict(flags="nativeccd='disable' multiccd='disable' contact='disable'"),
    dict(ball="adhesion='1' surfacevel='1 0 0 0 0 0'", floor="surfacevel='1 0 0 0 0 0'",
         contact="<pair name='p' geom1='ball' geom2='floor' adhesion='1'/>"),
    dict(sensor="<jointpos joint='h' delay='.1' nsample='60'/><touch site='tip'/>"),
]


@pytest.mark.parametrize("parts", SUPPORTED, ids=[" ".join(p.values())[:60] or "scene" for p in SUPPORTED])
def test_what_is_supported_or_cannot_move_anything_is_not_refused(parts):
    assert support.unsupported(scene(**parts)) == []


def test_every_flag_of_this_mujoco_has_been_decided_upon():
    decided = support._HONOURED | support._HARMLESS | support._CONVEX_FLAGS
    assert decided == {1 << i for i in range(mujoco.mjtDisableBit.mjNDISABLE)}
    decided = support._HONOURED_ENABLE | support._HARMLESS_ENABLE | support._REFUSED_ENABLE.keys()
    assert decided == {1 << i for i in range(mujoco.mjtEnableBit.mjNENABLE)}


# Every sphere overlaps every other, so that MuJoCo's static filters alone decide which pairs touch.
PILE = """
<mujoco>
  <option><flag filterparent="{parents}"/></option>
  <default><geom size="0.3"/></default>
  <worldbody>
    <geom/>
    <body mocap="true"><geom/><body><geom/></body><body><joint/><geom/></body></body>
    <body name="free">
      <freejoint/><geom/>
      <body>
        <geom contype="2" conaffinity="0"/>
        <body><joint/><geom conaffinity="3"/><body><joint/><geom/></body></body>
      </body>
    </body>
    <body name="fixed"><geom/><body><joint/><geom/></body></body>
  </worldbody>
  <contact><exclude body1="free" body2="fixed"/></contact>
</mujoco>
"""


@pytest.mark.parametrize("parents", ["enable", "disable"])
def test_collision_candidates_are_the_pairs_that_mujoco_lets_touch(parents):
    m = mujoco.MjModel.from_xml_string(PILE.format(parents=parents))
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    touching = np.zeros((m.ngeom, m.ngeom), bool)
    touching[d.contact.geom[:, 0], d.contact.geom[:, 1]] = True
    assert np.array_equal(support.collision_candidates(m), touching | touching.T) and d.ncon > 10


def test_collision_candidates_cover_every_contact_that_mujoco_finds():
    m = source.read("ant")
    meet = support.collision_candidates(m)
    d = mujoco.MjData(m)
    rng, seen = np.random.default_rng(0), 0
    for _ in range(100):
        d.qpos[:] = rng.normal(size=m.nq)
        d.qpos[2] = 0.3
        mujoco.mj_forward(m, d)
        assert meet[d.contact.geom[:, 0], d.contact.geom[:, 1]].all()
        seen += d.ncon
    assert seen > 100 and not meet.all()


def test_ignored_lists_what_has_no_effect():
    m = scene(
        head=TETRAHEDRON + "<visual/><custom><numeric name='n' data='1'/><text name='w' data='x'/></custom>",
        world=MESH.format("contype='0' conaffinity='0'") + "<light/><camera/>",
        tendon=FIXED.format(""),
        sensor="<touch site='tip'/><user dim='2'/>",
    )
    found = support.ignored(m)
    said_of = ("1 camera", "1 light", "1 custom numeric", "1 custom text", "1 visual-only geom")
    for said in ("sensor 1: type 'user'", *said_of):
        assert any(said in line for line in found), (said, found)
    assert support.ignored(scene()) == []
