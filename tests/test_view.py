"""The replay page, the plot and the text report, on recordings made without the engine."""

import base64
import json
import re
import shutil
import subprocess
import zlib
from pathlib import Path

import mujoco
import numpy as np
import pytest

import ukemi as uk
from ukemi.errors import InputError
from ukemi.view import Frames, Mesh, Scene, plot_run, record, scene_of, write_replay
from ukemi.view.inspect import describe
from ukemi.view.plot import Trace
from ukemi.view.recorder import scene_of_model
from ukemi.view.replay import pack, thin
from ukemi.view.scene import frame_subject, lone_balls, moving

SHAPES = """
<mujoco model="shapes">
  <asset>
    <mesh name="gem" vertex="0 0 .2  .1 0 0  0 .1 0  -.1 0 0  0 -.1 0"/>
    <material name="red" rgba="1 0 0 1"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1"/>
    <body name="a" pos="0 0 1"><freejoint/><geom type="sphere" size=".1" material="red"/></body>
    <body name="b" pos="1 0 1"><freejoint/><geom name="gem" type="mesh" mesh="gem" contype="0" conaffinity="0"/>
      <geom name="shell" type="box" size=".1 .1 .2" group="3"/></body>
    <body name="c" pos="2 0 1"><joint type="ball"/><geom type="mesh" mesh="gem" contype="0" conaffinity="0"/></body>
  </worldbody>
  <sensor><framepos objtype="body" objname="a"/></sensor>
</mujoco>
"""


def recording(count=200, dt=0.005, ng=3, nc=2, drift=0.0):
    """A floor, a ball that swings, and a box at rest; every third frame has a contact."""
    rng = np.random.default_rng(0)
    time = dt * np.arange(count)
    pos = np.zeros((count, ng, 3))
    pos[:, 1] = np.stack([np.sin(time) + drift * time, np.cos(time), 1 + 0 * time], -1)
    pos[:, 2] = (3.0, 0.0, 0.25)
    quat = np.zeros((count, ng, 4))
    quat[..., 0] = 1
    turns = rng.normal(size=(count, 4))
    quat[:, 1] = turns / np.linalg.norm(turns, axis=1, keepdims=True)
    point, force = np.full((2, count, nc, 3), np.nan)
    if nc:
        point[::3, 0], force[::3, 0] = rng.normal(size=(2, len(time[::3]), 3))
    return Frames(time, pos, quat, point, force)


def scene(**changes):
    plain = {
        "types": ("plane", "sphere", "box"),
        "sizes": np.array([[0, 0, 1], [0.1, 0, 0], [0.2, 0.3, 0.25]]),
        "rgba": np.array([[0.5, 0.5, 0.5, 1], [0.9, 0.2, 0.1, 1], [0.2, 0.2, 0.9, 0.5]]),
        "names": ("floor", "ball", "box"),
        "title": "three things",
    }
    return Scene(**(plain | changes))


def unpack(header, blob, name):
    """What the page makes of a stored array."""
    entry = header["arrays"][name]
    dtype = {"f4": "<f4", "i4": "<i4", "u2": "<u2"}[entry["dtype"]]
    count = int(np.prod(entry["shape"]))
    values = np.frombuffer(blob, dtype, count, entry["offset"]).reshape(entry["shape"])
    if entry.get("steps"):
        values = np.cumsum(values.ravel()).reshape(values.shape)
    if entry["dtype"] == "u2":
        tail = tuple(entry["shape"][1:])
        values = np.reshape(entry["low"], tail) + np.reshape(entry["scale"], tail) * values
    return values


def read_page(path):
    text = path.read_text(encoding="utf-8")
    header = re.search(r'<script type="application/json" id="header">(.*?)</script>', text, re.S)[1]
    blob = re.search(r'<script type="application/octet-stream;base64" id="blob">(.*?)</script>', text, re.S)[1]
    return text, json.loads(header), zlib.decompress(base64.b64decode(blob, validate=True))


