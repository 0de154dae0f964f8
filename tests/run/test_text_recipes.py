"""Recipes that edit captions alone, by ``generate.py``: their sets, and training on them."""

from __future__ import annotations

import json

import pytest

from cfaug.data.shards.shards import read_all_edits, read_sets
from tests.run.conftest import SCENES, stdout_of


def make(script, folder, worlds, recipe, *words):
    """Run a recipe on a few scenes; return its exit code."""
    return script("generate")([
        f"recipe={recipe}", f"paths.shards={folder}", f"paths.worlds={worlds}", *SCENES,
        "data.source=shapescapes:real", "data.leave_out=null", "limit=24",
        "shards.sets_per_shard=10", *words,
    ])  # fmt: skip


@pytest.mark.parametrize("recipe", ["deletion", "eda", "checklist", "clare"])
def test_a_set_is_two_captions_on_one_photo(recipe, script, shards, tmp_path):
    assert make(script, tmp_path / recipe, shards, recipe) == 0
    made = list(read_sets(tmp_path / recipe))
    assert len(made) == 24
    changed = [pair for pair in made if pair.members[1].edit is not None]
    if recipe == "checklist":
        # Captions of the world have no numbers, places or names.
        assert {pair.members[1].edit.after for pair in changed} == {"there's"}
    else:
        assert len(changed) > 18
    for pair in made:
        before, after = pair.members
        assert list(pair.images) == ["0"]
        assert (before.image_name, after.image_name) == ("0", "0")
        assert before.edit is None
        if after.edit is None:
            assert after.text == before.text
            assert after.extra["changes"] == []
            assert after.extra["reason"]
        else:
            assert after.text != before.text
            assert after.edit.kind == recipe
            assert after.extra["changes"][0]["operation"]


def test_captions_without_photos_are_edited_too(script, tmp_path):
    lines = [{"image_id": 7, "caption": "Three dogs that are red"}, {"caption": "?!"}]
    (tmp_path / "captions.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    words = ["recipe=checklist", "zoo=captions", "stage=captions", f"paths.shards={tmp_path}/out",
             f"data.source={tmp_path}/captions.jsonl"]  # fmt: skip
    assert script("generate")(words) == 0
    three, signs = (edited.proposals[0] for _, edited in read_all_edits(tmp_path / "out"))
    assert three.details[1]["changes"][0]["operation"] == "number"
    assert signs.details[1] == {"changes": [], "reason": "no_words"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe", ["negclip_swaps", "negate", "affirm", "half_truth", "full_truth", "paraphrase"]
)
def test_wrong_and_right_captions_are_sets_to_train_with(recipe, script, shards, tmp_path):
    """Text negatives, or hard positives: only captions that have one, each beside its own photo."""
    words = (
        ["recipe.editor.kinds=[noun_phrase,adjective,noun]"] if recipe == "negclip_swaps" else []
    )
    assert make(script, tmp_path / recipe, shards, recipe, *words) == 0
    made = list(read_sets(tmp_path / recipe))
    assert 4 <= len(made) <= 24
    for pair in made:
        before, after = pair.members
        assert list(pair.images) == ["0"]
        assert (before.edit, before.text == after.text) == (None, False)
        assert after.extra["changes"][0]["operation"]
    mixture = "data.mixture=ratio" if recipe == "paraphrase" else "data.negatives=text"
    words = [
        "data.real=null", f"data.counterfactual={tmp_path / recipe}", "data.cf_ratio=1",
        "data.world=null", mixture, "loss=hard_negatives", "dry_run=json",
        "data.batch_size=8", f"paths.runs={tmp_path / 'runs'}", f"paths.shards={shards}",
    ]  # fmt: skip
    said = json.loads(stdout_of(script("train"), words).splitlines()[-1])
    counts = said["counts"]
    if recipe != "paraphrase":
        assert counts["text_negatives"] == counts["train"] > 0
        assert said["a_batch"]["positives"] == said["a_batch"]["text_negatives"]
    else:
        assert "text_negatives" not in counts
