"""Static topology of a model: joint blocks, ancestor masks, jump tables (docs/architecture.md: tree algebra).

Everything here is NumPy, fixed at load, hashable by content, and never differentiated.
"""

import dataclasses
import functools
import hashlib

import numpy as np

FREE, BALL, SLIDE, HINGE = range(4)  # MuJoCo's joint types
DOFS = {FREE: 6, BALL: 3, SLIDE: 1, HINGE: 1}


@dataclasses.dataclass(frozen=True, eq=False)
class Static:
    """Immutable record of arrays and plain values, equal and hashable by content, so that jit caches hit."""

    @property
    def _digest(self) -> bytes:
        cached = self.__dict__.get("_digest_value")
        if cached is None:
            h = hashlib.sha256(type(self).__name__.encode())
            for field in dataclasses.fields(self):
                value = getattr(self, field.name)
                if isinstance(value, np.ndarray):
                    h.update(f"{field.name}{value.shape}{value.dtype}".encode() + value.tobytes())
                else:
                    h.update(f"{field.name}{value!r}".encode())
            cached = h.digest()
            object.__setattr__(self, "_digest_value", cached)
        return cached

    def __hash__(self):
        return int.from_bytes(self._digest[:8], "little")

    def __eq__(self, other):
        return type(self) is type(other) and self._digest == other._digest

    def __repr__(self):
        return f"{type(self).__name__}({self._digest[:12].hex()})"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Tree(Static):
    """Bodies, joints and degrees of freedom, and how motion passes from one to another.

    For dofs i, j: `anc[i, j]` = the joint of j is the joint of i or above it, all-to-all inside one ball or
    translation block and sequential between the joints of one body; `strict` = the same without the own block.
    `moves[b, i]` = dof i moves body b. A free joint counts as a translation block followed by a ball block.
    """

    body_parent: np.ndarray  # (nb,)
    body_tree: np.ndarray  # (nb,) kinematic tree, 0 also for static bodies
    body_mocap: np.ndarray  # (nb,) index of the mocap pose, -1 for others
    jumps: np.ndarray  # (rounds, nb) ancestor 1, 2, 4, ... levels up
    joint_type: np.ndarray  # (nj,)
    joint_body: np.ndarray  # (nj,)
    joint_qpos: np.ndarray  # (nj,) first coordinate
    joint_dof: np.ndarray  # (nj,) first dof
    slots: np.ndarray  # (nb, K) joints of each body in order, -1 where there is none
    dof_joint: np.ndarray  # (nv,)
    dof_body: np.ndarray  # (nv,)
    dof_axis: np.ndarray  # (nv,) which of the joint's own dofs this is: 0..5
    anc: np.ndarray  # (nv, nv) 0/1
    strict: np.ndarray  # (nv, nv) 0/1
    moves: np.ndarray  # (nb, nv) 0/1
    joint_names: tuple[str, ...]
    body_names: tuple[str, ...]

    @property
    def nb(self) -> int:
        """Number of bodies, the world included."""
        return len(self.body_parent)

    @property
    def nj(self) -> int:
        """Number of joints."""
        return len(self.joint_type)

    @property
    def nv(self) -> int:
        """Number of degrees of freedom."""
        return len(self.dof_joint)

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return int(sum({FREE: 7, BALL: 4}.get(t, 1) for t in self.joint_type.tolist()))

    @property
    def ntree(self) -> int:
        """Number of kinematic trees, at least one."""
        return int(self.body_tree.max()) + 1

    @functools.cached_property
    def members(self) -> np.ndarray:
        """(ntree, nb) bool: moving bodies of each kinematic tree."""
        return (np.arange(self.ntree)[:, None] == self.body_tree) & np.asarray(self.moves.any(1))

    @functools.cached_property
    def dof_above(self) -> np.ndarray:
        """(nv,) last dof of the block above each dof's own, -1 at the root."""
        return np.array([max(np.nonzero(row)[0], default=-1) for row in self.strict], np.int32)

    @functools.cached_property
    def body_dof(self) -> np.ndarray:
        """(nb,) last dof that moves each body, -1 for static ones."""
        return np.array([max(np.nonzero(row)[0], default=-1) for row in self.moves], np.int32)

    @functools.cached_property
    def within(self) -> np.ndarray:
        """(nb, nb) bool: body b is body c or hangs on it."""
        out, up = np.eye(self.nb, dtype=bool), np.arange(self.nb)
        for _ in range(self.nb):
            up = self.body_parent[up]
            out[np.arange(self.nb), up] = True
        return out

    @property
    def quat_joints(self) -> np.ndarray:
        """Joints that hold a quaternion."""
        return np.nonzero((self.joint_type == FREE) | (self.joint_type == BALL))[0]

    @property
    def quat_qpos(self) -> np.ndarray:
        """(n, 4) coordinates of each quaternion."""
        j = self.quat_joints
        return (self.joint_qpos[j] + 3 * (self.joint_type[j] == FREE))[:, None] + np.arange(4)

    @property
    def quat_dof(self) -> np.ndarray:
        """(n, 3) rotational dofs of each quaternion."""
        j = self.quat_joints
        return (self.joint_dof[j] + 3 * (self.joint_type[j] == FREE))[:, None] + np.arange(3)

    @property
    def linear_qpos(self) -> np.ndarray:
        """Coordinates that are not part of a quaternion, in order of their dofs `linear_dof`."""
        return np.setdiff1d(np.arange(self.nq), self.quat_qpos.ravel())

    @property
    def linear_dof(self) -> np.ndarray:
        """Dofs that are not rotations of a quaternion."""
        return np.setdiff1d(np.arange(self.nv), self.quat_dof.ravel())


