"""A robot with every kind of tendon, and what MuJoCo says of it."""

import mujoco
import numpy as np

STRINGS = """
<mujoco><option timestep="0.002" integrator="{integrator}" cone="{cone}"/>
<worldbody>
  <site name="w0" pos="-.3 .1 .5"/><site name="w1" pos=".3 -.2 .6"/><site name="w2" pos="0 .25 .2"/>
    <site name="in" pos="0 0 .4"/>
  <geom name="ball" type="sphere" size=".08" pos="0 0 .4" contype="0" conaffinity="0"/>
  <body pos="0 0 .4">
    <joint name="a" axis="0 1 0" range="-2 2" limited="true"/><joint name="b" axis="1 0 .3"/>
    <geom type="capsule" size=".03" fromto="0 0 0 .3 0 0" contype="0" conaffinity="0" mass="1"/>
    <site name="s0" pos=".15 .02 .03"/><site name="s1" pos=".28 -.03 0"/>
    <body pos=".3 0 0">
      <joint name="c" axis="0 1 0"/>
      <geom name="pin" type="cylinder" size=".05 .2" euler="90 10 0" contype="0" conaffinity="0" mass=".2"/>
      <geom name="knob" type="sphere" size=".04" pos=".05 .01 .02" contype="0" conaffinity="0" mass=".2"/>
      <site name="above" pos="0 0 .2"/><site name="below" pos="0 0 -.2"/><site name="within" pos=".01 0 .01"/>
      <geom type="capsule" size=".03" fromto="0 0 0 .3 0 0" contype="0" conaffinity="0" mass="1"/>
      <site name="e0" pos=".2 .02 .01"/><site name="e1" pos=".3 0 -.02"/>
      <body pos=".3 0 0"><joint name="d" type="slide" axis="1 .2 0" damping=".4"/>
        <geom size=".04" mass=".3" contype="0" conaffinity="0"/><site name="f" pos=".05 .02 .01"/></body>
    </body>
  </body>
  <body pos=".4 .3 .5"><freejoint/><geom type="box" size=".05 .06 .07" contype="0" conaffinity="0"/>
    <site name="g" pos=".05 0 .02"/></body>
</worldbody>
<tendon>
  <fixed name="sum" stiffness="3" damping=".2" springlength="-.1 .1"><joint joint="a" coef=".7"/>
    <joint joint="c" coef="-.4"/></fixed>
  <fixed name="one" frictionloss=".3"><joint joint="d" coef="1.3"/></fixed>
  <spatial name="plain" stiffness="40" springlength=".5"><site site="w0"/><site site="s0"/><site site="e0"/></spatial>
  <spatial name="over" damping="2"><site site="s0"/><geom geom="pin" sidesite="above"/><site site="e0"/></spatial>
  <spatial name="under" limited="true" range=".1 .33" margin=".01"><site site="s0"/>
    <geom geom="pin" sidesite="below"/><site site="e1"/></spatial>
  <spatial name="inside"><site site="s0"/><geom geom="pin" sidesite="within"/><site site="e1"/></spatial>
  <spatial name="round" frictionloss=".5"><site site="w1"/><geom geom="ball"/><site site="s1"/><geom geom="knob"/>
    <site site="f"/></spatial>
  <spatial name="ring"><site site="w2"/><geom geom="ball" sidesite="in"/><site site="e0"/></spatial>
  <spatial name="far" limited="true" range=".2 .5" stiffness="5" damping=".3"><site site="e1"/><site site="g"/>
    </spatial>
  <spatial name="pulley" damping=".5" stiffness="10"><site site="w0"/><site site="s1"/><pulley divisor="2"/>
    <site site="s1"/><geom geom="pin"/>
    <site site="f"/><pulley divisor="3"/><site site="w1"/><site site="g"/></spatial>
</tendon>
<equality><tendon tendon1="sum" tendon2="plain" polycoef=".02 .3 .1 0 0"/>
  <tendon tendon1="one" polycoef=".01 0 0 0 0"/></equality>
<actuator>
  <motor name="m0" tendon="sum" gear="2"/><position name="m1" tendon="over" kp="30" kv="2"/>
    <velocity name="m2" tendon="far" kv="1.5"/>
  <muscle name="m3" tendon="pulley" lengthrange=".5 1.4"/>
    <muscle name="m4" tendon="round" lengthrange=".4 1.2" force="30" tausmooth=".3"/>
  <muscle name="m5" joint="c" lengthrange="-1.5 1.5" force="4"/>
    <general name="m6" tendon="far" gainprm="3" dyntype="filter" dynprm=".1"/>
</actuator></mujoco>
"""


