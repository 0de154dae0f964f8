"""The documentation is built without a warning, and its lists name what there is."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import cfaug
from cfaug.report.layout import ITEM_COLUMNS
from cfaug.report.significance_rows import SignificanceRow
from tests import children
from tests.files_of_settings import is_whole, settings_files
from tests.scripts import ROOT


def build_pages(folder: Path) -> None:
    """Build the pages of a folder, and end this process with Sphinx's exit code."""
    from sphinx.cmd.build import main

    os.chdir(folder)
    sys.exit(main(["-b", "html", "-W", "--keep-going", "-q", "-w", "warnings", "docs", "site"]))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    source = folder / "docs"
    source.mkdir()
    for file in (ROOT / "docs").iterdir():
        if file.is_file():
            shutil.copy(file, source)
    shutil.copy(ROOT / "README.md", folder)  # docs/index.md includes its first commands
    (folder / "cfaug").symlink_to(ROOT / "cfaug")  # docs/map.md links its files
    child = children.start(build_pages, folder)
    child.join()
    assert child.exitcode == 0, (folder / "warnings").read_text()
    return folder / "site"


@pytest.mark.slow
def test_every_public_name_has_a_page_with_its_arguments(site):
    for name in cfaug.PUBLIC:
        text = (site / "reference" / f"cfaug.{name}.html").read_text()
        assert f"cfaug.{name}" in text
    page = (site / "reference" / "cfaug.fine_tune.html").read_text()
    for argument in ("settings", "more"):
        assert f"<strong>{argument}</strong>" in page


@pytest.mark.slow
def test_no_page_loads_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 10
    for page in pages:
        loaded = re.findall(
            r"<(?:script|img|iframe)[^>]*src=\"([^\"]+)|<link[^>]*stylesheet[^>]*href=\"([^\"]+)",
            page.read_text(),
        )
        assert not [address for pair in loaded for address in pair if "//" in address]
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*['\"]?(?:https?:)?//", sheet.read_text())


def makefiles() -> str:
    """Return the Makefile with what it includes."""
    included = sorted((ROOT / "cfaug").glob("*/*/reproduce.mk"))
    return "\n".join(file.read_text() for file in (ROOT / "Makefile", *included))


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
    choices = {file.stem for file in settings_files("benchmark")}
    names = listed("models.md", "Benchmarks")
    assert names == choices if is_whole() else names >= choices


def test_what_a_thousand_images_bring_is_what_the_demo_shows():
    """README's points per 1,000 images, from the means of docs/demo.md."""
    demo = (ROOT / "docs" / "demo.md").read_text()
    means = {
        name: (float(out), float(inside))
        for name, out, inside in re.findall(
            r"(?m)^\| ([^|]+) \| \**([\d.]+)\** ± [^|]+\|[^|]+\| \**([\d.]+)\** ± [^|]+\|$", demo
        )
    }
    rows = re.findall(r"(?m)^\| ([^|]+) \| (\S+) \| (\S+) \|$", (ROOT / "README.md").read_text())
    arms = {
        "generated pairs": "real + generated pairs",
        "the world's own pairs": "real + counterfactual pairs (the oracle's)",
        "control: unbiased scenes, unpaired": "control: real + unbiased, unpaired",
    }
    brought = {name: numbers for name, *numbers in rows if name in arms}
    assert brought.keys() == arms.keys()
    for name, arm in arms.items():
        gains = zip(means[arm], means["real + more real"], strict=True)
        assert brought[name] == [f"{(mean - base) / 0.9:+.1f}" for mean, base in gains]


COST = r"\d+ min(?: on two cores)?, (?:\d+ seeds|trains nothing)"


def read_costs() -> dict[str, str]:
    """Return what each target of a page costs."""
    return dict(re.findall(rf"(?m)^([a-z]+): .*\(({COST})\)$", makefiles()))


def test_what_a_target_costs_is_said_alike_everywhere():
    """Minutes on two cores and seeds: in the Makefile, README and docs/."""
    costs = read_costs()
    assert {"demo", "editors"} <= set(costs)
    assert len(costs) == 12 or not is_whole()
    named: set[str] = set()
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for name, cost in re.findall(rf"make ([a-z]+)[^(\n]*\(({COST})\)", page.read_text()):
            named.add(name)
            if name in costs:
                assert cost.replace(" on two cores", "") == costs[name], (page.name, name)
    assert named == set(costs) if is_whole() else named >= set(costs)


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
NAMED = sorted(
    set(
        re.findall(
            r"`((?:cfaug|conf|tests|benchmarks|sweeps)/[\w./<>-]*|[A-Z]+\.md)`", CONTRIBUTING
        )
    )
)


if not is_whole():  # it names files of papers as examples
    NAMED = [path for path in NAMED if not path.startswith("cfaug/papers/")]


def test_it_names_many_paths():
    assert len(NAMED) > 20


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
    [section] = re.findall(rf"## Add {what}\n(.*?)\n## ", CONTRIBUTING, re.DOTALL)
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert len(rows) == count
    for row in rows:
        assert len(row.strip("|").split(" | ")) == 3
