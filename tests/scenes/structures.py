"""Random scenes: a structure drawn by hypothesis, and numbers for it from a seed.

Scenes of one structure compile to one program, and their models stack into one batch.
"""

# ruff: noqa: E501  XML reads better unbroken

import dataclasses

import numpy as np
from hypothesis import strategies as st

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
MORE = ["pid", "dcmotor", "orientation", "late"]  # of several controls, activations or outputs, and what acts late
EQUALITIES = ["none", "none", "connect", "weld", "joint", "site connect"]
ELEMENTS = [  # what else a scene may have, each in about one of three
    "sum", "string", "muscle", "crank", "rotor", "polynomials", "adhesion", "belt", "gripper", "ellipsoids", "noslip"
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


@st.composite
def structures(draw, drives=ACTUATORS) -> Structure:
    """Trees of one to seven bodies, some of which are driven."""
    links = []
    for k in range(draw(st.integers(1, 7))):
        parent = draw(st.integers(max(-1, k - 3), k - 1))
        kinds = [*JOINTS, *(["free"] * 6 if parent == -1 else [])]
        links.append(
            Link(
                parent,
                draw(st.sampled_from(kinds)),
                draw(st.sampled_from(SHAPES)),
                draw(st.sampled_from([1, 3, 3, 4, 6])),
                draw(st.booleans()),
                draw(st.booleans()),
                draw(st.sampled_from(drives)),
            )
        )
    if all(link.joints == "fixed" for link in links):
        links[0] = dataclasses.replace(links[0], joints="hinge")
    return Structure(
        tuple(links),
        draw(st.sampled_from(EQUALITIES)),
        draw(st.sampled_from(["pyramidal", "elliptic"])),
        draw(st.sampled_from(["Euler", "Euler", "RK4", "implicit", "implicitfast"])),
        draw(st.booleans()) or draw(st.booleans()),
        draw(st.booleans()) and draw(st.booleans()),
        tuple(name for name in ELEMENTS if draw(st.integers(0, 2)) == 0),
    )


def _text(values) -> str:
    return " ".join(f"{x:.6g}" for x in np.atleast_1d(values))


class _Writer:
    """XML of one scene."""

    def __init__(self, structure: Structure, rng: np.random.Generator):
        self.s, self.rng = structure, rng
        self.actuators: list[str] = []
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
        return f"<joint {' '.join(parts)}/>"

    def geom(self, k: int) -> str:
        rng, link = self.rng, self.s.links[k]
        size = {"sphere": 1, "capsule": 2, "cylinder": 2}.get(link.shape, 3)
        # shapes whose pairs have no closed form touch only the floor
        masks = 'contype="1" conaffinity="1"' if link.shape in SHAPES[:3] else 'contype="2" conaffinity="0"'
        if "adhesion" in self.s.elements:
            masks += f' adhesion="{rng.uniform(0.1, 5):.4g}" gap="{rng.uniform(0.001, 0.05):.4g}"'
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
        if kind == "none" or (kind != "site" and not joints):
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
        return f'<body name="b{k}" pos="{_text(pos)}" quat="{_text(rng.normal(size=4))}">{"".join(joints)}{self.geom(k)}{site}{inner}</body>'

    def equality(self) -> str:
        rng, kind, links = self.rng, self.s.equality, self.s.links
        last = len(links) - 1
        hinges = [f"j{k}_0" for k, link in enumerate(links) if JOINTS.get(link.joints, ["ball"])[:1] in (["hinge"], ["slide"])]
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
        s, rng, out = self.s, self.rng, []
        scalar = [k for k, link in enumerate(s.links) if JOINTS.get(link.joints, ["ball"])[:1] in (["hinge"], ["slide"])]
        if "sum" in s.elements and scalar:
            terms = "".join(f'<joint joint="j{k}_0" coef="{rng.normal():.4g}"/>' for k in scalar[:3])
            out.append(
                f'<fixed name="sum" stiffness="{_text(rng.uniform(0.1, 2, 3))}" damping="{_text(rng.uniform(0, 0.1, 3))}" '
                f'frictionloss="{rng.uniform(0.01, 0.2):.4g}" limited="true" range="{_text([-rng.uniform(0.01, 0.3), 0.2])}" '
                f'margin=".01">{terms}</fixed>'
            )
            self.actuators.append(f'<position tendon="sum" kp="{rng.uniform(0.1, 2):.4g}" kv=".05" ctrlrange="-1 1"/>')
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
        s, rng = self.s, self.rng
        scalar = [k for k, link in enumerate(s.links) if JOINTS.get(link.joints, ["ball"])[:1] in (["hinge"], ["slide"])]
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
        return (
            f'<mujoco><option noslip_iterations="{sweeps}" noslip_tolerance="0" cone="{s.cone}" integrator="{s.integrator}" timestep="{rng.uniform(0.001, 0.004):.4g}" '
            f'impratio="{rng.uniform(1, 5):.4g}" gravity="{_text([*rng.normal(size=2), -9.81])}" {fluid}/>'
            f'<worldbody><site name="anchor" pos="{_text([0.1, 0.2, rng.uniform(0.5, 0.8)])}"/>{floor}{bodies}</worldbody>'
            f"<tendon>{tendons}</tendon><equality>{self.equality()}</equality>"
            f"<actuator>{''.join(self.actuators)}</actuator></mujoco>"
        )


def write(structure: Structure, seed: int) -> str:
    """XML text of the structure with random numbers."""
    return _Writer(structure, np.random.default_rng(seed)).text()
