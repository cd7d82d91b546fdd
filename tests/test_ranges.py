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
    'geom name="g" gap="-1"': "geom 'g': gap is -1",
    'geom name="g" solref="nan 1"': "geom 'g': solref is nan",
    'joint name="j" armature="-1"': "joint 'j': armature is -1",
    'joint name="j" frictionloss="-1"': "joint 'j': frictionloss is -1",
    'joint name="j" damping="nan"': "joint 'j': damping is nan",
    'joint name="j" ref="nan"': "joint 'j': ref is nan",
    'body name="b" pos="inf 0 0"': "body 'b': pos is inf",
}
AFTER = {
    '<actuator><motor name="a" joint="j" gear="nan"/></actuator>': "actuator 'a': gear is nan",
    '<actuator><general name="a" joint="j" dyntype="filter" dynprm="0"/></actuator>': (
        r"actuator 'a': time constant \(dynprm\) is 0; it must be finite and positive"
    ),
    '<actuator><general name="a" joint="j" dyntype="filterexact" dynprm="-1"/></actuator>': (
        r"actuator 'a': time constant \(dynprm\) is -1"
    ),
    '<contact><pair geom1="g" geom2="h" gap="-1"/></contact>': "pair 0: gap is -1",
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
    body = BODY.replace("size", 'mass="nan" size')
    refused(f"<mujoco><worldbody>{body}</worldbody></mujoco>", "mass of NaN")


def test_elevations_of_height_fields_are_numbers():
    m = mujoco.MjModel.from_xml_string(
        '<mujoco><asset><hfield name="f" nrow="2" ncol="2" size="1 1 1 1"/></asset>'
        '<worldbody><geom type="hfield" hfield="f"/></worldbody></mujoco>'
    )
    m.hfield_data[2] = float("nan")
    with pytest.raises(uk.ModelFileError, match="hfield 'f': elevation is nan"):
        uk.load(m)


def test_what_has_a_meaning_loads():
    exact = "<actuator><general joint='j' dyntype='filterexact' dynprm='0'/></actuator>"  # follows its input at once
    assert uk.load(f"<mujoco><worldbody>{BODY}</worldbody>{exact}</mujoco>").na == 1
    text = BODY.replace('name="j"', 'name="j" damping="-1" stiffness="-1" limited="false" range="-1 1"')
    text = text.replace('name="g"', 'name="g" solref="-100 -1"')
    assert uk.load(f"<mujoco><worldbody>{text}</worldbody></mujoco>").nv == 1


JOINED = f"<mujoco><worldbody>{BODY}</worldbody><keyframe><key name='k'/></keyframe></mujoco>"


@pytest.mark.parametrize(
    "field, row, value, message",
    [
        ("body_mass", 1, 0.0, "body 'b': mass or inertia is 0"),
        ("body_quat", 1, 0.0, "body 'b': quat is zero"),
        ("jnt_axis", 0, 0.0, "joint 'j': axis is zero"),
        ("jnt_range", 0, (1, -1), "joint 'j': range goes from 1 to -1"),
        ("jnt_range", 0, (float("inf"), float("inf")), "joint 'j': range goes from inf"),
        ("dof_invweight0", 0, float("nan"), "joint 'j': its inverse weight is nan"),
    ],
)
def test_what_the_compiler_sees_to_is_seen_to_after_edits(field, row, value, message):
    m = mujoco.MjModel.from_xml_string(JOINED)
    m.jnt_limited[0] = True
    m.jnt_range[0] = -1, 1
    getattr(m, field)[row] = value
    refused(m, message)


def test_zero_quaternions_of_keyframes():
    world = "<body mocap='true' name='c'/><body name='b'><freejoint name='j'/><geom size='.1'/></body>"
    m = mujoco.MjModel.from_xml_string(JOINED.replace(BODY, world))
    m.key_qpos[0, 3:] = 0
    m.key_mquat[0] = 0
    refused(m, "key 'k': qpos of joint 'j' is zero; it must have a direction\n  - key 'k': mquat of body 'c' is zero")


def test_iterations_and_restitution():
    refused('<mujoco><option iterations="-1"/></mujoco>', "option: iterations is -1")
    custom = "</worldbody><custom><numeric name='restitution' data='nan'/></custom>"
    refused(JOINED.replace("</worldbody>", custom), "its restitution is nan; <custom> must give 0 to 1")


@pytest.mark.parametrize("joint", ['damping="-1"', 'limited="true" range="-inf inf"', 'limited="true" range="0.1 inf"'])
def test_negative_damping_and_infinite_limits_move_as_in_mujoco(joint):
    text = BODY.replace('name="j"', f'name="j" type="slide" {joint}')
    m = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{text}</worldbody></mujoco>")
    d = mujoco.MjData(m)
    d.qvel[:] = 0.5
    model = uk.load(m)
    state = uk.step(model, uk.initial_state(model, v=d.qvel.copy()))
    mujoco.mj_step(m, d)
    assert state.status == 0
    assert state.v[0] == pytest.approx(d.qvel[0], rel=1e-12)
