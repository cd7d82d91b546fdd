"""The direction in which two convex shapes are furthest apart, or least deep in each other.

The signed distance of convex shapes a and b is the maximum over unit vectors n of

    f(n) = n·(p_b - p_a) - h_a(n) - h_b(-n)

with h the support functions about the centres p. All primitives are sums of a ball, segments,
discs and ellipsoids, so f(n) = n·d - r - Σ_m |A_m n| with one small matrix A_m per summand:
a segment has one row (half length times its direction), a disc two, an ellipsoid three. At the
maximum there are duals y_m with |y_m| <= 1 and

    d - Σ_m A_mᵀ y_m = λ n,      y_m |A_m n| = A_m n,      λ = f(n) + r,

and then p_a + r_a n + Σ_(m of a) A_mᵀ y_m and its counterpart on b are the witness points. Flat
faces and edges are the kinks A_m n = 0, where y_m is a genuine unknown. A primal-dual Newton
iteration (Andersen, Christiansen, Conn & Overton 2000, for sums of norms) solves for n and y
together, with |A_m n| smoothed by an ε that shrinks to rounding; it takes a fixed number of
steps and no branches. It starts from the best of a set of candidate directions.

Differences from MuJoCo's GJK and EPA: the direction is found to rounding, not to a tolerance, and
it is the best of several local optima, so depths are never larger than MuJoCo's where shapes
overlap by less than their size; in deeper overlap (below a tenth of the sum of sizes or more) one
pose in some hundreds ends in a local optimum that is a few percent deeper.

Derivatives never see the iteration: they are the implicit rule's, of the equations above with the
last ε that the iteration used, so that they are those of what is computed. The rule is itself
differentiable, for second derivatives.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ukemi.collide.geometry import cross, dot
from ukemi.collide.shapes import Convex, Hit, Shape

STEPS = 24
STARTS = 3
START_SPREAD = 0.7  # cosine of the least angle between two starts
FIRST_SMOOTHING = 0.01  # relative to the sum of all sizes
NEAR_SMOOTHING = 1e-5  # where the one start is known to be good
LONGEST_STEP = 0.5  # [rad]
LAST_SMOOTHING = {"float64": 1e-9, "float32": 3e-6}
REFINEMENTS = 3  # of the linear system of the implicit rule


def _fibonacci_sphere(n: int) -> np.ndarray:
    """n directions (n, 3) spread evenly over the sphere."""
    k = np.arange(n) + 0.5
    z, angle = 1 - 2 * k / n, np.pi * (1 + np.sqrt(5)) * k
    radius = np.sqrt(1 - z**2)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), z], axis=-1)


DIRECTIONS = _fibonacci_sphere(64)


class Problem(NamedTuple):
    """The maximisation above, in units of the sum of the sizes."""

    apart: Array  # (3,) p_b - p_a
    rows: Array  # (K, 3) all A_m


class Optimum(NamedTuple):
    """Where f is largest."""

    value: Array  # () f + r
    normal: Array  # (3,) unit
    dual: Array  # (K,) y


class Witness(NamedTuple):
    """The nearest (or deepest) points of two shapes."""

    distance: Array  # () signed [m]
    normal: Array  # (3,) from a to b
    point_a: Array  # (3,) on the surface of a [m]
    point_b: Array  # (3,) on the surface of b [m]


class Body(NamedTuple):
    """A `Convex` as numbers, so that one program serves several kinds: a row along each axis, zero if it has none."""

    entry: Array | np.ndarray  # (3, 3) bool: which entry of `size` a row is as long as
    same: Array | np.ndarray  # (3, 3) bool: whether two rows belong to the same summand
    ball: Array | np.ndarray  # () bool

    def rows(self, shape: Shape) -> Array:
        """The rows (3, 3) of one shape [m]."""
        return shape.mat.T * jnp.where(self.entry, shape.size, 0.0).sum(-1)[:, None]

    def radius(self, shape: Shape) -> Array:
        """That of its ball () [m]."""
        return jnp.where(self.ball, shape.size[0], 0.0)


def body_of(kind: Convex) -> Body:
    """The numbers of one kind."""
    entry, same = np.zeros((3, 3), bool), np.zeros((3, 3), bool)
    for axis, scale, summand in kind.rows:
        entry[axis, scale] = True
        same[axis, [row[0] for row in kind.rows if row[2] == summand]] = True
    return Body(entry, same, np.array(kind.ball))


def body_among(kinds: list[Convex], which: Array | int) -> Body:
    """Those of one of several kinds."""
    found = [body_of(kind) for kind in kinds]
    if len(set(kinds)) == 1:
        return found[0]
    return Body(*(jnp.asarray(np.stack(x))[which] for x in zip(*found, strict=True)))


def _both(first: Array | np.ndarray, second: Array | np.ndarray) -> Array:
    """Which rows (K, K) of two bodies belong to the same summand."""
    n, k = len(first), len(second)
    return jnp.concatenate([jnp.pad(first, ((0, 0), (0, k))), jnp.pad(second, ((0, 0), (n, 0)))])


def _summand_sum(same: Array, values: Array) -> Array:
    """Sums (..., K) over the rows of each summand, for each row."""
    return jnp.sum(same * values[..., None, :], axis=-1)


def _sizes(same: Array) -> Array:
    """How many rows (K,) a row's summand has; one where there is none."""
    return jnp.maximum(jnp.sum(same, axis=-1), 1)


