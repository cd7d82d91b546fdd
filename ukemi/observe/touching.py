"""Sensors of contacts: what presses on a site's zone, and lists of contacts of a length that is known before."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ukemi.collide.detect import Contacts
from ukemi.collide.near import reach_of_pairs
from ukemi.constraints.contacts import contact_lever
from ukemi.maths import spatial
from ukemi.observe.scene import Scene
from ukemi.observe.zones import first_meeting, inside

FIELDS = {  # what a contact sensor may tell, in the order of its bits, and how long each is
    "found": 1, "force": 3, "torque": 3, "dist": 1, "pos": 3, "normal": 3, "tangent": 3, "linvel": 3, "angvel": 3,
}  # fmt: skip
ANY, NEAREST, STRONGEST, TOTAL = range(4)  # how contacts are reduced to those that are told
TINY = 1e-15


def touch(scene: Scene, rows: np.ndarray) -> Array:
    """Sum of the normal forces on a site's body whose lines of action meet the site's zone."""
    at, sites = scene.objects(rows), scene.model.sites
    if not scene.model.pairs.layout.groups:
        return jnp.zeros((len(rows), 1), scene.state.q.dtype)
    contacts, pressed = scene.loads.contacts, scene.contact_force[:, 0]
    bodies = jnp.asarray(scene.model.geoms.layout.body[scene.model.pairs.layout.geoms])[contacts.pair]
    out = []
    for k, row in enumerate(rows):
        site, body = int(scene.layout.index[row]), int(at.body[k])
        kind, size, second = sites.layout.type[site], sites.size[site], bodies[:, 1] == body
        ray = jnp.where(second[:, None], -contacts.frame[:, 0], contacts.frame[:, 0])
        p, u = (spatial.apply(at.mat[k].T, x) for x in (contacts.point - at.pos[k], ray))

        def met(p, u, kind=kind, size=size):
            return first_meeting(kind, size, p, u).x

        reached = jnp.isfinite(jax.vmap(met)(p, u))
        own = second | (bodies[:, 0] == body)
        out.append(jnp.where(own & reached & (pressed > 0), pressed, 0.0).sum()[None])
    return jnp.stack(out)


# ---- lists of contacts -------------------------------------------------------------------------------------------


def fields_of(spec: int) -> list[str]:
    """What a contact sensor tells."""
    return [name for bit, name in enumerate(FIELDS) if spec >> bit & 1]


def needs_forces(spec: int, reduction: int) -> bool:
    """Whether a contact sensor has to know forces."""
    return bool({"force", "torque"} & set(fields_of(spec))) or reduction in (STRONGEST, TOTAL)


def contact(scene: Scene, rows: np.ndarray) -> list[Array]:
    """The contacts between the objects of each sensor."""
    return [_told(scene, int(row)) for row in rows]


def _told(scene: Scene, row: int) -> Array:
    spec, reduction = (int(x) for x in scene.layout.spec[row])
    names, dim = fields_of(spec), int(scene.layout.dim[row])
    width = sum(FIELDS[name] for name in names)
    slots = dim // width
    if not scene.model.pairs.layout.groups:
        return jnp.zeros(dim, scene.state.q.dtype)
    forces = needs_forces(spec, reduction)
    contacts = scene.loads.contacts if forces else scene.contacts
    sign = _matched(scene, row, contacts, forces)
    count = (sign != 0).sum().astype(contacts.distance.dtype)
    if reduction == TOTAL:
        told = _total(scene, contacts, sign, count)
        one = jnp.concatenate([told[name] for name in names])
        return jnp.concatenate([jnp.where(count > 0, one, one * 0), jnp.zeros(dim - width, one.dtype)])
    place = _order(scene, contacts, sign, reduction)[:slots]
    told = _each(scene, contacts, sign, count, names)
    table = jnp.concatenate([told[name] for name in names], -1)[place]
    table = jnp.where((sign != 0)[place][:, None], table, 0.0).reshape(-1)
    return jnp.pad(table, (0, dim - len(table)))


def _matched(scene: Scene, row: int, contacts: Contacts, forces: bool) -> Array:
    """Which contacts (nc,) a sensor is about: 1 as they are, −1 the other way round, 0 not."""
    model, layout = scene.model, scene.layout
    geoms = model.pairs.layout.geoms
    of_pairs = _direction(scene, row, geoms, model.geoms.layout.body[geoms])
    margin, gap = reach_of_pairs(model)
    known = contacts.distance < (margin + gap)[contacts.pair]
    if forces:  # laws of impulses see what closes within the step
        known = known | (scene.contact_force[:, 0] > 0)
    if layout.kind[row] == "site":
        at, sites, site = scene.objects(np.array([row])), model.sites, int(layout.index[row])
        local = spatial.apply(at.mat[0].T, contacts.point - at.pos[0])
        known = known & inside(sites.layout.type[site], sites.size[site], local)
    return jnp.where(known, jnp.asarray(of_pairs)[contacts.pair], 0)


def _direction(scene: Scene, row: int, geoms: np.ndarray, bodies: np.ndarray) -> np.ndarray:
    """The same of pairs (n, 2): the normal points from a sensor's first object to its second."""
    layout, within = scene.layout, scene.model.tree.within
    kinds, ids = (layout.kind[row], layout.reference_kind[row]), (layout.index[row], layout.reference[row])

    def match(kind: str, index: int) -> np.ndarray:
        if kind == "geom":
            return geoms == index
        if kind == "body":
            return bodies == index
        return within[bodies, index] if kind == "xbody" else np.ones(geoms.shape, bool)

    first, second = (match(kind, int(k)) for kind, k in zip(kinds, ids, strict=True))
    found = first.any(1) & second.any(1)
    regular, reverse = first[:, 0] & second[:, 1], first[:, 1] & second[:, 0]
    if kinds[0] and kinds[1]:
        sign = np.where(regular, 1, np.where(reverse, -1, 0))
    elif kinds[0]:
        sign = np.where(first[:, 0], 1, -1)
    else:
        sign = np.where(second[:, 1], 1, -1)
    return np.where(found, sign, 0).astype(np.int32)


