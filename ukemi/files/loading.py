"""Robot file -> Model. MuJoCo's compiler parses and checks the file; everything after that is ours."""

import jax
import mujoco
import numpy as np

from ukemi import values
from ukemi.collide.kinds import OTHER
from ukemi.errors import ModelFileError, UnsupportedModelError
from ukemi.files import heights, pairs, sensing, solids
from ukemi.files.actuators import actuators, delays, servos
from ukemi.files.decomposing import CONCAVITY, decomposed
from ukemi.files.leaves import leaf
from ukemi.files.limits import limit_rows
from ukemi.files.looks import looks
from ukemi.files.ranges import meaningless
from ukemi.files.source import parse
from ukemi.files.support import STEP_FLAGS, unsupported
from ukemi.files.tendons import tendons
from ukemi.model import geoms as geoms_
from ukemi.model import records
from ukemi.model import tree as tree_

INTEGRATORS = {0: "Euler", 1: "RK4", 2: "implicit", 3: "implicitfast"}
SOLVERS = {0: "PGS", 1: "CG", 2: "Newton"}
CONES = {0: "pyramidal", 1: "elliptic"}
EQUALITIES = {
    int(mujoco.mjtEq.mjEQ_CONNECT): "connect",
    int(mujoco.mjtEq.mjEQ_WELD): "weld",
    int(mujoco.mjtEq.mjEQ_JOINT): "joint",
    int(mujoco.mjtEq.mjEQ_TENDON): "tendon",
}

SAME = mujoco.mjtSameFrame
UPRIGHT = np.array([1.0, 0, 0, 0])


@jax.ensure_compile_time_eval()  # a model that is loaded within a traced function may outlive it
def load(source, *, contacts: int | None = None, decompose: bool | float = False) -> records.Model:
    """Load a robot; whatever would change its motion and is not supported is refused by name, all at once.

    Args:
        source: MJCF or URDF path, XML text, `mujoco.MjModel`, `mujoco.MjSpec`, or the name of a built-in model.
        contacts: how many contact points a step can hold, instead of the number derived from the model; when more
            arise, the nearest are kept and the overflow bit of `State.status` is set.
        decompose: split colliding meshes that are not convex into convex parts, which are kept in the folder of
            `enable_cache`; a number is how far parts may be from convex, as a share of the mesh's size (0.05 if True).
            It needs the extra `ukemi[decompose]`. Left out, meshes collide by their convex hulls.

    Raises:
        ModelFileError: the file is missing or malformed, or holds values that mean nothing.
        InputError: an argument means nothing, or an extra that it needs is not installed.
        UnsupportedModelError: it holds elements that would change the motion and are not supported.
    """
    if contacts is not None:
        values.check_count("load", "contacts", contacts)
    m, spec = parse(source)
    if decompose is not False:
        concavity = CONCAVITY if decompose is True else decompose
        values.check_number("load", "decompose", concavity, lambda x: 0.01 <= x <= 1, "must be between 0.01 and 1")
        m, spec = decomposed(m, spec, float(concavity), _title(m))
    elements = unsupported(m)
    if elements:
        raise UnsupportedModelError(elements, source=_title(m))
    wrong = meaningless(m)
    if wrong:
        raise ModelFileError(f"{_title(m)} holds values that mean nothing; correct them:\n  - " + "\n  - ".join(wrong))
    types = pairs.kinds_of(m)
    layout, corners = pairs.build(m, types, contacts)
    density, inferred = solids.densities(m, spec, types)
    return records.Model(
        bodies=_bodies(m, inferred),
        joints=_joints(m),
        geoms=_geoms(m, types, density, corners),
        heights=heights.build(m, types, _names(m)("hfield", m.nhfield)),
        sites=_sites(m),
        pairs=_pairs(m, layout),
        equalities=_equalities(m),
        tendons=tendons(m, _names(m)("tendon", m.ntendon)),
        actuators=actuators(m, _names(m)("actuator", m.nactuator)),
        servos=servos(m),
        delays=delays(m),
        options=_options(m),
        keyframes=_keyframes(m, delays(m).layout.size),
        sensors=sensing.build(m, _names(m)("sensor", m.nsensor)),
        tree=tree_.build(m, _names(m)),
        name=_title(m),
    )


def _i(x):
    return np.array(x, np.int32)


def _b(x):
    return np.array(x, bool)


