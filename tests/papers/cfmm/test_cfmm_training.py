"""``experiment=cfmm_training`` at the smallest size: every arm, the questions, the table."""

from __future__ import annotations

import pytest

from cfaug.report.document import read_document
from cfaug.report.results import read_results
from cfaug.settings.choices import read_arms
from tests.files_of_settings import settings_file

ARMS = sorted(read_arms(settings_file("experiment/cfmm_training")))


@pytest.mark.slow
def test_every_arm_of_the_experiment_is_asked_the_worlds_test_and_compared(
    tmp_path, script, capsys
):
    paths = [f"paths.runs={tmp_path / 'runs'}", f"paths.shards={tmp_path}"]
    small = ["data.world.vqa_pairs=12", "data.world.vqa_test_pairs=6", "data.size=20",
             "data.batch_size=10", "trainer.progress=false"]  # fmt: skip
    for arm in ARMS:
        steps = [] if arm == "before" else ["trainer.max_steps=1"]
        words = [f"experiment=cfmm_training/{arm}", f"arm={arm}", "seed=1", *small, *steps]
        assert script("train")([*words, *paths]) == 0
    assert script("evaluate")(["name=cfmm_training", "comparison=cfmm_training", *paths]) == 0
    for arm in ARMS:
        run = tmp_path / "runs/cfmm_training" / arm / "seed=1"
        rows = read_results(run / "results.jsonl")
        assert {row.benchmark for row in rows} == {"shapescapes_vqa_test_vqa"}
        assert {"acc_b", "acc_c", "acc_plus", "phi"} <= {row.metric for row in rows}
    capsys.readouterr()
    assert script("table")(["cfmm_training", *paths]) == 0
    document = read_document(tmp_path / "runs/tables/cfmm_training.json")
    titles = [part.title for part in document.parts]
    assert "Declared before looking" in titles
    assert len(document.parts[0].rows) == len(ARMS)
