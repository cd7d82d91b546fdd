"""Derivatives of closed loops hold against differences; and the fuzzer sees one that does not."""

import jax
import pytest

import ukemi as uk
from tests.fuzz import gradients


class Blind(uk.Soft):
    """Its derivative is that of a step from a state that never changes."""

    def step(self, model, state, inputs):
        return super().step(model, jax.lax.stop_gradient(state), inputs)


@pytest.mark.slow
def test_derivatives_of_closed_loops():
    findings, count = gradients.examine(0, "Soft", models=2, places=3)
    assert not findings, findings
    assert count.compared > 50


@pytest.mark.slow
def test_the_fuzzer_sees_what_is_wrong(monkeypatch):
    monkeypatch.setitem(gradients.LAWS, "Soft", Blind())
    findings, _ = gradients.examine(0, "Soft", models=1, places=2)
    assert any("∂/∂q: off by" in finding.fault for finding in findings)
