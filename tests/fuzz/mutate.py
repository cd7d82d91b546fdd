"""Mutations of robot files, drawn at random: of elements and attributes, and of the bare text."""

import copy
import xml.etree.ElementTree as ET

import numpy as np

VALUES = (
    "nan inf -inf 1e300 -1e300 1e-300 1e30 1e8 1e-12 -1 0 1 2 -0.5 1e999 0x10 true false auto x 17 "
    "0,0,0 0,0,0,0 1,2,3,4,5,6,7 nan,nan,nan -1,1 1,-1 inf,-inf -inf,inf 0,1e-8 1,2,x"
).split() + ["", " ", "nan 0 0", "ä", "&lt;"]
BYTES = "<>\"'/=& \n\0\x01abz09.-ä\ud800"


def mutated(text: str, rng: np.random.Generator) -> str:
    """A file with one to three changes; one in ten is changed as text alone."""
    if rng.random() < 0.1:
        return _of_text(text, rng)
    root = ET.fromstring(text)
    for _ in range(rng.integers(1, 4)):
        CHANGES[rng.choice(len(CHANGES), p=_SHARES)](root, rng)
    return ET.tostring(root, encoding="unicode")


def _some(root: ET.Element, rng, attributed: bool = False) -> ET.Element:
    elements = [e for e in root.iter() if e.attrib or not attributed] or [root]
    return elements[rng.integers(len(elements))]


def _parent(root: ET.Element, child: ET.Element) -> ET.Element | None:
    return next((e for e in root.iter() if child in list(e)), None)


def _value(root, rng):
    element = _some(root, rng, attributed=True)
    if not element.attrib:
        return
    name = rng.choice(sorted(element.attrib))
    element.set(name, _changed(element.get(name, ""), rng))


def _changed(value: str, rng) -> str:
    """Another value: anything, or numbers of which one is scaled, negated or replaced, or of another count."""
    words = value.split()
    kind = rng.integers(6)
    try:
        numbers = [float(w) for w in words]
    except ValueError:
        numbers = []
    if kind == 0 or not numbers:
        return str(rng.choice(VALUES)).replace(",", " ")
    k = rng.integers(len(numbers))
    if kind == 1:
        words[k] = str(rng.choice(VALUES)).split(",")[0]
    elif kind == 2:
        words[k] = repr(-numbers[k])
    elif kind == 3:
        words = words[:k] if rng.random() < 0.5 else words + words[: k + 1]
    else:
        words[k] = repr(numbers[k] * float(10 ** rng.normal(0, 0.3 if kind == 4 else 3)))
    return " ".join(words)


def _attribute(root, rng):
    """An attribute that some element has, on another, most often of the same kind."""
    giver = _some(root, rng, attributed=True)
    alike = [e for e in root.iter() if e.tag == giver.tag] if rng.random() < 0.8 else [_some(root, rng)]
    if giver.attrib:
        name = rng.choice(sorted(giver.attrib))
        alike[rng.integers(len(alike))].set(name, _changed(giver.get(name, ""), rng))


def _loss(root, rng):
    element = _some(root, rng, attributed=True)
    if element.attrib:
        del element.attrib[rng.choice(sorted(element.attrib))]


def _rename(root, rng):
    element = _some(root, rng, attributed=True)
    if element.attrib:
        old = rng.choice(sorted(element.attrib))
        names = sorted({name for e in root.iter() for name in e.attrib} | {"nonsense"})
        element.set(rng.choice(names), element.attrib.pop(old))


def _delete(root, rng):
    child = _some(root, rng)
    parent = _parent(root, child)
    if parent is not None:
        parent.remove(child)


def _duplicate(root, rng):
    child = _some(root, rng)
    parent = _parent(root, child)
    if parent is not None:
        twin = copy.deepcopy(child)
        for k, element in enumerate(twin.iter()):
            if "name" in element.attrib and rng.random() < 0.8:
                element.set("name", f"{element.get('name')}_{k}_{rng.integers(1000)}")
        parent.append(twin)


def _move(root, rng):
    child, place = _some(root, rng), _some(root, rng)
    parent = _parent(root, child)
    if parent is not None and place not in list(child.iter()):
        parent.remove(child)
        place.append(child)


def _swap(root, rng):
    one, other = _some(root, rng), _some(root, rng)
    one.tag, other.tag = other.tag, one.tag


CHANGES = (_value, _attribute, _loss, _rename, _delete, _duplicate, _move, _swap)
_SHARES = np.array([10, 4, 2, 1, 2, 2, 1, 1]) / 23


def _of_text(text: str, rng) -> str:
    at = int(rng.integers(len(text)))
    kind = rng.integers(4)
    if kind == 0:
        return text[:at]
    if kind == 1:
        return text[:at] + text[at + int(rng.integers(1, 40)) :]
    return text[:at] + BYTES[rng.integers(len(BYTES))] + text[at + int(kind == 2) :]
