"""What is called ``cfaug.MODULE.NAME`` in a page, a setting or an error is there to be named."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PLACES = {
    "pages": [ROOT / "README.md", *(ROOT / "docs").glob("*.md")],
    "settings": (ROOT / "conf").rglob("*.yaml"),
    "sweeps": (ROOT / "sweeps").iterdir(),
    "code": (ROOT / "cfaug").rglob("*.py"),
}
DOTTED = re.compile(r"\bcfaug(?:\.[a-z_]\w*)+\.[A-Z]\w*[a-z]\w*")


@cache
def names_of(file: Path) -> set[str]:
    """Return what a module defines or imports, and what its classes have."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            found |= {one.asname or one.name for one in node.names}
    return found


def is_there(name: str) -> bool:
    """Say whether a dotted name leads to a module, or to what one defines."""
    place, parts = ROOT / "cfaug", name.split(".")[1:]
    while (
        parts and (place / parts[0] / "__init__.py").is_file()
    ):  # a folder of data may share a name
        place /= parts.pop(0)
    if not parts:
        return True
    file = place / f"{parts[0]}.py"
    rest = parts[1:] if file.is_file() else parts
    file = file if file.is_file() else place / "__init__.py"
    return not rest or (file.is_file() and set(rest) <= names_of(file))


@pytest.mark.parametrize("place", PLACES)
def test_every_class_that_is_named_is_there(place):
    said = {
        name: file.relative_to(ROOT)
        for file in PLACES[place]
        if file.is_file()
        for name in DOTTED.findall(file.read_text(encoding="utf-8"))
    }
    assert said
    assert {name: str(file) for name, file in said.items() if not is_there(name)} == {}
