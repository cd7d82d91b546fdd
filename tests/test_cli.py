"""The command line as a user meets it: help, inspection, simulation, and what errors look like."""

import dataclasses
import subprocess
import sys

import jax
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.slow import few
from ukemi import cli
from ukemi.files.source import read

PENDULUM = """
<mujoco model="tiny">
  <worldbody>
    <geom type="plane" size="0 0 1"/>
    <body pos="0 0 .12"><joint name="drop" type="slide" axis="0 0 1"/><geom type="sphere" size=".1" mass="1"/>
      <body pos="0 0 .5"><joint name="swing" axis="0 1 0"/>
        <geom type="capsule" size=".03" fromto="0 0 0 0 0 .3" mass=".2"/></body></body>
  </worldbody>
  <actuator><position name="servo" joint="swing" kp="5" ctrlrange="-1 1"/></actuator>
  <keyframe><key name="tilted" qpos="0 .5"/></keyframe>
</mujoco>
"""


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.xml"
    path.write_text(PENDULUM)
    return str(path)


def run(capsys, *arguments):
    code = cli.main([str(a) for a in arguments])
    streams = capsys.readouterr()
    return code, streams.out, streams.err


@pytest.mark.parametrize("arguments", [["--help"], ["simulate", "--help"], ["inspect", "--help"], ["check", "--help"]])
def test_help(capsys, arguments):
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    text = capsys.readouterr().out
    assert end.value.code == 0 and "usage: ukemi" in text and "humanoid" in text or "--all" in text


