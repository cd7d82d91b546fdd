"""What a robot is (`Model`), where it is (`State`) and what acts on it (`Input`).

Every array leaf of a `Model` is a physical parameter that may be replaced or differentiated; topology and
choices that change the program live in the static `layout` records. Units are SI; angles are radians.
"""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int32

from ukemi import values
from ukemi.model.actuators import Actuators
from ukemi.model.delays import Delays
from ukemi.model.geoms import Geoms
from ukemi.model.heights import Heights
from ukemi.model.hulls import Hulls
from ukemi.model.sensing import Sensors
from ukemi.model.servos import Servos
from ukemi.model.tendons import Tendons
from ukemi.model.tree import Static, Tree


class Bodies(eqx.Module):
    """Rigid bodies; index 0 is the world."""

    pos: Float[Array, "nb 3"]  # position of the frame in the parent's [m]
    quat: Float[Array, "nb 4"]  # orientation of the frame in the parent's
    ipos: Float[Array, "nb 3"]  # centre of mass in the body frame [m]
    iquat: Float[Array, "nb 4"]  # axes of the inertia in the body frame, the principal ones at load
    mass: Float[Array, " nb"]  # [kg]
    inertia: Float[Array, "nb 3"]  # moments along the axes of iquat [kg m²]
    products: Float[Array, "nb 3"]  # off-diagonal moments xy, xz, yz in those axes, zero at load [kg m²]
    gravcomp: Float[Array, " nb"]  # share of the weight held up, 1 = weightless
    invweight: Float[Array, "nb 2"]  # inverse weight at qpos0, translation [1/kg] and rotation [1/(kg m²)]
    layout: "BodyLayout" = eqx.field(static=True)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class BodyLayout(Static):
    """Static facts of the bodies."""

    compensated: bool  # some body has gravity compensation
    free: np.ndarray  # bodies that are a kinematic tree of their own on a free joint
    inferred: np.ndarray  # (nb,) bool: `refresh` computes mass and inertia from the geoms
    sliding: np.ndarray  # (nb,) bool: moves by slides along its own axes alone, which fixes the inverse weight


class Joints(eqx.Module):
    """Joints; fields of shape (nv,) are per degree of freedom."""

    pos: Float[Array, "nj 3"]  # anchor in the body frame [m]
    axis: Float[Array, "nj 3"]  # unit axis of hinge and slide in the body frame
    qpos0: Float[Array, " nq"]  # configuration in which the model is defined
    qpos_spring: Float[Array, " nq"]  # configuration in which springs are at rest
    stiffness: Float[Array, " nj"]  # [N/m] or [N m/rad]
    stiffness_poly: Float[Array, "nj 2"]  # and what it grows by, per stretch and per stretch squared
    springyield: Float[Array, " nj"]  # stretch that a spring bears which yields [m] or [rad]
    damping: Float[Array, " nv"]  # [N s/m] or [N m s/rad]
    damping_poly: Float[Array, "nv 2"]  # and what it grows by, per speed and per speed squared
    armature: Float[Array, " nv"]  # reflected inertia [kg] or [kg m²]
    frictionloss: Float[Array, " nv"]  # dry friction [N] or [N m]
    invweight: Float[Array, " nv"]  # diagonal of M⁻¹ at qpos0, averaged over each joint
    range: Float[Array, "nj 2"]  # [m] or [rad]
    margin: Float[Array, " nj"]  # distance at which a limit awakes [m] or [rad]
    solref_limit: Float[Array, "nj 2"]
    solimp_limit: Float[Array, "nj 5"]
    solref_friction: Float[Array, "nv 2"]
    solimp_friction: Float[Array, "nv 5"]
    actuator_range: Float[Array, "nj 2"]  # limit of the total actuator force [N] or [N m]
    layout: "JointLayout" = eqx.field(static=True)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class JointLayout(Static):
    """Which joints and dofs need work in a step."""

    limit_rows: np.ndarray  # (n, 2) joint and side (−1 lower, 1 upper, 0 the nearer) of each limit
    force_limited: np.ndarray  # (nj,) bool: actuator_range applies
    actuated_gravcomp: np.ndarray  # (nj,) bool: gravity compensation counts as actuator force
    dry: np.ndarray  # dofs with friction loss
    springs: bool
    turning_springs: bool  # springs of rotations: of ball and free joints
    stiffening: bool  # some stiffness grows with stretch
    plastic: np.ndarray  # (nq,) place of each coordinate of rest among what yields, -1 of springs that do not
    damped: bool
    thickening: bool  # some damping grows with speed
    slowed: bool  # some joint damps, without which Euler takes no damping implicitly, as MuJoCo


class Sites(eqx.Module):
    """Frames fixed to bodies."""

    pos: Float[Array, "ns 3"]
    quat: Float[Array, "ns 4"]
    size: Float[Array, "ns 3"]  # of the zone that sensors look at, by its type as of geoms [m]
    layout: "SiteLayout" = eqx.field(static=True)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SiteLayout(Static):
    """Owners, zones and names of the sites."""

    body: np.ndarray  # (ns,)
    type: tuple[str, ...]  # shape of the zone, a kind of geoms
    names: tuple[str, ...]


