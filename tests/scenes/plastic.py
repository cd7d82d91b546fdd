"""Springs that yield: of a hinge, a slide, a ball, sums of joints and strings, one of which never pushes."""

import mujoco

SCENE = """
<mujoco><compiler angle="radian"/><option timestep=".01" integrator="{}" gravity="0 0 -3"/><worldbody><site name="w" pos="0 0 1"/>
<body><joint name="j" axis="0 1 0" stiffness="5" springref=".1" springyield=".05"/>
<geom size=".1" pos=".2 0 0" mass="3"/><body pos=".3 0 0"><joint type="ball" stiffness="2 1" springyield=".01"/>
<geom size=".1" pos=".1 .1 0" mass="1"/><site name="e" pos=".1 0 .1"/></body></body>
<body pos="2 0 0"><joint name="s" type="slide" stiffness="20" springyield=".01" damping=".2"/><geom size=".1" mass="3"/></body>
</worldbody><tendon>
<fixed stiffness="4" springlength="-.1 .01" springyield=".005"><joint joint="s" coef="1"/></fixed>
<fixed stiffness="40" springlength="0 .02" springyield=".005"><joint joint="s" coef="1"/></fixed>
<spatial stiffness="9" springlength=".9" springyield=".02" damping=".1"><site site="w"/><site site="e"/></spatial></tendon>
<actuator><position joint="j" kp="2"/><motor joint="s" nsample="2" delay=".02"/></actuator>
<sensor><e_potential/></sensor></mujoco>
"""  # noqa: E501


def compiled(integrator: str = "implicitfast") -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(SCENE.format(integrator))
