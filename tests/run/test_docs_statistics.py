"""Every command of docs/statistics.md that needs no experiment runs, and so does its Python."""

from __future__ import annotations

import csv
import re
import shlex

import numpy as np
import pytest

from cfaug.run.compare_answers import main as compare
from cfaug.stats.item_tests import WHICH_TEST
from tests.run.conftest import SCENES, commands_of
from tests.scripts import ROOT

PAGE = ROOT / "docs" / "statistics.md"
COMMANDS = [words for _, words in commands_of(PAGE)]


def write_released(folder) -> None:
    """Write answers in the released forms, under the names of the page."""
    names = re.findall(r"[\w-]+\.csv", " ".join(re.findall("cfaug compare.*", PAGE.read_text())))
    for place, name in enumerate(names):
        rng, rows = np.random.default_rng(place), []
        for number in range(60):
            right = bool(rng.random() < 0.5 + 0.2 * (place % 2))
            about = {
                "caption": f"A dog, {number}.",
                "type": "swap",
                "subtype": ("obj", "att")[number % 2],
            }
            if name.startswith("BiVLC"):
                image = f"<PIL.Image mode=RGB at 0x7F{place}{number:04X}>"
                rows.append({"image": image, **about, "text_score": right, "group_score": right})
            else:
                rows.append({"filename": f"{number // 3:012d}.jpg", **about, "correct": int(right)})
        with (folder / name).open("w", newline="") as handle:
            writer = csv.DictWriter(handle, [*rows[0]], quoting=csv.QUOTE_ALL)
            writer.writeheader()
            writer.writerows(rows)


@pytest.mark.slow
def test_files_are_compared_as_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_released(tmp_path)
    lines = re.findall(r"^cfaug compare (.*)$", PAGE.read_text(), re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        assert compare(shlex.split(line)) == 0
    pages = "".join(file.read_text() for file in (tmp_path / "runs/compared").glob("*.html"))
    assert "60 items: standard error" in pages
    assert "60 items in 20 clusters" in pages
    assert "swap obj" in pages
    assert len(list((tmp_path / "runs/compared").glob("*.csv"))) == 2


def test_the_python_runs(capsys):
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})
    mean = float(capsys.readouterr().out.split()[0])
    assert 0.05 < mean < 0.15


@pytest.mark.slow
def test_two_checkpoints_are_compared_as_the_page_says(place, shards, capsys):
    commands = [words for words in COMMANDS if words[0].startswith("weights=")]
    assert len(commands) == 2
    for words in commands:
        assert place.evaluate(*words, *SCENES) == 0
    said = capsys.readouterr().out
    assert "McNemar" in said
    text = next(place.root.rglob("table*.md")).read_text()
    assert re.search(r"12 items: (standard error|no spread)", text)
    assert "p McNemar, two-sided" in text


def test_the_page_has_the_table_of_which_test_is_used_when():
    text = PAGE.read_text("utf-8")
    lines = "".join(f"| {' | '.join(row)} |\n" for row in WHICH_TEST)
    assert f"|---|---|---|\n{lines}\n" in text


def test_the_simulated_rates_of_the_page_keep_their_promise():
    """Without a difference: at most 6 % at the 5 % level, .2 % at .1 %; intervals hold 94 %."""
    part = PAGE.read_text("utf-8").partition("## Few clusters")[2].partition("###")[0]
    cells = [
        tuple(map(float, cell))
        for line in part.splitlines() if line.startswith("|") and "skewed" not in line
        for cell in re.findall(r"([\d.]+) / ([\d.]+) / ([\d.]+)", line)
    ]  # fmt: skip
    assert len(cells) == 3 * 4 * 7
    assert max(cell[0] for cell in cells) <= 6
    assert max(cell[1] for cell in cells) <= 0.2
    assert min(cell[2] for cell in cells) >= 94