class Pairs(eqx.Module):
    """Contact parameters of explicitly listed pairs, and the list of all pairs that may collide."""

    friction: Float[Array, "np 5"]  # sliding 2, torsional, rolling 2
    restitution: Float[Array, " np"]  # of rigid contact laws, 0 to 1
    solref: Float[Array, "np 2"]
    solref_friction: Float[Array, "np 2"]
    solimp: Float[Array, "np 5"]
    margin: Float[Array, " np"]  # [m]
    gap: Float[Array, " np"]  # [m]
    adhesion: Float[Array, " np"]  # by which contacts may pull [N]
    layout: "PairLayout" = eqx.field(static=True)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PairLayout(Static):
    """Pairs of geoms that may collide, grouped by the types of their shapes."""

    groups: tuple["PairGroup", ...]
    capacity: int  # contacts kept per step
    dim: int  # largest contact dimension: 1, 3, 4 or 6
    hulls: Hulls
    adheres: bool  # the file gives some geom or pair an adhesion: without, no contact pulls
    smoothing: float = 0.0  # width of `uk.smooth_collisions`, 0 for MuJoCo's cases [m]
    # Where there are so many pairs that not each is looked at, and else empty: (ng,) geoms of one owner never touch.
    owner: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int32))
    always: int = 0  # groups in front of the others whose pairs are looked at all the same

    @property
    def many(self) -> bool:
        """Whether pairs that may be near are listed first."""
        return len(self.owner) > 0

    @functools.cached_property
    def geoms(self) -> np.ndarray:
        """(n, 2) geoms of every pair, group after group."""
        return np.concatenate([np.zeros((0, 2), np.int32), *(g.geoms for g in self.groups)])

    @functools.cached_property
    def first(self) -> list[int]:
        """First pair of every group, and their number."""
        return np.cumsum([0, *(len(g.geoms) for g in self.groups)]).tolist()

    @functools.cached_property
    def table(self) -> np.ndarray:
        """(ng, ng) the pair of any two geoms, -1 where they never touch, or are looked at always."""
        n, start = len(self.hulls.of), self.first[self.always]
        table = np.full((n, n), -1, np.int32)
        (a, b), pairs = self.geoms[start:].T, np.arange(start, len(self.geoms))
        table[a, b] = table[b, a] = pairs
        return table

    @functools.cached_property
    def explicit(self) -> np.ndarray:
        """(n,) row of `Pairs` of every pair, -1 for pairs found by the filters."""
        return np.concatenate([np.zeros(0, np.int32), *(g.explicit for g in self.groups)])

    @functools.cached_property
    def condim(self) -> np.ndarray:
        """(n,) contact dimension of every pair."""
        return np.concatenate([np.zeros(0, np.int32), *(g.condim for g in self.groups)])


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PairGroup(Static):
    """Pairs of geoms of the same two types, examined together."""

    types: tuple[str, str]
    geoms: np.ndarray  # (n, 2)
    explicit: np.ndarray  # (n,) row of `Pairs`, -1 for pairs found by the filters
    condim: np.ndarray  # (n,)
    slots: int  # pairs of this group examined in detail per step
    cells: tuple[int, int] = (0, 0)  # rows and columns of a height field beneath the second shape, at the most


class Equalities(eqx.Module):
    """Equality constraints."""

    data: Float[Array, "ne 11"]  # MuJoCo's meaning by type: anchors, relative pose, torque scale; or coefficients
    solref: Float[Array, "ne 2"]
    solimp: Float[Array, "ne 5"]
    layout: "EqualityLayout" = eqx.field(static=True)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class EqualityLayout(Static):
    """Types and objects of the equality constraints."""

    type: tuple[str, ...]  # connect, weld, joint or tendon
    objects: np.ndarray  # (ne, 2) bodies, sites, joints or tendons; -1 where there is none
    sites: np.ndarray  # (ne,) bool: the objects are sites
    names: tuple[str, ...]


class Options(eqx.Module):
    """World parameters and the file's own choice of solver."""

    timestep: Float[Array, ""]  # [s]
    gravity: Float[Array, " 3"]  # [m/s²]
    impratio: Float[Array, ""]  # ratio of frictional to normal impedance
    density: Float[Array, ""]  # of the fluid around the bodies [kg/m³]
    viscosity: Float[Array, ""]  # of the fluid [Pa s]
    wind: Float[Array, " 3"]  # velocity of the fluid [m/s]
    layout: "OptionLayout" = eqx.field(static=True)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class OptionLayout(Static):
    """The file's choices that change the program."""

    integrator: str  # Euler, implicitfast, implicit, RK4
    solver: str  # Newton, CG, PGS
    cone: str  # pyramidal, elliptic
    iterations: int
    line_search_iterations: int
    noslip: tuple[int, float]  # sweeps of the soft law over friction, and the gain [N m/s²] below which they end
    fluid: bool  # the file gives the fluid density or viscosity: without, there is none to feel
    disabled: tuple[str, ...]  # sorted names of disabled stages of a step, as in the file's <flag>

    def __repr__(self):
        return f"OptionLayout({self.integrator}, {self.solver}, {self.cone}, {self.disabled})"


