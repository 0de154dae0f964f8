"""``make cfmm``: its commands compose; the zoo's models show what they are for at small size."""

from __future__ import annotations

import shlex
import subprocess
from functools import cache
from pathlib import Path

import pytest

from cfaug.report.document import read_document
from cfaug.run.launch import choose_named
from tests.run.conftest import jobs_of
from tests.scripts import ROOT
from zoo.vlm import main_questions

MODELS = ("vlm-basic-0", "vlm-both-0")


@cache
def make_lines() -> list[list[str]]:
    """Return the words behind ``python`` of every command, those that write questions first."""
    said = subprocess.run(
        ["make", "-n", "-B", "-o", ".venv/.installed", "cfmm"], cwd=ROOT, check=True,
        capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    words = [shlex.split(line) for line in said if "python " in line]
    lines = [c[3:] if c[1:3] == ["-m", "cfaug"] else c[1:] for c in words]
    return [command for command in lines if command[0] != "-m" or command[1] == "zoo"]


def words_of(*wanted: str) -> list[str]:
    """Return the words of the one command that has all of some."""
    [command] = [command for command in make_lines() if set(wanted) <= set(command)]
    return command[1:]


def test_every_command_is_one_of_ours_and_the_questions_are_made_before():
    scripts = [command[0] for command in make_lines()]
    assert scripts[0] == "-m"
    assert {*scripts[1:]} <= {"evaluate.py", "train.py", "table"}
    asked = words_of("weights=zoo:vlm-basic-0,zoo:vlm-both-0")
    [file] = [word.partition("=")[2] for word in asked if word.startswith("benchmark.data=")]
    assert f"out={Path(file).parent}" in make_lines()[0]
    assert any(file in word for word in words_of("cfmm_figure_4"))


@pytest.mark.slow
def test_every_command_composes():
    for script, *words in make_lines():
        if script == "-m" or any(word.startswith("sweep=") for word in words):
            continue
        jobs_of(Path(script).stem, *(choose_named(script, words) if script == "table" else words))


@pytest.mark.slow
def test_the_models_of_the_zoo_see_and_one_of_them_reasons(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = Path("shards/shapescapes-vqa")
    assert main_questions([f"out={out}", "part=test", "pairs=18"]) == 0
    asked = [word for word in words_of("weights=zoo:vlm-basic-0,zoo:vlm-both-0")
             if not word.startswith(("weights=", "paths.runs=", "--"))]  # fmt: skip
    for name in MODELS:
        assert place.evaluate(*asked, f"weights=zoo:{name}", "device=cpu") == 0
    shown = [word for word in words_of("cfmm_oracle") if not word.startswith("paths.runs=")]
    assert place.table(*shown) == 0
    document = read_document(place.root / "tables" / "cfmm_oracle.json")
    [part] = document.parts
    rows = {
        labels: {
            name: cell.numbers.get("value") for name, cell in zip(part.columns, cells, strict=True)
        }
        for labels, cells in part.rows
    }
    basic, both = (
        rows[name, "0-shot"] for name in ("basic questions alone", "basic and counterfactual")
    )
    assert min(basic["acc_b"], both["acc_b"]) > 0.9
    assert basic["acc_c"] < 0.65 < 0.85 < both["acc_c"]
    assert basic["answer changes"] < basic["answer stays"]
    blind = rows["basic questions alone", "0-shot, without the image"]
    assert blind["acc_b"] == blind["acc_c"] == 0.5
    assert len(document.pictures) == 6
    assert len(document.bars) == 2
    assert list(place.root.rglob("shapescapes_vqa.html"))
