"""What the tests of a paper contribute to tests that every paper has to pass."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

PAPERS = Path(__file__).resolve().parent / "papers"


def contributed(module: str, name: str) -> dict[str, Any]:
    """Return together what ``tests/papers/PAPER/MODULE.py`` of each paper calls by a name.

    Args:
        module: the name of the module, which a paper may lack.
        name: the name of a dictionary in it, which a module may lack.
    """
    together: dict[str, Any] = {}
    for file in sorted(PAPERS.glob(f"*/{module}.py")):
        cases = getattr(import_module(f"tests.papers.{file.parent.name}.{module}"), name, {})
        assert not together.keys() & cases.keys(), file
        together |= cases
    return together
