"""Random scenes: a structure drawn from a seed, and numbers for it from another.

Scenes of one structure compile to one program, and their models stack into one batch.
"""

# ruff: noqa: E501  XML reads better unbroken

import dataclasses

import numpy as np

JOINTS = {
    "fixed": [],
    "hinge": ["hinge"],
    "slide": ["slide"],
    "ball": ["ball"],
    "two hinges": ["hinge", "hinge"],
    "slide and hinge": ["slide", "hinge"],
    "slide and ball": ["slide", "ball"],  # for a ball before a slide MuJoCo's J̇ is off: see tests/oracle/test_features.py
    "planar": ["slide", "slide", "hinge"],
}
SHAPES = ["sphere", "capsule", "box", "ellipsoid", "cylinder"]
ACTUATORS = ["none", "motor", "position", "velocity", "intvelocity", "damper", "general", "filter", "site"]
# of several controls, activations or outputs, what acts late, and between two sites
MORE = ["pid", "dcmotor", "orientation", "late", "frame"]
EQUALITIES = ["none", "none", "connect", "weld", "joint", "site connect"]
ELEMENTS = [  # what else a scene may have, each in about one of three
    "sum", "string", "muscle", "crank", "rotor", "polynomials", "adhesion", "belt", "gripper", "ellipsoids", "noslip",
    "coupled", "heavy", "yield", "floating", "held", "idle", "override",
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Link:
    """A body's choices."""

    parent: int  # earlier link, or -1: the world
    joints: str  # key of JOINTS, or "free"
    shape: str
    condim: int
    limited: bool
    dry: bool
    actuator: str


@dataclasses.dataclass(frozen=True)
class Structure:
    """A scene without its numbers."""

    links: tuple[Link, ...]
    equality: str
    cone: str
    integrator: str
    floor: bool
    fluid: bool
    elements: tuple[str, ...] = ()  # of ELEMENTS


def draw_structure(rng: np.random.Generator, most: int = 7, drives: list[str] = ACTUATORS + MORE) -> Structure:
    """A tree of at most so many bodies, some of which are driven."""

    def one(names) -> str:
        return str(rng.choice(names))

    links = []
    for k in range(rng.integers(1, most + 1)):
        parent = int(rng.integers(max(-1, k - 3), k))
        joints = one([*JOINTS, *(["free"] * 6 if parent == -1 else [])])
        dim, limited, dry = int(rng.choice([1, 3, 3, 4, 6])), *(rng.random(2) < 0.5)
        links.append(Link(parent, joints, one(SHAPES), dim, bool(limited), bool(dry), one(drives)))
    if all(link.joints == "fixed" for link in links):
        links[0] = dataclasses.replace(links[0], joints="hinge")
    return Structure(
        tuple(links),
        one(EQUALITIES),
        one(["pyramidal", "elliptic"]),
        one(["Euler", "Euler", "RK4", "implicit", "implicitfast"]),
        bool(rng.random() < 0.75),
        bool(rng.random() < 0.25),
        tuple(name for name in ELEMENTS if rng.random() < 1 / 3),
    )


def _text(values) -> str:
    return " ".join(f"{x:.6g}" for x in np.atleast_1d(values))


class _Writer:
    """XML of one scene."""

    def __init__(self, structure: Structure, rng: np.random.Generator):
        self.s, self.rng = structure, rng
        self.actuators: list[str] = []
        first = [JOINTS.get(link.joints, ["free"])[:1] for link in structure.links]
        self.scalar = [k for k, kind in enumerate(first) if kind in (["hinge"], ["slide"])]  # links with such a joint
        self.children = {k: [i for i, link in enumerate(structure.links) if link.parent == k] for k in range(-1, 8)}

    def joint(self, k: int, j: int, kind: str) -> str:
        rng, link = self.rng, self.s.links[k]
        parts = [f'name="j{k}_{j}" type="{kind}" pos="{_text(0.05 * rng.normal(size=3))}"']
        if kind != "ball":
            parts.append(f'axis="{_text(rng.normal(size=3))}"')
        parts.append(f'armature="{rng.uniform(0.001, 0.05):.4g}"')
        stiffness, damping = [rng.uniform(0.1, 5)], [rng.uniform(0.01, 0.3)]
        if "polynomials" in self.s.elements and kind != "ball":
            stiffness, damping = [*stiffness, *rng.normal(size=2)], [*damping, *rng.uniform(0, 0.1, 2)]
        parts.append(f'stiffness="{_text(stiffness)}" damping="{_text(damping)}"')
        if link.limited:
            low, high = (0, rng.uniform(20, 60)) if kind == "ball" else (rng.uniform(-60, -20), rng.uniform(20, 60))
            unit = 0.01 if kind == "slide" else 1.0
            parts.append(f'limited="true" range="{unit * low:.4g} {unit * high:.4g}" solreflimit="{rng.uniform(0.01, 0.1):.4g} 1"')
        if link.dry:
            parts.append(f'frictionloss="{rng.uniform(0.01, 0.3):.4g}"')
        if "yield" in self.s.elements and k % 2 == 0:
            parts.append(f'springyield="{rng.uniform(0.01, 0.3):.4g}"')
        if "floating" in self.s.elements and kind != "ball":
            parts.append('actuatorgravcomp="true"')
        if "held" in self.s.elements and kind != "ball":
            parts.append(f'actuatorfrcrange="{_text(rng.uniform(0.05, 1, 2) * [-1, 1])}"')
        return f"<joint {' '.join(parts)}/>"

    def geom(self, k: int) -> str:
        rng, link = self.rng, self.s.links[k]
        size = {"sphere": 1, "capsule": 2, "cylinder": 2}.get(link.shape, 3)
        # shapes whose pairs have no closed form touch only the floor
        masks = 'contype="1" conaffinity="1"' if link.shape in SHAPES[:3] else 'contype="2" conaffinity="0"'
        if "adhesion" in self.s.elements:
            # with `override` MuJoCo finds a contact in the gap by chance: see docs/decisions/collisions.md
            gap = 0 if "override" in self.s.elements else rng.uniform(0.001, 0.05)
            masks += f' adhesion="{rng.uniform(0.1, 5):.4g}" gap="{gap:.4g}"'
        if "ellipsoids" in self.s.elements and k % 2 == 0:
            masks += ' fluidshape="ellipsoid"'
        return (
            f'<geom type="{link.shape}" size="{_text(rng.uniform(0.04, 0.12, size))}" condim="{link.condim}" {masks} '
            f'pos="{_text(0.05 * rng.normal(size=3))}" quat="{_text(rng.normal(size=4))}" density="{rng.uniform(300, 2000):.4g}" '
            f'friction="{_text(rng.uniform(0.01, 1, 3) * [1, 0.1, 0.05])}" solref="{rng.uniform(0.01, 0.05):.4g} {rng.uniform(0.5, 1.5):.4g}" '
            f'solimp="{_text([rng.uniform(0.3, 0.9), rng.uniform(0.8, 0.99), rng.uniform(0.001, 0.02), 0.5, rng.integers(1, 4)])}"/>'
        )

    def actuator(self, k: int) -> None:
        rng, kind = self.rng, self.s.links[k].actuator
        joints = JOINTS.get(self.s.links[k].joints, [])
        gain, gear = rng.uniform(0.1, 2), rng.uniform(0.5, 2)
        if kind == "none" or (kind not in ("site", "frame") and not joints):
            return
        if kind == "frame":
            servo = f'gear="{_text(rng.normal(size=6))}" kp="{gain:.4g}" kv=".05"'
            self.actuators.append(f'<position site="s{k}" refsite="anchor" {servo}/>')
            return
        if kind == "site":
            self.actuators.append(f'<motor site="s{k}" gear="{_text(rng.normal(size=6))}" ctrllimited="true" ctrlrange="-.5 .8"/>')
            return
        target = f'joint="j{k}_0" gear="{gear:.4g}"' if joints[0] != "ball" else f'joint="j{k}_0" gear="{_text(rng.normal(size=3))}"'
        self.actuators.append({
            "motor": f'<motor {target} forcelimited="true" forcerange="-.5 .4"/>',
            "position": f'<position {target} kp="{gain:.4g}" kv=".1"/>',
            "velocity": f'<velocity {target} kv="{0.1 * gain:.4g}"/>',
            "intvelocity": f'<intvelocity {target} kp="{gain:.4g}" actrange="-1 1"/>',
            "damper": f'<damper {target} kv="{0.1 * gain:.4g}" ctrlrange="0 1"/>',
            "general": f'<general {target} gaintype="affine" gainprm="{_text(rng.normal(size=3) * 0.3)}" biastype="affine" biasprm="{_text([0.1, -gain, -0.05])}"/>',
            "filter": f'<general {target} dyntype="filterexact" dynprm="{rng.uniform(0.01, 0.2):.4g}" actearly="true"/>',
            "pid": f'<pid {target} kp="{gain:.4g}" kv=".05" ki="{rng.uniform(0.1, 1):.4g}" imax=".3" slewmax="{rng.uniform(5, 50):.4g}" input="pos vel ff"/>',
            "dcmotor": f'<dcmotor {target} motorconst="{0.1 * gain:.4g} 0" resistance="{rng.uniform(1, 3):.4g}" inductance="0 {rng.uniform(0.005, 0.02):.4g}" thermal="2 1 0 .004 25 20" '
            f'lugre="{rng.uniform(2, 9):.4g} .02 .05 .08 .3" cogging=".02 6 .3" input="pos ff" controller="{gain:.4g} .2 .02 0 .5 {rng.uniform(1, 9):.4g}"/>',
            "orientation": f'<orientation joint="j{k}_0" kp="{gain:.4g}" kv=".05" input="quat"/>' if joints[0] == "ball" else f"<motor {target}/>",
            "late": f'<position {target} kp="{gain:.4g}" kv=".05" nsample="5" delay="{rng.uniform(0.0005, 0.02):.4g}" interp="cubic"/>',
        }[kind])  # fmt: skip

    def body(self, k: int) -> str:
        rng, link = self.rng, self.s.links[k]
        if link.parent == -1:
            grid = np.array([k % 3, k // 3]) * 0.5
            pos = np.array([*(grid + 0.05 * rng.normal(size=2)), rng.uniform(0.1, 0.3)])
        else:
            way = rng.normal(size=3)
            pos = 0.25 * way / np.linalg.norm(way)
        joints = ["<freejoint/>"] if link.joints == "free" else [self.joint(k, j, kind) for j, kind in enumerate(JOINTS[link.joints])]
        self.actuator(k)
        site = f'<site name="s{k}" pos="{_text(0.05 * rng.normal(size=3))}"/>'
        if "string" in self.s.elements and k % 2 == 0:
            kind = ("sphere", "cylinder")[k // 2 % 2]
            site += (
                f'<geom name="w{k}" type="{kind}" size="{_text(rng.uniform(0.02, 0.06, 2))}" mass="0" contype="0" '
                f'conaffinity="0" quat="{_text(rng.normal(size=4))}"/>'
            )
        inner = "".join(self.body(i) for i in self.children[k])
        lift = f'gravcomp="{rng.uniform(0.2, 1.2):.4g}"' if "floating" in self.s.elements else ""
        return f'<body name="b{k}" {lift} pos="{_text(pos)}" quat="{_text(rng.normal(size=4))}">{"".join(joints)}{self.geom(k)}{site}{inner}</body>'

    def above(self, k: int) -> list[int]:
        """Links above one, nearest first."""
        parent = self.s.links[k].parent
        return [] if parent == -1 else [parent, *self.above(parent)]

    def coupling(self) -> str:
        """A sum of joints that follows a string, or is held."""
        rng, s = self.rng, self.s
        if "coupled" not in s.elements or "sum" not in s.elements or not self.scalar:
            return ""
        other = 'tendon2="string"' if "string" in s.elements else ""
        soft = f'solref="{rng.uniform(0.02, 0.1):.4g} 1"'
        return f'<tendon tendon1="sum" {other} polycoef="{_text(rng.normal(size=5) * 0.2)}" {soft}/>'

    def equality(self) -> str:
        rng, kind, links = self.rng, self.s.equality, self.s.links
        last, hinges = len(links) - 1, [f"j{k}_0" for k in self.scalar]
        soft = f'solref="{rng.uniform(0.02, 0.1):.4g} 1"'
        if kind == "joint" and len(hinges) > 1:
            return f'<joint joint1="{hinges[0]}" joint2="{hinges[1]}" polycoef="{_text(rng.normal(size=5) * 0.2)}" {soft}/>'
        if kind == "connect" and links[last].joints != "fixed":
            return f'<connect body1="b{last}" anchor="{_text(0.1 * rng.normal(size=3))}" {soft}/>'
        if kind == "weld" and last > 0:
            return f'<weld body1="b{last}" body2="b0" torquescale="{rng.uniform(0.1, 2):.4g}" {soft}/>'
        if kind == "site connect" and last > 0:
            return f'<connect site1="s{last}" site2="s0" {soft}/>'
        return ""

    def tendons(self) -> str:
        """Sums of joints, and strings from the world around one body to the last; and what pulls on them."""
        s, rng, out, scalar = self.s, self.rng, [], self.scalar
        if "sum" in s.elements and scalar:
            terms = "".join(f'<joint joint="j{k}_0" coef="{rng.normal():.4g}"/>' for k in scalar[:3])
            more = f'springyield="{rng.uniform(0.01, 0.2):.4g}"' if "yield" in s.elements else ""
            if "held" in s.elements:
                more += f' actuatorfrcrange="{_text(rng.uniform(0.05, 0.5, 2) * [-1, 1])}"'
            out.append(
                f'<fixed name="sum" stiffness="{_text(rng.uniform(0.1, 2, 3))}" damping="{_text(rng.uniform(0, 0.1, 3))}" '
                f'frictionloss="{rng.uniform(0.01, 0.2):.4g}" limited="true" range="{_text([-rng.uniform(0.01, 0.3), 0.2])}" '
                f'margin=".01" {more}>{terms}</fixed>'
            )
            self.actuators.append(f'<position tendon="sum" kp="{rng.uniform(0.1, 2):.4g}" kv=".05" ctrlrange="-1 1"/>')
        if "heavy" in s.elements and scalar:
            # of two joints on one branch: of others MuJoCo drops the coupling, and such files are refused
            pair = [scalar[-1], *(k for k in self.above(scalar[-1]) if k in scalar)][:2]
            terms = "".join(f'<joint joint="j{k}_0" coef="{rng.normal():.4g}"/>' for k in pair)
            out.append(f'<fixed name="heavy" armature="{rng.uniform(0.001, 0.05):.4g}">{terms}</fixed>')
        if "string" in s.elements:
            last, side = len(s.links) - 1, ' sidesite="anchor"' if len(s.links) % 2 else ""
            path = f'<site site="anchor"/><geom geom="w0"{side}/><site site="s{last}"/>'
            if len(s.links) > 2:
                path += f'<pulley divisor="2"/><site site="s{last}"/><geom geom="w2"/><site site="s0"/>'
            out.append(
                f'<spatial name="string" stiffness="{rng.uniform(1, 20):.4g}" damping="{rng.uniform(0.01, 0.5):.4g}" '
                f'springlength="0 {rng.uniform(0.1, 0.8):.4g}" limited="true" range="0 {rng.uniform(0.3, 1.5):.4g}">{path}</spatial>'
            )
            kind = "muscle" if "muscle" in s.elements else "motor"
            more = f'lengthrange="{_text([0.1, rng.uniform(0.6, 2)])}" force="{rng.uniform(1, 20):.4g}"' if kind == "muscle" else ""
            self.actuators.append(f'<{kind} tendon="string" {more}/>')
        return "".join(out)

    def drives(self) -> None:
        """Actuators of other kinds."""
        s, rng, scalar = self.s, self.rng, self.scalar
        if "crank" in s.elements:
            rod = rng.uniform(0.5, 2)
            self.actuators.append(f'<motor cranksite="s{len(s.links) - 1}" slidersite="anchor" cranklength="{rod:.4g}"/>')
        if "rotor" in s.elements and scalar:
            inertia, drag = rng.uniform(0.001, 0.05), rng.uniform(0.01, 0.2)
            gear = f'gear="{rng.uniform(0.5, 3):.4g}" armature="{inertia:.4g}" damping="{drag:.4g}"'
            self.actuators.append(f'<motor joint="j{scalar[-1]}_0" {gear}/>')
        if "muscle" in s.elements and "string" not in s.elements and scalar:
            more = f'force="{rng.uniform(0.5, 3):.4g}" lengthrange="-1.5 1.2" timeconst=".02 .05" tausmooth="{rng.uniform(0.01, 0.3):.4g}"'
            self.actuators.append(f'<muscle joint="j{scalar[0]}_0" {more}/>')
        if "idle" in s.elements and scalar:
            self.actuators.append(f'<position joint="j{scalar[0]}_0" kp="{rng.uniform(1, 5):.4g}" group="2"/>')
        if "gripper" in s.elements:
            self.actuators.append(f'<adhesion body="b{len(s.links) - 1}" ctrlrange="0 1" gain="{rng.uniform(0.5, 5):.4g}"/>')

    def text(self) -> str:
        s, rng = self.s, self.rng
        bodies = "".join(self.body(k) for k in self.children[-1])
        belt = f'surfacevel="{_text(rng.normal(size=6))}"' if "belt" in s.elements else ""
        floor = f'<geom type="plane" size="9 9 1" contype="1" conaffinity="3" friction="{rng.uniform(0.1, 1):.4g}" {belt}/>' if s.floor else ""
        fluid = f'density="{rng.uniform(1, 100):.4g}" viscosity="{rng.uniform(0.01, 1):.4g}"' if s.fluid else ""
        tendons = self.tendons()
        self.drives()
        # with elliptic cones of condim 6 MuJoCo ends its search within a slice early: see docs/decisions/soft.md
        sweeps = 2 if "noslip" in s.elements and s.cone == "pyramidal" else 0
        flags = 'actuatorgroupdisable="2"' if "idle" in s.elements else ""
        over = ""
        if "override" in s.elements:
            soft = f'o_solref="{rng.uniform(0.01, 0.05):.4g} 1" o_solimp=".6 .9 .01 .5 2" o_friction="{_text(rng.uniform(0.1, 1, 5))}"'
            flags, over = f'{flags} o_margin="{rng.uniform(0, 0.02):.4g}" {soft}', '<flag override="enable"/>'
        return (
            f'<mujoco><option noslip_iterations="{sweeps}" noslip_tolerance="0" cone="{s.cone}" integrator="{s.integrator}" timestep="{rng.uniform(0.001, 0.004):.4g}" '
            f'impratio="{rng.uniform(1, 5):.4g}" gravity="{_text([*rng.normal(size=2), -9.81])}" {fluid} {flags}>{over}</option>'
            f'<worldbody><site name="anchor" pos="{_text([0.1, 0.2, rng.uniform(0.5, 0.8)])}"/>{floor}{bodies}</worldbody>'
            f"<tendon>{tendons}</tendon><equality>{self.equality()}{self.coupling()}</equality>"
            f"<actuator>{''.join(self.actuators)}</actuator></mujoco>"
        )


def write(structure: Structure, seed: int) -> str:
    """XML text of the structure with random numbers."""
    return _Writer(structure, np.random.default_rng(seed)).text()
