"""Random models: scenes of the property tests with more of what a file may hold, closed loops, and extreme numbers."""

# ruff: noqa: E501  XML reads better unbroken

import xml.etree.ElementTree as ET

import numpy as np

from tests.scenes.hulls import CUBE, cloud
from tests.scenes.structures import ACTUATORS, ELEMENTS, EQUALITIES, JOINTS, MORE, SHAPES, Link, Structure, write
from tests.scenes.terrain import field

STILL = "<mujoco><default><geom contype='0' conaffinity='0'/></default><worldbody>"
EXTREMES = ("ordinary", "masses", "short", "long", "far", "fast", "coincident", "deep")


def loops(shape: np.random.Generator, rng: np.random.Generator) -> str:
    """Closed loops, at closure and redundant ones too: which kind is drawn from `shape`, numbers from `rng`."""

    def axis():
        return " ".join(f"{x:.4f}" for x in rng.normal(size=3))

    kind = shape.integers(4)
    if kind == 0:
        coefficients = " ".join(f"{x:.3f}" for x in [0, *rng.normal(size=4) * 0.5])
        return f"""{STILL}<body><joint name="a" axis="{axis()}"/><geom size=".1" pos=".3 0 0"/></body>
            <body pos="1 0 0"><joint name="b" axis="{axis()}"/><geom size=".1" pos=".3 0 0"/></body></worldbody>
            <equality><joint joint1="a" joint2="b" polycoef="{coefficients}"/></equality></mujoco>"""
    if kind == 1:
        return f"""{STILL}<body><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 1" size=".05"/>
            <body pos="0 0 1"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 1 0 0" size=".05"/>
            <body name="end" pos="1 0 0"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -1" size=".05"/></body></body></body>
            </worldbody><equality><connect body1="end" body2="world" anchor="{0.1 * rng.normal():.3f} 0 -1"/></equality></mujoco>"""
    joints = "".join(f'<joint axis="{axis()}" pos=".05 0 .02"/>' for _ in range(shape.integers(1, 3)))
    hold = '<weld body1="p" body2="c"/>' if kind == 2 else f'<connect body1="p" body2="c" anchor="{axis()}"/>'
    base = "<freejoint/>" if shape.random() < 0.5 else f'<joint axis="{axis()}"/>'
    return f"""{STILL}<body name="p">{base}<geom type="capsule" fromto="0 0 0 .5 0 0" size="{rng.uniform(0.03, 0.07):.4f}"/>
        <body name="c" pos=".5 0 0">{joints}<geom type="capsule" fromto="0 0 0 .5 0 .1" size=".05"/></body></body></worldbody>
        <equality>{hold}</equality></mujoco>"""


def structure(rng: np.random.Generator) -> Structure:
    """One to three bodies."""
    links = []
    for k in range(rng.integers(1, 4)):
        parent = -1 if k == 0 or rng.random() < 0.4 else k - 1
        joints = rng.choice([j for j in JOINTS if j != "fixed"] + ["free"] * 3 * (parent == -1))
        shape, dim = rng.choice(SHAPES), int(rng.choice([1, 3, 4, 6]))
        links.append(Link(parent, str(joints), str(shape), dim, *(rng.random(2) < 0.5), str(rng.choice(ACTUATORS + MORE))))
    cone, integrator = rng.choice(["pyramidal", "elliptic"]), rng.choice(["Euler", "implicit", "implicitfast", "RK4"])
    equality, fluid = str(rng.choice(EQUALITIES)), bool(rng.random() < 0.3)
    elements = tuple(name for name in ELEMENTS if rng.random() < 0.2)
    return Structure(tuple(links), equality, str(cone), str(integrator), True, fluid, elements)


def family(rng: np.random.Generator, seed: int, count: int) -> list[str]:
    """Models that share one program: what they hold is drawn once, their numbers differ."""
    drawn, shape = structure(rng), int(rng.integers(2**31))
    return [enriched(write(drawn, seed + k), np.random.default_rng(shape), np.random.default_rng([seed, k])) for k in range(count)]


