"""No public function takes more than eight parameters: more are a settings object.

A private one takes what it needs: no record is made to carry arguments over one hop.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST = 8


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the names of a function's parameters, but for the object or class it is called on."""
    given = node.args
    named = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return named[named[:1] in (["self"], ["cls"]) :]


def functions(source: str) -> Iterator[tuple[str, list[str]]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, parameters(node)


def test_parameters_are_counted():
    source = "class A:\n async def f(self, a, /, b=1, *c, d, **e): ...\ndef g(x, *, y): ..."
    assert dict(functions(source)) == {"f": ["a", "b", "d"], "g": ["x", "y"]}


def test_no_public_signature_is_longer_than_eight():
    found = [
        f"{file.relative_to(ROOT)}: {name} takes {len(names)}: {', '.join(names)}"
        for file in sorted((ROOT / "cfaug").rglob("*.py"))
        for name, names in functions(file.read_text())
        if len(names) > MOST and not name.startswith("_")
    ]
    assert not found, "\n".join(found)
