"""The reference names everything public once, the menu lists every page, and links between pages hold."""

import argparse
import ast
import re
from collections import Counter
from pathlib import Path

import pytest

import ukemi
from ukemi.cli import METHODS, _parser

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
PACKAGE = Path(ukemi.__file__).parent


def directives() -> Counter:
    """What the pages ask to be described, and how often."""
    found = Counter()
    for page in PAGES:
        found.update(re.findall(r"^::: *(\S+)", page.read_text(encoding="utf-8"), re.MULTILINE))
    return found


def parsed(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text(encoding="utf-8")).body


def defined(path: Path) -> set[str]:
    """Public functions and classes of a module."""
    kinds = ast.FunctionDef | ast.ClassDef
    return {node.name for node in parsed(path) if isinstance(node, kinds) and not node.name.startswith("_")}


def exported(path: Path) -> set[str]:
    """`__all__` of a module that need not be imported."""
    for node in parsed(path):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    raise AssertionError(f"{path} has no __all__")


def test_the_package_says_the_same_thing_three_times():
    """Names for `from ukemi import *`, where they are found at run time, and where static tools find them."""
    typed = set()
    for node in parsed(PACKAGE / "__init__.py"):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            typed = {alias.name for found in node.body for alias in found.names}
    assert set(ukemi.__all__) == set(ukemi._HOME) == typed
    assert len(ukemi.__all__) == len(set(ukemi.__all__)) > 30


def test_every_public_name_is_described_once():
    public = {f"ukemi.{name}" for name in ukemi.__all__}
    public |= {f"ukemi.view.{name}" for name in exported(PACKAGE / "view" / "__init__.py")}
    public |= {f"ukemi.torch.{name}" for name in defined(PACKAGE / "torch.py")} | {"ukemi.torch"}
    found = directives()
    assert not [name for name, times in found.items() if times > 1]
    described = {name for name in found if name.startswith(("ukemi.torch.", "ukemi.view.")) or name.count(".") == 1}
    assert described == public


def test_what_else_is_described_exists():
    """Records that public functions return, under the module that defines them."""
    rest = [name for name in directives() if name.count(".") > 1 and not name.startswith(("ukemi.torch", "ukemi.view"))]
    for name in rest:
        module, _, record = name.removeprefix("ukemi.").rpartition(".")
        assert record in defined((PACKAGE / module.replace(".", "/")).with_suffix(".py")), name
    assert rest


def test_the_menu_lists_every_page():
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"([\w./-]+\.md)$", menu, re.MULTILINE)
    assert sorted(listed) == [page.relative_to(ROOT / "docs").as_posix() for page in PAGES]


def test_indexes_list_the_pages_beside_them():
    for index in (page for page in PAGES if page.name == "index.md"):
        beside = {page.name for page in index.parent.glob("*.md")} - {"index.md"}
        assert set(re.findall(r"\]\(([\w-]+\.md)\)", index.read_text(encoding="utf-8"))) == beside, index


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md"], ids=lambda path: path.name)
def test_links_lead_to_files(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert not [link for link in links if not (page.parent / link).exists()]


def test_the_page_of_the_command_line_has_every_option():
    text = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## ukemi (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    (commands,) = (a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    assert set(sections) == set(commands.choices)
    for name, parser in commands.choices.items():
        options = {o for action in parser._actions for o in action.option_strings if o.startswith("--")} - {"--help"}
        assert set(re.findall(r"^\| `(--[\w-]+)`", sections[name], re.MULTILINE)) == options
    methods = re.search(r"`--method` \|(.*)", sections["simulate"])[1]
    assert set(re.findall(r"`(\w+)`", methods)) == {name for name, law in METHODS.items() if law in ukemi.__all__}
