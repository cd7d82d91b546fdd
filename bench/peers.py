"""Time the derivatives of other engines on CPU: MuJoCo's finite differences, MJX's reverse mode, Nimble, Pinocchio.

Each function of a peer returns {case: figures}. Figures are microseconds ("least" and "median" over repeats, CPU time
of the process unless the name says wall), with what they belong to, or {"skipped": why}. MJX runs in subprocesses of
this interpreter with a time limit, Nimble and Pinocchio in environments of their own: see their workers.

Usage: python bench/peers.py [--only mujoco mjx nimble pinocchio] [--nimble-python FILE] [--pinocchio-python FILE]
"""

import argparse
import copy
import dataclasses
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import mujoco
import numpy as np
from workloads import Workload, workloads

HERE = Path(__file__).resolve().parent
NEWTON, EULER = int(mujoco.mjtSolver.mjSOL_NEWTON), int(mujoco.mjtIntegrator.mjINT_EULER)
NOT_THERE = "its model file is not there: set --shared or UKEMI_SHARED"
EPSILON = 1e-6  # of finite differences
HOLD = 10  # steps that a random control is held
AT_REST = 1.0  # largest speed of a state that counts as settled
QUIET, LOUD = 0.005, 0.05  # random controls, of their range, that keep a robot at rest and that move it
APART = 20  # steps between moving states
LONGEST = 4000  # steps, to settle
Figures = dict[str, dict]


@dataclasses.dataclass(frozen=True)
class Case:
    """A robot that MuJoCo and MJX can be timed on."""

    name: str
    workload: Workload | None  # None where its file is not there
    options: dict = dataclasses.field(default_factory=dict)  # of `MjModel.opt`, other than the file's own
    note: str = ""

    def model(self) -> mujoco.MjModel:
        """The compiled model with the options."""
        assert self.workload is not None
        m = self.workload.model()
        for name, value in self.options.items():
            setattr(m.opt, name, value)
        return m


def packaged(package: str, path: str) -> str | None:
    """A file inside an installed package, without importing it."""
    spec = importlib.util.find_spec(package)
    file = Path(spec.origin).parent / path if spec and spec.origin else None
    return str(file) if file and file.exists() else None


def extra(name: str, package: str, path: str, keyframe: int | None = None) -> Workload | None:
    """A workload from a file inside an installed package."""
    file = packaged(package, path)
    return Workload(name, file, keyframe=keyframe) if file else None


def difference_cases(shared: Path | None) -> list[Case]:
    """What MuJoCo's finite differences are timed on."""
    known = {w.name: w for w in workloads(str(shared) if shared else None)}
    assets, g1 = "envs/mujoco/assets", f"{shared}/models/unitree_g1/g1.xml"
    pyramidal = {"cone": int(mujoco.mjtCone.mjCONE_PYRAMIDAL)}
    return [
        Case("humanoid", known["humanoid"]),
        Case(
            "humanoid (gymnasium)",
            extra("humanoid", "gymnasium", f"{assets}/humanoid.xml"),
            {"integrator": EULER},
            "Euler: no differences of RK4",
        ),
        Case("A1, pyramidal feet only", known.get("A1, feet only"), pyramidal),
        Case("A1, as shipped", known.get("A1, as shipped")),
        Case("G1", Workload("G1", g1, floor=True) if Path(g1).exists() else None, note="g1.xml: four spheres per foot"),
        Case("half_cheetah", known["half_cheetah"]),
        Case("half_cheetah (gymnasium)", extra("half_cheetah", "gymnasium", f"{assets}/half_cheetah.xml")),
    ]


def reverse_cases() -> list[Case]:
    """What MJX's reverse mode is timed on; it needs a solver that makes one iteration."""
    one = {"iterations": 1, "ls_iterations": 4, "solver": NEWTON}
    own = extra("humanoid", "mujoco.mjx", "test_data/humanoid/humanoid.xml")
    gym = extra("humanoid", "gymnasium", "envs/mujoco/assets/humanoid.xml")
    return [
        Case("humanoid", Workload("humanoid", "humanoid"), one),
        Case("humanoid (MJX's own)", own, one, "feet and floor only"),
        Case("humanoid (gymnasium)", gym, one | {"integrator": EULER}, "Euler"),
    ]


