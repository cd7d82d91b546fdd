"""Time Nimble's step with its five Jacobians; prints one line of JSON. Runs in Nimble's own environment.

    python -m venv nimble && nimble/bin/pip install nimblephysics "numpy<2"
    nimble/bin/python bench/nimble_worker.py [--half-cheetah FILE.skel] [--atlas FILE.urdf] [--repeats 200]

Nimble 0.10's bindings are built for NumPy 1: under NumPy 2 some calls crash the interpreter.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import nimblephysics as nimble  # pyright: ignore[reportMissingImports]
import numpy as np

JACOBIANS = (
    "getPosPosJacobian",
    "getPosVelJacobian",
    "getVelPosJacobian",
    "getVelVelJacobian",
    "getControlForceVelJacobian",
)
STEPS = 3000  # at most, to come into contact
HELD = 100  # steps in contact before timing


def offset(*translation):
    """A pure translation."""
    return nimble.math.Isometry3(np.eye(3), np.array(translation, float))


def boxed(body, *size) -> None:
    """Give a body a colliding box."""
    body.createShapeNode(nimble.dynamics.BoxShape(list(size))).createCollisionAspect()


def floor(centre, size):
    """A fixed box."""
    skeleton = nimble.dynamics.Skeleton()
    joint, body = skeleton.createWeldJointAndBodyNodePair()
    joint.setTransformFromParentBodyNode(offset(*centre))
    boxed(body, *size)
    return skeleton


def link(skeleton, parent, above: float, force: float):
    """A link of 0.25 m on a hinge about z, `above` the parent's centre."""
    joint, body = skeleton.createRevoluteJointAndBodyNodePair(parent)
    joint.setAxis([0, 0, 1])
    joint.setTransformFromParentBodyNode(offset(0, above, 0))
    joint.setTransformFromChildBodyNode(offset(0, -0.125, 0))
    joint.setControlForceUpperLimit(0, force)
    joint.setControlForceLowerLimit(0, -force)
    joint.setPositionLowerLimit(0, 0)
    joint.setPositionUpperLimit(0, np.pi)
    boxed(body, 0.05, 0.25, 0.05)
    return body


def links(skeleton, root, force: float) -> None:
    """Three links in a row."""
    body = link(skeleton, root, 0, force)
    for _ in range(2):
        body = link(skeleton, body, 0.125, force)


def cube():
    """A skeleton that is one cube of 0.1 m, free in x and y, and its body."""
    skeleton = nimble.dynamics.Skeleton()
    joint, body = skeleton.createTranslationalJoint2DAndBodyNodePair()
    joint.setXYPlane()
    for axis in range(2):
        joint.setControlForceUpperLimit(axis, 0)
        joint.setControlForceLowerLimit(axis, 0)
    boxed(body, 0.1, 0.1, 0.1)
    return skeleton, body


def planar_world():
    """An empty world with gravity along −y."""
    world = nimble.simulation.World()
    world.setGravity([0, -9.81, 0])
    return world


def jump_worm(_: str):
    """Cube with a tail of three links above a floor."""
    world = planar_world()
    worm, root = cube()
    links(worm, root, 100.0)
    world.addSkeleton(worm)
    world.addSkeleton(floor((0, -0.7, 0), (2.5, 0.25, 0.5)))
    worm.setPositions(np.array([0, -0.14, np.pi / 2, np.pi / 2, np.pi / 4]))
    return world, None


def catapult(_: str):
    """Three links on a fixed base beside a free cube."""
    world = planar_world()
    projectile, _ = cube()
    projectile.setPositions(np.array([0, 0.1]))
    thrower = nimble.dynamics.Skeleton()
    joint, base = thrower.createWeldJointAndBodyNodePair()
    joint.setTransformFromParentBodyNode(offset(0.5, -0.45, 0))
    links(thrower, base, 1000.0)
    thrower.setPositions(np.array([np.pi / 4, 0, np.pi / 4]))
    for skeleton in (projectile, thrower, floor((1.2, -0.7, 0), (3.5, 0.25, 0.5))):
        world.addSkeleton(skeleton)
    return world, None


