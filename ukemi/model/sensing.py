"""The sensors of a file: what each reads, of what, and where its readings stand."""

import dataclasses

import equinox as eqx
import numpy as np
from jax import Array
from jaxtyping import Float

from ukemi.model.tree import Static


class Sensors(eqx.Module):
    """Sensors; they read a motion and never change it."""

    cutoff: Float[Array, " nsen"]  # largest reading, 0 for any; of distances: from which on they are not measured [m]
    noise: Float[Array, " nsen"]  # standard deviation that the file states; nothing adds it
    magnetic: Float[Array, " 3"]  # magnetic flux, in the world
    layout: "SensorLayout" = eqx.field(static=True)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SensorLayout(Static):
    """Types and objects of the sensors, in the file's order."""

    type: tuple[str, ...]  # MuJoCo's words: touch, framepos, geomdist, ...
    kind: tuple[str, ...]  # of the object: body (its centre of mass), xbody (its frame), geom, site, joint, actuator
    index: np.ndarray  # (n,) of the object among its kind, -1 where there is none
    reference_kind: tuple[str, ...]  # of the second object or reference frame
    reference: np.ndarray  # (n,)
    spec: np.ndarray  # (n, 2) of contacts and rangefinders: which data, as bits; how contacts are reduced
    dim: np.ndarray  # (n,) numbers that each reads
    data: tuple[str, ...]  # real, positive, axis or quaternion: what the cutoff may cut
    names: tuple[str, ...]
    unread: tuple[str, ...]  # why a sensor cannot be read, empty where it can
    opaque: np.ndarray  # (ng,) bool: geoms that stop the rays of rangefinders
