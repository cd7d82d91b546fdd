"""Boxed complementarity problems at random: the solver's answers against their conditions and against enumeration."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.scenes.rigid import complementarity
from ukemi.constraints.rows import RowKinds
from ukemi.laws.rigid import boxes
from ukemi.laws.rigid import solve as rigid
from ukemi.laws.rigid.attempt import attempt
from ukemi.laws.rigid.dantzig import dantzig
from ukemi.laws.rigid.interior import sides_from_inside
from ukemi.laws.rigid.live_rows import live_rows, on_rows

EXACT = 1e-10
CONTACTS, COUNT = 4, 2000
KINDS = RowKinds(0, 0, 0, CONTACTS, 3, "pyramidal", False, ())
OWN = boxes.roles(KINDS)
ROLES = OWN.push, OWN.hold, OWN.owner


class Problems(NamedTuple):
    """Many problems w = A f + b of up to four contacts."""

    A: np.ndarray  # (COUNT, 12, 12)
    b: np.ndarray  # (COUNT, 12)
    mu: np.ndarray  # (COUNT, 12)
    on: np.ndarray  # (COUNT, 12)
    free: np.ndarray  # (COUNT,) degrees of freedom


@pytest.fixture(scope="module")
def problems() -> Problems:
    """One to four contacts on 1 to 14 degrees of freedom, so that half of them have more rows than those."""
    rng = np.random.default_rng(0)
    rows = [draw(rng, CONTACTS, 1 + k % CONTACTS, int(rng.integers(1, 15))) for k in range(COUNT)]
    return Problems(*(np.stack(column) for column in zip(*rows, strict=True)))


def draw(rng, slots: int, contacts: int, nv: int):
    n = 3 * slots
    J, half = rng.normal(size=(n, nv)), rng.normal(size=(nv, nv))
    if rng.random() < 0.3:  # two contacts at one place
        J[3 * (contacts - 1) : 3 * contacts] = J[:3]
    inertia = half @ half.T + 0.1 * np.eye(nv)
    mu = np.repeat(rng.choice([0.0, 0.2, 0.7, 1.5], slots), 3) * (np.arange(n) % 3 > 0)
    on = np.arange(n) < 3 * contacts
    J = J * on[:, None]
    b = J @ rng.normal(size=nv) * 10.0 ** rng.integers(-2, 2)
    return J @ np.linalg.solve(inertia, J.T), b, mu, on, nv


@jax.jit
def solve(problems: Problems):
    """Forces by the solver of a step, whether it says that they solve, and whether pivots and the path alone do."""

    def one(given):
        A, b, mu, on, _ = given
        p = boxes.boxed(A, b, jnp.zeros_like(b), mu, on, OWN)
        guess = jnp.where(OWN.push & (p.b >= 0), boxes.LOW, boxes.CLAMPED).astype(jnp.int8)
        found = rigid.solve(p, OWN, guess)
        f = found.f * p.scale
        pivots = attempt(p, OWN, dantzig(p, OWN, jnp.ones((), bool))[0], 1)
        path = attempt(p, OWN, sides_from_inside(p, OWN, jnp.ones((), bool))[0], rigid.ROUNDS)
        return f, found.solved, pivots.solved, path.solved

    return jax.lax.map(one, jax.tree.map(jnp.asarray, problems))


def residuals(problems: Problems, f):
    """Violation (COUNT,) of each problem, in its own units."""
    w = jnp.einsum("kij,kj->ki", problems.A, f) + problems.b
    own = jax.vmap(lambda f, w, mu: complementarity(ROLES, f, w, jnp.zeros_like(f), mu))(f, w, problems.mu)
    return np.asarray(jnp.where(problems.on, own, jnp.abs(f)).max(-1))


def has_solution(A, b, mu, contacts: int) -> bool:
    """Try all modes: each contact separates, or pushes with each friction held or at either end of its box."""
    each = [(boxes.LOW, 0, 0), *((boxes.CLAMPED, s, t) for s, t in itertools.product((0, -1, 1), repeat=2))]
    n, owner = 3 * contacts, OWN.owner[: 3 * contacts]
    A, b, mu = A[:n, :n], b[:n], mu[:n]
    for mode in itertools.product(each, repeat=contacts):
        side = np.concatenate(mode)
        apart = side[owner] == boxes.LOW
        clamped = ~apart & (side == boxes.CLAMPED)
        bound = np.eye(n) - np.where(apart, 0, side * mu)[:, None] * np.eye(n)[owner]
        system, right = np.where(clamped[:, None], A, bound), np.where(clamped, -b, 0.0)
        f = np.linalg.lstsq(system, right, rcond=1e-12)[0]
        w = A @ f + b
        high = mu * np.maximum(f[owner], 0)
        push = OWN.push[:n]
        nearest = np.where(push, np.maximum(f - w, 0), np.clip(f - w, -high, high))
        if np.abs(f - nearest).max() < 1e-9:
            return True
    return False


def test_every_problem_that_has_a_solution_is_solved(problems):
    f, solved, pivots, path = solve(problems)
    wrong = residuals(problems, f)
    contacts = problems.on.sum(1) // 3
    assert (problems.free < problems.on.sum(1)).mean() > 0.4
    missed = [k for k in range(COUNT) if wrong[k] > EXACT and has_solution(*(x[k] for x in problems[:3]), contacts[k])]
    print(f"solved {np.mean(wrong <= EXACT):.4f}, pivots alone {pivots.mean():.4f}, central path {path.mean():.4f}")
    assert not missed, [(k, int(contacts[k]), int(problems.free[k]), wrong[k]) for k in missed]
    assert not (np.asarray(solved) & (wrong > EXACT)).any()
    assert pivots.mean() > 0.99 and path.mean() > 0.95


def test_many_contacts_on_few_degrees_of_freedom_are_solved():
    """Where contacts overlap deeply, as meshes of a folded arm: with bounds that move, paths of pivots fold."""
    slots, rng = 12, np.random.default_rng(0)
    own = boxes.roles(RowKinds(0, 0, 0, slots, 3, "pyramidal", False, ()))

    @jax.jit
    def one(A, b, mu, on):
        p = boxes.boxed(A, b, jnp.zeros_like(b), mu, on, own)
        found = rigid.solve(p, own, jnp.where(own.push & (p.b >= 0), boxes.LOW, boxes.CLAMPED).astype(jnp.int8))
        return found.solved, found.rounds

    rows = [draw(rng, slots, slots - k % 4, int(rng.integers(3, 9)))[:4] for k in range(300)]
    solved, systems = np.array([one(*row) for row in rows]).T
    print(f"solved {solved.mean():.4f}, systems: mean {systems.mean():.0f}, most {systems.max()}")
    assert solved.mean() > 0.99 and systems.mean() < 40


def test_of_many_contacts_those_that_bear_are_found():
    """Whatever was guessed: a hundred are near, and few bear."""
    slots, nv, rng = 110, 24, np.random.default_rng(0)
    kinds = RowKinds(0, 2, 0, slots, 3, "pyramidal", False, ())
    own, n = boxes.roles(kinds), kinds.total
    fixed = np.where(np.arange(n) < kinds.scalar, 0.5, 0.0)

    @jax.jit
    def one(J, b, mu, on, guess):
        p = boxes.boxed(boxes.Product(J, J.T), b, fixed, mu, on, own)
        found = rigid.solve(p, own, guess)
        f = found.f * p.scale
        return found.solved, found.rounds, f, J @ (J.T @ f) + b, live_rows(p, own, found.side).sum()

    bearing = []
    for k in range(9):
        J = rng.normal(size=(n, nv))
        on = rng.random(slots) < 0.9
        on = np.concatenate([np.ones(2, bool), np.repeat(on, 3)])
        gaps = np.where(own.push, rng.uniform(0, (40.0, 8.0, 3.0)[k % 3], n), 0.0)
        mu = np.where(own.push | (np.arange(n) < kinds.scalar), 0.0, 0.6)
        b = np.where(on, J @ rng.normal(size=nv) + gaps, 0.0)
        guess = np.where(own.push & ((b >= 0) | (k // 3 == 1)), boxes.LOW, boxes.CLAMPED)
        guess = np.zeros(n) if k == 0 else guess
        solved, systems, f, w, live = one(J * on[:, None], b, mu, on, guess.astype(np.int8))
        wrong = jnp.where(on, complementarity((own.push, own.hold, own.owner), f, w, fixed, mu), jnp.abs(f))
        assert solved and wrong.max() < EXACT, (k, int(systems), float(wrong.max()))
        bearing.append(int(live))
    print(f"rows that bear: {min(bearing)} to {max(bearing)} of {n}")
    assert min(bearing) < 20


def test_enumeration_finds_solutions_too(problems):
    """Whoever says that there is none must be able to find one."""
    few = [k for k in range(COUNT) if problems.on[k].sum() <= 6][:300]
    assert all(has_solution(*(x[k] for x in problems[:3]), int(problems.on[k].sum()) // 3) for k in few)


@pytest.mark.parametrize(("held", "limits"), [(2, 0), (0, 7)])
def test_systems_of_few_rows_give_what_that_of_all_rows_gives(held, limits):
    kinds = RowKinds(held, 1, limits, 24, 3, "pyramidal", False, ())
    own, rng, n = boxes.roles(kinds), np.random.default_rng(1), kinds.total
    J = rng.normal(size=(n, 20))
    mu = np.where(np.arange(n) < kinds.scalar, 0.0, np.where(own.push, 0.0, 0.6))
    fixed = np.where(np.arange(n) == held, 0.3, 0.0)
    A, b = J @ J.T, rng.normal(size=n)
    alone = jax.jit(lambda p, side: jnp.stack(boxes.forces(p, own, side)))
    both = jax.jit(lambda p, side: jnp.stack(on_rows(boxes.forces, live_rows(p, own, side), p, own, side)))
    for contacts in (0, 2, 3, 9, 24):  # up to 12, 36 and all rows
        on = np.arange(n) < kinds.scalar + 3 * contacts
        p = boxes.boxed(jnp.asarray(A), jnp.asarray(b), jnp.asarray(fixed), jnp.asarray(mu), jnp.asarray(on), own)
        side = rng.choice([-1, 0, 1], n)
        side[held] = boxes.HIGH
        side = np.where(own.push, np.minimum(side, 0), side)
        open_ = own.push[own.owner] & (side[own.owner] == boxes.LOW)
        side = jnp.asarray(np.where(open_ & ~own.push & (side == boxes.CLAMPED), boxes.HIGH, side), jnp.int8)
        expected, live = alone(p, side), live_rows(p, own, side)
        assert np.abs(expected[:, ~live]).max(initial=0) < EXACT  # what is not live has no force
        assert np.abs(both(p, side) - expected).max() < 1e-8 * np.abs(expected).max()


def test_equalities_that_contradict_each_other_are_met_as_well_as_can_be():
    """By the pseudo-inverse: a flat loop of joints is closed twice over, and torn open no force can close it."""
    own, rng = boxes.roles(RowKinds(6, 0, 0, 0, 1, "pyramidal", False, ())), np.random.default_rng(2)
    J = rng.normal(size=(6, 9))
    J[4], J[5] = J[0] + J[1], J[2] - 2 * J[3] + 1e-8 * rng.normal(size=9)  # as rounding leaves it
    p = boxes.boxed(*map(jnp.asarray, (J @ J.T, rng.normal(size=6), np.zeros(6), np.zeros(6), np.ones(6, bool))), own)
    f = np.asarray(boxes.forces(p, own, jnp.zeros(6, jnp.int8))[1])
    expected = -np.linalg.pinv(np.asarray(p.A), rcond=1e-12) @ np.asarray(p.b)
    assert np.abs(f - expected).max() < 1e-5 * np.abs(expected).max()
    consistent = p._replace(b=p.A @ jnp.asarray(rng.normal(size=6)))
    f = boxes.forces(consistent, own, jnp.zeros(6, jnp.int8))[1]
    assert np.abs(consistent.A @ f + consistent.b).max() < EXACT
