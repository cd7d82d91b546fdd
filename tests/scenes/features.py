"""Small scenes of the soft law, one per feature; compared with MuJoCo, and with differences."""

# ruff: noqa: E501  XML reads better unbroken

def scene(body: str, option: str = "", more: str = "", default: str = "") -> str:
    """XML text of a scene."""
    return f"<mujoco><option {option}/><default>{default}</default><worldbody>{body}</worldbody>{more}</mujoco>"


FLOOR = '<geom name="floor" type="plane" size="5 5 .1" {}/>'

# ---- joints ------------------------------------------------------------------------------------------------------

LINK = '<geom type="capsule" fromto="0 0 0 .3 .05 .1" size=".04" contype="0" conaffinity="0"/>'
CHAIN = """
<body pos="0 0 1" quat=".9 .1 .3 -.2">{}
  {link}
  <body pos=".3 .05 .1" quat=".7 -.4 .2 .5">{}
    {link}
    <body pos=".2 0 -.1">{} {link}</body>
  </body>
</body>"""


def chain(*joints: str) -> str:
    """Three links with the given joints."""
    return CHAIN.format(*joints, link=LINK)


HINGE = '<joint type="hinge" axis=".3 1 -.2" pos=".05 -.02 .03" {}/>'
SLIDE = '<joint type="slide" axis="1 .2 .5" pos=".1 0 0" {}/>'
BALL = '<joint type="ball" pos="-.04 .02 .05" {}/>'
JOINTS = {
    "hinges": chain(HINGE.format(""), HINGE.format('ref="20"'), HINGE.format("")),
    "slides": chain(SLIDE.format(""), SLIDE.format('ref=".1"'), HINGE.format("")),
    "balls": chain(BALL.format(""), BALL.format(""), BALL.format("")),
    "free base": chain("<freejoint/>", BALL.format(""), SLIDE.format("")),
    "free base without own mass": '<body pos="0 0 1"><freejoint/><body pos=".2 0 0">' + LINK + "</body></body>",
    "several per body": chain(
        SLIDE.format("") + '<joint axis="0 1 0" pos="0 0 .1"/><joint axis="0 0 1" pos=".1 0 0"/>',
        BALL.format("") + SLIDE.format(""),
        HINGE.format("") + SLIDE.format("") + HINGE.format('ref="30"'),
    ),
    "three slides and a ball": chain(
        '<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/><joint type="slide" axis="0 0 1"/>'
        '<joint type="ball"/>',
        HINGE.format(""),
        HINGE.format(""),
    ),
    "armature": chain(BALL.format('armature=".1"'), HINGE.format('armature=".2"'), SLIDE.format('armature="3"')),
    "damping": chain(BALL.format('damping=".1"'), HINGE.format('damping=".2"'), SLIDE.format('damping="3"')),
    "springs": chain(
        BALL.format('stiffness="2"'), HINGE.format('stiffness="3" springref="30"'), SLIDE.format('stiffness="40" ref=".1"')
    ),
    "spring of a free joint": chain('<joint type="free" stiffness="5" damping=".3"/>', HINGE.format(""), HINGE.format("")),
    "springdamper": chain(HINGE.format('springdamper=".2 .7"'), HINGE.format('springdamper=".3 1"'), HINGE.format("")),
    "gravity compensation": chain(HINGE.format(""), HINGE.format(""), BALL.format("")).replace(
        '<body pos="0 0 1"', '<body gravcomp=".6" pos="0 0 1"'
    ).replace('<body pos=".2 0 -.1"', '<body gravcomp="1.2" pos=".2 0 -.1"'),
    "fixed bodies inside": chain(HINGE.format(""), "", BALL.format("")),
    "inertial frames": chain(
        HINGE.format("") + '<inertial pos=".1 .2 .05" quat=".5 .3 -.4 .2" mass="2" diaginertia=".02 .03 .04"/>',
        BALL.format("") + '<inertial pos="0 .1 0" mass=".5" fullinertia=".02 .03 .04 .003 -.002 .001"/>',
        "",
    ),
}  # fmt: skip

