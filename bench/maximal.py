"""Speed of `uk.Maximal` beside `uk.NCP`, and Table V of Dojo's paper with MuJoCo beside them.

    python bench/maximal.py [--only gradients,steps,first,chains] [--robots humanoid,A1] [--shared DIR] [--picture FILE]

gradients: Table V, 1000 steps of 0.01 s with A and B under random controls. steps: CPU time of a step, both laws in
alternation. first: what the first call of a step and of `uk.linearize` takes (with `UKEMI_CACHE=off`, compiling).
chains: CPU time per step of chains of 10 to 320 links, of `Maximal` with its system solved densely, too; `--picture`
draws it. `--shared` is where `models` has the robots of Table V: the A1 stands on a floor with its feet alone.
"""

import argparse
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from matplotlib.figure import Figure
from workloads import Workload

import ukemi as uk
from ukemi.files.source import read
from ukemi.laws.conic import mechanics

LAWS = {"NCP": uk.NCP(), "Maximal": uk.Maximal()}
# Table V: seconds of Dojo and of MuJoCo
PUBLISHED = {"humanoid": (1.750, 1.512), "A1": (5.235, 1.114), "Panda": (1.159, 0.335), "X2": (0.807, 0.047)}
LINKS = (10, 20, 40, 80, 160, 320)


def sources(shared: str | None) -> dict:
    """Robots by name."""
    found = {"humanoid": "humanoid", "quadruped": "quadruped"}
    if shared:
        at = f"{shared}/models/"
        found["A1"] = Workload("A1", at + "unitree_a1/a1.xml", floor=True, feet_only=True).model()
        found |= {"Panda": at + "franka_emika_panda/panda.xml", "X2": at + "skydio_x2/x2.xml"}
    return found


def start_of(model: uk.Model) -> uk.State:
    return uk.initial_state(model, 0 if model.keyframes.names else None)


