"""What of a compiled model Ukemi simulates: everything that would change the motion and is not supported, by name.

Each `_…` function below looks after one kind of element and yields one sentence per offending element. A feature that
cannot change the motion of this very model (a mesh that collides with nothing, a tendon that exerts no force, an
inactive equality) is not refused; `ignored` lists it.
"""

from collections.abc import Collection, Iterator
from itertools import combinations_with_replacement

import mujoco
import numpy as np

from ukemi.collide.kinds import KINDS
from ukemi.collide.primitives import COLLIDING, PAIRS, POLYTOPES, PRIMITIVE, TOUCHING
from ukemi.files.pairs import kinds_of, scaled
from ukemi.files.sensing import unread

_Geom, _Trn, _Dyn = mujoco.mjtGeom, mujoco.mjtTrn, mujoco.mjtDyn
_Gain, _Bias, _Eq = mujoco.mjtGain, mujoco.mjtBias, mujoco.mjtEq
_Disable, _Enable, _Integrator = mujoco.mjtDisableBit, mujoco.mjtEnableBit, mujoco.mjtIntegrator


def _values(kind: type, prefix: str, names: str) -> frozenset[int]:
    """The numbers of MuJoCo enum members, which compare with the model's integer arrays; enum members do not."""
    return frozenset(int(getattr(kind, prefix + name)) for name in names.split())


TRANSMISSIONS = _values(_Trn, "mjTRN_", "JOINT JOINTINPARENT SITE TENDON SLIDERCRANK BODY SO3")
ACTIVATIONS = _values(_Dyn, "mjDYN_", "NONE INTEGRATOR FILTER FILTEREXACT MUSCLE DCMOTOR PID")
GAINS = _values(_Gain, "mjGAIN_", "FIXED AFFINE MUSCLE DCMOTOR PID SO3")
BIASES = _values(_Bias, "mjBIAS_", "NONE AFFINE MUSCLE DCMOTOR SO3")
EQUALITIES = _values(_Eq, "mjEQ_", "CONNECT WELD JOINT TENDON")
INTEGRATORS = _values(_Integrator, "mjINT_", "EULER RK4 IMPLICIT IMPLICITFAST")

# Disable flags that the engine honours, and those that select an algorithm and not the motion.
# What a step looks at, besides which pairs of geoms FILTERPARENT leaves.
STEP_FLAGS = _values(
    _Disable,
    "mjDSBL_",
    "CONSTRAINT EQUALITY FRICTIONLOSS LIMIT CONTACT SPRING DAMPER GRAVITY CLAMPCTRL WARMSTART ACTUATION "
    "REFSAFE EULERDAMP ISLAND",
)
_HONOURED = STEP_FLAGS | _values(_Disable, "mjDSBL_", "FILTERPARENT")
_HARMLESS = _values(_Disable, "mjDSBL_", "SENSOR MIDPHASE AUTORESET")
# These two change the contacts of pairs for which MuJoCo has no closed form, and nothing else.
_CONVEX_FLAGS = _values(_Disable, "mjDSBL_", "NATIVECCD MULTICCD")
_NO_PASSIVE = sum(_values(_Disable, "mjDSBL_", "SPRING DAMPER"))
_HONOURED_ENABLE = _values(_Enable, "mjENBL_", "OVERRIDE")
# fwdinv only records statistics; invdiscrete only reinterprets the input of inverse dynamics; ipc is a mode of flexes.
_HARMLESS_ENABLE = _values(_Enable, "mjENBL_", "ENERGY FWDINV INVDISCRETE IPC")
_REFUSED_ENABLE = {
    int(_Enable.mjENBL_SLEEP): "option flag 'sleep': bodies never sleep here",
    int(_Enable.mjENBL_DIAGEXACT): "option flag 'diagexact': constraint inertia is approximated body by body here",
    int(_Enable.mjENBL_SPECULATIVE): "option flag 'speculative' (speculative contacts)",
}


