"""Training on edited captions: ``experiment=xmai_training`` at the smallest size."""

from __future__ import annotations

import pytest

from cfaug.report.document import read_document
from tests.run.conftest import SCENES
from tests.run.test_text_recipes import make


@pytest.mark.slow
def test_arms_train_on_edited_captions_and_are_asked_about_them(script, place, shards, tmp_path):
    words = ["world@data.world=xmai_training"]
    for recipe, name, more in (
        ("xmai", "insertions", []),
        ("xmai", "insertions_faithful", ["recipe.editor.weights=[1,5,0]"]),
        ("deletion", "deletion", []),
    ):
        folder = shards / "xmai_training" / name
        assert make(script, folder, shards, recipe, *words, *more) == 0
    few = [*SCENES, "data.batch_size=8", *place.paths]
    arms = ("before", "real", "real_more", "real_again", "insertions", "insertions_faithful",
            "deletion")  # fmt: skip
    for arm in arms:
        alone = arm in ("before", "real")
        steps = f"trainer.max_steps={0 if arm == 'before' else 1}"
        size = f"data.size={10 if alone else 20}"
        words = [f"experiment=xmai_training/{arm}", f"arm={arm}", steps, size]
        assert script("train")([*words, *few, "seed=1"]) == 0
        counts = place.record(arm, 1, "xmai_training")["counts"]
        assert counts["counterfactual"] == (0 if alone else 10)
    data = f"benchmark.data={{XMAI: {shards}/xmai_training/insertions}}"
    asked = ["benchmark=insertion", "benchmark.name=xmai_training", "benchmark.synonyms=null", data]
    assert place.evaluate("name=xmai_training", *asked) == 0
    assert place.table("xmai_training") == 0
    document = read_document(place.root / "tables" / "xmai_training.json")
    values, declared, *_ = document.parts
    named = [labels[0] for labels, _ in values.rows]
    assert named[1:3] == ["half the captions", "captions unedited"]
    assert len(values.rows) == len(arms)
    assert len(declared.rows) == 2
