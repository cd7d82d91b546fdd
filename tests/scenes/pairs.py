"""Contacts of two posed shapes: ours and MuJoCo's."""

import functools

import jax
import mujoco
import numpy as np

from ukemi.collide.frames import of_rows, row_of
from ukemi.collide.primitives import PAIRS
from ukemi.collide.response import Placed
from ukemi.collide.shapes import Hit, Shape

MARGIN = 0.03


def frames(hit: Hit):
    """Frames (k, 3, 3) of a pair's contacts."""
    return of_rows(row_of(hit, hit.along is not None))[1]


class Oracle:
    """MuJoCo's contacts of two posed shapes."""

    def __init__(self, a: str, b: str, margin: float = MARGIN):
        body = '<body {0}>{1}<geom name="{2}" type="{3}" size="1 1 1"/></body>'
        self.model = mujoco.MjModel.from_xml_string(
            '<mujoco><option ccd_tolerance="1e-12" ccd_iterations="500"/><worldbody>'
            + body.format('mocap="true"', "", "a", a)
            + body.format("", "<freejoint/>", "b", b)
            + f'</worldbody><contact><pair geom1="a" geom2="b" margin="{margin}"/></contact>'
            "</mujoco>"
        )
        self.model.geom_rbound[:] = np.where(self.model.geom_rbound > 0, 1e3, 0)
        self.data = mujoco.MjData(self.model)

    def __call__(self, a: Shape, b: Shape):
        """Distances (n,), points (n, 3), frames (n, 3, 3)."""
        for i, shape in enumerate((a, b)):
            self.model.geom_size[i] = shape.size
            self.data.geom_xpos[i] = shape.pos
            self.data.geom_xmat[i] = np.ravel(shape.mat)
        mujoco.mj_collision(self.model, self.data)
        contact = self.data.contact
        return contact.dist.copy(), contact.pos.copy(), contact.frame.reshape(-1, 3, 3).copy()


@functools.cache
def batched(a: str, b: str):
    """The pair function over a batch of poses, compiled once."""
    function = PAIRS[a, b].function
    # compiling is what takes time here, so leave the optimiser out
    quick = {"xla_backend_optimization_level": 0}
    return jax.jit(jax.vmap(lambda s, t: function(s, t, MARGIN)), compiler_options=quick)


BATCH = 600  # one batch size for all tests, so that each pair compiles once


def evaluate(a: str, b: str, shapes_a: list[Shape], shapes_b: list[Shape], dtype=np.float64):
    """Our contacts of a list of poses."""
    n = len(shapes_a)

    def stack(shapes):
        filled = shapes + shapes[-1:] * (BATCH - n)
        return Shape(*(np.stack(x).astype(dtype) for x in zip(*filled)))

    hits = batched(a, b)(stack(shapes_a), stack(shapes_b))
    found = Placed(hits.distance, hits.point, jax.vmap(frames)(hits))
    return jax.tree.map(lambda x: np.asarray(x[:n]), found)


def rotation(rng: np.random.Generator) -> np.ndarray:
    quat = rng.normal(size=4)
    mat = np.zeros(9)
    mujoco.mju_quat2Mat(mat, quat / np.linalg.norm(quat))
    return mat.reshape(3, 3)


def random_shape(rng: np.random.Generator, spread: float) -> Shape:
    return Shape(rng.uniform(-spread, spread, 3), rotation(rng), rng.uniform(0.05, 0.3, 3))


def random_poses(n: int, spread: float, seed: int) -> tuple[list[Shape], list[Shape]]:
    rng = np.random.default_rng(seed)
    return tuple([random_shape(rng, spread) for _ in range(n)] for _ in range(2))


def compare(a: str, b: str, shapes_a: list[Shape], shapes_b: list[Shape], tol: float = 1e-9) -> int:
    """Asserts that both find the same set of contacts; returns how many there were."""
    oracle = Oracle(a, b)
    hits = evaluate(a, b, shapes_a, shapes_b)
    assert all(np.isfinite(x).all() for x in hits)
    total = 0
    for i, (s, t) in enumerate(zip(shapes_a, shapes_b)):
        distance, point, frame = oracle(s, t)
        mine = [j for j in np.argsort(hits.distance[i]) if hits.distance[i, j] < MARGIN]
        pose = f"{a}-{b} pose {i}: {s} {t}\n mujoco {distance} ours {hits.distance[i]}"
        assert len(mine) == len(distance), pose
        total += len(mine)
        left = set(mine)
        for d, p, f in zip(distance, point, frame):
            error = {
                j: max(abs(hits.distance[i, j] - d), abs(hits.point[i, j] - p).max(),
                       abs(hits.frame[i, j] - f).max())
                for j in left
            }
            best = min(error, key=error.get)
            assert error[best] < tol, f"{pose}\n error {error} points {point} {hits.point[i]}"
            left.remove(best)
    return total


def turn_x(angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[1, 0, 0], [0, c, -s], [0, s, c]])
