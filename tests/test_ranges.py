"""Values of a robot file that mean nothing are refused, by element and attribute."""

import mujoco
import pytest

import ukemi as uk

BODY = '<body name="b"><joint name="j"/><geom name="g" size=".1"/></body>'
WRONG = {
    '<option timestep="0"/>': "option: timestep is 0",
    '<option timestep="-.1"/>': "option: timestep is -0.1",
    '<option impratio="0"/>': "option: impratio is 0",
    '<option gravity="nan 0 0"/>': "option: gravity is nan",
    '<option density="-1"/>': "option: density is -1",
    '<option wind="inf 0 0"/>': "option: wind is inf",
}
OF_BODY = {
    'geom name="g" mass="inf"': "body 'b': mass is inf",
    'geom name="g" density="inf"': "body 'b': mass is inf",
    'geom name="g" pos="nan 0 0"': "geom 'g': pos is nan",
    'geom name="g" friction="-1"': "geom 'g': friction is -1",
    'geom name="g" margin="inf"': "geom 'g': margin is inf",
    'geom name="g" solref="nan 1"': "geom 'g': solref is nan",
    'joint name="j" armature="-1"': "joint 'j': armature is -1",
    'joint name="j" frictionloss="-1"': "joint 'j': frictionloss is -1",
    'joint name="j" damping="nan"': "joint 'j': damping is nan",
    'joint name="j" ref="nan"': "joint 'j': ref is nan",
    'body name="b" pos="inf 0 0"': "body 'b': pos is inf",
}
AFTER = {
    '<actuator><motor name="a" joint="j" gear="nan"/></actuator>': "actuator 'a': gear is nan",
    '<keyframe><key name="k" qpos="nan"/></keyframe>': "key 'k': qpos is nan",
    '<contact><pair geom1="g" geom2="h" friction="-1 1 1 1 1"/></contact>': "pair 0: friction is -1",
}


def refused(xml: str, message: str) -> None:
    with pytest.raises(uk.ModelFileError, match=message):
        uk.load(xml)


@pytest.mark.parametrize("text", WRONG)
def test_options(text):
    refused(f"<mujoco>{text}<worldbody>{BODY}</worldbody></mujoco>", WRONG[text])


@pytest.mark.parametrize("text", OF_BODY)
def test_elements_of_bodies(text):
    tag, name = text.split()[:2]
    refused(f"<mujoco><worldbody>{BODY.replace(f'{tag} {name}', text)}</worldbody></mujoco>", OF_BODY[text])


@pytest.mark.parametrize("text", AFTER)
def test_other_elements(text):
    refused(f'<mujoco><worldbody>{BODY}<geom name="h" size=".1"/></worldbody>{text}</mujoco>', AFTER[text])


def test_all_of_them_are_listed_at_once():
    body = BODY.replace('name="j"', 'name="j" armature="-1" frictionloss="-2"')
    with pytest.raises(uk.ModelFileError) as error:
        uk.load(f'<mujoco><option timestep="0"/><worldbody>{body}</worldbody></mujoco>')
    assert all(word in str(error.value) for word in ("timestep", "armature is -1", "frictionloss is -2"))


def test_a_compiled_model_is_looked_through_too():
    m = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{BODY}</worldbody></mujoco>")
    m.body_mass[1] = -1
    refused(m, "body 'b': mass is -1")


def test_a_mass_of_nan_is_not_one_left_out():
    body = BODY.replace('size', 'mass="nan" size')
    refused(f"<mujoco><worldbody>{body}</worldbody></mujoco>", "mass of NaN")


def test_what_has_a_meaning_loads():
    text = BODY.replace('name="j"', 'name="j" damping="-1" stiffness="-1" limited="false" range="-1 1"')
    text = text.replace('name="g"', 'name="g" solref="-100 -1"')
    assert uk.load(f"<mujoco><worldbody>{text}</worldbody></mujoco>").nv == 1
