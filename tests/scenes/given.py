"""MuJoCo's forward dynamics and next state with Ukemi's contacts in place of its own.

Where a pair of shapes is searched for what touches, MuJoCo's normals are off by the root of its tolerance, and stiff
contacts make of that a next state from which nothing can be told of the rest of a step. So both get the same contacts.
"""

import collections
import copy

import mujoco
import numpy as np

import ukemi as uk
from ukemi.collide.near import reach_of_pairs

TOLERANCE = 1e-6  # of MuJoCo's distances [m]

_ADVANCE = {
    mujoco.mjtIntegrator.mjINT_EULER: mujoco.mj_Euler,
    mujoco.mjtIntegrator.mjINT_IMPLICIT: mujoco.mj_implicit,
    mujoco.mjtIntegrator.mjINT_IMPLICITFAST: mujoco.mj_implicit,
}


class Giver:
    """Gives contacts of a model to MuJoCo."""

    def __init__(self, m: mujoco.MjModel, model: uk.Model):
        self.m = m
        self.geoms = np.asarray(model.pairs.layout.geoms).reshape(-1, 2)
        self.reach = sum(np.asarray(x) for x in reach_of_pairs(model, np.arange(len(self.geoms))))
        # below these distances it is no matter of tolerance whether a pair is a contact
        self.nearer = dict(zip(map(tuple, self.geoms.tolist()), self.reach - TOLERANCE, strict=True))

    def can(self) -> bool:
        """Whether a step detects contacts but once."""
        return self.m.opt.integrator in _ADVANCE

    def forward(self, d: mujoco.MjData, contacts) -> bool:
        """Forward dynamics of d, whose positions are up to date; false where MuJoCo has no contact of some pair that
        Ukemi has one of, so that what else it says of the pair is not known, or the other way round.
        """
        m, own = self.m, {}
        for contact in d.contact:
            own.setdefault(tuple(contact.geom), copy.copy(contact))
        near = np.flatnonzero(contacts.active | (contacts.distance < self.reach[contacts.pair]))
        found = collections.defaultdict(list)
        for i in near[np.argsort(contacts.which[near], kind="stable")]:
            found[tuple(self.geoms[contacts.pair[i]])].append(i)
        touching = {pair for pair, contact in own.items() if contact.dist < self.nearer[pair]}
        if not touching <= found.keys() <= own.keys():
            return False
        d.ncon = 0
        for pair, contact in own.items():  # in MuJoCo's order, which sweeps over friction go by
            for i in found.get(pair, ()):
                contact.dist, contact.pos[:], contact.frame[:] = (
                    contacts.distance[i], contacts.point[i], contacts.frame[i].ravel()
                )  # fmt: skip
                contact.exclude = int(not contacts.active[i])  # in the gap, where actuators may grip all the same
                if mujoco.mj_addContact(m, d, contact):
                    raise RuntimeError("MuJoCo has no room for a contact")
        mujoco.mj_makeConstraint(m, d)
        mujoco.mj_island(m, d)
        mujoco.mj_projectConstraint(m, d)
        mujoco.mj_transmission(m, d)  # of actuators that grip
        mujoco.mj_forwardSkip(m, d, mujoco.mjtStage.mjSTAGE_POS, 0)
        return True

    def advance(self, d: mujoco.MjData) -> None:
        """From forward dynamics to the next state."""
        _ADVANCE[mujoco.mjtIntegrator(self.m.opt.integrator)](self.m, d)