def least_and_median(call: Callable, before: Callable, repeats: int) -> dict:
    """CPU microseconds of a call; `before` runs ahead of each and is not timed."""
    times = []
    for _ in range(repeats + 2):
        before()
        start = time.process_time()
        call()
        times.append(1e6 * (time.process_time() - start))
    return {"least": min(times[2:]), "median": statistics.median(times[2:])}


def disturbed(m: mujoco.MjModel, d: mujoco.MjData, noise: float, seed: int) -> Iterator[int]:
    """Simulate under random controls about those of `d`, forever; the number of steps, after each."""
    rng, base = np.random.default_rng(seed), d.ctrl.copy()
    width = noise * np.where(m.actuator_ctrllimited, np.ptp(m.actuator_ctrlrange, axis=1), 1.0)
    for step in itertools.count(1):
        if step % HOLD == 1:
            d.ctrl[:] = base + width * rng.uniform(-1, 1, m.nu)
        mujoco.mj_step(m, d)
        yield step


def settled(m: mujoco.MjModel, workload: Workload, seed: int = 0) -> mujoco.MjData:
    """A state in contact and nearly at rest, from the keyframe (or none) under small random controls."""
    d = mujoco.MjData(m)
    if workload.keyframe is not None and m.nkey:
        mujoco.mj_resetDataKeyframe(m, d, workload.keyframe)
    for step in disturbed(m, d, QUIET, seed):
        if step >= LONGEST or (step >= workload.settle and d.ncon and np.abs(d.qvel).max() < AT_REST):
            return d
    return d


def moving(m: mujoco.MjModel, workload: Workload, count: int = 5, seed: int = 0) -> list[mujoco.MjData]:
    """States in contact while larger random controls move the settled robot."""
    d, found = settled(m, workload, seed), []
    for step in disturbed(m, d, LOUD, seed + 1):
        if step % APART == 0 and d.ncon:
            found.append(copy.copy(d))
        if len(found) == count or step >= LONGEST:
            break
    return found


def differences(m: mujoco.MjModel, d: mujoco.MjData, repeats: int) -> dict:
    """Figures of one step with centred differences of it in state and control, from the state of `d`."""
    size, kind = 2 * m.nv + m.na, mujoco.mjtState.mjSTATE_INTEGRATION
    a, b = np.zeros((size, size)), np.zeros((size, m.nu))
    state = np.zeros(mujoco.mj_stateSize(m, kind))
    mujoco.mj_getState(m, d, state, kind)

    def restore() -> None:
        mujoco.mj_setState(m, d, state, kind)

    def both() -> None:
        mujoco.mjd_transitionFD(m, d, EPSILON, 1, a, b, None, None)
        mujoco.mj_step(m, d)

    step = least_and_median(lambda: mujoco.mj_step(m, d), restore, repeats)
    figures = least_and_median(both, restore, repeats) | {"step": step["least"]}
    restore()
    mujoco.mj_forward(m, d)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ArithmeticError("MuJoCo's differences are not finite")
    iterations = int(d.solver_niter.sum())
    return figures | {"dofs": m.nv, "contacts": d.ncon, "rows": d.nefc, "iterations": iterations}


def mean(rows: list[dict]) -> dict:
    """The mean of figures of several states."""
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]} if rows else {"skipped": "no contact"}


def mujoco_peer(shared: Path | None, repeats: int = 100) -> Figures:
    """MuJoCo: `mj_step` with centred `mjd_transitionFD`, and the step alone; at rest, and the mean of moving states.

    The time depends much on the state, by the number of the solver's iterations.
    """
    found: Figures = {}
    for case in difference_cases(shared):
        if case.workload is None:
            found[case.name] = {"skipped": NOT_THERE}
            continue
        m, note = case.model(), {"note": case.note} if case.note else {}
        found[case.name] = differences(m, settled(m, case.workload), repeats) | note
        rows = [differences(m, d, repeats) for d in moving(m, case.workload)]
        found[f"{case.name}, moving"] = mean(rows) | {"states": len(rows)}
    return found