def test_page_loads_nothing_from_elsewhere(tmp_path):
    text, header, _ = read_page(write_replay(tmp_path / "new" / "run.html", scene(), recording()))
    assert not re.findall(r"https?://|//cdn|import\s*\(|\bfetch\s*\(|XMLHttpRequest|@import|url\(", text)
    assert re.findall(r'(?:src|href)="([^"]*)"', text) == ["data:,"]  # an empty icon keeps browsers from asking for one
    assert "@@" not in text
    assert header["title"] == "three things"


def test_title_cannot_break_out_of_the_page(tmp_path):
    title = "</script><script>alert(1)</script> @@BLOB@@ <!-- & \"'"
    text, header, blob = read_page(write_replay(tmp_path / "run.html", scene(title=title), recording()))
    assert header["title"] == title
    assert "<script>alert" not in text
    assert len(blob) > 0


def test_exact_data_round_trip():
    frames = recording(dt=0.02)
    header, blob = pack(scene(), frames)
    assert unpack(header, blob, "moving").tolist() == [1]
    np.testing.assert_allclose(unpack(header, blob, "time"), frames.time, rtol=1e-6)
    np.testing.assert_array_equal(unpack(header, blob, "pos")[:, 0], np.float32(frames.geom_pos[:, 1]))
    np.testing.assert_array_equal(unpack(header, blob, "quat")[:, 0], np.float32(frames.geom_quat[:, 1]))
    np.testing.assert_array_equal(unpack(header, blob, "rest_pos")[2], np.float32(frames.geom_pos[0, 2]))
    start = unpack(header, blob, "contact_start")
    assert start[-1] == len(frames.time[::3]) and start[1] - start[0] == 1 and start[2] - start[1] == 0
    np.testing.assert_array_equal(unpack(header, blob, "contact_force"), np.float32(frames.contact_force[::3, 0]))


def test_long_recordings_are_quantised_and_smaller(monkeypatch):
    frames = recording(dt=0.02)
    _, exact = pack(scene(), frames)
    monkeypatch.setattr("ukemi.view.replay._EXACT_BYTES", 0)
    header, blob = pack(scene(), frames)
    assert header["arrays"]["pos"]["dtype"] == "u2" and len(blob) < len(exact)
    np.testing.assert_allclose(unpack(header, blob, "pos")[:, 0], frames.geom_pos[:, 1], atol=2e-5)
    np.testing.assert_allclose(unpack(header, blob, "quat")[:, 0], frames.geom_quat[:, 1], atol=2e-5)


@pytest.mark.parametrize("dt", [1e-3, 0.004, 1 / 60, 0.05])
def test_at_most_sixty_frames_per_second(dt):
    time = np.arange(0, 2, dt)
    kept = thin(time)
    assert kept[0] == 0 and kept[-1] == len(time) - 1
    assert len(kept) <= 60 * 2 + 2
    assert np.diff(time[kept]).max() <= max(dt, 1 / 60 + dt) + 1e-9


def test_an_impact_between_kept_frames_shows_in_the_load():
    frames = recording(count=500, dt=0.001)
    frames.contact_point[:], frames.contact_force[:] = np.nan, np.nan
    frames.contact_point[203, 0], frames.contact_force[203, 0] = 0.0, (0.0, 0.0, 700.0)
    header, blob = pack(scene(), frames)
    assert 203 not in thin(frames.time)
    assert unpack(header, blob, "load").max() == 700.0


def test_camera_follows_only_what_travels():
    to_and_fro = frame_subject(scene(), recording(count=2400))
    assert not to_and_fro.follow and to_and_fro.reach > 1.0
    far = frame_subject(scene(), recording(drift=20.0))
    assert far.follow and far.reach < 2.0
    np.testing.assert_allclose(far.focus[100], recording(drift=20.0).geom_pos[100, 1], atol=0.1)
    assert moving(recording()).tolist() == [1]


