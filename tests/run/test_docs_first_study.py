"""A first study from two folders to a table: the blocks of docs/first_study.md, small."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cfaug.report.results import RESULTS, read_results
from cfaug.run.doctor import main as doctor
from tests.scripts import ROOT

PAGE = ROOT / "docs" / "first_study.md"
WORLD = (
    '{"data.world.real_scenes": 60, "data.world.counterfactual_pairs": 30, '
    '"data.world.id_scenes": 20, "data.world.ood_pairs": 20}'
)
SMALLER = {
    '"shapescapes:{part}")': f'"shapescapes:{{part}}", {WORLD})',
    '("real", 900)': '("real", 60)', '("id", 200)': '("id", 20)',
    '("counterfactual", 400)': '("counterfactual", 30)', '("ood_pairs", 200)': '("ood_pairs", 20)',
}  # fmt: skip
SMALL = {
    "trainer.max_epochs=15": "trainer.max_epochs=1", "seed=107,108,109": "seed=107,108",
    "data.size=815": "data.size=40",
}  # fmt: skip


def blocks() -> list[tuple[str, str]]:
    return re.findall(r"```(python|bash)\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.slow
def test_the_study_runs(tmp_path, monkeypatch, script, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    ((_, stand_in),) = [block for block in blocks() if block[0] == "python"]
    for word, smaller in SMALLER.items():
        assert word in stand_in
        stand_in = stand_in.replace(word, smaller)
    exec(compile(stand_in, str(PAGE), "exec"), {})
    commands = [
        line for language, text in blocks() if language == "bash" for line in text.splitlines()
    ]
    assert len(commands) == 7
    for command in commands:
        program, file, *words = shlex.split(command)
        if program == "cfaug":
            assert (file, doctor(words)) == ("doctor", 0)
            continue
        typed = [SMALL.get(word, word) for word in words]
        assert script(Path(file).stem)(typed) == 0, (typed, capfd.readouterr().err)
    folder = tmp_path / "runs" / "study"
    assert {"report.html", "table.tex", "report-1.pdf", "seeds_and_items.csv"} <= {
        file.name for file in folder.iterdir()
    }
    measured = [
        {row.benchmark for row in read_results(file)} for file in folder.glob(f"*/*/{RESULTS}")
    ]
    assert measured == [{"test_pairs", "heldout_retrieval", "test_retrieval"}] * 4
    table = (folder / "table.csv").read_text()
    assert all(name in table for name in measured[0])
