"""A scene with a sensor of every type, on what moves, what stands and what is carried along."""

# ruff: noqa: E501  XML reads better unbroken

BODIES = """
<geom name="floor" type="plane" size="0 0 .1"/>
<site name="place" pos=".1 .2 .3" quat=".9 .1 -.3 .2"/>
<site name="room" type="box" size=".4 .4 .4" pos="0 0 .5"/>
<body name="hook" mocap="true" pos="0 1 1.2" quat=".8 .2 .1 -.3">
  <geom name="lamp" type="ellipsoid" size=".05 .1 .07" contype="0" conaffinity="0"/><site name="hooked" pos=".1 0 .1"/></body>
<body name="trunk" pos="0 0 .2" quat=".9 .1 .2 -.1"><freejoint/>
  <geom name="chest" type="box" size=".15 .1 .08" mass="3"/>
  <geom name="glass" size=".05" pos="0 0 .1" rgba="1 1 1 0" contype="0" conaffinity="0"/>
  <site name="imu" pos=".03 .02 .05" quat=".6 .3 -.4 .2"/><site name="belly" type="ellipsoid" size=".2 .15 .12"/>
  <body name="arm" pos=".2 0 .1" quat=".7 .3 -.1 .2">
    <joint name="shoulder" type="ball" pos="-.05 0 0" range="0 .7" limited="true" damping=".1"/>
    <geom name="upper" type="capsule" size=".04 .15" mass=".8" contype="0" conaffinity="0"/><site name="eye" pos=".01 .02 .2" quat=".3 .8 .1 .1"/>
    <body name="hand" pos="0 .05 .25">
      <joint name="wrist" axis="1 .2 0" range="-.3 .4" limited="true" damping=".2" stiffness="1"/>
      <joint name="slider" type="slide" axis="0 1 .3" range="-.05 .05" limited="true" armature=".05"/>
      <geom name="palm" type="cylinder" size=".05 .07" mass=".5" contype="0" conaffinity="0"/><site name="grip" type="capsule" size=".06 .05"/>
      <body name="finger" pos="0 0 .12"><geom name="nail" size=".05" mass=".2"/>
        <site name="tip" size=".08" pos="0 0 .08" quat=".4 .1 .7 .2"/></body></body></body></body>
<body name="ball" pos=".3 .1 .12"><freejoint/><geom name="round" size=".12" mass="1"/><site name="core" type="cylinder" size=".1 .13"/></body>
<body name="tied" pos="-.6 .9 1"><freejoint/><geom name="brick" type="box" size=".05 .06 .07" mass=".7" contype="0" conaffinity="0"/><site name="knot" pos="0 0 .02"/></body>
<body name="glued" pos="-.3 -.9 1"><freejoint/><geom name="slab" type="box" size=".05 .06 .07" mass=".7" contype="0" conaffinity="0"/><site name="seam" pos=".01 0 .02"/></body>
"""
REST = """
<equality><connect body1="tied" body2="ball" anchor="0 -.3 0"/>
  <weld body1="glued" body2="world" relpose="-.3 -.9 1 1 .05 0 .02" torquescale=".7"/></equality>
<tendon><fixed name="string" limited="true" range="-.2 .25" stiffness="3"><joint joint="wrist" coef="-1"/></fixed>
  <fixed name="sum" limited="true" range="-.1 .15" margin=".05"><joint joint="wrist" coef=".5"/><joint joint="slider" coef="2"/></fixed></tendon>
<actuator><motor name="draw" tendon="string"/><motor name="twist" joint="wrist" gear="2"/><position name="push" joint="slider" kp="30" kv="2"/>
  <motor name="pull" site="tip" refsite="place" gear="1 .5 0 .1 0 .2"/></actuator>
"""


