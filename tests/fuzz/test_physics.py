"""Extremes are survived or named; and the fuzzer sees what would not be."""

import equinox as eqx
import jax.numpy as jnp

import ukemi as uk
from tests.fuzz import physics

SEED = 4


class Deaf(uk.Soft):
    """Takes what is not finite in controls for nothing, and moves too fast."""

    def step(self, model, state, inputs):
        ctrl = jnp.where(jnp.isfinite(inputs.ctrl), inputs.ctrl, 0.0)
        after = super().step(model, state, eqx.tree_at(lambda i: i.ctrl, inputs, ctrl))
        return eqx.tree_at(lambda s: s.v, after, after.v * 1.00001)


def test_extremes_are_survived_or_named():
    findings, count = physics.examine(SEED, "Soft", count=6)
    assert not findings, findings
    assert count.beside >= 4 and count.swapped - count.idle > 10


def test_the_fuzzer_sees_what_is_wrong(monkeypatch):
    monkeypatch.setitem(physics.LAWS, "Soft", Deaf())
    findings, _ = physics.examine(SEED, "Soft", count=6)
    faults = " ".join(finding.fault for finding in findings)
    assert "off MuJoCo's" in faults and "in [2].ctrl" in faults