# Tendons with inertia and growing stiffness, and rotors that pull on them.
HEAVY = """
<mujoco>
  <option timestep="0.005" integrator="{integrator}"/>
  <worldbody>
    <site name="w" pos="0 .3 .5"/>
    <body pos="0 0 1">
      <joint type="ball" name="b" damping=".1"/>
      <geom type="capsule" size=".05" fromto="0 0 0 .3 0 0"/>
      <site name="a" pos=".1 0 .1"/>
      <body pos=".3 0 0">
        <joint name="h" axis="0 1 0" damping=".1"/>
        <geom type="capsule" size=".04" fromto="0 0 0 .2 0 .1"/>
        <site name="c" pos=".2 0 .1"/>
        <body pos=".2 0 .1">
          <joint name="s" type="slide" axis="1 0 .2" damping=".1" armature=".1"/>
          <geom size=".05"/>
          <site name="d"/>
        </body>
      </body>
    </body>
  </worldbody>
  <tendon>
    <fixed name="f" armature=".2" stiffness="3 1 2" damping="1 .2 .3" springlength=".1">
      <joint joint="h" coef="1"/>
      <joint joint="s" coef="-.5"/>
    </fixed>
    <spatial name="t" armature=".7" stiffness="20 3 2" damping="0 .2 .3">
      <site site="w"/>
      <site site="a"/>
      <site site="d"/>
    </spatial>
    <spatial name="u">
      <site site="w"/>
      <site site="c"/>
    </spatial>
  </tendon>
  <actuator>
    <motor tendon="u" armature=".3" damping=".2 .1 .3" gear="1.5"/>
    <position tendon="f" kp="4" kv=".3" armature=".1" gear="2"/>
    <motor tendon="t" damping="1"/>
    <motor tendon="u" damping="1" armature=".1"/>
  </actuator>
</mujoco>
"""


def heavy(integrator: str) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(HEAVY.format(integrator=integrator))


def compiled(integrator: str = "Euler", cone: str = "pyramidal", *, limited: bool = True) -> mujoco.MjModel:
    """The robot; limited: what the actuators of one of its tendons pull together."""
    m = mujoco.MjModel.from_xml_string(STRINGS.format(integrator=integrator, cone=cone))
    m.opt.iterations, m.opt.tolerance = 200, 1e-14
    far = m.tendon("far").id
    m.tendon_actfrclimited[far], m.tendon_actfrcrange[far] = limited, (-1.5, 2.0)
    return m


def cases(m: mujoco.MjModel, n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random states and controls, (n, ...) each."""
    rng, q = np.random.default_rng(seed), np.tile(m.qpos0, (n, 1))
    for row in q:
        mujoco.mj_integratePos(m, row, 0.7 * rng.normal(size=m.nv), 1.0)
    v, act = rng.normal(size=(n, m.nv)), rng.uniform(-0.1, 1.2, (n, m.na))
    return {"qpos": q, "qvel": v, "act": act, "ctrl": rng.normal(size=(n, m.nu))}


def theirs(m: mujoco.MjModel, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """MuJoCo's lengths, moment arms, forces and next states."""
    d, out = mujoco.MjData(m), []

    def reset(k):
        mujoco.mj_resetData(m, d)
        for name, values in given.items():
            getattr(d, name)[:] = values[k]

    for k in range(len(given["qpos"])):
        reset(k)
        mujoco.mj_forward(m, d)
        moment = np.zeros((m.ntendon, m.nv))
        mujoco.mju_sparse2dense(moment, d.ten_J.ravel(), m.ten_J_rownnz, m.ten_J_rowadr, m.ten_J_colind)
        found = {
            "length": d.ten_length, "moment": moment, "force": d.actuator_force, "act_dot": d.act_dot,
            "passive": d.qfrc_passive, "qacc": d.qacc,
        }
        found = {name: np.array(value) for name, value in found.items()}
        reset(k)
        mujoco.mj_step(m, d)
        out.append(found | {"q": np.array(d.qpos), "v": np.array(d.qvel), "a": np.array(d.act)})
    return {name: np.stack([one[name] for one in out]) for name in out[0]}
