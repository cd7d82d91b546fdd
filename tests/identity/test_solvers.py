"""The three solvers find the same unique minimum, and say so when they do not."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.slow import few
from ukemi.laws.soft.law import Soft
from ukemi.laws.soft.problem import Problem
from ukemi.laws.soft.solve import SOLVERS
from ukemi.mechanics.kinematics import integrate
from ukemi.model.records import Input

# Every kind of row: equality, dry friction, limits, contacts with and without friction, torsion and rolling.
SCENE = """
<mujoco>
  <option timestep="0.004"/>
  <worldbody>
    <geom type="plane" size="5 5 0.1" condim="{dim}" friction="0.7 0.02 0.01"/>
    <body pos="0 0 0.09"><freejoint/><geom type="box" size="0.1 0.15 0.1" condim="{dim}"/></body>
    <body pos="0.5 0 0.06"><freejoint/><geom size="0.07" condim="{low}" priority="1"/></body>
    <body pos="-1 0 0.5">
      <joint axis="0 1 0" range="-40 20" limited="true" frictionloss="0.4"/>
      <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.04"/>
      <body pos="0.3 0 0">
        <joint name="a" axis="0 1 0" frictionloss="0.2" armature="0.01"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.04"/>
        <body pos="0.3 0 0"><joint name="b" axis="0 1 0"/><geom type="capsule" size="0.04 0.1"/></body>
      </body>
    </body>
  </worldbody>
  <equality><joint joint1="a" joint2="b" polycoef="0.1 0.5 0 0 0"/></equality>
</mujoco>
"""
MODELS = {
    "ellipse": (SCENE.format(dim=3, low=1), "elliptic"),
    "pyramid rolling": (SCENE.format(dim=6, low=4), "pyramidal"),
    "ellipse rolling": (SCENE.format(dim=6, low=4), "elliptic"),
    "frictionless": (SCENE.format(dim=1, low=1), "elliptic"),
    "humanoid": ("humanoid", "pyramidal"),
}


def scenes(model, n=5):
    """States near the start, moving, under different forces."""
    rng = np.random.default_rng(0)
    states, inputs = [], []
    for _ in range(n):
        q = integrate(model.tree, model.joints.qpos0, 0.005 * rng.normal(size=model.nv), 1.0)
        v = rng.choice([0.0, 0.3, 2.0]) * rng.normal(size=model.nv)
        states.append(uk.initial_state(model, q=q, v=v))
        inputs.append(Input(jnp.zeros(model.nu), qfrc=jnp.asarray(rng.normal(size=model.nv))))
    return jax.tree.map(lambda *x: jnp.stack(x), *states), jax.tree.map(lambda *x: jnp.stack(x), *inputs)


def problems(model, cone):
    """Row kinds of the model and a batch of problems."""
    method = Soft(cone=cone, solver="Newton")

    def problem(one):
        found = method.forward(model, *one)
        return Problem(found.smooth.M, found.tau, found.rows)

    return method.kinds(model), jax.jit(lambda batch: jax.lax.map(problem, batch))(scenes(model))


def solve(kinds, batch, solver, iterations, tolerance, mapped=jax.lax.map):
    """Solutions from the acceleration zero."""

    def one(problem):
        start = jnp.zeros_like(problem.tau)
        return SOLVERS[solver](kinds, problem, start, iterations=iterations, searches=50, tolerance=tolerance)

    return jax.tree.map(np.asarray, jax.jit(lambda x: mapped(one, x))(batch))


@pytest.mark.parametrize("name", few(MODELS, "pyramid rolling", "ellipse rolling"))
def test_solvers_agree(name):
    source, cone = MODELS[name]
    kinds, batch = problems(uk.load(source), cone)
    best = solve(kinds, batch, "Newton", 100, 1e-13)
    assert best.converged.all() and (np.abs(best.force).max(1) > 0).sum() > 2
    scale = np.abs(best.acceleration).max()
    for solver, tolerance, close in (("CG", 1e-12, 1e-8), ("PGS", 1e-10, 1e-6)):
        found = solve(kinds, batch, solver, 20000, tolerance)
        assert found.converged.all(), (solver, found.iterations)
        assert np.abs(found.acceleration - best.acceleration).max() < close * scale, solver
        assert np.abs(found.force - best.force).max() < close * np.abs(best.force).max(), solver
        # whatever the solver, its forces and its acceleration balance
        inertial = np.einsum("kij,kj->ki", batch.M, found.acceleration) - batch.tau
        pull = np.einsum("kr,krv->kv", found.force, batch.rows.J)
        assert np.abs(inertial - pull).max() < close * np.abs(inertial).max()


@pytest.mark.parametrize("solver", ["CG", "PGS"])
def test_a_solver_that_runs_out_of_iterations_says_so(solver):
    kinds, batch = problems(uk.load(SCENE.format(dim=3, low=1)), "elliptic")
    found = solve(kinds, batch, solver, 2, 1e-12)
    lost = ~found.converged
    assert lost.sum() >= 3 and (found.iterations[lost] == 2).all()


@pytest.mark.parametrize("solver", ["CG", "PGS"])
def test_a_batch_equals_a_loop(solver):
    kinds, batch = problems(uk.load(SCENE.format(dim=3, low=1)), "elliptic")
    loop = solve(kinds, batch, solver, 60, 1e-9)
    mapped = solve(kinds, batch, solver, 60, 1e-9, lambda f, x: jax.vmap(f)(x))
    assert (mapped.iterations == loop.iterations).all()
    assert np.abs(mapped.acceleration - loop.acceleration).max() < 1e-10 * np.abs(loop.acceleration).max()


def test_no_constraint_and_no_sweep():
    model = uk.load("pendulum")
    kinds, batch = problems(model, "elliptic")
    free = np.linalg.solve(batch.M, batch.tau[..., None])[..., 0]
    for solver in SOLVERS:
        assert np.allclose(solve(kinds, batch, solver, 100, 1e-12).acceleration, free, rtol=1e-12), solver


def test_a_cone_leaves_its_tip_sideways():
    """Where the normal alone wants no force but sliding does, coordinate steps from the cone's tip would find none."""
    model = uk.load(
        "<mujoco><option cone='elliptic' gravity='0 0 0'/><worldbody><geom type='plane' size='1 1 1' friction='2'/>"
        "<body pos='0 0 0.0999'><freejoint/><geom size='0.1' friction='2'/></body></worldbody></mujoco>"
    )
    state = uk.initial_state(model, v=np.array([1.0, 0, 0.2, 0, 0, 0]))
    forward = jax.jit(Soft(solver="Newton").forward)(model, state, Input(jnp.zeros(0)))
    problem = Problem(forward.smooth.M, forward.tau, forward.rows)
    kinds, batch = Soft().kinds(model), jax.tree.map(lambda x: x[None], problem)
    best, found = (solve(kinds, batch, solver, 500, 1e-12) for solver in ("Newton", "PGS"))
    x = problem.rows.J @ np.linalg.solve(problem.M, problem.tau) - problem.rows.aref
    assert x[0] > 0 and np.abs(best.force).max() > 0, "the scene does not show what it should"
    assert found.converged.all() and np.abs(found.force - best.force).max() < 1e-8