def _tangents(normal: Array) -> Array:
    """Two unit tangents (..., 2, 3) of unit normals (..., 3), by Duff et al. 2017."""
    x, y, z = normal[..., 0], normal[..., 1], normal[..., 2]
    sign = jnp.where(z >= 0, 1.0, -1.0).astype(z.dtype)
    p = -1 / (sign + z)
    q = x * y * p
    first = jnp.stack([1 + sign * x * x * p, sign * q, -sign * x], axis=-1)
    second = jnp.stack([q, sign + y * y * p, -y], axis=-1)
    return jnp.stack([first, second], axis=-2)


def _solve2(matrix: Array, right: Array) -> Array:
    """Solves symmetric positive definite 2x2 systems given as (..., 3) = (11, 12, 22)."""
    m11, m12, m22 = matrix[..., 0], matrix[..., 1], matrix[..., 2]
    det = m11 * m22 - m12 * m12
    r1, r2 = right[..., 0], right[..., 1]
    return jnp.stack([m22 * r1 - m12 * r2, m11 * r2 - m12 * r1], axis=-1) / det[..., None]


def _curvature(columns: Array, dual: Array, slope: Array, length: Array, same: Array, shift: Array):
    """The Newton matrix (..., 3) = (11, 12, 22) on the tangent plane.

    Args:
      columns: (..., 2, K) the rows in tangent coordinates.
      dual, slope: (..., K) y and A n / |A n|; they agree at the solution.
      length: (..., K) |A_m n|, smoothed, for each row.
      shift: (...) λ, the curvature of the sphere.
    """
    size = _sizes(same)
    along = _summand_sum(same, dual[..., None, :] * columns)
    other = _summand_sum(same, slope[..., None, :] * columns)
    c1, c2 = columns[..., 0, :], columns[..., 1, :]
    a1, a2, o1, o2 = along[..., 0, :], along[..., 1, :], other[..., 0, :], other[..., 1, :]
    m11 = jnp.sum((c1 * c1 - a1 * o1 / size) / length, axis=-1) + shift
    m22 = jnp.sum((c2 * c2 - a2 * o2 / size) / length, axis=-1) + shift
    m12 = jnp.sum((c1 * c2 - 0.5 * (a1 * o2 + a2 * o1) / size) / length, axis=-1)
    return jnp.stack([m11, m12, m22], axis=-1)


