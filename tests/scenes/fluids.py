"""A swimmer of every geom that a fluid presses on as on an ellipsoid."""

import mujoco

# A floating trunk with a limb of a ball, a hinge and a slide, a tail that is a box to the fluid, and a body that floats
# alone with another welded to it.
SWIMMER = """
<mujoco>
  <option timestep="0.005" density="300" viscosity="0.6" integrator="{integrator}" {option}>
    <flag contact="disable"/>
  </option>
  <asset><mesh name="fin" vertex="0 0 0 .3 .02 0 0 .2 .01 .05 0 .1 .2 .15 .03"/></asset>
  <default><geom fluidshape="ellipsoid"/></default>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body name="trunk" pos="0 0 1">
      <freejoint/><geom type="box" size=".1 .15 .2" pos=".02 0 .01" fluidcoef=".7 .3 1.2 .8 1.4"/>
      <geom size=".08" pos="0 .2 0" fluidcoef="1 .2 .5 2 .3"/>
      <body pos=".2 0 .1">
        <joint type="ball"/><geom type="capsule" fromto="0 0 0 .3 .1 0" size=".04"/>
        <body pos=".3 .1 0">
          <joint name="hinge" axis="0 1 .2" damping=".1" limited="true" range="-20 20"/>
          <geom type="ellipsoid" size=".05 .1 .15" pos="0 .02 .1" euler="20 30 40" fluidcoef=".2 .9 2 1.5 .4"/>
          <geom type="box" size=".1 .1 .02" fluidshape="none"/>
          <body pos="0 0 .2">
            <joint name="slide" type="slide" axis="1 0 1"/><geom type="cylinder" size=".05 .1" pos=".05 0 0"/>
          </body>
        </body>
      </body>
      <body pos="-.2 0 0">
        <joint axis="0 0 1"/><geom type="box" size=".1 .02 .07" pos="-.1 0 0" fluidshape="none"/>
      </body>
    </body>
    <body name="alone" pos="2 0 1">
      <freejoint/><geom type="ellipsoid" size=".05 .1 .15" pos=".1 0 0"/>
      <body pos="0 .2 0" euler="30 0 0"><geom type="mesh" mesh="fin"/></body>
    </body>
  </worldbody>
  <actuator><motor joint="hinge" gear="2"/><velocity joint="slide" kv="3"/></actuator>
</mujoco>
"""
WIND = 'wind=".3 -.2 .5"'


def swimmer(integrator: str, option: str = WIND) -> mujoco.MjModel:
    """The swimmer, compiled."""
    return mujoco.MjModel.from_xml_string(SWIMMER.format(integrator=integrator, option=option))