LIMIT = 'limited="true" range="-30 40"'
DRY = {
    "hinge and slide limits": chain(
        HINGE.format(LIMIT), SLIDE.format('limited="true" range="-.1 .2"'), HINGE.format('limited="true" range="10 50" ref="20"')
    ),
    "limits with margin": chain(
        HINGE.format(LIMIT + ' margin=".3"'), SLIDE.format('limited="true" range="-.1 .2" margin=".05"'), HINGE.format("")
    ),
    "both sides of a limit": chain(
        HINGE.format('limited="true" range="-5 5" margin=".2"'), SLIDE.format('limited="true" range="0 .1" margin=".07"'), ""
    ),
    "ball limits": chain(BALL.format('limited="true" range="0 25"'), BALL.format('limited="true" range="0 10" margin=".1"'), ""),
    "softness of limits": chain(
        HINGE.format(LIMIT + ' solreflimit=".05 .7" solimplimit=".5 .8 .3 .4 3"'),
        SLIDE.format('limited="true" range="-.1 .2" solreflimit="-300 -20"'),
        BALL.format('limited="true" range="0 25" solimplimit=".3 .9 .01 .1 5"'),
    ),
    "dry friction": chain(
        HINGE.format('frictionloss=".3"'), SLIDE.format('frictionloss="2"'), BALL.format('frictionloss=".05"')
    ),
    "softness of dry friction": chain(
        HINGE.format('frictionloss=".3" solreffriction=".1 .5" solimpfriction=".4 .6 .1 .3 2"'),
        SLIDE.format('frictionloss="2" solreffriction="-10 -30"'),
        HINGE.format('frictionloss=".01" ' + LIMIT),
    ),
    "dry friction of a free joint": chain(
        '<joint type="free" frictionloss=".4"/>', HINGE.format('frictionloss=".1"'), HINGE.format("")
    ),
}

# ---- equalities ----------------------------------------------------------------------------------------------------

TWO_ARMS = """
<body name="a" pos="0 0 1"><joint name="a0" axis="0 1 0"/><geom size=".05" contype="0" conaffinity="0"/>
  <body name="b" pos=".3 0 0" quat=".9 .1 0 .2"><joint name="b0" axis="1 0 .3"/><joint name="b1" type="slide" axis="0 1 0"/>
    <geom size=".05" pos=".1 .1 0" contype="0" conaffinity="0"/><site name="sb" pos=".05 .1 .2" quat=".8 .3 -.2 .1"/></body></body>
<body name="c" pos=".3 .1 1"><freejoint/><geom type="box" size=".1 .05 .07" contype="0" conaffinity="0"/>
  <site name="sc" pos="-.05 .02 .1" quat=".4 .7 .1 -.2"/>
  <body name="d" pos=".1 .1 .1"><joint name="d0" type="ball"/><geom size=".04" pos=".05 0 .1" contype="0" conaffinity="0"/></body></body>
<body name="e" pos="1 0 0"><geom size=".1" contype="0" conaffinity="0"/><site name="se" pos=".1 .1 .1" quat=".9 0 .3 0"/></body>
"""
SOFTNESS = 'solref=".04 .8" solimp=".7 .95 .1 .3 2"'
EQUALITIES = {
    "connect bodies": f'<connect body1="b" body2="c" anchor=".1 .05 .02" {SOFTNESS}/>',
    "connect to the world": '<connect body1="d" anchor=".1 .05 .02"/>',
    "connect within a tree": '<connect body1="c" body2="d" anchor=".1 .05 .02"/>',
    "connect to a fixed body": '<connect body1="e" body2="d" anchor="-.1 .05 .02"/>',
    "connect sites": '<connect site1="sb" site2="sc"/>',
    "weld bodies": f'<weld body1="b" body2="c" {SOFTNESS}/>',
    "weld with relpose": '<weld body1="b" body2="c" relpose=".1 .2 0 .7 .3 .1 .2" anchor=".1 0 .2" torquescale=".3"/>',
    "weld to the world": '<weld body1="c" torquescale="2"/>',
    "weld to a fixed body": '<weld body1="e" body2="d"/>',
    "weld sites": '<weld site1="sb" site2="sc" torquescale=".7"/>',
    "weld to a fixed site": '<weld site1="sc" site2="se"/>',
    "couple joints": f'<joint joint1="a0" joint2="b0" polycoef=".1 .8 -.3 .2 .1" {SOFTNESS}/>',
    "hold a joint": '<joint joint1="b1" polycoef=".05 0 0 0 0"/>',
    "couple hinge and slide": '<joint joint1="b1" joint2="a0" polycoef="0 .3 0 0 0" solref="-400 -30"/>',
    "inactive": '<connect body1="b" body2="c" anchor="0 0 0" active="false"/><joint joint1="a0" polycoef=".1 0 0 0 0"/>',
    "all at once": '<joint joint1="a0" joint2="b0"/><weld body1="b" body2="c"/><connect body1="d" anchor="0 0 0"/>'
    '<connect site1="sb" site2="sc"/><weld site1="sc" site2="se" torquescale=".5"/><joint joint1="b1"/>',
}

