"""What robot files hold besides joints and contacts, against MuJoCo: tendons, actuators, passive forces, sensors.

    python bench/elements.py [WORD...] [--states N] [--contacts N] [--list]

Goes over the files of dm_control's suite and walkers, of gymnasium, of the folder `shared/models`, and MuJoCo's own
test files that installed packages carry; WORD takes those whose name holds it. At random states, in float64, the worst
difference of lengths, velocities and moment arms of tendons, of actuator forces and passive forces, of every sensor and
of the next state, relative to the largest entry or to one; and which files are refused, by which element. MuJoCo's
solver runs until nothing changes. States where contacts are not MuJoCo's to 1e-11, which happens where shapes meet for
which it searches, are counted as *other*; MuJoCo's sensors and next state are then those that it finds with Ukemi's
contacts in place of its own (`tests/scenes/given`). Where it cannot, since it has none of a pair, or detects contacts
several times in a step, or a state has more contacts than the model holds (`--contacts` gives it room), they are left
*out*.
"""

import argparse
import importlib.util
import os
import time
from pathlib import Path

import jax
import mujoco
import numpy as np

import ukemi as uk
from tests.scenes.agreement import CONVERGED, QUICK
from tests.scenes.given import Giver
from tests.scenes.robots import SHARED
from tests.scenes.states import Sample, converged, load_sample, random_states, stack
from ukemi.mechanics.tendons.paths import tendon_lengths

NEAR = 1e-11  # [m], and of directions: what MuJoCo searches for differs by its tolerance, which shows in a stiff step
STAGES = ("length", "velocity", "moment", "actuator", "passive", "sensors", "next")
ROBOTS = ("myo_sim", "iit_softfoot", "robotiq_2f85", "shadow_hand", "dynamixel_2r")


def files() -> dict[str, Path]:
    """All robot files by name."""
    found = {}

    def add(family: str, folder: Path, pattern: str) -> None:
        for path in sorted(folder.glob(pattern)):
            found[f"{family}/{path.relative_to(folder).with_suffix('')}"] = path

    for package, folder, pattern in (
        ("dm_control", "suite", "*.xml"),
        ("dm_control", "locomotion/walkers/assets", "**/*.xml"),
        ("dm_control", "locomotion/soccer/assets", "**/*.xml"),
        ("dm_control", "third_party", "**/*.xml"),
        ("gymnasium", "envs/mujoco/assets", "*.xml"),
        ("mujoco", "mjx/test_data", "**/*.xml"),
        ("mujoco", "testdata", "*.xml"),
    ):
        spec = importlib.util.find_spec(package)
        if spec and spec.origin:
            add(f"{package}/{Path(folder).name}", Path(spec.origin).parent / folder, pattern)
    for robot in ROBOTS:
        add(f"shared/{robot}", SHARED / "models" / robot, "*.xml")
    return found


def compiled(path: Path) -> mujoco.MjModel:
    """A file's model; the suite's include each other by name."""
    try:
        return mujoco.MjModel.from_xml_path(os.fspath(path))
    except ValueError:
        if path.parent.name != "suite":
            raise
    from dm_control.suite import common, quadruped

    if path.stem == "quadruped":  # the file has a terrain, too, that the tasks on flat ground take out
        return mujoco.MjModel.from_xml_string(quadruped.make_model(floor_size=30), dict(common.ASSETS))
    return mujoco.MjModel.from_xml_string(path.read_text(), dict(common.ASSETS))


def _one(model, state, inputs):
    now = CONVERGED.forward(model, state, inputs)
    after = uk.step(model, state, inputs, CONVERGED)
    strings = tendon_lengths(model, now.kin, state.q)
    read = uk.sensors(model, state, inputs, CONVERGED)
    return now.actuation.force, now.passive.qfrc, after, strings, read, now.contacts, now.solution.converged


_all = jax.jit(lambda model, samples: jax.lax.map(lambda s: _one(model, *s), samples), compiler_options=QUICK)


class Worst:
    """Worst differences by stage."""

    def __init__(self):
        self.of = dict.fromkeys(STAGES, 0.0)
        self.sensor, self.other, self.out, self.unsolved = "", 0, 0, 0

    def note(self, stage: str, a, b) -> float:
        """Take a difference into account."""
        a, b = np.asarray(a), np.asarray(b)
        off = float(np.abs(a - b).max(initial=0.0) / max(1.0, np.abs(b).max(initial=0.0)))
        off = np.inf if np.isnan(off) else off
        self.of[stage] = max(self.of[stage], off)
        return off