LEG = """<body pos="{x} {y} 0"><joint name="hip{k}" axis="0 1 0" damping="1"/>
  <geom type="capsule" fromto="0 0 0 0 0 -.15" size=".02" mass=".5" contype="0" conaffinity="0"/>
  <body pos="0 0 -.15"><joint name="knee{k}" axis="0 1 0" damping="1"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.15" size=".01" mass=".05" contype="0" conaffinity="0"/>
    <geom size=".02" pos="0 0 -.15" mass=".01" condim="6" friction=".8 .02 .01" solimp=".015 1 .031" priority="1"/>
  </body></body>"""


@pytest.mark.slow
@pytest.mark.optimized
def test_rounding_that_soft_feet_multiply_is_not_a_failure():
    """Of feet such as a Unitree A1's, a_ref is in the thousands: rounding keeps the gradient above the tolerance."""
    legs = "".join(LEG.format(x=x, y=y, k=k) for k, (x, y) in enumerate(itertools.product((0.2, -0.2), (0.1, -0.1))))
    motors = "".join(f'<motor joint="{joint}{k}" gear="20"/>' for k in range(4) for joint in ("hip", "knee"))
    model = uk.load(f"""<mujoco><option cone="elliptic" timestep=".01" impratio="100"/>
    <worldbody><geom type="plane" size="1 1 1"/><body pos="0 0 .3"><freejoint/>
      <geom type="box" size=".2 .1 .05" mass="5"/>{legs}</body></worldbody><actuator>{motors}</actuator></mujoco>""")
    ctrls = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (16, 600, model.nu)))
    start = uk.initial_state(model)
    states = jax.jit(lambda ctrls: jax.lax.map(lambda own: uk.rollout(model, start, own, uk.Soft()), ctrls))(ctrls)
    assert (states.status == 0).all() and states.cache.iterations.max() < 50

    def cold(at):
        state, ctrl = at
        blank = dataclasses.replace(state.cache, acceleration=jnp.zeros(model.nv))
        return uk.step(model, dataclasses.replace(state, cache=blank), ctrl, uk.Soft())

    before = jax.tree.map(lambda x: jax.lax.collapse(x[:, :-1:3], 0, 2), states)
    after, given = (jax.lax.collapse(x[:, 1::3], 0, 2) for x in (states.v, ctrls))
    afresh = jax.jit(lambda some: jax.lax.map(cold, some))((before, given))
    assert (afresh.status == 0).all() and np.abs(afresh.v - after).max() < 1e-9 * np.abs(after).max()