def unsupported(m: mujoco.MjModel) -> list[str]:
    """Every element that would change the motion and that Ukemi does not simulate, as "type 'name': reason"."""
    meeting = collision_candidates(m)
    finders = (_options, _actuators, _tendons, _equalities, _flexes, _plugins, _fluid)
    found = [line for finder in finders for line in finder(m)]
    return [*found, *_geoms(m, meeting), *_unknown_pairs(m, meeting), *_convex_flags(m, meeting)]


def ignored(m: mujoco.MjModel) -> list[str]:
    """What loads without having any effect in Ukemi: cameras, lights, visual-only meshes, sensors not read."""
    counts = {
        "camera": m.ncam,
        "light": m.nlight,
        "texture": m.ntex,
        "material": m.nmat,
        "skin": m.nskin,
        "custom text": m.ntext,
        "custom numeric": m.nnumeric - _gives_restitution(m, mujoco.mjtObj.mjOBJ_NUMERIC),
        "custom tuple": m.ntuple - _gives_restitution(m, mujoco.mjtObj.mjOBJ_TUPLE),
    }
    lines = [f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items() if count]
    visual = ~_is_kind(m, PRIMITIVE) & ~collision_candidates(m).any(axis=1)
    if visual.any():
        lines.append(f"{visual.sum()} visual-only geom{'' if visual.sum() == 1 else 's'} (meshes, height fields)")
    for i in range(m.neq):
        if m.eq_type[i] not in EQUALITIES and not m.eq_active0[i]:
            lines.append(f"{_name(m, 'equality', i)}: inactive")
    return lines + unread(m)


def _gives_restitution(m: mujoco.MjModel, kind) -> bool:
    return mujoco.mj_name2id(m, kind, "restitution") >= 0


def switched_off(m: mujoco.MjModel) -> np.ndarray:
    """Actuators (nu,) bool of groups that the file switches off; numbers that no bit stands for cannot be."""
    group = np.array(m.actuator_group)
    bit = 1 << np.clip(group, 0, 30)
    return (group >= 0) & (group <= 30) & ((m.opt.disableactuator & bit) != 0)


def collision_candidates(m: mujoco.MjModel) -> np.ndarray:
    """Which geoms may ever touch, by MuJoCo's static filters; bool, symmetric, (ngeom, ngeom)."""
    meet = np.zeros((m.ngeom, m.ngeom), bool)
    if m.opt.disableflags & (_Disable.mjDSBL_CONTACT | _Disable.mjDSBL_CONSTRAINT):
        return meet
    body = m.geom_bodyid
    weld = m.body_weldid[body]
    parent = m.body_weldid[m.body_parentid[weld]]
    fixed = m.body_dofnum[weld] == 0
    types, affinities = m.geom_contype, m.geom_conaffinity
    meet = (types[:, None] & affinities) != 0
    meet |= meet.T
    meet &= (weld[:, None] != weld) & ~(fixed[:, None] & fixed)
    if not m.opt.disableflags & _Disable.mjDSBL_FILTERPARENT:
        child = (weld[:, None] == parent) & (weld[:, None] != 0) & (weld != 0)
        meet &= ~(child | child.T)
    signature = (np.minimum(body[:, None], body) << 16) + np.maximum(body[:, None], body)
    meet &= ~np.isin(signature, m.exclude_signature)
    meet[m.pair_geom1, m.pair_geom2] = meet[m.pair_geom2, m.pair_geom1] = True
    # Planes and height fields do not collide with one another.
    flat = _is_kind(m, {kind.name for kind in KINDS.values() if kind.endless or kind.ground})
    return meet & ~(flat[:, None] & flat)


def _is_kind(m: mujoco.MjModel, names: Collection[str]) -> np.ndarray:
    return np.array([kind in names for kind in kinds_of(m)], bool)


def _name(m: mujoco.MjModel, kind: str, i: int) -> str:
    """ "kind 'name'", or the number of a nameless element."""
    name = mujoco.mj_id2name(m, getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}"), i)
    return f"{kind} '{name}'" if name else f"{kind} {i}"