def test_parsing_imports_nothing_heavy():
    """Help and mistyped options are answered from the standard library alone."""
    code = (
        "import sys; before = set(sys.modules)\n"
        "import ukemi.cli; ukemi.cli._parser()\n"
        "print(sorted(m for m in set(sys.modules) - before if m.split('.')[0] not in sys.stdlib_module_names))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['ukemi', 'ukemi.cli', 'ukemi.errors', 'ukemi.xla', 'ukemi.xla.flags']"


def test_public_names_are_found_when_used():
    for name in uk.__all__:
        assert getattr(uk, name) is not None and name in dir(uk)
    import ukemi.files.loading

    assert callable(uk.load) and uk.files is ukemi.files
    assert not hasattr(uk, "no_such_name")


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    shown = capsys.readouterr().out
    assert end.value.code == 0 and shown.startswith(f"ukemi {uk.__version__}, jax {jax.__version__}, ")


def test_inspect(capsys, tiny):
    code, out, _ = run(capsys, "inspect", tiny)
    assert code == 0
    for word in ("swing", "hinge", "position kp 5", "-1 … 1", "tilted", "nothing: Ukemi can simulate"):
        assert word in out


def test_inspect_lists_what_is_unsupported(capsys, tmp_path):
    path = tmp_path / "wet.xml"
    odd = '<option integrator="discrete"><flag sleep="enable"/></option>'
    path.write_text(PENDULUM.replace("<worldbody>", odd + "<worldbody>"))
    code, out, _ = run(capsys, "inspect", path)
    assert code == 1
    assert "sleep" in out and "discrete" in out


def test_inspect_of_a_built_in_model(capsys):
    code, out, _ = run(capsys, "inspect", "humanoid")
    assert code == 0 and out.startswith("built-in model 'humanoid'")


@pytest.mark.parametrize("command", ["simulate", "inspect", "check"])
def test_unknown_model_suggests_names(capsys, command):
    code, out, err = run(capsys, command, "humanoyd")
    assert code == 2 and not out
    assert "humanoyd" in err and "'humanoid'" in err and "half_cheetah" in err and "Traceback" not in err


@pytest.mark.parametrize(
    "content, says", [("", "empty"), ("<mujoco><worldbody></mujoco>", "XML"), ("<mujoco><banana/></mujoco>", "banana")]
)
def test_bad_files_give_one_message(capsys, tmp_path, content, says):
    path = tmp_path / "bad.xml"
    path.write_text(content)
    code, out, err = run(capsys, "simulate", path)
    assert code == 2 and not out and says in err and err.startswith("ukemi: ")


def test_outputs_are_checked_before_the_simulation(capsys, tiny, tmp_path):
    code, _, err = run(capsys, "simulate", tiny, "--replay", tmp_path / "run.txt")
    assert code == 2 and "--replay writes .html" in err
    (tmp_path / "taken").write_text("a file, not a folder")
    code, _, err = run(capsys, "simulate", tiny, "--out", tmp_path / "taken" / "run.npz")
    assert code == 2 and "cannot be made" in err


@pytest.mark.parametrize("value", ["0", "-1", "inf", "nan", "soon"])
def test_seconds_must_be_positive(capsys, tiny, value):
    with pytest.raises(SystemExit) as end:
        cli.main(["simulate", tiny, f"--seconds={value}"])
    assert end.value.code == 2 and "--seconds" in capsys.readouterr().err


def test_simulate_writes_everything(capsys, tiny, tmp_path):
    outputs = [tmp_path / "out" / f"run.{kind}" for kind in ("npz", "html", "png")]
    options = zip(("--out", "--replay", "--plot"), outputs)
    code, out, err = run(capsys, "simulate", tiny, "--seconds", 0.3, *(x for pair in options for x in pair))
    assert code == 0, err
    for word in ("energy", "contacts", "iterations", "status", "ok", "real time", "compiling"):
        assert word in out
    data = np.load(outputs[0])
    assert data["q"].shape == (151, 2) and data["ctrl"].shape == (151, 1)
    np.testing.assert_allclose(data["time"], 0.002 * np.arange(151), atol=1e-12)
    assert data["q"].dtype == np.float64
    assert data["contacts"].max() == 1
    # At rest the floor carries the weight.
    np.testing.assert_allclose(data["normal_force"][-1], 1.2 * 9.81, rtol=0.1)
    assert "tiny" in outputs[1].read_text() and outputs[2].stat().st_size > 10_000


def test_a_simulation_that_blows_up_is_an_error_and_shown_up_to_then(capsys, tmp_path):
    path = tmp_path / "stiff.xml"
    path.write_text(
        "<mujoco><option timestep='.01'/><worldbody><body><joint name='spring' type='slide' stiffness='1e12' ref='.1'/>"
        "<geom size='.01' mass='.001'/></body></worldbody></mujoco>"
    )
    outputs = ["--out", tmp_path / "run.npz", "--replay", tmp_path / "run.html", "--plot", tmp_path / "run.png"]
    code, out, err = run(capsys, "simulate", path, "--seconds", 1, *outputs)
    assert code == 2 and "not finite" in out and "infinite or NaN" in err and "first at t = 0." in err
    assert all(file.exists() for file in outputs[1::2])


@pytest.mark.slow
def test_a_failed_step_is_an_error_with_everything_written(capsys, tmp_path):
    path, npz = tmp_path / "hard.xml", tmp_path / "run.npz"
    path.write_text(
        "<mujoco><option iterations='1' ls_iterations='1'/><worldbody><geom type='plane' size='0 0 1'/>"
        "<body pos='0 0 .2' euler='20 30 0'><freejoint/><geom type='box' size='.1 .2 .05'/></body></worldbody></mujoco>"
    )
    code, out, err = run(capsys, "simulate", path, "--seconds", 0.3, "--out", npz)
    assert code == 2 and "not converged" in out and "first at t = 0." in err and "iterations" in err
    assert np.load(npz)["status"].any()


def controls(tiny, *options):
    """Controls of 100 steps that the command line would use, without the simulation."""
    arguments = cli._parser().parse_args(["simulate", tiny, *options])
    source, model = read(tiny), uk.load(tiny)
    state = uk.initial_state(model, arguments.keyframe)
    return cli._controls(arguments, model, state, source, 100, arguments.keyframe)


def test_random_controls_depend_on_the_seed_alone(tiny):
    first, again, other = (controls(tiny, "--ctrl", "random", "--seed", seed) for seed in "337")
    assert first.shape == (100, 1)
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(first)) == 4 and np.abs(first).max() <= 1 and (first != other).all()