def enriched(text: str, shape: np.random.Generator, rng: np.random.Generator) -> str:
    """A scene with more elements: which ones is drawn from `shape`, so that siblings share it, their numbers from `rng`."""
    root = ET.fromstring(text)
    world = root.find("worldbody")
    assert world is not None
    bodies, geoms = list(world.iter("body")), [g for b in world.iter("body") for g in b.findall("geom")]
    if shape.random() < 0.3:
        bodies[shape.integers(len(bodies))].set("gravcomp", f"{rng.uniform(0, 1.5):.4g}")
    if shape.random() < 0.3:
        custom = ET.SubElement(root, "custom")
        ET.SubElement(custom, "numeric", name="restitution", data=f"{rng.uniform(0.1, 0.9):.4g}")
    if shape.random() < 0.3:
        for geom in geoms:
            margin = rng.uniform(0.001, 0.02)
            geom.attrib |= {"margin": f"{margin:.4g}", "gap": f"{rng.uniform(0, margin):.4g}"}
    if shape.random() < 0.2:
        for geom in geoms:
            geom.set("solref", f"{-rng.uniform(100, 5000):.4g} {-rng.uniform(1, 50):.4g}")
    if shape.random() < 0.3:
        lead = ET.SubElement(world, "body", name="lead", mocap="true", pos=" ".join(f"{x:.4g}" for x in rng.normal(size=3) * 0.2))
        ET.SubElement(lead, "geom", size="0.06")
        hold = root.find("equality")
        if hold is not None and shape.random() < 0.5:
            tie = ET.SubElement(hold, "connect", body1="b0", body2="lead", anchor="0 0 0", solref=f"{rng.uniform(0.02, 0.1):.4g} 1")
            if shape.random() < 0.5:
                tie.tag = "weld"
    if shape.random() < 0.3:
        as_meshes(root, [g for g in geoms if "name" not in g.attrib][: shape.integers(1, 3)], shape)
    if shape.random() < 0.2:
        on_hills(root, rng)
    for drive in root.iterfind("actuator/motor[@joint]"):
        if shape.random() < 0.5:
            drive.tag = "general"
            drive.attrib |= {"dyntype": str(shape.choice(["integrator", "filter"])), "dynprm": f"{rng.uniform(0.01, 0.3):.4g}"}
            if shape.random() < 0.5:
                drive.attrib |= {"actlimited": "true", "actrange": f"{-rng.uniform(0.1, 1):.4g} {rng.uniform(0.1, 1):.4g}"}
    return ET.tostring(root, encoding="unicode")


def as_meshes(root: ET.Element, geoms: list[ET.Element], shape: np.random.Generator) -> None:
    """Make some geoms polytopes, which siblings have in common: which faces there are is a part of the program."""
    corners = CUBE if shape.random() < 0.5 else cloud(shape, int(shape.integers(4, 14)))
    corners = corners @ (np.diag(shape.uniform(0.4, 1.2, 3)) + 0.1 * shape.normal(size=(3, 3)))
    vertices = " ".join(f"{x:.9g}" for x in corners.ravel())
    ET.SubElement(ET.SubElement(root, "asset"), "mesh", name="polytope", vertex=vertices)
    for geom in geoms:
        geom.attrib |= {"type": "mesh", "mesh": "polytope", "contype": "1", "conaffinity": "1"}
        del geom.attrib["size"]


def on_hills(root: ET.Element, rng: np.random.Generator) -> None:
    """Make the floor a height field."""
    floor = root.find("worldbody/geom[@type='plane']")
    assert floor is not None
    ET.SubElement(root, "asset").append(ET.fromstring(field(rng, size="2 2 0.2 0.1")))
    floor.attrib |= {"type": "hfield", "hfield": "hills", "pos": "0.3 0.2 -0.15"}
    del floor.attrib["size"]


def extreme(text: str, kind: str, rng: np.random.Generator) -> str:
    """The model with extreme numbers of a kind; "ordinary" and "fast", which is about velocities, leave it as it is."""
    root = ET.fromstring(text)
    option, top = root.find("option"), root.findall("worldbody/body")
    assert option is not None
    if kind == "masses":
        for geom in root.iterfind(".//body/geom"):
            geom.set("density", f"{1000 * 10 ** rng.uniform(-3, 3):.4g}")
    elif kind in ("short", "long"):
        option.set("timestep", f"{10 ** (rng.uniform(-6, -5) if kind == 'short' else rng.uniform(-1.5, -1)):.4g}")
    for body in top:
        x, y, z = (float(n) for n in body.get("pos", "0 0 0").split())
        if kind == "far":
            x += 1000
        elif kind == "coincident":
            x, y, z = 0.3, 0.0, 0.3
        elif kind == "deep":
            z = -rng.uniform(0.02, 0.5)
        body.set("pos", f"{x!r} {y!r} {z!r}")
    return ET.tostring(root, encoding="unicode")