# ---- contacts ------------------------------------------------------------------------------------------------------

OBJECTS = """
<body pos="0 0 .1"><freejoint/><geom name="box" type="box" size=".1 .15 .1" {0}/></body>
<body pos=".4 0 .07"><freejoint/><geom name="ball" size=".07" {1}/></body>
<body pos="0 .5 .05"><freejoint/><geom name="capsule" type="capsule" size=".05 .15" euler="90 0 0" {2}/></body>
<body pos="-.8 .6 .114" euler="25 10 0"><joint type="ball" pos="0 .1 .3"/><geom name="pole" type="cylinder" size=".06 .1" {0}/></body>
"""


def objects(floor: str = "", *each: str) -> str:
    """Things on a floor, with attributes for the floor and for three kinds of things."""
    return FLOOR.format(floor) + OBJECTS.format(*(each or ("", "", "")))


CONES = ["pyramidal", "elliptic"]
CONTACTS = {
    "solref": ("", 'solref=".05 .6"', 'solref=".01 1.2"', ""),
    "solref direct": ("", 'solref="-2000 -50"', 'solref="-500 -10"', 'solref="-100 0"'),
    "solref both formats meet": ('solref=".03 1"', 'solref="-2000 -50"', "", ""),
    "solimp": ("", 'solimp=".5 .9 .01 .2 3"', 'solimp=".2 .99 .05 .8 1"', 'solimp=".9 .9 0 .5 2"'),
    "solimp decreasing": ("", 'solimp=".95 .5 .02 .5 6"', 'solimp="0 1 .01 .5 2"', ""),
    "solmix": ('solref=".1 1" solmix="2"', 'solref=".02 1" solmix=".5"', 'solref=".02 .3" solmix="0"', 'solimp=".3 .8 .1 .4 4" solmix="7"'),
    "solmix zero": ('solmix="0"', 'solref=".05 1" solmix="0"', 'solmix="0" solimp=".5 .6 .1 .4 4"', ""),
    "priority": ('friction=".3"', 'priority="1" friction=".9 .1 .1" condim="4"', 'priority="-1" friction="1.5"', 'priority="2" condim="1" solref=".1 1"'),
    "friction of zero": ('friction="0"', 'friction="0 0 0"', 'friction="0 .1 .1" condim="6"', ""),
    "margin": ('margin=".02"', 'margin=".01"', "", 'margin=".03"'),
    "margin and gap": ('margin=".02" gap=".01"', 'gap=".01"', 'margin=".01"', 'margin=".03" gap=".03"'),
}  # fmt: skip

# ---- options -------------------------------------------------------------------------------------------------------

EVERYTHING = (
    FLOOR.format('condim="4"')
    + """
<body name="a" pos="0 0 .3"><freejoint/><geom type="box" size=".1 .15 .1"/>
  <body name="b" pos=".25 0 0" gravcomp=".5"><joint name="h" axis="0 1 0" range="-20 20" limited="true" damping=".3" stiffness="2" frictionloss=".1"/>
    <geom type="capsule" size=".05 .2"/><body name="c" pos=".1 0 -.1"><joint type="ball" damping=".1"/><geom size=".1"/></body></body></body>
<body name="d" pos="1 0 .5"><joint name="k" axis="0 1 0" damping=".5"/><geom type="capsule" size=".05 .2" pos=".3 0 0"/></body>
"""
)
EVERYTHING_MORE = """<equality><joint joint1="h" joint2="k"/></equality>
<actuator><motor joint="h" ctrlrange="-.5 .5" gear="3"/><position joint="k" kp="5" kv=".2" ctrlrange="-.3 .3"/></actuator>"""
INTEGRATORS = ["Euler", "RK4", "implicit", "implicitfast"]
SPINNING = """
<body pos="0 0 1"><freejoint/><geom type="box" size=".1 .2 .3" pos=".1 .05 .2" euler="10 20 30"/><geom size=".1" pos="-.2 0 0"/></body>
<body pos="1 0 1"><freejoint/><geom type="box" size=".1 .2 .3"/><body pos=".2 .1 0"><joint type="ball" damping=".01"/><geom type="box" size=".1 .05 .2" pos=".1 0 .1"/></body></body>
<body pos="2 0 1"><joint type="ball"/><geom type="ellipsoid" size=".1 .05 .2" pos=".1 0 .1"/></body>
<body pos="3 0 1"><freejoint/><geom type="box" size=".1 .05 .2"/><body pos=".3 0 0"><geom size=".1"/></body></body>
"""
