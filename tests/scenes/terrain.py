"""A small height field, tilted, and shapes over it."""

import functools

import jax
import mujoco
import numpy as np

import ukemi as uk
from tests.scenes.hulls import SHAPES, asset, cloud
from ukemi.collide.detect import detect
from ukemi.mechanics.kinematics import kinematics

ROWS, COLUMNS = 5, 7
# MuJoCo's search among polytopes ends early without a margin; with one it is exact.
LITTLE = 1e-9


def field(rng: np.random.Generator, rows: int = ROWS, columns: int = COLUMNS, size: str = "0.6 0.4 0.15 0.1") -> str:
    z = rng.uniform(size=rows * columns).round(3)
    z[:2] = 0, 1  # so that scaling leaves them
    return f'<hfield name="hills" nrow="{rows}" ncol="{columns}" size="{size}" elevation="{" ".join(map(str, z))}"/>'


@functools.cache
def scene(kinds: tuple[str, ...], margin: float = LITTLE) -> tuple[mujoco.MjModel, uk.Model]:
    """A field and free bodies that meet it alone."""
    rng = np.random.default_rng(0)
    bodies = "".join(
        f'<body name="{kind}" pos="{k} 0 5"><freejoint/>'
        f'<geom type="{kind}" {SHAPES[kind]} mass="1" contype="2" conaffinity="8"/></body>'
        for k, kind in enumerate(kinds)
    )
    m = mujoco.MjModel.from_xml_string(
        f"""<mujoco><option timestep="0.002" ccd_tolerance="1e-12" ccd_iterations="200" tolerance="0"/>
        <asset>{asset("other", cloud(rng, 25))}{field(rng)}</asset>
        <worldbody><geom type="hfield" hfield="hills" margin="{margin}" contype="4" conaffinity="2" pos="0.1 0.2 0.3"
          euler="10 -20 30"/>{bodies}</worldbody></mujoco>"""
    )
    return m, uk.load(m)


def above(rng: np.random.Generator, m: mujoco.MjModel, kind: str) -> np.ndarray:
    """Positions (nq,) where a body is on the field, or near it."""
    q, own = m.qpos0.copy(), m.jnt_qposadr[m.body_jntadr[m.body(kind).id]]
    turn, mat = rng.normal(size=4), np.zeros(9)
    mujoco.mju_quat2Mat(mat, m.geom_quat[0])
    place = rng.uniform((-0.6, -0.4, 0.05), (0.6, 0.4, 0.25))
    q[own : own + 3] = m.geom_pos[0] + mat.reshape(3, 3) @ place
    q[own + 3 : own + 7] = turn / np.linalg.norm(turn)
    return q


def resting(rng: np.random.Generator, m: mujoco.MjModel, model: uk.Model, kind: str, depth: float) -> np.ndarray:
    """Positions (nq,) where a body, lowered from above, is about so deep in the field."""
    own, mat = m.jnt_qposadr[m.body_jntadr[m.body(kind).id]], np.zeros(9)
    mujoco.mju_quat2Mat(mat, m.geom_quat[0])
    q, up, low, high = above(rng, m, kind), mat[2::3], -0.4, 0.4
    start = q[own : own + 3].copy()
    for _ in range(18):
        middle = (low + high) / 2
        q[own : own + 3] = start + middle * up
        deep = contacts(model, q).distance.min() < -depth
        low, high = (middle, high) if deep else (low, middle)
    q[own : own + 3] = start + high * up
    return q


@jax.jit
def contacts(model: uk.Model, q):
    return detect(model, kinematics(model, q))
