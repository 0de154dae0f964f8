"""Lists in docs/ have an entry for everything that the code has, and none beside."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from cfaug.report.layout import ITEM_COLUMNS
from cfaug.report.significance_rows import SignificanceRow

ROOT = Path(__file__).parent.parent


def listed(page: str, heading: str) -> set[str]:
    """Return the names in code style in the first column of the table below a heading."""
    text = (
        (ROOT / "docs" / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    )
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| ")]
    return {name for cell in cells[1:] for name in re.findall("`([a-z0-9_]+)`", cell)}


def test_the_columns_of_the_csv():
    names = {field.name for field in fields(SignificanceRow)}
    assert listed("tables.md", "Columns of `table.csv`") == {
        *names, *ITEM_COLUMNS, "label", "note", "chance",
    }  # fmt: skip


def test_the_benchmarks():
    choices = {file.stem for file in (ROOT / "conf/benchmark").glob("*.yaml")}
    assert listed("models.md", "Benchmarks") == choices


COST = r"\d+ min(?: on two cores)?, (?:\d+ seeds|trains nothing)"


def test_what_a_target_costs_is_said_alike_everywhere():
    """Minutes on two cores and seeds: in the Makefile, README and docs/."""
    said = re.findall(rf"(?m)^([a-z]+): .*\(({COST})\)$", (ROOT / "Makefile").read_text())
    costs = dict(said)
    assert set(costs) == {
        "demo", "tables", "stress", "social", "xmai", "compositional", "cfmm", "editors", "repair",
    }  # fmt: skip
    found: set[str] = set()
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for name, cost in re.findall(rf"make ([a-z]+)[^(\n]*\(({COST})\)", page.read_text()):
            assert cost.replace(" on two cores", "") == costs[name], (page.name, name)
            found.add(name)
    assert found == set(costs)
