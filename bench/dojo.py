"""Tables and figures of Dojo's paper with `uk.NCP` and `uk.Maximal`, MuJoCo beside them.

    python bench/dojo.py [--only drop,frequency,rate,search,kept] [--robots FILE ...]

drop: Table II, how deep a robot gets that is dropped, limp and held, at three time steps. frequency: Fig. 7, the
torso's height at 20 to 500 Hz. rate: how much faster than its motion a drop at 65 Hz is computed. search: Figs. 9 and
10, iterations, residuals and condition numbers. kept: momentum and energy of `Maximal` over 100 s. `--robots` takes
files, such as an Atlas and an A1, in place of the built-in humanoid, and puts them on a floor if they have none.
Table V and the cost of long chains are in `bench/maximal.py`.
"""

import argparse
import time
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from workloads import on_floor

import ukemi as uk

LAWS = {"NCP": uk.NCP(), "Maximal": uk.Maximal()}
HEIGHT = 0.3
CHUNK = 8  # steps of one program, which serves all rates


class Held(NamedTuple):
    """How a robot is dropped: springs [N m/rad] and dampers [N m s/rad] hold it in the pose of its start."""

    springs: float
    dampers: float
    contacts: int | None = None  # that a step can hold
    pose: dict = {}  # turns of joints [half turns], where the file has no keyframe


# Atlas' feet under its hips, as Dojo's drop has it
STANCE = {"back_bky": 0.04} | {
    f"{side}_leg_{joint}": turn for side in "lr" for joint, turn in (("hpy", -0.1), ("kny", 0.2), ("aky", -0.1))
}
HELD = {"atlas": Held(3000, 300, contacts=60, pose=STANCE), "a1": Held(50, 5, contacts=120), "humanoid": Held(500, 50)}


def at_rate(model: uk.Model, h: float) -> uk.Model:
    return eqx.tree_at(lambda m: m.options.timestep, model, jnp.asarray(h))


def lifted(model: uk.Model) -> uk.State:
    """The robot's start, dropped from a height."""
    start = uk.initial_state(model, 0 if model.keyframes.names else None)
    return eqx.tree_at(lambda s: s.q, start, start.q.at[2].add(HEIGHT))


@eqx.filter_jit
def fall(model, state, steps, law):
    """Heights and depths of a fall; flags at its end; time is per call."""

    def one(state, _):
        found = uk.contacts(model, state, None, uk.Soft())
        depth = jnp.where(found.active, found.distance, 0.0).min(initial=0.0)
        after = uk.step(model, state, None, law)
        return after, (after.q[2], depth)

    end, (height, depth) = jax.lax.scan(one, state, None, length=steps)
    return height, depth, end.status


def limp(name: str, m: mujoco.MjModel) -> tuple[uk.Model, uk.State]:
    """A robot as its file has it, lifted."""
    model = uk.load(m)
    return model, lifted(model)


def drop(name: str, m: mujoco.MjModel) -> None:
    """Table II: as the file has it, which collapses on itself, and held, as Dojo's robot is."""
    for how in (limp, held):
        model, start = how(name, m)
        for h in (0.1, 0.01, 0.001):
            text, steps = f"drop {name:10s} {how.__name__} h {h:5.3f}", round(1.5 / h)
            for law, method in LAWS.items():
                _, depth, status = fall(at_rate(model, h), start, steps, method)
                print(f"{text} {law:8s} deepest {1e3 * float(depth.min()):9.5f} mm, status {int(status)}", flush=True)
            m.opt.timestep, d, deepest = h, mujoco.MjData(m), 0.0
            d.qpos[:] = np.asarray(start.q)
            for _ in range(steps):
                mujoco.mj_step(m, d)
                deepest = min([deepest, *(d.contact.dist if d.ncon else [])])
            lost = d.warning[mujoco.mjtWarning.mjWARN_BADQACC].number
            print(f"{text} {'MuJoCo':8s} deepest {1e3 * deepest:9.5f} mm{', diverged' if lost else ''}", flush=True)


