"""How reliably and how fast hard contact is solved: random contact states of built-in robots, at their own time steps.

    python bench/hard_contact.py [--robots humanoid,quadruped] [--file robot.xml ...] [--draws 100000] [--rate 20]
                                 [--only clock,hard,rigid] [--float32]

States: what a random fall leads to under random controls, then pushed by a random velocity; cold starts. The draws are
shared between the robots. At a `--rate` [Hz] the steps are longer, and nothing turns by more than 0.3 rad in one. A
robot's file without a floor gets one. Reported are (hard) states solved from the first start and from any, mean
iterations and their 99th percentile, failures without a status bit (there must be none), the deepest new overlap after
a step, (rigid) what `uk.LCP` does with the same states, and (clock) the time of a settled step against `uk.Soft`.
"""

import argparse
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import ukemi as uk
from ukemi.laws.conic.interior_point import solve
from ukemi.model.records import as_input
from ukemi.model.tree import HINGE

FALL, CALLS, ROUNDS = 150, 200, 7
MOST = 0.3  # turn within a step at a given rate [rad]
CHUNK = 5000  # draws per call
COLD = 1  # the first of a cold search's starts


def with_floor(path: str):
    """A robot's file with a floor under it."""
    spec = mujoco.MjSpec.from_file(path)
    flat = mujoco.mjtGeom.mjGEOM_PLANE
    if not any(geom.type == flat for geom in spec.geoms):
        spec.worldbody.add_geom(name="floor", type=flat, size=[0, 0, 1])
    return spec


def turning(model: uk.Model) -> np.ndarray:
    """Which dofs (nv,) turn something."""
    tree = model.tree
    turns = (np.asarray(tree.joint_type) == HINGE)[tree.dof_joint]
    turns[tree.quat_dof.ravel()] = True
    return turns


def slower(model: uk.Model, v, h: float):
    """Velocities (..., nv) of which none turns by more than `MOST` in a step."""
    tree, v = model.tree, np.array(v)
    hinges = (np.asarray(tree.joint_type) == HINGE)[tree.dof_joint]
    v[..., hinges] = np.clip(v[..., hinges], -MOST / h, MOST / h)
    for dofs in tree.quat_dof:
        spin = np.linalg.norm(v[..., dofs], axis=-1, keepdims=True)
        v[..., dofs] *= np.minimum(1, MOST / h / np.maximum(spin, 1e-9))
    return v


