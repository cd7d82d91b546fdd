"""What the scripts of examples/ about adaptive integration promise, on short versions of them."""

import jax.numpy as jnp
import numpy as np
import pytest
from scenes import billiards

import backsolve
import gradient_error
import ukemi as uk


@pytest.mark.slow
def test_gradients_converge_with_the_tolerance_and_not_with_a_coarse_fixed_step():
    """Of a tossed box that has landed; one program serves all tolerances."""
    speeds, seconds = np.array([-2.05]), 0.42
    programs = gradient_error.adaptive_programs("Tsit5", speeds, seconds)
    true = gradient_error.reference(programs, speeds, tolerance=1e-10)
    coarse, fine = (programs.point("Tsit5", tolerance, speeds, rounds=1) for tolerance in (1e-4, 1e-8))
    (fixed,) = gradient_error.fixed_points([2e-3], speeds, seconds)
    place, slope = zip(*(gradient_error.errors(point, true) for point in (fixed, coarse, fine)))
    assert place[0] > 100 * place[1] > 1000 * place[2]
    assert slope[0] > 10 * slope[1] > 50 * slope[2]


@pytest.mark.slow  # a smaller one in test_adaptive.py
def test_backsolve_takes_steps_for_the_adjoint():
    """Balls that miss, in one long time step: the derivative of the accepted steps is off, the adjoint's is not."""
    model, rule = uk.load(billiards(table=False, timestep=0.4)), uk.FromDistance(width=0.2, d_0=0.1)
    laws, speeds = backsolve.methods(1e-6, rule), np.array([1.0])
    found = {name: backsolve.sweep(model, laws[name], speeds, 0.4) for name in laws if name != "exact"}
    true = found["small steps"]
    assert jnp.isfinite(true).all() and (np.abs(true) > 1e-6).all()
    off = {name: backsolve.roughness(curve, true) for name, curve in found.items()}
    assert off["backsolve"] < 0.01 < 0.1 < off["checkpointed"]
