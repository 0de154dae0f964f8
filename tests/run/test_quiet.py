"""``quiet`` and ``verbose`` of every command: what is printed changes, and nothing else."""

from __future__ import annotations

import os

import pytest

from cfaug.core.errors import LEVEL
from tests.run.conftest import SCENES, output_of, refusal, stdout_of


def test_both_are_refused_together(place):
    said = refusal(place.train, "data.cf_ratio=0", "quiet=true", "verbose=true")
    assert "choose one" in said


@pytest.mark.slow
def test_quiet_commands_say_the_sentence_and_paths(place, monkeypatch):
    monkeypatch.delenv(LEVEL, raising=False)
    words = [
        "--multirun",
        "seed=1",
        "data.cf_ratio=0,0.6",
        "data.size=30",
        "arm=null",
        "optim.warmup=0",
    ]
    said, comments = output_of(place.train, *words, "quiet=true")
    assert comments == ""
    *runs, last = said.splitlines()
    folders = sorted(file.parent for file in place.root.glob("main/*/seed=1/run.json"))
    assert sorted(line.split()[1] for line in runs) == sorted(map(str, folders))
    assert not any("quiet" in str(folder.relative_to(place.root)) for folder in folders)
    assert last == f"all 2 runs are done: {place.root / 'main'}"
    # The same arms, whatever is printed.
    said, comments = output_of(place.train, *words, "verbose=true")
    assert said.count("already done: ") == 2
    assert comments.splitlines()[-1].startswith("next: python evaluate.py")

    said, comments = output_of(place.evaluate, "benchmark=heldout", "quiet=true")
    assert comments == ""
    *wrote, sentence = [line for line in said.splitlines() if not line.startswith("already")]
    assert len(wrote) == 1
    assert wrote[0].startswith("wrote table.csv, table.md")
    assert sentence.endswith(".")
    usual, comments = output_of(place.evaluate, "benchmark=heldout")
    assert comments.splitlines()[-1].startswith("next: open ")
    assert usual.splitlines()[-1] == sentence
    verbose = stdout_of(place.evaluate, "benchmark=heldout", "verbose=true")
    assert "Comparisons" in verbose
    assert "Comparisons" not in usual.replace("Comparisons of one seed", "")
    assert verbose.count("Image to text") > usual.count("Image to text"), "of each run, too"
    assert LEVEL not in os.environ


@pytest.mark.slow
def test_a_checkpoint_is_printed_again_as_it_was(place):
    words = [*SCENES, "weights=zoo:clip-0", "benchmark=cf"]
    words.append("benchmark.only=[shapescapes_cf_retrieval]")
    first, again = (stdout_of(place.evaluate, *words) for _ in range(2))
    table = first[: first.index("wrote ")]
    assert "Image to text" in table
    assert again.startswith(table)
