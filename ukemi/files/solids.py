"""Bodies whose mass and inertia come from their shapes: solids of uniform density, as MuJoCo's compiler has them.

`composed` is the formula, for NumPy at load and for JAX afterwards; `densities` finds out at load which bodies obey
it. Second moments Σ = ∫ ρ x xᵀ dV add up and turn like Σ' = R Σ Rᵀ; the inertia is tr(Σ) 1 − Σ.
"""

from typing import NamedTuple

import mujoco
import numpy as np


class Solid(NamedTuple):
    """How one kind of shape is filled."""

    half: tuple[int, int, int]  # which sizes are the half axes
    volume: float  # over their product
    mean: tuple[float, float, float]  # square along each axis, over its half's square
    capped: bool = False  # with two half balls at its ends


_BALL, _ROD, _BRICK = (1 / 5, 1 / 5, 1 / 5), (1 / 4, 1 / 4, 1 / 3), (1 / 3, 1 / 3, 1 / 3)
_HOLLOW = Solid((0, 0, 0), 0.0, (0.0, 0.0, 0.0))  # no volume that is known here: bodies keep what the compiler found
# Of every kind of shape (`collide/kinds`).
SOLIDS = {
    "plane": _HOLLOW,
    "hfield": _HOLLOW,
    "sphere": Solid((0, 0, 0), 4 / 3 * np.pi, _BALL),
    "capsule": Solid((0, 0, 1), 2 * np.pi, _ROD, capped=True),
    "ellipsoid": Solid((0, 1, 2), 4 / 3 * np.pi, _BALL),
    "cylinder": Solid((0, 0, 1), 2 * np.pi, _ROD),
    "box": Solid((0, 1, 2), 8.0, _BRICK),
    "mesh": _HOLLOW,
    "other": _HOLLOW,
}
SMALL = 1e-14  # the compiler ignores volumes [m³] and masses [kg] below


def moments(types: tuple[str, ...], size):
    """Volume (ng,) [m³] and second moments of volume (ng, 3) [m⁵] of shapes about their centres, along their axes."""
    index, factor, mean, capped = (np.array(x) for x in zip(*(SOLIDS[t] for t in types), strict=True))
    factor, mean = factor.astype(size.dtype), mean.astype(size.dtype)
    half = size[np.arange(len(types))[:, None], index]
    core = factor * half[:, 0] * half[:, 1] * half[:, 2]
    # A capsule's caps are a ball, cut in two and moved apart along z.
    radius, reach = size[:, :1], size[:, 1:2]
    caps = capped.astype(size.dtype)[:, None] * (4 / 3 * np.pi) * radius**3
    along = np.array([0.0, 0.0, 1.0], size.dtype)
    spread = radius**2 / 5 + along * (reach**2 + 0.75 * reach * radius)
    return core + caps[:, 0], core[:, None] * mean * half**2 + caps * spread


def composed(types: tuple[str, ...], member: np.ndarray, size, pos, mat, density):
    """Mass (nb,), centre of mass (nb, 3) and second moments (nb, 3, 3) about it, in body axes, of composite bodies.

    types, member: kinds of the shapes, and their bodies as a 0/1 matrix (nb, ng); size (ng, 3) and pos (ng, 3) [m],
    mat (ng, 3, 3): rotations in the body frames; density (ng,) [kg/m³].
    """
    member = member.astype(size.dtype)
    volume, second = moments(types, size)
    part = density * volume
    mass = member @ part
    nothing = mass == 0
    center = (member @ (part[:, None] * pos)) / (mass + nothing)[:, None]
    arm = pos - member.T @ center
    own = (mat * (density[:, None] * second)[:, None, :])[:, :, None, :] * mat[:, None, :, :]
    total = own.sum(-1) + part[:, None, None] * arm[:, :, None] * arm[:, None, :]
    return mass, center, (member @ total.reshape(-1, 9)).reshape(-1, 3, 3)


def membership(body: np.ndarray, nb: int) -> np.ndarray:
    """0/1 matrix (nb, ng) of the shapes of each body."""
    return (np.arange(nb)[:, None] == body).astype(np.float64)


