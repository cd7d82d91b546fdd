"""Record what scenes compute under every law, and compare two recordings: for changes that should change nothing.

    python bench/same.py record out/before.npz [--programs] [--only hopper]
    python bench/same.py compare out/before.npz out/after.npz

Of each scene, law and precision: the state after some steps, the Jacobians of the next step, and the gradient of a sum
over the steps in start, controls and every parameter. With --programs nothing is compiled: what is recorded is a digest
of each lowered program. Where digests are equal, results, speed and compile time are, too.
"""

import argparse
import hashlib
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ukemi as uk

STEPS = 5
PRECISIONS = ("float64", "float32")
QUICK = {"xla_backend_optimization_level": 0}
LINKAGE = """<mujoco><option integrator="implicitfast" cone="elliptic"/><worldbody>
  <geom type="plane" size="2 2 .1" friction=".7"/>
  <body pos="0 0 .1"><freejoint/><geom type="box" size=".1 .1 .1" condim="6"/></body>
  <body pos=".5 0 .3"><joint name="a" axis="0 1 0" range="-20 20" frictionloss=".1"/>
    <geom type="capsule" fromto="0 0 0 .3 0 -.2" size=".04"/>
    <body name="end" pos=".3 0 -.2"><joint type="ball"/><geom type="cylinder" size=".05 .05" condim="4"/></body></body>
  <body pos="-.5 0 .2"><joint name="b" type="slide" axis="0 0 1" stiffness="40"/>
    <geom type="ellipsoid" size=".1 .08 .06"/></body></worldbody>
  <equality><joint joint1="a" joint2="b" polycoef="0 .1 0 0 0"/></equality>
  <actuator><position joint="a" kp="5" ctrlrange="-1 1"/><general joint="b" dyntype="filter" dynprm=".05"/></actuator>
</mujoco>"""
LOOP = """<mujoco><option density="1.2" viscosity="1e-4"/>
  <default><geom contype="0" conaffinity="0"/></default><worldbody>
  <body><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 1" size=".05"/>
    <body pos="0 0 1"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 1 0 0" size=".05"/>
      <body name="end" pos="1 0 0"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -1" size=".05"/></body>
    </body></body></worldbody>
  <equality><connect body1="end" body2="world" anchor="0 0 -1"/></equality></mujoco>"""
LAWS = {
    "soft": uk.Soft(),
    "soft-cg-elliptic": uk.Soft(solver="CG", cone="elliptic", integrator="implicitfast"),
    "soft-pgs": uk.Soft(solver="PGS"),
    "soft-rk4": uk.Soft(integrator="RK4"),
    "soft-from-distance": uk.Soft(gradient=uk.FromDistance()),
    "lcp": uk.LCP(),
    "lcp-aware": uk.LCP(gradient=uk.ComplementarityAware()),
    "impact": uk.Impact(),
    "adaptive": uk.Adaptive(),
}
CASES = [
    ("pendulum", "soft"), ("double_pendulum", "soft-rk4"), ("cartpole", "soft"), ("cartpole", "lcp"), ("ball", "soft"),
    ("ball", "lcp-aware"), ("ball", "impact"), ("ball", "adaptive"), ("box", "soft-cg-elliptic"), ("box", "lcp"),
    ("box", "impact"), ("billiards", "impact"), ("billiards", "lcp"), ("arm", "soft"), ("arm", "adaptive"),
    ("hopper", "soft-from-distance"), ("hopper", "soft-pgs"), ("hopper", "lcp"), ("half_cheetah", "soft"),
    ("half_cheetah", "lcp"), ("walker", "soft-rk4"), ("quadrotor", "soft"), ("quadruped", "lcp"),
    ("humanoid", "soft"), ("ant", "soft-cg-elliptic"), ("linkage", "soft"), ("linkage", "soft-pgs"), ("linkage", "lcp"),
    ("linkage", "impact"), ("linkage", "adaptive"), ("loop", "soft"), ("loop", "lcp"), ("loop", "impact"),
]  # fmt: skip