def mjx_losses(case: Case, steps: int, worlds: int) -> tuple[dict, tuple]:
    """A rollout's loss and its gradient in start and controls, over worlds, by name; and what to call them with."""
    import jax
    import jax.numpy as jnp
    from mujoco import mjx

    assert case.workload is not None
    m = case.model()
    d = settled(m, case.workload)
    model, data = mjx.put_model(m), mjx.put_data(m, d)

    def loss(q, v, controls):
        def advance(state, ctrl):
            return mjx.step(model, state.replace(ctrl=ctrl)), None

        last = jax.lax.scan(advance, data.replace(qpos=q, qvel=v), controls)[0]
        return jnp.sum(last.qpos**2) + jnp.sum(last.qvel**2)

    noise = jax.random.normal(jax.random.PRNGKey(0), (worlds, m.nv))
    controls = jnp.broadcast_to(data.ctrl, (worlds, steps, m.nu))
    start = (jnp.broadcast_to(data.qpos, (worlds, m.nq)), data.qvel + 0.1 * noise, controls)
    both = {"forward": loss, "gradient": jax.grad(loss, argnums=(0, 1, 2))}
    if worlds == 1:
        return both, jax.tree.map(lambda x: x[0], start)
    return {name: jax.vmap(function) for name, function in both.items()}, start


def mjx_worker(name: str, steps: int, worlds: int, repeats: int) -> None:
    """Time MJX on one case, per step and world; prints what it has as JSON after every stage."""
    import ukemi  # noqa: F401  # isort: skip  # sets the XLA flags
    import jax

    case = {c.name: c for c in reverse_cases()}[name]
    losses, start = mjx_losses(case, steps, worlds)
    found: dict = {}
    for kind, function in losses.items():
        found["stage"] = f"compiling the {kind}"
        print(json.dumps(found), flush=True)
        began = time.perf_counter()
        run = jax.jit(function).lower(*start).compile()
        found[f"{kind} compile s"] = time.perf_counter() - began
        found["stage"] = f"running the {kind}"
        print(json.dumps(found), flush=True)
        cpu, wall = [], []
        for _ in range(repeats + 1):
            clocks = time.process_time(), time.perf_counter()
            value = jax.block_until_ready(run(*start))
            cpu.append(1e6 * (time.process_time() - clocks[0]) / steps / worlds)
            wall.append(1e6 * (time.perf_counter() - clocks[1]) / steps / worlds)
        prefix = "" if kind == "gradient" else f"{kind} "
        found |= {f"{prefix}least": min(cpu[1:]), f"{prefix}median": statistics.median(cpu[1:])}
        found[f"{prefix}wall least"] = min(wall[1:])
        found["finite"] = all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(value))
    del found["stage"]
    print(json.dumps(found), flush=True)


def last_json(text: str | bytes | None) -> dict:
    """The last line of output that is a JSON object."""
    text = text.decode() if isinstance(text, bytes) else text or ""
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}


def last_line(text: str | None) -> str:
    """The last line of an error message."""
    return (text or "").strip().rpartition("\n")[2][:200] or "no message"


def subprocess_figures(command: list[str], timeout: float) -> dict:
    """What a worker prints; where it does not finish, what it had, and why it is skipped."""
    environment = {"JAX_PLATFORMS": "cpu"} | dict(os.environ)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)
    except FileNotFoundError:
        return {"skipped": f"there is no interpreter '{command[0]}'"}
    except subprocess.TimeoutExpired as late:
        found = last_json(late.stdout)
        return found | {"skipped": f"not done within {timeout:g} s while {found.pop('stage', 'starting')}"}
    if done.returncode:
        return last_json(done.stdout) | {"skipped": f"exit status {done.returncode}: {last_line(done.stderr)}"}
    return last_json(done.stdout)


def mjx_peer(batches: list[int], steps: int = 20, repeats: int = 5, timeout: float = 400, only: str = "") -> Figures:
    """MJX: reverse-mode gradient of a rollout, per step and world, and compile times."""
    if importlib.util.find_spec("mujoco.mjx") is None:
        return {"MJX": {"skipped": "mujoco-mjx is not installed"}}
    found: Figures = {}
    for case in reverse_cases():
        if only and case.name != only:
            continue
        for worlds in batches:
            label = f"{case.name}, {worlds} world{'s' * (worlds > 1)}"
            if case.workload is None:
                found[label] = {"skipped": "its package is not installed"}
                continue
            worker = ["--mjx-worker", case.name, str(steps), str(worlds), str(repeats)]
            found[label] = subprocess_figures([sys.executable, str(HERE / "peers.py"), *worker], timeout)
            found[label] |= {"note": case.note} if case.note else {}
    return found