def test_only_balls_fixed_to_nothing_are_striped():
    frames = recording()
    assert lone_balls(scene(), frames) == [1]
    frames.geom_quat[:, 2] = frames.geom_quat[:, 1] * -1  # now the box turns with the ball: one body
    assert lone_balls(scene(), frames) == []


def test_scene_of_a_robot_file():
    s = scene_of(mujoco.MjModel.from_xml_string(SHAPES), "shapes")
    assert s.types == ("plane", "sphere", "mesh", "box", "mesh")
    assert s.rgba[1].tolist() == [1, 0, 0, 1]  # of the material
    assert s.hidden.tolist() == [False, False, False, True, False]
    frames = recording(ng=5)
    header, blob = pack(s, frames)
    assert header["meshes"] == 1  # two geoms share it
    assert [geom["mesh"] for geom in header["geoms"]] == [None, None, 0, None, 0]
    faces, points = unpack(header, blob, "mesh0_faces"), unpack(header, blob, "mesh0_points")
    assert faces.max() < len(points) == 5
    # Anticlockwise from outside, or the page would cull the wrong side: the enclosed volume is positive.
    a, b, c = np.moveaxis(points[faces], 1, 0)
    assert np.einsum("ij,ij->", a, np.cross(b, c)) > 0


def test_height_fields_are_drawn(tmp_path):
    """Their surface and the walls around it, in a small page; in the report, grid and extent."""
    rng = np.random.default_rng(0)
    rough = " ".join(f"{z:.3f}" for z in [0, 1, *rng.uniform(size=4)])
    m = mujoco.MjModel.from_xml_string(
        f"<mujoco><asset><hfield name='hill' nrow='2' ncol='3' size='2 1 .5 .1' elevation='{rough}'/>"
        "<hfield name='wide' nrow='200' ncol='200' size='9 9 1 .1'/></asset>"
        "<worldbody><geom type='hfield' hfield='hill'/><geom type='hfield' hfield='wide'/><geom size='.1'/>"
        "</worldbody></mujoco>"
    )
    m.hfield_data[m.hfield_adr[1] :] = np.sin(np.linspace(0, 30, 40000)) ** 2
    s = scene_of(m)
    hill = s.meshes[0]
    np.testing.assert_allclose(hill.vertices[:6, 2], 0.5 * m.hfield_data[:6])
    np.testing.assert_allclose(hill.vertices[:6, :2], [(x, y) for y in (-1, 1) for x in (-2, 0, 2)])
    a, b, c = np.moveaxis(hill.vertices[hill.faces], 1, 0)
    # closed but for the floor, which is at -0.1: the volume below the surface is that of its prisms
    area = np.cross(b - a, c - a)
    volume = ((a + b + c)[:, 2] / 3 + 0.1) @ area[:, 2] / 2
    assert volume > 0.1 * 8 and abs(area[:, :2].sum()) < 1e-12
    np.testing.assert_array_equal(scene_of_model(uk.load(m)).meshes[0].vertices, hill.vertices)
    page = write_replay(tmp_path / "run.html", s, recording())
    assert page.stat().st_size < 5e5
    assert "hill, 2 × 3 over 2 × 4, 0 … 0.5 high, 0.1 below" in describe(m, "hills")


def test_wrong_recordings_are_refused(tmp_path):
    good = recording()
    with pytest.raises(InputError, match=r"geom_quat has shape .* needs \(200, 3, 4\)"):
        Frames(good.time, good.geom_pos, good.geom_quat[..., :3], good.contact_point, good.contact_force)
    with pytest.raises(InputError, match="increase"):
        Frames(good.time[::-1], good.geom_pos, good.geom_quat, good.contact_point, good.contact_force)
    with pytest.raises(InputError, match="cannot be drawn: teapot"):
        scene(types=("plane", "teapot", "box"))
    with pytest.raises(InputError, match="3 geoms and the scene 2"):
        small = Scene(("box",) * 2, np.ones((2, 3)), np.ones((2, 4)), ("a", "b"))
        write_replay(tmp_path / "run.html", small, good)
    good.geom_pos[7, 1, 0] = np.nan
    with pytest.raises(InputError, match="not finite"):
        write_replay(tmp_path / "run.html", scene(), good)
    assert not (tmp_path / "run.html").exists()


