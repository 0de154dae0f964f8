"""``evaluate.py benchmark=skew`` on hand-laid sets."""

from __future__ import annotations

import numpy as np
import pytest

from cfaug.report.items import read_items
from cfaug.report.results import read_results
from tests.grid_sets import every_grid_set, grid_set, lay_grid_sets

QUICK = ["device=cpu", "benchmark.permutations=199", "benchmark.resamples=20"]


@pytest.mark.slow
def test_a_model_is_asked_who_it_retrieves_and_again_with_the_same_bytes(place, tmp_path, capsys):
    folder = lay_grid_sets(tmp_path / "sets", every_grid_set(sets=3))
    words = ["benchmark=skew", f"benchmark.data={folder}", "model=tiny_clip", *QUICK]
    assert place.evaluate(*words) == 0
    said = capsys.readouterr().out
    assert "race_gender by race_gender, K=6: mean MaxSkew" in said
    assert "subjects stand out after correction (Holm, p <= 0.05)" in said
    assert "under a condition (race|gender=male and 4 more)" in said
    (results,) = place.root.rglob("results.jsonl")
    items = read_items(results.parent, "sets_skew")
    for row in read_results(results):
        chosen = np.ones(len(items), bool)
        for name, value in row.by.items():
            chosen &= np.array([str(one) for one in np.asarray(items.columns[name])]) == value
        values = items.metric(row.metric)[chosen]
        assert row.value == pytest.approx(np.nanmean(values))
        assert row.n == int((~np.isnan(values)).sum()) == 4
    file = results.parent / "items" / "sets_skew.parquet"
    rankings = results.parent / "rankings" / "sets_skew.parquet"
    before = {one: one.read_bytes() for one in (file, rankings, results)}
    for removed in (file, rankings):
        removed.unlink()
        assert place.evaluate(*words) == 0  # from embeddings that were kept
        assert {one: one.read_bytes() for one in before} == before
    assert place.evaluate(*words) == 0
    assert "already evaluated" in capsys.readouterr().out
    page = results.parent / "sets_skew.html"
    text = page.read_text()
    assert "mean MaxSkew@6 over 4 subjects, race_gender" in text
    page.unlink()
    assert place.evaluate(*words, "benchmark.page=null") == 0
    assert not page.exists()
    assert place.evaluate(*words) == 0  # from the items
    assert page.read_text() == text
    assert place.evaluate(*words, "benchmark.k=[3,labels]", "benchmark.labellings=[gender]") == 0
    assert {row.by["k"] for row in read_results(results)} == {"6", "3", "2"}


@pytest.mark.slow
def test_what_cannot_be_asked_is_said(place, tmp_path, capsys):
    sets = [grid_set("doctor"), grid_set("nurse", repeat=[1])]
    folder = lay_grid_sets(tmp_path / "sets", sets)
    words = ["benchmark=skew", f"benchmark.data={folder}", "model=tiny_clip", *QUICK]
    assert place.evaluate(*words) == 2
    said = capsys.readouterr().err
    assert "nurse-0: 'White female' is duplicated: it has 2 images" in said
    assert place.evaluate(*words, "benchmark.invalid=leave_out", "benchmark.k=7") == 2
    assert "k=7 is more than the pool of 6 images" in capsys.readouterr().err
    assert place.evaluate("benchmark=skew", "model=tiny_clip") == 2
    assert "needs benchmark.data=FOLDER" in capsys.readouterr().err
    assert place.evaluate(*words[:2], "model=classifier", "model.name_or_path=x") == 2
