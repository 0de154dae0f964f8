"""``evaluate.py benchmark=image_quality`` and ``caption_perplexity`` on hand-laid shards."""

from __future__ import annotations

import pytest

from cfaug.report.results import read_results
from tests.run.conftest import refusal
from tests.run.test_stress import asked, lay_sets, save_timm


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return lay_sets(tmp_path_factory.mktemp("stress"))


@pytest.mark.slow
def test_figure_4_is_asked_of_any_encoder_and_of_a_language_model(data, place, tmp_path):
    folder = save_timm(tmp_path / "timm")
    for model in (["model=tiny_clip"], ["model=timm", f"model.weights={folder}"]):
        words = asked(data, *model)
        assert place.evaluate(*["benchmark=image_quality", *words[1:]]) == 0
    words = asked(data, "model=language_model", "model.weights=zoo:language/causal")
    assert place.evaluate(*["benchmark=caption_perplexity", *words[1:]]) == 0
    rows = [row for file in place.root.rglob("results.jsonl") for row in read_results(file)]
    assert {row.metric for row in rows} == {"fid", "kid", "fid_halves", "perplexity"}
    assert {row.benchmark for row in rows} == {"lance_quality", "lance_perplexity"}
    assert len({row.weights for row in rows}) == 3
    assert all(row.better == "lower" for row in rows)
    said = refusal(place.evaluate, "benchmark=image_quality", *words[1:])
    assert "provides LanguageModel, but lance_quality needs FeatureExtr" in said