def _order(scene: Scene, contacts: Contacts, sign: Array, reduction: int) -> Array:
    """Places (nc,) of the contacts in the order in which they are told; those that do not match come last."""
    layout, owners = scene.model.pairs.layout, scene.model.geoms.layout.body
    bodies = np.sort(owners[layout.geoms], 1)
    rank = np.lexsort((*np.sort(layout.geoms, 1).T[::-1], *bodies.T[::-1])).argsort()
    own = contacts.which, jnp.asarray(rank)[contacts.pair]  # MuJoCo's order: by bodies, then by geoms
    worth = jnp.zeros_like(contacts.distance)
    if reduction == NEAREST:
        worth = contacts.distance
    elif reduction == STRONGEST:
        worth = -(scene.contact_force**2).sum(-1)
    return jnp.lexsort((*own, jax.lax.stop_gradient(worth), sign == 0))


def _each(scene: Scene, contacts: Contacts, sign: Array, count: Array, names: list[str]) -> dict[str, Array]:
    """What is told (nc, size) of each contact, by name; turned round, the second tangent stays."""
    flip, rest = jnp.where(sign < 0, -1.0, 1.0)[:, None], jnp.ones((len(sign), 2))
    last = jnp.concatenate([rest, flip], -1)
    told = {
        "found": jnp.broadcast_to(count, (len(sign), 1)),
        "dist": contacts.distance[:, None],
        "pos": contacts.point,
        "normal": flip * contacts.frame[:, 0],
        "tangent": flip * contacts.frame[:, 1],
    }
    if {"force", "torque"} & set(names):
        told |= {"force": last * scene.contact_force[:, :3], "torque": last * scene.contact_force[:, 3:]}
    if {"linvel", "angvel"} & set(names):
        moving = contact_lever(scene.model, scene.kin, contacts, 6).motion(scene.state.v)
        told |= {"linvel": last * moving[:, :3], "angvel": last * moving[:, 3:]}
    return told


def _total(scene: Scene, contacts: Contacts, sign: Array, count: Array) -> dict[str, Array]:
    """All contacts as one, in world axes, at the mean of their points weighted by their forces."""
    local = scene.contact_force * sign[:, None]
    push, twist = (spatial.apply(contacts.frame.mT, part) for part in (local[:, :3], local[:, 3:]))
    weight = spatial.safe_norm(local[:, :3])
    point = (weight[:, None] * jnp.where((sign != 0)[:, None], contacts.point, 0.0)).sum(0)
    point = point / jnp.maximum(weight.sum(), TINY)
    axes = jnp.eye(3, dtype=push.dtype)
    return {
        "found": count[None],
        "force": push.sum(0),
        "torque": (twist + spatial.cross(contacts.point - point, push)).sum(0),
        "dist": jnp.zeros(1, push.dtype),
        "pos": point,
        "normal": axes[0],
        "tangent": axes[1],
    }
