"""Random polytopes as hulls, and scenes where every kind of shape meets a mesh."""

import jax
import mujoco
import numpy as np

import ukemi as uk
from tests.scenes.exact import Bounds, bounds, solid
from ukemi.collide.detect import detect
from ukemi.files import hulls
from ukemi.mechanics.kinematics import kinematics

CUBE = np.array([(x, y, z) for z in (1, -1) for y in (1, -1) for x in (1, -1)]) * 0.08
SHAPES = {
    "sphere": 'size=".05"',
    "capsule": 'size=".03 .06"',
    "ellipsoid": 'size=".04 .06 .05"',
    "cylinder": 'size=".04 .06"',
    "box": 'size=".08 .05 .06"',
    "mesh": 'mesh="other"',
}


def cloud(rng: np.random.Generator, n: int, scale=(0.1, 0.1, 0.1)) -> np.ndarray:
    """Points (n, 3) on an ellipsoid."""
    x = rng.normal(size=(n, 3))
    return x / np.linalg.norm(x, axis=1)[:, None] * np.array(scale)


def asset(name: str, corners: np.ndarray) -> str:
    return f'<mesh name="{name}" vertex="{" ".join(f"{x:.6f}" for x in corners.ravel())}"/>'


def scene(rng: np.random.Generator, corners: np.ndarray, kinds=tuple(SHAPES)) -> mujoco.MjModel:
    """A plane and free bodies of several kinds that meet a mesh, and nothing else."""
    bodies = "".join(
        f'<body name="{kind}" pos="{2 * k + 2} 0 1"><freejoint/>'
        f'<geom type="{kind}" {SHAPES[kind]} mass="1" contype="2" conaffinity="1"/></body>'
        for k, kind in enumerate(kinds)
    )
    return mujoco.MjModel.from_xml_string(
        f"""<mujoco><option timestep="0.002" ccd_tolerance="1e-12" ccd_iterations="200"/>
        <asset>{asset("first", corners)}{asset("other", cloud(rng, 25))}</asset>
        <worldbody><geom type="plane" size="1 1 1" contype="4" conaffinity="8"/>
        <body name="first"><freejoint/><geom type="mesh" mesh="first" mass="1" contype="9" conaffinity="6"/></body>
        {bodies}</worldbody></mujoco>"""
    )


def away(m: mujoco.MjModel) -> np.ndarray:
    """Positions (nq,) where nothing touches."""
    q = m.qpos0.copy()
    q[:3] = (0, 0, 30)
    return q


def meeting(rng: np.random.Generator, m: mujoco.MjModel, kind: str, flat: bool) -> np.ndarray:
    """Positions (nq,) where a body is on the mesh, at random, or nearly `flat` on its sides."""
    q = away(m)
    own = m.jnt_qposadr[m.body_jntadr[m.body(kind).id]]
    turn, place = rng.normal(size=4), rng.normal(size=3)
    place *= rng.uniform(0.03, 0.15) / np.linalg.norm(place)
    if flat:
        turn = np.array([1.0, 0, 0, 0]) + rng.choice([0, 0.03]) * rng.normal(size=4)
        place = np.roll([rng.normal() * 0.03, rng.normal() * 0.03, rng.uniform(0.1, 0.16)], rng.integers(3))
    q[own : own + 3] = q[:3] + place
    q[own + 3 : own + 7] = turn / np.linalg.norm(turn)
    return q


def distance(m: mujoco.MjModel, d: mujoco.MjData) -> Bounds:
    """Bounds of that of the first two shapes that touch."""
    a, b = (solid(m, g, d.geom_xpos[g], d.geom_xmat[g]) for g in d.contact[0].geom)
    return bounds(a, b)


@jax.jit
def contacts(model: uk.Model, q):
    return detect(model, kinematics(model, q))


def polytope(rng: np.random.Generator, corners: np.ndarray) -> hulls.Solid:
    """The hull of points, for `hulls.joined`; only its corners are ever looked at."""
    return hulls.Solid(corners, [], [np.zeros(0, int)] * len(corners))
