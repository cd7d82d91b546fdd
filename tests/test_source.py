"""Robot files: every way to name one, and what a user reads when it cannot be loaded."""

from pathlib import Path

import jax
import mujoco
import pytest

import ukemi as uk
from ukemi.errors import ModelFileError
from ukemi.files import source

MJCF = "<mujoco><worldbody><body><freejoint/><geom size='0.1'/></body></worldbody></mujoco>"
INERTIAL = (
    "<inertial><mass value='1'/><inertia ixx='1' iyy='1' izz='1' ixy='0' ixz='0' iyz='0'/></inertial>"
    "<collision><geometry>{shape}</geometry></collision>"
)
URDF = (
    "<robot name='r'><link name='base'/><link name='arm'>" + INERTIAL + "</link>"
    "<joint name='j' type='continuous'><parent link='base'/><child link='arm'/><axis xyz='0 0 1'/></joint></robot>"
)
URDF_BOX = URDF.format(shape="<box size='1 1 1'/>")


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_every_kind_of_source_gives_the_same_model(tmp_path):
    path = write(tmp_path, "robot.xml", MJCF)
    compiled = mujoco.MjModel.from_xml_string(MJCF)
    assert source.read(compiled) is compiled
    for given in (path, str(path), MJCF, "\n  " + MJCF, mujoco.MjSpec.from_string(MJCF)):
        assert source.read(given).nv == 6


@pytest.mark.parametrize("as_text", [True, False])
def test_urdf(tmp_path, as_text):
    given = URDF_BOX if as_text else write(tmp_path, "robot.urdf", URDF_BOX)
    m = source.read(given)
    assert m.njnt == 1 and m.joint("j").type[0] == mujoco.mjtJoint.mjJNT_HINGE


def test_assets_and_includes_are_found_beside_the_file(tmp_path):
    (tmp_path / "meshes").mkdir()
    corners = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\n"
    write(tmp_path / "meshes", "part.obj", corners + "f 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n")
    write(tmp_path, "body.xml", "<mujoco><worldbody><geom type='mesh' mesh='part'/></worldbody></mujoco>")
    path = write(
        tmp_path,
        "robot.xml",
        "<mujoco><compiler meshdir='meshes'/><asset><mesh file='part.obj'/></asset><include file='body.xml'/></mujoco>",
    )
    assert source.read(path).ngeom == 1


def test_builtin_names_are_known_by_their_files():
    names = source.builtin_names()
    assert names == sorted(names) and "humanoid" in names
    assert source.read(names[0]).nbody > 1


def message(given) -> str:
    with pytest.raises(ModelFileError) as caught:
        source.read(given)
    return str(caught.value)


def test_missing_file_says_where_it_looked(tmp_path):
    path = tmp_path / "nowhere.xml"
    assert str(path) in message(path) and "does not exist" in message(str(path))


def test_misspelt_name_suggests_the_built_in_models():
    assert "'humanoid'" in message("humaniod")
    assert "'humanoid'" in message("humanoid.xml")
    assert "Built-in models: " in message("zzzzzz")


def test_directory_lists_its_robot_files(tmp_path):
    assert "is a directory without MJCF or URDF files" in message(tmp_path)
    write(tmp_path, "robot.urdf", URDF_BOX)
    assert "robot.urdf" in message(tmp_path)


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "is empty"),
        ("plain words", "not well-formed XML"),
        ("<mujoco><worldbody><body></worldbody></mujoco>", "Line number=1"),
        ("<mujoco>\n<worldbody>\n<boddy/></worldbody></mujoco>", "Element 'boddy', line 3"),
        ("<mujoco><worldbody>\n<body name='arm'>\n<geom name='g'/></body></worldbody></mujoco>", "'g', id 0, line 3"),
        ("<sdf/>", "<mujoco> (MJCF) or <robot> (URDF)"),
        ("<mujoco><include file='part.xml'/></mujoco>", "Missing file(s): part.xml"),
        ("<mujoco><include file='robot.xml'/></mujoco>", "already included"),
        ('{"robot": 1}', "is JSON"),
        ("<mujoco>\0</mujoco>", "UTF-8"),
        ("<robot name='r'><xacro:macro name='leg'/><link name='a'/><joint/></robot>", "expand them first"),
        ("<robot name='r'><link name='a'/><joint name='${side}_hip'/></robot>", "expand them first"),
        ("<robot name='r'><link name='a'/></robot>", "nothing is joined"),
        ("<mujoco>" + "<worldbody>" + "<body>" * 3000 + "</body>" * 3000 + "</worldbody></mujoco>", "too deep"),
    ],
)
def test_a_bad_file_is_named_with_the_reason_and_the_place(tmp_path, text, said):
    path = write(tmp_path, "robot.xml", text)
    assert str(path) in message(path) and said in message(path)


