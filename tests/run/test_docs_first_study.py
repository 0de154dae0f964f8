"""A first study from two folders to a table: docs/first_study.md and its notebook, small.

After a change of the notebook: ``jupyter execute --inplace first_study.ipynb`` in an empty folder,
and its outputs on stderr are left out.
"""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import nbformat
import pytest

from cfaug.report.results import RESULTS, read_results
from cfaug.run.doctor import main as doctor
from tests.scripts import ROOT

PAGE = ROOT / "docs" / "first_study.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")
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
    with (folder / "table.csv").open() as file:  # of the declared test, which comes last
        assert {row["benchmark"] for row in csv.DictReader(file)} == {"test_pairs"}


def test_the_notebook_was_run_whole_and_begins_with_the_page_s_data():
    notebook = nbformat.read(NOTEBOOK, nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    ((_, stand_in),) = [block for block in blocks() if block[0] == "python"]
    assert cells[0].source == stand_in.rstrip()
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert len(outputs) >= 6
    assert all(output.output_type != "error" for output in outputs)
    assert str(ROOT) not in NOTEBOOK.read_text()


@pytest.mark.slow
def test_the_notebook_runs(tmp_path, monkeypatch):
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOK, nbformat.NO_CONVERT)
    changes = SMALLER | {
        "(107, 108, 109)": "(107, 108)", '"trainer.max_epochs": 15': '"trainer.max_epochs": 1',
        '"data.size": 815': '"data.size": 40',
    }  # fmt: skip
    text = "\n".join(cell.source for cell in notebook.cells)
    assert all(word in text for word in changes)
    for cell in notebook.cells:
        for word, smaller in changes.items():
            cell.source = cell.source.replace(word, smaller)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]
    assert not [o for o in outputs if o.output_type == "display_data"]  # quiet=True
    assert "test\\_pairs" in outputs[-1]["data"]["text/markdown"]
    assert (tmp_path / "runs" / "study" / "report.html").is_file()