# ---- at load ---------------------------------------------------------------------------------------------------


def densities(m: mujoco.MjModel, spec: mujoco.MjSpec | None, types: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Density (ng,) [kg/m³] of the shapes that make up the mass of their bodies, and which bodies (nb,) those are.

    A body counts only if the formula above reproduces what the compiler made of it; without a `spec` nobody knows
    where a mass came from, and none does. A mass given for a geom, or for the whole model, counts as the density
    that it amounts to.
    """
    density, inferred = np.zeros(m.ngeom), np.zeros(m.nbody, bool)
    if spec is None or not m.ngeom:
        return density, inferred
    volume = moments(types, m.geom_size)[0]
    for geom in spec.geoms:
        low, high = geom.compiler.inertiagrouprange
        if low <= geom.group <= high and volume[geom.id] > SMALL:
            density[geom.id] = geom.density if np.isnan(geom.mass) else geom.mass / volume[geom.id]
    if spec.compiler.settotalmass > 0:
        mass = membership(m.geom_bodyid, m.nbody) @ (density * volume)
        density *= (m.body_mass / np.where(mass > 0, mass, 1.0))[m.geom_bodyid]
    for body in spec.bodies:
        inferred[body.id] = body.id > 0 and _left_to_shapes(body)
    inferred &= _agrees(m, types, density)
    return np.where(inferred[m.geom_bodyid], density, 0.0), inferred


def _left_to_shapes(body) -> bool:
    """Whether the file asks the compiler to compute the body's inertia from its shapes."""
    wanted, modes = int(body.compiler.inertiafromgeom), mujoco.mjtInertiaFromGeom
    if wanted == int(modes.mjINERTIAFROMGEOM_TRUE):
        return True
    given = body.explicitinertial or not np.isnan(body.ipos[0])
    return wanted == int(modes.mjINERTIAFROMGEOM_AUTO) and not given


def _agrees(m: mujoco.MjModel, types: tuple[str, ...], density: np.ndarray) -> np.ndarray:
    """Bodies (nb,) whose mass, centre of mass and inertia are those of their shapes to 1e-9."""
    mass, center, local = in_axes(types, m.geom_bodyid, m.geom_size, m.geom_pos, m.geom_quat, density, m.body_iquat)
    total = local.trace(axis1=1, axis2=2)
    inertia = total[:, None] - local.diagonal(axis1=1, axis2=2)
    reach = np.sqrt(total / np.where(mass > 0, mass, 1.0)) + np.linalg.norm(center, axis=1)
    close = np.abs(mass - m.body_mass) <= 1e-9 * mass
    close &= np.abs(center - m.body_ipos).max(1) <= 1e-9 * reach
    close &= np.abs(inertia - m.body_inertia).max(1) <= 1e-9 * total
    return close & (mass > SMALL) & is_diagonal(local)


def in_axes(types: tuple[str, ...], body: np.ndarray, size, pos, quat, density, axes):
    """`composed` in NumPy, with the second moments in the given axes (nb, 4) of each body."""
    member = membership(body, len(axes))
    mass, center, second = composed(types, member, size, pos, _matrices(quat), density)
    turn = _matrices(axes)
    return mass, center, turn.mT @ second @ turn


def is_diagonal(tensor: np.ndarray) -> np.ndarray:
    """Whether tensors (n, 3, 3) [kg m²] are diagonal as far as the compiler makes them so.

    Its Jacobi iteration stops at off-diagonal moments of 1e-12 kg m² or at turns of √2e-12 rad.
    """
    rest = np.abs(tensor * (1 - np.eye(3))).max((1, 2))
    return rest <= 1e-12 + 2e-6 * np.abs(tensor).max((1, 2))


def _matrices(quat: np.ndarray) -> np.ndarray:
    """Rotation matrices (n, 3, 3) in double precision, whatever JAX's is."""
    out = np.zeros((len(quat), 9))
    for row, q in zip(out, quat, strict=True):
        mujoco.mju_quat2Mat(row, q)
    return out.reshape(-1, 3, 3)
