"""The order of rooms (docs/architecture.md): each imports those to its left alone, no law another's inside."""

import ast
import re
from pathlib import Path

import pytest

import ukemi

ROOMS = [
    *("xla", "implicit", "maths", "model", "mechanics", "collide"),
    *("constraints", "laws", "observe", "simulate", "checking"),
]
GROUND = {"errors", "values", "status"}  # what a user may meet anywhere
BESIDE = {"files": "constraints"}  # it may use what is left of there, and constraints; nothing physical uses it
DOORS = {"laws.soft.law", "laws.conic.relaxed"}  # what one law may use of another: its public face
ROOT = Path(ukemi.__file__).parent


def modules() -> dict[str, Path]:
    """Every module of the package by its name within."""
    paths = (path for path in ROOT.rglob("*.py") if path.name != "__init__.py")
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}


def imports(path: Path, known) -> set[str]:
    """Modules of the package that one imports, at its top or within."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names] + [str(node.module)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.removeprefix("ukemi.") for name in names if name.removeprefix("ukemi.") in known}
    return found


KNOWN = modules()
GRAPH = {name: imports(path, KNOWN) - {name} for name, path in KNOWN.items()}


def room(name: str) -> str:
    return name.partition(".")[0]


def test_each_room_imports_only_those_to_its_left():
    wrong = []
    for name, used in GRAPH.items():
        if room(name) in GROUND:
            wrong += [(name, other) for other in used if room(other) not in GROUND]
        if room(name) not in ROOMS and room(name) not in BESIDE:
            continue
        last = ROOMS.index(BESIDE.get(room(name), room(name)))
        allowed = {*ROOMS[: last + 1], *GROUND, room(name)}
        wrong += [(name, other) for other in used if room(other) not in allowed]
    assert not wrong


def test_no_law_imports_the_inside_of_another():
    def law(name):
        parts = name.split(".")
        return parts[1] if parts[0] == "laws" and len(parts) > 2 else None

    wrong = [
        (name, other)
        for name, used in GRAPH.items()
        for other in used
        if room(name) == "laws" and law(other) and law(other) != law(name) and other not in DOORS
    ]
    assert not wrong


def test_no_module_imports_itself_in_the_end():
    done, path = set(), []

    def visit(name):
        assert name not in path, f"cycle: {[*path[path.index(name):], name]}"
        if name in done:
            return
        path.append(name)
        for other in sorted(GRAPH[name]):
            visit(other)
        path.pop()
        done.add(name)

    for name in GRAPH:
        visit(name)


def test_modules_are_called_by_words():
    aliases = []
    for path in KNOWN.values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("ukemi"):
                aliases += [(path.name, a.asname) for a in node.names if a.asname and len(a.asname) < 3]
    assert not aliases


def test_physics_knows_no_compiler():
    """Barriers have names there: `apart`, `arrive`, `materialize`."""
    rooms = ("xla", "implicit", "maths")
    words = re.compile(r"optimization_barrier|\bbarrier\(")
    raw = [name for name, path in KNOWN.items() if words.search(path.read_text(encoding="utf-8"))]
    assert raw and all(room(name) in rooms for name in raw)


def test_files_and_functions_stay_small():
    """At most about 400 lines a file, and 60 a function of the package."""
    beside = [path for folder in ("tests", "bench") for path in (ROOT.parent / folder).rglob("*.py")]
    for path in (*KNOWN.values(), *beside):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 400, path
        if path in beside:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno - node.lineno <= 62, f"{path}: {node.name}"


def test_the_architecture_page_names_what_there_is():
    page = ROOT.parent / "docs" / "architecture.md"
    if not page.exists():
        pytest.skip("the documentation is not part of an installed package")
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`(ukemi/[\w/.]*)`", text)
    assert len(named) > 40 and not [name for name in named if not (ROOT.parent / name).exists()]
    assert {name.split("/")[1] for name in named if name.endswith("/")} >= {*ROOMS, *BESIDE}