def _enum(kind: type, value: int, prefix: str) -> str:
    """The XML word of a MuJoCo enum value."""
    try:
        return kind(value).name.removeprefix(prefix).lower()
    except ValueError:
        return str(value)


def _options(m: mujoco.MjModel) -> Iterator[str]:
    opt = m.opt
    if opt.integrator not in INTEGRATORS:
        yield f"option integrator '{_enum(_Integrator, opt.integrator, 'mjINT_')}'"
    unknown = opt.disableflags & ~sum(_HONOURED | _HARMLESS | _CONVEX_FLAGS)
    if unknown:
        yield f"option flag: unknown disable bits {unknown:#x}"
    if opt.disableflags & _NO_PASSIVE == _NO_PASSIVE and (m.geom_adhesion.any() or m.pair_adhesion.any()):
        yield "option flags 'spring' and 'damper' disabled: MuJoCo's adhesion then loses its pull and keeps its push"
    for bit, reason in _REFUSED_ENABLE.items():
        if opt.enableflags & bit:
            yield reason
    unknown = opt.enableflags & ~sum(_HONOURED_ENABLE | _HARMLESS_ENABLE | _REFUSED_ENABLE.keys())
    if unknown:
        yield f"option flag: unknown enable bits {unknown:#x}"


def _actuators(m: mujoco.MjModel) -> Iterator[str]:
    for i in range(m.nactuator):
        reasons = list(_actuator_types(m, i))
        if reasons:
            yield f"{_name(m, 'actuator', i)}: {', '.join(reasons)}"


def _actuator_types(m: mujoco.MjModel, i: int) -> Iterator[str]:
    if m.actuator_plugin[i] >= 0:
        yield "plugin"
        return  # its types say nothing
    if m.actuator_trntype[i] not in TRANSMISSIONS:
        yield f"transmission '{_enum(_Trn, m.actuator_trntype[i], 'mjTRN_')}'"
    if m.actuator_dyntype[i] not in ACTIVATIONS:
        yield f"dynamics type '{_enum(_Dyn, m.actuator_dyntype[i], 'mjDYN_')}'"
    if m.actuator_gaintype[i] not in GAINS:
        yield f"gain type '{_enum(_Gain, m.actuator_gaintype[i], 'mjGAIN_')}'"
    if m.actuator_biastype[i] not in BIASES:
        yield f"bias type '{_enum(_Bias, m.actuator_biastype[i], 'mjBIAS_')}'"
    motor = [
        int(kinds[i]) == int(number)
        for kinds, number in (
            (m.actuator_dyntype, _Dyn.mjDYN_DCMOTOR),
            (m.actuator_gaintype, _Gain.mjGAIN_DCMOTOR),
            (m.actuator_biastype, _Bias.mjBIAS_DCMOTOR),
        )
    ]
    if any(motor) and not all(motor):
        yield "a DC motor in parts: dynamics, gain and bias must all be 'dcmotor', or none of them"
    turned = m.actuator_gaintype[i] == int(_Gain.mjGAIN_SO3) and m.actuator_ctrlnum[i] == 4
    if turned and m.actuator_delay[i] > 0 and m.actuator_history[i, 1] > 0:
        yield "a quaternion that arrives late and interpolated, which MuJoCo makes otherwise: use interp='zoh'"


def _tendons(m: mujoco.MjModel) -> Iterator[str]:
    for i in range(m.ntendon):
        reasons = []
        if _branches(m, i) and (m.tendon_armature[i] or any(m.actuator_armature[_pulling(m, i)])):
            reasons.append("armature across branches of the tree, whose coupling MuJoCo leaves out of the mass matrix")
        if reasons:
            yield f"{_name(m, 'tendon', i)}: {', '.join(reasons)}"


def _pulling(m: mujoco.MjModel, tendon: int) -> np.ndarray:
    """Actuators of a tendon."""
    return np.flatnonzero((m.actuator_trntype == int(_Trn.mjTRN_TENDON)) & (m.actuator_trnid[:, 0] == tendon))