def _title(m) -> str:
    return m.names[: m.names.index(b"\0")].decode() or "model"


def _names(m):
    """Names of the elements of a kind; nameless ones are numbered."""

    def names(kind: str, n: int) -> tuple[str, ...]:
        code = getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}")
        return tuple(mujoco.mj_id2name(m, code, k) or f"{kind}{k}" for k in range(n))

    return names


def _bodies(m, inferred) -> records.Bodies:
    layout = records.BodyLayout(
        compensated=bool(np.any(m.body_gravcomp > 0)),  # else MuJoCo does not look at it
        free=_free_bodies(m),
        inferred=inferred,
        sliding=np.array(m.body_simple == 2) & (m.body_dofnum > 0),
    )
    ipos, iquat = _inertial_frames(m)
    return records.Bodies(
        pos=leaf(m.body_pos),
        quat=leaf(m.body_quat),
        ipos=leaf(ipos),
        iquat=leaf(iquat),
        mass=leaf(m.body_mass),
        inertia=leaf(m.body_inertia),
        products=leaf(np.zeros((m.nbody, 3))),
        gravcomp=leaf(m.body_gravcomp),
        invweight=leaf(m.body_invweight0),
        layout=layout,
    )


def _inertial_frames(m) -> tuple[np.ndarray, np.ndarray]:
    """Centres of mass (nb, 3) and principal axes (nb, 4) in their bodies, where MuJoCo has them."""
    same = m.body_sameframe[:, None]
    ipos = np.where(same == SAME.mjSAMEFRAME_BODY, 0.0, m.body_ipos)
    return ipos, np.where(np.isin(same, (SAME.mjSAMEFRAME_BODY, SAME.mjSAMEFRAME_BODYROT)), UPRIGHT, m.body_iquat)


def _frames(m, same, body, pos, quat) -> tuple[np.ndarray, np.ndarray]:
    """Places (n, 3) and orientations (n, 4) of frames in their bodies, where MuJoCo has them.

    Frames that agree to about 1e-6 with the body's own, or with that of its inertia, are the same one to MuJoCo.
    """
    (ipos, iquat), same = _inertial_frames(m), np.asarray(same)[:, None]
    own, own_axes = same == SAME.mjSAMEFRAME_BODY, same == SAME.mjSAMEFRAME_BODYROT
    inner, inner_axes = same == SAME.mjSAMEFRAME_INERTIA, same == SAME.mjSAMEFRAME_INERTIAROT
    pos = np.where(own, 0.0, np.where(inner, ipos[body], pos))
    return pos, np.where(own | own_axes, UPRIGHT, np.where(inner | inner_axes, iquat[body], quat))


def _free_bodies(m) -> np.ndarray:
    """Bodies that float alone: one free joint, no other joint in the tree."""
    alone = [
        m.body_jntnum[b] == 1 and m.jnt_type[m.body_jntadr[b]] == tree_.FREE and m.tree_dofnum[m.body_treeid[b]] == 6
        for b in range(m.nbody)
    ]
    return np.nonzero(alone)[0].astype(np.int32)


def _joints(m) -> records.Joints:
    sprung = (np.array(m.jnt_stiffness) != 0) | np.any(m.jnt_stiffnesspoly, axis=1)
    layout = records.JointLayout(
        limit_rows=limit_rows(m.jnt_limited, m.jnt_range, m.jnt_margin, m.jnt_type == tree_.BALL),
        force_limited=_b(m.jnt_actfrclimited),
        actuated_gravcomp=_b(m.jnt_actgravcomp),
        dry=np.nonzero(m.dof_frictionloss)[0].astype(np.int32),
        springs=bool(sprung.any()),
        turning_springs=bool(sprung[np.isin(m.jnt_type, (tree_.BALL, tree_.FREE))].any()),
        stiffening=bool(np.any(m.jnt_stiffnesspoly)),
        plastic=_yielding(m),
        damped=bool(np.any(m.dof_damping) or np.any(m.dof_dampingpoly)),
        thickening=bool(np.any(m.dof_dampingpoly)),
        # MuJoCo looks for positive coefficients, and for actuators that may bring some
        slowed=bool(np.any(m.dof_damping > 0) or np.any(m.dof_dampingpoly) or np.any(m.jnt_actuatorid != -1)),
    )
    return records.Joints(
        pos=leaf(m.jnt_pos),
        axis=leaf(m.jnt_axis),
        qpos0=leaf(m.qpos0),
        qpos_spring=leaf(m.qpos_spring),
        stiffness=leaf(m.jnt_stiffness),
        stiffness_poly=leaf(m.jnt_stiffnesspoly),
        springyield=leaf(m.jnt_springyield),
        damping=leaf(m.dof_damping),
        damping_poly=leaf(m.dof_dampingpoly),
        armature=leaf(m.dof_armature),
        frictionloss=leaf(m.dof_frictionloss),
        invweight=leaf(m.dof_invweight0),
        range=leaf(m.jnt_range),
        margin=leaf(m.jnt_margin),
        solref_limit=leaf(m.jnt_solref),
        solimp_limit=leaf(m.jnt_solimp),
        solref_friction=leaf(m.dof_solref),
        solimp_friction=leaf(m.dof_solimp),
        actuator_range=leaf(m.jnt_actfrcrange),
        layout=layout,
    )


