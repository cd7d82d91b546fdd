"""Models in contact with their states as torch tensors; skips the tests of a module where PyTorch is not installed."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukemi as uk

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'ukemi[torch]'")
ut = uk.torch

# Everything an input can be: a slider with an activation, on a floor and against a body that is moved by hand.
PUSHED = """
<mujoco>
  <option timestep="0.004"/>
  <worldbody>
    <geom type="plane" size="2 2 0.1"/>
    <body name="hand" mocap="true" pos="0.19 0 0.1"><geom type="sphere" size="0.1"/></body>
    <body pos="0 0 0.098">
      <joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>
      <geom type="sphere" size="0.1" mass="0.5" friction="0.7"/>
    </body>
  </worldbody>
  <actuator><general joint="x" dyntype="filter" dynprm="0.05" gainprm="3"/></actuator>
</mujoco>
"""
# Configurations in which something touches: a ball on the floor, a foot on the floor, a cart at the end of its rail.
TOUCHING = {
    "ball": [0, 0, 0.098, 0.8, 0.1, 0.5, -0.2],
    "hopper": [0, 0.97, 0.05, 0.45, 0.9, 0.45],
    "cartpole": [1.81, 0.3],
    PUSHED: [0.01, -0.001],
}


def touching(source, batch=None):
    """Model, state that touches something and controls, of the given batch; quaternions of length other than 1."""
    model, rng = uk.load(source), np.random.default_rng(7)
    lead = () if batch is None else (batch,)
    q = np.asarray(TOUCHING[source]) + 1e-3 * rng.normal(size=(*lead, model.nq))
    state = ut.initial_state(
        model,
        batch=batch,
        q=torch.tensor(q),
        v=torch.tensor(rng.normal(size=(*lead, model.nv))),
        act=torch.tensor(rng.normal(size=(*lead, model.na))),
    )
    return model, state, torch.tensor(rng.uniform(-0.9, 0.9, (*lead, model.nu)))


def in_jax(state) -> uk.State:
    """The same state with JAX arrays."""
    return uk.State(**vars(jax.tree.map(lambda x: jnp.array(x.detach().numpy()), state)))


def assert_same(found, wanted):
    """Bitwise equality of all leaves."""
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(mine.detach().numpy(), np.asarray(theirs))


def leaf(value):
    """A tensor of which a gradient is wanted."""
    return torch.tensor(np.asarray(value)).requires_grad_()


def single(script):
    """Run a script in single precision: JAX has one precision per process."""
    code = "import jax; jax.config.update('jax_enable_x64', False)\n" + script
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