def half_cheetah(path: str):
    """The world of a .skel file."""
    return nimble.utils.UniversalLoader.loadWorld(path), None


def atlas(path: str):
    """Atlas on its feet, its joints held by springs and dampers of 30 rad/s."""
    world = nimble.simulation.World()
    world.setGravity([0, 0, -9.81])
    world.addSkeleton(floor((0, 0, -0.05), (10, 10, 0.1)))
    robot = nimble.utils.DartLoader().parseSkeleton(path)
    world.addSkeleton(robot)
    heights = [
        body.getWorldTransform().translation()[2]
        for body in map(robot.getBodyNode, range(robot.getNumBodyNodes()))
        if body.getName() == "l_foot"
    ]
    start = robot.getPositions()
    start[5] = 0.08 - heights[0] - 0.0005  # the soles are 0.08 below the frames of the feet
    robot.setPositions(start)

    def hold() -> None:
        inertia = np.linalg.inv(np.linalg.inv(robot.getMassMatrix())[6:, 6:])
        torque = np.zeros(robot.getNumDofs())
        torque[6:] = -inertia @ (900 * (robot.getPositions() - start) + 60 * robot.getVelocities())[6:]
        robot.setControlForces(torque)

    return world, hold


def settle(world, hold) -> int:
    """Simulate until the world has been in contact for a while; the number of contacts."""
    touching = 0
    for _ in range(STEPS):
        if hold:
            hold()
        world.step()
        touching = touching + 1 if world.getLastCollisionResult().getNumContacts() else 0
        if touching >= HELD:
            break
    if not np.isfinite(world.getState()).all():
        raise ArithmeticError("the state is not finite")
    return world.getLastCollisionResult().getNumContacts()


def jacobians(world) -> list:
    """One step and its five Jacobians. (A snapshot keeps what it has computed, so each call needs a new one.)"""
    snapshot = nimble.neural.forwardPass(world)
    return [getattr(snapshot, name)(world) for name in JACOBIANS]


def least_and_median(world, call, repeats: int) -> tuple[float, float]:
    """CPU microseconds of a call from the same state each time."""
    state, guess, times = world.getState(), world.getCachedLCPSolution(), []
    for _ in range(repeats):
        world.setState(state)
        world.setCachedLCPSolution(guess)
        start = time.process_time()
        call()
        times.append(1e6 * (time.process_time() - start))
    world.setState(state)
    return min(times), statistics.median(times)


def measure(build, path: str, repeats: int) -> dict:
    """Figures of one world."""
    world, hold = build(path)
    contacts = settle(world, hold)
    if contacts == 0:
        return {"skipped": f"no contact within {STEPS} steps"}
    if not all(np.isfinite(jacobian).all() for jacobian in jacobians(world.clone())):
        return {"skipped": "a Jacobian is not finite"}
    step, _ = least_and_median(world, world.step, repeats)
    least, median = least_and_median(world, lambda: jacobians(world), repeats)
    return {"least": least, "median": median, "step": step, "dofs": world.getNumDofs(), "contacts": contacts}


def main() -> None:
    """Measure every world that can be had."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--half-cheetah", default="")
    parser.add_argument("--atlas", default="")
    parser.add_argument("--repeats", type=int, default=200)
    args = parser.parse_args()
    cases: dict[str, tuple[Callable, str]] = {
        "jump-worm": (jump_worm, "-"),
        "catapult": (catapult, "-"),
        "half-cheetah": (half_cheetah, args.half_cheetah),
        "Atlas, box feet": (atlas, args.atlas),
    }
    figures = {}
    for name, (build, path) in cases.items():
        figures[name] = measure(build, path, args.repeats) if path else {"skipped": "its model file is not there"}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
