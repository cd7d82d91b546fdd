"""PID controllers and DC motors with every part that they can have."""

PIDS = {
    "plain": "<pid {} kp='3' kv='.4'/>",
    "all inputs": "<pid {} kp='3' kv='.4' input='pos vel ff' posrange='-1 1' velrange='-2 2' ffrange='-.3 .3'/>",
    "no position": "<pid {} kp='2' kv='.3' input='vel ff'/>",
    "integral": "<pid {} kp='3' kv='.2' ki='.7' imax='.4'/>",
    "free integral": "<pid {} kp='1' ki='1.5' forcerange='-.8 .9'/>",
    "slew": "<pid {} kp='3' slewmax='40' input='pos'/>",
    "slew and integral": "<pid {} kp='3' kv='.3' ki='.9' slewmax='60' imax='2' input='pos vel ff'/>",
    "general": "<general {} gaintype='pid' biastype='affine' biasprm='.5 -1.2 -.2' dyntype='pid' dynprm='1 30' "
    "gainprm='.6' actrange='-1 1.5' actearly='true'/>",
}
_MOTOR = "<dcmotor {} motorconst='.3 .4' resistance='2' "
MOTORS = {
    "voltage": _MOTOR + "ctrlrange='-3 3'/>",
    "passive": _MOTOR + "input='none' lugre='8 .2 .3 .5 .4' cogging='.2 6 .3'/>",
    "friction alone": "<dcmotor {} motorconst='0 0' resistance='1' input='none' lugre='20 .1 .2 .3 .2'/>",
    "inductance": _MOTOR + "inductance='.03 0' saturation='.8 0 90'/>",
    "warm": _MOTOR + "thermal='1.5 2 0 .004 25 20'/>",
    "warm coil": _MOTOR + "thermal='1.5 2 0 .004 25 20' inductance='0 .02'/>",
    "controlled": _MOTOR + "input='pos vel ff voltage' controller='2 .5 .3 40 .6 3'/>",
    "controlled coil": _MOTOR + "input='pos' controller='2 .5 .3 0 .6 4' inductance='.03 0'/>",
    "speed": _MOTOR + "input='vel ff' controller='0 0 .3 50 0 2'/>",
    "everything": _MOTOR + "input='pos vel ff voltage' controller='2 .5 .3 60 .6 3' inductance='.03 0' "
    "thermal='1.5 2 0 .004 25 20' lugre='8 .2 .3 .5 .4' cogging='.2 6 .3' saturation='.6 0 90' damping='.1' "
    "armature='.02'/>",
}
LATE = {  # on steps, between them, sooner than the last step, and later than what is kept
    "zoh": "<motor {} nsample='4' delay='.04'/>",
    "zoh between": "<general {} nsample='5' delay='.0234' dyntype='filter' dynprm='.05' ctrlrange='-.5 .5'/>",
    "linear": "<pid {} kp='2' kv='.3' ki='.4' nsample='4' delay='.0234' interp='linear'/>",
    "cubic": _MOTOR + "input='pos vel' controller='2 .5 .3 40 .6 3' nsample='5' delay='.0337' interp='cubic'/>",
    "soon": "<position {} kp='2' nsample='3' delay='.004' interp='cubic'/>",
    "too late": "<motor {} nsample='2' delay='.07' interp='linear'/>",
}
_TURN = "<general {} gaintype='so3' biastype='so3' gainprm='2' "
ORIENTATIONS = {
    "expmap": "<orientation {} kp='2' kv='.3'/>",
    "quaternion": "<orientation {} kp='3' kv='.2' input='quat' forcerange='0 2.5'/>",
    "held quaternion": "<orientation {} kp='3' input='quat' ctrlrange='-.8 .8'/>",
    "offset": _TURN + "biasprm='.3 -2 -.2' forcerange='0 4'/>",
    "stored": _TURN + "biasprm='.1 -2 -.2' dyntype='integrator'/>",
    "stored early": _TURN + "biasprm='0 -2 -.2' dyntype='integrator' actearly='true' actrange='-1 2.5'/>",
}
TURNING = {
    "ball joint": "joint='ball'",
    "site in trunk": "site='hand' refsite='trunk'",
    "site in world": "site='hand' refsite='world'",
    "site on mocap": "site='upper' refsite='led'",
}