def _made_positive(matrix: Array, least: float) -> Array:
    """Shifts symmetric 2x2 matrices (..., 3) until no eigenvalue is below `least`."""
    m11, m12, m22 = matrix[..., 0], matrix[..., 1], matrix[..., 2]
    lowest = 0.5 * (m11 + m22) - jnp.sqrt(0.25 * (m11 - m22) ** 2 + m12**2)
    shift = lax.stop_gradient(jnp.maximum(0.0, least - lowest))  # what is shifted is refined; no slope of the root
    return matrix + jnp.stack([shift, jnp.zeros_like(shift), shift], axis=-1)


def _newton_step(problem: Problem, same: Array, smoothing: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
    """One primal-dual Newton step, for a batch of directions (P, 3) and duals (P, K)."""
    normal, dual = at
    x = jnp.sum(normal[:, None, :] * problem.rows, axis=-1)
    length = jnp.sqrt(_summand_sum(same, x * x) + smoothing**2)
    slope = x / length
    tangents = _tangents(normal)
    columns = jnp.sum(tangents[:, :, None, :] * problem.rows, axis=-1)

    uphill = jnp.sum(tangents * problem.apart, axis=-1) - jnp.sum(columns * slope[:, None], axis=-1)
    value = jnp.sum(normal * problem.apart, axis=-1) - jnp.sum(x * slope, axis=-1)
    matrix = _curvature(columns, dual, slope, length, same, value)
    step = _solve2(_made_positive(matrix, 0.02), uphill)
    size = jnp.sqrt(dot(step, step))[:, None]
    step = step * jnp.minimum(1.0, LONGEST_STEP / jnp.maximum(size, 1e-12))

    moved = normal + jnp.sum(tangents * step[:, :, None], axis=1)
    moved = moved / jnp.sqrt(dot(moved, moved))[:, None]
    dx = jnp.sum(columns * step[:, :, None], axis=1)
    dual = slope + (dx - dual * _summand_sum(same, slope * dx)) / length
    excess = jnp.sqrt(_summand_sum(same, dual * dual))
    return moved, dual / jnp.maximum(1.0, excess)


def _separation(problem: Problem, same: Array, normal: Array, smoothing: float) -> Array:
    """f + r for directions (n, 3), smoothed."""
    x = jnp.sum(normal[:, None, :] * problem.rows, axis=-1)
    length = jnp.sqrt(_summand_sum(same, x * x) + smoothing**2)
    return dot(normal, problem.apart) - jnp.sum(jnp.diagonal(same) * length / _sizes(same), axis=-1)


def _starts(problem: Problem, same: Array, axes: Array) -> Array:
    """Three good directions (3, 3) to start from, well apart from each other.

    Args:
      axes: (6, 3) the axes of both shapes; they and their cross products are candidates, as are
        the direction between the centres and an even grid.
    """
    pairs = cross(axes[:3, None], axes[None, 3:]).reshape(9, 3)
    pairs = jnp.where(dot(pairs, pairs)[:, None] > 1e-6, pairs, axes[:1])
    centres = jnp.where(dot(problem.apart, problem.apart) > 1e-12, problem.apart, axes[0])
    special = jnp.concatenate([axes, pairs, centres[None]])
    special = special / jnp.sqrt(dot(special, special))[:, None]
    special = jnp.where(dot(special, problem.apart)[:, None] < 0, -special, special)
    candidates = jnp.concatenate([special, jnp.array(DIRECTIONS, axes.dtype)])
    values = _separation(problem, same, candidates, 0.0)
    chosen = []
    for _ in range(STARTS):
        chosen.append(candidates[jnp.argmax(values)])
        values = jnp.where(dot(candidates, chosen[-1]) > START_SPREAD, -jnp.inf, values)
    return jnp.stack(chosen)


def _maximise(problem: Problem, same: Array, start: Array) -> Optimum:
    """The best direction that starts (n, 3) lead to, and its duals, to rounding in float64."""
    last = LAST_SMOOTHING[start.dtype.name]
    first = FIRST_SMOOTHING if len(start) > 1 else max(NEAR_SMOOTHING, last)
    ratio = (last / first) ** (1 / (STEPS - 4))
    x = jnp.sum(start[:, None, :] * problem.rows, axis=-1)
    dual = x / jnp.sqrt(_summand_sum(same, x * x) + first**2)

    def body(i, at):
        smoothing = jnp.maximum(last, first * ratio ** jnp.asarray(i, start.dtype))
        return _newton_step(problem, same, smoothing, at)

    normal, dual = lax.fori_loop(0, STEPS, body, (start, dual))
    left = problem.apart - jnp.sum(dual[:, :, None] * problem.rows, axis=1)
    # Between the witness points, n and y both being stationary, the last ε is of second order in the value: in f
    # itself each kink would leave it whole.
    value = dot(normal, left)
    error = jnp.max(jnp.abs(left - normal * value[:, None]), axis=-1)
    best = jnp.argmax(_separation(problem, same, normal, last) - 10 * error)
    return Optimum(value[best], normal[best], dual[best])


@jax.custom_jvp
def _optimum(same: Array, problem: Problem, start: Array) -> Optimum:
    """The maximum of f, which moves with the problem as its equations say, whatever found it from starts (n, 3)."""
    return _maximise(problem, same.astype(start.dtype), start)


@_optimum.defjvp
def _differentiate_optimum(primals, tangents):
    same, problem, start = primals
    at = _optimum(same, problem, start)
    return at, _change(problem, same.astype(start.dtype), at, tangents[1])


def _change(problem: Problem, same: Array, at: Optimum, along: Problem) -> Optimum:
    """How the optimum moves as the problem changes `along`: the implicit rule for the smoothed equations.

    The value moves as if n and y stood still, but for the ε of kinks, where A n = ε y. Where more edges and faces touch
    than there are directions to turn (a cylinder standing on a box) the witness points are not unique and jump as the
    shapes tilt: there the duals are held, which keeps the points still on their shapes.
    """
    normal, dual = at.normal, at.dual
    double = normal.dtype == jnp.float64
    x = jnp.sum(problem.rows * normal, axis=-1)
    norm = jnp.sqrt(_summand_sum(same, x * x) + LAST_SMOOTHING[x.dtype.name] ** 2)
    tangents = _tangents(normal)
    columns = jnp.sum(tangents[:, None, :] * problem.rows, axis=-1)
    curvature = dot(normal, problem.apart) - jnp.sum(x * dual)
    d_x = jnp.sum(along.rows * normal, axis=-1)
    d_reach = along.apart - jnp.sum(along.rows * dual[:, None], axis=0)

    # The linear system of the implicit rule, in the turn of n and the change of y:
    #     λ turn + C change = first,      norm change - P Cᵀ turn = second,
    # with C the columns and P the part of a row's summand perpendicular to y.
    def project(v: Array) -> Array:
        return v - dual * _summand_sum(same, dual * v)

    def residual(turn: Array, change: Array) -> tuple[Array, Array]:
        dx = d_x + jnp.sum(columns * turn[:, None], axis=0)
        first = jnp.sum(tangents * d_reach, axis=-1) - curvature * turn
        return first - jnp.sum(columns * change, axis=-1), project(dx) - norm * change

    # Kinks have a norm near zero. They are solved with a larger one instead, and refined.
    length = jnp.maximum(norm, 1e-6 if double else 2e-3)
    matrix = _made_positive(_curvature(columns, dual, dual, length, same, curvature), 1e-6)
    turn, change = jnp.zeros_like(normal, shape=2), jnp.zeros_like(dual)
    for _ in range(REFINEMENTS):
        first, second = residual(turn, change)
        step = _solve2(matrix, first - jnp.sum(columns * second / length, axis=-1))
        turn = turn + step
        change = change + (second + project(jnp.sum(columns * step[:, None], axis=0))) / length

    held = _is_degenerate(columns, norm, 1e-6 if double else 1e-3)
    change = jnp.where(held, 0.0, change)
    return Optimum(dot(normal, d_reach) - dot(x, change), jnp.sum(tangents * turn[:, None], axis=0), change)


def _is_degenerate(columns: Array, norm: Array, least: float) -> Array:
    """Whether the rows with A n = 0 are linearly dependent on the tangent plane."""
    active = ((norm < least) & (columns != 0).any(0)).astype(columns.dtype)
    c = columns / jnp.maximum(jnp.sqrt(jnp.sum(columns**2, axis=0)), 1e-6) * active
    count = jnp.sum(active)
    spread = jnp.sum(c[0] ** 2) * jnp.sum(c[1] ** 2) - jnp.sum(c[0] * c[1]) ** 2
    return (count > 2.5) | ((count > 1.5) & (spread < 1e-6))


@jax.custom_jvp
def _known_optimum(same: Array, problem: Problem, known: Optimum) -> Optimum:
    """The same where it is known already."""
    return known


@_known_optimum.defjvp
def _differentiate_known_optimum(primals, tangents):
    same, problem, known = primals
    return known, _change(problem, same.astype(known.dual.dtype), known, tangents[1])


def recalled(body_a: Body, body_b: Body, a: Shape, b: Shape, hit: Hit) -> Optimum:
    """The optimum of a contact (unbatched) between witness points: since the rows of a shape are perpendicular, a
    point on it says its duals.
    """
    normal, depth = hit.normal, 0.5 * hit.distance * hit.normal

    def dual(body: Body, shape: Shape, from_centre: Array) -> Array:
        rows = body.rows(shape)
        square = dot(rows, rows)
        return dot(rows, from_centre - body.radius(shape) * normal) / jnp.where(square > 0, square, 1.0)

    # the second shape reaches against the normal
    duals = dual(body_a, a, hit.point - depth - a.pos), dual(body_b, b, b.pos - hit.point - depth)
    value = (hit.distance + body_a.radius(a) + body_b.radius(b)) / (jnp.sum(a.size) + jnp.sum(b.size))
    return Optimum(value, normal, jnp.concatenate(duals))


def witness(body_a: Body, body_b: Body, a: Shape, b: Shape, known: Optimum | None = None) -> Witness:
    """Signed distance, normal and witness points of two convex shapes; known: the optimum, where it has been found."""
    rows_a, rows_b, same = body_a.rows(a), body_b.rows(b), _both(body_a.same, body_b.same)
    scale = lax.stop_gradient(jnp.sum(a.size) + jnp.sum(b.size))
    problem = Problem((b.pos - a.pos) / scale, jnp.concatenate([rows_a, rows_b]) / scale)
    if known is None:
        axes = lax.stop_gradient(jnp.concatenate([a.mat.T, b.mat.T]))
        best = _optimum(same, problem, _starts(lax.stop_gradient(problem), same.astype(axes.dtype), axes))
    else:
        best = _known_optimum(same, problem, known)

    radius_a, radius_b, k = body_a.radius(a), body_b.radius(b), len(rows_a)
    point_a = a.pos + radius_a * best.normal + jnp.sum(rows_a * best.dual[:k, None], axis=0)
    point_b = b.pos - radius_b * best.normal - jnp.sum(rows_b * best.dual[k:, None], axis=0)
    return Witness(scale * best.value - radius_a - radius_b, best.normal, point_a, point_b)


LONG = 4.0  # of edges that stand for a plane, a line or a point


def witness_of_corners(body: Body, a: Shape, corners: Array, hint: Array) -> Witness:
    """Of a convex shape without a ball and the flat that goes through corners (3, 3), some of which may be the same.

    hint: (3,) the normal, roughly.
    """
    rows_a, rows_b = body.rows(a), LONG * (corners[1:] - corners[0])
    scale = lax.stop_gradient(jnp.sum(a.size) + jnp.sqrt(dot(rows_b, rows_b)).sum())
    problem = Problem((corners[0] - a.pos) / scale, jnp.concatenate([rows_a, rows_b]) / scale)
    best = _optimum(_both(body.same, np.eye(2, dtype=bool)), problem, lax.stop_gradient(hint)[None])
    k = len(rows_a)
    point_a = a.pos + jnp.sum(rows_a * best.dual[:k, None], axis=0)
    point_b = corners[0] - jnp.sum(rows_b * best.dual[k:, None], axis=0)
    return Witness(scale * best.value, best.normal, point_a, point_b)