def controls(model: uk.Model, steps: int, held: int = 1) -> jax.Array:
    """Random controls (steps, nu), each held for some steps."""
    low, high = np.asarray(model.actuators.ctrl_range).T
    low, high = np.where(high > low, low, -1.0), np.where(high > low, high, 1.0)
    drawn = np.random.default_rng(0).uniform(low, high, (steps // held, model.nu))
    return jnp.asarray(np.repeat(drawn, held, 0))


def clocked(run, *args):
    """Wall seconds of the first call and the least of three more, and what it gives."""
    begin = time.perf_counter()
    out = jax.block_until_ready(run(*args))
    first, best = time.perf_counter() - begin, np.inf
    for _ in range(3):
        begin = time.perf_counter()
        jax.block_until_ready(run(*args))
        best = min(best, time.perf_counter() - begin)
    return first, best, out


def gradients(name: str, model: uk.Model, source) -> None:
    """Table V: seconds for 1000 steps of 0.01 s with A and B under random controls, least of three; build beside it."""
    model = eqx.tree_at(lambda m: m.options.timestep, model, jnp.asarray(0.01))
    ctrls, start = controls(model, 1000), start_of(model)
    for law, method in {"Soft": uk.Soft(), **LAWS}.items():

        @eqx.filter_jit
        def run(state, ctrls, method):
            def one(state, ctrl):
                found = uk.linearize(model, state, ctrl, method)
                return found.next, (found.A.sum(), found.B.sum())

            return jax.lax.scan(one, state, ctrls)

        first, best, out = clocked(run, start, ctrls, method)
        print(
            f"gradients {name:10s} {law:8s} {best:6.3f} s (first call {first:5.1f} s), status {int(out[0].status)}",
            flush=True,
        )
    m = read(source)
    m.opt.timestep, d, n = 0.01, mujoco.MjData(m), 2 * m.nv + m.na
    A, B = np.zeros((n, n)), np.zeros((n, m.nu))
    best = np.inf
    for _ in range(3):
        mujoco.mj_resetData(m, d)
        d.qpos[:] = np.asarray(start.q)
        begin = time.perf_counter()
        for ctrl in ctrls:
            d.ctrl[:] = ctrl
            mujoco.mjd_transitionFD(m, d, 1e-6, True, A, B, None, None)
            mujoco.mj_step(m, d)
        best = min(best, time.perf_counter() - begin)
    dojo, theirs = PUBLISHED.get(name, (np.nan, np.nan))
    print(
        f"gradients {name:10s} {'MuJoCo':8s} {best:6.3f} s; published: Dojo {dojo:.3f} s, MuJoCo {theirs:.3f} s",
        flush=True,
    )


def steps(name: str, model: uk.Model) -> None:
    """CPU time of a step and iterations, under held and under random controls, both laws in alternation."""
    start, count = start_of(model), 200
    held = jnp.tile(model.keyframes.ctrl[0] if model.keyframes.names else jnp.zeros(model.nu), (count, 1))
    run = eqx.filter_jit(lambda state, ctrls, method: uk.rollout(model, state, ctrls, method))
    for kind, ctrls in {"held": held, "random": controls(model, count, 10)}.items():
        least = dict.fromkeys(LAWS, np.inf)
        for k in range(6):  # the first compiles
            for law, method in LAWS.items():
                begin = time.process_time()
                out = jax.block_until_ready(run(start, ctrls, method))
                least[law] = min(least[law], np.inf if not k else (time.process_time() - begin) / count)
                if k == 5:
                    turns, bad = out.cache.iterations.mean(), int(out.status[-1])
                    text = f"{1e6 * least[law]:6.0f} µs, {turns:5.2f} iterations, status {bad}"
                    print(f"steps {name:10s} {kind:6s} {law:8s} {text}")
        print(f"steps {name:10s} {kind:6s} Maximal/NCP {least['Maximal'] / least['NCP']:.2f}", flush=True)


def first(name: str, model: uk.Model) -> None:
    """Seconds of first calls."""
    start, ctrl = start_of(model), jnp.zeros(model.nu)
    for law, method in LAWS.items():
        for call in (uk.step, uk.linearize):
            begin = time.perf_counter(), time.process_time()
            jax.block_until_ready(call(model, start, ctrl, method))
            wall, cpu = time.perf_counter() - begin[0], time.process_time() - begin[1]
            print(f"first {name:10s} {law:8s} {call.__name__:9s} {wall:5.1f} s wall, {cpu:5.1f} s CPU", flush=True)


def chain(links: int, name: str) -> str:
    """A chain that hangs in the air, of hinges in turn about two axes; the name keeps programs apart."""
    body = '<body name="{name} {k}" pos="0 0 {z}"><joint axis="{axis}"/><geom fromto="0 0 0 0 0 -.1" size=".02"/>'
    axes, high = ("1 0 0", "0 1 0"), (0, *[-0.1] * (links - 1))
    inner = "".join(body.format(name=name, k=k, z=z, axis=axes[k % 2]) for k, z in enumerate(high))
    return f"""<mujoco><option timestep=".01"/><default><geom type="capsule" contype="0" conaffinity="0"/></default>
    <worldbody>{inner}{"</body>" * links}</worldbody></mujoco>"""


def chains(picture: str | None) -> None:
    """CPU time per step, against the number of links."""
    kinds = {"NCP": (uk.NCP(), None), "Maximal, densely": (uk.Maximal(), 10**6), "Maximal, along": (uk.Maximal(), 1)}
    found = {kind: [] for kind in kinds}
    for links in LINKS:
        for kind, (method, long) in kinds.items():
            mechanics.LONG = long
            model = uk.load(chain(links, kind))
            state = uk.initial_state(model, q=0.1 * np.random.default_rng(0).standard_normal(model.nq))
            run = eqx.filter_jit(lambda state, method: uk.rollout(model, state, jnp.zeros((20, 0)), method))  # noqa: B023
            out, least = jax.block_until_ready(run(state, method)), np.inf
            for _ in range(5):
                begin = time.process_time()
                jax.block_until_ready(run(state, method))
                least = min(least, (time.process_time() - begin) / 20)
            found[kind].append(least)
            text = f"{1e3 * least:8.3f} ms, {out.cache.iterations.mean():.1f} iterations, status {int(out.status[-1])}"
            print(f"chains {links:4d} {kind:16s} {text}", flush=True)
    if picture:
        draw(found, picture)


def draw(found: dict[str, list[float]], path: str) -> None:
    """Picture of what chains cost."""
    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, seconds in found.items():
        axes.loglog(LINKS, 1e3 * np.array(seconds), "-o", label=name, markersize=3)
    axes.loglog(LINKS, found["Maximal, along"][0] * 1e2 * np.array(LINKS), ":", color="grey", label="linear")
    axes.set(xlabel="links of a chain", ylabel="CPU time of a step [ms]")
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="gradients,steps,first,chains")
    parser.add_argument("--robots", help="names, in place of all")
    parser.add_argument("--shared", help="folder whose `models` has the robots of Table V")
    parser.add_argument("--picture", help="file for a picture of what chains cost")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    only, robots = options.only.split(","), sources(options.shared)
    if {"gradients", "steps", "first"} & set(only):
        for name in options.robots.split(",") if options.robots else robots:
            source = robots[name]
            model = uk.load(source)
            if "gradients" in only:
                gradients(name, model, source)
            if "steps" in only:
                steps(name, model)
            if "first" in only:
                first(name, model)
    if "chains" in only:
        chains(options.picture)


if __name__ == "__main__":
    main()