def test_one_frame_without_contacts_is_enough(tmp_path):
    frames = recording(count=1, nc=0)
    mesh = {1: Mesh(np.eye(3), np.array([[0, 1, 2]]))}
    _, header, _ = read_page(
        write_replay(tmp_path / "a.html", scene(types=("plane", "mesh", "box"), meshes=mesh), frames)
    )
    assert header["has_contacts"] is False and header["view"]["reach"] > 0


def test_record_of_a_rollout(tmp_path):
    model = uk.load(
        "<mujoco><worldbody><geom type='plane' size='0 0 1'/><body pos='0 0 .099'><joint type='slide' axis='0 0 1'/>"
        "<geom name='ball' type='sphere' size='.1' mass='2'/></body></worldbody></mujoco>"
    )
    states = uk.rollout(model, uk.initial_state(model), np.zeros((400, 0)))
    s, frames = record(model, states, uk.Soft())
    assert s.types == ("plane", "sphere") and s.names[1] == "ball"
    np.testing.assert_allclose(frames.geom_pos[:, 1, 2], 0.099 + np.asarray(states.q)[:, 0], atol=1e-12)
    # At rest the floor pushes the ball up with its weight, and nothing else touches.
    force = frames.contact_force[-1][np.isfinite(frames.contact_force[-1]).all(-1)]
    np.testing.assert_allclose(force, [[0, 0, 2 * 9.81]], rtol=0.02, atol=1e-6)
    assert write_replay(tmp_path / "run.html", s, frames).exists()
    with pytest.raises(InputError, match="one leading axis"):
        record(model, uk.initial_state(model), uk.Soft())


GEM = (
    "<mujoco><asset><mesh name='gem' vertex='0 0 .2  .1 0 0  0 .1 0  -.1 0 0  0 -.1 0'/></asset><worldbody>"
    "<geom type='plane' size='0 0 1'/><body pos='0 0 .3'><freejoint/><geom type='mesh' mesh='gem'/></body></worldbody>"
    "</mujoco>"
)


def test_a_page_of_any_motion(tmp_path):
    """Of states or of positions alone, with and without the contacts of a law; the model knows its triangles."""
    model = uk.load(GEM)
    states = uk.rollout(model, uk.initial_state(model), np.zeros((150, 0)))
    pages = [
        uk.save_replay(model, states, tmp_path / "a.html"),
        uk.save_replay(model, np.asarray(states.q), tmp_path / "b.html"),
        uk.save_replay(model, states, tmp_path / "c.html", method=uk.Soft()),
    ]
    (_, bare, blob), (_, alone, _), (_, full, _) = map(read_page, pages)
    assert bare["meshes"] == alone["meshes"] == 1 and not bare["has_contacts"] and full["has_contacts"]
    assert full["subtitle"] == "Soft"
    looks = model.geoms.layout.looks
    np.testing.assert_array_equal(unpack(bare, blob, "mesh0_faces"), looks.triangles(1)[1])
    np.testing.assert_allclose(unpack(bare, blob, "mesh0_points"), looks.triangles(1)[0], atol=1e-5)
    with pytest.raises(InputError, match="one leading axis"):
        uk.save_replay(model, uk.initial_state(model), tmp_path / "d.html")
    with pytest.raises(InputError, match=r"positions of shape \(3, 2\); they need \(T, 7\)"):
        uk.save_replay(model, np.zeros((3, 2)), tmp_path / "d.html")
    with pytest.raises(InputError, match="another suffix"):
        uk.save_replay(model, states, tmp_path / "d.mp4")
    with pytest.raises(InputError, match="no method"):
        uk.save_replay(model, states, tmp_path / "d.html", ctrls=np.zeros((150, 0)))
    with pytest.raises(InputError, match=r"ctrls has shape \(150, 1\); .* needs \(150, 0\)"):
        uk.save_replay(model, states, tmp_path / "d.html", method=uk.Soft(), ctrls=np.zeros((150, 1)))
    other = uk.rollout(uk.load("pendulum"), uk.initial_state(uk.load("pendulum")), np.zeros((3, 1)))
    for call, suffix in ((uk.save_replay, ".html"), (uk.plot, ".png")):
        with pytest.raises(InputError, match=r"states.q has shape \(3, 1\)"):
            call(model, other, tmp_path / f"d{suffix}")
        with pytest.raises(InputError, match=rf"{call.__name__}\(path=7\): must be the path of a file"):
            call(model, states, 7)
    with pytest.raises(InputError, match=r"plot writes .*\.png.* files; '.*run\.mp4' has another suffix"):
        uk.plot(model, states, tmp_path / "run.mp4")
    with pytest.raises(InputError, match="title=3.*must be a text"):
        uk.plot(model, states, tmp_path / "run.png", title=3)
    for name, given in (("run.png", states), ("bare.png", np.asarray(states.q))):
        assert uk.plot(model, given, tmp_path / name).read_bytes()[:4] == b"\x89PNG"


