"""The sensors of a compiled model. One that cannot be read is loaded all the same, with the reason why not."""

import mujoco
import numpy as np

from ukemi.collide.kinds import KINDS
from ukemi.collide.primitives import PRIMITIVE
from ukemi.files.leaves import leaf
from ukemi.files.pairs import kinds_of
from ukemi.model.sensing import SensorLayout, Sensors

# Every type that `ukemi.observe.sensors` reads.
READ = frozenset(
    "touch accelerometer velocimeter gyro force torque magnetometer rangefinder "
    "jointpos jointvel actuatorpos actuatorvel actuatorfrc jointactfrc ballquat ballangvel "
    "jointlimitpos jointlimitvel jointlimitfrc "
    "tendonpos tendonvel tendonactfrc tendonlimitpos tendonlimitvel tendonlimitfrc "
    "framepos framequat framexaxis frameyaxis framezaxis framelinvel frameangvel framelinacc frameangacc "
    "subtreecom subtreelinvel subtreeangmom insidesite geomdist geomnormal geomfromto contact "
    "e_potential e_kinetic clock".split()
)
REASONS = {  # of types that are not read
    "camprojection": "cameras are not part of the model",
    "tactile": "meshes have no depth to measure",
    "plugin": "plugins are not run",
    "user": "it is a callback",
}


def build(m: mujoco.MjModel, names: tuple[str, ...]) -> Sensors:
    """The sensors of a model."""
    kinds, opaque = kinds_of(m), _opaque(m)
    layout = SensorLayout(
        type=tuple(_type(m, i) for i in range(m.nsensor)),
        kind=tuple(_object(kind) for kind in m.sensor_objtype.tolist()),
        index=np.array(m.sensor_objid, np.int32),
        reference_kind=tuple(_object(kind) for kind in m.sensor_reftype.tolist()),
        reference=np.array(m.sensor_refid, np.int32),
        spec=np.array(m.sensor_intprm[:, :2], np.int32).reshape(-1, 2),
        dim=np.array(m.sensor_dim, np.int32),
        data=tuple(_word(mujoco.mjtDataType, "mjDATATYPE_", data) for data in m.sensor_datatype.tolist()),
        names=names,
        unread=tuple(_why_not(m, i, kinds, opaque) for i in range(m.nsensor)),
        opaque=opaque,
    )
    return Sensors(leaf(m.sensor_cutoff), leaf(m.sensor_noise), leaf(m.opt.magnetic), layout)


def unread(m: mujoco.MjModel) -> list[str]:
    """Every sensor that cannot be read, by name, and why."""
    kinds, opaque = kinds_of(m), _opaque(m)
    found = [(mujoco.mj_id2name(m, mujoco.mjtObj.mjOBJ_SENSOR, i), i) for i in range(m.nsensor)]
    lines = [(f"'{name}'" if name else str(i), _why_not(m, i, kinds, opaque)) for name, i in found]
    return [f"sensor {name}: {why}" for name, why in lines if why]


def _word(enum: type, prefix: str, value: int) -> str:
    return enum(value).name.removeprefix(prefix).lower()


def _type(m: mujoco.MjModel, i: int) -> str:
    return _word(mujoco.mjtSensor, "mjSENS_", int(m.sensor_type[i]))


def _object(kind: int) -> str:
    return "" if kind == mujoco.mjtObj.mjOBJ_UNKNOWN else _word(mujoco.mjtObj, "mjOBJ_", kind)


def _opaque(m: mujoco.MjModel) -> np.ndarray:
    """Which geoms (ngeom,) rays meet: all that are not invisible, by themselves or by their material."""
    alpha = np.array(m.geom_rgba[:, 3])
    drawn = m.geom_matid >= 0
    alpha[drawn] = m.mat_rgba[m.geom_matid[drawn], 3]
    return alpha != 0


def _why_not(m: mujoco.MjModel, i: int, kinds: tuple[str, ...], opaque: np.ndarray) -> str:
    """Why a sensor cannot be read, empty where it can."""
    kind = _type(m, i)
    if kind not in READ:
        return f"type '{kind}': {REASONS.get(kind, 'not known here')}"
    if mujoco.mjtObj.mjOBJ_CAMERA in (m.sensor_objtype[i], m.sensor_reftype[i]):
        return f"type '{kind}' of a camera: cameras are not part of the model"
    if m.sensor_delay[i] or m.sensor_interval[i, 0]:
        return "delay or interval: readings are not remembered from step to step"
    solid = np.isin(kinds, list(PRIMITIVE))  # what a ray may meet, and what has a distance
    if kind == "rangefinder":
        solid |= np.array([KINDS[name].ground for name in kinds], bool)
        body = m.site_bodyid[m.sensor_objid[i]]
        met = opaque & (m.geom_bodyid != body)
    elif kind in ("geomdist", "geomnormal", "geomfromto"):
        met = _geoms_of(m, m.sensor_objtype[i], m.sensor_objid[i])
        met = met | _geoms_of(m, m.sensor_reftype[i], m.sensor_refid[i])
    else:
        return ""
    odd = np.flatnonzero(met & ~solid)
    if not len(odd):
        return ""
    name = mujoco.mj_id2name(m, mujoco.mjtObj.mjOBJ_GEOM, int(odd[0])) or str(odd[0])
    return f"type '{kind}': geom '{name}' is a mesh, a height field or the like"


def _geoms_of(m: mujoco.MjModel, kind: int, index: int) -> np.ndarray:
    """Which geoms (ngeom,) an object has: itself, or those of the body that it is."""
    return np.arange(m.ngeom) == index if kind == mujoco.mjtObj.mjOBJ_GEOM else m.geom_bodyid == index