def held(name: str, m: mujoco.MjModel) -> tuple[uk.Model, uk.State]:
    """A robot above the floor, without motors and dry friction, held by springs about its pose and by dampers."""
    how = next((how for key, how in HELD.items() if name.startswith(key)), Held(500, 50))
    d = mujoco.MjData(m)
    d.qpos[:] = m.key_qpos[0] if m.nkey else m.qpos0
    for joint, turn in how.pose.items():
        d.qpos[m.joint(joint).qposadr[0]] = turn * np.pi
    d.qpos[2] += 1.0
    mujoco.mj_forward(m, d)
    floor, touch = int(np.argmax(m.geom_type == mujoco.mjtGeom.mjGEOM_PLANE)), m.geom_contype | m.geom_conaffinity
    others = [g for g in range(m.ngeom) if g != floor and touch[g]]
    d.qpos[2] += HEIGHT - min(mujoco.mj_geomDistance(m, d, floor, g, 9.0, None) for g in others)
    joints = m.jnt_type != mujoco.mjtJoint.mjJNT_FREE
    m.qpos_spring[:], m.jnt_stiffness[joints] = d.qpos, how.springs
    m.dof_damping[joints[m.dof_jntid]], m.dof_frictionloss[:] = how.dampers, 0
    m.actuator_gainprm[:], m.actuator_biasprm[:] = 0, 0
    model = uk.load(m, contacts=how.contacts)
    return model, uk.initial_state(model, q=d.qpos)


@eqx.filter_jit
def heights(model: uk.Model, state: uk.State, law):
    """The root's height over some steps, and how deep anything is after each."""

    def one(state, _):
        after = uk.step(model, state, None, law)
        found = uk.contacts(model, after, None, uk.Soft())
        return after, (after.q[2], jnp.where(found.active, found.distance, 0.0).min(initial=0.0))

    return jax.lax.scan(one, state, None, length=CHUNK)


def frequency(name: str, m: mujoco.MjModel) -> None:
    """Fig. 7. A state's velocity is that of half a step before, which is what the start has, too."""
    model, start = held(name, m)
    times = np.arange(0.1, 2.21, 0.1)  # which all rates have
    for law, method in LAWS.items():
        finest = None
        for rate in (500, 200, 100, 50, 20):
            at, state = at_rate(model, 1 / rate), start
            state = eqx.tree_at(lambda s: s.v, state, state.v.at[2].add(-0.5 * model.options.gravity[2] / rate))
            found = []
            while len(found) * CHUNK < 2.25 * rate:
                state, parts = heights(at, state, method)
                found.append(parts)
            height, depth = (np.concatenate(x) for x in zip(*found, strict=True))
            seen = height[np.round(times * rate).astype(int) - 1]
            finest = seen if finest is None else finest
            off, end = 1e3 * abs(seen - finest), 1e3 * abs(seen[-1] - finest[-1])
            text = f"torso off {off.max():6.2f} mm (at {times[off.argmax()]:.2f} s), at the end {end:6.2f} mm"
            print(f"frequency {name:10s} {law:8s} {rate:4d} Hz: {text}, at {seen[-1]:.3f} m; deepest "
                  f"{1e3 * depth.min():.5f} mm, status {int(state.status)}", flush=True)  # fmt: skip


def rate(name: str, m: mujoco.MjModel) -> None:
    """The drop of Fig. 7 at 65 Hz, 2.25 s of motion on this process's cores."""
    model, start = held(name, m)
    model, steps = at_rate(model, 1 / 65), round(2.25 * 65)
    for law, method in LAWS.items():
        run = eqx.filter_jit(lambda state, method: uk.rollout(model, state, jnp.zeros((steps, model.nu)), method))
        states, best = jax.block_until_ready(run(start, method)), np.inf
        for _ in range(5):
            begin = time.perf_counter()
            jax.block_until_ready(run(start, method))
            best = min(best, time.perf_counter() - begin)
        print(f"rate {name:10s} {law:8s} {best / steps * 1e3:.3f} ms per step, {steps / 65 / best:5.1f} × real time; "
              f"iterations {float(states.cache.iterations.mean()):.1f}, status {int(states.status[-1])}")  # fmt: skip


