"""Text files are UTF-8 on every machine: what ruff's PLW1514 misses where it knows no type."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.scripts import ROOT

PLACES = {"read_text": 0, "write_text": 1}
"""The place of the encoding among the arguments."""

TALKING = {"run", "Popen", "check_output"}
"""Functions of ``subprocess`` that return text."""


def find_unspecified(code):
    """Return the lines of calls that read or write text without saying in which encoding."""
    found = []
    for call in ast.walk(ast.parse(code)):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        named = {keyword.arg for keyword in call.keywords}
        if "encoding" in named:
            continue
        talks = call.func.attr in TALKING and named & {"text", "universal_newlines"}
        if talks or PLACES.get(call.func.attr) == len(call.args):
            found.append(call.lineno)
    return found


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("file.read_text()\nfile.read_text('utf-8')\nfile.read_text(encoding='ascii')", [1]),
        ("(folder / 'a').write_text(f'{x}')\nfile.write_text(x, encoding='utf-8')", [1]),
        ("subprocess.run(words, text=True)\nsubprocess.run(words)\nrow.make(text=x)", [1]),
    ],
)
def test_what_is_found(code, lines):
    assert find_unspecified(code) == lines


@pytest.mark.parametrize("folder", ["cfaug", "benchmarks", "tools"])
def test_every_text_file_is_read_and_written_as_utf_8(folder):
    found = {
        str(file.relative_to(ROOT)): lines
        for file in sorted((ROOT / folder).rglob("*.py"))
        if (lines := find_unspecified(Path(file).read_text(encoding="utf-8")))
    }
    assert not found