def _yielding(m) -> np.ndarray:
    """(nq,) where MuJoCo keeps the rest of each coordinate's spring, -1 of springs that do not yield."""
    out = np.full(m.nq, -1, np.int32)
    for j in np.flatnonzero(m.jnt_plasticadr >= 0):
        n = 4 if m.jnt_type[j] == tree_.BALL else 1
        out[m.jnt_qposadr[j] + np.arange(n)] = m.jnt_plasticadr[j] + np.arange(n)
    return out


def _geoms(m, types, density, corners) -> geoms_.Geoms:
    layout = geoms_.GeomLayout(
        type=types,
        body=_i(m.geom_bodyid),
        condim=_i(m.geom_condim),
        priority=_i(m.geom_priority),
        ellipsoids=_i(np.flatnonzero(m.geom_fluid[:, 0] > 0)),
        conveys=bool(m.geom_surfacevel.any()),
        looks=looks(m),
        names=_names(m)("geom", m.ngeom),
    )
    pos, quat = _frames(m, m.geom_sameframe, m.geom_bodyid, m.geom_pos, m.geom_quat)
    scaled = pairs.scaled(types)[:, None]
    return geoms_.Geoms(
        pos=leaf(pos),
        quat=leaf(quat),
        size=leaf(np.where(scaled, 1.0, heights.sizes(m, types))),
        vertices=leaf(corners),
        density=leaf(density),
        friction=leaf(m.geom_friction),
        restitution=leaf(_restitution(m, mujoco.mjtObj.mjOBJ_GEOM, m.ngeom)),
        fluid=leaf(m.geom_fluid[:, 1:6]),
        fluid_axes=leaf(np.where(scaled, m.geom_size, 0.0)),
        fluid_inertia=leaf(np.concatenate([m.geom_fluid[:, 9:], m.geom_fluid[:, 6:9]], -1)),
        solref=leaf(m.geom_solref),
        solimp=leaf(m.geom_solimp),
        solmix=leaf(m.geom_solmix),
        margin=leaf(m.geom_margin),
        gap=leaf(m.geom_gap),
        adhesion=leaf(m.geom_adhesion),
        surface_velocity=leaf(m.geom_surfacevel),
        layout=layout,
    )


def _sites(m) -> records.Sites:
    kinds = tuple(pairs.MUJOCO_KINDS.get(kind, OTHER.name) for kind in m.site_type.tolist())
    layout = records.SiteLayout(body=_i(m.site_bodyid), type=kinds, names=_names(m)("site", m.nsite))
    pos, quat = _frames(m, m.site_sameframe, m.site_bodyid, m.site_pos, m.site_quat)
    return records.Sites(pos=leaf(pos), quat=leaf(quat), size=leaf(m.site_size), layout=layout)


def _pairs(m, layout) -> records.Pairs:
    listed = {
        "friction": m.pair_friction,
        "restitution": _restitution(m, mujoco.mjtObj.mjOBJ_PAIR, m.npair),
        "solref": m.pair_solref,
        "solref_friction": m.pair_solreffriction,
        "solimp": m.pair_solimp,
        "margin": m.pair_margin,
        "gap": m.pair_gap,
        "adhesion": m.pair_adhesion,
    }
    if m.opt.enableflags & mujoco.mjtEnableBit.mjENBL_OVERRIDE:
        layout, listed = pairs.overridden(m, layout, listed, _restitution(m, mujoco.mjtObj.mjOBJ_GEOM, m.ngeom))
    return records.Pairs(**{name: leaf(value) for name, value in listed.items()}, layout=layout)


