"""A cube as a mesh is the box of that size: every law and gradient rule says the same of both."""

import functools

import jax
import numpy as np
import pytest

import ukemi as uk
from tests.scenes import hulls

# nearly level, so that a box's lower corners are the corners of the mesh's most level face
SCENE = """<mujoco><option gravity="0 0 -9" timestep=".004" cone="elliptic"/>
  <default><geom friction=".6" solref=".03 .9" solimp=".6 .9 .01 .4 2"/></default>
  <asset>{}</asset>
  <worldbody><geom type="plane" size="5 5 1"/>
  <body pos="0 0 {}" euler="2 1 0"><freejoint/><inertial pos="0 0 0" mass="1" diaginertia=".01 .02 .03"/>
    <geom type="{}" {}/></body>
  </worldbody></mujoco>"""
DISTANCE, PATH = uk.FromDistance(width=0.1, d_0=0.3, onset=0.02), uk.CentralPath(kappa=1e-4)
LAWS = {
    "distance": uk.Soft(gradient=DISTANCE),
    "path": uk.LCP(gradient=PATH),
    "ncp": uk.NCP(),
    "ncp path": uk.NCP(gradient=PATH),
    "impact": uk.Impact(),
    "lcp": uk.LCP(),
}


def linearized(law, height: float, kind: str, given: str):
    model = uk.load(SCENE.format(hulls.asset("cube", hulls.CUBE), height, kind, given))
    state = uk.initial_state(model, v=np.array([0.4, 0.2, -1.0, 0.3, -0.2, 0.1]))
    return _linearized(law, model, state)


@functools.partial(jax.jit, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0})
def _linearized(law, model, state):
    found = uk.linearize(model, state, None, law)
    return found.next.q, found.next.v, found.A, found.next.status


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_mesh_is_the_box(law):
    # above the floor for the rule that sees contacts from there, on it for the others
    height = 0.1 if law == "distance" else 0.081
    box = linearized(LAWS[law], height, "box", 'size=".08 .08 .08"')
    mesh = linearized(LAWS[law], height, "mesh", 'mesh="cube"')
    assert box[3] == mesh[3] == 0
    # corners of meshes are kept in single precision, 3e-9 m off here: κ/φ and 1/h make more of it
    for one, other in zip(box, mesh, strict=True):
        np.testing.assert_allclose(other, one, atol=(1e-7 if law == "distance" else 1e-4) * np.abs(one).max())
    assert np.abs(np.asarray(mesh[2])[8, 2]) > 1e-3  # ∂v_z⁺/∂z: contact acts
