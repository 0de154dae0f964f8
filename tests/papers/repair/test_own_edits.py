"""A repair is judged on edits of somebody's own, with a control or without."""

from __future__ import annotations

import json
import math

import pytest

from cfaug.core.errors import UserError
from cfaug.evaluation.stress.stress import Stress
from cfaug.models.task_specs import ImageClassification
from cfaug.papers.repair.repair_test import RepairTest
from tests.evaluation.stress.test_own_edits import NAMES, RULE, lay
from tests.evaluation.stress.test_stress import Twin, opener
from tests.models import tiny


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tiny.save_classifier(tmp_path_factory.mktemp("weights") / "classifier")
    return ImageClassification(str(folder)).load()


def test_a_repair_is_judged_on_edits_of_ones_own(tmp_path, classifier):
    folder = lay(tmp_path / "x")
    failure = {
        "family": "stress",
        "kind": "blur",
        "before": "",
        "after": "blur",
        "labels": ["ball"],
    }
    (tmp_path / "failures.jsonl").write_text(json.dumps(failure) + "\n")

    def judge(**settings):
        test = RepairTest(
            Stress(str(folder), **settings), str(tmp_path / "failures.jsonl"), RULE
        ).open(opener(tmp_path))[0]
        return test.run(classifier)

    with pytest.raises(
        UserError, match=r"none of the 3 edits .* benchmark\.test\.control=original"
    ):
        judge()
    items = judge(control="original").items
    assert len(items["item"]) == 3
    twin = Twin(classifier)
    for item, excess in zip(sorted(items["item"]), items["excess"], strict=True):
        assert item.startswith("edited/ball-")
        assert not math.isnan(excess)
    losses = []
    for name in [name for name in NAMES if name.startswith("ball")]:
        photo, edit = ((folder / side / f"{name}.png").read_bytes()
                       for side in ("original", "edited/blur"))  # fmt: skip
        losses.append(twin.describe(photo, "ball")["p"] - twin.describe(edit, "ball")["p"])
    assert sorted(items["excess"]) == pytest.approx(sorted(losses), abs=2e-6)