def _branches(m: mujoco.MjModel, tendon: int) -> bool:
    """Whether a tendon moves dofs of which neither is above the other."""
    first = m.ten_J_rowadr[tendon]
    dofs = sorted(m.ten_J_colind[first : first + m.ten_J_rownnz[tendon]].tolist(), reverse=True)
    if not dofs:
        return False
    above, at = set(), dofs[0]
    while at >= 0:
        above.add(at)
        at = int(m.dof_parentid[at])
    return not above.issuperset(dofs)


def _equalities(m: mujoco.MjModel) -> Iterator[str]:
    for i in range(m.neq):
        if m.eq_type[i] not in EQUALITIES and m.eq_active0[i]:
            yield f"{_name(m, 'equality', i)}: type '{_enum(_Eq, m.eq_type[i], 'mjEQ_')}'"


def _flexes(m: mujoco.MjModel) -> Iterator[str]:
    for i in range(m.nflex):
        yield f"{_name(m, 'flex', i)}: deformable body"


def _plugins(m: mujoco.MjModel) -> Iterator[str]:
    # Actuator and geom plugins are reported with their elements; sensor plugins do not change the motion.
    for i in np.flatnonzero(m.body_plugin >= 0).tolist():
        yield f"{_name(m, 'body', i)}: plugin"


def _fluid(m: mujoco.MjModel) -> Iterator[str]:
    # Files say 0 or 1; of other numbers MuJoCo's force and its slope do not belong together.
    if m.nv and (m.opt.density or m.opt.viscosity):
        for i in np.flatnonzero((m.geom_fluid[:, 0] != 0) & (m.geom_fluid[:, 0] != 1)).tolist():
            yield f"{_name(m, 'geom', i)}: interaction with the fluid of {m.geom_fluid[i, 0]:g}, neither 0 nor 1"


def _geoms(m: mujoco.MjModel, meeting: np.ndarray) -> Iterator[str]:
    words = {"sdf": "signed distance field"}
    alone, of_mesh = ~_is_kind(m, COLLIDING), scaled(kinds_of(m))
    for i in np.flatnonzero(meeting.any(axis=1)).tolist():
        name = _name(m, "geom", i)
        if alone[i]:
            word = _enum(_Geom, m.geom_type[i], "mjGEOM_")
            yield f"{name}: {words.get(word, word)} that may collide"
        elif of_mesh[i] and m.mesh_graphadr[m.geom_dataid[i]] < 0:
            yield f"{name}: mesh without a convex hull"


def _unknown_pairs(m: mujoco.MjModel, meeting: np.ndarray) -> Iterator[str]:
    """Pairs that may touch, of kinds of shapes that collide, but not with each other."""
    for a, b in combinations_with_replacement([kind for kind in KINDS if kind in COLLIDING], 2):
        if (a, b) not in TOUCHING:
            for i, j in np.argwhere(_met(m, meeting, a, b)).tolist():
                yield f"{_name(m, 'geom', i)}: {a} that may collide with {b} of {_name(m, 'geom', j)}"


def _met(m: mujoco.MjModel, meeting: np.ndarray, a: str, b: str) -> np.ndarray:
    """Which geoms (ngeom, ngeom) of two kinds may touch, one of the first with one of the second."""
    return meeting & _is_kind(m, {a})[:, None] & _is_kind(m, {b})


def _convex_flags(m: mujoco.MjModel, meeting: np.ndarray) -> Iterator[str]:
    """Flags of MuJoCo's general convex routine, where a pair that feels them may touch."""
    felt = {pair: routine.points for pair, routine in PAIRS.items() if not routine.exact}
    felt |= {pair: points for pair, points in POLYTOPES.items() if not KINDS[pair[0]].endless}
    general = [pair for pair in felt if _met(m, meeting, *pair).any()]
    several = [pair for pair in general if felt[pair] > 1]
    for bit, pairs in (("NATIVECCD", general), ("MULTICCD", several)):
        if m.opt.disableflags & getattr(_Disable, f"mjDSBL_{bit}") and pairs:
            which = ", ".join(f"{a} and {b}" for a, b in pairs)
            yield f"option flag '{bit.lower()}' disabled: changes the contacts of {which}"