def search() -> None:
    """Figs. 9 and 10, at the hardest of some states of a fall: to κ, and until products are within a tolerance.

    The paper's condition numbers are of a system with all unknowns; beside it that of what is solved.
    """
    for name in ("quadruped", "humanoid", "hopper"):
        model, law = uk.load(name), uk.NCP()
        states = uk.rollout(model, uk.initial_state(model), jnp.zeros((150, model.nu)), law)
        starts = [cold(model, states, k) for k in range(9, 150, 20)]
        found = [[law.search(model, start, turns=30, whole=whole) for start in starts] for whole in (True, False)]
        for tolerance in (1e-8, 1e-1):
            # products are recorded as their distance from κ = 1e-8, relative to it
            ends = [int(np.argmax(np.asarray(s.solved | (1e-8 * s.products < tolerance - 2e-8)))) for s in found[0]]
            steps = [int(s.iterations[end]) for s, end in zip(found[0], ends, strict=True)]
            last = max(float(s.residual[end]) for s, end in zip(found[0], ends, strict=True))
            whole, solved = (
                max(float(s.condition[: end + 1].max()) for s, end in zip(kind, ends, strict=True)) for kind in found
            )
            text = f"iterations {min(steps)}–{max(steps)}, residual {last:.1e}"
            print(f"search {name:10s} κ {tolerance:.0e}: {text}, condition {whole:.1e}, after elimination {solved:.1e}")


def cold(model: uk.Model, states: uk.State, k: int) -> uk.State:
    state = jax.tree.map(lambda x: x[k], states)
    return eqx.tree_at(lambda s: s.cache, state, uk.initial_state(model).cache)


def kept() -> None:
    """Momentum and energy of a free chain with every joint type, over 100 s."""
    model = uk.load("""<mujoco><option timestep=".01" gravity="0 0 0"/>
    <default><geom type="box" contype="0" conaffinity="0"/></default><worldbody>
    <body pos="0 0 1"><freejoint/><geom size=".1 .2 .3" mass="1"/>
    <body pos=".2 .1 0"><joint axis="0 1 .3" pos=".05 0 0"/><geom size=".1 .05 .2" pos=".2 0 0" mass=".7"/>
    <body pos=".3 0 .1"><joint type="ball"/><geom size=".1 .05 .07" pos="0 .1 0" mass=".5"/>
    <body pos=".3 0 .1"><joint type="slide" axis="1 1 0" stiffness="5"/><joint axis="0 0 1"/>
    <geom size=".1 .05 .07" pos="0 .1 0" mass=".5"/></body></body></body></body></worldbody></mujoco>""")
    start = uk.initial_state(model, v=np.random.default_rng(0).standard_normal(model.nv))
    law = uk.Maximal()

    @eqx.filter_jit
    def run(model, state):
        states = uk.rollout(model, state, jnp.zeros((2000, 0)), law)
        of = jax.vmap(lambda s: (uk.energy(model, s, law).total, *uk.momentum(model, s, law)))
        return jax.tree.map(lambda x: x[-1], states), of(states)

    for h in (0.05, 0.01):
        state, parts = start, []
        for _ in range(round(100 / h / 2000)):
            state, found = run(at_rate(model, h), state)
            parts.append(found)
        energy, *momentum = (np.concatenate(x) for x in zip(*parts, strict=True))
        drift = max(abs(x - x[0]).max() for x in momentum)
        fifths = [part.mean() / energy[0] - 1 for part in np.split(energy, 5)]
        print(f"kept h {h}: momentum {drift:.1e} of {np.linalg.norm(momentum[1][0]):.2f}, energy off "
              f"{abs(energy / energy[0] - 1).max():.1e}, means by fifths {[f'{x:+.1e}' for x in fifths]}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="drop,frequency,rate,search,kept")
    parser.add_argument("--robots", nargs="*", default=["humanoid"], help="robot files or built-in names")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    only = options.only.split(",")
    sources = {path.split("/")[-1][:10]: path for path in options.robots}
    for name, source in sources.items():
        if "drop" in only:
            drop(name, on_floor(source))
        if "frequency" in only:
            frequency(name, on_floor(source))
        if "rate" in only:
            rate(name, on_floor(source))
    for part, function in {"search": search, "kept": kept}.items():
        if part in only:
            function()


if __name__ == "__main__":
    main()