def programs(scene: str, law: str):
    """Functions of a case and their arguments."""
    model = uk.load({"linkage": LINKAGE, "loop": LOOP}.get(scene, scene))
    method, rng = LAWS[law], np.random.default_rng(0)
    start = uk.initial_state(model, 0 if model.keyframes.names else None)
    start = eqx.tree_at(lambda s: s.v, start, start.v + 0.1 * rng.normal(size=model.nv))
    ctrls = jnp.asarray(0.2 * rng.normal(size=(STEPS, model.nu)), start.q.dtype)
    weights = jnp.asarray(rng.normal(size=model.nv), start.q.dtype)

    def run(model, start, ctrls):
        return jax.lax.scan(lambda s, u: (uk.step(model, s, u, method), None), start, ctrls)[0]

    def end(model, start, ctrls):
        after = run(model, start, ctrls)
        return after.q, after.v, after.act, after.status

    def jacobians(model, start, ctrls):
        found = uk.linearize(model, run(model, start, ctrls), ctrls[0], method)
        return found.A, found.B

    def gradient(model, start, ctrls):
        moving, rest = eqx.partition(model, eqx.is_inexact_array)

        def total(moving, q, v, ctrls):
            there = eqx.tree_at(lambda s: (s.q, s.v), start, (q, v))
            return run(eqx.combine(moving, rest), there, ctrls).v @ weights

        return jax.tree.leaves(jax.grad(total, argnums=(0, 1, 2, 3))(moving, start.q, start.v, ctrls))

    found = {"end": end, "jacobians": jacobians, "gradient": gradient}
    if isinstance(getattr(method, "gradient", None), uk.ComplementarityAware):
        del found["jacobians"]  # a rule of reverse mode
    return found, (model, start, ctrls)


def record(path: Path, precision: str, only: str, digests: bool) -> None:
    """Add results, or digests of programs, of every case in one precision to a file."""
    jax.config.update("jax_enable_x64", precision == "float64")
    out = dict(np.load(path)) if path.exists() else {}
    for scene, law in CASES:
        name = f"{scene} {law} {precision}"
        if only not in name:
            continue
        functions, given = programs(scene, law)
        for what, function in functions.items():
            lowered = jax.jit(function).lower(*given)
            if digests:
                text = lowered.as_text().encode()
                values = [np.frombuffer(hashlib.sha256(text).digest(), np.uint8), np.array([len(text)])]
            else:
                values = jax.tree.leaves(lowered.compile(compiler_options=QUICK)(*given))
            out |= {f"{name} {what} {k}": np.asarray(x) for k, x in enumerate(values)}
        print(name, flush=True)
        np.savez(path, **out)


def record_both(path: Path, rest: list[str]) -> None:
    """Write a new file, in a process for each precision: what was traced in one cannot be used in the other."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    for precision in PRECISIONS:
        subprocess.run([sys.executable, *rest, "--precision", precision], check=True)


def compare(before: Path, after: Path) -> int:
    """Print every difference; the exit status says whether there is one."""
    a, b = np.load(before), np.load(after)
    unequal, worst = {}, 0.0
    for name in sorted(set(a.files) | set(b.files)):
        case = name.rpartition(" ")[0]
        if name not in a.files or name not in b.files or a[name].shape != b[name].shape:
            unequal[case] = np.inf
        elif not np.array_equal(a[name], b[name], equal_nan=True):
            scale = 1.0 if a[name].dtype == np.uint8 else np.abs(a[name]).max(initial=1e-3)
            off = np.abs(a[name].astype(float) - b[name].astype(float)).max() / scale
            unequal[case] = max(unequal.get(case, 0.0), float(np.nan_to_num(off, nan=np.inf)))
    for case, off in unequal.items():
        worst = max(worst, off)
        print(f"{case}: differs by {off:.2e}")
    cases = {name.rpartition(" ")[0] for name in a.files}
    print(f"{len(cases) - len(unequal)} of {len(cases)} are bitwise equal; relative differences of up to {worst:.2e}")
    return int(bool(unequal))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("task", choices=("record", "compare"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--programs", action="store_true", help="digests of lowered programs instead of results")
    parser.add_argument("--precision", choices=PRECISIONS, help="one alone, added to the file")
    given = parser.parse_args()
    if given.task == "record" and given.precision:
        record(given.files[0], given.precision, given.only, given.programs)
    elif given.task == "record":
        record_both(given.files[0], sys.argv)
    else:
        sys.exit(compare(*given.files))
