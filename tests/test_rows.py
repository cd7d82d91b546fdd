"""The table of constraint rows: what each kind says of itself holds at states of a model that has them all."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.derivatives import quick
from ukemi.constraints.block import Frame, Side
from ukemi.constraints.rows import KINDS, constant_dofs, present, row_kinds, row_matrix, scalar_blocks, trees_of_rows
from ukemi.laws.here import frame_of, here_of
from ukemi.mechanics.kinematics import integrate
from ukemi.model.records import as_input

# two trees and a third body that nothing couples with them; every kind of row
ALL = """<mujoco><option{option}/><default><geom contype="0" conaffinity="0"/></default><worldbody>
  <body><joint name="a" axis="1 2 3" limited="true" range="-20 20" frictionloss=".1"/><geom size=".1"/>
    <body name="b" pos=".4 0 0"><joint type="ball" limited="true" range="0 30"/><geom size=".1"/>
      <site name="s" pos=".1 .2 .1"/></body>
  </body>
  <body name="c" pos="0 1 0"><joint name="d" type="slide" axis="1 0 0" frictionloss=".2"/><geom size=".1"/>
    <body name="e" pos="0 .3 0"><joint name="f" axis="1 -1 1"/><geom size=".1"/>
      <site name="t" pos=".1 .1 .2"/></body></body>
  <body pos="3 0 0"><freejoint/><geom size=".1"/></body></worldbody>
  <tendon>{tendons}<fixed name="sum"><joint joint="a" coef="2"/><joint joint="d" coef=".5"/></fixed></tendon>
  <equality>{equalities}</equality></mujoco>"""
TENDONS = """<spatial limited="true" range=".1 9" frictionloss=".3"><site site="s"/><site site="t"/></spatial>"""
EQUALITIES = """<tendon tendon1="sum"/><connect site1="s" site2="t"/><weld body1="b"/><joint joint1="a" joint2="d"/>
  <joint joint1="f"/>"""


def frame_at(model: uk.Model, seed: int) -> Frame:
    rng = np.random.default_rng(seed)
    q = integrate(model.tree, model.joints.qpos0, jnp.asarray(rng.normal(size=model.nv)), 0.3)
    state = uk.initial_state(model, q=q, v=rng.normal(size=model.nv))
    return frame_of(here_of(model, state, as_input(model, None)))


@pytest.fixture(scope="module")
def model() -> uk.Model:
    return uk.load(ALL.format(option="", equalities=EQUALITIES, tendons=TENDONS))


def test_every_kind_is_there_and_sides_come_in_order(model):
    found = [kind for kind, _ in present(model)]
    assert found == list(KINDS)
    order = [list(Side).index(kind.side) for kind in found]
    assert order == sorted(order)
    kinds = row_kinds(model)
    assert (kinds.hold, kinds.rub, kinds.push) == (3 + 6 + 2 + 1, 3, 3) and kinds.total == 18


def test_rows_move_what_they_say_and_touch_the_trees_that_they_say(model):
    frame = frame_at(model, 0)
    blocks, moves = scalar_blocks(frame), np.concatenate([moves for _, moves in present(model)])
    assert [block.side for block in blocks] == [kind.side for kind, _ in present(model)]
    J = np.asarray(row_matrix(frame, row_kinds(model), blocks))
    assert np.abs(J[~moves]).max() == 0 and (np.abs(J).max(1) > 1e-3).all()
    trees = trees_of_rows(model)
    of_dof = model.tree.body_tree[model.tree.dof_body]
    touched = np.stack([(np.abs(J[:, of_dof == k]) > 0).any(1) for k in range(model.tree.ntree)], 1)
    assert not (touched & ~trees).any() and trees[:3, :2].all() and not trees[:, 2].any()


@pytest.mark.parametrize("together", [False, True])
def test_rows_are_the_slope_of_what_they_hold(model, together):
    """Of points that drifted apart, too, whether they act where they are or together."""
    at = frame_at(model, 1)

    def rows(shift):
        q = integrate(model.tree, at.q, shift, 1.0)
        here = here_of(model, uk.initial_state(model, q=q, v=at.v), as_input(model, None))
        return scalar_blocks(frame_of(here), together=together)

    held = lambda shift: [block.residual for block in rows(shift) if block.side is not Side.RUB]  # noqa: E731
    still = jnp.zeros(model.nv)
    slopes = quick(jax.jacfwd(held))(still)
    J = [block.J for block in rows(still) if block.side is not Side.RUB]
    assert len(slopes) == len(J) == 6
    for slope, own in zip(slopes, J, strict=True):
        np.testing.assert_allclose(own, slope, atol=1e-12)


def test_constant_rows_move_one_dof_by_one_at_any_state(model):
    assert constant_dofs(model) is None  # equalities, and a limit of a ball
    text = ALL.format(option="", equalities="", tendons="")
    plain = uk.load(text.replace('type="ball" limited="true" range="0 30"', ""))
    dofs = constant_dofs(plain)
    assert dofs is not None and len(dofs) == 3
    for seed in range(2):
        frame = frame_at(plain, seed)
        J = np.asarray(row_matrix(frame, row_kinds(plain), scalar_blocks(frame)))
        assert np.array_equal(np.abs(J), np.eye(plain.nv)[dofs])


@pytest.mark.parametrize("flag", ["equality", "frictionloss", "limit", "constraint"])
def test_flags_switch_rows_off(flag, model):
    text = ALL.format(option="", equalities=EQUALITIES, tendons=TENDONS)
    off = uk.load(text.replace("<option/>", f'<option><flag {flag}="disable"/></option>'))
    kept = [kind for kind, _ in present(off)]
    assert kept == [kind for kind in KINDS if flag not in (kind.flag, "constraint")]
    assert row_kinds(off).scalar == sum(len(moves) for _, moves in present(off)) < row_kinds(model).scalar