def test_hold_keeps_the_start_pose(tiny):
    np.testing.assert_allclose(controls(tiny, "--ctrl", "hold", "--keyframe", "tilted"), 0.5)
    np.testing.assert_allclose(controls(tiny, "--ctrl", "hold"), 0.0)
    np.testing.assert_allclose(controls(tiny), 0.0)


def test_unknown_keyframe(capsys, tiny):
    code, _, err = run(capsys, "simulate", tiny, "--keyframe", "nowhere")
    assert code == 2 and "nowhere" in err and "tilted" in err


@pytest.mark.slow
def test_check_compares_every_group_and_passes(capsys, tiny):
    code, out, err = run(capsys, "check", tiny, "--samples", 3)
    assert code == 0, out
    assert out.startswith("tiny, Soft: 3 states") and "All derivatives agree" in out and "Compiling" in err
    groups = {line.split()[0]: line for line in out.splitlines()[2:-1]}
    for group in ("q", "v", "ctrl", "bodies.mass", "joints.damping", "actuators.gain", "options.timestep"):
        assert group in groups
    assert groups["bodies.mass"].endswith("ok") and groups["options.wind"].endswith("no effect")


@pytest.mark.parametrize("method", few(["lcp", "ncp", "maximal"], "lcp"))
def test_rigid_laws_simulate(capsys, tiny, method):
    code, out, _ = run(capsys, "simulate", tiny, "--seconds", 0.1, "--method", method)
    assert code == 0 and "status     ok" in out


@pytest.mark.slow
def test_the_rigid_law_checks(capsys, tiny):
    code, out, _ = run(capsys, "check", tiny, "--samples", 2, "--method", "lcp")
    assert code == 0 and out.startswith("tiny, LCP: 2 states") and "All derivatives agree" in out


def test_check_says_which_laws_it_does_not_cover(capsys, tiny):
    code, _, err = run(capsys, "check", tiny, "--method", "impact")
    assert code == 2 and "uk.Impact" in err


@pytest.mark.slow
def test_check_reports_a_wrong_derivative(capsys, tiny, monkeypatch):
    """A derivative that is off makes the exit code 1, and its group is named."""
    from ukemi.laws.soft import law

    advance = law.advance

    def wrong(model, state, motion, inputs):
        v = state.v + 1e-5 * (state.v - jax.lax.stop_gradient(state.v))
        return advance(model, dataclasses.replace(state, v=v), motion, inputs)

    monkeypatch.setattr(law, "advance", wrong)
    code, out, _ = run(capsys, "check", tiny, "--samples", 2)
    assert code == 1 and out.splitlines()[-1] == "WRONG: v"


@pytest.mark.parametrize("value", ["0", "-3", "2.5", "many"])
def test_samples_are_counted(capsys, tiny, value):
    with pytest.raises(SystemExit) as end:
        cli.main(["check", tiny, f"--samples={value}"])
    assert end.value.code == 2 and "--samples" in capsys.readouterr().err


def test_inspect_says_what_of_a_mesh_collides(capsys, tmp_path):
    """An arrow head with a notch: five corners, of which four make the hull."""
    path = tmp_path / "arrow.xml"
    faces = "0 2 1  0 1 3  0 3 2  1 2 4  2 3 4  3 1 4"
    path.write_text(
        f"<mujoco><asset><mesh name='arrow' vertex='0 0 0  4 0 0  0 4 0  0 0 4  .5 .5 .5' face='{faces}'/></asset>"
        "<worldbody><body><freejoint/><geom type='mesh' mesh='arrow' mass='1'/></body></worldbody></mujoco>"
    )
    code, out, _ = run(capsys, "inspect", path)
    assert code == 0 and "5 vertices, hull of 4, " in out and "% larger" in out, out