def worker_figures(name: str, command: list[str], timeout: float) -> Figures:
    """The figures of a worker that returns several cases."""
    found = subprocess_figures(command, timeout)
    return {name: found} if "skipped" in found else found


def nimble_peer(python: str | None, shared: Path | None, repeats: int = 200, timeout: float = 400) -> Figures:
    """Nimble: one step with its five Jacobians, and the step alone."""
    if not python:
        return {"Nimble": {"skipped": "no interpreter that has it: set --nimble-python or NIMBLE_PYTHON"}}
    command = [python, str(HERE / "nimble_worker.py"), "--repeats", str(repeats)]
    for option, path in {
        "--half-cheetah": "nimble/half_cheetah.skel",
        "--atlas": "atlas/atlas_v3_box_colliders_nomesh.urdf",
    }.items():
        file = (shared / "models" / path).resolve() if shared else None  # Nimble takes absolute ones
        command += [option, str(file)] if file and file.exists() else []
    return worker_figures("Nimble", command, timeout)


def pinocchio_peer(python: str | None, repeats: int = 50, timeout: float = 400) -> Figures:
    """Pinocchio: analytical derivatives of inverse and forward dynamics without contact."""
    if not python:
        return {"Pinocchio": {"skipped": "no interpreter that has it: set --pinocchio-python or PINOCCHIO_PYTHON"}}
    worker = [python, str(HERE / "pinocchio_worker.py"), "--repeats", str(repeats)]
    return worker_figures("Pinocchio", worker, timeout)


def show(title: str, found: Figures) -> None:
    """Print one peer's table."""
    print(f"\n{title}\n{'case':>36}{'least µs':>12}{'median µs':>12}   more")
    for case, row in found.items():
        cells = [f"{row[k]:12.1f}" if k in row else f"{'':>12}" for k in ("least", "median")]
        rest = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items() if k not in ("least", "median")}
        more = ", ".join(f"{k} {v}" for k, v in rest.items())
        print(f"{case:>36}{''.join(cells)}   {more}", flush=True)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    everything = ["mujoco", "mjx", "nimble", "pinocchio"]
    parser.add_argument("--only", nargs="*", choices=everything, default=everything)
    parser.add_argument("--shared", type=Path, default=os.environ.get("UKEMI_SHARED", HERE.parents[1] / "shared"))
    parser.add_argument("--repeats", type=int, default=100, help="of MuJoCo and Nimble")
    parser.add_argument("--batch", nargs="*", type=int, default=[1, 256], help="worlds of MJX")
    parser.add_argument("--steps", type=int, default=20, help="of MJX's rollout")
    parser.add_argument("--case", default="", help="of MJX: this one only")
    parser.add_argument("--timeout", type=float, default=400, help="seconds, of each subprocess")
    parser.add_argument("--nimble-python", default=os.environ.get("NIMBLE_PYTHON"))
    parser.add_argument("--pinocchio-python", default=os.environ.get("PINOCCHIO_PYTHON"))
    parser.add_argument("--mjx-worker", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure the peers and print their tables."""
    args = parsed()
    if args.mjx_worker:
        name, *numbers = args.mjx_worker
        mjx_worker(name, *map(int, numbers))
        return
    shared = args.shared if args.shared.is_dir() else None
    print(f"{os.cpu_count()} cores, mujoco {mujoco.__version__}; CPU time unless it says wall")
    if "mujoco" in args.only:
        show("MuJoCo: step with centred differences, float64", mujoco_peer(shared, args.repeats))
    if "mjx" in args.only:
        figures = mjx_peer(args.batch, args.steps, timeout=args.timeout, only=args.case)
        show("MJX: reverse-mode gradient of a rollout, per step and world, float32", figures)
    if "nimble" in args.only:
        figures = nimble_peer(args.nimble_python, shared, args.repeats, args.timeout)
        show("Nimble: step with five Jacobians, float64", figures)
    if "pinocchio" in args.only:
        show("Pinocchio: derivatives of dynamics, float64", pinocchio_peer(args.pinocchio_python, timeout=args.timeout))


if __name__ == "__main__":
    main()
