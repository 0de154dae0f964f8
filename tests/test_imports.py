"""No circles among the modules of data, whatever kind of import makes them."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import cfaug

ROOT = Path(cfaug.__file__).parent


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(package: str) -> dict[str, set[str]]:
    """Every module of a package with those it imports: at the top, inside, or for types only."""
    files = {module_name(file): file for file in (ROOT / package).rglob("*.py")}
    graph = {}
    for name, file in files.items():
        found = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                whole = {f"{node.module}.{one.name}" for one in node.names}
                found |= {one if one in files else node.module for one in whole}
            elif isinstance(node, ast.Import):
                found |= {one.name for one in node.names}
        graph[name] = (found & set(files)) - {name}
    return graph


@pytest.mark.parametrize("package", ["data", "papers"])
def test_no_module_imports_itself_by_way_of_others(package):
    graph = imports_of(package)
    assert sum(map(len, graph.values())) > 5
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