def test_the_page_reads_what_was_written(tmp_path):
    """Its own script, run by Node where there is one."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    model = uk.load(GEM)
    states = uk.rollout(model, uk.initial_state(model), np.zeros((50, 0)))
    text, header, blob = read_page(uk.save_replay(model, states, tmp_path / "run.html"))
    script = (Path(uk.__file__).parent / "view" / "web" / "data.js").read_text()
    part = {key: re.search(rf'id="{key}">(.*?)</script>', text, re.S)[1] for key in ("header", "blob")}
    (tmp_path / "run.js").write_text(
        f"const parts = {json.dumps(part)};\n"
        "const document = { getElementById: (id) => ({ textContent: parts[id] }) };\n"
        f"{script}\nreadData().then(({{ arrays }}) => console.log(JSON.stringify("
        "[...arrays.mesh0_faces, ...arrays.mesh0_points, ...arrays.time])));"
    )
    out = json.loads(subprocess.run([node, tmp_path / "run.js"], capture_output=True, text=True, check=True).stdout)
    names = ("mesh0_faces", "mesh0_points", "time")
    np.testing.assert_allclose(out, np.concatenate([unpack(header, blob, name).ravel() for name in names]), atol=1e-6)


def test_plot(tmp_path):
    time = np.linspace(0, 1, 50)
    joints = {f"joint {k}": np.sin(k * time) for k in range(20)}
    trace = Trace(time, joints, {"x": time}, time, 1 - time, np.arange(50) % 4, 100 * time)
    path = plot_run(tmp_path / "run.png", trace, title="a run")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 10_000
    assert plot_run(tmp_path / "angles.png", Trace(time, joints)).exists()
    with pytest.raises(InputError, match="nothing to plot"):
        plot_run(tmp_path / "none.png", Trace(time))
    with pytest.raises(InputError, match=r"'kinetic' has shape \(3,\)"):
        Trace(time, kinetic=np.zeros(3))


def test_plot_says_when_matplotlib_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'ukemi\[view\]'"):
        plot_run(tmp_path / "run.png", Trace(np.zeros(2), {"x": np.zeros(2)}))


def test_description_names_everything():
    text = describe(mujoco.MjModel.from_xml_string(SHAPES), "shapes")
    for word in ("3 bodies", "nq = 18", "floor", "shell", "gem", "ball", "timestep"):
        assert word in text
    assert "nothing: Ukemi can simulate this model" in text


def test_description_cuts_long_tables():
    bodies = "".join(f'<body pos="{k} 0 0"><joint/><geom size=".1"/></body>' for k in range(70))
    m = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
    assert "and 10 more" in describe(m, "many")
    assert "more (--all" not in describe(m, "many", everything=True)
