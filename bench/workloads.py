"""What is timed: each workload is a robot, how it is set up, and what docs/performance.md promises for it."""

import dataclasses
from pathlib import Path

import mujoco

import ukemi as uk
from tests.scenes.robots import with_floor
from ukemi.files.source import parse, read


def on_floor(source: str | Path) -> mujoco.MjModel:
    """A robot file or built-in model, on a floor if it has none."""
    compiled, spec = parse(source)
    return with_floor(spec).compile() if spec else compiled


@dataclasses.dataclass(frozen=True)
class Workload:
    """A robot and the ratio to MuJoCo that is promised for it."""

    name: str
    source: str  # built-in name or path
    keyframe: int | None = 0
    single: float | None = None  # promised step time of one world, as a multiple of one mj_step
    batch: float | None = None  # the same per world in the largest batch
    compile: float | None = None  # promised compile time of a jitted step [s]
    settle: int = 300  # steps under zero control before timing
    feet_only: bool = False  # switch off all collisions but those of spheres with the floor
    floor: bool = False  # add a floor
    reference: str | None = None  # another workload that this one's time is compared with
    promise: float | None = None  # promised multiple of that reference

    def model(self) -> mujoco.MjModel:
        """The compiled MuJoCo model."""
        if not (self.floor or self.feet_only):
            return read(self.source)
        spec = mujoco.MjSpec.from_file(self.source)
        if self.feet_only:
            for geom in spec.geoms:
                foot = geom.type == mujoco.mjtGeom.mjGEOM_SPHERE and geom.condim == 6
                geom.contype, geom.conaffinity = 0, int(foot)
        return with_floor(spec).compile()

    def load(self) -> uk.Model:
        """The same as a Ukemi model."""
        return uk.load(self.model())


def workloads(shared: str | None) -> list[Workload]:
    """All workloads; those on third-party robots only where `shared` points to their files."""
    found = [
        Workload("humanoid", "humanoid", single=5.0, batch=2.0, compile=5.0),
        Workload("half_cheetah", "half_cheetah", keyframe=None, single=6.0),
        Workload("ant", "ant"),
        Workload("quadruped", "quadruped"),
        Workload("hopper", "hopper"),
        Workload("arm", "arm"),
    ]
    if shared:
        a1 = f"{shared}/models/unitree_a1/a1.xml"
        found += [
            Workload("A1, feet only", a1, floor=True, feet_only=True),
            Workload("A1, as shipped", a1, floor=True, reference="A1, feet only", promise=2.0),
            Workload("G1", f"{shared}/models/unitree_g1/g1_mjx.xml", keyframe=None, floor=True),
        ]
    return found
