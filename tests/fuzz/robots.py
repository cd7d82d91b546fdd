"""Robot files that mutations start from: between them every element that Ukemi supports, MJCF and URDF."""

from ukemi.files.source import builtin_names, builtin_text

ZOO = """
<mujoco model='zoo'>
  <compiler angle='degree' autolimits='true'/>
  <option timestep='0.004' gravity='0 0 -9.81' integrator='implicitfast' cone='elliptic' impratio='2' density='1.2'
    viscosity='1e-5' wind='0.1 0 0'><flag warmstart='enable' eulerdamp='enable'/></option>
  <default>
    <geom friction='0.8 0.01 0.001' solref='0.02 1' solimp='0.9 0.95 0.001 0.5 2' margin='0.002' gap='0.001'/>
    <joint damping='0.2' armature='0.01'/>
    <default class='heavy'><geom density='2000' solmix='2' priority='1'/></default>
  </default>
  <worldbody>
    <geom name='floor' type='plane' size='2 2 0.1' condim='3'/>
    <body name='base' pos='0 0 0.6' gravcomp='0.1'>
      <joint name='turn' type='hinge' axis='0 0 1' range='-90 90' stiffness='1' springref='10' frictionloss='0.1'/>
      <geom name='block' type='box' size='0.1 0.1 0.05' class='heavy'/>
      <site name='tip' pos='0.1 0 0' euler='0 20 0'/>
      <body name='upper' pos='0.15 0 0' euler='0 30 0'>
        <joint name='slide' type='slide' axis='1 0 0' range='-0.1 0.2' margin='0.01' solreflimit='0.02 1'/>
        <inertial pos='0.1 0 0' mass='0.5' diaginertia='0.002 0.002 0.001'/>
        <geom name='rod' type='capsule' fromto='0 0 0 0.2 0 0' size='0.03'/>
        <body name='hand' pos='0.25 0 0'>
          <joint name='wrist' type='ball' range='0 60' solimplimit='0.9 0.95 0.001'/>
          <geom name='palm' type='ellipsoid' size='0.05 0.04 0.02' condim='4'/>
        </body>
      </body>
    </body>
    <body name='puck' pos='0.5 0.5 0.049'>
      <freejoint name='float'/>
      <geom name='disc' type='cylinder' size='0.06 0.05' condim='6' mass='0.3'/>
    </body>
    <body name='marble' pos='-0.5 0 0.05'>
      <joint name='mx' type='slide' axis='1 0 0'/><joint name='mz' type='slide' axis='0 0 1'/>
      <geom name='glass' size='0.05'/>
    </body>
    <body name='lead' mocap='true' pos='1 0 1'><geom size='0.02' contype='0' conaffinity='0'/></body>
  </worldbody>
  <contact>
    <pair name='roll' geom1='floor' geom2='glass' condim='3' friction='0.5 0.5 0.01 0.001 0.001' solref='0.03 1'/>
    <exclude name='apart' body1='base' body2='hand'/>
  </contact>
  <equality>
    <connect name='tie' body1='marble' body2='lead' anchor='0 0 0' active='false'/>
    <weld name='hold' body1='puck' body2='lead' relpose='-0.5 0.5 -0.95 1 0 0 0' torquescale='0.5' solref='0.5 1'/>
    <joint name='gears' joint1='mx' joint2='slide' polycoef='0 1 0 0 0'/>
  </equality>
  <actuator>
    <motor name='m' joint='turn' gear='3' ctrlrange='-1 1'/>
    <position name='p' joint='slide' kp='20' forcerange='-5 5'/>
    <velocity name='v' joint='mx' kv='2'/>
    <general name='g' site='tip' gear='0 0 1 0 0 0' dyntype='filter' dynprm='0.1' actrange='-1 1' gainprm='2'
      biastype='affine' biasprm='0.1 0 0'/>
    <intvelocity name='i' joint='mz' kp='3' actrange='-1 1'/>
  </actuator>
  <custom><numeric name='restitution' data='0.3'/></custom>
  <keyframe><key name='home' time='0.5' ctrl='0.1 0.2 0 0 0'/></keyframe>
</mujoco>
"""
SMALL = """
<mujoco>
  <option timestep='0.005'/>
  <worldbody>
    <geom name='floor' type='plane' size='1 1 1'/>
    <body name='ball' pos='0 0 0.09'>
      <joint name='x' type='slide' axis='1 0 0' damping='0.1' range='-1 1' limited='true'/>
      <joint name='z' type='slide' axis='0 0 1' frictionloss='0.1'/>
      <geom name='g' size='0.1' mass='1' friction='0.7' margin='0.01'/>
      <body name='bob' pos='0.2 0 0'>
        <joint name='h' axis='0 1 0' stiffness='2' armature='0.01'/><geom name='b' size='0.05' density='800'/>
      </body>
    </body>
  </worldbody>
  <actuator><general name='a' joint='x' gear='2' ctrlrange='-2 2' ctrllimited='true' dyntype='filter'
    dynprm='0.2'/></actuator>
  <keyframe><key name='k' qpos='0.1 0 0.2' qvel='0 1 0'/></keyframe>
</mujoco>
"""
_LINK = (
    "<link name='{0}'><inertial><origin xyz='0 0 0.1' rpy='0 0 0'/><mass value='1.5'/>"
    "<inertia ixx='0.02' iyy='0.02' izz='0.01' ixy='0' ixz='0.001' iyz='0'/></inertial>"
    "<visual><geometry><sphere radius='0.1'/></geometry></visual>"
    "<collision><origin xyz='0 0 0.1'/><geometry>{1}</geometry></collision></link>"
)
URDF = (
    "<robot name='crane'><mujoco><compiler discardvisual='true'/></mujoco><link name='world'/>"
    + _LINK.format("mast", "<cylinder radius='0.05' length='0.3'/>")
    + _LINK.format("boom", "<box size='0.1 0.2 0.3'/>")
    + _LINK.format("hook", "<sphere radius='0.05'/>")
    + "<joint name='swing' type='continuous'><parent link='world'/><child link='mast'/><axis xyz='0 0 1'/>"
    "<dynamics damping='0.1' friction='0.05'/></joint>"
    "<joint name='lift' type='revolute'><origin xyz='0 0 0.4' rpy='0 0.3 0'/><parent link='mast'/><child link='boom'/>"
    "<axis xyz='0 1 0'/><limit lower='-1' upper='1' effort='10' velocity='2'/></joint>"
    "<joint name='reel' type='prismatic'><origin xyz='0.3 0 0.2'/><parent link='boom'/><child link='hook'/>"
    "<axis xyz='0 0 1'/><limit lower='-0.2' upper='0.2' effort='5' velocity='1'/></joint></robot>"
)
STEPPED = {"small": SMALL, "zoo": ZOO, "urdf": URDF}


def seeds() -> dict[str, str]:
    """Every file that mutations start from, by name."""
    return STEPPED | {name: builtin_text(name) for name in builtin_names()}