def _restitution(m, kind, n: int) -> np.ndarray:
    """Restitution of geoms or pairs (n,): MJCF has no attribute for it, so the file says it in its <custom> section.

    <numeric name="restitution"> is that of all; <tuple name="restitution"> lists objects with their own as `prm`.
    """
    out = np.zeros(n)
    number = mujoco.mj_name2id(m, mujoco.mjtObj.mjOBJ_NUMERIC, "restitution")
    if number >= 0:
        out[:] = m.numeric_data[m.numeric_adr[number]]
    listed = mujoco.mj_name2id(m, mujoco.mjtObj.mjOBJ_TUPLE, "restitution")
    if listed >= 0:
        entries = m.tuple_adr[listed] + np.arange(m.tuple_size[listed])
        entries = entries[np.array(m.tuple_objtype)[entries] == int(kind)]
        out[np.array(m.tuple_objid)[entries]] = np.array(m.tuple_objprm)[entries]
    wrong = ~((out >= 0) & (out <= 1))
    if wrong.any():
        k, word = int(np.argmax(wrong)), mujoco.mju_type2Str(kind)
        name = _names(m)(word, n)[k]
        raise ModelFileError(f"{word} '{name}': its restitution is {out[k]:g}; <custom> must give 0 to 1")
    return out


def _equalities(m) -> records.Equalities:
    on = np.nonzero(m.eq_active0)[0]  # constraints switched off in the file never act
    layout = records.EqualityLayout(
        type=tuple(EQUALITIES[int(m.eq_type[k])] for k in on),
        objects=np.stack([_i(m.eq_obj1id[on]), _i(m.eq_obj2id[on])], -1),
        sites=_b(m.eq_objtype[on] == mujoco.mjtObj.mjOBJ_SITE),
        names=tuple(_names(m)("equality", m.neq)[k] for k in on),
    )
    return records.Equalities(
        data=leaf(m.eq_data[on][:, :11]), solref=leaf(m.eq_solref[on]), solimp=leaf(m.eq_solimp[on]), layout=layout
    )


def _options(m) -> records.Options:
    bits = {flag.name.removeprefix("mjDSBL_").lower(): int(flag.value) for flag in _flags(mujoco.mjtDisableBit)}
    layout = records.OptionLayout(
        integrator=INTEGRATORS[int(m.opt.integrator)],
        solver=SOLVERS[int(m.opt.solver)],
        cone=CONES[int(m.opt.cone)],
        iterations=int(m.opt.iterations),
        line_search_iterations=int(m.opt.ls_iterations),
        noslip=_noslip(m),
        fluid=bool(m.opt.density or m.opt.viscosity),
        disabled=tuple(sorted(name for name, bit in bits.items() if m.opt.disableflags & bit and bit in STEP_FLAGS)),
    )
    return records.Options(
        timestep=leaf(m.opt.timestep),
        gravity=leaf(m.opt.gravity),
        impratio=leaf(m.opt.impratio),
        density=leaf(m.opt.density),
        viscosity=leaf(m.opt.viscosity),
        wind=leaf(m.opt.wind),
        layout=layout,
    )


def _noslip(m) -> tuple[int, float]:
    """Sweeps, and the gain at which they end: of the inertia, so that only files that ask for sweeps have one."""
    sweeps = int(m.opt.noslip_iterations)
    return sweeps, float(m.opt.noslip_tolerance * m.stat.meaninertia * max(1, m.nv)) if sweeps > 0 else 0.0


def _flags(enum):
    return [v for v in enum.__members__.values() if "NUM" not in v.name and not v.name.startswith("mjN")]


def _keyframes(m, past: int) -> records.Keyframes:
    """Stored configurations, in whose past (nk, past) all controls were zero."""
    return records.Keyframes(
        q=leaf(m.key_qpos),
        v=leaf(m.key_qvel),
        act=leaf(np.concatenate([np.pad(m.key_act, ((0, 0), (0, past))), m.key_plastic], 1)),
        ctrl=leaf(m.key_ctrl),
        mocap_pos=leaf(np.reshape(m.key_mpos, (m.nkey, m.nmocap, 3))),
        mocap_quat=leaf(np.reshape(m.key_mquat, (m.nkey, m.nmocap, 4))),
        time=leaf(m.key_time),
        names=_names(m)("key", m.nkey),
    )
