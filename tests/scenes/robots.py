"""Third-party robot files for tests.

They are not in this repository. Those of gymnasium and dm_control are found in the installed packages; the rest in the
folder that `UKEMI_SHARED` names, by default `shared` beside the repository. A test whose file is not there skips.
"""

import os
from pathlib import Path

import mujoco
import pytest

SHARED = Path(os.environ.get("UKEMI_SHARED", Path(__file__).parents[3] / "shared"))


def shared_path(relative: str) -> Path:
    """A file or folder of the shared folder; skips the test where it is absent."""
    path = SHARED / relative
    if not path.exists():
        pytest.skip(f"needs '{relative}' of the folder named by UKEMI_SHARED (looked in {SHARED})")
    return path


def with_floor(spec: mujoco.MjSpec) -> mujoco.MjSpec:
    """The same on a floor, if it has none."""
    if not any(geom.type == mujoco.mjtGeom.mjGEOM_PLANE for geom in spec.geoms):
        spec.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[10, 10, 0.1])
        if not any(geom.conaffinity & 1 for geom in spec.geoms if geom.name != "floor"):
            for geom in spec.geoms:  # collides by explicit pairs only, and leaves those to the scene
                if geom.name and "foot" in geom.name:
                    spec.add_pair(geomname1="floor", geomname2=geom.name, condim=3)
    return spec


def shared_robot(relative: str, floor: bool = True) -> mujoco.MjModel:
    """A robot of the shared models, on a floor (those files have none); skips the test where it is absent."""
    spec = mujoco.MjSpec.from_file(os.fspath(shared_path(f"models/{relative}")))
    return (with_floor(spec) if floor else spec).compile()


GYMNASIUM = [
    "ant", "half_cheetah", "hopper", "humanoid", "humanoidstandup", "inverted_double_pendulum", "inverted_pendulum",
    "point", "pusher", "pusher_v5", "reacher", "swimmer", "walker2d", "walker2d_v5",
]
DM_CONTROL = [
    "acrobot", "cartpole", "cheetah", "finger", "hopper", "humanoid", "humanoid_CMU", "pendulum", "reacher",
    "swimmer", "walker",
]


def gymnasium_model(name: str) -> mujoco.MjModel:
    """A model of gymnasium's MuJoCo environments, one of `GYMNASIUM`; skips where gymnasium is not installed."""
    gymnasium = pytest.importorskip("gymnasium")
    assets = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
    path = assets / f"{name}.xml"
    if not path.exists():
        pytest.skip(f"gymnasium {gymnasium.__version__} has no {name}.xml")
    return mujoco.MjModel.from_xml_path(os.fspath(path))


def dm_control_model(name: str) -> mujoco.MjModel:
    """A model of dm_control's suite, one of `DM_CONTROL`; skips where dm_control is not installed."""
    common = pytest.importorskip("dm_control.suite.common")
    folder = Path(common.__file__).parents[1]
    return mujoco.MjModel.from_xml_string((folder / f"{name}.xml").read_text(), dict(common.ASSETS))
