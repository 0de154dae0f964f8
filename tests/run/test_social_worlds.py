"""``make social`` at the smallest size: worlds with and without a skew, the question, the table."""

from __future__ import annotations

import pytest

from cfaug.report.document import read_document
from cfaug.report.items import read_items
from cfaug.report.results import read_results

SMALL = ["data.world.real_scenes=40", "data.batch_size=16", "trainer.max_steps=2"]


@pytest.mark.slow
def test_models_of_skewed_worlds_are_asked_and_tabled(script, tmp_path, capsys):
    paths = [f"paths.runs={tmp_path / 'runs'}", f"paths.shards={tmp_path / 'shards'}"]
    for folder, shuffled in (("social_debias", "false"), ("social/shuffled", "true")):
        words = ["recipe=social_oracle", "recipe.draws.candidates=1", "limit=30"]
        words += [f"recipe.image_editor.shuffled={shuffled}", "recipe.image_editor.image_size=32"]
        assert script("generate")([*words, f"paths.shards={tmp_path / 'shards' / folder}"]) == 0
    planted = ["experiment=social/planted", "arm=both-1", "data.world.skew=1", "-m", "seed=0,1"]
    assert script("train")([*planted, *SMALL, *paths]) == 0
    nothing = ["experiment=social/nothing", "seed=0"]
    assert script("train")([*nothing, *SMALL, *paths]) == 0
    for name in ("social", "social_nothing"):
        asked = [f"name={name}", "benchmark=social", "benchmark.skip=[generated_skew]"]
        assert script("evaluate")([*asked, *paths]) == 0
    run = tmp_path / "runs" / "social" / "both-1" / "seed=1"
    items = read_items(run, "oracle_skew")
    assert len(items) == 3 * 10
    assert set(items.columns["k"]) == {12}
    assert set(items.columns["n_sets"]) == {3}
    metrics = {row.metric for row in read_results(run / "results.jsonl")}
    assert {"max_skew", "max_skew_excess", "rank_gap"} <= metrics
    assert not (run / "oracle_skew.html").exists()
    capsys.readouterr()
    assert script("evaluate")(["table=social_oracle", *paths]) == 0
    assert "is a planted skew found?" in capsys.readouterr().out
    document = read_document(tmp_path / "runs" / "tables" / "social_oracle.json")
    recovery, order, alarms = document.parts
    assert [labels for labels, _ in recovery.rows] == [("both", "0", "1"), ("both", "1", "2")]
    assert order.groups == (("Oracle sets", 3),)
    assert {labels[0] for labels, _ in alarms.rows} == {"Oracle sets", "Shuffled sets"}
    [curve] = document.curves
    assert curve.title.startswith("Oracle sets, planted labels: both")
