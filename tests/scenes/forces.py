"""A scene with places for every actuator, transmission and passive force."""

import mujoco

from tests.scenes.servos import MOTORS, ORIENTATIONS, PIDS, TURNING

# A floating trunk with an arm of a ball, a hinge and a slide, a pendulum of its own, and a body that is led.
SCENE = """
<mujoco>
  <option timestep="0.01" integrator="{integrator}" {option}><flag contact="disable"/></option>
  <worldbody>
    <site name="world" pos="0.1 0.2 0.3" euler="10 20 30"/>
    <body name="led" mocap="true" pos="1 0 1"><site name="led" euler="0 0 40"/></body>
    <body name="trunk" pos="0 0 1" {trunk}>
      <joint name="root" type="free" {root}/>
      <geom type="box" size="0.1 0.15 0.2" pos="0.02 0 0.01"/><site name="trunk" pos="0 0.1 0" euler="30 0 20"/>
      <body name="upper" pos="0.2 0 0.1" {upper}>
        <joint name="ball" type="ball" {ball}/>
        <geom type="capsule" fromto="0 0 0 0.3 0.1 0" size="0.04"/><site name="upper" pos="0.1 0 0" euler="0 50 10"/>
        <body name="lower" pos="0.3 0.1 0" {lower}>
          <joint name="hinge" axis="0 1 0.2" {hinge}/><site name="lower" pos="0.05 0 0.1"/>
          <geom type="ellipsoid" size="0.05 0.1 0.15" pos="0 0.02 0.1"/>
          <body name="hand" pos="0 0 0.2">
            <joint name="slide" type="slide" axis="1 0 1" {slide}/>
            <geom type="cylinder" size="0.05 0.1" pos="0.05 0 0"/><site name="hand" pos="0.02 0 0.1" euler="5 60 70"/>
          </body>
        </body>
      </body>
    </body>
    <body pos="2 0 1">
      <joint name="swing" axis="0 1 0" {swing}/><geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.04"/>
    </body>
  </worldbody>
  <actuator>{actuator}</actuator>
</mujoco>
"""
PLACES = "integrator option trunk upper lower root ball hinge slide swing actuator".split()

GROWING = {  # stiffness and damping that grow, and rotors of actuators
    "root": "stiffness='3 -1 .5' damping='0.4 .1 .2'",
    "ball": "stiffness='2 1 .3' damping='0 .2 .1'",
    "hinge": "stiffness='1.5 2 1' springref='20' ref='5' damping='0.2'",
    "slide": "stiffness='0 4 7' springref='0.1' ref='0.05' damping='0.6 .3' armature='0.1'",
    "actuator": "<motor name='a' joint='hinge' gear='3' armature='.02' damping='.3 .1 .2'/>"
    "<motor name='b' joint='slide' armature='.1' gear='2'/>"
    "<position name='c' joint='slide' kv='.1' kp='2' damping='0 .1 0' gear='.5'/>"
    "<motor name='d' joint='ball' gear='.5 .2 1' damping='.2 .1' armature='.02'/>"
    "<position name='e' cranksite='hand' slidersite='upper' cranklength='0.9' gear='1.5' kp='2' kv='.3'/>",
}
RANGE = "actlimited='true' actrange='-2 1'"
SERVO = "biastype='affine' gainprm='3' biasprm='0 -3 -0.2'"  # a position servo: on a rotation its setpoint wraps
AFFINE = "biastype='affine' biasprm='0.5 -2 -0.3' gaintype='affine' gainprm='1.5 0.7 -0.4'"
TRANSMISSIONS = {
    "hinge": "joint='hinge' gear='2'",
    "slide": "joint='slide' gear='-1.5'",
    "ball": "joint='ball' gear='0.5 0.3 -0.2'",
    "ball in parent": "jointinparent='ball' gear='0.5 0.3 -0.2'",
    "hinge in parent": "jointinparent='hinge' gear='0.8'",
    "free": "joint='root' gear='1 -2 0.5 0.3 0.2 -0.1'",
    "free in parent": "jointinparent='root' gear='1 -2 0.5 0.3 0.2 -0.1'",
    "site": "site='hand' gear='1 0.5 -0.2 0.1 0.3 -0.4'",
    "site in world": "site='hand' refsite='world' gear='1 0.5 -0.2 0.1 0.3 -0.4'",
    "site in trunk": "site='hand' refsite='trunk' gear='1 0.5 -0.2 0.1 0.3 -0.4'",
    "site turned": "site='hand' refsite='upper' gear='0 0 0 0.1 0.6 -0.4'",
    "crank": "cranksite='hand' slidersite='upper' cranklength='0.9' gear='1.5'",
    "crank in trunk": "cranksite='lower' slidersite='trunk' cranklength='0.6' gear='-0.7'",
    "crank that is short": "cranksite='hand' slidersite='world' cranklength='0.05'",
    "site on mocap": "site='upper' refsite='led' gear='0 0 0 0.5 0.3 -0.2'",
}
KINDS = {
    "motor": "<motor {} ctrlrange='-1 1'/>",
    "position": "<position {} kp='3' kv='0.2'/>",
    "position filtered": "<position {} kp='3' kv='0.2' timeconst='0.05'/>",
    "velocity": "<velocity {} kv='0.7' forcerange='-0.5 0.6'/>",
    "intvelocity": "<intvelocity {} kp='3' kv='0.1' actrange='-1 1.5'/>",
    "damper": "<damper {} kv='0.7' ctrlrange='0 1.2'/>",
    "cylinder": "<cylinder {} timeconst='0.03' area='2' bias='0.2 -0.5 -0.1'/>",
    "affine": "<general {} " + AFFINE + "/>",
    "affine filtered": "<general {} " + AFFINE + " dyntype='filterexact' dynprm='0.04' " + RANGE + "/>",
    "early": "<general {} " + AFFINE + " dyntype='filter' dynprm='0.04' actearly='true'/>",
    "early servo": "<general {} " + SERVO + " dyntype='filterexact' dynprm='0.04' actearly='true'/>",
    "early integrator": "<general {} " + SERVO + " dyntype='integrator' actearly='true' " + RANGE + "/>",
    "unmatched servo": "<general {} dyntype='filter' dynprm='0.1' biastype='affine' gainprm='3' biasprm='0 -2'/>",
}
EVERY = KINDS | PIDS | MOTORS | ORIENTATIONS


def build(**parts: str) -> mujoco.MjModel:
    """The scene with its places filled."""
    return mujoco.MjModel.from_xml_string(SCENE.format(**{p: parts.get(p, "") for p in PLACES} | {
        "integrator": parts.get("integrator", "Euler")
    }))


def actuators(transmissions, kinds) -> str:
    """Every kind on every transmission, named after both."""
    places = TURNING if kinds and set(kinds) <= ORIENTATIONS.keys() else TRANSMISSIONS
    lines = [
        EVERY[kind].format(f"name='{kind}: {to}' {places[to]}") for kind in kinds for to in transmissions
    ]
    return "\n".join(lines)