class Keyframes(eqx.Module):
    """Stored configurations."""

    q: Float[Array, "nk nq"]
    v: Float[Array, "nk nv"]
    act: Float[Array, "nk na"]
    ctrl: Float[Array, "nk nu"]
    mocap_pos: Float[Array, "nk nm 3"]
    mocap_quat: Float[Array, "nk nm 4"]
    time: Float[Array, " nk"]
    names: tuple[str, ...] = eqx.field(static=True)


class Model(eqx.Module):
    """A robot and its world: a pytree of physical parameters over a static topology."""

    bodies: Bodies
    joints: Joints
    geoms: Geoms
    heights: Heights
    sites: Sites
    pairs: Pairs
    equalities: Equalities
    tendons: Tendons
    actuators: Actuators
    servos: Servos
    delays: Delays
    options: Options
    keyframes: Keyframes
    sensors: Sensors
    tree: Tree = eqx.field(static=True)
    name: str = eqx.field(static=True)  # the file's own name of the model

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return self.joints.qpos0.shape[-1]

    @property
    def nv(self) -> int:
        """Number of degrees of freedom."""
        return self.tree.nv

    @property
    def nu(self) -> int:
        """Number of controls."""
        return len(self.actuators.layout.ctrl_limited)

    @property
    def na(self) -> int:
        """Number of activation states, past controls that are to act yet and rests of plastic springs among them."""
        return len(self.actuators.layout.owner) + self.delays.layout.size + self.nplastic

    @property
    def nplastic(self) -> int:
        """Number of coordinates and lengths where springs rest that yield."""
        return int((self.joints.layout.plastic >= 0).sum() + (self.tendons.layout.plastic >= 0).sum())

    @property
    def nmocap(self) -> int:
        """Number of motion-capture bodies."""
        return int((self.tree.body_mocap >= 0).sum())

    def __repr__(self):
        return f"Model({self.name!r}: {self.tree.nb - 1} bodies, nq={self.nq}, nv={self.nv}, nu={self.nu})"


class Cache(eqx.Module):
    """What a step leaves for the next; it never changes what the next converges to."""

    acceleration: Float[Array, " nv"]  # of the last step: where solvers start
    iterations: Int32[Array, ""]  # of the solver in the last step
    laws: dict[str, Any]  # what each law remembers of its own, by name; see `laws.memory`


class State(eqx.Module):
    """Where the robot is; MuJoCo's layout of coordinates."""

    q: Float[Array, " nq"]  # positions; quaternions w x y z
    v: Float[Array, " nv"]  # velocities; a free joint's linear part in the world, angular part in the body
    act: Float[Array, " na"]  # activations, past controls of actuators with a delay, rests of springs that yield
    time: Float[Array, ""]  # [s]
    status: Int32[Array, ""]  # bit mask of failures, accumulates
    cache: Cache


class Input(eqx.Module):
    """What acts on the robot when more than controls do; a field left out is zero (poses: as in the file)."""

    ctrl: Float[Array, " nu"] | None = None  # controls; most actuators have one
    qfrc: Float[Array, " nv"] | None = None  # generalised force [N] or [N m]
    xfrc: Float[Array, "nb 6"] | None = None  # force [N], then torque [N m], at each centre of mass, world axes
    mocap_pos: Float[Array, "nm 3"] | None = None  # [m]
    mocap_quat: Float[Array, "nm 4"] | None = None  # w x y z


def input_shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """Shapes of the fields of an `Input`."""
    return {
        "ctrl": (model.nu,),
        "qfrc": (model.nv,),
        "xfrc": (model.tree.nb, 6),
        "mocap_pos": (model.nmocap, 3),
        "mocap_quat": (model.nmocap, 4),
    }


def as_input(model: Model, ctrl, *, over_time: bool = False) -> Input:
    """Check `ctrl` (array, None or Input) against the model and return it as an Input.

    over_time: its arrays lead with T time steps.
    """
    given = vars(ctrl) if isinstance(ctrl, Input) else {"ctrl": ctrl}
    dtype = model.options.timestep.dtype
    checked: dict[str, Array | None] = {}
    for name, shape in input_shapes(model).items():
        value = given.get(name)
        if value is not None:
            value = values.array(name, value, dtype)
            values.check_shape(name, value.shape, ("T", *shape) if over_time else shape, model)
            if name == "mocap_quat":
                values.check_turns(value, lambda k: f"mocap_quat[{k}]")
        elif name == "ctrl" and not over_time:
            value = jnp.zeros(shape, dtype)
        checked[name] = value
    return Input(**checked)
