"""Pages of the documentation, whose Python blocks are run in their order."""

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def text_of(page: str) -> str:
    """The text of a page."""
    return (DOCS / page).read_text(encoding="utf-8")


def blocks_of(page: str) -> list[str]:
    """Its blocks of Python."""
    return re.findall(r"^```python\n(.*?)^```$", text_of(page), re.DOTALL | re.MULTILINE)


def run(page: str, blocks: list[str] | None = None, names: dict | None = None) -> dict:
    """All names after blocks of a page have run, all of them if left out; names: those that there are before."""
    names = {} if names is None else names
    for block in blocks_of(page) if blocks is None else blocks:
        exec(compile(block, str(DOCS / page), "exec"), names)
    return names