def build(m, names) -> Tree:
    """Topology of a compiled `mujoco.MjModel`; `names(kind, n)` lists the names of its elements."""
    nb, nv = m.nbody, m.nv
    parent = np.array(m.body_parentid, np.int32)
    body_anc = np.eye(nb, dtype=bool)
    depth = np.zeros(nb, int)
    for b in range(1, nb):
        body_anc[b] |= body_anc[parent[b]]
        depth[b] = depth[parent[b]] + 1
    jumps, up = [], parent
    for _ in range(int(np.ceil(np.log2(max(2, depth.max() + 1))))):
        jumps.append(up)
        up = up[up]
    width = max(1, int(m.body_jntnum.max(initial=0)))
    slots = np.full((nb, width), -1, np.int32)
    for j in range(m.njnt):
        b = m.jnt_bodyid[j]
        slots[b, j - m.body_jntadr[b]] = j

    joint = np.array(m.dof_jntid, np.int32)
    axis = np.arange(nv, dtype=np.int32) - m.jnt_dofadr[joint] if nv else np.zeros(0, np.int32)
    dof_anc = np.eye(nv, dtype=bool)
    for i in range(nv):
        if m.dof_parentid[i] >= 0:
            dof_anc[i] |= dof_anc[m.dof_parentid[i]]
    turns = np.array([m.jnt_type[j] == FREE and k >= 3 for j, k in zip(joint, axis, strict=True)], bool)
    same = (joint[:, None] == joint) & (turns[:, None] == turns)
    strict = dof_anc & ~same
    tree = np.array(m.body_treeid, np.int32)
    return Tree(
        body_parent=parent,
        body_tree=np.maximum(tree, 0),
        body_mocap=np.array(m.body_mocapid, np.int32),
        jumps=np.array(jumps, np.int32),
        joint_type=np.array(m.jnt_type, np.int32),
        joint_body=np.array(m.jnt_bodyid, np.int32),
        joint_qpos=np.array(m.jnt_qposadr, np.int32),
        joint_dof=np.array(m.jnt_dofadr, np.int32),
        slots=slots,
        dof_joint=joint,
        dof_body=np.array(m.dof_bodyid, np.int32),
        dof_axis=axis,
        anc=strict | same,
        strict=strict,
        moves=body_anc[:, m.dof_bodyid] if nv else np.zeros((nb, 0), bool),
        joint_names=names("joint", m.njnt),
        body_names=names("body", nb),
    )
