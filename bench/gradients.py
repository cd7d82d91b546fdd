"""Time Ukemi's derivatives beside those of other engines, in one run, and say which promises are missed.

`uk.linearize` (a step with A and B, inside a scan) against MuJoCo's step with centred differences, from identical
states, in alternation; reverse mode through rollouts against the forward pass and MJX; memory of long rollouts; Nimble
and Pinocchio where their interpreters are given (see `peers.py`). Times are CPU times unless they say wall, the least
of several rounds. Everything runs in subprocesses: both precisions of JAX do not fit into one process.

Usage: python bench/gradients.py [--only linearize rollout memory mjx nimble pinocchio] [--case NAME ...]
       [--nimble-python FILE] [--pinocchio-python FILE]
"""

import argparse
import copy
import dataclasses
import json
import os
import resource
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import peers
from tables import LONG, show_linearize, show_memory, show_nimble, show_rollout
from workloads import Workload

import ukemi as uk
from ukemi.laws.memory import blank_cache

HERE = Path(__file__).resolve().parent
LOOP = 50  # linearizations per call
ROLLOUTS = ((1, 200), (1, 20), (256, 20))  # worlds, steps
EVERYTHING = ["linearize", "rollout", "memory", "mjx", "nimble", "pinocchio"]


# ---- what is measured, in workers ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Start:
    """A model and states to linearize at; MuJoCo's own data, so that both engines see the same."""

    name: str
    m: mujoco.MjModel
    data: list[mujoco.MjData]


def starts(shared: Path | None, only: list[str]):
    """Robots at rest in contact, and moving, as `peers` has them; Atlas as Nimble has it."""
    for case in peers.difference_cases(shared):
        if case.workload is None or (only and case.name not in only):
            continue
        m = case.model()
        yield Start(case.name, m, [peers.settled(m, case.workload)])
        yield Start(f"{case.name}, moving", m, peers.moving(m, case.workload))
    file = shared / "models/atlas/atlas_v3_box_colliders_nomesh.urdf" if shared else None
    name = "Atlas, box feet"
    if file and file.exists() and (not only or name in only):
        yield Start(name, *atlas(file.read_text()))


