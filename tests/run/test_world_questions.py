"""The questions of ``shapescapes_vqa:test`` reach a model, and say nothing to a blind one."""

from __future__ import annotations

import numpy as np
import pytest

from cfaug.report.items import read_items
from tests.models import tiny_vlm

SMALL = (
    "benchmark=vqa", "benchmark.data=shapescapes_vqa:test", "data.world.vqa_test_pairs=12",
    "data.world.image_size=16",
)  # fmt: skip


def test_nothing_is_wrong_with_the_world_s_questions(place, capsys):
    assert place.evaluate(*SMALL, "dry_run=true") == 0
    said = capsys.readouterr().out
    assert "24 images, 120 questions (24 basic, 96 counterfactual)" in said
    assert "nothing is wrong" in said


@pytest.mark.slow
def test_a_model_without_the_image_is_right_in_exactly_half(place, tmp_path):
    tiny_vlm.save_llava(tmp_path / "vlm")
    asked = ("model=vlm", f"model.name_or_path={tmp_path / 'vlm'}", "device=cpu")
    assert place.evaluate(*SMALL, *asked) == 0
    (results,) = place.root.rglob("results.jsonl")
    items = read_items(results.parent, "shapescapes_vqa_test_vqa")
    assert len(items) == 120
    for name in ("blind_acc_b", "blind_acc_c", "prior_acc_b", "prior_acc_c"):
        assert np.nanmean(items.metric(name)) == 0.5, name
    assert len(set(items.columns["cluster"])) == 12