def test_a_file_in_another_encoding_is_named(tmp_path):
    path = tmp_path / "robot.xml"
    path.write_text("<mujoco/>", encoding="utf-16")
    assert "UTF-8" in message(path) and str(path) in message(path)


@pytest.mark.parametrize(
    "given, said",
    [
        ("a" * 5000, "5000 characters"),
        ("x/" * 3000, "6000 characters"),
        ("https://example.com/box.xml", "web address"),
        ('{"robot": 1}', "JSON"),
        ("robot\0.xml", "null character"),
        (Path("robot\0.xml"), "null character"),
        ("<mujoco/>\ud800", "UTF-8"),
        ("~nobody-of-that-name/robot.xml", "does not exist"),
        ("/dev/null", "no ordinary file"),
    ],
)
def test_what_cannot_be_a_path_is_said_to_be_what_it_is(given, said):
    assert said in message(given) and "Did you mean" not in message(given)


def test_bad_text_and_bad_spec():
    assert "XML text" in message("<mujoco><worldbody><geom type='blob'/></worldbody></mujoco>")
    assert "empty string" in message("  ")
    spec = mujoco.MjSpec()
    spec.modelname = "made"
    spec.worldbody.add_geom(name="pebble", type=mujoco.mjtGeom.mjGEOM_SPHERE)
    assert "MjSpec 'made'" in message(spec) and "pebble" in message(spec)


def test_every_missing_asset_is_named(tmp_path):
    assets = "<mesh file='arm.stl'/><mesh file='leg.obj'/><texture name='t' type='2d' file='skin.png'/>"
    text = f"<mujoco><asset>{assets}</asset></mujoco>"
    said = message(write(tmp_path, "robot.xml", text))
    assert all(name in said for name in ("arm.stl", "leg.obj", "skin.png"))
    assert "working directory" in message(text)
    urdf = URDF.format(shape="<mesh filename='package://robot/meshes/arm.stl'/>")
    assert "package://" in message(write(tmp_path, "robot.urdf", urdf)) and "arm.stl" in message(urdf)


@pytest.mark.parametrize("given", [None, 3, b"<mujoco/>", ["ant"]])
def test_wrong_types_are_refused(given):
    assert type(given).__name__ in message(given)


def test_labels():
    assert source.label("robots/a.xml") == "'robots/a.xml'"
    assert source.label(MJCF) == "XML text"
    assert source.label(source.builtin_names()[0]).startswith("built-in model")


@pytest.mark.parametrize(
    "given, said",
    [
        (MJCF + MJCF, "goes on after its end, </mujoco>"),
        ("<mujoco><worldbody>" + "<body>" * 1000 + "</body>" * 1000 + "</worldbody></mujoco>", "500 levels"),
        ("<mujoco><option timestep='1' timestep='2'/></mujoco>", "given twice"),
    ],
)
def test_text_that_is_not_one_robot(given, said):
    assert said in message(given)


@pytest.mark.parametrize(
    "name, content, said",
    [
        ("a.xml", MJCF.replace("<body", "<body name='ä'").encode("latin1"), "names that are not UTF-8"),
        ("a.mjb", bytes(100), "from_binary_path"),
        ("a.stl", b"solid a", "is a mesh"),
        ("a.txt", MJCF.encode(), "rename it to one of .xml"),
        ("a.xml", b"<mujoco><include file='a.xml'/></mujoco>", "must not include one another"),
    ],
)
def test_a_file_that_is_no_robot_is_refused_with_what_to_do(tmp_path, name, content, said):
    path = tmp_path / name
    path.write_bytes(content)
    assert said in message(path) and name in message(path)


def test_a_file_that_may_not_be_read_is_refused(tmp_path, monkeypatch):
    path = write(tmp_path, "robot.xml", MJCF)

    def forbidden(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", forbidden)  # an administrator may read everything
    assert "cannot be read: Permission denied" in message(path)


def test_paths_of_bytes(tmp_path):
    class Bytes:
        def __fspath__(self):
            return bytes(write(tmp_path, "robot.xml", MJCF))

    assert source.read(Bytes()).nv == 6


def test_addresses_of_files_are_no_web_addresses():
    for given in ("file:///robots/a.xml", "package://robots/a.urdf"):
        assert "pass the path of the file" in message(given) and "web" not in message(given)


def test_comments_do_not_count():
    done = URDF_BOX.replace("<robot", "<!-- made from <xacro:macro> ${x} --><robot xmlns:xacro='http://ros.org/xacro'")
    assert source.read(done).nv == 1
    assert "nothing is joined" in message("<robot name='r'><!-- <joint/> --><link name='a'/></robot>")


def test_what_is_loaded_within_a_trace_may_outlive_it():
    kept = []

    @jax.jit
    def weight(gravity):
        kept.append(uk.load(MJCF))
        return (kept[0].bodies.mass * gravity).sum()

    by_trace = float(weight(9.81))
    assert by_trace > 0 and by_trace == pytest.approx(float(kept[0].bodies.mass.sum()) * 9.81)
