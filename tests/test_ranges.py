"""Numbers without a meaning: each is refused when the file is loaded, by element and attribute."""

import mujoco
import numpy as np
import pytest

import ukemi as uk

ROBOT = """
<mujoco>
  <option OPTION/>
  <worldbody>
    <geom name='floor' type='plane' size='1 1 1'/>
    <body name='arm' BODY>
      <joint name='j' JOINT/><geom name='g' SIZE GEOM/><site name='s' SITE/>
    </body>
    <body name='head' mocap='true'/>
  </worldbody>
  <contact><pair name='p' geom1='floor' geom2='g' PAIR/></contact>
  <equality><joint name='e' joint1='j' EQUALITY/></equality>
  <actuator><general name='a' joint='j' ACTUATOR/></actuator>
  <keyframe><key name='k' KEY/></keyframe>
</mujoco>
"""


def robot(**attributes: str) -> str:
    text = ROBOT.replace("SIZE", "" if "size=" in attributes.get("GEOM", "") else "size='0.1'")
    for place in ("OPTION", "BODY", "JOINT", "GEOM", "SITE", "PAIR", "EQUALITY", "ACTUATOR", "KEY"):
        text = text.replace(f" {place}/", f" {attributes.get(place, '')}/").replace(
            f" {place}>", f" {attributes.get(place, '')}>"
        )
    return text


NAMES = {
    "OPTION": "option",
    "BODY": "body 'arm'",
    "JOINT": "joint 'j'",
    "GEOM": "geom 'g'",
    "SITE": "site 's'",
    "PAIR": "pair 'p'",
    "EQUALITY": "equality 'e'",
    "ACTUATOR": "actuator 'a'",
    "KEY": "key 'k'",
}
BAD = {
    "OPTION": "timestep=0 timestep=-1 timestep=nan gravity=nan,0,0 gravity=0,0,-inf impratio=0 impratio=-1 "
    "impratio=inf density=-1 viscosity=nan wind=inf,0,0 iterations=-1 ls_iterations=-1",
    "BODY": "pos=nan,0,0 pos=0,inf,0 gravcomp=nan gravcomp=inf",
    "JOINT": "pos=nan,0,0 axis=nan,0,1 damping=nan damping=inf stiffness=nan stiffness=-inf armature=-1 armature=inf "
    "frictionloss=-1 frictionloss=nan margin=inf range=nan,1 solreflimit=nan,1 solimplimit=0.9,nan "
    "solreffriction=inf,1 solimpfriction=nan ref=inf springref=nan actuatorfrcrange=nan,1",
    "GEOM": "mass=inf pos=inf,0,0 friction=-1,0,0 friction=1,nan,0 friction=inf margin=nan gap=inf solref=nan,1 "
    "solimp=nan,1 solmix=-1 solmix=nan",
    "SITE": "pos=nan,0,0",
    "PAIR": "friction=-1,1 friction=1,nan solref=inf,1 solreffriction=1,inf solimp=inf margin=inf gap=inf",
    "EQUALITY": "polycoef=nan polycoef=0,inf solref=nan,1 solimp=inf",
    "ACTUATOR": "gear=nan gear=inf gainprm=inf biasprm=nan dynprm=nan dynprm=-1 ctrlrange=nan,1 forcerange=nan,1 "
    "actrange=0,nan",
    "KEY": "qpos=nan qvel=inf ctrl=nan time=nan mpos=nan,0,0",
}


@pytest.mark.parametrize("place, given", [(place, given) for place, words in BAD.items() for given in words.split()])
def test_a_number_without_a_meaning_is_refused_by_element_and_attribute(place, given):
    attribute, value = given.split("=")
    with pytest.raises(uk.ModelFileError) as caught:
        uk.load(robot(**{place: f"{attribute}='{value.replace(',', ' ')}'"}))
    named = "mass" if attribute == "mass" else attribute
    lines = str(caught.value).splitlines()
    where = "body 'arm'" if attribute == "mass" else NAMES[place]
    assert any(where in line and named in line for line in lines), lines