def atlas(urdf: str) -> tuple[mujoco.MjModel, list[mujoco.MjData]]:
    """Atlas standing on its boxes of feet, held by motors as in `nimble_worker.py`; 27 motors, a floating base."""
    floating = '<link name="ground"/><joint name="base" type="floating"><parent link="ground"/><child link="pelvis"/>'
    spec = mujoco.MjSpec.from_string(urdf.replace("</robot>", f"{floating}</joint></robot>"))
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[10, 10, 0.1])
    hinges = [joint for joint in spec.joints if joint.type == mujoco.mjtJoint.mjJNT_HINGE]
    for joint in hinges:
        spec.add_actuator(target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
    spec.option.timestep = 0.001
    m = spec.compile()
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    feet = [k for k in range(m.ngeom) if m.geom_type[k] == mujoco.mjtGeom.mjGEOM_BOX]
    d.qpos[2] -= min(d.geom_xpos[k, 2] - m.geom_size[k, 2] for k in feet) + 0.0005
    mujoco.mj_forward(m, d)
    M = np.zeros((m.nv, m.nv))
    mujoco.mj_fullM(m, d, M)
    inertia, rest = np.linalg.inv(np.linalg.inv(M)[6:, 6:]), d.qpos[7:].copy()
    for _ in range(300):
        d.ctrl[:] = -inertia @ (900 * (d.qpos[7:] - rest) + 60 * d.qvel[6:])
        mujoco.mj_step(m, d)
    return m, [d]


def of_data(model: uk.Model, d: mujoco.MjData) -> tuple[uk.State, jax.Array]:
    """State and controls of MuJoCo's data, its warm start included."""
    dtype = model.options.timestep.dtype
    cache = dataclasses.replace(blank_cache(model), acceleration=jnp.asarray(d.qacc_warmstart, dtype))
    q, v, act, time, ctrl = (jnp.asarray(x, dtype) for x in (d.qpos, d.qvel, d.act, d.time, d.ctrl))
    return uk.State(q, v, act, time, jnp.zeros((), jnp.int32), cache), ctrl


def clocks(function) -> tuple[float, float]:
    """CPU and wall seconds of a call whose result is waited for."""
    start = time.process_time(), time.perf_counter()
    jax.block_until_ready(function())
    return time.process_time() - start[0], time.perf_counter() - start[1]


def least(samples) -> np.ndarray:
    """Least CPU and wall seconds of pairs of them.

    CPU clocks of virtual machines leap now and then; work that keeps a core busy takes no less than its wall time.
    """
    cpu, wall = np.array(samples).T
    busy = cpu > 0.8 * wall.min()  # on a crowded machine there may be none
    return np.array([cpu[busy].min() if busy.any() else np.median(cpu), wall.min()])


def scanned(function, states, ctrls):
    """Compiled `function` of every state and its controls, in a scan; without arguments."""
    run = jax.jit(lambda *xs: jax.lax.scan(lambda _, x: (None, function(*x)), None, xs)[1])
    jax.block_until_ready(run(states, ctrls))
    return lambda: run(states, ctrls)


def linearize_figures(start: Start, rounds: int) -> dict:
    """Figures of one start: both engines in alternation."""
    model = uk.load(start.m)
    pairs = [of_data(model, d) for d in start.data]
    cpu, wall = clocks(lambda: uk.linearize(model, *pairs[0]))
    figures = {"compile s": wall, "compile cpu s": cpu, "dofs": model.nv, "states": len(pairs)}
    states, ctrls = jax.tree.map(lambda *x: jnp.stack(x), *[pairs[k % len(pairs)] for k in range(LOOP)])
    ours = scanned(lambda s, c: uk.linearize(model, s, c), states, ctrls)
    steps = scanned(lambda s, c: uk.step(model, s, c), states, ctrls)
    found = ours()
    failed = {flag.name: int((found.next.status & flag != 0).sum()) for flag in uk.Status}
    figures["failed"] = ", ".join(f"{name} {n / LOOP:.0%}" for name, n in failed.items() if n)
    error = max(map(disagreement, found.A, found.B, [start.m] * len(pairs), start.data))
    times: dict[str, list] = {"ours": [], "step": [], "call": []}
    theirs, contacts = [], 0.0
    for _ in range(rounds):
        times["ours"].append(clocks(ours))
        times["step"].append(clocks(steps))
        times["call"].append(clocks(lambda: uk.linearize(model, *pairs[0])))
        rows = [peers.differences(start.m, copy.copy(d), 3) for d in start.data]
        theirs.append([row["least"] for row in rows])
        contacts = float(np.mean([row["contacts"] for row in rows]))
    found = {name: 1e6 * least(pairs) for name, pairs in times.items()}
    figures |= {"ours": found["ours"][0] / LOOP, "wall": found["ours"][1] / LOOP}
    figures |= {"step": found["step"][0] / LOOP, "call": found["call"][0]}
    return figures | {"mujoco": float(np.mean(np.min(theirs, axis=0))), "contacts": contacts, "error": error}


def disagreement(A, B, m: mujoco.MjModel, d: mujoco.MjData) -> float:
    """Relative difference (norms) between our Jacobians and MuJoCo's differences at the same state."""
    size, d = 2 * m.nv + m.na, copy.copy(d)
    theirs = np.zeros((size, size)), np.zeros((size, m.nu))
    mujoco.mjd_transitionFD(m, d, peers.EPSILON, 1, *theirs, None, None)
    both = [np.concatenate(pair, 1) for pair in ((A, B), theirs)]
    return float(np.linalg.norm(both[0] - both[1]) / np.linalg.norm(both[1]))


def linearize_worker(shared: Path | None, only: list[str], rounds: int) -> None:
    """All starts; prints what it has as JSON after each."""
    found: dict = {"versions": f"jax {jax.__version__}, mujoco {mujoco.__version__}"}
    for start in starts(shared, only):
        try:
            found[start.name] = linearize_figures(start, rounds)
        except Exception as problem:
            found[start.name] = {"skipped": f"{type(problem).__name__}: {peers.last_line(str(problem))}"}
        print(json.dumps(found), flush=True)


def rollout_loss(model: uk.Model, start: uk.State, checkpoint: int | None = None):
    """Loss at the end of a rollout, of the start and the controls, as `peers.mjx_losses` has it."""

    def loss(q, v, controls):
        state = dataclasses.replace(start, q=q, v=v)
        last = jax.tree.map(lambda x: x[-1], uk.rollout(model, state, controls, checkpoint=checkpoint))
        return (last.q**2).sum() + (last.v**2).sum()

    return loss


def rollout_worker(rounds: int) -> None:
    """Reverse mode through rollouts of the humanoid, from the state that MJX starts from too."""
    case = peers.reverse_cases()[0]
    assert case.workload is not None
    model = case.workload.load()
    start, ctrl = of_data(model, rest(case)[1])
    found: dict = {}
    for worlds, steps in ROLLOUTS:
        noise = jax.random.normal(jax.random.PRNGKey(0), (worlds, model.nv))
        args = (
            jnp.broadcast_to(start.q, (worlds, model.nq)),
            start.v + 0.1 * noise,
            jnp.broadcast_to(ctrl, (worlds, steps, model.nu)),
        )
        loss = rollout_loss(model, start)
        both = {"forward": loss, "gradient": jax.grad(loss, argnums=(0, 1, 2))}
        if worlds == 1:
            args = jax.tree.map(lambda x: x[0], args)
        else:
            both = {name: jax.vmap(function) for name, function in both.items()}
        found[f"{worlds} x {steps}"] = rollout_figures(both, args, worlds * steps, rounds)
        print(json.dumps(found), flush=True)


def rest(case: peers.Case) -> tuple[mujoco.MjModel, mujoco.MjData]:
    """A model and its state at rest."""
    assert case.workload is not None
    m = case.model()
    return m, peers.settled(m, case.workload)


def rollout_figures(functions: dict, args: tuple, count: int, rounds: int) -> dict:
    """Microseconds per step and world of the forward pass and the gradient, in alternation, and compile times."""
    figures, runs = {}, {}
    for name, function in functions.items():
        start = time.process_time(), time.perf_counter()
        runs[name] = jax.jit(function).lower(*args).compile()
        figures[f"{name} compile cpu s"] = time.process_time() - start[0]
        figures[f"{name} compile s"] = time.perf_counter() - start[1]
    values = runs["gradient"](*args)
    figures["finite"] = all(bool(jnp.isfinite(leaf).all()) for leaf in values)
    times: dict[str, list] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(clocks(lambda run=run: run(*args)))
    for name, pairs in times.items():
        cpu, wall = least(pairs) * 1e6 / count
        figures |= {name: cpu, f"{name} wall": wall}
    return figures


def memory_worker(kind: str) -> None:
    """Peak memory [GB] of a long rollout of the humanoid or its gradient, and of what comes before."""
    case = peers.reverse_cases()[0]
    assert case.workload is not None
    model = case.workload.load()
    start, ctrl = of_data(model, rest(case)[1])
    loss = rollout_loss(model, start, int(kind) if kind.isdecimal() else None)
    function = loss if kind == "forward" else jax.grad(loss, argnums=(0, 1, 2))
    args = start.q, start.v, jnp.broadcast_to(ctrl, (LONG, model.nu))
    run = jax.jit(function).lower(*args).compile()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    cpu, wall = clocks(lambda: run(*args))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # kilobytes on Linux
    print(json.dumps({"compiled": before, "peak": after, "cpu s": cpu, "wall s": wall}))


def tree_worker(shared: Path | None, rounds: int) -> None:
    """What Pinocchio's derivatives of inverse dynamics are compared with: ours, alone, without contact."""
    from ukemi.mechanics.dynamics import motion_slopes
    from ukemi.mechanics.kinematics import kinematics, velocities

    found = {}
    g1 = shared / "models/unitree_g1/g1.xml" if shared else None
    sources = {"humanoid": "humanoid"} | ({"G1": str(g1)} if g1 and g1.exists() else {})
    for name, source in sources.items():
        model = Workload(name, source).load()
        v, a = np.random.default_rng(0).standard_normal((2, LOOP, model.nv))

        def slopes(v, a, model=model):
            kin = kinematics(model, model.joints.qpos0 + 1e-3 * v.sum())
            both = motion_slopes(model, kin, a, velocities(model.tree, kin.S, v))
            return both.q, both.v

        run = scanned(slopes, jnp.asarray(v), jnp.asarray(a))
        cpu = least([clocks(run) for _ in range(10 * rounds)])[0]
        found[f"Ukemi, {name}, inverse dynamics"] = {"least": 1e6 * cpu / LOOP, "dofs": model.nv}
    print(json.dumps(found))


# ---- tables ----------------------------------------------------------------------------------------------------------


def work(name: str, *arguments: str, dtype: str, timeout: float) -> dict:
    """What a worker of this file finds."""
    command = [sys.executable, str(HERE / "gradients.py"), "--worker", name, "--dtype", dtype, *arguments]
    return peers.subprocess_figures(command, timeout)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--only", nargs="*", choices=EVERYTHING, default=EVERYTHING)
    parser.add_argument("--case", nargs="*", default=[], help="of linearize: these only")
    parser.add_argument("--shared", type=Path, default=os.environ.get("UKEMI_SHARED", HERE.parents[1] / "shared"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dtypes", nargs="*", choices=["float32", "float64"], default=["float32", "float64"])
    parser.add_argument("--timeout", type=float, default=900, help="seconds, of each subprocess")
    parser.add_argument("--nimble-python", default=os.environ.get("NIMBLE_PYTHON"))
    parser.add_argument("--pinocchio-python", default=os.environ.get("PINOCCHIO_PYTHON"))
    parser.add_argument("--worker", choices=["linearize", "rollout", "memory", "tree"], help=argparse.SUPPRESS)
    parser.add_argument("--dtype", default="float32", help=argparse.SUPPRESS)
    parser.add_argument("--kind", default="gradient", help=argparse.SUPPRESS)
    return parser.parse_args()


def run_worker(args: argparse.Namespace, shared: Path | None) -> None:
    """One of the workers, in its precision."""
    jax.config.update("jax_enable_x64", args.dtype == "float64")
    if args.worker == "linearize":
        linearize_worker(shared, args.case, args.rounds)
    elif args.worker == "rollout":
        rollout_worker(args.rounds)
    elif args.worker == "memory":
        memory_worker(args.kind)
    else:
        tree_worker(shared, args.rounds)


def main() -> None:
    """Measure and print the tables."""
    args = parsed()
    shared = args.shared if args.shared.is_dir() else None
    if args.worker:
        return run_worker(args, shared)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; CPU time unless it says wall")
    options = ["--shared", str(args.shared), "--rounds", str(args.rounds)]
    cases = ["--case", *args.case] if args.case else []
    ours = {}
    for dtype in args.dtypes if "linearize" in args.only else []:
        ours[dtype] = work("linearize", *options, *cases, dtype=dtype, timeout=2 * args.timeout)
        show_linearize(dtype, ours[dtype])
    mjx: dict = {}
    if "mjx" in args.only:
        mjx = peers.mjx_peer([1, 256], timeout=args.timeout, only="humanoid")
        peers.show("MJX: reverse-mode gradient of a rollout, per step and world, float32", mjx)
    for dtype in args.dtypes if "rollout" in args.only else []:
        show_rollout(dtype, work("rollout", *options, dtype=dtype, timeout=args.timeout), mjx)
    if "memory" in args.only:
        kinds = {"forward": "forward", "gradient": "gradient", "gradient, checkpoint=100": "100"}
        found = {name: work("memory", "--kind", k, dtype="float32", timeout=args.timeout) for name, k in kinds.items()}
        show_memory(found)
    if "nimble" in args.only:
        show_nimble(peers.nimble_peer(args.nimble_python, shared, timeout=args.timeout), ours)
    if "pinocchio" in args.only:
        theirs = peers.pinocchio_peer(args.pinocchio_python, timeout=args.timeout)
        mine = work("tree", *options, dtype="float64", timeout=args.timeout)
        peers.show("Derivatives of dynamics without contact, float64: Pinocchio, and ours", theirs | mine)


if __name__ == "__main__":
    main()