def states_of(model: uk.Model, draws: int, rng) -> uk.State:
    """Random states (draws, ...) near the ground: of rollouts under random controls from the air."""
    runs = int(np.clip(draws // 50, 1, 100))
    low, high = np.asarray(model.actuators.ctrl_range).T if model.nu else (np.zeros(0), np.zeros(0))
    bounded = high > low
    low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
    start = uk.initial_state(model, 0 if model.keyframes.names else None)

    @eqx.filter_jit
    def fall(v, ctrls):
        at = eqx.tree_at(lambda s: s.v, start, v)
        return uk.rollout(model, at, ctrls, uk.NCP())

    found = []
    for _ in range(runs):
        ctrl = np.repeat(rng.uniform(low, high, (FALL // 10, model.nu)), 10, 0)
        found.append(jax.tree.map(np.asarray, fall(jnp.asarray(rng.standard_normal(model.nv)), jnp.asarray(ctrl))))
    states = jax.tree.map(lambda *x: np.concatenate(x), *found)
    chosen = rng.choice(len(states.time), draws, replace=len(states.time) < draws)
    states = jax.tree.map(lambda x: jnp.asarray(x[chosen]), states)
    pushed = states.v + 0.5 * rng.standard_normal(states.v.shape)
    return eqx.tree_at(lambda s: (s.v, s.status), states, (pushed, jnp.zeros_like(states.status)))


def cold(model: uk.Model, state: uk.State) -> uk.State:
    return eqx.tree_at(lambda s: s.cache, state, uk.initial_state(model).cache)


@eqx.filter_jit
def hard_steps(model: uk.Model, states: uk.State):
    """Of a step from each state: its start (−1: not found), iterations, whether finite, new overlap, overflow, turn."""
    law = uk.NCP()

    def deepest(contacts):
        return jnp.where(contacts.active, contacts.distance, 0.0).min(initial=0.0)

    def one(state):
        here, guide = law.start(model, cold(model, state), as_input(model, None))
        path = law.path(here.v.dtype)
        task = law._task(here, model.options.timestep, path, guide)
        found = solve(law._settings(here), task)
        contacts = found.known.contacts
        new = deepest(contacts) - deepest(here.contacts)  # what was inside before is not thrown out
        start = jnp.where(found.solved, found.start, -1)
        lost = here.contacts.overflow | contacts.overflow
        turn = task.duration * jnp.where(turning(model), jnp.abs(task.free.v), 0.0).max()
        return start, found.iterations, jnp.isfinite(found.point.v).all(), jnp.minimum(new, 0.0), lost, turn

    return jax.lax.map(one, states)


@eqx.filter_jit
def rigid_steps(model: uk.Model, states: uk.State):
    """Status, systems, and whether finite."""

    def one(state):
        after = uk.step(model, cold(model, state), None, uk.LCP())
        return after.status, after.cache.iterations, jnp.isfinite(after.q).all()

    return jax.lax.map(one, states)


def in_parts(steps, model: uk.Model, states: uk.State):
    """The same a few at a time, so that something is known of long runs."""
    count, found = len(states.time), []
    for k in range(0, count, CHUNK):
        at = np.arange(k, k + min(CHUNK, count)) % count  # all parts of one size, that compiles once
        part = steps(model, jax.tree.map(lambda x, at=at: x[at], states))
        found.append(jax.tree.map(lambda x, k=k: np.asarray(x)[: count - k], part))
    return [np.concatenate(x) for x in zip(*found, strict=True)]


def hard(model: uk.Model, states: uk.State) -> np.ndarray:
    """Solve every state, cold, and print; what adds up over robots: draws, first starts, solved, silent, iterations."""
    start, iterations, finite, depth, lost, turn = in_parts(hard_steps, model, states)
    solved, first, silent = start >= 0, start == COLD, int(((start >= 0) & ~finite).sum())
    print(
        f"  NCP, {len(start)} draws: first start {first.mean():.3%}, any {solved.mean():.4%}, silent {silent}, "
        f"contacts overflow {lost.sum()};\n  iterations {iterations.mean():.2f}, p99 "
        f"{np.percentile(iterations, 99):.0f}; deepest new overlap where solved {depth[solved].min(initial=0.0):.1e} m",
        flush=True,
    )
    slow = turn <= MOST
    print(
        f"  of {slow.sum()} whose motion without contact turns by less than {MOST} rad: first start "
        f"{first[slow].mean():.3%}, any {solved[slow].mean():.4%}",
        flush=True,
    )
    return np.array([len(start), first.sum(), solved.sum(), silent, iterations.sum()])


def rigid(model: uk.Model, states: uk.State) -> None:
    """Solve every state by `uk.LCP`, and print."""
    status, systems, finite = in_parts(rigid_steps, model, states)
    print(
        f"  LCP on the same: solved {(status == 0).mean():.3%}, silent {int((~finite & (status == 0)).sum())}; "
        f"systems {systems.mean():.1f}, p99 {np.percentile(systems, 99):.0f}, most {systems.max()}",
        flush=True,
    )


def clock(model: uk.Model) -> None:
    """Time of a settled step against the soft law's, in alternation."""
    start = uk.initial_state(model, 0 if model.keyframes.names else None)
    ctrl = model.keyframes.ctrl[0] if model.keyframes.names else jnp.zeros(model.nu)
    ctrls, runs, builds = jnp.tile(ctrl, (CALLS, 1)), {}, {}
    for law in (uk.Soft(), uk.NCP()):
        function = jax.jit(lambda state, ctrls, law=law: uk.rollout(model, state, ctrls, law))
        begin = time.process_time()
        runs[law] = function.lower(start, ctrls).compile()
        builds[law] = time.process_time() - begin
    least = dict.fromkeys(runs, np.inf)
    for _ in range(ROUNDS):
        for law, run in runs.items():
            begin = time.process_time()
            jax.block_until_ready(run(start, ctrls))
            least[law] = min(least[law], (time.process_time() - begin) / CALLS)
    soft, hard = least.values()
    built = ", ".join(f"{seconds:.1f}" for seconds in builds.values())
    print(f"  step {hard * 1e6:.0f} µs, {hard / soft:.1f} × Soft; compiling (Soft, NCP) {built} s")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--robots", default="hopper,half_cheetah,quadruped,humanoid")
    parser.add_argument("--file", nargs="*", default=[], help="robot files, in place of built-in robots")
    parser.add_argument("--draws", type=int, default=4000, help="shared between the robots")
    parser.add_argument("--rate", type=float, help="steps per second, in place of the robots' own")
    parser.add_argument("--only", default="clock,hard,rigid")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--float32", action="store_true")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", not given.float32)
    robots = {path: with_floor(path) for path in given.file} or {name: name for name in given.robots.split(",")}
    total = np.zeros(5)
    for robot, source in robots.items():
        model = uk.load(source)
        print(robot, flush=True)
        if "clock" in given.only:
            clock(model)
        if "hard" not in given.only and "rigid" not in given.only:
            continue
        states = states_of(model, given.draws // len(robots), np.random.default_rng(given.seed))
        if given.rate:
            model = eqx.tree_at(lambda m: m.options.timestep, model, jnp.asarray(1 / given.rate))
            states = eqx.tree_at(lambda s: s.v, states, jnp.asarray(slower(model, states.v, 1 / given.rate)))
        if "hard" in given.only:
            total += hard(model, states)
        if "rigid" in given.only:
            rigid(model, states)
    if total[0]:
        draws, first, solved, silent, iterations = total
        print(
            f"NCP, all {draws:.0f} draws: first start {first / draws:.4%}, any {solved / draws:.4%}, "
            f"{draws - solved:.0f} unsolved, silent {silent:.0f}; iterations {iterations / draws:.2f}"
        )


if __name__ == "__main__":
    main()
