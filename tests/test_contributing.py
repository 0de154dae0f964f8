"""CONTRIBUTING.md names files that exist, in three lists of three."""

from __future__ import annotations

import re

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
        assert list(place.parent.glob(f"*{place.suffix}")), path
    else:
        assert place.exists(), path


@pytest.mark.parametrize("what", ["an editor", "a model", "a benchmark"])
def test_an_addition_is_a_list_of_files(what):
    [section] = re.findall(rf"## Add {what}\n(.*?)\n## ", TEXT, re.DOTALL)
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert len(rows) == 3
    for row in rows:
        assert len(row.strip("|").split(" | ")) == 3