def sensors() -> list[str]:
    """One or a few elements of every type."""
    out = [f'<touch site="{s}"/>' for s in ("grip", "tip", "belly", "core")]
    for word in ("accelerometer", "velocimeter", "gyro", "force", "torque", "magnetometer"):
        out += [f'<{word} site="{s}"/>' for s in ("imu", "tip", "core", "knot", "seam")]
    out += [f'<{word} site="{s}"/>' for word in ("accelerometer", "gyro") for s in ("place", "hooked")]
    out += ['<force site="imu" cutoff="3"/>', '<ballangvel joint="shoulder" cutoff=".5"/>']
    out += [f'<rangefinder site="{s}" data="dist dir origin point normal depth"/>' for s in ("imu", "eye", "tip", "hooked")]
    out += ['<rangefinder site="hooked" cutoff=".2"/>', '<ballquat joint="shoulder"/>']
    out += [f'<joint{word} joint="{j}"/>' for word in ("pos", "vel", "actuatorfrc") for j in ("wrist", "slider")]
    out += [f'<actuator{word} actuator="{a}"/>' for word in ("pos", "vel", "frc") for a in ("twist", "push", "pull")]
    out += [f'<jointlimit{word} joint="{j}"/>' for word in ("pos", "vel", "frc") for j in ("wrist", "slider", "shoulder")]
    out += [f'<tendon{word} tendon="{t}"/>' for word in ("pos", "vel", "actuatorfrc", "limitpos", "limitvel", "limitfrc") for t in ("string", "sum")]
    objects = [("body", "trunk"), ("xbody", "hand"), ("geom", "upper"), ("site", "tip"), ("site", "hooked"), ("body", "hook")]
    frames = [f'objtype="{kind}" objname="{name}"' for kind, name in objects]
    references = [""] + [f'reftype="{kind}" refname="{name}"' for kind, name in (objects[3], objects[0], objects[4])]
    for word in ("pos", "quat", "xaxis", "yaxis", "zaxis", "linvel", "angvel"):
        out += [f"<frame{word} {frame} {references[k % 4]}/>" for k, frame in enumerate(frames)]
    out += [f"<frame{word} {frame}/>" for word in ("linacc", "angacc") for frame in frames]
    for word in ("subtreecom", "subtreelinvel", "subtreeangmom"):
        out += [f'<{word} body="{body}"/>' for body in ("world", "trunk", "arm", "hook")]
    out += [f'<insidesite {frame} site="{s}"/>' for frame, s in zip(frames, ("room", "belly", "core", "grip", "tip", "room"))]
    pairs = [("floor", "chest"), ("chest", "round"), ("round", "upper"), ("palm", "round"), ("palm", "floor"), ("lamp", "chest")]
    for k, (a, b) in enumerate(pairs):
        out += [f'<{word} geom1="{a}" geom2="{b}" cutoff="{(0.4, 2)[k % 2]}"/>' for word in ("distance", "normal", "fromto")]
    out += ['<distance body1="trunk" geom2="round" cutoff="2"/>', '<distance geom1="floor" geom2="round"/>']
    data = "found force torque dist pos normal tangent"
    out += [
        f'<contact data="{data} linvel angvel" num="3"/>',
        f'<contact geom1="floor" geom2="round" data="{data}"/>',
        f'<contact body1="ball" data="{data} linvel angvel" num="2" reduce="mindist"/>',
        f'<contact subtree1="trunk" data="{data}" num="5" reduce="maxforce"/>',
        f'<contact subtree2="trunk" data="{data}" reduce="netforce"/>',
        '<contact subtree1="trunk" subtree2="trunk" data="found dist pos"/>',
        '<contact site="core" body2="ball" data="found normal linvel" num="2"/>',
    ]
    return [*out, "<e_potential/>", "<e_kinetic/>", "<clock/>"]


SENSED = f"""
<mujoco model="sensed"><compiler angle="radian"/>
<option cone="elliptic" gravity="0.3 -0.2 -9.81" magnetic="0.1 -0.5 0.2"/>
<default><geom condim="6" friction="0.8 0.01 0.002"/></default>
<worldbody>{BODIES}</worldbody>{REST}<sensor>{"".join(sensors())}</sensor></mujoco>"""
