"""``evaluate.py benchmark=insertion`` and ``benchmark=text_overlap`` on hand-laid sets."""

from __future__ import annotations

import shutil

from cfaug.data.storage.shards import write_shards
from cfaug.report.items import read_items
from cfaug.report.results import read_results
from tests.bench.text_sets import text_set

WORDS = {"xmai": "small green", "eda": "tiny"}


def make_sets(folder):
    """Write sets of two methods and return what names them."""
    for kind, word in WORDS.items():
        sets = [
            text_set(n, word, kind, scores={"truth_0": 1.0, "truth_1": float(n > 2)})
            for n in range(12)
        ]
        write_shards(sets, folder / kind)
    named = ", ".join(f"{kind}: {folder / kind}" for kind in WORDS)
    return f"benchmark.data={{{named}}}"


def test_texts_alone_are_asked_without_a_model_or_a_run(place, tmp_path, capsys):
    words = ["benchmark=text_overlap", make_sets(tmp_path / "sets"), "benchmark.synonyms=null"]
    assert place.evaluate(*words) == 0
    folder = place.root / "weights" / "no-model" / "seed=0"
    rows = read_results(folder / "results.jsonl")
    assert {row.by["method"] for row in rows} == set(WORDS)
    assert len(read_items(folder, "text_overlap")) == 24
    assert "text_overlap (n=12)" in capsys.readouterr().out
    assert place.evaluate(*words) == 0
    assert "already evaluated" in capsys.readouterr().out
    # Where a model is named, the answer stands beside that model's others.
    assert place.evaluate(*words, "model=tiny_clip") == 0
    assert (place.root / "weights" / "zoo-clip-0" / "seed=0" / "results.jsonl").exists()
    shutil.rmtree(tmp_path / "sets" / "eda")
    assert place.evaluate(*words) == 2
    assert "eda" in capsys.readouterr().err
