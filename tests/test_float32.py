"""What single precision holds: close to double on robots, and never a NaN that nobody hears of."""

import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import ukemi as uk
from tests.scenes.states import random_states
from ukemi.files import source

# JAX has one precision per process, so the single-precision half runs in another.
SCRIPT = """
import sys
import equinox as eqx, jax, jax.numpy as jnp, numpy as np
import ukemi as uk
from ukemi.model.records import Input
name, path = sys.argv[1:]
given = np.load(path)
model = uk.load(name)
assert model.options.timestep.dtype == jnp.float32
start = uk.initial_state(model)
def one(q, v, ctrl):
    state = uk.initial_state(model, q=q, v=v)
    now = uk.Soft().forward(model, state, Input(ctrl))
    return now.smooth.M, now.smooth.bias, now.solution.acceleration, uk.Soft().step(model, state, Input(ctrl))
batch = tuple(jnp.asarray(given[k], jnp.float32) for k in ("q", "v", "ctrl"))
M, bias, a, after = jax.jit(lambda x: jax.lax.map(lambda x: one(*x), x))(batch)
assert all(x.dtype == jnp.float32 for x in (M, bias, a, after.q, after.v, after.time))
np.savez(path, M=M, bias=bias, a=a, q=after.q, v=after.v, status=after.status)
"""


def single(script: str, *arguments: str) -> None:
    """Run a script in single precision."""
    code = "import jax; jax.config.update('jax_enable_x64', False)\n" + script
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.optimized
@pytest.mark.parametrize("name", ["humanoid", "quadruped", "billiards"])
def test_single_agrees_with_double(name, tmp_path):
    m = source.read(name)
    model, samples = uk.load(m), random_states(m, 30, seed=3)
    q, v, ctrl = (np.stack([s[k] for s in samples]) for k in (0, 1, 3))
    # what single precision can hold of the state is the same state for both
    q, v, ctrl = (x.astype(np.float32).astype(float) for x in (q, v, ctrl))
    path = str(tmp_path / "states.npz")
    np.savez(path, q=q, v=v, ctrl=ctrl)
    single(SCRIPT, name, path)
    found = np.load(path)

    def one(x):
        state = uk.initial_state(model, q=x[0], v=x[1])
        now = uk.Soft().forward(model, state, uk.Input(x[2]))
        return now.smooth.M, now.smooth.bias, now.solution.acceleration, uk.Soft().step(model, state, uk.Input(x[2]))

    M, bias, a, after = jax.tree.map(np.asarray, jax.jit(lambda x: jax.lax.map(one, x))((q, v, ctrl)))

    def worst(x, y):
        every = (*range(1, x.ndim),)
        return np.abs(x - y).max(every) / np.maximum(1, np.abs(y).max(every))

    assert worst(found["M"], M).max() < 3e-6
    assert worst(found["bias"], bias).max() < 1e-5
    # contacts in single precision are where they are to 1e-7 m, of a millimetre that matters
    assert np.median(worst(found["a"], a)) < 1e-3 and worst(found["a"], a).max() < 0.1
    assert np.median(worst(found["v"], after.v)) < 1e-5 and worst(found["v"], after.v).max() < 1e-2
    assert worst(found["q"], after.q).max() < 1e-4
    assert not (found["status"] & uk.Status.NOT_FINITE).any()


SOAK = """
import sys
sys.path.insert(0, sys.argv[2])
from soak import soak
report = soak("humanoid", int(sys.argv[1]), worlds=8, seed=1)
print(report)
assert report.silent == 0, report
assert report.unfinished == 0, report
"""


def test_a_humanoid_under_random_controls_never_fails_silently():
    """20,000 steps in eight worlds; bench/soak.py runs a million."""
    single(SOAK, "20000", str(Path(__file__).parents[1] / "bench"))


RIGID = """
import jax.numpy as jnp, numpy as np
import ukemi as uk
CUBE = '<mujoco><option timestep=".01"/><default><geom friction=".4"/></default><worldbody>' \
    '<geom type="plane" size="9 9 1"/><body pos="0 0 .1"><freejoint/><geom type="box" size=".1 .1 .1"/></body>' \
    '</worldbody></mujoco>'
model = uk.load(CUBE)
states = uk.rollout(model, uk.initial_state(model, v=[2.0, 0, 0, 0, 0, 0]), jnp.zeros((80, 0)), uk.LCP())
uk.raise_if_failed(states)
assert states.v.dtype == jnp.float32
expected = np.maximum(2 - 0.4 * 9.81 * 0.01 * np.arange(1, 81), 0)
assert np.abs(states.v[:, 0] - expected).max() < 2e-4, np.abs(states.v[:, 0] - expected).max()
assert np.abs(states.q[:, 2] - 0.1).max() < 1e-5
for name in ("quadruped", "humanoid"):
    model = uk.load(name)
    states = uk.rollout(model, uk.initial_state(model, "home"), jnp.tile(model.keyframes.ctrl[0], (100, 1)), uk.LCP())
    uk.raise_if_failed(states)
    assert np.isfinite(states.q).all() and states.q[-1, 2] > 0.2
"""


@pytest.mark.slow
def test_rigid_contact_slides_and_stands_in_single_precision():
    single(RIGID)