def compare(m: mujoco.MjModel, states: int, contacts: int | None) -> Worst:
    """The worst over random states."""
    model, m = uk.load(m, contacts=contacts), converged(m)
    samples = random_states(m, states, 3)
    out = jax.tree.map(np.asarray, _all(model, stack(model, samples)))
    d, worst, giver = mujoco.MjData(m), Worst(), Giver(m, model)
    for k, sample in enumerate(samples):
        _compare_state(m, d, sample, giver, model, jax.tree.map(lambda x, k=k: x[k], out), worst)
    return worst


def _compare_state(m, d, sample: Sample, giver: Giver, model, found, worst: Worst) -> None:
    force, passive, after, strings, read, contacts, solved = found
    load_sample(d, sample)
    mujoco.mj_forward(m, d)
    moment = np.zeros((m.ntendon, m.nv))
    mujoco.mju_sparse2dense(moment, d.ten_J.ravel(), m.ten_J_rownnz, m.ten_J_rowadr, m.ten_J_colind)
    worst.note("length", strings.length, d.ten_length)
    worst.note("velocity", strings.moment @ sample.v, d.ten_velocity)
    worst.note("moment", strings.moment, moment)
    worst.note("actuator", force, d.actuator_force)
    worst.note("passive", passive, d.qfrc_passive)
    same = _same_contacts(d, giver.geoms, contacts)
    known = same or (giver.can() and not contacts.overflow and giver.forward(d, contacts))
    worst.other += not same
    worst.out += not known
    worst.unsolved += not solved
    acceleration = mujoco.mjtStage.mjSTAGE_ACC
    for i, name in enumerate(model.sensors.layout.names):
        if name not in read or (not known and (m.sensor_needstage[i] == acceleration or _of_contacts(m, i))):
            continue
        theirs = d.sensordata[m.sensor_adr[i] : m.sensor_adr[i] + m.sensor_dim[i]]
        before = worst.of["sensors"]
        if worst.note("sensors", read[name], theirs) > before:
            worst.sensor = f"{model.sensors.layout.type[i]} {name}"
    if known and m.nv:
        if same:
            mujoco.mj_step(m, d)
        else:
            giver.advance(d)
        for mine, theirs in ((after.q, d.qpos), (after.v, d.qvel), (after.act, d.act)):
            worst.note("next", mine, theirs)


def _of_contacts(m: mujoco.MjModel, i: int) -> bool:
    return m.sensor_type[i] == mujoco.mjtSensor.mjSENS_CONTACT


def _same_contacts(d, pairs: np.ndarray, contacts) -> bool:
    """Whether those that act are MuJoCo's, by geoms, point, distance and normal."""
    on = np.flatnonzero(contacts.active)
    found = zip(contacts.point[on], contacts.distance[on], contacts.frame[on, 0], strict=True)
    mine = [(tuple(pairs[pair]), np.hstack(at)) for pair, at in zip(contacts.pair[on], found, strict=True)]
    theirs = [(tuple(c.geom), np.hstack([c.pos, c.dist, c.frame[:3]])) for c in d.contact if c.efc_address >= 0]
    if len(mine) != len(theirs):
        return False
    for geoms, place in theirs:
        near = [np.abs(p - place).max() if g == geoms else np.inf for g, p in mine]
        if min(near, default=np.inf) > NEAR:
            return False
        mine.pop(int(np.argmin(near)))
    return True


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--states", type=int, default=200)
    parser.add_argument("--contacts", type=int, help="that a step can hold (default: derived from the model)")
    parser.add_argument("--list", action="store_true", help="only say which files there are")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    chosen = {n: p for n, p in files().items() if not given.words or any(word in n for word in given.words)}
    if given.list:
        print("\n".join(chosen))
        return
    print(f"| model | nv | tendons | sensors | {' | '.join(STAGES)} | other contacts | out | s |")
    for name, path in chosen.items():
        begin = time.time()
        try:
            m = compiled(path)
            worst = compare(m, given.states, given.contacts)
        except Exception as error:  # noqa: BLE001  a survey goes on
            print(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:400]}", flush=True)
            continue
        cells = " | ".join(f"{worst.of[stage]:.0e}" for stage in STAGES)
        more = f" ({worst.sensor})" if worst.of["sensors"] > 1e-9 else ""
        more += f" ({worst.unsolved} unsolved)" if worst.unsolved else ""
        shape = f"{m.nv} | {m.ntendon} | {m.nsensor}"
        counts = f"{worst.other} | {worst.out} | {time.time() - begin:.0f}"
        print(f"| {name} | {shape} | {cells} | {counts} |{more}", flush=True)


if __name__ == "__main__":
    main()