@pytest.mark.parametrize(
    "given",
    [
        {"JOINT": "solreflimit='-1000 -10' solimplimit='0.5 2 0.1 0.5 1'"},  # the direct format; clipped
        {"JOINT": "range='-inf inf' limited='true'"},
        {"JOINT": "damping='-1' stiffness='-1' margin='-0.1'"},
        {"GEOM": "margin='-0.01' gap='-0.01' solmix='0' friction='0 0 0'"},
        {"ACTUATOR": "gear='0' ctrlrange='-inf inf' ctrllimited='true' gainprm='-1'"},
        {"OPTION": "gravity='0 0 9.81' iterations='0'"},
        {"KEY": "time='-1'"},
    ],
)
def test_what_has_a_meaning_loads(given):
    uk.load(robot(**given))


def test_all_offences_are_listed_at_once():
    with pytest.raises(uk.ModelFileError) as caught:
        uk.load(robot(OPTION="timestep='-1' impratio='nan'", JOINT="armature='-2'", KEY="qvel='nan'"))
    said = str(caught.value)
    assert "4 value(s)" in said
    for line in (
        "option: timestep must be positive and finite, not -1",
        "option: impratio must be positive and finite, not nan",
        "joint 'j': armature must be finite and not negative, not -2",
        "key 'k': qvel must be finite, not nan",
    ):
        assert line in said


@pytest.mark.parametrize(
    "field, value, said",
    [
        ("body_mass", 0.0, "body 'arm': moves, so its mass and inertia must be positive"),
        ("body_mass", -1.0, "body 'arm': mass must be finite and not negative"),
        ("body_inertia", 0.0, "body 'arm': moves"),
        ("body_quat", 0.0, "body 'arm': orientation"),
        ("geom_size", -1.0, "geom 'g': size"),
        ("geom_condim", 2, "geom 'g': condim must be 1, 3, 4 or 6"),
        ("jnt_axis", 0.0, "joint 'j': axis"),
        ("key_mquat", 0.0, "key 'k': mquat of body 'head' must not be all zero"),
        ("dof_invweight0", np.nan, "joint 'j': inverse weight"),
    ],
)
def test_a_compiled_model_that_was_edited_is_examined_too(field, value, said):
    m = mujoco.MjModel.from_xml_string(robot())
    rows = getattr(m, field)
    rows[{"body": 1, "geom": 1}.get(field[:4], 0)] = value
    with pytest.raises(uk.ModelFileError) as caught:
        uk.load(m)
    assert said in str(caught.value)


def test_limits_that_fall_and_quaternions_of_zero_are_refused():
    free = "<mujoco><worldbody><body name='b'><freejoint name='f'/><geom size='.1'/></body></worldbody>"
    m = mujoco.MjModel.from_xml_string(free + "<keyframe><key name='k'/></keyframe></mujoco>")
    m.key_qpos[0, 3:] = 0.0
    with pytest.raises(uk.ModelFileError, match="key 'k': qpos of joint 'f' must not hold an all zero quaternion"):
        uk.load(m)
    m = mujoco.MjModel.from_xml_string(robot(JOINT="range='-1 1' limited='true'"))
    m.jnt_range[0] = 1, -1
    with pytest.raises(uk.ModelFileError, match="joint 'j': range must rise, not go from 1 to -1"):
        uk.load(m)


@pytest.mark.parametrize("value", ["nan", "-0.1", "1.1"])
def test_restitution_is_a_share(value):
    text = robot().replace("<keyframe>", f"<custom><numeric name='restitution' data='{value}'/></custom><keyframe>")
    with pytest.raises(uk.ModelFileError, match="geom 'floor': restitution must be between 0 and 1"):
        uk.load(text)
