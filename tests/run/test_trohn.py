"""TROHN's training sets as arms: what a dry run counts of them."""

from __future__ import annotations

import json

import pytest

from tests.data.compositional import trohn_img, trohn_text


@pytest.mark.parametrize(
    ("lay", "arm", "positives", "texts", "images"),
    [
        (trohn_text, "none", 3, 0, 0),
        (trohn_text, "text", 3, 3, 0),
        (trohn_img, "both", 8, 8, 8),
    ],
)
def test_counts(lay, arm, positives, texts, images, script, tmp_path, capsys):
    folder = lay(tmp_path / "set")
    code = script("train")([
        "data=folder", "data.real=null", f"data.counterfactual={folder}:train", "data.cf_ratio=1",
        f"data.negatives={arm}", "loss=hard_negatives", "data.holdout=0", "data.validation=0",
        "trainer.checkpoint=last", "dry_run=json", f"paths.runs={tmp_path / 'runs'}",
        f"paths.shards={tmp_path / 'shards'}",
    ])  # fmt: skip
    out, err = capsys.readouterr()
    assert code == 0, err
    counts = json.loads(out.splitlines()[-1])["counts"]
    assert counts["train"] == positives
    assert (counts["text_negatives"], counts["image_negatives"]) == (texts, images)
