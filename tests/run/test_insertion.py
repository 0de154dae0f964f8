"""``evaluate.py benchmark=insertion`` and ``benchmark=text_overlap`` on hand-laid sets."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from cfaug.data.shards.shards import write_shards
from cfaug.report.items import read_items
from cfaug.report.results import read_results
from tests.evaluation.text_sets import text_set

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


@pytest.mark.slow
def test_a_model_that_is_named_has_the_answer_beside_its_others(place, tmp_path):
    words = ["benchmark=text_overlap", make_sets(tmp_path / "sets"), "model=tiny_clip"]
    assert place.evaluate(*words, "benchmark.synonyms=null") == 0
    assert (place.root / "weights" / "zoo-clip-0" / "seed=0" / "results.jsonl").exists()


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
    shutil.rmtree(tmp_path / "sets" / "eda")
    assert place.evaluate(*words) == 2
    assert "eda" in capsys.readouterr().err


@pytest.mark.slow
def test_a_model_is_asked_about_both_methods_and_again_with_the_same_bytes(place, tmp_path, capsys):
    data = make_sets(tmp_path / "sets")
    words = ["benchmark=insertion", data, "model=tiny_clip", "device=cpu", "benchmark.page=4"]
    assert place.evaluate(*words) == 0
    said = capsys.readouterr().out
    for kind in WORDS:
        assert f"insertion, {kind}: MRR" in said
    assert "3 of 12 judged texts are no longer as true as before; over the 9 that are" in said
    (results,) = place.root.rglob("results.jsonl")
    items = read_items(results.parent, "insertion")
    for row in read_results(results):
        if row.metric.startswith("labels_") or row.metric == "inserted_words_sd":
            continue
        chosen = np.ones(len(items), bool)
        for name, value in row.by.items():
            chosen &= np.asarray(items.columns[name]) == value
        values = items.metric(row.metric)[chosen]
        assert row.value == pytest.approx(np.nanmean(values))
        assert row.n == int((~np.isnan(values)).sum())
    page, file = results.parent / "insertion.html", results.parent / "items" / "insertion.parquet"
    before = {one: one.read_bytes() for one in (file, results, page)}
    file.unlink()
    assert place.evaluate(*words) == 0  # from embeddings that were kept
    page.unlink()
    assert place.evaluate(*words) == 0  # from the items
    assert {one: one.read_bytes() for one in before} == before
    assert place.evaluate(*words) == 0
    assert "already evaluated" in capsys.readouterr().out
    assert place.evaluate(*words, "benchmark.pairs_per_batch=5") == 0
    assert "mrr_batches" in results.read_text()
    assert place.evaluate("benchmark=insertion", "model=tiny_clip") == 2
    assert "benchmark=insertion needs benchmark.data=FOLDER" in capsys.readouterr().err
