"""CONTRIBUTING.md names files that exist, in lists of files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.hygiene import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
NAMED = sorted(
    set(re.findall(r"`((?:cfaug|conf|tests|benchmarks|sweeps)/[\w./<>-]*|[A-Z]+\.md)`", TEXT))
)


def test_it_names_many_paths():
    assert len(NAMED) > 25


@pytest.mark.parametrize("path", NAMED)
def test_what_it_names_exists(path):
    """A file to be added stands in a folder that exists and holds others of its kind."""
    place = ROOT / path
    if "<" in path:
        assert list(
            Path(*[part for part in place.parent.parts if "<" not in part]).rglob(
                f"*{place.suffix}"
            )
        ), path
    else:
        assert place.exists(), path


@pytest.mark.parametrize(("what", "count"), [("a paper", 6), ("a model", 3), ("a benchmark", 3)])
def test_an_addition_is_a_list_of_files(what, count):
    [section] = re.findall(rf"## Add {what}\n(.*?)\n## ", TEXT, re.DOTALL)
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert len(rows) == count
    for row in rows:
        assert len(row.strip("|").split(" | ")) == 3
