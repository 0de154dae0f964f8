"""An afternoon with photos and edits of one's own: the blocks of docs/own_edits.md, small."""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter
from pathlib import Path

import pytest

from cfaug.evaluation.failures import read_failures
from cfaug.report.results import RESULTS, read_results
from tests.scripts import ROOT
from tests.test_readme import is_there

PAGE = ROOT / "docs" / "own_edits.md"
WORLD = '{"data.world.real_scenes": 110, "data.world.id_scenes": 130}'
SMALLER = {
    '"shapescapes:{part}")': f'"shapescapes:{{part}}", {WORLD})',
    "0, 1200": "0, 80", "1200, 1500": "80, 110", "0, 300": "0, 100", "300, 400": "100, 130",
}  # fmt: skip
SMALL = {
    "trainer.max_steps=300": "trainer.max_steps=8", "trainer.max_steps=100": "trainer.max_steps=1",
    "seed=107,108,109": "seed=107,108", "data.size=640": "data.size=40",
}  # fmt: skip
MORE = {
    # A model of eight steps knows little: every measured cell is taken.
    "failures=": ["failure_rule.minimum=-1", "failure_rule.alpha=1", "failure_rule.least_items=6"],
    "benchmark.failures=": ["benchmark.rule.least_items=2"],
}


def blocks() -> list[tuple[str, str]]:
    """Return the language and the text of every block that runs, in order."""
    return re.findall(r"```(python|bash)\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.slow
def test_the_afternoon_runs(tmp_path, monkeypatch, script, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    (stand_in, corrupt) = [text for language, text in blocks() if language == "python"]
    for word, smaller in SMALLER.items():
        assert word in stand_in
        stand_in = stand_in.replace(word, smaller)
    exec(compile(stand_in, str(PAGE), "exec"), {})
    commands = [
        line for language, text in blocks() if language == "bash"
        for line in text.splitlines() if all(map(is_there, shlex.split(line)))
    ]  # fmt: skip
    assert len(commands) >= 6
    for command in commands:
        _, file, *words = shlex.split(command)
        if file == "corrupt.py":
            monkeypatch.setattr(sys, "argv", [file, *words])
            exec(compile(corrupt, file, "exec"), {})
            continue
        more = [w for start, some in MORE.items() if any(x.startswith(start) for x in words)
                for w in some]  # fmt: skip
        typed = [SMALL.get(word, word) for word in words]
        assert script(Path(file).stem)([*typed, *more]) == 0, (typed, capfd.readouterr().err)
    said = capfd.readouterr()
    assert (
        "edits by kind (blur: 100, dark: 100, fog: 100, grey: 100, noise: 100), 100 re" in said.err
    )
    failures = read_failures("failures.jsonl")
    assert Counter(failure.kind for failure in failures).keys() == {
        "blur", "dark", "fog", "grey", "noise",
    }  # fmt: skip
    assert re.search(
        r" failures among \d+ measured cells \((?:(?:blur|dark|fog|grey|noise) \d+(?:, )?){5}\)",
        said.out,
    )
    (folder,) = tmp_path.glob("runs/weights/*/seed=0")
    assert (folder / "stress.html").is_file()
    for file in tmp_path.glob(f"runs/mended/*/*/{RESULTS}"):
        rows = {(row.benchmark, row.metric) for row in read_results(file)}
        assert ("test_repair", "excess") in rows or not is_there("benchmark=repair")
        assert ("original_classification", "acc1") in rows
