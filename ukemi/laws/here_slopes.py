"""Derivatives that every law needs of where a step stands: of its contacts, and of its forces."""

import dataclasses
from functools import partial
from typing import cast

import jax
import jax.numpy as jnp
from jax import Array

from ukemi.collide.near import reach_of_pairs
from ukemi.collide.response import responses
from ukemi.collide.shapes import Shape, shapes_at
from ukemi.constraints.contact_slopes import Follow, still_groups
from ukemi.laws.here import Here, applied_apart
from ukemi.mechanics.force_slopes import ForceSlopes, force_pull, force_slopes, has_plain_forces
from ukemi.mechanics.kinematics import (
    Kinematics,
    carry,
    coordinate_rate,
    geom_frames,
)
from ukemi.model.records import Model
from ukemi.xla.batches import one_by_one


def following(here: Here, ahead: Array | None = None) -> Follow:
    """How the contacts follow the shapes that they are of."""
    layout, (reach, shapes) = here.model.pairs.layout, posed(here.model, here.kin, ahead)
    G = one_by_one(partial(responses, layout, False, still_groups(here.model)))(reach, shapes, here.contacts)
    geoms = jnp.asarray(layout.geoms)[here.contacts.pair]
    return Follow(G, shapes.pos[geoms] - here.kin.ref[0])


def posed(model: Model, kin: Kinematics, ahead: Array | None) -> tuple[Array, Shape]:
    """The distance (pairs,) up to which pairs touch [m], and all shapes in the world."""
    margin, gap = reach_of_pairs(model)
    reach = margin + gap if ahead is None else margin + gap + ahead
    return reach, shapes_at(model.geoms, *geom_frames(model, kin))


def applies_plain_forces(here: Here) -> bool:
    """Whether slopes of τ have a closed form."""
    return has_plain_forces(here.model) and here.inputs.xfrc is None


def applied_slopes(here: Here) -> ForceSlopes:
    """Slopes of τ but adhesion, in closed form where its forces have one."""
    if not applies_plain_forces(here):
        return columns_of(applied_apart, here)
    ctrl = cast(Array, here.inputs.ctrl)
    return force_slopes(here.model, here.kin, here.q, here.v, here.act, ctrl, here.tendons)


def applied_pull(here: Here, w: Array) -> ForceSlopes:
    """wᵀ times those in closed form."""
    ctrl = cast(Array, here.inputs.ctrl)
    return force_pull(here.model, here.kin, here.q, here.v, here.act, ctrl, w, here.tendons)


def columns_of(function, here: Here) -> ForceSlopes:
    """Jacobians of a function of `here` by AD, in position, velocity, activation and control."""
    moved, start = moving(function, here)
    return ForceSlopes(*jax.jacfwd(moved, argnums=(0, 1, 2, 3))(*start))


def moving(function, here: Here):
    """`function` of a change of position (tangent space), of velocity, activation and control, and of more; and where
    these are.
    """

    def moved(shift, v, act, ctrl, *more):
        kin = jax.tree.map(jnp.add, here.kin, carry(here.model, here.kin, shift))
        q = here.q + coordinate_rate(here.model.tree, here.q, shift)
        inputs = dataclasses.replace(here.inputs, ctrl=ctrl)
        return function(here.at(kin, q=q, v=v, act=act, inputs=inputs), *more)

    return moved, (jnp.zeros_like(here.v), here.v, here.act, cast(Array, here.inputs.ctrl))
